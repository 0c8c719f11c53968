"""The local features of every image of a benchmark, as columns: what the index stores and what `votes` searches.

Descriptors and thumbnails show roughly what a picture shows: who may not pass on a benchmark's images should not pass
on its index either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from synth.guard import features, vocabulary
from synth.guard.features import Descriptors, Features, Grey, Places

THUMBNAIL = 96
"""Longest side, px. Shrinking to it blurs a canonical picture by a sigma of about 2 px of the canonical 384."""
ALGORITHM = f"{features.ALGORITHM}+multi-index/{vocabulary.BITS}/1"


@dataclass(frozen=True, kw_only=True, eq=False)
class Bank:
    """K key points of N images, sorted by image. Images without features (drawings, alike ones) have none here."""

    descriptors: Descriptors
    """(K, 128)."""
    places: Places
    """(K, 4)."""
    starts: npt.NDArray[np.int64]
    """(N + 1,): image n owns the rows starts[n] to starts[n + 1]."""
    cells: vocabulary.Cells
    signatures: vocabulary.Signatures
    mean: vocabulary.Floats
    axes: vocabulary.Floats
    words: vocabulary.Floats
    medians: vocabulary.Floats
    """The four arrays of the vocabulary."""
    thumbnails: Grey
    """(sum of all h * w,): luma, one after another."""
    sizes: npt.NDArray[np.int32]
    """(N, 3): height and width of the thumbnail, and width of the canonical picture; zeros where there is none."""

    @property
    def vocabulary(self) -> vocabulary.Vocabulary:
        """Made of its arrays."""
        return vocabulary.Vocabulary(mean=self.mean, axes=self.axes, words=self.words, medians=self.medians)

    def features(self, image: int) -> Features:
        """The key points of one image."""
        rows = slice(int(self.starts[image]), int(self.starts[image + 1]))
        return Features(descriptors=self.descriptors[rows], places=self.places[rows], width=int(self.sizes[image, 2]))

    def thumbnail(self, image: int) -> Grey:
        """(h, w) luma of one image."""
        areas = self.sizes[: image + 1, 0].astype(np.int64) * self.sizes[: image + 1, 1]
        end = int(areas.sum())
        return self.thumbnails[end - int(areas[image]) : end].reshape(self.sizes[image, :2])


Entry = tuple[Features, Grey] | None
"""One image's key points and thumbnail."""


def build(entries: Sequence[Entry]) -> Bank:
    """The bank of a benchmark's images in the order of the index; None for one without local features."""
    empty = Features(descriptors=np.zeros((0, 128), np.uint8), places=np.zeros((0, 4), np.float32), width=0)
    found = [empty if entry is None else entry[0] for entry in entries]
    small = [np.zeros((0, 0), np.uint8) if entry is None else entry[1] for entry in entries]
    descriptors = np.concatenate([empty.descriptors, *(one.descriptors for one in found)])
    # A benchmark of drawings has no descriptor at all; the vocabulary of one zero is as good as any.
    codes = vocabulary.train(descriptors if len(descriptors) else np.zeros((1, 128), np.uint8))
    cells, signatures = vocabulary.encode(codes, descriptors)
    return Bank(
        descriptors=descriptors,
        places=np.concatenate([empty.places, *(one.places for one in found)]),
        starts=np.cumsum([0, *(len(one) for one in found)], dtype=np.int64),
        cells=cells,
        signatures=signatures,
        mean=codes.mean,
        axes=codes.axes,
        words=codes.words,
        medians=codes.medians,
        thumbnails=np.concatenate([np.zeros(0, np.uint8), *(one.ravel() for one in small)]),
        sizes=np.array([(*t.shape, f.width) for t, f in zip(small, found, strict=True)], dtype=np.int32).reshape(-1, 3),
    )


def thumbnail(picture: Grey) -> Grey:
    """A canonical picture with its longest side at `THUMBNAIL`, or as it is where it is smaller."""
    image = Image.fromarray(picture)
    scale = min(1.0, THUMBNAIL / max(image.size))
    width, height = (max(1, round(side * scale)) for side in image.size)
    return np.asarray(image.resize((width, height), Image.Resampling.BOX))
