"""Outcomes → profile: what a model can and cannot do, by category and by skill, and what is wrong with the numbers.

Accuracy counts an item without a letter as wrong; `answered` leaves it out. Chance is one over the options of each item
(BLINK's is 38.09 % over its tasks, not 25), and the macro figures are unweighted means over the categories, as papers
print them. Items with a hidden key are counted apart and never scored.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from synth.diagnosis.statistics import balanced_accuracy, binomial_p, poisson_binomial_p, wilson
from synth.errors import ResultsError
from synth.findings import CategoryProfile, Profile
from synth.types import Benchmark, JsonValue, Outcome

COLLAPSED = 0.90
ONE_LETTER = 0.75
"""Share of the commonest letter among the answered items."""
MANY = 0.10
"""Share of items from which refusals, and other replies without a letter, make a score doubtful."""
BELOW = 0.01
SKEW = 0.20
"""A constant answer that beats chance by so much shows a skewed key."""
FEW = 30
SUPERSEDED_KEYS = {
    "43d222eccf305c0fe3109074b067153a43c05e64e5593b2bee56ac93810b12d0": (
        "the key is BLINK's Relative_Reflectance of before September 2025, which its authors found wrong and replaced "
        "(zeyofu/BLINK_Benchmark#13): its accuracy means nothing; score the replies again with the present key"
    ),
}
"""sha256 of the sorted `item_id:letter` lines of a category's whole key → what is wrong with it."""


def make_profile(outcomes: Sequence[Outcome], benchmark: Benchmark | None = None, model: str = "") -> Profile:
    """The profile of one model.

    Args:
        outcomes: of one run; where they hold several models, `model` picks one. An item that comes twice counts once,
            with its last reply (result files that a second run appended to).
        benchmark: for human accuracy and for categories that are missing.
        model: the model's name; default: the name in the outcomes.

    Raises ResultsError where there is nothing, or where several models are mixed.
    """
    chosen, name = _of_model(outcomes, model)
    warnings: list[str] = []
    by_id = {outcome.item_id: outcome for outcome in chosen}
    if len(by_id) < len(chosen):
        warnings.append(f"{len(chosen) - len(by_id)} items come twice; the last reply of each counts")
    unique = list(by_id.values())
    human = benchmark.human if benchmark is not None else {}
    categories = tuple(
        _summary(category, rows, human.get(category)) for category, rows in _split(unique, lambda o: o.category)
    )
    skills = tuple(
        _summary(skill, rows, _mean_human(rows, human)) for skill, rows in _split(unique, lambda o: str(o.skill))
    )
    scored = [c for c in categories if c.n]
    n = sum(c.n for c in scored)
    humans = [c.human for c in scored if c.human is not None]
    return Profile(
        benchmark=benchmark.name if benchmark is not None else "",
        model=name,
        macro=_mean(c.accuracy for c in scored),
        micro=sum(c.accuracy * c.n for c in scored) / n if n else 0.0,
        chance=_mean(c.chance for c in scored),
        human=_mean(humans) if humans and len(humans) == len(scored) else None,
        categories=categories,
        skills=skills,
        warnings=(*warnings, *_warnings(unique, categories, benchmark)),
    )


def _of_model(outcomes: Sequence[Outcome], model: str) -> tuple[list[Outcome], str]:
    models = sorted({outcome.model for outcome in outcomes})
    if not models:
        raise ResultsError("no outcomes", fix="is this the run's result file?")
    if len(models) == 1:
        return list(outcomes), model or models[0]
    if model not in models:
        raise ResultsError(f"outcomes of {len(models)} models: {', '.join(models)}", fix="profile one model at a time")
    return [outcome for outcome in outcomes if outcome.model == model], model


def _split(outcomes: Iterable[Outcome], key: Callable[[Outcome], str]) -> list[tuple[str, list[Outcome]]]:
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(key(outcome), []).append(outcome)
    return sorted(groups.items())


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else 0.0


def _mean_human(rows: Sequence[Outcome], human: Mapping[str, float]) -> float | None:
    """Human accuracy over the categories of a skill, weighted by their items; None where one has none."""
    values = [human.get(row.category) for row in rows]
    known = [value for value in values if value is not None]
    return _mean(known) if known and len(known) == len(values) else None


