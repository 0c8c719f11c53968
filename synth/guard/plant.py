"""Planted copies: the only proof that the guard was on.

Transformed copies of benchmark images go through the same check as the run's own images. One that is missed means that
the guard, as it ran, establishes nothing; why does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from synth import images
from synth.errors import GuardError, ImageError
from synth.guard import features, pdq
from synth.guard.cascade import Guard
from synth.guard.drawings import is_drawing
from synth.guard.options import MIN_QUALITY, Content
from synth.guard.transforms import TRANSFORMS, clouds
from synth.types import JsonValue, Rgb

LEAST = 10
"""Fewer planted copies prove nothing."""

_CONTRAST = 40.0
"""See `pdq.contrast`: from here on, marks moved the hash of a rendered room by at most 52 bits in 450 tries."""
_POINTS = 40
"""Key points that a copy must have to be planted for local features: a crop of a clear sky cannot be found by any."""
_LOOKED_AT = 50
"""Pictures decoded at most for each copy wanted."""


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A copy that the guard must find."""

    data: bytes
    truth: str
    """Name of the benchmark image."""
    original: bytes
    """That image itself, encoded."""
    transform: str


@dataclass(frozen=True, kw_only=True)
class Miss:
    """A planted copy that got through, or was taken for an image that is no copy of its source."""

    truth: str
    transform: str
    content: Content
    verdict: str
    nearest: str | None
    distance: int | None


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What became of the planted copies. A copy counts as found only where it was found under every content.

    Copies that only local features can find are planted among photographs only; a run of renders does not count them.
    """

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

    The transforms take turns, those for the hash and those for local features alternately, so that
    25 use each. Marks, which move a hash most, go to the picture of most contrast, and pictures of
    little contrast are used only where there are no others: what many marks do to those is more than the guard claims
    to bear. The same holds for crops that have hardly a key point. Raises GuardError where no image has structure
    enough for a hash (the guard rejects what is like them as unverifiable).
    """
    names = sorted(benchmark)
    order = [names[i] for i in rng.permutation(len(names))]
    usable = _usable(benchmark, order, wanted=n)
    if not usable:
        raise GuardError(
            "no benchmark image can be planted: none can be decoded or all have too little structure",
            fix="check the benchmark's images",
        )
    kinds = _in_turn()
    planted = []
    for number in range(n):
        order_here = usable[number % len(usable) :] + usable[: number % len(usable)]
        transform, name, data = _copy(order_here, kinds[number % len(kinds)], rng)
        planted.append(Planted(data=data, truth=name, original=benchmark[name], transform=transform))
    return tuple(planted)


def prove(guard: Guard, planted: Sequence[Planted], contents: Sequence[Content] = ("photograph",)) -> Proof:
    """Send planted copies through the guard's own check, once for every content that the run used.

    A copy is found when it is a hit on its source, or on a benchmark image that the guard itself calls a copy of the
    source: of two frames of one film, either names the picture.
    """
    missed: list[Miss] = []
    counts: dict[str, tuple[int, int]] = {}
    n = 0
    for copy in planted:
        fit = [content for content in contents if content == "photograph" or TRANSFORMS[copy.transform].hashed]
        if not fit:
            continue
        n += 1
        misses = [miss for content in fit if (miss := _miss(guard, copy, content)) is not None]
        missed += misses
        total, found = counts.get(copy.transform, (0, 0))
        counts[copy.transform] = (total + 1, found + (not misses))
    return Proof(
        n=n,
        found=sum(found for _, found in counts.values()),
        by_transform=dict(sorted(counts.items())),
        missed=tuple(missed),
    )


def _in_turn() -> list[str]:
    """All transforms that are planted, marks first, hashed and unhashed ones mixed."""
    planted = {kind: one.hashed for kind, one in sorted(TRANSFORMS.items()) if one.planted}
    hashed = sorted((kind for kind, by_hash in planted.items() if by_hash), key=lambda kind: kind != "marks")
    local = [kind for kind, by_hash in planted.items() if not by_hash]
    order = sorted(
        [(i / len(hashed), kind) for i, kind in enumerate(hashed)]
        + [((i + 0.5) / len(local), kind) for i, kind in enumerate(local)]
    )
    return [kind for _, kind in order]


def _copy(pictures: Sequence[tuple[str, Rgb]], kind: str, rng: np.random.Generator) -> tuple[str, str, bytes]:
    """(transform, name, copy) of the first of these pictures that is fit for it: any for the hash, else a photograph
    whose copy has key points enough. Where none is, an easier copy is planted, which the counts by transform show."""
    transform = TRANSFORMS[kind]
    for name, rgb in pictures:
        other = clouds(rgb.shape[0], max(1, round(rgb.shape[1] * rng.uniform(0.7, 1.3))), rng)
        data = transform.copy(rgb, other, rng)
        if transform.hashed:
            return kind, name, data
        altered = features.canonical(images.decode(data, min_side=1))
        drawn = is_drawing(features.canonical(rgb)) or is_drawing(altered)
        if not drawn and len(features.extract(altered)) >= _POINTS:
            return kind, name, data
    name, rgb = pictures[0]
    return "jpeg60", name, TRANSFORMS["jpeg60"].copy(rgb, rgb, rng)


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
    if found.is_hit and found.match is not None:
        same = guard.index.alike(found.match, copy.truth)
        if same or guard.resembles(copy.original, found.match, content):
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
