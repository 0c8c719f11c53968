"""Several rounds at a glance: where each taught skill stood before the first and after every one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from synth.report.changes import role_of, roles_of
from synth.report.html import words
from synth.report.lines import Chart, Dot, Series, shares, style_of
from synth.report.reading import Round
from synth.report.records import Level


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One skill at one time."""

    value: float | None
    low: float | None
    high: float | None
    gap: float | None
    """To people (share): positive where people are better; None where no human score is known."""
    taught: bool
    """In the round that ends here."""


@dataclass(frozen=True, kw_only=True)
class Course:
    """One skill over the rounds."""

    title: str
    stages: tuple[Stage, ...]


@dataclass(frozen=True, kw_only=True)
class Overview:
    """Names of the times, one course a skill, and the picture."""

    places: tuple[str, ...]
    courses: tuple[Course, ...]
    chart: Chart


def overview_of(rounds: Sequence[Round]) -> Overview | None:
    """Skills that any round taught; None with fewer than two trained rounds."""
    trained = [one for one in rounds if one.comparison is not None]
    if len(trained) < 2:
        return None
    roles = [roles_of(one) for one in trained]
    skills = dict.fromkeys(
        name
        for one, role in zip(trained, roles, strict=True)
        if one.comparison is not None
        for name in one.comparison.per_skill
        if role_of(role, name) in ("target", "")
    )
    places = ("before", *(f"after {words(one.name.replace('-', ' ')).lower()}" for one in trained))
    courses = tuple(
        Course(title=words(name), stages=tuple(_stages(name, trained, [role_of(r, name) for r in roles])))
        for name in skills
    )
    lines = [
        Series(
            name=course.title,
            style=style_of(index),
            dots=tuple(
                Dot(x=at, y=stage.value, low=stage.low, high=stage.high)
                for at, stage in enumerate(course.stages)
                if stage.value is not None
            ),
        )
        for index, course in enumerate(courses)
    ]
    return Overview(
        places=places,
        courses=courses,
        chart=shares("Right answers over the rounds", [line for line in lines if line.dots], places),
    )


def _stages(name: str, trained: Sequence[Round], roles: Sequence[str]) -> list[Stage]:
    first = trained[0]
    human = (first.profile.skills.get(name) or first.profile.categories.get(name) or Level()).human
    found = []
    for index, one in enumerate(trained):
        cell = one.comparison.per_skill.get(name) if one.comparison is not None else None
        if index == 0:
            level = (None, None, None) if cell is None else (cell.before, cell.before_low, cell.before_high)
            found.append(_stage(*level, human, taught=False))
        level = (None, None, None) if cell is None else (cell.after, cell.after_low, cell.after_high)
        found.append(_stage(*level, human, taught=roles[index] == "target"))
    return found


def _stage(value: float | None, low: float | None, high: float | None, human: float | None, *, taught: bool) -> Stage:
    gap = None if value is None or human is None else human - value
    return Stage(value=value, low=low, high=high, gap=gap, taught=taught)
