"""Planted copies: the only proof that the guard was on.

Transformed copies of benchmark images go through the same check as the run's own images. One that is missed means that
the guard, as it ran, establishes nothing; why does not matter.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from synth import images
from synth.errors import GuardError, ImageError
from synth.guard import pdq
from synth.guard.cascade import Content, Guard
from synth.guard.index import MIN_QUALITY
from synth.marks import draw_marks
from synth.types import JsonValue, Mark, Rgb

LEAST = 10
"""Fewer planted copies prove nothing."""

_CONTRAST = 40.0
"""See `pdq.contrast`: from here on, marks moved the hash of a rendered room by at most 52 bits in 450 tries."""
_LOOKED_AT = 50
"""Pictures decoded at most for each copy wanted."""

Transform = Callable[[Rgb, np.random.Generator], bytes]


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A copy that the guard must find."""

    data: bytes
    truth: str
    """Name of the benchmark image."""
    transform: str


@dataclass(frozen=True, kw_only=True)
class Miss:
    """A planted copy that got through, or was taken for another image."""

    truth: str
    transform: str
    content: Content
    verdict: str
    nearest: str | None
    distance: int | None


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What became of the planted copies. A copy counts as found only where it was found under every content."""

    n: int
    found: int
    by_transform: Mapping[str, tuple[int, int]]
    """Transform -> (planted, found)."""
    missed: tuple[Miss, ...]

    @property
    def established(self) -> bool:
        """True when enough copies were planted and none was missed."""
        return self.n >= LEAST and self.found == self.n


def plant(benchmark: Mapping[str, bytes], n: int, rng: np.random.Generator) -> tuple[Planted, ...]:
    """n transformed copies of randomly chosen benchmark images (name in the index -> encoded bytes).

    The transforms take turns, so that n >= len(TRANSFORMS) uses each. Marks, which move a hash most, go to the picture
    of most contrast, and pictures of little contrast are used only where there are no others: what many marks do to
    those is more than the guard claims to bear. Raises GuardError where no image has structure enough for a hash (the
    guard rejects what is like them as unverifiable).
    """
    names = sorted(benchmark)
    order = [names[i] for i in rng.permutation(len(names))]
    usable = _usable(benchmark, order, wanted=n)
    if not usable:
        raise GuardError(
            "no benchmark image can be planted: none can be decoded or all have too little structure",
            fix="check the benchmark's images",
        )
    kinds = sorted(TRANSFORMS, key=lambda kind: (kind != "marks", kind))
    planted = []
    for number in range(n):
        name, rgb = usable[number % len(usable)]
        kind = kinds[number % len(kinds)]
        planted.append(Planted(data=TRANSFORMS[kind](rgb, rng), truth=name, transform=kind))
    return tuple(planted)


def prove(guard: Guard, planted: Sequence[Planted], contents: Sequence[Content] = ("photograph",)) -> Proof:
    """Send planted copies through the guard's own check, once for every content that the run used."""
    missed: list[Miss] = []
    counts: dict[str, tuple[int, int]] = {}
    for copy in planted:
        misses = [miss for content in contents if (miss := _miss(guard, copy, content)) is not None]
        missed += misses
        total, found = counts.get(copy.transform, (0, 0))
        counts[copy.transform] = (total + 1, found + (not misses))
    return Proof(
        n=len(planted),
        found=sum(found for _, found in counts.values()),
        by_transform=dict(sorted(counts.items())),
        missed=tuple(missed),
    )


def _usable(benchmark: Mapping[str, bytes], order: Sequence[str], wanted: int) -> list[tuple[str, Rgb]]:
    """Up to `wanted` pictures of enough contrast in this order, or else the one of most; most contrast first."""
    found: list[tuple[float, str, Rgb]] = []
    weak: list[tuple[float, str, Rgb]] = []
    for name in order[: _LOOKED_AT * max(1, wanted)]:
        if len(found) == wanted:
            break
        try:
            rgb = images.decode(benchmark[name], min_side=1)
        except ImageError:
            continue
        picture = pdq.working_luma(rgb)
        if pdq.hashes(picture)[1] < MIN_QUALITY:
            continue
        entry = (pdq.contrast(picture), name, rgb)
        if entry[0] >= _CONTRAST:
            found.append(entry)
        else:
            weak = [max([*weak, entry], key=lambda one: one[0])]
    return [(name, rgb) for _, name, rgb in sorted(found or weak, key=lambda one: -one[0])]


def _miss(guard: Guard, copy: Planted, content: Content) -> Miss | None:
    found = guard.check_file(copy.data, content=content)
    if found.is_hit and found.match is not None and guard.index.alike(found.match, copy.truth):
        return None
    nearest, distance = found.evidence.get("nearest"), found.evidence.get("distance")
    return Miss(
        truth=copy.truth,
        transform=copy.transform,
        content=content,
        verdict=found.verdict,
        nearest=str(nearest) if nearest is not None else found.match,
        distance=distance if isinstance(distance, int) else None,
    )


