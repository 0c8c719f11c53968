"""A coarse code of a local feature: the cell of descriptor space it lies in, and 64 bits that tell cell mates apart.

Exact search of 400 descriptors in the three million of a large benchmark costs seconds. Here the cells are those of an
inverted multi-index (Babenko & Lempitsky 2012): two small codebooks on halves of the leading principal components; and
the bits a Hamming embedding (Jégou, Douze & Schmid 2008). Everything is trained on the benchmark's own descriptors,
without chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from synth.guard.features import Descriptors

Floats = npt.NDArray[np.float32]
Cells = npt.NDArray[np.int32]
"""(K,): row of the first codebook times the size of the second, plus the row of the second."""
Signatures = npt.NDArray[np.uint64]
_Number = TypeVar("_Number", np.uint8, np.float32)

BITS = 64
_COARSE = 32
"""Principal components that the cells divide, alternately into the first and the second half."""
_CELL = 180
"""Descriptors that a cell holds on average."""
_MOST_WORDS = 128
"""Of one codebook."""
_SAMPLE = 60_000
_ROUNDS = 12
_NEAREST = 4
"""Words of either codebook among which cells are looked for."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Vocabulary:
    """What turns a descriptor into its code."""

    mean: Floats
    """(128,)."""
    axes: Floats
    """(128, 64), orthonormal, most variance first."""
    words: Floats
    """(2, W, 16) the codebooks."""
    medians: Floats
    """(64,) of the rotated components; a bit says on which side a descriptor lies."""

    @property
    def n_cells(self) -> int:
        """W squared."""
        return int(self.words.shape[1]) ** 2


def train(descriptors: Descriptors) -> Vocabulary:
    """A vocabulary for these (K, 128), K > 0."""
    sample = _strided(descriptors, _SAMPLE).astype(np.float32)
    mean = sample.mean(axis=0)
    _, vectors = np.linalg.eigh(np.cov(sample - mean, rowvar=False, ddof=0, dtype=np.float64))
    axes = np.ascontiguousarray(vectors[:, ::-1][:, :BITS], dtype=np.float32)
    components = (sample - mean) @ axes
    n_words = int(np.clip(round((len(descriptors) / _CELL) ** 0.5), 1, _MOST_WORDS))
    words = np.stack([_codebook(half, n_words) for half in _halves(components)])
    medians = np.median(components @ _rotation(), axis=0).astype(np.float32)
    return Vocabulary(mean=mean, axes=axes, words=words, medians=medians)


def encode(vocabulary: Vocabulary, descriptors: Descriptors) -> tuple[Cells, Signatures]:
    """The cell and the signature of each of (K, 128)."""
    cells, signatures = np.zeros(len(descriptors), np.int32), np.zeros(len(descriptors), np.uint64)
    for start in range(0, len(descriptors), _SAMPLE):
        part = slice(start, start + _SAMPLE)
        components = _components(vocabulary, descriptors[part])
        first, second = (_squared(half, words).argmin(axis=1) for half, words in _pairs(vocabulary, components))
        cells[part] = first * vocabulary.words.shape[1] + second
        signatures[part] = _signatures(vocabulary, components)
    return cells, signatures


def probe(vocabulary: Vocabulary, descriptors: Descriptors, n: int) -> tuple[npt.NDArray[np.int64], Signatures]:
    """The n nearest cells (K, n) of each of (K, 128), fewer where there are fewer, and its signature (K,)."""
    components = _components(vocabulary, descriptors)
    near = min(_NEAREST, vocabulary.words.shape[1])
    rows, costs = [], []
    for half, words in _pairs(vocabulary, components):
        squared = _squared(half, words)
        nearest = np.argpartition(squared, near - 1, axis=1)[:, :near]
        rows.append(nearest)
        costs.append(np.take_along_axis(squared, nearest, axis=1))
    total = (costs[0][:, :, None] + costs[1][:, None, :]).reshape(len(descriptors), -1)
    cells = (rows[0][:, :, None] * vocabulary.words.shape[1] + rows[1][:, None, :]).reshape(len(descriptors), -1)
    best = np.argpartition(total, min(n, total.shape[1]) - 1, axis=1)[:, :n]
    return np.take_along_axis(cells, best, axis=1), _signatures(vocabulary, components)


def _components(vocabulary: Vocabulary, descriptors: Descriptors) -> Floats:
    centred: Floats = descriptors.astype(np.float32) - vocabulary.mean
    return np.asarray(centred @ vocabulary.axes, dtype=np.float32)


def _halves(components: Floats) -> tuple[Floats, Floats]:
    return components[:, 0:_COARSE:2], components[:, 1:_COARSE:2]


def _pairs(vocabulary: Vocabulary, components: Floats) -> list[tuple[Floats, Floats]]:
    return list(zip(_halves(components), vocabulary.words, strict=True))


def _signatures(vocabulary: Vocabulary, components: Floats) -> Signatures:
    bits = components @ _rotation() > vocabulary.medians
    return np.packbits(bits, axis=1).view(np.uint64).reshape(-1)


@cache
def _rotation() -> Floats:
    """A fixed turn of the 64 components, so that every bit carries as much as any other."""
    gaussian = np.random.default_rng(0).standard_normal((BITS, BITS))
    return np.asarray(np.linalg.qr(gaussian)[0], dtype=np.float32)


def _codebook(points: Floats, n: int) -> Floats:
    """Lloyd's algorithm from every (K / n)-th point."""
    words = _strided(points, n).copy()
    for _ in range(_ROUNDS):
        nearest = _squared(points, words).argmin(axis=1)
        counts = np.bincount(nearest, minlength=len(words))
        sums = np.stack([np.bincount(nearest, weights=column, minlength=len(words)) for column in points.T], axis=1)
        words = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], words).astype(np.float32)
    return words


def _squared(points: Floats, words: Floats) -> Floats:
    """Squared distances (K, W) up to a constant of each point."""
    squared: Floats = (words**2).sum(axis=1) - 2 * points @ words.T
    return squared


def _strided(rows: npt.NDArray[_Number], most: int) -> npt.NDArray[_Number]:
    """At most so many rows, evenly spread."""
    return rows[np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(np.int64)]
