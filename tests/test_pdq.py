"""PDQ: the reference's bits, the eight orientations, and an exact search."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from synth import images
from synth.guard import pdq

PHOTOS = Path(__file__).resolve().parents[2] / "shared" / "data" / "photos"


def structured(seed: int, height: int = 120, width: int = 160) -> np.ndarray:
    """A picture with structure at several scales, (H, W, 3) uint8."""
    rng = np.random.default_rng(seed)
    total = np.zeros((height, width, 3), dtype=np.float32)
    for cells in (4, 8, 16):
        coarse = Image.fromarray(rng.integers(0, 256, (cells, cells, 3), dtype=np.uint8))
        total += np.asarray(coarse.resize((width, height), Image.Resampling.BILINEAR), dtype=np.float32)
    return (255 * (total - total.min()) / (total.max() - total.min())).astype(np.uint8)


def distance(a: np.ndarray, b: np.ndarray) -> int:
    return int(pdq.distances(a[None], b[None])[0, 0])


def test_equals_the_reference_implementation() -> None:
    pdqhash = pytest.importorskip("pdqhash", reason="pdqhash is not installed")
    if not PHOTOS.is_dir():
        pytest.skip("needs ../shared/data/photos")
    worst, off = 0, 0
    for path in sorted(PHOTOS.iterdir())[:12]:
        rgb = images.decode(path.read_bytes())
        bits, quality = pdqhash.compute(np.ascontiguousarray(rgb))
        ours, ours_quality = pdq.reference_hash(pdq.luma(rgb))
        worst = max(worst, distance(ours, np.packbits(bits.astype(bool))))
        off = max(off, abs(quality - ours_quality))
    assert worst <= 10
    assert off <= 1


def test_a_hash_has_as_many_ones_as_zeros_and_the_published_text_form() -> None:
    packed, quality = pdq.hashes(pdq.working_luma(structured(1)))
    assert packed.shape == (8, 32)
    assert packed.dtype == np.uint8
    assert np.bitwise_count(packed).sum(axis=1).tolist() == [128] * 8
    assert 30 <= quality <= 100
    assert len(pdq.hexadecimal(packed[0])) == 64


@pytest.mark.parametrize(
    ("name", "turn"),
    [
        ("identity", lambda a: a),
        ("mirror", lambda a: a[:, ::-1]),
        ("flip", lambda a: a[::-1]),
        ("rot180", lambda a: np.rot90(a, 2)),
        ("transpose", lambda a: a.swapaxes(0, 1)),
        ("rot90", lambda a: np.rot90(a)),
        ("rot270", lambda a: np.rot90(a, 3)),
        ("transverse", lambda a: np.rot90(a, 2).swapaxes(0, 1)),
    ],
)
def test_one_transform_gives_the_hash_of_every_turned_picture(name, turn) -> None:
    rgb = structured(2)
    all_eight, _ = pdq.hashes(pdq.working_luma(rgb))
    turned, _ = pdq.hashes(pdq.working_luma(np.ascontiguousarray(turn(rgb))))
    apart = [distance(turned[0], packed) for packed in all_eight]
    assert apart[pdq.ORIENTATIONS.index(name)] <= 4
    assert sorted(apart)[1] > 60


def test_size_and_recompression_hardly_matter_and_another_picture_does() -> None:
    rgb = structured(3, 480, 640)
    base = pdq.hashes(pdq.working_luma(rgb))[0][0]
    for side in (64, 128, 200, 1000):
        small = images.resize(rgb, side, side * 3 // 4)
        assert distance(base, pdq.hashes(pdq.working_luma(small))[0][0]) <= 30
    buffer = io.BytesIO()
    Image.fromarray(rgb).save(buffer, "JPEG", quality=20)
    assert distance(base, pdq.hashes(pdq.working_luma(images.decode(buffer.getvalue())))[0][0]) <= 20
    others = [pdq.hashes(pdq.working_luma(structured(seed)))[0][0] for seed in range(10, 30)]
    assert min(distance(base, other) for other in others) > 80


def test_a_uniform_picture_has_no_quality() -> None:
    assert pdq.hashes(np.full((90, 120), 77, dtype=np.float32))[1] == 0
    faint = np.full((90, 120), 77, dtype=np.float32)
    faint[:, 60:] += 2
    assert pdq.hashes(faint)[1] < 30


def test_the_search_counts_every_bit() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 256, (7, 32), dtype=np.uint8), rng.integers(0, 256, (11, 32), dtype=np.uint8)
    b[3] = a[5]
    b[4] = 255 - a[5]
    slow = (np.unpackbits(a, axis=1)[:, None] != np.unpackbits(b, axis=1)[None]).sum(axis=2)
    assert (pdq.distances(a, b) == slow).all()
    assert pdq.distances(a, b)[5, 3] == 0
    assert pdq.distances(a, b)[5, 4] == 256  # more than a byte can hold
