"""Own marks painted over, so that what we drew is neither hashed nor matched."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from synth.types import Box, Rgb

Floats = npt.NDArray[np.float32]


def fill(rgb: Rgb, boxes: Sequence[Box]) -> Rgb:
    """A copy of (H, W, 3) with each box (px) painted over from its four edges.

    Each pixel is the mean of the straight lines between the pixels left and right, and above and below, of its box: one
    flat colour would change a perceptual hash as much as the mark did. A box that covers the whole image becomes grey.
    """
    out = rgb.astype(np.float32)
    height, width = rgb.shape[:2]
    for y1, y2, x1, x2 in (_pixels_of(box, width, height) for box in boxes):
        across = _between(out[y1:y2, max(0, x1 - 2) : x1], out[y1:y2, x2 : x2 + 2], x2 - x1, axis=1)
        down = _between(out[max(0, y1 - 2) : y1, x1:x2], out[y2 : y2 + 2, x1:x2], y2 - y1, axis=0)
        lines = [line for line in (across, down) if line is not None]
        out[y1:y2, x1:x2] = np.mean(lines, axis=0) if lines else 127.0
    return np.rint(out).astype(np.uint8)


def _between(before: Floats, after: Floats, length: int, axis: int) -> Floats | None:
    """`length` samples along the axis from the mean of `before` to that of `after`; None where both are empty."""
    ends = [side.mean(axis=axis, keepdims=True) for side in (before, after) if side.shape[axis] > 0]
    if not ends:
        return None
    steps = (np.arange(length, dtype=np.float32) + 0.5) / max(length, 1)
    weights = steps.reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
    line: Floats = ends[0] * (1 - weights) + ends[-1] * weights
    return line


def _pixels_of(box: Box, width: int, height: int) -> tuple[int, int, int, int]:
    x1, x2 = (min(max(int(edge), 0), width) for edge in (np.floor(box[0]), np.ceil(box[2])))
    y1, y2 = (min(max(int(edge), 0), height) for edge in (np.floor(box[1]), np.ceil(box[3])))
    return y1, y2, x1, x2
