"""The one decode function, on made and on odd files."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from synth.errors import ImageError
from synth.images import decode, encode_jpeg, encode_png, image_id, inspect, resize


def encoded(image: Image.Image, kind: str = "PNG", **save: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **save)
    return buffer.getvalue()


def gradient(width: int = 60, height: int = 40) -> np.ndarray:
    rows, columns = np.mgrid[0:height, 0:width]
    return np.stack([columns * 4, rows * 6, (rows + columns) * 2], axis=-1).astype(np.uint8)


def test_png_round_trip_is_exact_and_identity_is_the_hash_of_the_bytes() -> None:
    data = encode_png(gradient())
    assert np.array_equal(decode(data), gradient())
    assert image_id(data) == hashlib.sha256(data).hexdigest() == inspect(data).image_id


def test_jpeg_keeps_thin_colours() -> None:
    rgb = np.full((64, 64, 3), 128, np.uint8)
    rgb[:, 32] = (255, 0, 200)
    back = decode(encode_jpeg(rgb)).astype(int)
    assert np.abs(back[:, 32] - (255, 0, 200)).max() < 40


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_exif_orientation(orientation: int) -> None:
    """The decoded picture is upright whatever the tag; inspect agrees about the size."""
    upright = Image.fromarray(gradient())
    undo = {
        1: None,
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }[orientation]
    stored = upright if undo is None else upright.transpose(undo)
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(stored, "PNG", exif=exif.tobytes())
    assert np.array_equal(decode(data), gradient())
    info = inspect(data)
    assert (info.width, info.height) == (60, 40)


def test_transparency_lies_on_white() -> None:
    rgba = np.zeros((40, 40, 4), np.uint8)
    assert (decode(encoded(Image.fromarray(rgba))) == 255).all()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"no picture at all", "unknown_format"),
        (encode_png(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8))[:2000], "truncated"),
        (encoded(Image.new("RGB", (8, 8))), "too_small"),
        (encoded(Image.new("I;16", (64, 64))), "unsupported"),
        (encoded(Image.new("1", (20000, 20000))), "too_large"),
        (encoded(Image.new("RGB", (64, 64)), "TIFF"), "unknown_format"),
    ],
)
def test_what_cannot_be_used_has_its_reason(data: bytes, reason: str) -> None:
    with pytest.raises(ImageError) as caught:
        decode(data)
    assert caught.value.reason == reason


def test_resize_keeps_the_mean() -> None:
    small = resize(gradient(), 30, 20)
    assert small.shape == (20, 30, 3)
    assert abs(float(small.mean()) - float(gradient().mean())) < 1.5


def test_odd_files_decode_or_say_why(shared: Path) -> None:
    """Every odd file either decodes to what its manifest says, or raises ImageError: never anything else."""
    entries = json.loads((shared / "manifest.json").read_text(encoding="utf-8"))["entries"]
    odd = [entry["file"] for entry in entries if entry["file"].startswith("odd/")]
    assert len(odd) > 30
    seen = set()
    for name in odd:
        try:
            rgb = decode((shared / name).read_bytes(), min_side=1)
            assert rgb.dtype == np.uint8 and rgb.ndim == 3 and rgb.shape[2] == 3
            seen.add("decoded")
        except ImageError as error:
            seen.add(error.reason)
    assert {"decoded", "empty", "truncated", "unknown_format", "too_large", "unsupported"} <= seen
