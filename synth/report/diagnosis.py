"""The page behind `s2p diagnose`: how a model does on a benchmark, where it falls short, and what to make of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from synth.files import write_text
from synth.findings import CategoryProfile, Profile
from synth.report.cards import Example, card
from synth.report.html import Estimate, axis, interval_bar, percent, render, words


@dataclass(frozen=True, kw_only=True)
class Advice:
    """A flag in plain words."""

    meaning: str
    todo: str


FLAGS: dict[str, Advice] = {
    "collapsed": Advice(
        meaning="The model gives nearly always the same letter, whatever the picture shows. Its score is the share of "
        "questions for which that letter happens to be right.",
        todo="Read the balanced accuracy instead. Training pairs for this skill must have evenly spread letters.",
    ),
    "one_letter": Advice(
        meaning="The model prefers one letter clearly more often than the key does.",
        todo="Read the balanced accuracy beside the score; keep the letters of the training pairs evenly spread.",
    ),
    "gold_skew": Advice(
        meaning="One letter is right so often that always giving it would beat guessing.",
        todo="Read the balanced accuracy: the score says little about sight.",
    ),
    "at_chance": Advice(
        meaning="The score cannot be told from guessing: the interval contains chance.",
        todo="Treat the skill as missing. It is a good target for generated training data.",
    ),
    "below_chance": Advice(
        meaning="Of the answered questions fewer are right than guessing would give; blindness alone does not do that.",
        todo="Look at a few replies before anything else: a wrong answer key, swapped options or a reply that was "
        "misread are likelier than a model that knows the answer and says the opposite.",
    ),
    "few_items": Advice(
        meaning="There are so few questions that the interval is wide.",
        todo="Do not read a change of a few points as progress; add questions before judging.",
    ),
    "refuses": Advice(
        meaning="The model declined to answer many questions. A refusal counts as wrong, and says nothing about sight.",
        todo="Read the accuracy over the answered questions; change the prompt rather than train on pictures.",
    ),
    "unparsed": Advice(
        meaning="Many replies hold no letter that can be read with certainty.",
        todo="Ask the model for the letter alone or allow longer replies, then run the benchmark again.",
    ),
    "truncated": Advice(
        meaning="Many replies end before they give an answer.",
        todo="Raise the limit on the length of a reply and run the benchmark again.",
    ),
    "unscored": Advice(
        meaning="Nothing could be scored since the right answers are not published.",
        todo="Submit the replies to the benchmark's own server; no number here counts them.",
    ),
    "old_key": Advice(
        meaning="These answers were scored with a key that the benchmark's authors have since replaced.",
        todo="Do not use this score. Score the replies again with the present key.",
    ),
}
"""Sentences by flag; a flag may carry more after a colon, which is printed as it is."""

_UNKNOWN = Advice(meaning="", todo="Look at the replies of this category before relying on its score.")


@dataclass(frozen=True, kw_only=True)
class _Line:
    """One row of the table."""

    it: CategoryProfile
    skill: str
    """"" where the name says it already."""
    bar: Markup
    gap: float | None
    balanced: float | None
    majority: str
    silent: str
    flags: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Flag:
    """One entry of the list of flags."""

    title: str
    detail: str
    where: tuple[str, ...]
    advice: Advice


def write_diagnosis(profile: Profile, out: Path, examples: Sequence[Example] = ()) -> None:
    """Write the diagnosis of one model as one HTML file, atomically. `examples` are questions that it got wrong."""
    lines = [_line(category) for category in sorted(profile.categories, key=_order)]
    shared = len(profile.skills) < len(profile.categories)
    context: dict[str, object] = {
        "title": f"What {profile.model or 'the model'} can and cannot see",
        "profile": profile,
        "lines": lines,
        "skills": [_line(skill) for skill in sorted(profile.skills, key=_order)] if shared else [],
        "subject": profile.model or "The model",
        "n": sum(category.n for category in profile.categories),
        "has_human": any(category.human is not None for category in profile.categories),
        "axis": axis(),
        "summary": interval_bar(
            Estimate(value=profile.macro), chance=profile.chance, human=profile.human, label="mean over the categories"
        ),
        "worst": [line for line in lines if line.it.n and _shortfall(line.it) > 0][:3],
        "flags": _flags(profile.categories),
        "examples": [card(example) for example in examples],
    }
    write_text(out, render("diagnosis.html.j2", context))


def advice_for(flag: str) -> Advice:
    """The sentences for a flag; a flag that this page does not know is named and answered with a general one."""
    return FLAGS.get(_code(flag), _UNKNOWN)


def _code(flag: str) -> str:
    return re.sub(r"[^a-z]+", "_", flag.split(":", 1)[0].strip().lower()).strip("_")


def _shortfall(it: CategoryProfile) -> float:
    # Without a published human score the distance is taken to all questions right.
    return (1.0 if it.human is None else it.human) - it.accuracy


def _order(it: CategoryProfile) -> tuple[bool, float, str]:
    return (it.n == 0, -_shortfall(it), it.name)


def _line(it: CategoryProfile) -> _Line:
    silent = ", ".join(f"{n} {reason.replace('_', ' ')}" for reason, n in sorted(it.reasons.items()) if n)
    majority = f"{it.majority_letter}: {percent(it.majority_share)}" if it.majority_letter else "–"
    at = Estimate(value=it.accuracy, low=it.low, high=it.high)
    # `one_letter` is part of `collapsed`; both on a line would say it twice.
    flags = [flag for flag in it.flags if not (flag == "one_letter" and "collapsed" in it.flags)]
    return _Line(
        it=it,
        bar=interval_bar(at, chance=it.chance, human=it.human, label=words(it.name)) if it.n else Markup(""),
        skill="" if _code(it.skill) in _code(it.name) else words(it.skill),
        gap=None if it.human is None or not it.n else it.human - it.accuracy,
        balanced=it.balanced,
        majority=majority,
        silent=silent,
        flags=tuple(words(flag.split(":", 1)[0]) for flag in flags),
    )


def _flags(categories: Sequence[CategoryProfile]) -> list[_Flag]:
    where: dict[str, list[str]] = {}
    for category in categories:
        for flag in category.flags:
            where.setdefault(flag, []).append(words(category.name))
    return [
        _Flag(
            title=words(flag.split(":", 1)[0]),
            detail=flag.partition(":")[2].strip(),
            where=tuple(names),
            advice=advice_for(flag),
        )
        for flag, names in sorted(where.items())
    ]
