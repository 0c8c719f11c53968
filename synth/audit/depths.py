"""What the truth says about depth: which of two marks is nearer, and how far an object is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synth.types import DepthArray, DepthMap, Mark, Mask, MetricDepth, Region, Scene, View

MIN_RATIO = 1.02
"""Depths in metres that are nearer to each other than this have no order: sensors are not better."""
MIN_SHARE = 0.01
"""The same for disparity: a share of its range in the photo."""
MAX_LIDAR_PX = 4
"""How far from a mark returns of a sparse sensor may lie; further off they are of something else."""
MAX_LIDAR_RATIO = 1.05
"""The returns around a mark must agree: the farthest over the nearest, in metres. Else an edge lies between them."""


def nearer(marks: Sequence[Mark], view: View, scene: Scene) -> str | None:
    """Label of the nearer of two marks by the truth's depth; None where it cannot say."""
    if not scene.depths or len(marks) != 2:
        return None
    depth = scene.depths[0]
    first, second = (_depth_at(depth, mark) for mark in marks)
    if first is None or second is None:
        return None
    if isinstance(depth, MetricDepth):
        if min(first, second) <= 0 or max(first, second) < MIN_RATIO * min(first, second):
            return None
        rays = [value * _ray(mark, view) for value, mark in zip((first, second), marks, strict=True)]
        if (first < second) != (rays[0] < rays[1]):
            return None  # nearer by depth, farther along the ray: the words do not say which is meant
        return marks[0 if first < second else 1].label
    if abs(first - second) < MIN_SHARE * _range(depth.inverse, depth.valid) or first == second:
        return None
    return marks[0 if first > second else 1].label


def _depth_at(depth: DepthMap, mark: Mark) -> float | None:
    """Median of the valid values of 3 x 3 pixels where five are valid.

    Of a sparse sensor's metres: the median of the nearest returns, at least two, which must agree and not lie on one
    side of the mark only.
    """
    array = depth.metres if isinstance(depth, MetricDepth) else depth.inverse
    row, column = int(mark.y), int(mark.x)
    around = (slice(max(0, row - 1), row + 2), slice(max(0, column - 1), column + 2))
    values = array[around][depth.valid[around]]
    values = values[np.isfinite(values)]
    if len(values) >= 5:
        return float(np.median(values))
    return _by_returns(depth, row, column) if isinstance(depth, MetricDepth) else None


def _by_returns(depth: MetricDepth, row: int, column: int) -> float | None:
    top, left = max(0, row - MAX_LIDAR_PX), max(0, column - MAX_LIDAR_PX)
    part = (slice(top, row + MAX_LIDAR_PX + 1), slice(left, column + MAX_LIDAR_PX + 1))
    rows, columns = np.nonzero(depth.valid[part] & np.isfinite(depth.metres[part]))
    values = depth.metres[part][rows, columns]
    rows, columns = rows + top - row, columns + left - column
    # Returns that enclose the mark say that no edge runs between it and them.
    enclosed = len(values) >= 2 and (min(rows) <= 0 <= max(rows) or min(columns) <= 0 <= max(columns))
    if not enclosed or values.min() <= 0 or values.max() > MAX_LIDAR_RATIO * values.min():
        return None
    return float(np.median(values))


def _ray(mark: Mark, view: View) -> float:
    """Distance along the ray over depth; 1 where the camera is unknown."""
    if view.truth is None or view.truth.camera is None:
        return 1.0
    direction = np.linalg.inv(view.truth.camera.K) @ np.array([mark.x, mark.y, 1.0])
    return float(np.linalg.norm(direction / direction[2]))


def region_depth(region: Region, scene: Scene) -> float | None:
    """Median in the mask or the box: ln metres, or minus the place in the picture's range of inverse depth."""
    depth = scene.depths[0]
    array = depth.metres if isinstance(depth, MetricDepth) else depth.inverse
    inside = np.zeros(depth.valid.shape, dtype=np.bool_)
    x1, y1, x2, y2 = (round(value) for value in region.box)
    inside[max(0, y1) : y2, max(0, x1) : x2] = True
    values = array[(inside if region.mask is None else region.mask) & depth.valid]
    values = values[np.isfinite(values)]
    if len(values) < 16:
        return None
    if isinstance(depth, MetricDepth):
        return float(np.log(np.median(values))) if np.median(values) > 0 else None
    span = _range(array, depth.valid)
    return -float(np.median(values)) / span if span > 0 else None


def _range(inverse: DepthArray, valid: Mask) -> float:
    """p0.5 to p99.5 of inverse depth, over at most some 40,000 pixels."""
    every = max(1, int(np.sqrt(valid.size / 40_000)))
    values = inverse[::every, ::every][valid[::every, ::every]]
    if not values.size:
        return 0.0
    low, high = np.percentile(values, (0.5, 99.5))
    return float(high - low)
