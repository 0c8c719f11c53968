"""The smallest margin at which labels are right often enough, by task and domain, from candidates that were graded.

A margin that is right for one depth model indoors is wrong for another in a street, so it is measured: candidates are
made with the dial wide open, graded against truth, and the dial is closed until the lower bound of the precision of
what is left reaches the target. Where no setting does, the task is off for that domain, or a stratum alone where the
task's dial can close it. Intervals take candidates as independent; those of one photo are not, so a setting also needs
candidates of several source groups, and must still reach the target without any one of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from synth.audit.truth import Graded
from synth.contracts import Dial, Task
from synth.diagnosis.statistics import wilson
from synth.types import JsonValue

ANY = ""
"""The domain of photos of which nothing is known: calibrated on all domains together, each weighing the same."""
MIN_GROUPS = 3
"""Source groups (scenes, videos) that a setting must be seen on: fewer cannot contradict one another."""
_STEPS = 200


@dataclass(frozen=True, kw_only=True)
class Point:
    """One setting of a dial."""

    value: float
    n: int
    right: int
    precision: float
    low: float
    """Wilson 95 % lower bound of the precision."""
    kept: float
    """Share of the decidable candidates that pass."""
    groups: int
    without: float
    """The least precision that is left when one source group is taken out."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A dial's precision against yield in one domain, and the setting that was chosen."""

    task: str
    domain: str
    dial: Dial
    points: tuple[Point, ...]
    """From open to closed."""
    chosen: Point | None
    off: str
    """Why no setting will do; "" where one is chosen."""


def calibrate_task(task: Task, graded: Sequence[Graded], target: float) -> list[Curve]:
    """A curve for each dial whose measure occurs at all, in every domain and in all together.

    A dial without candidates in a domain is off there, and so is a task without any: nothing is known of what it would
    let through.

    Args:
        task: with at least one dial.
        graded: candidates made with every dial at its loose value; the undecidable ones do not count.
        target: least Wilson lower bound of the precision, 0..1.
    """
    mine = [g for g in graded if g.qa.task == task.name and g.grade != "undecidable"]
    dials = [dial for dial in task.dials if any(dial.measure in g.qa.provenance.measures for g in mine)]
    curves = []
    for domain in (*sorted({g.domain for g in mine} - {ANY}), ANY):
        here = [g for g in mine if domain in (ANY, g.domain)]
        for dial in dials or task.dials:
            seen = [g for g in here if dial.stratum in ("", g.qa.stratum) and dial.measure in g.qa.provenance.measures]
            curves.append(_curve(task.name, domain, dial, seen, target))
    return curves


def _curve(task: str, domain: str, dial: Dial, graded: Sequence[Graded], target: float) -> Curve:
    values = np.array([_measure(g, dial) for g in graded])
    right = np.array([g.grade == "right" for g in graded])
    groups = np.array([g.group for g in graded])
    domains = np.array([g.domain for g in graded])
    points = tuple(_points(values, right, groups, domains, dial)) if graded else ()
    chosen = next((point for point in points if _holds(point, target)), None)
    off = "" if chosen else _why_off(points, target)
    return Curve(task=task, domain=domain, dial=dial, points=points, chosen=chosen, off=off)


def _holds(point: Point, target: float) -> bool:
    return point.groups >= MIN_GROUPS and min(point.low, point.without) >= target


def _points(
    values: np.ndarray, right: np.ndarray, groups: np.ndarray, domains: np.ndarray, dial: Dial
) -> Iterator[Point]:
    names, counts = np.unique(domains, return_counts=True)
    weight = dict(zip(names, len(values) / (len(names) * counts), strict=True))
    weights = np.array([weight[name] for name in domains])
    each = {group: groups == group for group in np.unique(groups)}
    steps = np.unique(np.quantile(values, np.linspace(0, 1, _STEPS, endpoint=False), method="lower"))
    for value in (dial.loose, *(float(step) for step in steps if step > dial.loose)):
        passed = values > value
        n = int(passed.sum())
        if not n:
            return
        share = _share(weights, right, passed)
        # Weighted candidates are worth fewer than they count (Kish's effective sample size).
        worth = min(n, round(float(weights[passed].sum() ** 2 / (weights[passed] ** 2).sum())))
        low = wilson(min(worth, round(share * worth)), worth)[0] if share < 1 else wilson(worth, worth)[0]
        yield Point(
            value=value,
            n=n,
            right=int(right[passed].sum()),
            precision=share,
            low=low,
            kept=float(weights[passed].sum() / weights.sum()),
            groups=len(set(groups[passed])),
            without=min(_share(weights, right, passed & ~mine) for mine in each.values()),
        )


