"""Is a pair's answer right? Graded against the truth that came with the photo, by the grader's own code.

The answer is derived again from the marks, the truth and the words alone: nothing of a task's code and none of the
numbers that a model measured, but for a detector's box, which tells what object is meant. What the truth cannot decide
is "undecidable" and counts neither way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from synth.audit.correspondence import right_mark
from synth.audit.depths import nearer
from synth.audit.relations import NONE_RIGHT, related, spoken_name
from synth.audit.shortcuts import blind_accuracy
from synth.contracts import Task
from synth.diagnosis.statistics import wilson
from synth.files import write_text
from synth.types import LETTERS, QA, JsonValue, Mark, Region, Regions, Scene, Skill, View

Grade: TypeAlias = Literal["right", "wrong", "undecidable"]

MAX_ERROR_PX = 2.0
"""How far from the mapped point the right candidate of a correspondence may stand."""


@dataclass(frozen=True, kw_only=True)
class Graded:
    """One candidate with its grade."""

    qa: QA
    image: str
    """View name."""
    domain: str
    grade: Grade
    group: str = ""
    """Source group of the photo."""


@dataclass(frozen=True, kw_only=True)
class Tried:
    """Random pairs of places of one photo that the truth decides, whatever a model makes of them."""

    task: str
    domain: str
    decided: int
    kept: int
    """Those that the task would ask about."""
    right: int
    """Those of `kept` with the right answer."""


def grade(qa: QA, view: View, truth_scene: Scene, task: Task) -> Grade:
    """Grade one pair. `truth_scene`: the photo with depth and regions as the truth tells them, as far as there are any.

    Raises ValueError for a pair of another task or image.
    """
    if qa.task != task.name or qa.image_id != view.image_id:
        raise ValueError(f"{qa.qa_id} is {qa.task} on {qa.image_id}, graded as {task.name} on {view.image_id}")
    told = _told(qa, view, truth_scene)
    if told is None:
        return "undecidable"
    return "right" if told == qa.provenance.options[LETTERS.index(qa.answer)] else "wrong"


def _told(qa: QA, view: View, scene: Scene) -> str | None:
    """The option that the truth calls right, "" where it calls none right, None where it cannot say."""
    measures = qa.provenance.measures
    marks = {(panel.image, mark.label): mark for panel in qa.panels for mark in panel.marks}
    here = {label: mark for (image, label), mark in marks.items() if image == "view"}
    if qa.skill is Skill.RELATIVE_DEPTH:
        return nearer(list(here.values()), view, scene)
    if qa.skill is Skill.LEFT_RIGHT:
        order = sorted(here.values(), key=lambda mark: mark.x)
        return order[0 if measures.get("side") == "left" else -1].label
    if qa.skill is Skill.VISUAL_CORRESPONDENCE:
        there = [mark for (image, _), mark in marks.items() if image != "view"]
        for panel in qa.panels:
            if panel.image == "second":
                return right_mark(here["REF"], there, view, scene.seconds[panel.number].view)
        return _same_place(here["REF"], there, _homography(qa, scene))
    if not scene.regions:
        return None
    regions = scene.regions[0]
    if qa.skill is Skill.COUNTING:
        return _count(str(measures["label"]), regions)
    if qa.skill in (Skill.OBJECT_AT_MARK, Skill.COLOUR_AT_MARK):
        region = _region_at(here[str(measures["mark"])], regions)
        if region is None:
            return None
        return spoken_name(region.label) if qa.skill is Skill.OBJECT_AT_MARK else region.attributes.get("colour")
    if qa.skill is Skill.SPATIAL_RELATION:
        return related(measures, regions, scene)
    asked = str(measures.get("object", ""))
    if qa.skill is Skill.MARK_ON_OBJECT:
        return _mark_on(asked, here, regions)
    if qa.skill in (Skill.OBJECT_COLOUR, Skill.EXISTENCE):
        return _in_picture(qa.skill, asked, str(measures.get("colour", "")), regions)
    return None


# ---------------------------------------------------------------------------------------------------- correspondence


def _homography(qa: QA, scene: Scene) -> np.ndarray:
    """The matrix that made the second picture: the truth itself, so the stored one serves where no pair is given."""
    if scene.pair is not None:
        return scene.pair.homography
    return np.array(qa.provenance.measures["homography"], dtype=np.float64)


def _same_place(ref: Mark, candidates: Sequence[Mark], homography: np.ndarray) -> str:
    """Each candidate is taken back to the first picture; the right one arrives at REF, and it alone."""
    back = np.linalg.inv(homography)
    arrived = []
    for mark in candidates:
        x, y, w = back @ np.array([mark.x, mark.y, 1.0])
        arrived.append((float(np.hypot(x / w - ref.x, y / w - ref.y)), mark.label))
    arrived.sort()
    unique = len(arrived) == 1 or arrived[1][0] > MAX_ERROR_PX
    return arrived[0][1] if arrived and arrived[0][0] <= MAX_ERROR_PX and unique else NONE_RIGHT


# ----------------------------------------------------------------------------------------------------------- objects


def _count(label: str, regions: Regions) -> str | None:
    """Labels are compared letter by letter: a detector's "tv" and a truth's "television" are not told to be one."""
    if not regions.complete or label not in regions.vocabulary:
        return None
    own = [region for region in regions.items if region.label == label]
    unclear = any(r.attributes.get("sliver") == "yes" or r.attributes.get("stuff") == "yes" for r in own)
    if unclear or any(r.crowd and r.label in ("", label) for r in regions.items):
        return None
    return str(len(own))


def _region_at(mark: Mark, regions: Regions) -> Region | None:
    """The one region that the mark lies on; None where there are several, none, or a box without a mask."""
    row, column = int(mark.y), int(mark.x)
    on: list[Region] = []
    for region in regions.items:
        if region.mask is None:
            if region.box[0] <= mark.x < region.box[2] and region.box[1] <= mark.y < region.box[3]:
                return None
        elif region.mask[row, column]:
            on.append(region)
    return on[0] if len(on) == 1 else None


def _mark_on(asked: str, marks: Mapping[str, Mark], regions: Regions) -> str | None:
    names: dict[str, str] = {}
    for label, mark in marks.items():
        region = _region_at(mark, regions)
        if region is None:
            return None
        names[label] = spoken_name(region.label)
    fit = [label for label, name in names.items() if name == asked]
    return fit[0] if len(fit) == 1 else NONE_RIGHT


def _in_picture(skill: Skill, asked: str, colour: str, regions: Regions) -> str | None:
    if not regions.complete or asked not in {spoken_name(label) for label in regions.vocabulary}:
        return None
    own = [region for region in regions.items if spoken_name(region.label) == asked]
    if any(region.crowd for region in own):
        return None
    if skill is Skill.OBJECT_COLOUR:
        if len(own) != 1:
            return NONE_RIGHT
        return own[0].attributes.get("colour")
    colours = {region.attributes.get("colour", "") for region in own}
    if colour and "" in colours:
        return None
    return "yes" if (colour in colours if colour else bool(own)) else "no"


# ----------------------------------------------------------------------------------------------------------- summary


def summarise(
    graded: Sequence[Graded],
    tasks: Sequence[str],
    n_images: int,
    balanced: Sequence[QA] | None = None,
    tried: Sequence[Tried] = (),
) -> dict[str, JsonValue]:
    """The content of audit.json: per task, how many candidates were right, with a Wilson 95 % interval.

    `n` counts the decidable; `yield` is candidates an image; `off` says why there is no precision. `blind_accuracy` is
    what the words alone give away, in the `balanced` pairs where they are given, else in all candidates (most counts in
    photos are 1, so candidates give away more than what balance keeps of them). Precision by stratum matters: a depth
    model that leans on "lower is nearer" errs in the other stratum, which balance makes half of the data. `yield_share`
    is the share of random pairs of places, placed as the task places them and decided by the truth, that the task would
    ask about, with their own precision: a margin can buy any precision with silence.
    """
    summary: dict[str, JsonValue] = {}
    for task in tasks:
        mine = [g for g in graded if g.qa.task == task]
        decided = [g for g in mine if g.grade != "undecidable"]
        off = None
        if not decided:
            off = "the truth decides none of the candidates" if mine else "no candidates"
        qas = [g.qa for g in mine]
        summary[task] = {
            **_precision(mine),
            "undecidable": len(mine) - len(decided),
            "candidates": len(mine),
            "yield": round(len(mine) / n_images, 4) if n_images else 0.0,
            "yield_share": _yield_shares([t for t in tried if t.task == task]),
            "blind_accuracy": blind_accuracy(qas if balanced is None else [qa for qa in balanced if qa.task == task]),
            "chance": round(sum(1 / len(qa.choices) for qa in qas) / len(qas), 4) if qas else None,
            "off": off,
            "by_skill": {str(s): _precision([g for g in mine if g.qa.skill == s]) for s in _skills(mine)},
            "by_stratum": {s: _precision([g for g in mine if g.qa.stratum == s]) for s in _strata(mine)},
            "by_route": {r: _precision([g for g in mine if _route(g) == r]) for r in _routes(mine)},
            "by_domain": {d: _precision([g for g in mine if g.domain == d]) for d in sorted({g.domain for g in mine})},
        }
    return {"n_images": n_images, "tasks": summary}


def _yield_shares(tried: Sequence[Tried]) -> dict[str, JsonValue] | None:
    """Over all photos and by domain; None for a task that has no random pairs."""
    if not tried:
        return None
    domains = sorted({t.domain for t in tried})
    return {
        **_yield_share(tried),
        "by_domain": {domain: _yield_share([t for t in tried if t.domain == domain]) for domain in domains},
    }


def _yield_share(tried: Sequence[Tried]) -> dict[str, JsonValue]:
    decided, kept, right = (sum(counts) for counts in zip(*((t.decided, t.kept, t.right) for t in tried), strict=True))
    return {
        "decided": decided,
        "kept": kept,
        "share": round(kept / decided, 4) if decided else None,
        "precision": round(right / kept, 4) if kept else None,
    }


def _route(graded: Graded) -> str:
    """How the second picture came about; "" where there is none."""
    return str(graded.qa.provenance.measures.get("route", ""))


def _routes(graded: Sequence[Graded]) -> list[str]:
    return sorted({_route(g) for g in graded} - {""})


def _skills(graded: Sequence[Graded]) -> list[Skill]:
    return sorted({g.qa.skill for g in graded})


def _strata(graded: Sequence[Graded]) -> list[str]:
    return sorted({g.qa.stratum for g in graded})


def _precision(graded: Sequence[Graded]) -> dict[str, JsonValue]:
    right = sum(g.grade == "right" for g in graded)
    n = right + sum(g.grade == "wrong" for g in graded)
    if not n:
        return {"n": 0, "right": 0, "precision": None, "low": None, "high": None}
    low, high = wilson(right, n)
    return {"n": n, "right": right, "precision": round(right / n, 4), "low": round(low, 4), "high": round(high, 4)}


def format_audit(summary: Mapping[str, JsonValue]) -> str:
    """The summary as a table for the terminal."""
    heads = (f"{'task':24}", f"{'right':>7}", f"{'of':>7}", f"{'precision':>10}", f"{'95 %':>15}")
    lines = [" ".join((*heads, f"{'undecidable':>12}", f"{'a photo':>8}", f"{'kept':>6}", f"{'blind':>6}"))]
    tasks = summary["tasks"]
    if not isinstance(tasks, Mapping):
        raise TypeError("not a summary of this module")
    for name, row in tasks.items():
        if isinstance(row, Mapping):
            lines.append("".join(_cells(name, row)).rstrip())
    return "\n".join(lines)


def _cells(name: str, row: Mapping[str, JsonValue]) -> Iterator[str]:
    yield f"{name:24} {row['right']:>7} {row['n']:>7} "
    if row["precision"] is None:
        yield f"{'-':>10} {'-':>15} "
    else:
        yield f"{row['precision']:>10.4f} {row['low']:>7.4f}-{row['high']:.4f} "
    blind = "-" if row["blind_accuracy"] is None else f"{row['blind_accuracy']:.3f}"
    shares = row["yield_share"]
    share = shares["share"] if isinstance(shares, Mapping) else None
    kept = f"{100 * share:.1f}%" if isinstance(share, float) else "-"
    yield f"{row['undecidable']:>12} {row['yield']:>8} {kept:>6} {blind:>6}"
    if row["off"]:
        yield f"  {row['off']}"


def write_graded(path: Path, graded: Sequence[Graded]) -> None:
    """One JSON line a candidate, with the numbers behind its answer."""
    lines = []
    for g in graded:
        record = {
            "qa_id": g.qa.qa_id,
            "image": g.image,
            "domain": g.domain,
            "task": g.qa.task,
            "skill": str(g.qa.skill),
            "grade": g.grade,
            "question": g.qa.question,
            "choices": list(g.qa.choices),
            "answer": g.qa.answer,
            "difficulty": g.qa.difficulty,
            "stratum": g.qa.stratum,
            "measures": dict(g.qa.provenance.measures),
        }
        lines.append(json.dumps(record, ensure_ascii=False, allow_nan=False))
    write_text(path, "".join(f"{line}\n" for line in lines))
