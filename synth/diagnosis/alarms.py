"""What is wrong with the numbers of a run: flags of a category, and warnings of the whole run, the gravest first.

Thresholds are shares of the items, and ours where no source is named; each is printed beside what it finds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from synth.contracts import Benchmark
from synth.diagnosis.keys import key_note
from synth.diagnosis.statistics import binomial_p, poisson_binomial_p, wilson
from synth.findings import CategoryProfile, Suspect
from synth.types import Outcome

COLLAPSED = 0.90
ONE_LETTER = 0.75
"""Share of the commonest letter among the answered items."""
MANY = 0.10
"""Share of items from which refusals, and cut-off replies, make a score doubtful."""
UNPARSED = 0.05
"""Share of replies without a letter, refusals left out, from which a score is not valid."""
BELOW = 0.01
SKEW = 0.20
"""A constant answer that beats chance by so much shows a skewed key."""
FEW = 30
_LEAST = 10
"""Answered items below which a letter cannot be said to dominate."""


def reason_of(row: Outcome) -> str:
    """Why there is no letter; a hidden key hides that behind `unscored`."""
    reason = row.tags.get("reading", row.reason) if row.reason == "unscored" else row.reason
    return reason or "unknown"


def one_letter(rows: Sequence[Outcome], share: float) -> str | None:
    """The letter that makes up so large a share of the answers, where it does not do so in the key, too."""
    letters = Counter(row.letter for row in rows if row.letter is not None)
    gold = Counter(row.gold for row in rows if row.gold is not None)
    if letters.total() < _LEAST:
        return None
    # A model that is right about a key of one letter has not collapsed; the key is skewed, and that is another flag.
    letter, count = letters.most_common(1)[0]
    return letter if count >= share * letters.total() and gold[letter] < share * max(1, gold.total()) else None


def flags_of(scored: Sequence[Outcome], seen: Sequence[Outcome], suspects: Sequence[Suspect] = ()) -> tuple[str, ...]:
    """The flags of one category. `seen`: the scored items, or all where the key is hidden."""
    shares = (("collapsed", COLLAPSED), ("one_letter", ONE_LETTER))
    flags = [flag for flag, share in shares if one_letter(seen, share) is not None]
    reasons = Counter(reason_of(row) for row in seen if row.letter is None)
    silent = {
        "refuses": (reasons["refusal"], MANY),
        "unparsed": (reasons.total() - reasons["refusal"], UNPARSED),
        "truncated": (reasons["truncated"], MANY),
        "conflict": (reasons["conflict"], UNPARSED),
    }
    flags += [flag for flag, (n, share) in silent.items() if n and n >= share * len(seen)]
    if any("n_images_mismatch" in row.tags for row in seen):
        flags.append("image_count")
    flags += _score_flags(scored, suspects) if scored else ["unscored"]
    return tuple(flags)


def _score_flags(scored: Sequence[Outcome], suspects: Sequence[Suspect]) -> Iterator[str]:
    # Refusals alone can push a score under chance; what points to a wrong key is the answered items.
    answered = [row for row in scored if row.letter is not None]
    right = sum(row.correct is True for row in answered)
    if answered and poisson_binomial_p(right, [1 / row.n_options for row in answered], "less") < BELOW:
        yield "below_chance"
    chance = sum(1 / row.n_options for row in scored) / len(scored)
    low, high = wilson(right, len(scored))
    if low <= chance <= high:
        yield "at_chance"
    count = max(Counter(row.gold for row in scored).values())
    if count / len(scored) >= chance + SKEW and binomial_p(count, len(scored), chance) < BELOW:
        yield "gold_skew"
    if len(scored) < FEW:
        yield "few_items"
    if key_note(scored).superseded:
        yield "old_key"
    if any(_harness_differs(row) for row in scored):
        yield "harness_differs"
    doubted = {suspect.item_id for suspect in suspects}
    if any(row.item_id in doubted for row in scored):
        yield "suspect_labels"


def _harness_differs(row: Outcome) -> bool:
    return None not in (row.harness_correct, row.correct) and row.harness_correct is not row.correct


# ------------------------------------------------------------------------------------------------------------ warnings


def warnings_of(
    outcomes: Sequence[Outcome],
    twice: int,
    categories: Sequence[CategoryProfile],
    benchmark: Benchmark | None,
    missing: Mapping[str, Sequence[str]],
) -> Iterator[str]:
    """Sentences about a run. `twice` counts the replies that a later one replaced; `missing`: category → item ids."""
    scored = [outcome for outcome in outcomes if outcome.correct is not None]
    yield from _harness(scored)
    if twice:
        yield f"{twice} items come twice; the last reply of each counts"
    if len(scored) < len(outcomes):
        yield f"{len(outcomes) - len(scored)} items are unscored: their key is hidden"
    yield from _silence(scored)
    yield from _keys(scored)
    yield from _missing(outcomes, categories, benchmark, missing)
    yield from _images(outcomes)
    yield from _circular(categories)
    yield from _readings(outcomes, scored, categories)


def _harness(scored: Sequence[Outcome]) -> Iterator[str]:
    verdicts = [(row.item_id, row.correct is True, row.harness_correct) for row in scored]
    for _, rows in rotations_of(scored):
        word = rows[0].tags.get("rotations_right")
        verdicts.append((rows[0].item_id, all(row.correct for row in rows), None if word is None else word == "yes"))
    known = [(item_id, ours, theirs) for item_id, ours, theirs in verdicts if theirs is not None]
    differing = [(item_id, ours) for item_id, ours, theirs in known if ours is not theirs]
    if differing:
        alone = sum(ours for _, ours in differing)
        item_id, ours = differing[0]
        yield (
            f"the harness's own verdict differs from ours on {len(differing)} of {len(known)} items: {alone} are right "
            f"for us alone, {len(differing) - alone} for it alone (e.g. {item_id}: {'right' if ours else 'wrong'} for "
            "us); compare runs by one of the two"
        )
    failed = sum("judge_failed" in row.tags for row in scored)
    if failed:
        yield f"the harness's judge failed on {failed} of {len(scored)} items: its own verdicts there are no reading"


def rotations_of(scored: Iterable[Outcome]) -> list[tuple[str, list[Outcome]]]:
    """The questions of circular sets, each with its rotations."""
    circular = (row for row in scored if is_circular(row))
    return split_by(circular, lambda row: f"{row.category}: {row.tags.get('question') or row.group or row.item_id}")


def is_circular(row: Outcome) -> bool:
    """One of several rotations of a question's options."""
    return "rotation" in row.tags or "circular" in row.tags


