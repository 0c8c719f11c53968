"""Before and after on the same items: what changed, how sure that is, and whether the change may stand.

Verdicts need two things at once: an exact McNemar test after Holm's correction over the skills, and a paired bootstrap
interval that leaves out 0, resampled by group, because items that share a picture are not independent.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

from pydantic import Field

from synth.config import Config, dump
from synth.diagnosis.paired import (
    Pair,
    by_skill_of,
    cell_of,
    cells_json,
    cells_of,
    judged,
    macro_of,
    paired,
    points_between,
    strata_of,
)
from synth.diagnosis.statistics import corrected
from synth.errors import S2PError
from synth.findings import Cell
from synth.types import JsonValue, Outcome, Skill

TOGETHER = "all_kept_skills"
"""Name of the pooled cell in the retention part of comparison.json."""


class GateOptions(Config):
    """When a round may stand."""

    alpha: float = Field(0.05, gt=0, lt=1)
    improve: Literal["any", "all", "none"] = "any"
    """How many of the taught skills must have improved."""
    retention_margin: float = Field(0.03, ge=0, lt=1)
    """Share (0.03: 3 points) that a skill that was not taught may lose."""
    margin_together: float = Field(default=0.02, ge=0, lt=1)
    """Share that these skills may lose pooled: there the whole interval must stay above it (non-inferiority)."""
    strict_retention: bool = False
    """Ask every kept skill's interval, and not only that of all together, to stay above its margin."""
    controls: bool = True
    """Control arms must not improve on a taught skill, and the real arm must beat them where it improved."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A skill that was not taught, against the margin."""

    cell: Cell
    verdict: Literal["kept", "undecided", "lost", "nothing to keep"]
    """nothing to keep: not above chance before, so there was nothing to lose; such a skill is not gated."""
    passed: bool


