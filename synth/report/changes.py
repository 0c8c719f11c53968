"""What a round changed, ready to print: skill by skill, in strata, in the control arms, and in words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from synth.diagnosis.statistics import corrected
from synth.report.bands import in_order
from synth.report.html import Estimate, Tone, dumbbell, p_value, percent, points, share_bar, spoken, words
from synth.report.lines import Chart, Dot, Series, shares
from synth.report.reading import Round
from synth.report.records import Answer, Cell, Level, QuotaLine

ARMS: dict[str, str] = {
    "shuffled": "This arm was trained in the same way on the same pictures and questions, but with the answers of "
    "the taught skills shuffled. Nothing in it can teach them, so what it gains comes from the form of the questions "
    "or from training as such. What counts is how far the true data go beyond this arm.",
    "grey": "This arm was trained on the same questions and true answers beside grey pictures. What it gains comes "
    "from the form and the wording of the questions.",
    "other": "This arm was trained on as many pairs of other skills. What it gains comes from training as such.",
}
"""What a control arm is for, by a word in its name."""
_ANY_ARM = "This arm was trained without the thing that is supposed to help. It should not gain."

STRATA: dict[str, tuple[str, str, dict[str, str]]] = {
    "nearer_point": (
        "Is the nearer point the lower one in the picture?",
        "In most photos the lower of two points is the nearer one. A model that has learnt only this rule is right "
        "where it holds and wrong where it does not; a model that sees depth is right on both.",
        {"lower": "lower point is nearer", "higher": "higher point is nearer"},
    ),
    "nearer_side": (
        "Is the nearer point the left one in the picture?",
        "The side says nothing about depth. A model that is right on one side and wrong on the other answers another "
        "question, such as which point is further left.",
        {"left": "nearer point is on the left", "right": "nearer point is on the right"},
    ),
    "depth_ratio": (
        "How far apart are the two depths?",
        "The distance of the farther point divided by that of the nearer one: 1.15 means 15% farther. The smaller "
        "the ratio, the harder the question.",
        {},
    ),
}
"""Title, explanation and names of the values of a tag, in the order in which they are shown."""

LEAST_BANDS = 3
"""Bands that make a curve."""

ROLES = {
    "target": ("Taught", "the training data was made for these"),
    "replay": ("Rehearsed", "a few pairs were mixed in, so that the model does not forget them"),
    "untouched": ("Not trained", "no pair was made for these; they should stay where they were"),
    "": ("Skills", "no plan is on record, so it is not known which of them were taught"),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a before/after table."""

    name: str
    title: str
    cell: Cell
    tone: Tone
    bell: Markup
    role: str
    chance: float | None
    kept: str = ""
    """Of a skill that was not taught: kept, undecided, lost, nothing to keep."""
    kept_tone: Tone = "flat"


@dataclass(frozen=True, kw_only=True)
class Group:
    """Rows under one heading."""

    title: str
    about: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, kw_only=True)
class Split:
    """One skill cut by one tag."""

    skill: str
    title: str
    about: str
    rows: tuple[Row, ...]
    taught: bool
    curve: Chart | None
    """Where the values are bands of a measure, three or more: accuracy over the bands."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One control arm."""

    title: str
    about: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, kw_only=True)
class Habit:
    """Which letters a model gave, and which were right."""

    skill: str
    bars: tuple[tuple[str, Markup], ...]


def tone_of(verdict: str) -> Tone:
    """up, down or flat for a verdict of comparison.json; anything that is no clear gain or loss is flat."""
    text = verdict.lower().replace("_", " ")
    if text.startswith(("no ", "not ", "un")):
        return "flat"
    if any(word in text for word in ("improv", "gain", "better", "rose")):
        return "up"
    return "down" if any(word in text for word in ("worse", "regress", "lost", "loss", "declin", "fell")) else "flat"


def sentence_of(row: Row, where: str = "") -> str:
    """What happened to a skill, with its numbers, as one sentence. `where`: extra words behind the number of items."""
    cell = row.cell
    p = corrected(cell.p, cell.p_holm)
    how = "" if cell.p_holm is None else " after correction for the number of skills"
    interval = "" if cell.low is None else f"95% interval {points(cell.low)} to {points(cell.high)}, "
    change = f"{points(cell.delta)} points ({interval}p = {p_value(p)}{how})"
    n = "" if cell.n is None else f" on {cell.n:,} held-out questions{where}"
    if row.tone == "flat":
        span = f"{percent(cell.before)} before, {percent(cell.after)} after"
        return f"There is no evidence that {spoken(row.title)} changed: {span}{n}, {change}."
    verb = "rose" if row.tone == "up" else "fell"
    return f"{row.title} {verb} from {percent(cell.before)} to {percent(cell.after)}{n}: {change}."


