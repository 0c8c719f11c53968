"""Profile + budget → plan: how many pairs of which task, each with the numbers that ask for it.

A skill is a target where its interval lies under what people reach, beyond a margin, and a task of ours can teach it.
The budget follows the gap, measured from chance, times the share of it that can be taught: where a specialist was set
beside the model on the same pixels, the share of the model's errors on which it is right. What both miss asks for
nothing. A share goes to replay: skills that the model has and must not lose. What fails for another reason than sight
(refusals, replies that cannot be read) is judged by its answered items and sent to the prompt, not to pictures.
Where `s2p sensitivity` says why answers are wrong, a skill whose errors are mostly blind is taught by contrast pairs,
which nobody answers without looking; one that is mostly misread gets more pairs.

A plan holds numbers and the names of skills and tasks; nothing of a benchmark's items passes through it. Letters and
strata of a quota are spread evenly when it is made (`synth.balance`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from synth.config import Config, first_mistake
from synth.contracts import Task
from synth.diagnosis.blindness import Kind, SensitivityFile
from synth.diagnosis.evidence import Evidence, Teachable, evidence_of
from synth.diagnosis.statistics import normalised, wilson
from synth.errors import ConfigError
from synth.files import write_json
from synth.findings import CategoryProfile, Contrast, Plan, Profile, Quota
from synth.types import JsonValue, Skill

_SILENT = ("refuses", "unparsed", "truncated")


class PlanOptions(Config):
    """How a budget is spent."""

    budget: int = Field(default=2000, ge=1)
    """Pairs in all."""
    replay_share: float = Field(default=0.2, ge=0, lt=1)
    """Share of the budget for skills that the model already has."""
    replay_weights: dict[Skill, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Weight of a skill among those; 1 where none is given. A skill that answers in the form of what is taught is the
    first to be forgotten."""
    skills: tuple[Skill, ...] = ()
    """Where given, only these may be targets."""
    difficulty: dict[Literal["easy", "medium", "hard"], Annotated[float, Field(ge=0, le=1)]] = Field(
        default_factory=dict
    )
    """Share of each band among the pairs of a target; empty: as they come. Only hard pairs are known to harm small
    models. What a band lacks is taken from the others."""
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
    max_share: float = Field(default=0.6, gt=0, le=1)
    """Most of the budget that one skill may take, so that no set is about one thing; more only where the targets are
    too few to keep to it."""
    min_contrast: int = Field(default=10, ge=1)
    """Errors that a specialist must have judged before they say whether a skill can be taught."""
    twin_share: float = Field(default=0.5, ge=0, le=1)
    """Share of contrast pairs in a target whose errors are mostly blind: wrong, and insensitive to the region of the
    question. Read from a sensitivity file; without one there are none."""
    misread_weight: float = Field(default=1.25, ge=1)
    """Factor on the weight of a target whose errors are mostly misread: wrong although sensitive to that region. The
    cap holds all the same, and no more than a third of its pairs are asked to be hard."""
    min_errors: int = Field(default=10, ge=1)
    """Wrong answers that a sensitivity file must hold before they say whether a skill is blind or misread."""


