"""Two models on the same items: pairs, their counts, exact tests and intervals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TypeAlias

from synth.diagnosis.statistics import holm, macro_bootstrap, mcnemar_exact, paired_bootstrap, wilson
from synth.errors import S2PError
from synth.findings import Cell, Verdict
from synth.geometry import generator
from synth.types import JsonValue, Outcome

Pair: TypeAlias = tuple[Outcome, Outcome]
"""One item before and after."""

MOST_VALUES = 8
"""Values of a tag up to which it is a stratum; beyond, it is a measurement or a name."""
LEAST_STRATUM = 10
"""Items below which a stratum says nothing."""


def paired(before: Sequence[Outcome], after: Sequence[Outcome], name: str) -> tuple[list[Pair], int]:
    """Scored items in the order of `before`, and the number of those without an answer key.

    Raises S2PError when the item sets, the skills or the keys differ.
    """
    old, new = _by_id(before, "before"), _by_id(after, name)
    if old.keys() != new.keys():
        only_old, only_new = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
        example = (only_old + only_new)[0]
        raise S2PError(
            f"not the same items: {len(only_old)} only before, {len(only_new)} only in {name} (e.g. {example})",
            where=name,
            fix="evaluate both models on the same benchmark and revision",
        )
    pairs = [(outcome, new[item_id]) for item_id, outcome in old.items()]
    for a, b in pairs:
        if a.gold != b.gold or a.skill != b.skill or (a.correct is None) != (b.correct is None):
            raise S2PError(
                f"the key of item {a.item_id} differs: {a.gold} ({a.skill}) before, {b.gold} ({b.skill}) in {name}",
                where=name,
                fix="evaluate both models on the same benchmark and revision",
            )
    scored = [pair for pair in pairs if pair[0].correct is not None]
    if not scored:
        raise S2PError("no scored items", where=name)
    return scored, len(pairs) - len(scored)


def _by_id(outcomes: Sequence[Outcome], name: str) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {}
    for outcome in outcomes:
        if outcome.item_id in found:
            raise S2PError(
                f"two outcomes of item {outcome.item_id}", where=name, fix="give one evaluation of one model"
            )
        found[outcome.item_id] = outcome
    return found


def by_skill_of(pairs: Sequence[Pair]) -> dict[str, list[Pair]]:
    """Pairs by skill, in alphabetical order."""
    groups: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        groups[str(pair[0].skill)].append(pair)
    return dict(sorted(groups.items()))


def deltas_of(pairs: Sequence[Pair]) -> tuple[list[float], list[str]]:
    """Change of each item (-1, 0, 1) and its group."""
    return [float(bool(b.correct)) - float(bool(a.correct)) for a, b in pairs], [a.group for a, _ in pairs]


def cell_of(pairs: Sequence[Pair], seed: int, *names: str) -> Cell:
    """Counts, test and interval of some pairs; `names` seed the bootstrap, so no cell depends on another."""
    n = len(pairs)
    old, new = sum(bool(a.correct) for a, _ in pairs), sum(bool(b.correct) for _, b in pairs)
    deltas, groups = deltas_of(pairs)
    gained, lost = deltas.count(1.0), deltas.count(-1.0)
    low, high = paired_bootstrap(deltas, groups, generator(seed, "compare", *names))
    before, after = wilson(old, n), wilson(new, n)
    return Cell(
        n=n,
        before=old / n,
        after=new / n,
        delta=(new - old) / n,
        low=low,
        high=high,
        gained=gained,
        lost=lost,
        p=mcnemar_exact(gained, lost),
        before_low=before[0],
        before_high=before[1],
        after_low=after[0],
        after_high=after[1],
    )


def judged(cells: Mapping[str, Cell], alpha: float) -> dict[str, Cell]:
    """The cells of one family of tests, corrected together and with verdicts."""
    corrected = holm([cell.p for cell in cells.values()])
    return {
        name: replace(cell, p_holm=p, verdict=_verdict(cell, p, alpha))
        for (name, cell), p in zip(cells.items(), corrected, strict=True)
    }


def _verdict(cell: Cell, p: float, alpha: float) -> Verdict:
    if p < alpha and cell.low > 0:
        return "improved"
    return "regressed" if p < alpha and cell.high < 0 else "no evidence"


def cells_of(groups: Mapping[str, Sequence[Pair]], alpha: float, seed: int, *names: str) -> dict[str, Cell]:
    """One cell a group; the groups are one family of tests."""
    return judged({name: cell_of(pairs, seed, *names, name) for name, pairs in groups.items()}, alpha)


def cells_json(cells: Mapping[str, Cell]) -> dict[str, JsonValue]:
    """Cells as plain values, by name."""
    return {name: asdict(cell) for name, cell in cells.items()}


def points_between(low: float, high: float) -> str:
    """An interval of a change, in points."""
    return f"[{100 * low:+.1f}, {100 * high:+.1f}]"


def macro_of(by_skill: Mapping[str, Sequence[Pair]], seed: int) -> tuple[float, float, float, float, float]:
    """Unweighted mean over the skills: before, after, delta, and the 95 % interval of delta."""
    before = [sum(bool(a.correct) for a, _ in pairs) / len(pairs) for pairs in by_skill.values()]
    after = [sum(bool(b.correct) for _, b in pairs) / len(pairs) for pairs in by_skill.values()]
    low, high = macro_bootstrap([deltas_of(pairs) for pairs in by_skill.values()], generator(seed, "compare", "macro"))
    first, second = sum(before) / len(before), sum(after) / len(after)
    return first, second, second - first, low, high


def strata_of(pairs: Sequence[Pair], skill: str, alpha: float, seed: int) -> dict[str, dict[str, Cell]]:
    """Tag -> value -> cell, for tags with a few values; the values of a tag are one family of tests."""
    tables: dict[str, dict[str, Cell]] = {}
    for tag in sorted({tag for a, _ in pairs for tag in a.tags}):
        values: dict[str, list[Pair]] = defaultdict(list)
        for pair in pairs:
            if tag in pair[0].tags:
                values[pair[0].tags[tag]].append(pair)
        enough = {value: members for value, members in sorted(values.items()) if len(members) >= LEAST_STRATUM}
        if len(enough) > 1 and len(values) <= MOST_VALUES:
            tables[tag] = cells_of(enough, alpha, seed, "stratum", skill, tag)
    return tables
