"""PDQ: a 256-bit perceptual hash of a picture, with its quality, in all eight orientations at once.

After Meta's description (PDQ & TMK+PDQF, 2019; ThreatExchange): luma, two passes of a box filter down to 64 x 64, the
16 x 16 lowest frequencies of a cosine transform without the constant row and column, one bit for each that exceeds
their median. Filter, decimation and transform are linear and separable, so here they are two matrix products.
Bits are packed in the order of the published hexadecimal form.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
from PIL import Image

from synth.types import Rgb

Luma = npt.NDArray[np.float32]
"""(H, W), 0..255."""
Hashes = npt.NDArray[np.uint8]
"""(..., 32): 256 bits."""

CANONICAL_SIDE = 320
"""Every picture is hashed as if resized to this square first, since hashes of one picture at two sizes differ by up to
35 bits. At 5 x 64 the filter window is odd and each sample lies in the middle of its cell, so that a mirrored picture
has the mirrored hash; at other sizes the samples are off by half a pixel, which costs about 28 bits."""

WORKING_SIDE = 512
"""Longest side of the copy that panels are cut from; smaller pictures stay as they are."""

ORIENTATIONS = ("identity", "mirror", "flip", "rot180", "transpose", "rot90", "rot270", "transverse")
"""Names of the last but one axis of `hashes`: mirror swaps left and right, flip top and bottom, rot90 turns
counter-clockwise, transverse is the transpose across the other diagonal."""

_SIDE = 64
_FREQUENCIES = 16
_PASSES = 2
_BITS = _FREQUENCIES * _FREQUENCIES


def working_luma(rgb: Rgb) -> Luma:
    """Luma of (H, W, 3) uint8, shrunk so that the longest side is at most `WORKING_SIDE`."""
    image = Image.fromarray(rgb).convert("L")
    scale = min(1.0, WORKING_SIDE / max(image.size))
    width, height = (max(1, round(side * scale)) for side in image.size)
    return np.asarray(image.resize((width, height), Image.Resampling.BILINEAR), dtype=np.float32)


def luma(rgb: Rgb) -> Luma:
    """Luma of (H, W, 3) uint8 at its own size (ITU-R BT.601 weights)."""
    return rgb.astype(np.float32) @ np.array([0.299, 0.587, 0.114], dtype=np.float32)


def hashes(picture: Luma) -> tuple[Hashes, int]:
    """((8, 32) hashes in the order of `ORIENTATIONS`, quality 0..100) of a luma picture (H, W), resized canonically.

    The hash at "mirror" is the hash that the mirrored picture would have. Quality counts gradients of the 64 x 64
    picture: below about 30 a hash says little, and a uniform picture has 0.
    """
    height, width = picture.shape
    return _hashes(np.asarray(_canonical(height) @ picture @ _canonical(width).T, dtype=np.float32))


def reference_hash(picture: Luma) -> tuple[Hashes, int]:
    """((32,) hash, quality) of a luma picture (H, W) at its own size: what other PDQ tools give for it."""
    height, width = picture.shape
    packed, quality = _hashes(np.asarray(_downsample(height) @ picture @ _downsample(width).T, dtype=np.float32))
    return packed[0], quality


def contrast(picture: Luma) -> float:
    """Median magnitude of the frequencies that the hash is made of: how firm its bits are against marks and noise."""
    height, width = picture.shape
    small = _canonical(height) @ picture @ _canonical(width).T
    transform = _cosines()
    return float(np.median(np.abs(transform @ small @ transform.T)))


def distances(queries: Hashes, rows: Hashes) -> npt.NDArray[np.uint16]:
    """Hamming distances (Q, N) of hashes (Q, 32) and (N, 32), 0..256; exact."""
    columns = np.ascontiguousarray(_words(rows).T)
    total = np.empty((len(queries), len(rows)), dtype=np.uint16)
    # Query by query, the intermediate results stay in the cache.
    for number, query in enumerate(_words(queries)):
        total[number] = np.bitwise_count(columns ^ query[:, None]).sum(axis=0, dtype=np.uint16)
    return total


def hexadecimal(packed: Hashes) -> str:
    """One hash (32,) as the 64 characters that other PDQ tools print."""
    return packed.tobytes().hex()


def _words(packed: Hashes) -> npt.NDArray[np.uint64]:
    return np.ascontiguousarray(packed, dtype=np.uint8).view(np.uint64)


def _hashes(small: Luma) -> tuple[Hashes, int]:
    """((8, 32), quality) of a 64 x 64 picture."""
    transform = _cosines()
    coefficients = transform @ small @ transform.T
    turned = coefficients.T
    odd = np.where(np.arange(_FREQUENCIES) % 2 == 0, -1.0, 1.0).astype(np.float32)
    across, down = odd[None, :], odd[:, None]
    stack = np.stack(
        [
            coefficients,
            coefficients * across,
            coefficients * down,
            coefficients * across * down,
            turned,
            turned * down,
            turned * across,
            turned * across * down,
        ]
    ).reshape(len(ORIENTATIONS), _BITS)
    # The lower of the two middle values, as the reference takes it.
    median = np.partition(stack, _BITS // 2 - 1, axis=1)[:, _BITS // 2 - 1 : _BITS // 2]
    return np.packbits((stack > median)[:, ::-1], axis=1), _quality(small)


def _quality(small: Luma) -> int:
    down = np.trunc((small[:-1] - small[1:]) * 100 / 255)
    right = np.trunc((small[:, :-1] - small[:, 1:]) * 100 / 255)
    return min(100, int((np.abs(down).sum() + np.abs(right).sum()) / 90))


@lru_cache(maxsize=256)
def _downsample(length: int) -> Luma:
    """(64, length): two box filters (windows cut at the ends), then the sample at the centre of each of 64 cells."""
    window = (length + 2 * _SIDE - 1) // (2 * _SIDE)
    ahead = (window + 2) // 2 - 1
    offsets = np.arange(length)[None, :] - np.arange(length)[:, None]
    box = ((offsets <= ahead) & (offsets >= ahead + 1 - window)).astype(np.float64)
    box /= box.sum(axis=1, keepdims=True)
    picked = ((np.arange(_SIDE) + 0.5) * length / _SIDE).astype(np.int64)
    filtered = box[picked]
    for _ in range(_PASSES - 1):
        filtered = filtered @ box
    decimated: Luma = filtered.astype(np.float32)
    return decimated


@lru_cache(maxsize=2048)
def _canonical(length: int) -> Luma:
    """(64, length): antialiased bilinear resize to `CANONICAL_SIDE`, then `_downsample`."""
    scale = length / CANONICAL_SIDE
    centres = (np.arange(CANONICAL_SIDE)[:, None] + 0.5) * scale
    offsets = (np.arange(length)[None, :] + 0.5 - centres) / max(scale, 1.0)
    tent = np.maximum(0.0, 1.0 - np.abs(offsets))
    tent /= tent.sum(axis=1, keepdims=True)
    combined: Luma = (_downsample(CANONICAL_SIDE).astype(np.float64) @ tent).astype(np.float32)
    return combined


@lru_cache(maxsize=1)
def _cosines() -> Luma:
    """(16, 64): rows 1 to 16 of the cosine transform of 64 samples."""
    frequency = np.arange(1, _FREQUENCIES + 1)[:, None]
    sample = 2 * np.arange(_SIDE)[None, :] + 1
    cosines: Luma = (np.sqrt(2 / _SIDE) * np.cos(np.pi / 2 / _SIDE * frequency * sample)).astype(np.float32)
    return cosines
