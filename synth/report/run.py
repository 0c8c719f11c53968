"""The one report of a `s2p loop` run, in the order in which a reader asks: did it work, what exactly changed, did it
learn the thing or a shortcut, was it the training, show me, what was made, what was dropped, was anything copied, how
do I repeat it, what must I not conclude. Every number comes from the run's own files.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml
from markupsafe import Markup

from synth.diagnosis.statistics import corrected
from synth.errors import DatasetError
from synth.files import write_text
from synth.report.cards import Card, card
from synth.report.certificate import Certificate
from synth.report.changes import (
    Arm,
    Group,
    Habit,
    Row,
    Split,
    arms_of,
    asked_of,
    groups_of,
    habits_of,
    margin_of,
    quotas_of,
    retention_of,
    roles_of,
    rows_of,
    sentence_of,
    splits_of,
)
from synth.report.html import axis, p_value, points, render, share_bar, words
from synth.report.looking import QUADRANTS, Look, looks_of
from synth.report.overview import overview_of
from synth.report.reading import Round, Run, read_run, to_example
from synth.report.records import DropLine, ExampleLine, GuardFacts, Manifest, QuotaLine
from synth.report.sight import Seen, sight_of
from synth.report.trainings import Trainings, trainings_of
from synth.report.view import choose, row_example, rows_at

SHOWN_EXAMPLES = 8
"""Cards of each kind (gained, lost, still wrong)."""
SHOWN_PAIRS = 6
"""Training pairs."""
SHOWN_DROPS = 40
"""Reasons; the rest is folded away."""


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """One round, ready to print."""

    facts: Round
    anchor: str
    title: str
    sentence: str
    also: tuple[str, ...]
    tiles: tuple[tuple[str, Row], ...]
    """Heading and row: what was taught, the control arm, and the largest change elsewhere."""
    has_human: bool
    gate: str
    """passed, failed or unknown."""
    groups: tuple[Group, ...]
    margin: float | None
    """Loss that is allowed to skills that were not taught."""
    has_outcomes: bool
    habits: tuple[Habit, ...]
    splits: tuple[Split, ...]
    split_intervals: bool
    arms: tuple[Arm, ...]
    sight: tuple[Seen, ...]
    """What could be seen of each taught skill."""
    looks: tuple[Look, ...]
    trainings: Trainings
    pictures: tuple[tuple[str, str, int, tuple[Card, ...]], ...]
    """Title, explanation, number in all, the cards shown."""
    quotas: tuple[QuotaLine, ...]
    balance: tuple[tuple[str, int, Markup, Markup], ...]
    """Skill, pairs, letters, strata."""
    pairs: tuple[Card, ...]
    pairs_problem: str
    drops: tuple[DropLine, ...]
    times: tuple[tuple[str, float], ...]
    guard: GuardFacts | None
    certificate: Certificate | None


def write_run_report(run: Path, out: Path) -> None:
    """Write the report of a run folder as one HTML file, atomically.

    A missing optional file gives a section that says "not run". Raises RunError when no round has come to its end or a
    file is damaged.
    """
    facts = read_run(run)
    chapters = [_chapter(one) for one in facts.rounds]
    context: dict[str, object] = {
        "title": "Did it learn to see?",
        "run": facts,
        "chapters": chapters,
        "many": len(chapters) > 1,
        "overview": overview_of(facts.rounds),
        "axis": axis(),
        "quadrants": QUADRANTS,
        "repeat": _repeat(facts),
        "notes": _notes(facts),
        "shown_drops": SHOWN_DROPS,
    }
    write_text(out, render("run.html.j2", context))


# --------------------------------------------------------------------------------------------------------- a round


def _chapter(facts: Round) -> Chapter:
    comparison = facts.comparison
    roles = roles_of(facts)
    rows = rows_of(facts, roles)
    taught = sorted((row for row in rows if row.role in ("target", "")), key=lambda row: -asked_of(facts, row.name))
    arms = arms_of(facts, roles)
    splits = splits_of(facts, roles)
    manifest = facts.manifest
    pairs, problem = _pairs(facts)
    return Chapter(
        facts=facts,
        anchor=facts.name,
        title=words(facts.name.replace("-", " ")),
        sentence=_headline(facts, taught),
        also=tuple(_also(facts, rows, taught, arms)),
        tiles=_tiles(rows, arms, taught),
        has_human=any(level.human is not None for level in facts.profile.skills.values()),
        gate="unknown" if comparison is None or comparison.gate.passed is None else _gate_word(comparison.gate.passed),
        groups=groups_of(facts, rows),
        margin=margin_of(facts),
        has_outcomes=facts.before is not None and facts.after is not None,
        habits=habits_of(facts, [row.name for row in taught if row.role == "target"]),
        splits=splits,
        split_intervals=any(row.cell.after_low is not None for split in splits for row in split.rows),
        arms=arms,
        sight=sight_of(facts, taught),
        looks=looks_of(facts, roles),
        trainings=trainings_of(facts, [row for row in taught if row.role == "target"] or taught),
        pictures=_pictures(facts.examples or ()),
        quotas=quotas_of(facts),
        balance=_balance(manifest) if manifest else (),
        pairs=pairs,
        pairs_problem=problem,
        drops=tuple(sorted(manifest.drops, key=lambda drop: -drop.count)) if manifest else (),
        times=tuple(_times(facts)),
        guard=_guard(facts),
        certificate=facts.certificate,
    )


def _gate_word(passed: bool) -> str:
    return "passed" if passed else "failed"


def _headline(facts: Round, taught: list[Row]) -> str:
    if facts.comparison is None:
        return "Nothing was trained: the plan found no weak skill that a task can teach."
    if not taught:
        return "No taught skill was measured, so this run cannot say whether training helped."
    return sentence_of(taught[0])


def _also(facts: Round, rows: list[Row], taught: list[Row], arms: tuple[Arm, ...]) -> Iterable[str]:
    yield from (sentence_of(row) for row in taught[1:])
    others = _others(rows, taught)
    worse = [row for row in others if row.tone == "down"]
    if worse:
        yield "Got worse: " + "; ".join(f"{row.title} {points(row.cell.delta)} points" for row in worse) + "."
    kept = retention_of(facts)
    if kept:
        yield kept
    elif others and not worse:
        far = others[0]
        many = f"the {len(others)} other skills" if len(others) > 1 else "the other skill"
        yield f"There is no evidence of a loss on {many}; the largest change is {far.title} {points(far.cell.delta)}."
    for arm in arms:
        shown = [row for row in arm.rows if row.role == "target"] or list(arm.rows[:1])
        moved = "; ".join(
            f"{row.title} {points(row.cell.delta)} points, p = {p_value(corrected(row.cell.p, row.cell.p_holm))}"
            for row in shown
        )
        if moved:
            yield f"Control arm {arm.title.lower()}: {moved}."


def _others(rows: list[Row], taught: list[Row]) -> list[Row]:
    """Skills that were not taught, the largest change first."""
    others = [row for row in rows if row not in taught and row.cell.delta is not None]
    return sorted(others, key=lambda row: -abs(row.cell.delta or 0.0))


def _tiles(rows: list[Row], arms: tuple[Arm, ...], taught: list[Row]) -> tuple[tuple[str, Row], ...]:
    targets = [row for row in taught if row.role == "target"][:3]
    tiles = [("Taught", row) for row in targets]
    against = [(arm, row) for arm in arms for row in arm.rows if targets and row.name == targets[0].name]
    if against:  # the one that gained most: it is what the gain must be held against
        arm, row = max(against, key=lambda one: one[1].cell.delta or 0.0)
        tiles.append((f"Control arm: {arm.title.lower()}", row))
    tiles += [("Largest change elsewhere", row) for row in _others(rows, taught)[:1] if targets]
    return tuple(tiles)


# -------------------------------------------------------------------------------------------- pictures and data set


def _pictures(lines: Iterable[ExampleLine]) -> tuple[tuple[str, str, int, tuple[Card, ...]], ...]:
    kinds: dict[str, list[ExampleLine]] = {"gained": [], "lost": [], "wrong": [], "right": []}
    for line in lines:
        was, now = line.before == line.answer, line.after == line.answer
        kinds["right" if was and now else "gained" if now else "lost" if was else "wrong"].append(line)
    texts = {
        "gained": ("Gained", "wrong before, right after"),
        "lost": ("Lost", "right before, wrong after"),
        "wrong": ("Still wrong", "wrong before and after"),
        "right": ("Right all along", "right before and after"),
    }
    return tuple(
        (*texts[kind], len(found), tuple(card(to_example(line)) for line in found[:SHOWN_EXAMPLES]))
        for kind, found in kinds.items()
        if found
    )


def _pairs(facts: Round) -> tuple[tuple[Card, ...], str]:
    dataset = facts.folder / "dataset"
    if not (dataset / "data").is_dir():
        return (), ""
    try:
        where, _ = choose(dataset, SHOWN_PAIRS)
        return tuple(card(row_example(row)) for row in rows_at(dataset, where)), ""
    except DatasetError as error:
        return (), error.message


def _balance(manifest: Manifest) -> tuple[tuple[str, int, Markup, Markup], ...]:
    pairs = manifest.pairs
    return tuple(
        (
            words(skill),
            n,
            share_bar(pairs.letters.get(skill, {}), label="right letters"),
            share_bar(pairs.strata.get(skill, {}), label="strata"),
        )
        for skill, n in pairs.by_skill.items()
    )


def _guard(facts: Round) -> GuardFacts | None:
    """The certificate's word where there is one, completed by the manifest."""
    short = facts.manifest.guard if facts.manifest is not None else None
    full = facts.certificate
    if full is None:
        return short
    planted = full.calibration.planted
    return GuardFacts(
        verdict=full.verdict or (short.verdict if short else ""),
        planted=planted.n if planted.n is not None else short.planted if short else None,
        found=planted.found if planted.found is not None else short.found if short else None,
        removed=full.removed or (short.removed if short else {}),
    )