def quotas_of(facts: Round) -> tuple[QuotaLine, ...]:
    """What was asked for: the manifest's quotas, which also say what was made, or else the plan's."""
    if facts.manifest is not None and facts.manifest.quotas:
        return facts.manifest.quotas
    return facts.plan.quotas if facts.plan is not None else ()


def roles_of(facts: Round) -> Mapping[str, str] | None:
    """Role by skill, or None where no file tells."""
    quotas = quotas_of(facts)
    targets = facts.comparison.targets if facts.comparison is not None else None
    if not quotas and targets is None:
        return None
    roles = {quota.skill: quota.role for quota in quotas if quota.role != "target"}
    roles |= {quota.skill: quota.role for quota in quotas if quota.role == "target"}
    return roles | dict.fromkeys(targets or (), "target")


def role_of(roles: Mapping[str, str] | None, skill: str) -> str:
    """target, replay, untouched, or "" where roles are unknown."""
    return "" if roles is None else roles.get(skill, "untouched")


def asked_of(facts: Round, skill: str) -> int:
    """Pairs asked for of a skill."""
    return sum(quota.n for quota in quotas_of(facts) if quota.skill == skill)


def _level(facts: Round, skill: str) -> Level:
    return facts.profile.skills.get(skill) or facts.profile.categories.get(skill) or Level()


def _row(name: str, title: str, cell: Cell, role: str, level: Level) -> Row:
    tone = tone_of(cell.verdict)
    return Row(
        name=name,
        title=title,
        cell=cell,
        tone=tone,
        bell=_bell(cell, tone, level, title),
        role=role,
        chance=level.chance,
    )


def row_of(facts: Round, name: str, cell: Cell, role: str) -> Row:
    """A skill's row from its cell."""
    return _row(name, words(name), cell, role, _level(facts, name))


def _bell(cell: Cell, tone: Tone, level: Level, label: str) -> Markup:
    if cell.before is None or cell.after is None:
        return Markup('<span class="muted">no value</span>')
    return dumbbell(
        Estimate(value=cell.before, low=cell.before_low, high=cell.before_high),
        Estimate(value=cell.after, low=cell.after_low, high=cell.after_high),
        tone=tone,
        chance=level.chance,
        human=level.human,
        label=label,
    )


def rows_of(facts: Round, roles: Mapping[str, str] | None) -> list[Row]:
    """One row a skill."""
    if facts.comparison is None:
        return []
    rows = []
    for name, cell in facts.comparison.per_skill.items():
        if cell.gained is None:
            gained, lost = _moves(facts.before, facts.after, name)
            cell = cell.model_copy(update={"gained": gained, "lost": lost})
        row = row_of(facts, name, cell, role_of(roles, name))
        rows.append(_with_kept(row, facts.comparison.retention.get(name)))
    return rows


def _with_kept(row: Row, kept: object) -> Row:
    if not isinstance(kept, Cell) or not kept.kept:
        return row
    tones: dict[str, Tone] = {"kept": "up", "lost": "down"}
    return replace(row, kept=kept.kept, kept_tone=tones.get(kept.kept, "flat"))


def _moves(
    before: Mapping[str, Answer] | None, after: Mapping[str, Answer] | None, skill: str
) -> tuple[int | None, int | None]:
    """Questions of a skill that turned right, and that turned wrong; None without both files."""
    if before is None or after is None:
        return None, None
    both = [(old, after[key]) for key, old in before.items() if old.skill == skill and key in after]
    gained = sum(old.correct is False and new.correct is True for old, new in both)
    return gained, sum(old.correct is True and new.correct is False for old, new in both)


def groups_of(facts: Round, rows: list[Row]) -> tuple[Group, ...]:
    """The rows by what was done to the skill, then what sums them up."""
    groups = [
        Group(title=title, about=about, rows=tuple(row for row in rows if row.role == role))
        for role, (title, about) in ROLES.items()
    ]
    groups.append(Group(title="Together", about="several skills in one number", rows=tuple(_together(facts))))
    return tuple(group for group in groups if group.rows)


def _together(facts: Round) -> Iterable[Row]:
    compared = facts.comparison
    if compared is None:
        return
    # Chance and people differ between the skills, so the summaries show neither.
    for name, cell in compared.retention.items():
        if isinstance(cell, Cell) and name not in compared.per_skill:
            yield _with_kept(_row(name, words(name), cell, "", Level()), cell)
    for name in compared.targets or ():
        if name in compared.held_out:
            yield _row(name, f"{words(name)}, held-out fifth", compared.held_out[name], "", Level())
    whole = compared.overall
    if whole is not None and whole.after is not None:
        yield _row("", "All questions", whole, "", Level())
    if whole is not None and whole.macro_after is not None:
        mean = Cell(
            before=whole.macro_before,
            after=whole.macro_after,
            delta=whole.macro_delta,
            low=whole.macro_low,
            high=whole.macro_high,
        )
        yield _row("", "Mean over the skills", mean, "", Level())


