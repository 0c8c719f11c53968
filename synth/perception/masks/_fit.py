"""Whether a mask is that of a box."""

from __future__ import annotations

import numpy as np

from synth.types import Box, Mask

FIT = 0.6
"""Least IoU of a mask's bounding box with the region's box."""


def box_of(mask: Mask) -> Box | None:
    """The bounding box of a mask (H, W) in pixels, or None for an empty one."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return None
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)