@dataclass(frozen=True, kw_only=True)
class Control:
    """A control arm on one skill."""

    cell: Cell
    """The arm against the same `before`."""
    advantage: Cell
    """From the arm to the real model: its `delta` is what the real training gained beyond it."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """comparison.json"""

    before: str
    after: str
    """Names of the models."""
    targets: tuple[Skill, ...]
    per_skill: Mapping[str, Cell]
    overall: Cell
    macro: tuple[float, float, float, float, float]
    """Unweighted mean over the skills: before, after, delta, low, high."""
    retention: Mapping[str, Kept]
    """Skills not taught; under `all_kept_skills` those that the model had, pooled."""
    controls: Mapping[str, Mapping[str, Control]]
    arms: Mapping[str, Mapping[str, Cell]]
    """Other trainings on the same data (seeds, settings, second stages) against the same `before`, by skill."""
    repeats: tuple[str, ...]
    """Those of them that differ by the seed alone."""
    strata: Mapping[str, Mapping[str, Mapping[str, Cell]]]
    """Skill -> tag -> value."""
    unscored: int
    """Items without a public answer, left out."""
    options: GateOptions
    gate_passed: bool
    gate_reasons: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Rerun:
    """Another training on the same data."""

    outcomes: Sequence[Outcome]
    by_seed: bool
    """It differs by the seed alone: the spread of a gain is taken over such trainings."""


def compare(
    before: Sequence[Outcome],
    after: Sequence[Outcome],
    *,
    targets: Sequence[Skill] = (),
    controls: Mapping[str, Sequence[Outcome]] | None = None,
    arms: Mapping[str, Rerun] | None = None,
    gate: GateOptions | None = None,
    seed: int = 0,
) -> Comparison:
    """Compare two models on the same items. `targets` are the skills that were taught.

    `controls` must not improve; `arms` are further trainings on the real data, shown beside and not gated.

    Raises S2PError when the item sets or their answer keys differ.
    """
    gate = gate or GateOptions()
    pairs, unscored = paired(before, after, "after")
    by_skill = by_skill_of(pairs)
    per_skill = cells_of(by_skill, gate.alpha, seed, "skill")
    missing = [skill for skill in targets if skill not in per_skill]
    if missing:
        raise S2PError(f"no scored item of the taught skill {', '.join(missing)}", where="before and after")
    against = {name: _control(before, after, outcomes, name, gate, seed) for name, outcomes in (controls or {}).items()}
    others = {
        name: cells_of(by_skill_of(paired(before, arm.outcomes, name)[0]), gate.alpha, seed, "arm", name)
        for name, arm in (arms or {}).items()
    }
    strata = {skill: strata_of(members, skill, gate.alpha, seed) for skill, members in by_skill.items()}
    comparison = Comparison(
        before=before[0].model,
        after=after[0].model,
        targets=tuple(targets),
        per_skill=per_skill,
        overall=judged({"": cell_of(pairs, seed, "overall")}, gate.alpha)[""],
        macro=macro_of(by_skill, seed),
        retention=_retention(by_skill, per_skill, targets, gate, seed),
        controls=against,
        arms=others,
        repeats=tuple(name for name, arm in (arms or {}).items() if arm.by_seed),
        strata={skill: tags for skill, tags in strata.items() if tags},
        unscored=unscored,
        options=gate,
        gate_passed=False,
        gate_reasons=(),
        warnings=(),
    )
    reasons = _gate(comparison)
    return replace(
        comparison, gate_passed=not reasons, gate_reasons=tuple(reasons), warnings=tuple(_warnings(comparison))
    )


# ------------------------------------------------------------------------------------------- retention and controls


def _retention(
    by_skill: Mapping[str, Sequence[Pair]],
    per_skill: Mapping[str, Cell],
    targets: Sequence[Skill],
    gate: GateOptions,
    seed: int,
) -> dict[str, Kept]:
    """Non-inferiority of what was not taught: is the loss smaller than the margin, not merely insignificant?"""
    margin = gate.retention_margin
    kept: dict[str, Kept] = {}
    pooled: list[Pair] = []
    for skill, cell in per_skill.items():
        if skill in targets:
            continue
        chance = sum(1 / a.n_options for a, _ in by_skill[skill]) / cell.n
        if cell.before_low <= chance:
            kept[skill] = Kept(cell=cell, verdict="nothing to keep", passed=True)
            continue
        pooled += by_skill[skill]
        if cell.low > -margin:
            kept[skill] = Kept(cell=cell, verdict="kept", passed=True)
        elif cell.verdict == "regressed" or cell.delta < -margin:
            kept[skill] = Kept(cell=cell, verdict="lost", passed=False)
        else:
            kept[skill] = Kept(cell=cell, verdict="undecided", passed=not gate.strict_retention)
    if pooled:
        cell = judged({"": cell_of(pooled, seed, "retention")}, gate.alpha)[""]
        passed = cell.low > -gate.margin_together
        verdict: Literal["kept", "lost", "undecided"] = "kept" if passed else "lost" if cell.high < 0 else "undecided"
        kept[TOGETHER] = Kept(cell=cell, verdict=verdict, passed=passed)
    return kept


def _control(
    before: Sequence[Outcome],
    after: Sequence[Outcome],
    control: Sequence[Outcome],
    name: str,
    gate: GateOptions,
    seed: int,
) -> dict[str, Control]:
    changes, _ = paired(before, control, name)
    beyond, _ = paired(control, after, "after")
    cells = cells_of(by_skill_of(changes), gate.alpha, seed, "control", name)
    advantages = cells_of(by_skill_of(beyond), gate.alpha, seed, "advantage", name)
    return {skill: Control(cell=cell, advantage=advantages[skill]) for skill, cell in cells.items()}


# ------------------------------------------------------------------------------------------------------------- gate


def _gate(comparison: Comparison) -> list[str]:
    """Why the round must not stand; empty: it may."""
    gate = comparison.options
    taught = {skill: comparison.per_skill[skill] for skill in comparison.targets}
    improved = [skill for skill, cell in taught.items() if cell.verdict == "improved"]
    reasons = []
    if taught and gate.improve == "any" and not improved:
        reasons.append("no taught skill improved")
    if gate.improve == "all":
        reasons += [f"{skill}: taught, and no evidence that it improved" for skill in taught if skill not in improved]
    reasons += [f"{skill}: taught, and it got worse" for skill, cell in taught.items() if cell.verdict == "regressed"]
    for skill, kept in comparison.retention.items():
        if not kept.passed:
            change = f"{100 * kept.cell.delta:+.1f} points {points_between(kept.cell.low, kept.cell.high)}"
            margin = gate.margin_together if skill == TOGETHER else gate.retention_margin
            reasons.append(f"{skill}: {change}, at most {100 * margin:g} may be lost")
    for name, arm in comparison.controls.items() if gate.controls else ():
        reasons += [
            f"{skill}: the control arm {name} improved too ({100 * arm[skill].cell.delta:+.1f} points)"
            for skill in taught
            if arm[skill].cell.verdict == "improved"
        ]
        reasons += [
            f"{skill}: not better than the control arm {name}" for skill in improved if arm[skill].advantage.low <= 0
        ]
    return reasons


def _warnings(comparison: Comparison) -> list[str]:
    """What a reader should know although the gate does not ask for it."""
    found = []
    if comparison.unscored:
        found.append(f"{comparison.unscored} items have no public answer and are left out")
    for skill, tags in comparison.strata.items():
        learnt = skill in comparison.targets and comparison.per_skill[skill].verdict == "improved"
        meaning = "this may be a shortcut and not the skill" if learnt else "its answers may follow that now"
        for tag, values in tags.items():
            gained = [value for value, cell in values.items() if cell.verdict == "improved"]
            fell = [value for value, cell in values.items() if cell.verdict == "regressed"]
            if gained and fell:
                where = f"better where {tag} is {', '.join(gained)}, worse where it is {', '.join(fell)}"
                found.append(f"{skill}: {where}: {meaning}")
    for name, arm in comparison.controls.items():
        found += [f"{name}: {skill} got worse" for skill, part in arm.items() if part.cell.verdict == "regressed"]
    return found


# ----------------------------------------------------------------------------------------------------------- output


def comparison_to_json(comparison: Comparison) -> dict[str, JsonValue]:
    """The shape of comparison.json."""
    names = ("macro_before", "macro_after", "macro_delta", "macro_low", "macro_high")
    options = comparison.options
    retention: dict[str, JsonValue] = {"margin": options.retention_margin, "margin_together": options.margin_together}
    retention["passed"] = all(kept.passed for kept in comparison.retention.values())
    for name, kept in comparison.retention.items():
        retention[name] = {**asdict(kept.cell), "kept": kept.verdict, "passed": kept.passed}
    controls: dict[str, JsonValue] = {
        name: {skill: {**asdict(part.cell), "advantage": asdict(part.advantage)} for skill, part in arm.items()}
        for name, arm in comparison.controls.items()
    }
    strata: dict[str, JsonValue] = {
        skill: {tag: cells_json(values) for tag, values in tags.items()} for skill, tags in comparison.strata.items()
    }
    return {
        "before": comparison.before,
        "after": comparison.after,
        "targets": [str(skill) for skill in comparison.targets],
        "per_skill": cells_json(comparison.per_skill),
        "overall": {**asdict(comparison.overall), **dict(zip(names, comparison.macro, strict=True))},
        "retention": retention,
        "controls": controls,
        "arms": {name: cells_json(cells) for name, cells in comparison.arms.items()},
        "spread": _spread(comparison),
        "strata": strata,
        "unscored": comparison.unscored,
        "gate": {
            "passed": comparison.gate_passed,
            "reasons": list(comparison.gate_reasons),
            "options": dump(comparison.options),
        },
        "warnings": list(comparison.warnings),
    }


def _spread(comparison: Comparison) -> dict[str, JsonValue]:
    """Change of each taught skill over the seeds: what an interval over items leaves out."""
    found: dict[str, JsonValue] = {}
    for skill in comparison.targets if comparison.repeats else ():
        cells = [comparison.per_skill[skill], *(comparison.arms[name][skill] for name in comparison.repeats)]
        deltas = [cell.delta for cell in cells]
        found[skill] = {
            "n": len(cells),
            "mean": statistics.fmean(deltas),
            "sd": statistics.stdev(deltas),
            "least": min(deltas),
            "most": max(deltas),
            "improved": sum(cell.verdict == "improved" for cell in cells),
        }
    return found


def format_comparison(comparison: Comparison) -> str:
    """A table for the terminal: one line a skill, then control arms, gate and warnings."""
    header = (
        f"{'skill':<28}{'n':>6}{'before':>9}{'after':>8}{'change':>9}  {'95 % interval':<16}{'p (Holm)':>9}  verdict"
    )
    lines = [header]
    for skill, cell in comparison.per_skill.items():
        mark = "*" if skill in comparison.targets else " "
        lines.append(_line(f"{mark}{skill}", cell))
    lines.append(_line(" all items", comparison.overall))
    for name, cells in comparison.arms.items():
        lines += [_line(f" {skill}, arm {name}"[:28], cells[skill]) for skill in comparison.targets]
    for name, arm in comparison.controls.items():
        lines += [_line(f" {skill}, control {name}"[:28], arm[skill].cell) for skill in comparison.targets]
    lines += [f"note: {text}" for text in comparison.warnings]
    lines.append("gate: " + ("passed" if comparison.gate_passed else "; ".join(comparison.gate_reasons)))
    return "\n".join(lines)


def _line(name: str, cell: Cell) -> str:
    return (
        f"{name:<28}{cell.n:>6}{100 * cell.before:>8.1f}%{100 * cell.after:>7.1f}%{100 * cell.delta:>+9.1f}"
        f"  {points_between(cell.low, cell.high):<16}{corrected(cell.p, cell.p_holm):>9.2g}  {cell.verdict}"
    )
