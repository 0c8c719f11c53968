"""A depth map drawn as a picture: near is warm, far is cold, unknown is grey."""

from __future__ import annotations

import numpy as np

from synth.images import encode_jpeg, resize
from synth.types import MetricDepth, Rgb, Scene

STOPS = np.array(
    [
        (48, 18, 59),
        (70, 107, 227),
        (40, 187, 236),
        (49, 242, 153),
        (162, 252, 60),
        (237, 208, 58),
        (251, 128, 34),
        (122, 4, 3),
    ],
    dtype=np.float64,
)
"""Eight stops of the Turbo colour map (A. Mikhailov, Google, 2019)."""


def depth_overlay(scene: Scene, side: int = 320) -> bytes:
    """JPEG of the scene's first depth map, longest side at most `side` pixels."""
    depth = scene.depths[0]
    nearness = 1.0 / np.maximum(depth.metres, 1e-6) if isinstance(depth, MetricDepth) else depth.inverse
    valid = depth.valid & np.isfinite(nearness)
    picture: Rgb = np.full((*nearness.shape, 3), 128, dtype=np.uint8)
    if valid.any():
        low, high = np.percentile(nearness[valid], [1, 99])
        level = np.clip((nearness - low) / max(high - low, 1e-9), 0, 1)[valid] * (len(STOPS) - 1)
        below = np.minimum(level.astype(np.int64), len(STOPS) - 2)
        part = (level - below)[:, None]
        picture[valid] = np.rint(STOPS[below] * (1 - part) + STOPS[below + 1] * part).astype(np.uint8)
    height, width = picture.shape[:2]
    scale = min(1.0, side / max(height, width))
    return encode_jpeg(resize(picture, max(1, round(width * scale)), max(1, round(height * scale))), quality=85)
