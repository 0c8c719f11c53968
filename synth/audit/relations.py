"""What the truth says about two objects: which is further left, higher or nearer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from synth.audit.depths import MIN_RATIO, MIN_SHARE, region_depth
from synth.geometry import box_iou
from synth.types import Box, JsonValue, MetricDepth, Region, Regions, Scene

MIN_IOU = 0.5
"""From this overlap on, a box that was asked about is that of the truth (PASCAL VOC, IJCV 2010)."""
NONE_RIGHT = ""
"""The truth calls no option right: the question has no answer."""
MIN_OFFSET = 0.02
"""Centres that are nearer to each other than this share of the picture have no order in it."""
_AXES = {"left": (0, -1), "right": (0, 1), "higher": (1, -1), "lower": (1, 1)}
"""Telling word of a relation -> (axis, sign of the first object's place minus the second's)."""


def related(measures: Mapping[str, JsonValue], regions: Regions, scene: Scene) -> str | None:
    """yes or no by the centres of the true boxes that were asked about, or by the median depths in them.

    A name may mean several true objects: then all must give the same answer, or the question has none. None where a box
    has no counterpart and the list is not complete, or where a crowd may hide one.
    """
    relation = str(measures["relation"])
    meant: list[list[Region]] = []
    for label in (str(measures["a"]), str(measures["b"])):
        own = [region for region in regions.items if spoken_name(region.label) == spoken_name(label)]
        if any(region.crowd and spoken_name(region.label) in ("", spoken_name(label)) for region in regions.items):
            return None
        if not any(box_iou(region.box, _box(measures, label)) >= MIN_IOU for region in own):
            # A list that is complete for its own kinds only does not tell whether it knows this one.
            return NONE_RIGHT if own and regions.complete else None
        meant.append(own)
    answers = {_relation(first, second, relation, scene) for first in meant[0] for second in meant[1]}
    return answers.pop() if len(answers) == 1 else None if None in answers else NONE_RIGHT


def _box(measures: Mapping[str, JsonValue], label: str) -> Box:
    boxes = measures["boxes_px"]
    corners = boxes.get(label) if isinstance(boxes, Mapping) else None
    if not isinstance(corners, Sequence) or len(corners) != 4:
        raise TypeError(f"no box of {label!r} is stored")
    x1, y1, x2, y2 = (float(str(value)) for value in corners)
    return x1, y1, x2, y2


def _relation(first: Region, second: Region, relation: str, scene: Scene) -> str | None:
    word = next((word for word in _AXES if word in relation.split()), None)
    if word is not None:
        axis, sign = _AXES[word]
        places = [(region.box[axis] + region.box[axis + 2]) / 2 for region in (first, second)]
        offset = (places[0] - places[1]) / scene.rgb.shape[1 - axis]
        return None if abs(offset) < MIN_OFFSET else "yes" if offset * sign > 0 else "no"
    if not scene.depths:
        return None
    depths = [region_depth(region, scene) for region in (first, second)]
    if depths[0] is None or depths[1] is None:
        return None
    gap = depths[0] - depths[1]
    if abs(gap) < (np.log(MIN_RATIO) if isinstance(scene.depths[0], MetricDepth) else MIN_SHARE):
        return None
    return "yes" if (gap < 0) == relation.startswith("closer") else "no"


def spoken_name(label: str) -> str:
    """The label in lower case, without the suffixes of panoptic label sets."""
    name = label.strip().lower()
    for suffix in ("-merged", "-other", "-stuff"):
        name = name.removesuffix(suffix)
    return " ".join(name.replace("_", " ").replace("-", " ").split())
