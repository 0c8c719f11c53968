"""Is one named object left of, right of, above, below, in front of or behind another one?

Both objects must be the only ones of their kind for every member of the detection consensus, in the same place, and
whole, or at least large where the picture's edge cuts them. Left, right, above and below are read in the picture: the
two boxes must not overlap along the axis at all and lie apart by a margin, in every member. In front and behind need
depth: the quartiles of the two objects' depths must not overlap, by a margin, in every depth member. A "no" is as sure
as a "yes": the opposite relation holds.
Worked example: cup x 20..60, lamp x 90..140 of 200 pixels: "Is the cup to the left of the lamp?" yes, "Is the lamp to
the left of the cup?" no. Cup x 20..60, table x 10..190: silence.
What is above what, or nearer, is often known without looking ("the lamp above the table"): a stratum names the two
kinds and which of them is the upper one, and balance keeps a pair of kinds only where both orders occur, equally often.
Left and right have no such habit, since a mirrored photo is as likely as the photo.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from pydantic import Field

from synth.contracts import Dial, Need, Task
from synth.geometry import box_area, box_iou
from synth.tasks._asking import Asker, Draft, Ledger, Wording, alternate, letter, mapping, numbers, rows, text
from synth.tasks._depths import inverse_range
from synth.tasks._places import is_cut, is_sliver, is_stuff
from synth.tasks._words import is_plural, names_stuff, same_kind, spoken
from synth.types import (
    QA,
    Box,
    DepthMap,
    Drop,
    MetricDepth,
    Panel,
    PluginOptions,
    Provenance,
    Region,
    Scene,
    Skill,
    narrow,
)

NAME, VERSION = "spatial_relation", 1
Axis = Literal["horizontal", "vertical", "depth"]
SAID: dict[str, tuple[str, str]] = {
    "horizontal": ("to the left of", "to the right of"),
    "vertical": ("higher up in the picture than", "lower down in the picture than"),
    "depth": ("closer to the camera than", "farther from the camera than"),
}
"""Axis -> how the first object relates to the second where it comes first along the axis, and where it comes last."""
WORDINGS = (
    Wording(question="Is the {a} {relation} the {b}?"),
    Wording(question="Look at the {a} and the {b}: is the {a} {relation} the {b}?"),
    Wording(question="Would you say that the {a} is {relation} the {b}?"),
    Wording(question="In this photo, is the {a} {relation} the {b}?"),
    Wording(question="Judging by this picture, is the {a} {relation} the {b}?"),
)
_YES_NO = ("yes", "no")


class Options(PluginOptions):
    """What must hold before a relation is trusted."""

    per_image: int = Field(4, ge=1, le=64)
    axes: tuple[Axis, ...] = Field(("horizontal", "vertical", "depth"), min_length=1)
    margin: float = Field(0.03, gt=0, lt=1)
    """Least free space between the boxes along the axis, as a share of the picture's width or height."""
    margin_metric: float = Field(0.2, gt=0)
    """Least ln(depth ratio) between the far end of the near object's quartiles and the near end of the other's."""
    margin_relative: float = Field(0.15, gt=0)
    """The same for inverse depth, as a share of its p0.5 to p99.5 range."""
    low_score: float = Field(0.15, ge=0, le=1)
    """A second object of a kind counts from this score on."""
    min_score: float = Field(0.5, ge=0, le=1)
    """What is asked about must score this in every member."""
    min_box: float = Field(0.004, ge=0, lt=1)
    """Least box area, as a share of the picture."""
    same: float = Field(0.6, gt=0, le=1)
    """IoU from which the members mean the same box."""
    edge: float = Field(0.01, ge=0, lt=0.2)
    """Boxes that come so near to the picture's edge, as a share of its sides, are cut by it."""
    min_cut: float = Field(0.04, ge=0, le=1)
    """Least box area of what the edge cuts, as a share of the picture. Cutting moves no side that faces another object,
    so the order stays; but a rest of an object has no sure name."""


@dataclass(frozen=True)
class _Thing:
    """The one object of its kind, as every member sees it."""

    name: str
    label: str
    boxes: tuple[Box, ...]
    """Per member of the detection consensus."""
    depths: tuple[tuple[float, float] | None, ...]
    """Per member of the depth consensus: its quartiles there; none where depth is not asked about."""
    score: float


@dataclass(frozen=True)
class _Order:
    """Two things in order along an axis, by every member."""

    axis: Axis
    first: _Thing
    last: _Thing
    ends: tuple[tuple[float, float], ...]
    """Per member: where the first one ends and the last one begins (pixels, metres, or negated inverse depth)."""
    kinds: tuple[str, ...]
    """px, m or inverse, per member."""
    margin: float
    excess: float