def proof_json(proof: Proof) -> dict[str, JsonValue]:
    """For the certificate."""
    return {
        "n": proof.n,
        "found": proof.found,
        "by_transform": {name: {"n": n, "found": found} for name, (n, found) in proof.by_transform.items()},
        "missed": [vars(miss) for miss in proof.missed],
    }


# ---------------------------------------------------------------------------------------------------------- transforms


def _jpeg(rgb: Rgb, quality: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(rgb).save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def _scaled(rgb: Rgb, scale: float) -> Rgb:
    height, width = rgb.shape[:2]
    return images.resize(rgb, max(1, round(width * scale)), max(1, round(height * scale)))


def _thumb(rgb: Rgb) -> Rgb:
    """Longest side 128 px, or half of what it is."""
    longest = max(rgb.shape[:2])
    return _scaled(rgb, min(128, longest // 2) / longest)


def _gray(rgb: Rgb) -> Rgb:
    return np.asarray(Image.fromarray(rgb).convert("L").convert("RGB"))


def _bright(rgb: Rgb) -> Rgb:
    return np.asarray(np.clip(rgb.astype(np.float32) * 1.3 + 10, 0, 255), dtype=np.uint8)


def _marked(rgb: Rgb, rng: np.random.Generator) -> Rgb:
    """Two to five lettered rings, as visual prompts have them."""
    height, width = rgb.shape[:2]
    points = rng.uniform(0.1, 0.9, size=(int(rng.integers(2, 6)), 2)) * (width, height)
    marks = [Mark(label="ABCDE"[i], x=float(x), y=float(y)) for i, (x, y) in enumerate(points)]
    return draw_marks(rgb, marks, rng).rgb


def _padded(rgb: Rgb, vertical: int, horizontal: int, grey: int) -> Rgb:
    return np.pad(rgb, ((vertical, vertical), (horizontal, horizontal), (0, 0)), constant_values=grey)


def _border(rgb: Rgb, rng: np.random.Generator) -> Rgb:
    """15 % of the size on every side, black, white or grey."""
    height, width = rgb.shape[:2]
    return _padded(rgb, round(0.15 * height), round(0.15 * width), int(rng.choice([0, 255, 127])))


def _letterbox(rgb: Rgb) -> Rgb:
    """Black bars that make it 16:9, or square where it is wide already."""
    height, width = rgb.shape[:2]
    if width * 9 < height * 16:
        return _padded(rgb, 0, (round(height * 16 / 9) - width) // 2, 0)
    return _padded(rgb, (width - height) // 2, 0, 0)


def _collage(rgb: Rgb, rng: np.random.Generator) -> Rgb:
    """Beside another picture of the same height, on either side, with a gutter unlike its edges."""
    height, width = rgb.shape[:2]
    neighbour = _clouds(height, round(width * rng.uniform(0.7, 1.3)), rng)
    edges = np.concatenate([rgb[:, :2], rgb[:, -2:]], axis=1).mean()
    gutter = np.full((height, max(4, round(0.03 * width)), 3), 255 if edges < 128 else 0, dtype=np.uint8)
    pair = [rgb, gutter, neighbour]
    return np.concatenate(pair if rng.random() < 0.5 else pair[::-1], axis=1)


def _clouds(height: int, width: int, rng: np.random.Generator) -> Rgb:
    """Noise of several scales, which resembles no photograph and has structure enough to be hashed."""
    total = np.zeros((height, width, 3), dtype=np.float32)
    for cells in (3, 7, 15, 31):
        coarse = rng.integers(0, 256, size=(cells, cells, 3), dtype=np.uint8)
        total += images.resize(coarse, width, height).astype(np.float32) / cells**0.5
    low, high = total.min(), total.max()
    return np.asarray((total - low) / max(high - low, 1e-6) * 255, dtype=np.uint8)


TRANSFORMS: Mapping[str, Transform] = {
    "jpeg20": lambda rgb, rng: _jpeg(rgb, 20),
    "jpeg60": lambda rgb, rng: _jpeg(rgb, 60),
    "resize50": lambda rgb, rng: _jpeg(_scaled(rgb, 0.5), 90),
    "thumb": lambda rgb, rng: _jpeg(_thumb(rgb), 85),
    "hflip": lambda rgb, rng: _jpeg(rgb[:, ::-1].copy(), 90),
    "rot90": lambda rgb, rng: _jpeg(np.rot90(rgb).copy(), 90),
    "rot180": lambda rgb, rng: _jpeg(np.rot90(rgb, 2).copy(), 90),
    "gray": lambda rgb, rng: _jpeg(_gray(rgb), 90),
    "bright": lambda rgb, rng: _jpeg(_bright(rgb), 90),
    "marks": lambda rgb, rng: _jpeg(_marked(rgb, rng), 75),
    "border": lambda rgb, rng: _jpeg(_border(rgb, rng), 85),
    "letterbox": lambda rgb, rng: _jpeg(_letterbox(rgb), 85),
    "collage": lambda rgb, rng: _jpeg(_collage(rgb, rng), 85),
}
"""What these stages claim to find, and no more."""