def _silence(scored: Sequence[Outcome]) -> Iterator[str]:
    silent = Counter(reason_of(outcome) for outcome in scored if outcome.letter is None)
    unparsed = silent.total() - silent["refusal"]
    parts = ", ".join(f"{n} {reason}" for reason, n in silent.most_common())
    if unparsed > UNPARSED * len(scored):
        yield (
            f"{100 * unparsed / len(scored):.0f} % of the replies are unparsed: the score is not valid "
            f"({silent.total()} of {len(scored)} without a letter: {parts})"
        )
    elif scored and silent.total() >= MANY * len(scored):
        yield (
            f"{silent.total()} of {len(scored)} replies have no letter ({parts}): read the accuracy of the answered "
            "items beside the score"
        )


def _keys(scored: Sequence[Outcome]) -> Iterator[str]:
    for name, rows in _by_category(scored):
        note = key_note(rows).text
        if note:
            yield f"{name}: {note}"


def _missing(
    outcomes: Sequence[Outcome],
    categories: Sequence[CategoryProfile],
    benchmark: Benchmark | None,
    missing: Mapping[str, Sequence[str]],
) -> Iterator[str]:
    names = set(benchmark.skills) if benchmark is not None else set()
    absent = sorted(names - {category.name for category in categories if category.n})
    if absent and len(absent) < len(names):
        yield f"nothing scored of {', '.join(absent)}: the mean is over the other categories"
    short = [f"{len(ids)} of {name} (e.g. {ids[0]})" for name, ids in sorted(missing.items()) if ids]
    if short:
        yield f"items of the benchmark are missing, which many harnesses count as wrong: {', '.join(short)}"
    unknown = [row for row in outcomes if row.tags.get("item") == "unknown"]
    if unknown:
        yield f"{len(unknown)} of {len(outcomes)} rows are about no item of the benchmark (e.g. {unknown[0].item_id})"
    other = [row for row in outcomes if "file_gold" in row.tags]
    if other:
        yield (
            f"the file's key differs from the benchmark's, which counts, on {len(other)} of {len(outcomes)} items "
            f"(e.g. {other[0].item_id})"
        )


