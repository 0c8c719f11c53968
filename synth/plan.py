"""Profile + budget → plan: how many pairs of which task, each with the numbers that ask for it.

A skill is a target where its interval lies under what people reach, beyond a margin, and a task of ours can teach it.
The budget follows the gap, measured from chance. A share goes to replay: skills that the model has and must not lose.
What fails for another reason than sight (refusals, replies that cannot be read) is judged by its answered items.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import Field, TypeAdapter, ValidationError

from synth.config import Config
from synth.diagnosis.statistics import normalised, wilson
from synth.errors import ConfigError
from synth.files import write_json
from synth.findings import CategoryProfile, Plan, Profile, Quota
from synth.types import JsonValue, Skill, Task


class PlanOptions(Config):
    """How a budget is spent."""

    budget: int = Field(default=2000, ge=1)
    """Pairs in all."""
    replay_share: float = Field(default=0.2, ge=0, lt=1)
    """Share of the budget for skills that the model already has."""
    skills: tuple[Skill, ...] = ()
    """Where given, only these may be targets."""
    controls: tuple[Skill, ...] = ()
    """Skills that get no pairs at all, so that they can show whether a gain is more than a side effect."""
    min_n: int = Field(default=30, ge=1)
    """Scored items below which nothing is said about a skill."""
    margin: float = Field(default=0.05, ge=0, lt=1)
    """The upper bound must lie so far under human accuracy (1 where unknown) to call a skill weak."""
    max_accuracy: float = Field(default=0.95, gt=0, le=1)
    """A skill above this is never a target, however many items prove the rest of its gap."""
    replay_margin: float = Field(default=0.10, ge=0, lt=1)
    """The lower bound must lie so far above chance to call a skill present."""


def make_plan(profile: Profile, options: PlanOptions, tasks: Sequence[Task]) -> Plan:
    """Quotas for the weak skills that a task serves, then replay; all else is listed as unserved with its reason.

    Without a target there are no quotas: replay alone mends nothing.
    """
    teachers = {skill.skill: _teachers(skill.skill, tasks) for skill in profile.skills}
    targets: list[CategoryProfile] = []
    replay: list[CategoryProfile] = []
    unserved: list[str] = []
    for it in sorted(profile.skills, key=lambda it: (-_gap(it), it.name)):
        fate = _fate(it, options, bool(teachers[it.skill]))
        if fate == "target":
            targets.append(it)
        elif fate == "replay":
            replay.append(it)
        elif fate:
            unserved.append(f"{it.name}: {_numbers(it)}; {fate}")
    if not targets:
        return Plan(quotas=(), unserved=tuple(unserved))
    kept = round(options.budget * options.replay_share) if replay else 0
    quotas: list[Quota] = []
    for it, n in zip(targets, _shares(options.budget - kept, [_gap(it) for it in targets]), strict=True):
        quotas += _quotas(it, n, teachers[it.skill], replay=False)
    for it, n in zip(replay, _shares(kept, [1.0] * len(replay)), strict=True):
        quotas += _quotas(it, n, teachers[it.skill], replay=True)
    return Plan(quotas=tuple(quota for quota in quotas if quota.n), unserved=tuple(unserved))


def _teachers(skill: Skill, tasks: Sequence[Task]) -> list[str]:
    return sorted(task.name for task in tasks if skill in task.skills)


def _fate(it: CategoryProfile, options: PlanOptions, served: bool) -> str:
    """target, replay, "" (nothing to do), or a sentence why a weak skill is left out."""
    weak = _is_weak(it, options)
    if it.skill in options.controls:
        return "kept as a control" if weak else ""
    if it.n < options.min_n:
        return f"fewer than {options.min_n} scored items say too little" if it.n else ""
    if "old_key" in it.flags:
        return "scored with a key that is known to be wrong"
    if weak and not served:
        return "no task serves it"
    if weak and options.skills and it.skill not in options.skills:
        weak = False
        if not _is_present(it, options):
            return "not among the skills that the plan may target"
    if weak:
        return "target"
    return "replay" if served and _is_present(it, options) else ""


def _judged(it: CategoryProfile) -> tuple[float, float, float]:
    """(accuracy, low, high) over all items, or over the answered where silence is what lowers the score."""
    if {"refuses", "unparsed", "truncated"} & set(it.flags) and it.n_answered:
        return it.answered, *wilson(round(it.answered * it.n_answered), it.n_answered)
    return it.accuracy, it.low, it.high


def _top(it: CategoryProfile) -> float:
    return 1.0 if it.human is None else it.human


def _is_weak(it: CategoryProfile, options: PlanOptions) -> bool:
    accuracy, _, high = _judged(it)
    return it.n >= options.min_n and accuracy <= options.max_accuracy and high < _top(it) - options.margin


def _is_present(it: CategoryProfile, options: PlanOptions) -> bool:
    return it.n >= options.min_n and _judged(it)[1] > it.chance + options.replay_margin


def _gap(it: CategoryProfile) -> float:
    """1 at chance or below, 0 at the level of people."""
    return min(1.0, max(0.0, 1 - normalised(_judged(it)[0], it.chance, _top(it))))


def _shares(total: int, weights: Sequence[float]) -> list[int]:
    """Whole numbers that sum to the total, in proportion to the weights (largest remainders)."""
    if not weights:
        return []
    whole = sum(weights)
    exact = [total * weight / whole for weight in weights] if whole > 0 else [total / len(weights)] * len(weights)
    shares = [int(value) for value in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: (shares[i] - exact[i], i))
    for i in by_remainder[: total - sum(shares)]:
        shares[i] += 1
    return shares


def _quotas(it: CategoryProfile, n: int, teachers: Sequence[str], *, replay: bool) -> list[Quota]:
    if replay:
        why = f"the model has {it.name} ({_numbers(it)}) and must not lose it"
    else:
        why = f"{it.name} is weak: {_numbers(it)}; {100 * _gap(it):.0f} % of the way from chance is missing"
        why += " (below chance: look at the key and at some replies first)" if "below_chance" in it.flags else ""
    return [
        Quota(task=task, skill=it.skill, n=share, why=why, role="replay" if replay else "target")
        for task, share in zip(teachers, _shares(n, [1.0] * len(teachers)), strict=True)
    ]


def _numbers(it: CategoryProfile) -> str:
    accuracy, low, high = _judged(it)
    over = f"of {it.n}" if accuracy == it.accuracy else f"of the {it.n_answered} answered of {it.n}"
    human = f", human {100 * it.human:.1f}" if it.human is not None else ""
    return f"{100 * accuracy:.1f} % {over} [{100 * low:.1f}, {100 * high:.1f}], chance {100 * it.chance:.1f}{human}"


# ---------------------------------------------------------------------------------------------------------------- JSON

_PLAN = TypeAdapter(Plan)


def plan_to_json(plan: Plan) -> dict[str, JsonValue]:
    """The content of plan.json."""
    quotas: list[JsonValue] = [
        {"task": q.task, "skill": str(q.skill), "n": q.n, "role": q.role, "why": q.why} for q in plan.quotas
    ]
    return {"quotas": quotas, "unserved": list(plan.unserved)}


def plan_from_json(data: Mapping[str, JsonValue], where: str = "plan.json") -> Plan:
    """A plan from the content of plan.json, which may be written by hand. Raises ConfigError."""
    unknown = sorted(data.keys() - {"quotas", "unserved"})
    if unknown or "quotas" not in data:
        raise ConfigError(
            f"unknown key {', '.join(unknown)}" if unknown else "no key quotas",
            where=where,
            fix='a plan is {"quotas": [{"task", "skill", "n", "role", "why"}], "unserved": [text]}',
        )
    try:
        plan = _PLAN.validate_python(dict(data))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{place}: {first['msg']}", where=where, fix="see `s2p plan --help`") from None
    negative = [quota.task for quota in plan.quotas if quota.n < 1]
    if negative:
        raise ConfigError(f"a quota below 1: {', '.join(negative)}", where=where, fix="leave the quota out")
    return plan


def save_plan(path: Path, plan: Plan) -> None:
    """Write plan.json atomically."""
    write_json(path, plan_to_json(plan))


def load_plan(path: Path) -> Plan:
    """Read a plan.json. Raises ConfigError."""
    try:
        data: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", where=str(path), fix="run `s2p plan` first") from None
    if not isinstance(data, dict):
        raise ConfigError("expected an object", where=str(path), fix="run `s2p plan` again")
    return plan_from_json(data, str(path))


def format_plan(plan: Plan) -> str:
    """The plan for a terminal."""
    lines = [f"{quota.n:6d}  {quota.role:6s}  {quota.task}: {quota.why}" for quota in plan.quotas]
    if not lines:
        lines.append("no quotas: nothing is weak enough that a task could teach")
    total = sum(quota.n for quota in plan.quotas)
    lines.append(f"{total:6d}  pairs in all")
    return "\n".join([*lines, *(f"unserved: {text}" for text in plan.unserved)])
