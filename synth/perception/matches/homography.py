"""A second image of one photo by a random homography and a change of light: exact correspondence by construction.

The recipe of self-supervised matching (DeTone et al., Deep Image Homography Estimation, arXiv 1606.03798; SuperPoint,
arXiv 1712.07629): perspective by shifted corners, rotation, scale, shift; gain, gamma and a little noise. The photo is
moved as a plane, so the pair says nothing about parallax.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from synth.contracts import MatchBackend
from synth.geometry import Points, apply_homography, homography_from_corners, warp
from synth.images import resize
from synth.types import Frame, Mask, Matrix, PluginOptions, Rgb, WarpedPair, narrow

_TRIES = 8
_EASING = 0.7
_GRID = 64


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
    warped, covered, H = _warped(small, chosen, rng)
    to_small = np.diag([small.shape[1] / width, small.shape[0] / height, 1.0])
    full = H @ to_small
    return WarpedPair(
        rgb=_relit(warped, chosen, rng), homography=full / full[2, 2], covered=covered, backend="homography"
    )


def _warped(rgb: Rgb, options: Options, rng: np.random.Generator) -> tuple[Rgb, Mask, Matrix]:
    height, width = rgb.shape[:2]
    for attempt in range(_TRIES):
        H = _random_homography(width, height, options, _EASING**attempt, rng)
        if _coverage(H, width, height) >= options.least_covered:
            break
    else:
        H = np.eye(3)
    image, covered = warp(rgb, H, width, height)
    return image, covered, H


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
    gain, gamma = rng.uniform(*options.gain), np.exp(rng.uniform(*np.log(options.gamma)))
    sigma = rng.uniform(0, options.noise)
    levels = (np.arange(256) / 255) ** gamma * gain * 255
    noisy = levels.astype(np.float32)[rgb] + sigma * rng.standard_normal(rgb.shape, dtype=np.float32)
    return np.rint(noisy).clip(0, 255).astype(np.uint8)


BACKEND = MatchBackend(name="homography", version=2, options=Options, pair=pair)
