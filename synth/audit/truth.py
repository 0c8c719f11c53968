"""Is a pair's answer right? Graded against the truth that came with the photo, by the grader's own code.

The answer is derived again from the marks, the truth and the words alone: nothing of a task's code and none of the
numbers that a model measured. What the truth cannot decide is "undecidable" and counts neither way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from synth.audit.shortcuts import blind_accuracy
from synth.diagnosis.statistics import wilson
from synth.files import write_text
from synth.types import LETTERS, QA, JsonValue, Mark, MetricDepth, Region, Regions, Scene, Skill, Task, View

Grade: TypeAlias = Literal["right", "wrong", "undecidable"]

MIN_RATIO = 1.02
"""Depths in metres that are nearer to each other than this have no order: sensors are not better."""
MIN_SHARE = 0.01
"""The same for disparity: a share of its range in the photo."""
MAX_ERROR_PX = 2.0
"""How far from the mapped point the right candidate of a correspondence may stand."""
_NONE_RIGHT = ""


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
        return _nearer(list(here.values()), view, scene)
    if qa.skill is Skill.LEFT_RIGHT:
        order = sorted(here.values(), key=lambda mark: mark.x)
        return order[0 if measures.get("side") == "left" else -1].label
    if qa.skill is Skill.VISUAL_CORRESPONDENCE:
        there = [mark for (image, _), mark in marks.items() if image == "pair"]
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
        return _name(region.label) if qa.skill is Skill.OBJECT_AT_MARK else region.attributes.get("colour")
    if qa.skill is Skill.SPATIAL_RELATION:
        return _related(str(measures["a"]), str(measures["b"]), str(measures["relation"]), regions, scene)
    asked = str(measures.get("object", ""))
    if qa.skill is Skill.MARK_ON_OBJECT:
        return _mark_on(asked, here, regions)
    if qa.skill in (Skill.OBJECT_COLOUR, Skill.EXISTENCE):
        return _in_picture(qa.skill, asked, str(measures.get("colour", "")), regions)
    return None


# ------------------------------------------------------------------------------------------------------------- depth


def _nearer(marks: Sequence[Mark], view: View, scene: Scene) -> str | None:
    if not scene.depths or len(marks) != 2:
        return None
    depth = scene.depths[0]
    array = depth.metres if isinstance(depth, MetricDepth) else depth.inverse
    first, second = (_median(array, depth.valid, mark) for mark in marks)
    if first is None or second is None:
        return None
    if isinstance(depth, MetricDepth):
        if min(first, second) <= 0 or max(first, second) < MIN_RATIO * min(first, second):
            return None
        rays = [value * _ray(mark, view) for value, mark in zip((first, second), marks, strict=True)]
        if (first < second) != (rays[0] < rays[1]):
            return None  # nearer by depth, farther along the ray: the words do not say which is meant
        return marks[0 if first < second else 1].label
    low, high = np.percentile(array[depth.valid], (0.5, 99.5))
    if abs(first - second) < MIN_SHARE * float(high - low) or first == second:
        return None
    return marks[0 if first > second else 1].label


def _median(array: np.ndarray, valid: np.ndarray, mark: Mark) -> float | None:
    """Median of the valid values of 3 x 3 pixels; None where fewer than five are valid."""
    row, column = int(mark.y), int(mark.x)
    around = (slice(max(0, row - 1), row + 2), slice(max(0, column - 1), column + 2))
    values = array[around][valid[around]]
    values = values[np.isfinite(values)]
    return float(np.median(values)) if len(values) >= 5 else None


def _ray(mark: Mark, view: View) -> float:
    """Distance along the ray over depth; 1 where the camera is unknown."""
    if view.truth is None or view.truth.camera is None:
        return 1.0
    direction = np.linalg.inv(view.truth.camera.K) @ np.array([mark.x, mark.y, 1.0])
    return float(np.linalg.norm(direction / direction[2]))


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
    return arrived[0][1] if arrived and arrived[0][0] <= MAX_ERROR_PX and unique else _NONE_RIGHT


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


def _name(label: str) -> str:
    """The label in lower case, without the suffixes of panoptic label sets."""
    name = label.strip().lower()
    for suffix in ("-merged", "-other", "-stuff"):
        name = name.removesuffix(suffix)
    return " ".join(name.replace("_", " ").replace("-", " ").split())


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
        names[label] = _name(region.label)
    fit = [label for label, name in names.items() if name == asked]
    return fit[0] if len(fit) == 1 else _NONE_RIGHT


def _in_picture(skill: Skill, asked: str, colour: str, regions: Regions) -> str | None:
    if not regions.complete or asked not in {_name(label) for label in regions.vocabulary}:
        return None
    own = [region for region in regions.items if _name(region.label) == asked]
    if any(region.crowd for region in own):
        return None
    if skill is Skill.OBJECT_COLOUR:
        if len(own) != 1:
            return _NONE_RIGHT
        return own[0].attributes.get("colour")
    colours = {region.attributes.get("colour", "") for region in own}
    if colour and "" in colours:
        return None
    return "yes" if (colour in colours if colour else bool(own)) else "no"


MIN_OFFSET = 0.02
"""Centres that are nearer to each other than this share of the picture have no order in it."""
_AXES = {"left": (0, -1), "right": (0, 1), "higher": (1, -1), "lower": (1, 1)}
"""Telling word of a relation -> (axis, sign of the first object's place minus the second's)."""


def _related(a: str, b: str, relation: str, regions: Regions, scene: Scene) -> str | None:
    """yes or no by the centres of the two true boxes, or by the median depths in them."""
    found = []
    for label in (a, b):
        own = [region for region in regions.items if _name(region.label) == _name(label)]
        if len(own) != 1 or own[0].crowd or any(r.crowd and not r.label for r in regions.items):
            return None
        found.append(own[0])
    word = next((word for word in _AXES if word in relation.split()), None)
    if word is not None:
        axis, sign = _AXES[word]
        first, second = ((region.box[axis] + region.box[axis + 2]) / 2 for region in found)
        offset = (first - second) / scene.rgb.shape[1 - axis]
        return None if abs(offset) < MIN_OFFSET else "yes" if offset * sign > 0 else "no"
    if not scene.depths:
        return None
    depths = [_region_depth(region, scene) for region in found]
    if depths[0] is None or depths[1] is None:
        return None
    gap = depths[0] - depths[1]
    if abs(gap) < (np.log(MIN_RATIO) if isinstance(scene.depths[0], MetricDepth) else MIN_SHARE):
        return None
    return "yes" if (gap < 0) == relation.startswith("closer") else "no"


def _region_depth(region: Region, scene: Scene) -> float | None:
    """Median in the mask or the box: ln metres, or minus the place in the picture's range of inverse depth."""
    depth = scene.depths[0]
    array = depth.metres if isinstance(depth, MetricDepth) else depth.inverse
    inside = np.zeros(depth.valid.shape, dtype=np.bool_)
    x1, y1, x2, y2 = (round(value) for value in region.box)
    inside[max(0, y1) : y2, max(0, x1) : x2] = True
    values = array[(inside if region.mask is None else region.mask) & depth.valid]
    values = values[np.isfinite(values)]
    if len(values) < 16:
        return None
    if isinstance(depth, MetricDepth):
        return float(np.log(np.median(values))) if np.median(values) > 0 else None
    low, high = np.percentile(array[depth.valid], (0.5, 99.5))
    return -float(np.median(values)) / float(high - low) if high > low else None