def generate(scene: Scene, options: PluginOptions, rng: np.random.Generator) -> Iterator[QA | Drop]:
    """Up to `per_image` relations, then what fell and why."""
    chosen = narrow(options, Options)
    ledger = Ledger(NAME, scene.view)
    maps = scene.depths if "depth" in chosen.axes else ()
    things = _things(scene, maps, chosen, ledger)
    least = [_least(depth, chosen) for depth in maps]
    orders = [order for pair in combinations(things, 2) for order in _orders(*pair, scene, least, chosen, ledger)]
    asker = Asker(NAME, VERSION, scene.view, rng)
    picked = [orders[k] for k in rng.permutation(len(orders))[: chosen.per_image]]
    for order, right in zip(picked, alternate("yes", "no", len(picked), rng), strict=True):
        yield asker.ask(_draft(order, right, rng), WORDINGS)
    yield from ledger.drops()


def recompute(provenance: Provenance) -> str:
    """Reads the order from the stored ends of every member and holds it against the words of the question."""
    measures = provenance.measures
    ends = [numbers(mapping(member)["ends"]) for member in rows(measures["members"])]
    ahead = {end["first_ends"] < end["last_begins"] for end in ends}
    if ahead != {True}:
        return ""
    asked_first = text(measures["a"]) == text(measures["first"])
    says_first = text(measures["relation"]) == SAID[text(measures["axis"])][0]
    return letter(provenance.options, "yes" if asked_first == says_first else "no")


# -------------------------------------------------------------------------------------------------------- what is there


def _things(scene: Scene, maps: Sequence[DepthMap], options: Options, ledger: Ledger) -> list[_Thing]:
    """Objects that are the only ones of their kind, whole and in the same place for every member."""
    if not scene.regions:
        ledger.add("no_regions", "no regions are known for this image")
        return []
    seen = [[r for r in member.items if r.crowd or r.score >= options.low_score] for member in scene.regions]
    everything = [region for member in seen for region in member]
    if any(r.crowd and not r.label for r in everything):
        ledger.add("crowd", "a crowd without a name, of whatever kind")
        return []
    things = []
    for label in sorted({r.label for r in everything if r.label and not (is_stuff(r) or names_stuff(r.label))}):
        own = [[r for r in member if r.label == label] for member in seen]
        reason = _doubt(label, own, everything, scene, options)
        if reason:
            ledger.add(reason, f"{label}: {[len(found) for found in own]}")
            continue
        regions = tuple(found[0] for found in own)
        score = min(r.score for r in regions)
        depths = tuple(_quartiles(regions[0], depth) for depth in maps)
        things.append(_Thing(spoken(label), label, tuple(r.box for r in regions), depths, score))
    return things


def _doubt(
    label: str, own: Sequence[Sequence[Region]], everything: Sequence[Region], scene: Scene, options: Options
) -> str:
    """Why "the {label}" is not one certain object, or ""."""
    height, width = scene.rgb.shape[:2]
    found = [region for member in own for region in member]
    if any(len(member) != 1 for member in own):
        return "not_the_only_one"
    if is_plural(spoken(label)):
        return "plural_name"
    if any(r.label != label and same_kind(r.label, label) for r in everything):
        return "two_names"
    if any(r.crowd for r in found):
        return "crowd"
    if any(is_sliver(r) for r in found):
        return "sliver"
    if min(r.score for r in found) < options.min_score:
        return "low_score"
    if any(box_area(r.box) < options.min_box * width * height for r in found):
        return "tiny"
    if any(box_iou(found[0].box, r.box) < options.same for r in found[1:]):
        return "members_disagree"
    cut = [r for r in found if is_cut(r.box, (width, height), options.edge)]
    return "cut_by_edge" if any(box_area(r.box) < options.min_cut * width * height for r in cut) else ""


# ------------------------------------------------------------------------------------------------------------ relations


@dataclass(frozen=True)
class _Least:
    """The smallest margin of one depth member, and its unit."""

    metric: bool
    value: float
    """Of ln of the depth ratio, or of the difference as a share of `range`."""
    range: float
    """Of the picture's inverse depth; 1 for metres."""


def _least(depth: DepthMap, options: Options) -> _Least:
    metric = isinstance(depth, MetricDepth)
    margin = options.margin_metric if metric else options.margin_relative
    return _Least(metric, margin, max(inverse_range(depth), 1e-12))


def _orders(
    a: _Thing, b: _Thing, scene: Scene, least: Sequence[_Least], options: Options, ledger: Ledger
) -> Iterator[_Order]:
    """The axes along which two things have one certain order."""
    for axis in options.axes:
        if axis == "depth" and not least:
            continue
        if axis == "depth":
            found = _by_depth(a, b, least) or _by_depth(b, a, least)
        else:
            found = _in_picture(axis, a, b, scene, options) or _in_picture(axis, b, a, scene, options)
        if found is None:
            ledger.add(f"no_clear_order_{axis}", f"{a.name} and {b.name}")
        else:
            yield found


