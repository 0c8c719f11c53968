"""How many objects of one kind are in the picture.

A count is asked only where every member of the detection consensus gives the same number at every score threshold, no
two boxes of the kind overlap so far that they may be one object, none lies within another, which may stand for a group,
none is tiny or a rest that the picture's edge has left, none stands for a crowd, and no second name may mean the same
thing. "Not detected" is never "none": zero is asked only where the truth lists every instance.
Worked example: members find 3, 3 and 3 chairs at scores .3, .4 and .5: "How many chairs …", options 1, 2, 3, 4 in any
order. Members that find 3 and 4: silence.
The four options are the block of numbers that holds the truth: 1-4, 5-8, 9-12, or 0-3, 4-7, 8-11 where zero can be
asked. The stratum is "block/number", and balance gives each number of a block the same share; so the rank of the truth
among the options is uniform, and no option of a block is likelier than another. (With windows around the truth and
small numbers as frequent as they are in photos, a solver that sees only the options is right in 42 to 50 % even when
ranks are equal: a simulation with counts that fall off as n^-1 to n^-2.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from synth.contracts import Dial, Need, Task
from synth.geometry import box_area, box_iou
from synth.tasks._asking import Asker, Draft, Ledger, Wording, letter, mapping, number, numbers, rows, shuffled
from synth.tasks._places import box_within, is_cut, is_sliver, is_stuff
from synth.tasks._words import names_stuff, plural, same_kind, spoken
from synth.types import QA, Drop, JsonValue, Panel, PluginOptions, Provenance, Region, Regions, Scene, Skill, narrow

NAME, VERSION = "counting", 2
WORDINGS = (
    Wording(question="How many {plural} can be seen in this picture?"),
    Wording(question="What is the number of {plural} in the image?"),
    Wording(question="In this photo, how many {plural} are visible?"),
    Wording(question="If you count all the {plural} in the picture, which number do you get?"),
    Wording(question="The image shows how many {plural}?"),
)
_N_OPTIONS = 4


class Options(PluginOptions):
    """What must hold before a number is trusted."""

    per_image: int = Field(3, ge=1, le=32)
    thresholds: tuple[float, ...] = Field((0.3, 0.4, 0.5), min_length=1)
    """Detection scores; the count must be the same at all of them."""
    min_score: float = Field(0.0, ge=0, lt=1)
    """Every counted box must score more than this in every member, whatever the thresholds agree on."""
    max_count: int = Field(10, ge=1, le=12)
    min_box: float = Field(0.001, ge=0, lt=1)
    """Least box area, as a share of the image."""
    overlap: float = Field(0.5, gt=0, le=1)
    """IoU from which two boxes of one kind may be one object (detections only)."""
    nested: float = Field(0.8, gt=0, le=1)
    """Share of a box within another of its kind from which the outer one may be a group (detections only)."""
    edge: float = Field(0.01, ge=0, lt=0.2)
    """Boxes that come so near to the picture's edge, as a share of its sides, are cut by it."""
    min_cut: float = Field(0.01, ge=0, lt=1)
    """Least area of a box that the edge cuts, as a share of the image: of less, some say that it is there."""
    rival: float = Field(0.7, gt=0, le=1)
    """IoU from which two boxes of two kinds may be one object with two names (detections only)."""
    ask_zero: bool = True
    """Ask for an absent kind where the truth is complete, at most once an image."""


@dataclass(frozen=True)
class _Count:
    label: str
    n: int
    by_member: tuple[Mapping[str, int], ...]
    """Per member: threshold -> number."""
    least_score: float
    """The lowest score of a counted box, over the members; 1 where there is none to count."""


def generate(scene: Scene, options: PluginOptions, rng: np.random.Generator) -> Iterator[QA | Drop]:
    """Up to `per_image` kinds, then what fell and why."""
    chosen = narrow(options, Options)
    ledger = Ledger(NAME, scene.view)
    if not scene.regions:
        ledger.add("no_regions", "no regions are known for this image")
    else:
        asker = Asker(NAME, VERSION, scene.view, rng)
        for found in _choose(_counts(scene, chosen, ledger), scene.regions, chosen, rng):
            yield asker.ask(_draft(found, scene.regions, chosen, rng), WORDINGS)
    yield from ledger.drops()


def recompute(provenance: Provenance) -> str:
    """The one number that every member gives at every threshold; zero only from complete lists."""
    counts = {n for member in rows(provenance.measures["members"]) for n in numbers(mapping(member)["counts"]).values()}
    if len(counts) != 1:
        return ""
    n = counts.pop()
    if n == 0 and number(provenance.measures["complete_lists"]) != len(rows(provenance.measures["members"])):
        return ""
    return letter(provenance.options, f"{n:.0f}")


def _counts(scene: Scene, options: Options, ledger: Ledger) -> list[_Count]:
    """Kinds with a number that can be trusted."""
    height, width = scene.rgb.shape[:2]
    everything = [region for member in scene.regions for region in member.items]
    if any(r.crowd and not r.label for r in everything):
        ledger.add("crowd", "a crowd without a name, of whatever kind")
        return []
    trusted = []
    low = min(options.thresholds)
    for label in sorted({r.label for r in everything if r.label and not is_stuff(r) and r.score >= low}):
        found = _count(label, scene.regions, options.thresholds)
        reason = _doubt(found, scene.regions, options, (width, height))
        if reason:
            ledger.add(reason, f"{label}: {[list(counts.values()) for counts in found.by_member]}")
        else:
            trusted.append(found)
    return trusted


