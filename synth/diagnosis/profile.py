"""Outcomes → profile: what a model can and cannot do, by category and by skill, and what is wrong with the numbers.

Accuracy counts an item without a letter as wrong; `answered` leaves it out. Chance is one over the options of each item
(BLINK's is 38.09 % over its tasks, not 25), and the macro figures are unweighted means over the categories, as papers
print them. Items with a hidden key are counted apart and never scored.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from synth.contracts import Benchmark
from synth.diagnosis.alarms import COLLAPSED, flags_of, one_letter, reason_of, rotations_of, split_by, warnings_of
from synth.diagnosis.folds import fold_for_round, planning
from synth.diagnosis.keys import SUPERSEDED_KEYS, key_hash
from synth.diagnosis.profile_json import load_profile, profile_from_json, profile_to_json
from synth.diagnosis.statistics import balanced_accuracy, normalised, paired_sample_size, poisson_binomial_p, wilson
from synth.diagnosis.table import format_table
from synth.errors import ResultsError
from synth.findings import CategoryProfile, Profile, Suspect
from synth.types import Outcome

__all__ = [
    "SUPERSEDED_KEYS",
    "Beside",
    "format_table",
    "key_hash",
    "load_profile",
    "make_profile",
    "profile_from_json",
    "profile_to_json",
]

ROUTING = 0.5
DISCORDANCE = 0.20
"""Share of answers that change between two runs, where it was not measured; two GPT snapshots on BLINK: 8 to 52 %."""
CHANGES = (0.05, 0.10)
_LEAST = 30
"""Common items from which a measured discordance is trusted."""
_UNREAD = ("refusal", "truncated")


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What is known beside the run itself."""

    missing: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Category → items of the benchmark that no outcome is about (`synth.diagnosis.joining.missing`)."""
    suspects: Sequence[Suspect] = ()
    """Items whose key is in doubt, from a matrix of other models."""
    baseline: Sequence[Outcome] = ()
    """An earlier run on the same items: how many answers changed goes into `needed`."""


_NOTHING = Beside()


def make_profile(
    outcomes: Sequence[Outcome],
    benchmark: Benchmark | None = None,
    model: str = "",
    *,
    round_number: int | None = None,
    routing: float = ROUTING,
    beside: Beside = _NOTHING,
) -> Profile:
    """The profile of one model.

    Args:
        outcomes: of one whole run; where they hold several models, `model` picks one. An item that comes twice counts
            once, with its last reply (result files that a second run appended to).
        benchmark: for human accuracy and for categories that are missing.
        model: the model's name; default: the name in the outcomes.
        round_number: leave out the fifth of each category that this round holds out (`synth.diagnosis.folds`), as every
            plan should; None profiles all items.
        routing: a category is listed in `Profile.routing` where its accuracy, from chance (0) to people or to all right
            (1), is below this: a router should send its questions to another model.
        beside: what else is known; without a baseline, `needed` assumes that 20 % of the answers change (at 30 %, half
            as many items more). It holds the items for a power of 80 % at a level of 5 %, two-sided.

    Raises ResultsError where there is nothing, or where several models are mixed.
    """
    chosen, name = _of_model(outcomes, model)
    unique = list({outcome.item_id: outcome for outcome in chosen}.values())
    if round_number is not None:
        unique = planning(unique, round_number)
    human = benchmark.human if benchmark is not None else {}
    categories = tuple(
        _summary(category, rows, human.get(category), beside)
        for category, rows in split_by(unique, lambda o: o.category)
    )
    skills = tuple(
        _summary(skill, rows, _mean_human(rows, human), beside)
        for skill, rows in split_by(unique, lambda o: str(o.skill))
    )
    scored = [c for c in categories if c.n]
    n = sum(c.n for c in scored)
    humans = [c.human for c in scored if c.human is not None]
    twice = len(chosen) - len({outcome.item_id for outcome in chosen})
    return Profile(
        benchmark=benchmark.name if benchmark is not None else "",
        model=name,
        macro=_mean(c.accuracy for c in scored),
        micro=sum(c.accuracy * c.n for c in scored) / n if n else 0.0,
        chance=_mean(c.chance for c in scored),
        human=_mean(humans) if humans and len(humans) == len(scored) else None,
        categories=categories,
        skills=skills,
        warnings=tuple(warnings_of(unique, twice, categories, benchmark, beside.missing)),
        key_hash=key_hash(unique) if scored else "",
        prompt_hash=_prompt_hash(unique),
        routing=tuple(c.name for c in scored if _way(c) < routing),
        fold=None if round_number is None else fold_for_round(round_number),
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


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else 0.0


def _mean_human(rows: Sequence[Outcome], human: Mapping[str, float]) -> float | None:
    """Human accuracy over the categories of a skill, weighted by their items; None where one has none."""
    values = [human.get(row.category) for row in rows]
    known = [value for value in values if value is not None]
    return _mean(known) if known and len(known) == len(values) else None


def _way(it: CategoryProfile) -> float:
    return normalised(it.accuracy, it.chance, it.top)


def _prompt_hash(outcomes: Iterable[Outcome]) -> str:
    lines = sorted(f"{outcome.item_id}:{outcome.prompt_hash}" for outcome in outcomes if outcome.prompt_hash)
    return hashlib.sha256("\n".join(lines).encode("utf-8")).hexdigest() if lines else ""


# ------------------------------------------------------------------------------------------------------- one category


def _summary(name: str, rows: Sequence[Outcome], human: float | None, beside: Beside) -> CategoryProfile:
    scored = [row for row in rows if row.correct is not None]
    # Where no key is known, letters and reasons are still worth seeing; nothing else is.
    seen = scored or rows
    letters = Counter(row.letter for row in seen if row.letter is not None)
    gold = Counter(row.gold for row in scored if row.gold is not None)
    n, right = len(scored), sum(row.correct is True for row in scored)
    n_answered = sum(row.letter is not None for row in scored)
    low, high = wilson(right, n)
    n_groups, group_accuracy, group_chance = _by_group(scored)
    return CategoryProfile(
        name=name,
        skill=Counter(row.skill for row in rows).most_common(1)[0][0],
        n=n,
        accuracy=_share(right, n),
        low=low,
        high=high,
        chance=_mean(1 / row.n_options for row in seen),
        human=human,
        balanced=balanced_accuracy([(row.gold, row.letter) for row in scored if row.gold is not None]),
        answered=_share(right, n_answered),
        n_answered=n_answered,
        n_unscored=len(rows) - n,
        majority_share=_share(max(letters.values(), default=0), letters.total()),
        majority_letter=letters.most_common(1)[0][0] if letters else None,
        reasons=dict(sorted(Counter(reason_of(row) for row in seen if row.letter is None).items())),
        flags=flags_of(scored, seen, beside.suspects),
        letters=dict(sorted(letters.items())),
        gold=dict(sorted(gold.items())),
        constant=_share(max(gold.values(), default=0), n),
        p_chance=poisson_binomial_p(right, [1 / row.n_options for row in scored]) if scored else 1.0,
        errors=_errors(scored, beside.suspects),
        upper=_share(right + n - n_answered, n) if n else 1.0,
        conflict_letter=_rescored(scored, lambda row: row.tags.get("conflict_letter")),
        conflict_text=_rescored(scored, lambda row: row.tags.get("conflict_text")),
        judged=_rescored(scored, lambda row: row.judge),
        harness=_harness(scored),
        needed=_needed(scored, beside.baseline),
        n_groups=n_groups,
        group_accuracy=group_accuracy,
        group_chance=group_chance,
    )


def _share(k: int, n: int) -> float:
    return k / n if n else 0.0


def _rescored(scored: Sequence[Outcome], letter_of: Callable[[Outcome], str | None]) -> float | None:
    """Accuracy where items without a letter take another one; None where there is no other for any."""
    others = [(row, letter_of(row)) for row in scored if row.letter is None]
    if all(letter is None for _, letter in others):
        return None
    right = sum(row.correct is True for row in scored) + sum(letter == row.gold for row, letter in others)
    return right / len(scored)


def _harness(scored: Sequence[Outcome]) -> float | None:
    verdicts = [row.harness_correct for row in scored]
    known = [verdict for verdict in verdicts if verdict is not None]
    return sum(known) / len(known) if known and len(known) == len(verdicts) else None


def _errors(scored: Sequence[Outcome], suspects: Sequence[Suspect]) -> dict[str, int]:
    """Wrong items by kind; their sum is the number of wrong items."""
    doubted = {(suspect.item_id, suspect.said) for suspect in suspects}
    collapsed = one_letter(scored, COLLAPSED)
    kinds: Counter[str] = Counter()
    for row in scored:
        if row.correct:
            continue
        if row.letter is None:
            reason = reason_of(row)
            kinds[reason if reason in _UNREAD else "unparsed"] += 1
        elif row.letter == collapsed:
            kinds["letter_bias"] += 1
        else:
            kinds["suspect_label" if (row.item_id, row.letter) in doubted else "perception"] += 1
    return dict(sorted(kinds.items()))


def _needed(scored: Sequence[Outcome], baseline: Sequence[Outcome]) -> dict[str, int]:
    """Items that a paired change needs; a change that would pass 100 % is left out."""
    old = {row.item_id: row.correct for row in baseline if row.correct is not None}
    changed = [row.correct is not old[row.item_id] for row in scored if row.item_id in old]
    discordance = sum(changed) / len(changed) if len(changed) >= _LEAST else DISCORDANCE
    room = 1 - _mean(float(bool(row.correct)) for row in scored)
    # A change cannot be larger than the share of changed answers.
    return {
        f"+{100 * change:.0f}": paired_sample_size(change, max(change, discordance))
        for change in CHANGES
        if scored and change <= room
    }


def _by_group(scored: Sequence[Outcome]) -> tuple[int, float | None, float | None]:
    """Questions of a circular set, the share of them with all rotations right, and the chance of that."""
    groups = rotations_of(scored)
    if not groups:
        return 0, None, None
    right = _mean(float(all(row.correct for row in rows)) for _, rows in groups)
    return len(groups), right, _mean(math.prod(1 / row.n_options for row in rows) for _, rows in groups)
