"""Depth at the places where marks may stand: flatness, order, and the numbers for the provenance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from synth.geometry import Points
from synth.tasks._places import Flags, gather
from synth.types import DepthMap, JsonValue, MetricDepth, Scene

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Member:
    """One member of the depth consensus, seen at N places."""

    backend: str
    metric: bool
    values: Floats
    """(N,) median of 3 x 3 pixels: metres, or inverse depth (larger is nearer)."""
    rays: Floats
    """(N,) metres along the ray; empty for relative depth."""
    range: float
    """p0.5 to p99.5 of inverse depth; 1 for metres."""

    def nearer(self, i: Indices, j: Indices) -> Floats:
        """How much nearer place i is than place j: ln ratio, or share of the range; 0 where depth and ray disagree."""
        if not self.metric:
            return np.asarray((self.values[i] - self.values[j]) / self.range)
        by_depth, by_ray = np.log(self.values[j] / self.values[i]), np.log(self.rays[j] / self.rays[i])
        smaller = np.where(np.abs(by_depth) < np.abs(by_ray), by_depth, by_ray)
        return np.where(by_depth * by_ray > 0, smaller, 0.0)

    def measures(self, marks: Mapping[str, int]) -> dict[str, JsonValue]:
        """The numbers behind an answer: label of a mark -> index of its place."""
        if self.metric:
            return {
                "backend": self.backend,
                "depths_m": {label: round(float(self.values[k]), 5) for label, k in marks.items()},
                "rays_m": {label: round(float(self.rays[k]), 5) for label, k in marks.items()},
            }
        return {
            "backend": self.backend,
            "inverse": {label: round(float(self.values[k]), 7) for label, k in marks.items()},
            "inverse_range": round(self.range, 7),
        }


def inverse_range(depth: DepthMap) -> float:
    """p0.5 to p99.5 of the valid inverse depths (0 where there are too few); 1 for metres."""
    if isinstance(depth, MetricDepth):
        return 1.0
    every = max(1, int(np.sqrt(depth.valid.size / 20_000)))  # a subsample tells percentiles well enough
    values = depth.inverse[::every, ::every][depth.valid[::every, ::every]]
    if values.size < 16:
        return 0.0
    low, high = np.percentile(values, (0.5, 99.5))
    return float(high - low)


def flat(depth: DepthMap, points: Points, radius: int, limit: float) -> Flags:
    """(N,) True where all pixels within `radius` are valid and alike.

    `limit`: most max / min of metres, or most max - min of inverse depth.
    """
    array = depth.metres if isinstance(depth, MetricDepth) else depth.inverse
    patches = gather(array, points, radius).astype(np.float64)
    whole = np.ones(len(points), dtype=np.bool_)
    if not depth.valid.all():
        whole = np.asarray(gather(depth.valid, points, radius).all(axis=(1, 2)), dtype=np.bool_)
        patches[~whole] = 1.0
    low, high = patches.min(axis=(1, 2)), patches.max(axis=(1, 2))
    finite = whole & np.isfinite(low) & np.isfinite(high)
    if isinstance(depth, MetricDepth):
        return np.asarray(finite & (low > 0) & (high < limit * low))
    return np.asarray(finite & (high - low < limit))


def ray_factor(scene: Scene, points: Points, fov_deg: float) -> Floats:
    """(N,) distance along the ray over depth, by the camera where it is known, else by a horizontal field of view."""
    truth = scene.view.truth
    height, width = scene.rgb.shape[:2]
    fx = fy = width / 2 / float(np.tan(np.radians(fov_deg) / 2))
    cx, cy = width / 2, height / 2
    if truth is not None and truth.camera is not None:
        K = truth.camera.K
        fx, fy, cx, cy = float(K[0, 0]), float(K[1, 1]), float(K[0, 2]), float(K[1, 2])
    return np.asarray(np.sqrt(1 + ((points[:, 0] - cx) / fx) ** 2 + ((points[:, 1] - cy) / fy) ** 2))


def member_at(depth: DepthMap, points: Points, rays: Floats, span: float) -> Member:
    """The member at flat places; `rays` from `ray_factor`, `span` from `inverse_range`."""
    metric = isinstance(depth, MetricDepth)
    array = depth.metres if isinstance(depth, MetricDepth) else depth.inverse
    around = gather(array, points, 1).astype(np.float64).reshape(len(points), 9)
    values = np.median(around, axis=1) if len(points) else np.zeros(0)
    return Member(depth.backend, metric, values, values * rays if metric else np.zeros(0), span)
