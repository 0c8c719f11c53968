"""Where marks may stand: random places, places on objects, places that show one object only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from synth.geometry import Points, box_area, pixel_of
from synth.types import Box, Mask, Region, Scene

ScalarT = TypeVar("ScalarT", bound=np.generic)
Flags = npt.NDArray[np.bool_]
"""(N,) booleans."""


def is_stuff(region: Region) -> bool:
    """True for walls, sky and the like: they have no instances to count."""
    return region.attributes.get("stuff") == "yes"


def is_sliver(region: Region) -> bool:
    """True where too little of the object is visible for anyone to say that it is there."""
    return region.attributes.get("sliver") == "yes"


def is_cut(box: Box, size: tuple[int, int], edge: float) -> bool:
    """True where a box comes within `edge`, a share of the picture's (width, height), of the picture's edge."""
    x, y = edge * size[0], edge * size[1]
    return not (box[0] >= x and box[1] >= y and box[2] <= size[0] - x and box[3] <= size[1] - y)


def box_within(a: Box, b: Box) -> float:
    """Share of the smaller box that lies within the other."""
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    smaller = min(box_area(a), box_area(b))
    return width * height / smaller if smaller > 0 else 0.0


def random_points(rng: np.random.Generator, n: int, width: int, height: int, border_px: float) -> Points:
    """(n, 2) pixel centres, uniform over the picture without its border."""
    low = np.full(2, min(border_px, width / 2 - 1, height / 2 - 1))
    high = np.array([width, height]) - low
    return np.asarray(np.floor(rng.uniform(low, high, (n, 2))) + 0.5, dtype=np.float64)


def object_points(scene: Scene, rng: np.random.Generator, n: int, border_px: float) -> Points:
    """(<= n, 2) pixel centres on objects of the first regions member; each object is as likely, whatever its size."""
    height, width = scene.rgb.shape[:2]
    objects = [r for r in (scene.regions[0].items if scene.regions else ()) if not is_stuff(r) and not r.crowd]
    if not objects or n < 1:
        return np.zeros((0, 2))
    boxes = np.array([r.box for r in objects], dtype=np.float64)
    which = rng.integers(len(objects), size=n)
    spots = np.floor(rng.uniform(boxes[which, :2], np.maximum(boxes[which, 2:], boxes[which, :2] + 1e-6))) + 0.5
    inside = (spots >= border_px).all(axis=1) & (spots[:, 0] <= width - border_px)
    inside &= spots[:, 1] <= height - border_px
    kept = [k for k in np.flatnonzero(inside) if on_region(objects[which[k]], *spots[k])]
    return np.asarray(spots[kept])


def on_region(region: Region, x: float, y: float) -> bool:
    """True where the point lies on the region's mask, or in its box where it has none."""
    if region.mask is None:
        return region.box[0] <= x < region.box[2] and region.box[1] <= y < region.box[3]
    row, column = pixel_of(x, y)
    rows, columns = region.mask.shape
    return 0 <= row < rows and 0 <= column < columns and bool(region.mask[row, column])


def on_any(regions: Sequence[Region], points: Points) -> Flags:
    """(N,) True for points on one of the regions."""
    found = np.zeros(len(points), dtype=np.bool_)
    for region in regions:
        left, top, right, bottom = region.box
        if region.mask is None:
            found |= (points >= (left, top)).all(axis=1) & (points < (right, bottom)).all(axis=1)
        else:
            found |= [on_region(region, x, y) for x, y in points]
    return found


def pure_places(
    mask: Mask, box: Box, rng: np.random.Generator, radius: int, border_px: float
) -> Iterator[tuple[float, float]]:
    """Up to 24 pixel centres whose (2 radius + 1) square lies on the mask and off the border. `box` holds the mask."""
    height, width = mask.shape
    room = int(np.ceil(max(border_px, radius + 1)))
    left, top = max(room, int(box[0])), max(room, int(box[1]))
    right, bottom = min(width - room, int(np.ceil(box[2]))), min(height - room, int(np.ceil(box[3])))
    if left >= right or top >= bottom:
        return
    rows, columns = rng.integers(top, bottom, 64), rng.integers(left, right, 64)
    on = mask[rows, columns]
    rows, columns = rows[on][:24], columns[on][:24]
    if len(rows) < 4:  # a thin mask: list all its pixels, which takes longer
        rows, columns = np.nonzero(mask[top:bottom, left:right])
        some = rng.permutation(len(rows))[:24]
        rows, columns = rows[some] + top, columns[some] + left
    for row, column in zip(rows, columns, strict=True):
        x, y = float(column) + 0.5, float(row) + 0.5
        if square(mask, x, y, radius).all():
            yield x, y


def square(mask: Mask, x: float, y: float, radius: int) -> Mask:
    """The (2 radius + 1) square of the mask around a point that lies that far inside."""
    row, column = pixel_of(x, y)
    return mask[row - radius : row + radius + 1, column - radius : column + radius + 1]


def gather(values: npt.NDArray[ScalarT], points: Points, radius: int) -> npt.NDArray[ScalarT]:
    """(N, k, k) values on a grid over the squares within `radius` of the points, all of which must lie that far inside.

    Every value up to a radius of 3; of wider squares about 9 a side, evenly spread, with both edges.
    """
    steps = np.arange(-radius, radius + 1)
    if radius > 3:
        steps = np.unique(np.rint(np.linspace(-radius, radius, 9)).astype(np.int64))
    rows, columns = np.floor(points[:, 1]).astype(np.int64), np.floor(points[:, 0]).astype(np.int64)
    width = values.shape[1]
    around = steps[:, None] * width + steps
    return np.asarray(values.reshape(-1).take((rows * width + columns)[:, None, None] + around))
