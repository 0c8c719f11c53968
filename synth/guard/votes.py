"""Which benchmark image shares local features with a picture, and by which similarity it lies in it.

Three steps. Every key point of the picture and of its mirror image votes, through the vocabulary, for images in which a
point like it is turned and scaled by the same amount (weak geometric consistency, Jégou, Douze & Schmid 2008). The best
few are matched exactly. A match counts where it is much nearer than the benchmark's other images would be by chance;
matches must agree on one similarity (pairs of matches as hypotheses, all of them: nothing is random), and inliers are
counted at distinct places.

The nearest descriptor of another image, against which the ratio test is usually taken, would forbid all matches where a
benchmark shows a picture twice (with other marks, or as the next frame). So the yardstick is a low quantile of the
distances to a fixed sample of the benchmark's descriptors and their mirror images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from synth.guard import vocabulary
from synth.guard.bank import Bank
from synth.guard.features import Features, mirrored

PROBES = 2
"""Cells looked into for each descriptor."""
BITS_APART = 14
"""Signatures of two copies of a point differ by at most so many bits."""
SHORTLIST = 6
"""Images, each as it is or mirrored, that are matched exactly."""
RATIO = 0.8
TOLERANCE = 6.0
"""Pixels of the benchmark's canonical picture between a mapped point and its match."""

_SPREAD = 8.0
"""Bits; a vote weighs exp(-(bits apart / spread) ** 2)."""
_ANGLES, _OCTAVES = 12, 8
"""Bins of the turn (30 degrees) and of the change of scale (a factor 2, from 1/16 to 16)."""
_SAMPLE = 1024
_QUANTILE = 8
"""The yardstick is the so-manieth smallest of 2 x `_SAMPLE` distances, scaled where there are fewer."""
_HYPOTHESES_FROM = 48
"""Matches, the surest, of which pairs propose a similarity."""
_CELL = 4
"""Pixels: matches in one such cell are one."""
_APART = 8.0
"""Pixels between the two points of a pair, or the similarity is arbitrary."""

Complex = npt.NDArray[np.complex128]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Alignment:
    """How a picture lies on a benchmark image: its point z = x + iy (of its mirror image) is at `turn` z + `shift`."""

    owner: int
    """Row in the index."""
    mirrored: bool
    inliers: int
    """Matches at distinct places that agree."""
    turn: complex
    """Scale and rotation, canonical pixels of the picture to those of the benchmark image."""
    shift: complex
    places: npt.NDArray[np.float32]
    """(inliers or more, 2): x, y of the inliers in the benchmark image."""