def _share(weights: np.ndarray, right: np.ndarray, passed: np.ndarray) -> float:
    """Weighted precision; 1 where nothing passes."""
    total = float(weights[passed].sum())
    return float((weights * right)[passed].sum()) / total if total else 1.0


def _measure(graded: Graded, dial: Dial) -> float:
    value = graded.qa.provenance.measures[dial.measure]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{dial.measure} of {graded.qa.qa_id} is no number")
    return float(value)


def _why_off(points: Sequence[Point], target: float) -> str:
    wide = [point for point in points if point.groups >= MIN_GROUPS]
    if not wide:
        groups = max((point.groups for point in points), default=0)
        if not groups:
            return "no candidate that the truth decides"
        return f"truth of {groups} source groups is too little (at least {MIN_GROUPS})"
    best = max(wide, key=lambda point: min(point.low, point.without))
    return (
        f"no setting reaches {target:g}: at best {best.right} of {best.n} right ({best.precision:.3f}, lower bound "
        f"{best.low:.3f}, {best.without:.3f} without one source group) at {best.value:.3g}"
    )


# ---------------------------------------------------------------------------------------------------------- the file


def calibration_json(
    curves: Sequence[Curve], target: float, identities: Mapping[str, str], source: str, n_images: int
) -> dict[str, JsonValue]:
    """The content of a calibration file: settings by task and domain, and the evidence for each."""
    tasks: dict[str, JsonValue] = {}
    for name in sorted({curve.task for curve in curves}):
        domains: dict[str, JsonValue] = {}
        for domain in sorted({curve.domain for curve in curves if curve.task == name}):
            domains[domain or "any"] = _entry([c for c in curves if c.task == name and c.domain == domain])
        tasks[name] = domains
    return {
        "calibration": 1,
        "target": target,
        "source": source,
        "n_images": n_images,
        "backends": dict(sorted(identities.items())),
        "tasks": tasks,
    }


def _entry(curves: Sequence[Curve]) -> dict[str, JsonValue]:
    """One domain: every dial of a task must have a setting or be closed, and not all closed; else the task is off."""
    options: dict[str, JsonValue] = {}
    closed: dict[str, JsonValue] = {}
    reasons, off = [], False
    for curve in curves:
        dial = curve.dial
        if curve.chosen is not None:
            options[dial.option] = _up(curve.chosen.value)
            continue
        reasons.append(f"{dial.stratum or dial.option}: {curve.off}")
        off |= dial.closed is None
        if dial.closed is not None:
            options[dial.option], closed[dial.option] = dial.closed, curve.off
    off |= len(reasons) == len(curves)
    return {
        "off": "; ".join(reasons) if off else None,
        "options": {} if off else options,
        "closed": {} if off else closed,
        "evidence": {c.dial.option: None if c.chosen is None else _point_json(c.chosen) for c in curves},
    }


def _up(value: float) -> float:
    """Five digits, never looser than what was measured."""
    return math.ceil(value * 1e5) / 1e5


def _point_json(point: Point) -> dict[str, JsonValue]:
    return {
        "n": point.n,
        "right": point.right,
        "precision": round(point.precision, 4),
        "low": round(point.low, 4),
        "kept": round(point.kept, 4),
        "groups": point.groups,
        "without": round(point.without, 4),
    }


def curves_json(curves: Sequence[Curve]) -> list[JsonValue]:
    """Every point of every curve, for plots."""
    return [
        {
            "task": curve.task,
            "domain": curve.domain or "any",
            "option": curve.dial.option,
            "stratum": curve.dial.stratum,
            "off": curve.off or None,
            "points": [{"value": round(point.value, 5), **_point_json(point)} for point in curve.points],
        }
        for curve in curves
    ]


def format_curves(curves: Sequence[Curve]) -> str:
    """One line a dial and domain for the terminal."""
    lines = [f"{'task':18} {'domain':16} {'option':24} {'value':>7} {'right':>6} {'of':>6} {'low':>6} {'kept':>6}"]
    for curve in curves:
        head = f"{curve.task:18} {curve.domain or 'any':16} {curve.dial.option:24}"
        point = curve.chosen
        if point is None:
            lines.append(f"{head} off: {curve.off}")
        else:
            lines.append(
                f"{head} {point.value:>7.3f} {point.right:>6} {point.n:>6} {point.low:>6.3f} {100 * point.kept:>5.1f}%"
            )
    return "\n".join(lines)