def _summary(name: str, rows: Sequence[Outcome], human: float | None) -> CategoryProfile:
    scored = [row for row in rows if row.correct is not None]
    # Where no key is known, letters and reasons are still worth seeing; nothing else is.
    seen = scored or rows
    letters = Counter(row.letter for row in seen if row.letter is not None)
    right = sum(row.correct is True for row in scored)
    n_answered = sum(row.letter is not None for row in scored)
    low, high = wilson(right, len(scored))
    reasons = Counter(_reason(row) for row in seen if row.letter is None)
    return CategoryProfile(
        name=name,
        skill=Counter(row.skill for row in rows).most_common(1)[0][0],
        n=len(scored),
        accuracy=right / len(scored) if scored else 0.0,
        low=low,
        high=high,
        chance=_mean(1 / row.n_options for row in seen),
        human=human,
        balanced=balanced_accuracy([(row.gold, row.letter) for row in scored if row.gold is not None]),
        answered=right / n_answered if n_answered else 0.0,
        n_answered=n_answered,
        n_unscored=len(rows) - len(scored),
        majority_share=max(letters.values()) / letters.total() if letters else 0.0,
        majority_letter=letters.most_common(1)[0][0] if letters else None,
        reasons=dict(sorted(reasons.items())),
        flags=_flags(scored, seen, letters, reasons),
    )


def _reason(row: Outcome) -> str:
    """Why there is no letter; a hidden key hides that behind `unscored`."""
    reason = row.tags.get("reading", row.reason) if row.reason == "unscored" else row.reason
    return reason or "unknown"


# --------------------------------------------------------------------------------------------------------------- flags


def _flags(
    scored: Sequence[Outcome], seen: Sequence[Outcome], letters: Counter[str], reasons: Counter[str]
) -> tuple[str, ...]:
    flags = []
    gold = Counter(row.gold for row in scored if row.gold is not None)
    top, count = letters.most_common(1)[0] if letters else ("", 0)
    # A model that is right about a key of one letter has not collapsed; the key is skewed, and that is another flag.
    for flag, share in (("collapsed", COLLAPSED), ("one_letter", ONE_LETTER)):
        if letters.total() >= 10 and count >= share * letters.total() and gold[top] < share * max(1, gold.total()):
            flags.append(flag)
    refused = reasons["refusal"]
    if refused >= MANY * len(seen) and refused:
        flags.append("refuses")
    if reasons.total() - refused >= MANY * len(seen) and reasons.total() > refused:
        flags.append("unparsed")
    if reasons["truncated"] >= MANY * len(seen) and reasons["truncated"]:
        flags.append("truncated")
    flags += _score_flags(scored, gold) if scored else ["unscored"]
    return tuple(flags)


def _score_flags(scored: Sequence[Outcome], gold: Counter[str]) -> list[str]:
    flags = []
    # Refusals alone can push a score under chance; what points to a wrong key is the answered items.
    answered = [row for row in scored if row.letter is not None]
    right = sum(row.correct is True for row in answered)
    if answered and poisson_binomial_p(right, [1 / row.n_options for row in answered], "less") < BELOW:
        flags.append("below_chance")
    chance = _mean(1 / row.n_options for row in scored)
    low, high = wilson(right, len(scored))
    if low <= chance <= high:
        flags.append("at_chance")
    count = max(gold.values(), default=0)
    if count / len(scored) >= chance + SKEW and binomial_p(count, len(scored), chance) < BELOW:
        flags.append("gold_skew")
    if len(scored) < FEW:
        flags.append("few_items")
    if _key_note(scored):
        flags.append("old_key")
    return flags


def key_hash(outcomes: Iterable[Outcome]) -> str:
    """Identity of an answer key: sha256 over the sorted `item_id:letter` lines of the items whose answer is known."""
    lines = sorted(f"{outcome.item_id}:{outcome.gold}" for outcome in outcomes if outcome.gold is not None)
    return hashlib.sha256("\n".join(lines).encode("utf-8")).hexdigest()


def _key_note(rows: Sequence[Outcome]) -> str:
    return SUPERSEDED_KEYS.get(key_hash(rows), "")


def _warnings(
    outcomes: Sequence[Outcome], categories: Sequence[CategoryProfile], benchmark: Benchmark | None
) -> list[str]:
    warnings = []
    hidden = sum(c.n_unscored for c in categories)
    if hidden:
        warnings.append(f"{hidden} items are unscored: their key is hidden")
    scored = [outcome for outcome in outcomes if outcome.correct is not None]
    silent = Counter(_reason(outcome) for outcome in scored if outcome.letter is None)
    if scored and silent.total() >= MANY * len(scored):
        parts = ", ".join(f"{n} {reason}" for reason, n in silent.most_common())
        warnings.append(
            f"{silent.total()} of {len(scored)} replies have no letter ({parts}): read the accuracy of the answered "
            "items beside the score"
        )
    differing = [outcome for outcome in scored if "released" in outcome.tags]
    if differing:
        ours = sum(outcome.letter is not None for outcome in differing)
        warnings.append(
            f"the file's own letters differ from ours on {len(differing)} of {len(scored)} items: {ours} read otherwise"
            f", {len(differing) - ours} not read"
        )
    noted = sum(outcome.tags.get("reading") == "mark_conflict" for outcome in outcomes)
    if noted:
        warnings.append(f"{noted} replies name a mark whose letter is another option's: read by the option's text")
    missing = sorted(benchmark.skills.keys() - {c.name for c in categories if c.n}) if benchmark is not None else []
    if missing and len(missing) < len(benchmark.skills if benchmark is not None else {}):
        warnings.append(f"nothing scored of {', '.join(missing)}: the mean is over the other categories")
    for name, rows in _split(scored, lambda outcome: outcome.category):
        note = _key_note(rows)
        if note:
            warnings.append(f"{name}: {note}")
    return warnings


