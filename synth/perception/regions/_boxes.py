"""What the detectors share: rows of a model's output to regions inside the photo."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from synth.geometry import box_area
from synth.types import Box, Region


def found_in(shape: Sequence[int], rows: Iterable[tuple[float, str, Sequence[float]]]) -> tuple[Region, ...]:
    """Regions from (score, label, xyxy in pixels), the best first, clipped to a photo of shape (H, W, …).

    What clipping leaves of a box outside the photo, less than a square pixel, is none.
    """
    height, width = shape[:2]
    items = []
    for score, label, (x1, y1, x2, y2) in sorted(rows, key=lambda row: -row[0]):
        box: Box = (max(x1, 0.0), max(y1, 0.0), min(x2, float(width)), min(y2, float(height)))
        if box_area(box) >= 1:
            items.append(Region(label=label, box=box, score=score))
    return tuple(items)