def _in_picture(axis: Axis, first: _Thing, last: _Thing, scene: Scene, options: Options) -> _Order | None:
    low, high = (0, 2) if axis == "horizontal" else (1, 3)
    extent = scene.rgb.shape[1 if axis == "horizontal" else 0]
    ends = tuple((a[high], b[low]) for a, b in zip(first.boxes, last.boxes, strict=True))
    margin = min(begin - end for end, begin in ends) / extent
    if margin <= options.margin:
        return None
    return _Order(axis, first, last, ends, ("px",) * len(ends), margin, margin / options.margin)


def _by_depth(first: _Thing, last: _Thing, least: Sequence[_Least]) -> _Order | None:
    ends, margins = [], []
    for near, far, it in zip(first.depths, last.depths, least, strict=True):
        if near is None or far is None:
            return None
        ends.append((near[1], far[0]))
        margins.append(float(np.log(far[0] / near[1])) if it.metric else (far[0] - near[1]) / it.range)
    excess = min(margin / it.value for margin, it in zip(margins, least, strict=True))
    if excess <= 1:
        return None
    kinds = tuple("m" if it.metric else "inverse" for it in least)
    return _Order("depth", first, last, tuple(ends), kinds, min(margins), excess)


def _quartiles(region: Region, depth: DepthMap) -> tuple[float, float] | None:
    """Lower and upper quartile of an object's depth, nearer first: metres, or negated inverse depth."""
    array = depth.metres if isinstance(depth, MetricDepth) else -depth.inverse
    if region.mask is not None:
        values = array[region.mask & depth.valid]
    else:
        x1, y1, x2, y2 = region.box
        quarter = (x2 - x1) / 4, (y2 - y1) / 4  # the middle of the box: its corners mostly show something else
        part = tuple(
            slice(int(start + by), int(end - by) + 1) for start, end, by in ((y1, y2, quarter[1]), (x1, x2, quarter[0]))
        )
        values = array[part][depth.valid[part]]
    values = values[np.isfinite(values)]
    if len(values) < 16 or (isinstance(depth, MetricDepth) and values.min() <= 0):
        return None
    low, high = np.percentile(values, (25, 75))
    return float(low), float(high)


def _draft(order: _Order, right: str, rng: np.random.Generator) -> Draft:
    asks_first = bool(rng.integers(2))
    a, b = (order.first, order.last) if asks_first else (order.last, order.first)
    says_first = asks_first == (right == "yes")
    relation = SAID[order.axis][0 if says_first else 1]
    kind = "margin" if order.axis != "depth" else f"margin_{'metric' if order.kinds[0] == 'm' else 'relative'}"
    return Draft(
        skill=Skill.SPATIAL_RELATION,
        options=_YES_NO,
        right=right,
        panels=(Panel(image="view"),),
        backends=(),
        measures={
            "axis": order.axis,
            "relation": relation,
            "a": a.label,
            "b": b.label,
            "first": order.first.label,
            "members": [
                {"unit": unit, "ends": {"first_ends": round(end, 6), "last_begins": round(begin, 6)}}
                for unit, (end, begin) in zip(order.kinds, order.ends, strict=True)
            ],
            "boxes_px": {thing.label: [round(v, 1) for v in thing.boxes[0]] for thing in (order.first, order.last)},
            "least_score": round(min(order.first.score, order.last.score), 4),
            kind: round(order.margin, 5),
        },
        difficulty=1 / order.excess,
        stratum=_stratum(order, right),
        words={"a": a.name, "b": b.name, "relation": relation},
    )


def _stratum(order: _Order, right: str) -> str:
    """The axis; up and down and near and far also name the kinds, and a block of theirs needs both orders ("#2")."""
    if order.axis == "horizontal":
        return f"horizontal/{right}"
    kinds = "|".join(sorted((order.first.name, order.last.name)))
    return f"{order.axis} {kinds}#2/{order.first.name} first"


_CLOSED = 100.0
"""No two depths of a picture differ by this."""
TASK = Task(
    name=NAME,
    version=VERSION,
    skills=(Skill.SPATIAL_RELATION,),
    needs=(Need.REGIONS,),
    options=Options,
    generate=generate,
    recompute=recompute,
    wants=("a photo of several different objects side by side", "a photo of furniture and things in a room"),
    dials=(
        Dial(option="margin", measure="margin", loose=1e-3, closed=0.99),
        Dial(option="margin_metric", measure="margin_metric", loose=1e-3, closed=_CLOSED),
        Dial(option="margin_relative", measure="margin_relative", loose=1e-3, closed=_CLOSED),
    ),
)