# ----------------------------------------------------------------------------------------------------------- summary


def summarise(
    graded: Sequence[Graded], tasks: Sequence[str], n_images: int, balanced: Sequence[QA] | None = None
) -> dict[str, JsonValue]:
    """The content of audit.json: per task, how many candidates were right, with a Wilson 95 % interval.

    `n` counts the decidable; `yield` is candidates an image; `off` says why there is no precision. `blind_accuracy` is
    what the words alone give away, in the `balanced` pairs where they are given, else in all candidates (most counts in
    photos are 1, so candidates give away more than what balance keeps of them). Precision by stratum matters: a depth
    model that leans on "lower is nearer" errs in the other stratum, which balance makes half of the data.
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
            "blind_accuracy": blind_accuracy(qas if balanced is None else [qa for qa in balanced if qa.task == task]),
            "chance": round(sum(1 / len(qa.choices) for qa in qas) / len(qas), 4) if qas else None,
            "off": off,
            "by_skill": {str(s): _precision([g for g in mine if g.qa.skill == s]) for s in _skills(mine)},
            "by_stratum": {s: _precision([g for g in mine if g.qa.stratum == s]) for s in _strata(mine)},
            "by_domain": {d: _precision([g for g in mine if g.domain == d]) for d in sorted({g.domain for g in mine})},
        }
    return {"n_images": n_images, "tasks": summary}


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
    lines = [" ".join((*heads, f"{'undecidable':>12}", f"{'a photo':>8}", f"{'blind':>6}"))]
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
    yield f"{row['undecidable']:>12} {row['yield']:>8} {blind:>6}"
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
