"""A second image of one photo by a random homography and a change of light: exact correspondence by construction.

The recipe of self-supervised matching (DeTone et al., Deep Image Homography Estimation, arXiv 1606.03798; SuperPoint,
arXiv 1712.07629): perspective by shifted corners, rotation, scale, shift; gain, gamma and a little noise. The photo is
moved as a plane, so the pair says nothing about parallax.
"""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
from pydantic import Field

from synth.contracts import MatchBackend
from synth.geometry import Points, apply_homography, covered, homography_from_corners, warp
from synth.images import resize
from synth.types import Frame, Matrix, PluginOptions, Rgb, WarpedPair, narrow

_TRIES = 8
_EASING = 0.7
_GRID = 64
_STRIP = 64


class Options(PluginOptions):
    """How far the second image may be from the first."""

    perspective: float = Field(default=0.12, ge=0, le=0.3)
    """Each corner shifts by up to this share of the sides."""
    rotation: float = Field(default=30.0, ge=0, le=180)
    """Degrees, either way."""
    scale: tuple[float, float] = (0.7, 1.4)
    translation: float = Field(default=0.3, ge=0, le=0.5)
    """Share of the sides, either way. Little motion leaves no room for wrong candidates that move as little."""
    least_covered: float = Field(default=0.5, ge=0, le=0.95)
    """Share of the second image that must show the first; a stronger warp is drawn again, more gently each time."""
    gain: tuple[float, float] = (0.8, 1.2)
    gamma: tuple[float, float] = (0.8, 1.25)
    noise: float = Field(default=3.0, ge=0, le=50)
    """Largest standard deviation, grey levels."""
    max_side: int = Field(default=1024, ge=64)
    """The second image is no longer than this; px."""


def pair(frame: Frame, options: PluginOptions, rng: np.random.Generator) -> WarpedPair:
    """The second image, its homography (first image's pixels -> second's) and the pixels that show the first."""
    chosen = narrow(options, Options)
    height, width = frame.rgb.shape[:2]
    shrink = min(1.0, chosen.max_side / max(height, width))
    small = resize(frame.rgb, max(1, round(width * shrink)), max(1, round(height * shrink)))
    sides = small.shape[1], small.shape[0]
    H = _homography(*sides, chosen, rng)
    to_small = np.diag([sides[0] / width, sides[1] / height, 1.0])
    full = H @ to_small
    light = int(rng.integers(2**63))
    return WarpedPair(
        render=lambda: _relit(warp(small, H, *sides)[0], chosen, np.random.default_rng(light)),
        homography=full / full[2, 2],
        covered=covered(H, sides, sides),
        backend="homography",
    )


def _homography(width: int, height: int, options: Options, rng: np.random.Generator) -> Matrix:
    for attempt in range(_TRIES):
        H = _random_homography(width, height, options, _EASING**attempt, rng)
        if _coverage(H, width, height) >= options.least_covered:
            return H
    return np.eye(3)


def _coverage(H: Matrix, width: int, height: int) -> float:
    """Share of the second image that shows the first, measured on a grid."""
    rows, columns = np.mgrid[0:_GRID, 0:_GRID]
    cells = np.stack([columns.ravel(), rows.ravel()], axis=1).astype(np.float64)
    inverse: Matrix = np.asarray(np.linalg.inv(H), dtype=np.float64)
    source = apply_homography(inverse, (cells + 0.5) / _GRID * np.array([width, height], dtype=np.float64))
    return float(((source >= 0) & (source <= [width, height])).all(axis=1).mean())


def _random_homography(width: int, height: int, options: Options, gentle: float, rng: np.random.Generator) -> Matrix:
    """Rotation and scale about the centre, a shift, and shifted corners; `gentle` (0..1) shrinks all of them."""
    sides = np.array([width, height], dtype=np.float64)
    corners: Points = np.array([(0, 0), (1, 0), (1, 1), (0, 1)]) * sides
    angle = np.radians(rng.uniform(-options.rotation, options.rotation)) * gentle
    scale = np.exp(rng.uniform(*np.log(options.scale)) * gentle)
    turn = scale * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    shift = rng.uniform(-options.translation, options.translation, 2) * gentle * sides
    jitter = rng.uniform(-options.perspective, options.perspective, (4, 2)) * gentle * sides
    target = (corners - sides / 2) @ turn.T + sides / 2 + shift + jitter
    return homography_from_corners(corners, target)


def _relit(rgb: Rgb, options: Options, rng: np.random.Generator) -> Rgb:
    import cv2

    gain, gamma = rng.uniform(*options.gain), np.exp(rng.uniform(*np.log(options.gamma)))
    sigma = rng.uniform(0, options.noise)
    levels = ((np.arange(256) / 255) ** gamma * gain * 255).astype(np.float32)
    noise = (sigma * _normal()).astype(np.float32)
    out = np.empty_like(rgb)
    for top in range(0, len(rgb), _STRIP):  # what stays in the processor's cache costs a third
        part = rgb[top : top + _STRIP]
        chance = rng.integers(0, 256, part.shape, dtype=np.uint8)
        cv2.add(cv2.LUT(part, levels), cv2.LUT(chance, noise), dst=out[top : top + _STRIP], dtype=cv2.CV_8U)
    return out


@lru_cache(maxsize=1)
def _normal() -> npt.NDArray[np.float64]:
    """256 equally likely values of variance 1, spread as a normal distribution: ten times as fast as drawing them."""
    values = np.array([NormalDist().inv_cdf((k + 0.5) / 256) for k in range(256)])
    return np.asarray(values / values.std())


BACKEND = MatchBackend(name="homography", version=3, options=Options, pair=pair)
