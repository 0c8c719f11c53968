"""A wrong label as evidence: the pictures with their marks, and what the truth says about the same places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from synth.audit.truth import Graded
from synth.geometry import generator
from synth.images import encode_jpeg
from synth.marks import draw_marks
from synth.types import QA, DepthMap, Mark, MetricDepth, Region, Regions, Scene


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """One candidate that the truth contradicts."""

    graded: Graded
    pictures: tuple[bytes, ...]
    """Encoded, marks drawn; a picture that is gone is left out."""
    truth: tuple[tuple[str, str], ...]
    """What, and what the truth says of it."""


def wrong_label(graded: Graded, scene: Scene, truth: Scene) -> Wrong:
    """The evidence against a wrong candidate. `scene`: as perceived, with its second picture; `truth`: as graded."""
    pictures = []
    for number, panel in enumerate(graded.qa.panels):
        rgb = scene.picture(panel)
        if rgb is not None:
            drawn = draw_marks(rgb, panel.marks, generator(number, "marks", graded.qa.qa_id))
            pictures.append(encode_jpeg(drawn.rgb, quality=85))
    return Wrong(graded=graded, pictures=tuple(pictures), truth=tuple(truth_facts(graded.qa, truth)))


def truth_facts(qa: QA, truth: Scene) -> Iterator[tuple[str, str]]:
    """Depth and object at each mark of the first picture, and how often the truth lists what is asked about."""
    marks = [mark for panel in qa.panels if panel.image == "view" for mark in panel.marks]
    for mark in marks:
        if truth.depths:
            yield f"depth at {mark.label}", _depth_at(truth.depths[0], mark)
        if truth.regions:
            yield f"object at {mark.label}", _object_at(truth.regions[0], mark)
    for name in ("label", "object", "a", "b"):
        asked = qa.provenance.measures.get(name)
        if isinstance(asked, str) and truth.regions:
            yield asked, _listed(asked, truth.regions[0])


def _depth_at(depth: DepthMap, mark: Mark) -> str:
    """Median of the valid values of 3 x 3 pixels."""
    array = depth.metres if isinstance(depth, MetricDepth) else depth.inverse
    row, column = int(mark.y), int(mark.x)
    around = (slice(max(0, row - 1), row + 2), slice(max(0, column - 1), column + 2))
    values = array[around][depth.valid[around]]
    if not len(values):
        return "unknown"
    value = float(np.median(values))
    return f"{value:.3g} m" if isinstance(depth, MetricDepth) else f"{value:.4g} (inverse, larger is nearer)"


def _object_at(regions: Regions, mark: Mark) -> str:
    found = sorted((r for r in regions.items if _covers(r, mark)), key=lambda r: _area(r))
    return " in ".join(_named(region) for region in found[:3]) or "nothing listed"


def _covers(region: Region, mark: Mark) -> bool:
    if region.mask is not None:
        return bool(region.mask[int(mark.y), int(mark.x)])
    x1, y1, x2, y2 = region.box
    return x1 <= mark.x <= x2 and y1 <= mark.y <= y2


def _area(region: Region) -> float:
    x1, y1, x2, y2 = region.box
    return (x2 - x1) * (y2 - y1)


def _named(region: Region) -> str:
    return f"{region.attributes.get('colour', '')} {region.label}{' (crowd)' if region.crowd else ''}".strip()


def _listed(label: str, regions: Regions) -> str:
    own = [region for region in regions.items if region.label == label]
    boxes = ", ".join("(" + " ".join(f"{value:.0f}" for value in region.box) + ")" for region in own[:6])
    every = "every one is listed" if regions.complete else "others may be missing from the list"
    crowd = ", crowds among them" if any(region.crowd for region in own) else ""
    return f"{len(own)} in the truth ({every}{crowd}){': ' + boxes if boxes else ''}"
