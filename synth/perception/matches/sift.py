"""Matches of two photos by SIFT (Lowe, IJCV 2004) with RootSIFT descriptors (Arandjelović & Zisserman, CVPR 2012).

A match is the best one in both directions, clearly better than the second best at another place (Lowe's ratio), and
explained by one geometry of the pair (see `_model`). Needs no weights and finds what has texture and is seen from not
too different a side.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from PIL import Image
from pydantic import Field

from synth.contracts import MatchBackend
from synth.geometry import Points
from synth.perception.matches import _model
from synth.types import Frame, Matches, PluginOptions, Rgb, narrow

_KEPT = 16
_CHUNK = 512
_SAME_PLACE_PX = 4.0
_FINE_PX = 5.0  # smaller blobs are few
Descriptors = npt.NDArray[np.float32]
"""(K, 128), length 1."""


class Options(PluginOptions):
    """How many points, and how clear a match must be."""

    max_side: int = Field(default=1024, ge=64)
    """Larger photos are reduced to this longest side before points are sought; px."""
    points: int = Field(default=3000, ge=64, le=20_000)
    """Most points of a photo, the strongest."""
    largest: float = Field(default=0.006, gt=0)
    """Diameter of the largest blob that counts, as a share of the photo's diagonal: the middle of a large one may show
    another surface than its rim, and the mark stands in the middle."""
    ratio: float = Field(default=0.8, gt=0, lt=1)
    """Distance of the best match over that of the best one elsewhere; smaller is stricter."""


def identity(options: PluginOptions) -> str:
    """The algorithm and its options. Raises BackendError without OpenCV."""
    return f"sift/{_model.opencv().__version__}:{narrow(options, Options).model_dump_json()}"


def load(options: PluginOptions) -> _Runner:
    """Nothing is loaded but OpenCV. Raises BackendError without it."""
    return _Runner(options=narrow(options, Options), name=identity(options))


@dataclass(frozen=True, kw_only=True)
class _Features:
    places: Points
    descriptors: Descriptors


@dataclass(frozen=True, kw_only=True)
class _Runner:
    options: Options
    name: str
    recent: OrderedDict[bytes, _Features] = field(default_factory=OrderedDict)
    """Features of the photos seen last, by their pixels: each is in several pairs and passes."""

    def __call__(self, here: Frame, there: Frame) -> Matches:
        a, b = self._features(here.rgb), self._features(there.rgb)
        first, second, scores = _matched(a, b, self.options.ratio)
        found = Matches(here=a.places[first], there=b.places[second], scores=scores, backend=self.name)
        return _model.explained(found, here.rgb, there.rgb)

    def _features(self, rgb: Rgb) -> _Features:
        key = hashlib.blake2b(rgb.tobytes(), digest_size=16).digest()
        if key not in self.recent:
            self.recent[key] = _extracted(rgb, self.options)
            while len(self.recent) > _KEPT:
                self.recent.popitem(last=False)
        self.recent.move_to_end(key)
        return self.recent[key]


def _extracted(rgb: Rgb, options: Options) -> _Features:
    cv2 = _model.opencv()
    grey = Image.fromarray(rgb).convert("L")
    scale = min(1.0, options.max_side / max(grey.size))
    width, height = (max(1, round(side * scale)) for side in grey.size)
    picture = np.asarray(grey.resize((width, height), Image.Resampling.BILINEAR) if scale < 1 else grey)
    detector = cv2.SIFT_create(enable_precise_upscale=True)
    points, raw = detector.detectAndCompute(picture, None)
    if not points:
        return _Features(places=np.zeros((0, 2)), descriptors=np.zeros((0, 128), dtype=np.float32))
    told = np.array([(*p.pt, p.size, p.angle, -p.response) for p in points])
    order = np.lexsort(told.T)  # ties in strength would leave the choice to the order of detection
    largest = max(options.largest * float(np.hypot(width, height)), _FINE_PX)
    order = order[told[order, 2] <= largest][: options.points]
    # OpenCV counts from the centre of the first pixel, we from its corner.
    places = (told[order, :2] + 0.5) * (grey.size[0] / width, grey.size[1] / height)
    share = raw[order] / np.maximum(raw[order].sum(axis=1, keepdims=True), 1e-9)
    return _Features(places=places, descriptors=np.sqrt(share).astype(np.float32))


def _matched(
    a: _Features, b: _Features, ratio: float
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Indices of mutual best matches that pass the ratio test both ways, and 1 - ratio as their score."""
    if not len(a.places) or not len(b.places):
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, nothing, np.zeros(0)
    forth, forth_ratio = _best(a, b)
    back, back_ratio = _best(b, a)
    worst = np.maximum(forth_ratio, back_ratio[forth])
    first = np.flatnonzero((back[forth] == np.arange(len(forth))) & (worst < ratio))
    return first, forth[first], 1.0 - worst[first]


def _best(a: _Features, b: _Features) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """For each point of `a` its best one of `b`, and its distance over that of the best one at another place."""
    best = np.zeros(len(a.places), dtype=np.int64)
    ratio = np.ones(len(a.places))
    places = b.places.astype(np.float32)
    for start in range(0, len(best), _CHUNK):
        rows = slice(start, start + _CHUNK)
        squared = np.maximum(2.0 - 2.0 * (a.descriptors[rows] @ b.descriptors.T), 0.0)
        found = squared.argmin(axis=1)
        nearest = squared[np.arange(len(found)), found]
        gaps = places[found][:, None, :] - places[None, :, :]
        squared[np.einsum("ijk,ijk->ij", gaps, gaps) <= _SAME_PLACE_PX**2] = np.inf
        best[rows], ratio[rows] = found, np.sqrt(nearest / np.maximum(squared.min(axis=1), 1e-12))
    return best, ratio


BACKEND = MatchBackend(name="sift", version=1, options=Options, identity=identity, load=load)