def margin_of(facts: Round) -> float | None:
    """Loss (share) that is allowed to skills that were not taught."""
    return _margin(facts, "margin")


def _margin(facts: Round, name: str) -> float | None:
    margin = facts.comparison.retention.get(name) if facts.comparison is not None else None
    return margin if isinstance(margin, float) else None


def retention_of(facts: Round) -> str:
    """What became of the skills that were not taught, all together, against the allowed loss; "" where not recorded."""
    compared = facts.comparison
    if compared is None:
        return ""
    pooled = [cell for name, cell in compared.retention.items() if name not in compared.per_skill]
    cells = [cell for cell in pooled if isinstance(cell, Cell) and cell.kept]
    if not cells:
        return ""
    cell, margin = cells[0], _margin(facts, "margin_together") or margin_of(facts)
    allowed = f"; a loss of {100 * margin:g} points is allowed" if margin is not None else ""
    numbers = f"{points(cell.delta)} points together (95% interval {points(cell.low)} to {points(cell.high)}{allowed})"
    said = {
        "kept": "What the model could do before, it still can",
        "lost": "Skills that were not taught lost ground",
    }.get(cell.kept, "Whether skills that were not taught lost ground is undecided")
    return f"{said}: {numbers}."


def habits_of(facts: Round, skills: list[str]) -> tuple[Habit, ...]:
    """Letters given before and after, and the right ones, for these skills."""
    if facts.before is None or facts.after is None:
        return ()
    habits = []
    for skill in skills:
        old = [answer for answer in facts.before.values() if answer.skill == skill]
        new = [answer for answer in facts.after.values() if answer.skill == skill]
        lists = (
            ("before", [a.letter for a in old]),
            ("after", [a.letter for a in new]),
            ("right answers", [a.gold for a in old if a.gold]),
        )
        bars = tuple((who, share_bar(_tally(letters), label=f"{who}: letters")) for who, letters in lists if letters)
        habits.append(Habit(skill=words(skill), bars=bars))
    return tuple(habits)


def _tally(letters: Iterable[str | None]) -> dict[str, int]:
    named = [letter or "none" for letter in letters]
    return {letter: named.count(letter) for letter in sorted(set(named), key=lambda name: (name == "none", name))}


def splits_of(facts: Round, roles: Mapping[str, str] | None) -> tuple[Split, ...]:
    """Every skill cut by every tag, taught skills first."""
    if facts.comparison is None:
        return ()
    splits = []
    for skill, tags in facts.comparison.strata.items():
        for tag, values in tags.items():
            title, about, names = STRATA.get(tag, (words(tag), "", {}))
            chance = _level(facts, skill).chance
            rows = tuple(
                _row(value, names.get(value, words(value)), values[value], "", Level(chance=chance))
                for value in _ordered(values, names)
            )
            splits.append(
                Split(
                    skill=words(skill),
                    title=title,
                    about=about,
                    rows=rows,
                    taught=role_of(roles, skill) in ("target", ""),
                    curve=_curve(rows, f"{words(skill)}: {words(tag)}", chance) if in_order(values) else None,
                )
            )
    return tuple(sorted(splits, key=lambda split: not split.taught))


def _ordered(values: Collection[str], names: Mapping[str, str]) -> Sequence[str]:
    """As named, or as bands from low to high, or yes before no."""
    if values and set(values) <= set(names):
        return [value for value in names if value in values]
    return in_order(values) or sorted(values, reverse=set(values) == {"yes", "no"})


def _curve(rows: Sequence[Row], title: str, chance: float | None) -> Chart | None:
    """Accuracy before and after over bands; None for fewer than three."""
    if len(rows) < LEAST_BANDS or any(row.cell.before is None or row.cell.after is None for row in rows):
        return None
    cells = [row.cell for row in rows]
    before = [Dot(x=i, y=c.before or 0.0, low=c.before_low, high=c.before_high) for i, c in enumerate(cells)]
    after = [Dot(x=i, y=c.after or 0.0, low=c.after_low, high=c.after_high) for i, c in enumerate(cells)]
    lines = [
        Series(name="before", style="before", dots=tuple(before)),
        Series(name="after", style="after", dots=tuple(after)),
    ]
    return shares(title, lines, [row.title for row in rows], chance=chance)


def arms_of(facts: Round, roles: Mapping[str, str] | None) -> tuple[Arm, ...]:
    """The control arms, taught skills first."""
    if facts.comparison is None:
        return ()
    arms = []
    for name, cells in facts.comparison.controls.items():
        rows = [row_of(facts, skill, cell, role_of(roles, skill)) for skill, cell in cells.items()]
        rows.sort(key=lambda row: row.role != "target")
        about = next((text for word, text in ARMS.items() if word[:7] in name.lower()), _ANY_ARM)
        arms.append(Arm(title=words(name), about=about, rows=tuple(rows)))
    return tuple(arms)