# ---------------------------------------------------------------------------------------------------------------- JSON


def profile_to_json(profile: Profile) -> dict[str, JsonValue]:
    """The content of profile.json."""
    return {
        "benchmark": profile.benchmark,
        "model": profile.model,
        "macro": profile.macro,
        "micro": profile.micro,
        "chance": profile.chance,
        "human": profile.human,
        "categories": {category.name: _to_json(category) for category in profile.categories},
        "skills": {skill.name: _to_json(skill) for skill in profile.skills},
        "warnings": list(profile.warnings),
    }


def _to_json(category: CategoryProfile) -> dict[str, JsonValue]:
    row: dict[str, JsonValue] = {f.name: getattr(category, f.name) for f in fields(category) if f.name != "name"}
    return row | {
        "skill": str(category.skill),
        "reasons": dict(category.reasons),
        "flags": list(category.flags),
    }


_PROFILE = TypeAdapter(Profile)


def profile_from_json(data: Mapping[str, JsonValue]) -> Profile:
    """A profile from the content of profile.json. Raises ResultsError that names the first wrong key."""
    tables = {}
    for key in ("categories", "skills"):
        table = data.get(key)
        if not isinstance(table, Mapping) or not all(isinstance(row, Mapping) for row in table.values()):
            raise ResultsError(f"expected an object of objects under {key!r}", where="profile.json")
        tables[key] = [{"name": name, **row} for name, row in table.items() if isinstance(row, Mapping)]
    try:
        return _PROFILE.validate_python({**data, **tables})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ResultsError(f"{place}: {first['msg']}", where="profile.json", fix="run `s2p diagnose` again") from None


def load_profile(path: Path) -> Profile:
    """Read a profile.json. Raises ResultsError."""
    try:
        data: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ResultsError(f"cannot be read: {error}", where=str(path), fix="run `s2p diagnose` first") from None
    if not isinstance(data, dict):
        raise ResultsError("expected an object", where=str(path), fix="run `s2p diagnose` again")
    try:
        return profile_from_json(data)
    except ResultsError as error:
        raise ResultsError(error.message, where=str(path), fix=error.fix) from None


# --------------------------------------------------------------------------------------------------------------- table

_HEAD = ("category", "n", "accuracy", "95 %", "chance", "human", "gap", "answered", "flags")


def format_table(profile: Profile) -> str:
    """The profile for a terminal: shares in percent, the gap in points to human accuracy (to 100 where unknown)."""
    lines = [_HEAD, *(_line(category) for category in profile.categories)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(_HEAD) - 1)]
    body = []
    for line in lines:
        cells = [line[0].ljust(widths[0]), *(line[i].rjust(widths[i]) for i in range(1, len(widths)))]
        body.append("  ".join([*cells, line[-1]]).rstrip())
    human = f", human {_percent(profile.human)}" if profile.human is not None else ""
    title = f"{profile.model} on {profile.benchmark}" if profile.benchmark else profile.model
    scored = any(category.n for category in profile.categories)
    total = (
        f"mean over categories {_percent(profile.macro)} (over items {_percent(profile.micro)}), "
        f"chance {_percent(profile.chance)}{human}"
        if scored
        else "nothing scored"
    )
    return "\n".join([title, *body, total, *(f"warning: {warning}" for warning in profile.warnings)])


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _line(it: CategoryProfile) -> tuple[str, ...]:
    # `one_letter` is part of `collapsed`; both on a line would say it twice.
    flags = [flag for flag in it.flags if not (flag == "one_letter" and "collapsed" in it.flags)]
    told = " ".join(f"{flag}({it.majority_letter})" if flag in ("collapsed", "one_letter") else flag for flag in flags)
    human = "-" if it.human is None else _percent(it.human)
    if not it.n:
        return (it.name, "0", "-", "-", _percent(it.chance), human, "-", f"0 of {it.n_unscored}", told)
    answered = "all" if it.n_answered == it.n else f"{_percent(it.answered)} of {it.n_answered}"
    gap = (1.0 if it.human is None else it.human) - it.accuracy
    score = (_percent(it.accuracy), f"{_percent(it.low)}-{_percent(it.high)}", _percent(it.chance))
    return (it.name, str(it.n), *score, human, f"{100 * gap:.1f}", answered, told)
