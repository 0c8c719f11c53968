"""Matches that came with the photos: homographies and hand-marked places of `truth.jsonl`, the disparity of a stereo
pair, or depth in metres with both cameras. Exact, so no consensus is asked of them.

A place counts as visible in the other photo only where the truth can tell: with cameras, the depth measured there must
be that of the place; with disparity, no nearer place may land on it; a homography is given for flat scenes, which hide
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pydantic import Field

from synth.contracts import MatchBackend
from synth.geometry import Points, apply_homography, project, unproject
from synth.types import Camera, Frame, Matches, Matrix, MetricDepth, PluginOptions, RelativeDepth, narrow

_SAME_DEPTH = 0.01
_LANDS_ON_PX = 1.0


class Options(PluginOptions):
    """How densely known maps are sampled."""

    grid: int = Field(default=96, ge=8, le=512)
    """Places along the longer side."""


def identity(options: PluginOptions) -> str:
    """Truth has no weights."""
    return f"truth/grid={narrow(options, Options).grid}"


def load(options: PluginOptions) -> _Reader:
    """Nothing is loaded."""
    return _Reader(narrow(options, Options).grid)


class _Reader:
    def __init__(self, grid: int) -> None:
        self._grid = grid

    def __call__(self, here: Frame, there: Frame) -> Matches | None:
        told, other = here.view.truth, there.view.truth
        if told is None:
            return None
        name = there.view.name
        if name in told.homographies:
            return self._planar(here, there, told.homographies[name])
        if name in told.matches:
            return told.matches[name]
        if name == told.right and isinstance(told.depth, RelativeDepth):
            return self._stereo(here, told.depth)
        if other is None or told.camera is None or other.camera is None:
            return None
        if not isinstance(told.depth, MetricDepth) or not isinstance(other.depth, MetricDepth):
            return None
        if np.array_equal(told.camera.R, other.camera.R) and np.array_equal(told.camera.t, other.camera.t):
            return None  # a sidecar that gives no pose: both cameras would stand in the same place
        return self._posed(here, _Posed(told.depth, told.camera), _Posed(other.depth, other.camera))

    def _places(self, frame: Frame) -> Points:
        """Pixel centres on a grid."""
        height, width = frame.rgb.shape[:2]
        step = max(1, max(height, width) // self._grid)
        rows, columns = np.mgrid[step // 2 : height : step, step // 2 : width : step]
        return np.stack([columns.ravel() + 0.5, rows.ravel() + 0.5], axis=1)

    def _planar(self, here: Frame, there: Frame, H: Matrix) -> Matches:
        places = self._places(here)
        mapped = apply_homography(H, places)
        height, width = there.rgb.shape[:2]
        keep = ((mapped >= 0) & (mapped < np.array([width, height]))).all(axis=1)
        return _matches(places[keep], mapped[keep], H)

    def _stereo(self, here: Frame, depth: RelativeDepth) -> Matches:
        """Disparity in pixels; a place is hidden where one of more disparity lands on the same pixel."""
        height, width = depth.valid.shape
        landing = np.arange(width) + 0.5 - depth.inverse
        front = np.full((height, width + 1), -np.inf)
        cell = np.clip(np.floor(landing), -1, width - 1).astype(np.int64)
        rows = np.broadcast_to(np.arange(height)[:, None], cell.shape)
        np.maximum.at(front, (rows[depth.valid], cell[depth.valid]), depth.inverse[depth.valid])
        places = self._places(here)
        at = np.floor(places).astype(np.int64).T
        disparity = depth.inverse[at[1], at[0]].astype(np.float64)
        mapped = places - np.stack([disparity, np.zeros_like(disparity)], axis=1)
        column = np.clip(np.floor(mapped[:, 0]), -1, width - 1).astype(np.int64)
        beside = np.stack([front[at[1], np.clip(column + k, -1, width - 1)] for k in (-1, 0, 1)]).max(axis=0)
        keep = depth.valid[at[1], at[0]] & (mapped[:, 0] >= 0) & (beside <= disparity + _LANDS_ON_PX)
        return _matches(places[keep], mapped[keep])

    def _posed(self, frame: Frame, here: _Posed, there: _Posed) -> Matches:
        places = self._places(frame)
        metres, known = here.at(places)
        places, metres = places[known], metres[known]
        seen = _seen_by(unproject(places, metres, here.camera.K), here.camera, there.camera)
        front = seen[:, 2] > 0
        places, seen = places[front], seen[front]
        mapped = project(seen, there.camera.K)
        height, width = there.depth.valid.shape
        inside = ((mapped >= 0) & (mapped < np.array([width, height]))).all(axis=1)
        places, seen, mapped = places[inside], seen[inside], mapped[inside]
        measured, known = there.at(mapped)
        keep = known & (np.abs(measured - seen[:, 2]) <= _SAME_DEPTH * seen[:, 2])
        return _matches(places[keep], mapped[keep])


@dataclass(frozen=True)
class _Posed:
    """A photo's depth and where its camera stood."""

    depth: MetricDepth
    camera: Camera

    def at(self, places: Points) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """(N,) metres at places inside the photo, and whether they are known."""
        x, y = np.floor(places).astype(np.int64).T
        metres = self.depth.metres[y, x].astype(np.float64)
        return metres, self.depth.valid[y, x] & np.isfinite(metres)


def _seen_by(points: Points, first: Camera, second: Camera) -> Points:
    """(N, 3) metres in the first camera's frame -> in the second's."""
    world = (points - first.t.ravel()) @ first.R
    return np.asarray(world @ second.R.T + second.t.ravel(), dtype=np.float64)


def _matches(here: Points, there: Points, homography: Matrix | None = None) -> Matches:
    return Matches(here=here, there=there, scores=np.ones(len(here)), backend="truth", homography=homography)


BACKEND = MatchBackend(name="truth", version=1, options=Options, exact=True, identity=identity, load=load)