class Search:
    """A bank made ready for search."""

    def __init__(self, bank: Bank) -> None:
        self.bank = bank
        self.n_images = len(bank.starts) - 1
        self._vocabulary = bank.vocabulary
        order = np.argsort(bank.cells, kind="stable")
        self._signatures = bank.signatures[order]
        self._owners = np.repeat(np.arange(self.n_images), np.diff(bank.starts))[order].astype(np.int32)
        self._angles = bank.places[order, 3]
        self._octaves = np.log2(np.maximum(bank.places[order, 2], 1e-3))
        self._begin = np.searchsorted(bank.cells[order], np.arange(self._vocabulary.n_cells + 1))
        rows = np.linspace(0, len(bank.places) - 1, min(_SAMPLE, len(bank.places))).astype(np.int64)
        sample = Features(descriptors=bank.descriptors[rows], places=bank.places[rows], width=0)
        both = np.concatenate([sample.descriptors, mirrored(sample).descriptors])
        self._strangers = both.astype(np.float32)

    def align(self, picture: Features) -> tuple[Alignment, ...]:
        """Benchmark images that share at least two consistent features with the picture, most inliers first."""
        if len(picture) == 0 or len(self._strangers) == 0:
            return ()
        both = (picture, mirrored(picture))
        return self._aligned(both, self.candidates(both))

    def align_with(self, picture: Features, owners: Sequence[int]) -> tuple[Alignment, ...]:
        """`align` with these benchmark images, whatever the votes say."""
        if len(picture) == 0 or len(self._strangers) == 0 or not owners:
            return ()
        return self._aligned((picture, mirrored(picture)), [(owner, bool(f)) for owner in owners for f in (0, 1)])

    def _aligned(
        self, both: tuple[Features, Features], candidates: Sequence[tuple[int, bool]]
    ) -> tuple[Alignment, ...]:
        limits = RATIO**2 * self._yardstick(both[0])
        found = []
        for owner, flipped in candidates:
            query, image = both[flipped], self.bank.features(owner)
            here, there = _matches(query, image, limits)
            fitted = _fit(query.places[here], image.places[there])
            if fitted is not None:
                turn, shift, inlying = fitted
                places = image.places[there][inlying, :2]
                inliers = min(_distinct(query.places[here][inlying]), _distinct(places))
                found.append(
                    Alignment(owner=owner, mirrored=flipped, inliers=inliers, turn=turn, shift=shift, places=places)
                )
        return tuple(sorted(found, key=lambda one: (-one.inliers, one.owner)))

    def candidates(self, both: tuple[Features, Features]) -> list[tuple[int, bool]]:
        """The best voted images, each with whether it was the mirror image that won the votes."""
        descriptors = np.concatenate([one.descriptors for one in both])
        places = np.concatenate([one.places for one in both])
        cells, signatures = vocabulary.probe(self._vocabulary, descriptors, PROBES)
        begin = self._begin[cells.ravel()]
        lengths = self._begin[cells.ravel() + 1] - begin
        ends = np.cumsum(lengths, dtype=np.int32)
        rows = np.arange(ends[-1], dtype=np.int32) + np.repeat((begin - ends + lengths).astype(np.int32), lengths)
        wanted = np.repeat(np.repeat(signatures, cells.shape[1]), lengths)
        wanted ^= self._signatures[rows]
        apart = np.bitwise_count(wanted)
        near = np.flatnonzero(apart <= BITS_APART)
        rows, apart = rows[near], apart[near]
        query = np.searchsorted(ends, near, side="right") // cells.shape[1]
        # A point that resembles many says little about any of them.
        weights = np.exp(-((apart / _SPREAD) ** 2)) / np.sqrt(np.bincount(query))[query]
        flipped = query >= len(both[0])
        turn = (self._angles[rows] - places[query, 3]) * (_ANGLES / (2 * np.pi))
        grown = self._octaves[rows] - np.log2(places[query, 2]) + _OCTAVES / 2
        image = self._owners[rows].astype(np.int64) * 2 + flipped
        # Each vote falls into the two nearest bins of either kind, so that no border splits a copy's votes.
        bins = []
        for angle in (np.floor(turn - 0.5), np.floor(turn + 0.5)):
            for octave in (np.floor(grown - 0.5), np.floor(grown + 0.5)):
                clipped = np.clip(octave, 0, _OCTAVES - 1).astype(np.int64)
                bins.append((image * _ANGLES + angle.astype(np.int64) % _ANGLES) * _OCTAVES + clipped)
        n_bins = self.n_images * 2 * _ANGLES * _OCTAVES
        table = np.bincount(np.concatenate(bins), weights=np.tile(weights, 4), minlength=n_bins)
        best = table.reshape(self.n_images * 2, -1).max(axis=1)
        order = np.argsort(-best, kind="stable")[:SHORTLIST]
        return [(int(one) // 2, bool(one % 2)) for one in order if best[one] > 0]

    def _yardstick(self, picture: Features) -> npt.NDArray[np.float32]:
        """(K,) squared distance at which a stranger is to be expected. The sample holds its own mirror images, so it
        serves the mirrored picture as well."""
        squared = _squared(picture.descriptors.astype(np.float32), self._strangers)
        nth = max(1, round(_QUANTILE * len(self._strangers) / (2 * _SAMPLE)))
        return np.partition(squared, nth, axis=1)[:, nth]


def _matches(query: Features, image: Features, limits: npt.NDArray[np.float32]) -> tuple[Ints, Ints]:
    """Rows of the matches in either, the surest first."""
    squared = _squared(query.descriptors.astype(np.float32), image.descriptors.astype(np.float32))
    nearest = squared.argmin(axis=1)
    share = squared[np.arange(len(nearest)), nearest] / limits
    here = np.flatnonzero(share < 1)
    here = here[np.argsort(share[here], kind="stable")]
    return here, nearest[here]


def _squared(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Squared distances (A, B); exact, since all are integers below 2 ** 24."""
    squared: npt.NDArray[np.float32] = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
    return squared


def _fit(
    here: npt.NDArray[np.float32], there: npt.NDArray[np.float32]
) -> tuple[complex, complex, npt.NDArray[np.bool_]] | None:
    """(turn, shift, which matches agree) for the similarity that most matched places (M, 4) agree on; None for none."""
    z, w = (places[:, 0] + 1j * places[:, 1].astype(np.float64) for places in (here, there))
    a, b = np.triu_indices(min(len(z), _HYPOTHESES_FROM), 1)
    apart = (np.abs(z[a] - z[b]) > _APART) & (np.abs(w[a] - w[b]) > _APART)
    a, b = a[apart], b[apart]
    turns = (w[a] - w[b]) / (z[a] - z[b])
    # A key point has a size and an angle of its own, and these must change as the pair does.
    likely = np.ones(len(a), dtype=bool)
    for one in (a, b):
        angle = np.angle(turns * np.exp(1j * (here[one, 3] - there[one, 3])))
        growth = np.log2(np.abs(turns) * here[one, 2] / there[one, 2])
        likely &= (np.abs(angle) < 0.6) & (np.abs(growth) < 1)
    a, turns = a[likely], turns[likely]
    if len(a) == 0:
        return None
    shifts = w[a] - turns * z[a]
    agree = np.abs(turns[:, None] * z + shifts[:, None] - w) < TOLERANCE
    best = int(agree.sum(axis=1).argmax())
    turn, shift, inlying = complex(turns[best]), complex(shifts[best]), agree[best]
    for _ in range(3):
        turn, shift = _least_squares(z[inlying], w[inlying])
        again = np.abs(turn * z + shift - w) < TOLERANCE
        if again.sum() < max(2, inlying.sum()):
            break
        inlying = again
    turn, shift = _least_squares(z[inlying], w[inlying])
    return turn, shift, inlying


def _least_squares(z: Complex, w: Complex) -> tuple[complex, complex]:
    centred = z - z.mean()
    turn = complex((np.conj(centred) * (w - w.mean())).sum() / max(float((np.abs(centred) ** 2).sum()), 1e-9))
    return turn, complex(w.mean() - turn * z.mean())


def _distinct(places: npt.NDArray[np.float32]) -> int:
    cells = (places[:, :2] // _CELL).astype(np.int64)
    return len(np.unique(cells[:, 0] * 100_000 + cells[:, 1]))
