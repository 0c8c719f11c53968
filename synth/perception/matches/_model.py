"""Which matches one geometry explains: a homography where the scene is flat or the camera only turned, else an epipolar
geometry whose matches must also move as their neighbours do.

Robust fits by MAGSAC++ (Barath et al., CVPR 2020) through OpenCV. An epipolar geometry says nothing about a wrong match
along its line, so a match must lie where an affine map of its neighbours puts it, too; where depth jumps, right matches
fall with the wrong ones.
"""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from synth.errors import BackendError
from synth.types import Matches, Matrix, Places, Rgb

Flags = npt.NDArray[np.bool_]
"""(N,) booleans."""

INLIER = 0.002
"""Greatest distance of a match from its model, as a share of the longer of the two diagonals."""
BESIDE_NEIGHBOURS = 0.003
"""The same for the place where its neighbours put a match."""
LEAST_HOMOGRAPHY, LEAST_EPIPOLAR = 16, 32
"""Fewer inliers may be chance: two photos of different things."""
LEAST_SPREAD = 0.06
"""Area that the inliers enclose, over the diagonal squared (a whole 4:3 photo: 0.48). Matches on one object say nothing
about the scene: the object may have been moved, or be another one of its kind."""
_FLAT = 0.8
_NEIGHBOURS = 10
_CONFIDENCE, _ROUNDS = 0.9999, 10_000


def opencv() -> ModuleType:
    """The module cv2, on one thread. Raises BackendError where it is not installed."""
    try:
        import cv2
    except ImportError as error:
        raise BackendError(
            f"matching needs OpenCV: {error}", where="perception.two_views", fix="pip install opencv-python-headless"
        ) from None
    cv2.setNumThreads(1)  # workers are processes; threads of each would compete
    module: ModuleType = cv2
    return module


def explained(found: Matches, here: Rgb, there: Rgb) -> Matches:
    """The matches of these two pictures that one model explains, with it; none where no model has enough of them."""
    diagonals = tuple(float(np.hypot(*picture.shape[:2])) for picture in (here, there))
    diagonal = max(diagonals)
    tolerance = INLIER * diagonal
    # A match listed twice would support a model twice.
    _, first = np.unique(np.rint(np.hstack([found.here, found.there])), axis=0, return_index=True)
    some = _chosen(found, np.sort(first))
    H, on_plane = _homography(some, tolerance)
    F, on_lines = _fundamental(some, tolerance)
    if on_plane.sum() >= max(LEAST_HOMOGRAPHY, _FLAT * on_lines.sum()):
        kept = replace(_chosen(some, np.flatnonzero(on_plane)), homography=H)
    elif on_lines.sum() >= LEAST_EPIPOLAR:
        kept = _chosen(some, np.flatnonzero(on_lines))
        near = _with_neighbours(kept, BESIDE_NEIGHBOURS * diagonal)
        kept = replace(_chosen(kept, np.flatnonzero(near)), fundamental=F)
    else:
        return _nothing(found)
    spread = max(_area(kept.here) / diagonals[0] ** 2, _area(kept.there) / diagonals[1] ** 2)
    return kept if spread >= LEAST_SPREAD else _nothing(found)


def _nothing(found: Matches) -> Matches:
    return _chosen(found, np.zeros(0, dtype=np.int64))


def _area(places: Places) -> float:
    """Area that the places enclose, px²."""
    cv2 = opencv()
    return float(cv2.contourArea(cv2.convexHull(places.astype(np.float32)))) if len(places) > 2 else 0.0


def _chosen(found: Matches, which: npt.NDArray[np.int64]) -> Matches:
    return Matches(here=found.here[which], there=found.there[which], scores=found.scores[which], backend=found.backend)


def _homography(found: Matches, tolerance: float) -> tuple[Matrix | None, Flags]:
    cv2 = opencv()
    try:
        H, mask = cv2.findHomography(found.here, found.there, cv2.USAC_MAGSAC, tolerance, None, _ROUNDS, _CONFIDENCE)
    except cv2.error:  # it asserts where all samples are degenerate, and where there are fewer than four points
        return _none(found)
    return _result(found, H, mask)


def _fundamental(found: Matches, tolerance: float) -> tuple[Matrix | None, Flags]:
    cv2 = opencv()
    try:
        F, mask = cv2.findFundamentalMat(found.here, found.there, cv2.USAC_MAGSAC, tolerance, _CONFIDENCE, _ROUNDS)
    except cv2.error:
        return _none(found)
    return _result(found, F, mask)


def _none(found: Matches) -> tuple[None, Flags]:
    return None, np.zeros(len(found.here), dtype=np.bool_)


def _result(found: Matches, matrix: Matrix | None, mask: npt.NDArray[np.uint8] | None) -> tuple[Matrix | None, Flags]:
    if matrix is None or mask is None or matrix.shape != (3, 3) or not np.isfinite(matrix).all():
        return _none(found)
    return matrix, mask.ravel().astype(np.bool_)


def _with_neighbours(found: Matches, tolerance: float) -> Flags:
    """True where a match lies within `tolerance` px of where the affine map of its nearest matches puts it."""
    n = len(found.here)
    if n <= _NEIGHBOURS:
        return np.zeros(n, dtype=np.bool_)
    near = np.asarray(cKDTree(found.here).query(found.here, k=_NEIGHBOURS + 1)[1])
    agrees = np.zeros(n, dtype=np.bool_)
    for i in range(n):
        others = near[i][near[i] != i]
        steps = np.hstack([found.here[others] - found.here[i], np.ones((len(others), 1))])
        mapped = np.linalg.lstsq(steps, found.there[others], rcond=None)[0][2]
        agrees[i] = np.hypot(*(mapped - found.there[i])) <= tolerance
    return agrees
