"""What changed between two runs, ready to print: category by category, with the items behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from synth.findings import CategoryProfile, Cell, Flip, Snapshot, Verdict
from synth.report.html import Estimate, Tone, dumbbell, words

TONES: dict[Verdict, Tone] = {"improved": "up", "no evidence": "flat", "regressed": "down"}
SHOWN_FLIPS = 100
"""Items listed a category; the counts are of all."""
# What watches for regressions reads the lost ones first.
_ORDER = ("lost", "gained", "still wrong")


@dataclass(frozen=True, kw_only=True)
class Change:
    """One line of the table."""

    title: str
    cell: Cell
    tone: Tone
    bell: Markup
    needed: int | None
    """Questions that a change of five points needs here."""


@dataclass(frozen=True, kw_only=True)
class Flips:
    """The items of one category whose answer changed."""

    title: str
    gained: int
    lost: int
    still_wrong: int
    shown: tuple[Flip, ...]
    hidden: int


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The section of a page about two runs."""

    it: Snapshot
    sentence: str
    rows: tuple[Change, ...]
    flips: tuple[Flips, ...]


def changes_of(snapshot: Snapshot, categories: Sequence[CategoryProfile]) -> Changes:
    """The snapshot, ready to print; chance and people come from the profile's categories."""
    levels = {category.name: category for category in categories}
    rows = [_row(words(n), cell, levels.get(n), snapshot.needed.get(n)) for n, cell in snapshot.categories.items()]
    rows.sort(key=lambda row: (-row.cell.delta, row.title))
    if snapshot.overall is not None:
        rows.append(_row("All questions together", snapshot.overall, None, None))
    return Changes(it=snapshot, sentence=_sentence(snapshot), rows=tuple(rows), flips=_flips(snapshot.flips))


def _row(title: str, cell: Cell, level: CategoryProfile | None, needed: int | None) -> Change:
    tone = TONES[cell.verdict]
    bell = dumbbell(
        Estimate(value=cell.before, low=cell.before_low, high=cell.before_high),
        Estimate(value=cell.after, low=cell.after_low, high=cell.after_high),
        tone=tone,
        chance=None if level is None else level.chance,
        human=None if level is None else level.human,
        label=title,
    )
    return Change(title=title, cell=cell, tone=tone, bell=bell, needed=needed)


def _sentence(snapshot: Snapshot) -> str:
    if not snapshot.categories:
        return "No category may be compared."
    parts = []
    for verdict, text in (("improved", "improved"), ("regressed", "got worse")):
        names = [words(name) for name, cell in snapshot.categories.items() if cell.verdict == verdict]
        parts.append(f"{len(names)} {text} ({', '.join(names)})" if names else f"none {text}")
    n = len(snapshot.categories)
    flat = sum(cell.verdict == "no evidence" for cell in snapshot.categories.values())
    if not flat:
        return f"Of {n} compared categories {parts[0]} and {parts[1]}."
    return f"Of {n} compared categories {parts[0]}, {parts[1]}, and {flat} cannot be told from luck."


def _flips(flips: Sequence[Flip]) -> tuple[Flips, ...]:
    groups: dict[str, list[Flip]] = {}
    for flip in flips:
        groups.setdefault(flip.category, []).append(flip)
    return tuple(
        Flips(
            title=words(name),
            gained=sum(flip.kind == "gained" for flip in members),
            lost=sum(flip.kind == "lost" for flip in members),
            still_wrong=sum(flip.kind == "still wrong" for flip in members),
            shown=tuple(sorted(members, key=lambda flip: _ORDER.index(flip.kind)))[:SHOWN_FLIPS],
            hidden=max(0, len(members) - SHOWN_FLIPS),
        )
        for name, members in sorted(groups.items())
    )
