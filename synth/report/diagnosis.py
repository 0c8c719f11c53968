"""The page behind `s2p diagnose`: how a model does on a benchmark, where it falls short, and what to make of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from markupsafe import Markup

from synth.diagnosis.statistics import normalised, wilson
from synth.files import write_text
from synth.findings import CategoryProfile, Contrast, Plan, Profile, Quadrant, Snapshot
from synth.report.advice import ERRORS, QUADRANTS, SEEN, Advice, advice_for, code, gravity
from synth.report.cards import Card, Example, card
from synth.report.charts import letter_bars, stacked
from synth.report.html import Estimate, axis, interval_bar, percent, render, words
from synth.report.snapshot import Changes, changes_of

VOID = ("old_key", "image_count")
"""Flags of a score that means nothing; such a category is shown last and enters no sentence."""
UNREAD = 0.05
"""Share of replies without a letter from which the score of the answered ones is told beside the score."""
_SECTIONS = {
    "gaps": "Where it falls short",
    "alarms": "Alarms",
    "changes": "Against the earlier run",
    "errors": "Why answers are wrong",
    "letters": "Letters it gives",
    "contrast": "Is it in the picture?",
    "categories": "All numbers",
    "readings": "Other ways to count",
    "power": "What a claim needs",
    "routing": "What to send elsewhere",
    "plan": "Training data to make",
    "skills": "By skill",
    "examples": "Wrong answers",
}
"""Anchor → title, in the order of the page; each is the name of a macro of diagnosis_sections.html.j2."""


@dataclass(frozen=True, kw_only=True)
class _Line:
    """One category or skill."""

    it: CategoryProfile
    title: str
    skill: str
    """"" where the name says it already."""
    bar: Markup
    gap: float | None
    way: float | None
    """Share of the way from guessing to people."""
    majority: str
    silent: str
    flags: tuple[str, ...]
    errors: Markup
    kinds: str
    letters: Markup
    favourite: str
    void: str
    """The flag for which the score means nothing; "" where it may be read."""
    unread: bool
    """So many replies hold no letter that the score is as much about reading as about sight."""


@dataclass(frozen=True, kw_only=True)
class _Flag:
    """One entry of the list of flags."""

    title: str
    detail: str
    where: tuple[str, ...]
    advice: Advice


@dataclass(frozen=True, kw_only=True)
class _Contrast:
    """One category against its specialist."""

    it: Contrast
    title: str
    bar: Markup
    said: tuple[tuple[Quadrant, str], ...]
    silent: str


@dataclass(frozen=True, kw_only=True)
class _Page:
    """Everything that the sections print; an empty part has no section."""

    profile: Profile
    lines: tuple[_Line, ...]
    skills: tuple[_Line, ...]
    sentence: str
    also: tuple[str, ...]
    flags: tuple[_Flag, ...]
    kinds: tuple[str, ...]
    lettered: tuple[_Line, ...]
    readings: tuple[_Line, ...]
    powered: tuple[_Line, ...]
    claims: tuple[str, ...]
    """The sizes of change of the power table ("+5", …)."""
    routed: tuple[_Line, ...]
    contrasts: tuple[_Contrast, ...]
    changes: Changes | None
    plan: Plan | None
    examples: tuple[Card, ...]

    @property
    def has_human(self) -> bool:
        """Some category has a published human score."""
        return any(line.it.human is not None for line in self.lines)

    @property
    def n(self) -> int:
        """Scored questions."""
        return sum(line.it.n for line in self.lines)

    @property
    def enough(self) -> str:
        """Which categories could show a change of five points, in words; "" where that was not computed."""
        known = [line for line in self.powered if "+5" in line.it.needed]
        able = [line.title for line in known if line.it.n >= line.it.needed["+5"]]
        if not known:
            return ""
        if not able:
            return "No category has enough questions to show a change of five points."
        return f"{len(able)} of {len(known)} categories can show a change of five points: {', '.join(able)}."

    def has(self, reading: Literal["conflict_letter", "conflict_text", "judged", "harness", "group_accuracy"]) -> bool:
        """Some category was also counted in this way."""
        return any(getattr(line.it, reading) is not None for line in self.readings)

    def meaning(self, kind: str) -> str:
        """A kind of error in words."""
        return ERRORS.get(kind, "The diagnosis names this kind; this page has no sentence for it.")

    def sections(self) -> list[tuple[str, str]]:
        """Anchor and title of each section that has something to say."""
        there: Mapping[str, object] = {
            "gaps": self.n,
            "alarms": self.flags,
            "changes": self.changes,
            "errors": self.kinds,
            "letters": self.lettered,
            "contrast": self.contrasts,
            "categories": self.lines,
            "readings": self.readings,
            "power": self.powered,
            "routing": self.routed,
            "plan": self.plan,
            "skills": self.skills,
            "examples": self.examples,
        }
        return [(anchor, title) for anchor, title in _SECTIONS.items() if there[anchor]]


def write_diagnosis(
    profile: Profile,
    out: Path,
    *,
    examples: Sequence[Example] = (),
    snapshot: Snapshot | None = None,
    contrasts: Sequence[Contrast] = (),
    plan: Plan | None = None,
) -> None:
    """Write the diagnosis of one model as one HTML file, atomically.

    Args:
        profile: of the run.
        out: the HTML file.
        examples: questions that the model got wrong (`synth.report.examples.examples_of`).
        snapshot: what changed since an earlier run.
        contrasts: the same items answered by specialists.
        plan: the training data that the profile asks for.
    """
    page = _page(profile, examples, snapshot, contrasts, plan)
    context: dict[str, object] = {
        "title": f"What {profile.model or 'the model'} can and cannot see",
        "d": page,
        "axis": axis(),
        "summary": interval_bar(
            Estimate(value=profile.macro), chance=profile.chance, human=profile.human, label="mean over the categories"
        ),
    }
    write_text(out, render("diagnosis.html.j2", context))


# ------------------------------------------------------------------------------------------------------------ the page


def _page(
    profile: Profile,
    examples: Sequence[Example],
    snapshot: Snapshot | None,
    contrasts: Sequence[Contrast],
    plan: Plan | None,
) -> _Page:
    lines = tuple(_line(category) for category in sorted(profile.categories, key=_order))
    claims = sorted({claim for line in lines for claim in line.it.needed}, key=lambda claim: (len(claim), claim))
    changes = changes_of(snapshot, profile.categories) if snapshot is not None else None
    compared = tuple(_contrast(contrast) for contrast in contrasts)
    shared = len(profile.skills) < len(profile.categories)
    return _Page(
        profile=profile,
        lines=lines,
        skills=tuple(_line(skill) for skill in sorted(profile.skills, key=_order)) if shared else (),
        sentence=_sentence(profile, lines),
        also=tuple(_also(lines, changes, contrasts)),
        flags=tuple(_flags(profile.categories)),
        kinds=_kinds(lines),
        lettered=tuple(line for line in lines if line.it.letters and line.it.gold),
        readings=tuple(line for line in lines if line.it.n and _has_readings(line.it)),
        powered=tuple(line for line in lines if line.it.needed and not line.void),
        claims=tuple(claims),
        routed=tuple(line for line in lines if line.it.name in profile.routing),
        contrasts=compared,
        changes=changes,
        plan=plan,
        examples=tuple(card(example) for example in examples),
    )


def _shortfall(it: CategoryProfile) -> float:
    return it.top - it.accuracy


def _order(it: CategoryProfile) -> tuple[bool, bool, float, str]:
    return (it.n == 0, bool(_void(it)), -_shortfall(it), it.name)


def _void(it: CategoryProfile) -> str:
    return next((words(code(flag)) for flag in it.flags if code(flag) in VOID), "")


def _line(it: CategoryProfile) -> _Line:
    errors = _in_order(it.errors)
    return _Line(
        it=it,
        title=words(it.name),
        skill="" if code(it.skill) in code(it.name) else words(it.skill),
        bar=_bar(it) if it.n else Markup(""),
        gap=None if it.human is None or not it.n else it.human - it.accuracy,
        way=normalised(it.accuracy, it.chance, it.top) if it.n and it.top > it.chance else None,
        majority=f"{it.majority_letter}: {percent(it.majority_share)}" if it.majority_letter else "–",
        silent=_counted(it.reasons),
        flags=tuple(words(flag.split(":", 1)[0]) for flag in sorted(it.told_flags, key=gravity)),
        errors=stacked(errors, it.n, label=words(it.name)) if errors and it.n else Markup(""),
        kinds=", ".join(f"{n} {kind.replace('_', ' ')}" for kind, n in errors.items()),
        letters=letter_bars(it.letters, it.gold, label=words(it.name)) if it.letters and it.gold else Markup(""),
        favourite=_favourite(it),
        void=_void(it),
        unread=it.n - it.n_answered >= UNREAD * it.n > 0,
    )


def _bar(it: CategoryProfile) -> Markup:
    at = Estimate(value=it.accuracy, low=it.low, high=it.high)
    return interval_bar(at, chance=it.chance, human=it.human, label=words(it.name))


def _counted(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {reason.replace('_', ' ')}" for reason, n in sorted(reasons.items()) if n)


def _in_order(errors: Mapping[str, int]) -> dict[str, int]:
    """Kinds in the order of the legend, unknown ones last, empty ones left out."""
    return {kind: errors[kind] for kind in [*ERRORS, *sorted(errors.keys() - ERRORS.keys())] if errors.get(kind)}


def _kinds(lines: Sequence[_Line]) -> tuple[str, ...]:
    total: Counter[str] = Counter()
    for line in lines:
        total.update(line.it.errors)
    return tuple(_in_order(total))


def _favourite(it: CategoryProfile) -> str:
    if not it.letters or not it.gold or it.majority_letter is None:
        return ""
    letter, right = it.majority_letter, it.gold.get(it.majority_letter, 0) / sum(it.gold.values())
    return f"Says {letter} in {percent(it.majority_share)} of its answers; {letter} is right in {percent(right)}."


def _has_readings(it: CategoryProfile) -> bool:
    others = (it.conflict_letter, it.conflict_text, it.judged, it.harness, it.group_accuracy)
    return it.n_answered < it.n or any(other is not None for other in others)


# ----------------------------------------------------------------------------------------------------------- sentences


def _sentence(profile: Profile, lines: Sequence[_Line]) -> str:
    if not any(line.it.n for line in lines):
        return "Nothing could be scored: the right answers are not published."
    people = f"; people reach {percent(profile.human)}" if profile.human is not None else ""
    return (
        f"{profile.model or 'The model'} answers {percent(profile.macro)} right, averaged over the categories. "
        f"Guessing would give {percent(profile.chance)}{people}."
    )


def _also(lines: Sequence[_Line], changes: Changes | None, contrasts: Sequence[Contrast]) -> list[str]:
    """What a reader must know besides the score, a sentence each."""
    scored = [line for line in lines if line.it.n and not line.void]
    told = []
    worst = [line for line in scored if _shortfall(line.it) > 0][:3]
    if worst:
        far = "from people" if any(line.it.human is not None for line in worst) else "from all right"
        told.append(f"Furthest {far}: {'; '.join(_against(line) for line in worst)}.")
    lost = [line for line in scored if {"at_chance", "below_chance"} & {code(flag) for flag in line.it.flags}]
    if lost:
        many = f"In {len(lost)} of {len(scored)} categories"
        told.append(f"{many} the score is no better than guessing: {', '.join(line.title for line in lost)}.")
    # A score at chance may be a matter of reading alone.
    unread = [line for line in lost if line.unread and _sees(line.it)]
    if unread:
        parts = "; ".join(f"{line.title}, {percent(line.it.answered)} of {line.it.n_answered}" for line in unread)
        told.append(f"Above guessing after all on the replies that could be read: {parts}.")
    told += _blame(scored)
    if changes is not None:
        told.append(f"Against {changes.it.before}: {changes.sentence}")
    trainable = sum(c.quadrants.get("trainable", 0) for c in contrasts)
    decided = sum(sum(c.quadrants.values()) for c in contrasts)
    if decided:
        told.append(f"Where a specialist could judge, {QUADRANTS['trainable']}: {trainable} of {decided}.")
    void = [f"{line.title} ({line.void.lower()})" for line in lines if line.it.n and line.void]
    if void:
        told.append(f"The mean holds a score that means nothing; these sentences leave it out: {', '.join(void)}.")
    return told


def _sees(it: CategoryProfile) -> bool:
    """The answered items alone are above chance."""
    return wilson(round(it.answered * it.n_answered), it.n_answered)[0] > it.chance


def _against(line: _Line) -> str:
    people = f" against {percent(line.it.human)}" if line.it.human is not None else ""
    return f"{line.title} ({percent(line.it.accuracy)}{people})"


def _blame(lines: Sequence[_Line]) -> list[str]:
    """How many wrong answers say something about sight at all."""
    total: Counter[str] = Counter()
    for line in lines:
        total.update(line.it.errors)
    other = {kind: n for kind, n in _in_order(total).items() if kind not in SEEN}
    if not other:
        return []
    parts = ", ".join(f"{n:,} {kind.replace('_', ' ')}" for kind, n in other.items())
    return [f"Of {total.total():,} wrong answers {sum(other.values()):,} say nothing about sight: {parts}."]


def _flags(categories: Sequence[CategoryProfile]) -> list[_Flag]:
    where: dict[str, list[str]] = {}
    for category in categories:
        for flag in category.told_flags:
            where.setdefault(flag, []).append(words(category.name))
    return [
        _Flag(
            title=words(flag.split(":", 1)[0]),
            detail=flag.partition(":")[2].strip(),
            where=tuple(names),
            advice=advice_for(flag),
        )
        for flag, names in sorted(where.items(), key=lambda entry: gravity(entry[0]))
    ]


def _contrast(it: Contrast) -> _Contrast:
    counts: dict[Quadrant, int] = {
        "trainable": it.quadrants.get("trainable", 0),
        "ambiguous": it.quadrants.get("ambiguous", 0),
        "shortcut": it.quadrants.get("shortcut", 0),
        "solved": it.quadrants.get("solved", 0),
    }
    total = sum(counts.values())
    return _Contrast(
        it=it,
        title=words(it.category),
        bar=stacked({str(quadrant): n for quadrant, n in counts.items()}, total, label=words(it.category)),
        said=tuple((quadrant, f"{QUADRANTS[quadrant]}: {n} of {total}") for quadrant, n in counts.items() if n),
        silent=_counted(it.reasons),
    )