def make_plan(
    profile: Profile,
    options: PlanOptions,
    tasks: Sequence[Task],
    contrasts: Sequence[Contrast] = (),
    sensitivity: SensitivityFile | None = None,
) -> Plan:
    """Quotas for the weak skills that a task serves, then replay; all else is listed as unserved with its reason.

    Args:
        profile: of a run without the held-out fold (`make_profile(..., round_number=)`); the plan records which it was.
        options: budget and thresholds.
        tasks: the generators there are.
        contrasts: a specialist beside the model, by category, on items of the same profile. A skill without one counts
            as wholly teachable.
        sensitivity: whether wrong answers depend on what the question is about, of the same model and benchmark. A
            skill without a clear word there is planned as without the file.

    Without a target there are no quotas: replay alone mends nothing. Raises ConfigError for a sensitivity file of
    another benchmark.
    """
    teachers = {skill.skill: _teachers(skill.skill, tasks) for skill in profile.skills}
    known = evidence_of(profile, contrasts, sensitivity, (options.min_contrast, options.min_errors))
    targets: list[CategoryProfile] = []
    replay: list[CategoryProfile] = []
    unserved: list[str] = []
    for it in sorted(profile.skills, key=lambda it: (-_gap(it), it.name)):
        fate = _fate(it, options, bool(teachers[it.skill]), known.teachable.get(it.skill))
        if fate == "target":
            targets.append(it)
        elif fate == "replay":
            replay.append(it)
        elif fate:
            unserved.append(f"{it.name}: {_numbers(it)}; {fate}")
    notes = tuple(_notes(profile, targets, known, teachers))
    if not targets:
        return Plan(quotas=(), unserved=tuple(unserved), notes=notes, fold=profile.fold)
    kept = round(options.budget * options.replay_share) if replay else 0
    wants = {it.name: _want(it, known, options) for it in targets}
    targets.sort(key=lambda it: -wants[it.name])
    weights = [wants[it.name] for it in targets]
    wished = _shares(options.budget - kept, weights)
    most = max(round(options.budget * options.max_share), -(-(options.budget - kept) // len(targets)))
    quotas: list[Quota] = []
    for it, n, wish in zip(targets, _capped(options.budget - kept, weights, most), wished, strict=True):
        kind = known.kinds.get(it.skill, "unclear")
        quotas += _quotas(
            Quota(
                task="",
                skill=it.skill,
                n=n,
                why=_why(it, n < wish, known, options),
                difficulty=_bands(options, kind),
                contrast=options.twin_share if kind == "blind" else 0.0,
            ),
            teachers[it.skill],
        )
    rehearsed = [options.replay_weights.get(it.skill, 1.0) for it in replay]
    for it, n in zip(replay, _shares(kept, rehearsed), strict=True):
        why = f"the model has {it.name} ({_numbers(it)}) and must not lose it"
        quotas += _quotas(Quota(task="", skill=it.skill, n=n, why=why, role="replay"), teachers[it.skill])
    return Plan(
        quotas=tuple(quota for quota in quotas if quota.n), unserved=tuple(unserved), notes=notes, fold=profile.fold
    )


def _notes(
    profile: Profile,
    targets: Sequence[CategoryProfile],
    known: Evidence,
    teachers: Mapping[Skill, Sequence[Task]],
) -> list[str]:
    notes = []
    if profile.fold is None:
        notes.append("planned from all items: no fold is held out, so measure the gain on another benchmark")
    else:
        notes.append(f"planned without the fold {profile.fold} of each category: measure the gain on it")
    unjudged = [it.name for it in targets if it.skill not in known.teachable]
    if unjudged:
        words = "judged enough errors of" if known.contrasted else "was set beside the model on"
        notes.append(f"no specialist {words} {', '.join(unjudged)}: counted as wholly teachable")
    if known.looked:
        notes += _notes_on_looking(targets, known, teachers)
        if known.model and profile.model and known.model != profile.model:
            notes.append(
                f"sensitivity is of {known.model!r} and the profile of {profile.model!r}: see that they are one"
            )
        if profile.fold is not None and known.fold != profile.fold:
            notes.append("the sensitivity file does not leave the fold out: its counts of errors may include it")
    return notes + [f"{it.name}: {_for_the_prompt(it)}" for it in profile.skills if set(_SILENT) & set(it.flags)]


def _notes_on_looking(
    targets: Sequence[CategoryProfile], known: Evidence, teachers: Mapping[Skill, Sequence[Task]]
) -> Iterator[str]:
    """What the sensitivity file leaves open."""
    for it in targets:
        errors, kind = known.errors.get(it.skill), known.kinds.get(it.skill)
        if errors is None:
            yield f"{it.name}: no calibrated sensitivity at a known region, so not known whether errors are blind"
        elif kind == "unclear":
            yield f"{it.name}: {errors}: too little to call them blind or misread, planned as without sensitivity"
        elif kind == "blind" and not any(it.skill in task.twins for task in teachers[it.skill]):
            yield f"{it.name}: {errors}, and no task makes contrast pairs of it"


def _teachers(skill: Skill, tasks: Sequence[Task]) -> list[Task]:
    return sorted((task for task in tasks if skill in task.skills), key=lambda task: task.name)


def _fate(it: CategoryProfile, options: PlanOptions, served: bool, teachable: Teachable | None) -> str:
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
    # A specialist that guesses is right on a share of the model's errors, too.
    if weak and teachable is not None and wilson(teachable.right, teachable.n)[0] <= teachable.chance:
        return f"a specialist is right on {teachable}, no better than guessing: the pictures may not hold the answer"
    if weak:
        return "target"
    return "replay" if served and _is_present(it, options) else ""


def _judged(it: CategoryProfile) -> tuple[float, float, float]:
    """(accuracy, low, high) over all items, or over the answered where silence is what lowers the score."""
    if set(_SILENT) & set(it.flags) and it.n_answered:
        return it.answered, *wilson(round(it.answered * it.n_answered), it.n_answered)
    return it.accuracy, it.low, it.high


def _is_weak(it: CategoryProfile, options: PlanOptions) -> bool:
    accuracy, _, high = _judged(it)
    return it.n >= options.min_n and accuracy <= options.max_accuracy and high < it.top - options.margin


def _is_present(it: CategoryProfile, options: PlanOptions) -> bool:
    return it.n >= options.min_n and _judged(it)[1] > it.chance + options.replay_margin


def _gap(it: CategoryProfile) -> float:
    """1 at chance or below, 0 at the level of people."""
    return min(1.0, max(0.0, 1 - normalised(_judged(it)[0], it.chance, it.top)))


def _want(it: CategoryProfile, known: Evidence, options: PlanOptions) -> float:
    """The weight of a target: its gap, as far as it can be taught, more where the model looks and misreads."""
    taught = known.teachable[it.skill].share if it.skill in known.teachable else 1.0
    return _gap(it) * taught * (options.misread_weight if known.kinds.get(it.skill) == "misread" else 1.0)


def _bands(options: PlanOptions, kind: Kind) -> dict[str, float]:
    """The wish for difficulty; where the model misreads, what is asked for above a third of hard pairs is easier."""
    wish = {str(band): share for band, share in options.difficulty.items()}
    over = wish.get("hard", 0.0) - 1 / 3
    if kind != "misread" or over <= 0:
        return wish
    easier = {band: wish.get(band, 0.0) for band in ("easy", "medium")}
    whole = sum(easier.values())
    parts = {band: share / whole if whole else 0.5 for band, share in easier.items()}
    return {band: round(easier[band] + over * parts[band], 4) for band in easier} | {"hard": round(1 / 3, 4)}


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


def _capped(total: int, weights: Sequence[float], most: int) -> list[int]:
    """Shares of the total by weight, none above `most`; what a cap cuts off goes to the others by their weights."""
    capped: set[int] = set()
    while True:
        free = [i for i in range(len(weights)) if i not in capped]
        shares = dict(zip(free, _shares(total - most * len(capped), [weights[i] for i in free]), strict=True))
        over = {i for i, share in shares.items() if share > most}
        if not over:
            return [most if i in capped else shares[i] for i in range(len(weights))]
        capped |= over


def _quotas(whole: Quota, teachers: Sequence[Task]) -> list[Quota]:
    """The quota of one skill, spread over its tasks; contrast pairs only of those that make them."""
    quotas = []
    for task, n in zip(teachers, _shares(whole.n, [1.0] * len(teachers)), strict=True):
        contrast = whole.contrast if whole.skill in task.twins else 0.0
        why = whole.why + (f"; {100 * contrast:.0f} % as contrast pairs" if contrast else "")
        quotas.append(replace(whole, task=task.name, n=n, why=why, contrast=contrast))
    return quotas


def _why(it: CategoryProfile, capped: bool, known: Evidence, options: PlanOptions) -> str:
    why = f"{it.name} is weak: {_numbers(it)}; {100 * _gap(it):.0f} % of the way from chance is missing"
    why += f"; a specialist is right on {known.teachable[it.skill]}" if it.skill in known.teachable else ""
    kind = known.kinds.get(it.skill, "unclear")
    why += f"; {known.errors[it.skill]}" if kind != "unclear" else ""
    why += f", so weighed {options.misread_weight:g} times" if kind == "misread" else ""
    why += "; held at the cap of one skill" if capped else ""
    return why + (" (below chance: look at the key and at some replies first)" if "below_chance" in it.flags else "")


def _for_the_prompt(it: CategoryProfile) -> str:
    parts = ", ".join(f"{n} {reason}" for reason, n in sorted(it.reasons.items(), key=lambda pair: (-pair[1], pair[0])))
    return (
        f"{sum(it.reasons.values())} of {it.n + (0 if it.n else it.n_unscored)} without a letter ({parts}); "
        f"{100 * it.answered:.1f} % of the answered are right: mend the prompt, not the pictures"
    )


def _numbers(it: CategoryProfile) -> str:
    accuracy, low, high = _judged(it)
    over = f"of {it.n}" if accuracy == it.accuracy else f"of the {it.n_answered} answered of {it.n}"
    human = f", human {100 * it.human:.1f}" if it.human is not None else ""
    return f"{100 * accuracy:.1f} % {over} [{100 * low:.1f}, {100 * high:.1f}], chance {100 * it.chance:.1f}{human}"


# ---------------------------------------------------------------------------------------------------------------- JSON

_PLAN = TypeAdapter(Plan)
_CONTRASTS = TypeAdapter(tuple[Contrast, ...])


def plan_to_json(plan: Plan) -> dict[str, JsonValue]:
    """The content of plan.json."""
    quotas: list[JsonValue] = [_quota_to_json(quota) for quota in plan.quotas]
    return {"quotas": quotas, "unserved": list(plan.unserved), "notes": list(plan.notes), "fold": plan.fold}


def _quota_to_json(it: Quota) -> dict[str, JsonValue]:
    row: dict[str, JsonValue] = {"task": it.task, "skill": str(it.skill), "n": it.n, "role": it.role, "why": it.why}
    row |= {"difficulty": dict(it.difficulty)} if it.difficulty else {}
    return row | ({"contrast": it.contrast} if it.contrast else {})


def plan_from_json(data: Mapping[str, JsonValue], where: str = "plan.json") -> Plan:
    """A plan from the content of plan.json, which may be written by hand. Raises ConfigError."""
    unknown = sorted(data.keys() - {"quotas", "unserved", "notes", "fold"})
    if unknown or "quotas" not in data:
        raise ConfigError(
            f"unknown key {', '.join(unknown)}" if unknown else "no key quotas",
            where=where,
            fix='a plan is {"quotas": [{"task", "skill", "n", "role", "why"}], "unserved": [text]}',
        )
    try:
        plan = _PLAN.validate_python(dict(data))
    except ValidationError as error:
        raise ConfigError(first_mistake(error), where=where, fix="see `s2p plan --help`") from None
    negative = [quota.task for quota in plan.quotas if quota.n < 1]
    if negative:
        raise ConfigError(f"a quota below 1: {', '.join(negative)}", where=where, fix="leave the quota out")
    strange = [quota.task for quota in plan.quotas if not 0 <= quota.contrast <= 1]
    if strange:
        raise ConfigError(f"contrast is a share from 0 to 1: {', '.join(strange)}", where=where)
    return plan


def save_plan(path: Path, plan: Plan) -> None:
    """Write plan.json atomically."""
    write_json(path, plan_to_json(plan))


def load_plan(path: Path) -> Plan:
    """Read a plan.json. Raises ConfigError."""
    data = _read(path, "run `s2p plan` first")
    if not isinstance(data, dict):
        raise ConfigError("expected an object", where=str(path), fix="run `s2p plan` again")
    return plan_from_json(data, str(path))


def load_contrasts(path: Path) -> tuple[Contrast, ...]:
    """Read the contrast.json of a diagnosis. Raises ConfigError."""
    fix = "run `s2p diagnose` with --specialist"
    try:
        return _CONTRASTS.validate_python(_read(path, fix))
    except ValidationError as error:
        raise ConfigError(first_mistake(error), where=str(path), fix=fix) from None


def _read(path: Path, fix: str) -> object:
    try:
        data: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", where=str(path), fix=fix) from None
    return data


def format_plan(plan: Plan) -> str:
    """The plan for a terminal."""
    lines = [f"{quota.n:6d}  {quota.role:6s}  {quota.task}: {quota.why}" for quota in plan.quotas]
    if not lines:
        lines.append("no quotas: nothing is weak enough that a task could teach")
    total = sum(quota.n for quota in plan.quotas)
    lines.append(f"{total:6d}  pairs in all")
    lines += [f"unserved: {text}" for text in plan.unserved]
    return "\n".join([*lines, *(f"note: {text}" for text in plan.notes)])