def _images(outcomes: Sequence[Outcome]) -> Iterator[str]:
    fewer = [row for row in outcomes if "n_images_mismatch" in row.tags]
    if fewer:
        first = f"{fewer[0].item_id}: {fewer[0].tags.get('images', 'not the number that it has')}"
        yield (
            f"image count mismatch on {len(fewer)} of {len(outcomes)} items (e.g. {first}): the model did not see what "
            "the question is about"
        )
    for name, rows in _by_category(outcomes):
        layouts = Counter(row.tags.get("layout", "separate") for row in rows)
        if len(layouts) > 1:
            parts = ", ".join(f"{n} {layout}" for layout, n in layouts.most_common())
            yield f"{name}: images in several layouts ({parts}): these are two conditions, profile them apart"


def _circular(categories: Sequence[CategoryProfile]) -> Iterator[str]:
    for it in categories:
        if it.group_accuracy is not None and it.group_chance is not None:
            yield (
                f"{it.name}: circular, {it.n_groups} questions in {it.n} rotations; all rotations right: "
                f"{100 * it.group_accuracy:.1f} % (chance {100 * it.group_chance:.1f}). The accuracy is over the "
                "rotations, which are not independent: its interval is too narrow"
            )


def _readings(
    outcomes: Sequence[Outcome], scored: Sequence[Outcome], categories: Sequence[CategoryProfile]
) -> Iterator[str]:
    for it in categories:
        if it.conflict_letter is not None or it.conflict_text is not None:
            both = " and ".join(
                f"{100 * value:.1f} % by the {word}"
                for word, value in (("letter", it.conflict_letter), ("text", it.conflict_text))
                if value is not None
            )
            yield (
                f"{it.name}: {it.reasons.get('conflict', 0)} replies name a letter and another option's text; counted "
                f"as wrong here ({100 * it.accuracy:.1f} %), it is {both}"
            )
    differing = [outcome for outcome in scored if "released" in outcome.tags]
    if differing:
        ours = sum(outcome.letter is not None for outcome in differing)
        yield (
            f"the file's own letters differ from ours on {len(differing)} of {len(scored)} items: {ours} read otherwise"
            f", {len(differing) - ours} not read"
        )
    noted = sum(outcome.tags.get("reading") == "mark_conflict" for outcome in outcomes)
    if noted:
        yield f"{noted} replies name a mark whose letter is another option's: read by the option's text"


def split_by(outcomes: Iterable[Outcome], key: Callable[[Outcome], str]) -> list[tuple[str, list[Outcome]]]:
    """The outcomes by what `key` says of them, sorted by it."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(key(outcome), []).append(outcome)
    return sorted(groups.items())


def _by_category(outcomes: Iterable[Outcome]) -> list[tuple[str, list[Outcome]]]:
    return split_by(outcomes, lambda outcome: outcome.category)