def _count(label: str, members: Sequence[Regions], thresholds: Sequence[float]) -> _Count:
    scores = [[r.score for r in member.items if r.label == label and not r.crowd] for member in members]
    by_member = tuple({str(t): sum(score >= t for score in found) for t in thresholds} for found in scores)
    least = min((score for found in scores for score in found if score >= min(thresholds)), default=1.0)
    return _Count(label, next(iter(by_member[0].values())), by_member, least)


def _doubt(found: _Count, members: Sequence[Regions], options: Options, size: tuple[int, int]) -> str:
    """Why the number cannot be trusted, or "". `size`: the picture's width and height."""
    area = size[0] * size[1]
    every = [r for member in members for r in member.items]
    own = [r for r in every if r.label == found.label]
    if any(r.crowd for r in own):
        return "crowd"
    if any(is_sliver(r) for r in own):
        return "sliver"
    if any(is_stuff(r) for r in own):
        return "stuff"
    if len({n for counts in found.by_member for n in counts.values()}) > 1:
        return "members_disagree" if _steady(found) else "thresholds_disagree"
    low = min(options.thresholds)
    kept = [r for r in own if r.score >= low]
    if any(box_area(r.box) < options.min_box * area for r in kept):
        return "tiny"
    cut = [r for r in kept if is_cut(r.box, size, options.edge)]
    if any(box_area(r.box) < options.min_cut * area for r in cut) and not all(m.complete for m in members):
        return "cut_by_edge"
    if not 1 <= found.n <= options.max_count:
        return "too_many"
    if found.least_score <= options.min_score:
        return "low_score"
    if any(r.label != found.label and same_kind(r.label, found.label) for r in every if r.score >= low):
        return "two_names"
    return "" if all(_separate(found.label, member, options) for member in members) else "overlap"


def _steady(found: _Count) -> bool:
    return all(len(set(counts.values())) == 1 for counts in found.by_member)


def _separate(label: str, member: Regions, options: Options) -> bool:
    """True where no two boxes may be one object. A complete truth says itself what is one object."""
    if member.complete:
        return True
    low = min(options.thresholds)
    own = [r for r in member.items if r.label == label and r.score >= low]
    rivals = [r for r in member.items if r.label != label and r.score >= low and not is_stuff(r)]
    alone = all(
        box_iou(a.box, b.box) < options.overlap and box_within(a.box, b.box) < options.nested
        for i, a in enumerate(own)
        for b in own[:i]
    )
    return alone and all(box_iou(a.box, b.box) < options.rival for a in own for b in rivals)


def _choose(
    counts: Sequence[_Count], members: Sequence[Regions], options: Options, rng: np.random.Generator
) -> list[_Count]:
    """Kinds to ask for: larger numbers first, since they are rare, then an absent kind where that can be known."""
    order = sorted((counts[k] for k in rng.permutation(len(counts))), key=lambda c: -min(c.n, _N_OPTIONS))
    absent = _absent(members) if options.ask_zero and all(m.complete for m in members) else []
    if not absent:
        return order[: options.per_image]
    label = absent[int(rng.integers(len(absent)))]
    zero = _count(label, members, options.thresholds)
    return [*order[: max(1, options.per_image - 1)], zero][: options.per_image]


def _absent(members: Sequence[Regions]) -> list[str]:
    """Kinds that the truth knows and this image does not hold, not even as a sliver, a crowd or under another name."""
    present = {r.label for member in members for r in member.items}
    known = sorted(label for label in set(members[0].vocabulary) if not names_stuff(label))
    return [label for label in known if not any(same_kind(label, other) for other in present)]


def _draft(found: _Count, members: Sequence[Regions], options: Options, rng: np.random.Generator) -> Draft:
    complete = [member.complete for member in members]
    first = 0 if all(complete) and options.ask_zero else 1
    start = first + (found.n - first) // _N_OPTIONS * _N_OPTIONS
    numbers_shown = [str(start + k) for k in range(_N_OPTIONS)]
    measures: dict[str, JsonValue] = {
        "label": found.label,
        "members": [
            {"backend": member.backend, "counts": dict(counts)}
            for member, counts in zip(members, found.by_member, strict=True)
        ],
        "complete_lists": sum(complete),
        "least_score": round(found.least_score, 4),
        "boxes_px": _boxes(found.label, members[0].items),
    }
    return Draft(
        skill=Skill.COUNTING,
        options=shuffled(numbers_shown, rng),
        right=str(found.n),
        panels=(Panel(image="view"),),
        backends=tuple(member.backend for member in members),
        measures=measures,
        difficulty=min(1.0, max(0, found.n - 1) / 8),
        stratum=f"{start}-{start + _N_OPTIONS - 1}/{found.n}",
        words={"plural": plural(spoken(found.label))},
    )


def _boxes(label: str, regions: Sequence[Region]) -> list[list[float]]:
    return [[round(v, 1) for v in r.box] for r in regions if r.label == label]


TASK = Task(
    name=NAME,
    version=VERSION,
    skills=(Skill.COUNTING,),
    needs=(Need.REGIONS,),
    options=Options,
    generate=generate,
    recompute=recompute,
    wants=("a photo of several objects of the same kind",),
    dials=(Dial(option="min_score", measure="least_score", loose=0.0),),
)
