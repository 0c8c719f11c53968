"""What a run could see (power, said before training), ready to print beside what it found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from synth.report.changes import Row
from synth.report.html import percent, points, spoken, words
from synth.report.reading import Round
from synth.report.records import PowerFile, SkillPower

_NEAR = 0.05
"""Share of answers by which an assumption may be off without a word."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One taught skill."""

    title: str
    facts: SkillPower
    assumed: float | None
    """Share of answers that change either way; and the one that was found."""
    found: float | None
    shares: tuple[tuple[float, float | None], ...]
    """Change and the share of runs in which it is seen."""
    sentence: str


def sight_of(facts: Round, taught: Sequence[Row]) -> tuple[Seen, ...]:
    """One a taught skill; empty where nothing was written down."""
    power = facts.power
    if power is None:
        return ()
    rows = {row.name: row for row in taught}
    changes = sorted({change for skill in power.skills.values() for change in skill.power_at}, key=float)
    return tuple(_seen(name, skill, power, changes, rows.get(name)) for name, skill in power.skills.items())


def _seen(name: str, skill: SkillPower, power: PowerFile, changes: Sequence[str], row: Row | None) -> Seen:
    found = None
    if row is not None and row.cell.gained is not None and row.cell.lost is not None and row.cell.n:
        found = (row.cell.gained + row.cell.lost) / row.cell.n
    assumed = power.discordance if skill.discordance is None else skill.discordance
    return Seen(
        title=words(name),
        facts=skill,
        assumed=assumed,
        found=found,
        shares=tuple((float(change), skill.power_at.get(change)) for change in changes),
        sentence=" ".join(_sentences(name, skill, power, row, (assumed, found))),
    )


def _sentences(
    name: str, skill: SkillPower, power: PowerFile, row: Row | None, changed: tuple[float | None, float | None]
) -> Iterable[str]:
    asked = f"{spoken(name)} ({'–' if skill.n is None else f'{skill.n:,}'} questions)"
    runs = "–" if power.power is None else f"{100 * power.power:.0f}"
    if skill.detectable is None:
        yield f"No change on {asked} would be seen in {runs} of 100 such runs: there are too few questions."
    else:
        small = min(skill.power_at, key=float, default=None)
        also = "" if small is None else f"; one of {100 * float(small):g} points in {100 * skill.power_at[small]:.0f}"
        least = f"A change of {100 * skill.detectable:.1f} points or more on {asked}"
        yield f"{least} would be seen in {runs} of 100 such runs{also}."
    delta = row.cell.delta if row is not None and row.tone == "flat" else None
    if delta is not None and skill.detectable is not None and abs(delta) < skill.detectable:
        less = f"The {points(delta)} points that were found are less: such a change may be real and missed"
        yield f"{less}, so “no evidence” does not mean “no change”."
    assumed, found = changed
    if assumed is not None and found is not None and abs(found - assumed) > _NEAR:
        fewer, smaller = ("fewer", "smaller") if found < assumed else ("more", "only larger")
        yield f"In fact {percent(found)} of the answers changed, {fewer} than assumed: {smaller} changes could be seen."