# ------------------------------------------------------------------------------------------------------ the end


def _times(facts: Round) -> Iterable[tuple[str, float]]:
    if facts.manifest is not None and facts.manifest.seconds is not None:
        yield "making the training pairs", facts.manifest.seconds
    if facts.train is not None and facts.train.seconds is not None:
        yield "training", facts.train.seconds
    further = [it.seconds for it in (*facts.arms.values(), *facts.controls.values()) if it.seconds is not None]
    if further:
        yield f"{len(further)} further training{'s' if len(further) > 1 else ''}", sum(further)


def _repeat(run: Run) -> dict[str, object]:
    manifests = [one.manifest for one in run.rounds if one.manifest is not None]
    if run.loop is not None and run.loop.config:
        verb, config = "loop", run.loop.config
    else:
        verb, config = "generate", manifests[-1].config if manifests else {}
    versions: dict[str, str] = {}
    for one in run.rounds:
        if one.manifest is not None and one.manifest.code_version:
            versions["see2perceive"] = one.manifest.code_version
        versions |= one.train.versions if one.train is not None else {}
    return {
        "verb": verb,
        "config": yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=100) if config else "",
        "versions": versions,
    }


def _notes(run: Run) -> list[str]:
    notes = [*run.notes]
    for one in run.rounds:
        notes += [*one.notes, *one.profile.warnings]
        notes += one.comparison.warnings if one.comparison is not None else ()
        if one.plan is not None:
            notes += [f"Left out of the plan: {text}." for text in one.plan.unserved]
    notes += [f"{words(name.replace('-', ' '))} has not come to its end and is left out." for name in run.unfinished]
    return list(dict.fromkeys(notes))
