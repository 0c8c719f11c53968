"""Where a place of one photo lies in another, by the truth of the photos alone: the grader's own reading of it.

Homographies, the disparity of a stereo pair, places marked by hand, or both cameras with depth in metres. Nothing of
what a matcher, a backend or a task computed is used.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from synth.types import Mark, Matches, MetricDepth, RelativeDepth, Truth, View

MAX_ERROR = 0.01
"""How far from the true place the right candidate may stand, as a share of the second photo's diagonal; a marked place
speaks for REF where it lies as near to it."""
MAX_DEPTH_ERROR = 0.02
"""Depths that differ by more, as a share, are of two surfaces: the place is hidden in the second photo."""
_NONE_RIGHT = ""
_Arrivals = npt.NDArray[np.float64]
"""(K, 2) px: where REF may arrive; several at an edge in depth, none where it is hidden."""


def right_mark(ref: Mark, candidates: Sequence[Mark], here: View, there: View) -> str | None:
    """Label of the one candidate at REF's place, "" where no single one is, None where the truth cannot say."""
    arrivals = _arrivals(ref, here, there)
    if arrivals is None:
        return None
    tolerance = MAX_ERROR * float(np.hypot(there.width, there.height))
    near = [
        mark.label
        for mark in candidates
        if len(arrivals) and np.hypot(arrivals[:, 0] - mark.x, arrivals[:, 1] - mark.y).min() <= tolerance
    ]
    return near[0] if len(near) == 1 else _NONE_RIGHT


def _arrivals(ref: Mark, here: View, there: View) -> _Arrivals | None:
    told, other = here.truth, there.truth
    if told is not None and there.name in told.homographies:
        return _through(told.homographies[there.name], ref)
    if other is not None and here.name in other.homographies:
        return _through(np.asarray(np.linalg.inv(other.homographies[here.name]), dtype=np.float64), ref)
    if told is not None and there.name in told.matches:
        return _marked(told.matches[there.name], ref, MAX_ERROR * float(np.hypot(here.width, here.height)))
    if told is not None and told.right == there.name and isinstance(told.depth, RelativeDepth):
        return _shifted(told.depth, ref)
    if told is not None and other is not None:
        return _projected(told, other, ref)
    return None


def _through(matrix: npt.NDArray[np.float64], ref: Mark) -> _Arrivals:
    x, y, w = matrix @ np.array([ref.x, ref.y, 1.0])
    return np.array([[x / w, y / w]])


def _marked(matches: Matches, ref: Mark, near: float) -> _Arrivals | None:
    """By the marked place that is nearest to REF; None where none is near enough to speak for it."""
    steps = np.array([ref.x, ref.y]) - matches.here
    distance = np.hypot(steps[:, 0], steps[:, 1])
    if not len(distance) or distance.min() > near:
        return None
    best = int(distance.argmin())
    return np.asarray(matches.there[best : best + 1] + steps[best], dtype=np.float64)


def _shifted(depth: RelativeDepth, ref: Mark) -> _Arrivals | None:
    """By each disparity measured within a pixel of REF: beside an edge in depth a mark shows both sides."""
    row, column = int(ref.y), int(ref.x)
    around = (slice(max(0, row - 1), row + 2), slice(max(0, column - 1), column + 2))
    disparities = depth.inverse[around][depth.valid[around]].astype(np.float64)
    if not len(disparities):
        return None
    return np.stack([ref.x - disparities, np.full(len(disparities), ref.y)], axis=1)


def _projected(told: Truth, other: Truth, ref: Mark) -> _Arrivals | None:
    """Through both cameras; none where another surface is in front of the place. None where poses are not known."""
    if told.camera is None or other.camera is None:
        return None
    if not isinstance(told.depth, MetricDepth) or not isinstance(other.depth, MetricDepth):
        return None
    if np.allclose(told.camera.R, other.camera.R) and np.allclose(told.camera.t, other.camera.t):
        return None  # one place for two cameras: the sidecar gives intrinsics only
    row, column = int(ref.y), int(ref.x)
    if not told.depth.valid[row, column]:
        return None
    ray = np.linalg.inv(told.camera.K) @ np.array([ref.x, ref.y, 1.0])
    world = told.camera.R.T @ (ray * float(told.depth.metres[row, column]) - told.camera.t.ravel())
    seen = other.camera.R @ world + other.camera.t.ravel()
    x, y, _ = other.camera.K @ (seen / seen[2]) if seen[2] > 0 else (-1.0, -1.0, 1.0)
    height, width = other.depth.valid.shape
    if not (0 <= x < width and 0 <= y < height):
        return np.zeros((0, 2))
    if not other.depth.valid[int(y), int(x)]:
        return None
    hidden = float(other.depth.metres[int(y), int(x)]) < (1 - MAX_DEPTH_ERROR) * float(seen[2])
    return np.zeros((0, 2)) if hidden else np.array([[x, y]])
