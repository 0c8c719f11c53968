"""Lay a picture on the benchmark image that it was aligned with, and compare the pixels.

Geometry alone cannot tell a copy from another photograph of the same thing, or from a look-alike; pixels can.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import Image

from synth.guard.features import Grey
from synth.guard.votes import Alignment

WHOLE = 0.9
"""Share of the benchmark image from which on a copy is a copy of the whole, not a crop."""
SPREAD = 0.1
"""Fewer than `many` inliers must span at least this share of what both pictures show, or a small logo in the corner of
two would be proof. An object cut out of a benchmark image spans more."""

_LEAST = 64
"""Thumbnail pixels: less overlap says nothing."""


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """What both pictures show, as shares."""

    correlation: float
    """Of luma over the overlap, -1..1; 0 where there is too little of it."""
    covered: float
    """Share of the benchmark image that the picture shows."""
    spread: float
    """Share of the overlap that the bounding box of the inliers takes."""


def overlap(picture: Grey, thumbnail: Grey, width: int, found: Alignment) -> Overlap:
    """Compare a canonical picture with the thumbnail of a benchmark image whose canonical width is `width` px.

    Both are blurred alike: the thumbnail by having been shrunk, the picture by being shrunk as much.
    """
    step = width / thumbnail.shape[1]
    rows, columns = np.mgrid[: thumbnail.shape[0], : thumbnail.shape[1]]
    there = (columns + 0.5) * step - 0.5 + 1j * ((rows + 0.5) * step - 0.5)
    here = (there - found.shift) / found.turn
    x = picture.shape[1] - 1 - here.real if found.mirrored else here.real
    inside = (x >= 0) & (x <= picture.shape[1] - 1) & (here.imag >= 0) & (here.imag <= picture.shape[0] - 1)
    correlation = 0.0
    if inside.sum() >= _LEAST:
        values = _sampled(picture, x[inside], here.imag[inside], step / abs(found.turn))
        correlation = _correlation(values, thumbnail[inside].astype(np.float64))
    box = _area(there.real[inside], there.imag[inside])
    spread = _area(found.places[:, 0], found.places[:, 1]) / box if box > 0 else 0.0
    return Overlap(correlation=correlation, covered=float(inside.mean()), spread=min(1.0, spread))


def word(inliers: int, seen: Overlap, same: float, many: int) -> Literal["copy", "crop", "scene"] | None:
    """What the benchmark image and the picture have to do with each other; None where only a detail is shared.

    same: correlation from which on the pixels are the same; many: inliers from which on they need not be (parts blacked
    out, or only a part taken over).
    """
    if seen.correlation >= same or inliers >= many:
        return "copy" if seen.covered >= WHOLE else "crop"
    return "scene" if seen.spread >= SPREAD else None


def _sampled(
    picture: Grey, x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], shrink: float
) -> npt.NDArray[np.float64]:
    """Luma at points of the picture, each the mean of about shrink x shrink pixels; bilinear."""
    height, width = picture.shape
    size = (max(1, round(width / max(shrink, 1.0))), max(1, round(height / max(shrink, 1.0))))
    small = np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BOX), dtype=np.float64)
    x = np.clip((x + 0.5) * size[0] / width - 0.5, 0, size[0] - 1)
    y = np.clip((y + 0.5) * size[1] / height - 0.5, 0, size[1] - 1)
    left, top = np.floor(x).astype(np.int64), np.floor(y).astype(np.int64)
    right, bottom = np.minimum(left + 1, size[0] - 1), np.minimum(top + 1, size[1] - 1)
    across, down = x - left, y - top
    upper = small[top, left] * (1 - across) + small[top, right] * across
    lower = small[bottom, left] * (1 - across) + small[bottom, right] * across
    values: npt.NDArray[np.float64] = upper * (1 - down) + lower * down
    return values


def _correlation(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a**2).sum() * (b**2).sum()))
    return float((a * b).sum()) / size if size > 0 else 0.0


def _area(x: npt.NDArray[np.floating], y: npt.NDArray[np.floating]) -> float:
    return float(np.ptp(x)) * float(np.ptp(y)) if len(x) else 0.0
