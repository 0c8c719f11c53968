"""Many runs of one benchmark: models by categories, like beside like, and what all of them miss.

Categories are clustered by how far above chance each model is on them (root mean square distance over the models),
models by their errors (share of common items on which exactly one of two is right); both by average linkage with
optimal leaf order (Bar-Joseph et al. 2001, "Fast optimal leaf ordering for hierarchical clustering").
"""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from synth.contracts import Benchmark
from synth.diagnosis.profile import make_profile
from synth.diagnosis.statistics import holm, normalised, poisson_binomial_p
from synth.errors import ResultsError
from synth.findings import CategoryProfile, Matrix, Suspect
from synth.types import JsonValue, Outcome

ALPHA = 0.05
ALIKE = 0.20
"""Mean distance below which categories are one cluster. Two categories of 130 items with two options lie 0.12 apart by
sampling alone."""
LEAST_VOTES = 4
AGREEMENT = 0.80
"""Models with a letter that an item needs, and the share of them behind one wrong letter, to put its key in doubt."""
NOT_TRUTH = (
    "Agreement does not prove a key wrong: models learn from the same data and err alike; look at the item before you "
    "change anything"
)
_SHOWN = 10
"""Suspects that a terminal shows; matrix.json holds all."""
WIDTH = 120
"""Columns of a terminal."""
_NO_COMMON = 1.0
"""Distance of two models, or categories, that share nothing by which to compare them."""

Distances = npt.NDArray[np.float64]
"""Symmetric, shape (n, n), zero diagonal."""


@dataclass(frozen=True, kw_only=True)
class _Run:
    """One model's trustworthy cells, by category."""

    name: str
    cells: dict[str, CategoryProfile]
    items: dict[str, dict[str, Outcome]]
    """Category → item id → outcome, scored items only; the same categories as `cells`."""

    def drop(self, category: str) -> None:
        """Leave one cell out."""
        del self.cells[category], self.items[category]


def make_matrix(
    runs: Mapping[str, Sequence[Outcome]], benchmark: Benchmark | None = None, alpha: float = ALPHA
) -> Matrix:
    """Models by categories.

    Args:
        runs: name → outcomes of one model on one benchmark. Items with a hidden key are left out.
        benchmark: for human accuracy.
        alpha: of the exact tests against chance; all cells are one family, corrected by Holm.

    A cell whose key is known to be void, or differs from the key of most runs, has no value, and a run without any
    value is left out; `warnings` says so. Raises ResultsError where nothing can be scored.
    """
    found = [_run(name, outcomes, benchmark) for name, outcomes in runs.items()]
    warnings = _drop_untrusted(found)
    table = {run.name: run for run in found if run.cells}
    warnings += [f"{run.name}: nothing to score, left out" for run in found if not run.cells]
    if not table:
        raise ResultsError("no scored items with a key to trust", where="; ".join(warnings), fix="give scored results")
    models = _ordered_models(list(table.values()))
    categories, clusters = _ordered_categories(list(table.values()))
    warnings += _unequal(list(table.values()), categories)
    suspects, by_chance = _suspects(list(table.values()))
    if suspects:
        warnings.append(
            f"{len(suspects)} keys are suspect; {by_chance:.0f} would be if the models erred independently. {NOT_TRUTH}"
        )
    rows = [table[name] for name in models]
    columns = [[run.cells[c] for run in rows if c in run.cells] for c in categories]
    return Matrix(
        models=tuple(models),
        categories=tuple(categories),
        accuracy=tuple(tuple(r.cells[c].accuracy if c in r.cells else None for c in categories) for r in rows),
        above_chance=tuple(tuple(_above(r.cells[c]) if c in r.cells else None for c in categories) for r in rows),
        collapsed=tuple(tuple(c in r.cells and _is_collapsed(r.cells[c]) for c in categories) for r in rows),
        macro=tuple(_macro(run) for run in rows),
        n=tuple(max(cell.n for cell in column) for column in columns),
        chance=tuple(_mean(cell.chance for cell in column) for column in columns),
        human=tuple(column[0].human for column in columns),
        clusters=tuple(clusters),
        missed_by_all=_missed_by_all(rows, categories, alpha),
        missed_items={c: missed for c in categories if (missed := _missed_items(rows, c))},
        suspects=tuple(suspects),
        warnings=tuple(warnings),
    )


# ------------------------------------------------------------------------------------------------ what may be compared


def _run(name: str, outcomes: Sequence[Outcome], benchmark: Benchmark | None) -> _Run:
    cells = {it.name: it for it in make_profile(outcomes, benchmark, name).categories if it.n}
    items: dict[str, dict[str, Outcome]] = {category: {} for category in cells}
    for outcome in outcomes:
        if outcome.correct is not None:
            items[outcome.category][outcome.item_id] = outcome
    return _Run(name=name, cells=cells, items=items)


def _drop_untrusted(runs: Sequence[_Run]) -> list[str]:
    """Take out cells with a void key, then those with another key than most; what was taken out and why."""
    warnings = []
    categories = sorted({category for run in runs for category in run.cells})
    for category in categories:
        void = [run for run in runs if category in run.cells and "old_key" in run.cells[category].flags]
        for run in void:
            run.drop(category)
        if void:
            names = ", ".join(run.name for run in void)
            warnings.append(f"{category}: left out for {names}: scored with a key that is known to be wrong")
        holders = [run for run in runs if category in run.cells]
        usual = _usual_key(holders, category)
        for run in holders:
            other = [i for i, outcome in run.items[category].items() if outcome.gold != usual[i]]
            if other:
                run.drop(category)
                warnings.append(
                    f"{category}: left out for {run.name}: {len(other)} right answers differ from those of most runs "
                    f"(e.g. {other[0]})"
                )
    return warnings


def _usual_key(runs: Sequence[_Run], category: str) -> dict[str, str | None]:
    """Each item's right letter in most runs; among equals that of the first."""
    votes: dict[str, Counter[str | None]] = {}
    for run in runs:
        for item_id, outcome in run.items[category].items():
            votes.setdefault(item_id, Counter())[outcome.gold] += 1
    return {item_id: counts.most_common(1)[0][0] for item_id, counts in votes.items()}


def _unequal(runs: Sequence[_Run], categories: Sequence[str]) -> list[str]:
    """Categories in which the models had other items, or were asked otherwise."""
    items, prompts = [], []
    for category in categories:
        held = [run.items[category] for run in runs if category in run.items]
        if any(other.keys() != held[0].keys() for other in held):
            items.append(category)
        asked: dict[str, set[str]] = {}
        for outcome in (outcome for run in held for outcome in run.values() if outcome.prompt_hash):
            asked.setdefault(outcome.item_id, set()).add(outcome.prompt_hash)
        if any(len(hashes) > 1 for hashes in asked.values()):
            prompts.append(category)
    told = (("the runs hold different items", items), ("the models were asked with different prompts", prompts))
    return [f"{what} in {', '.join(names)}: read those columns with care" for what, names in told if names]


# --------------------------------------------------------------------------------------------------- like beside like


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)


def _macro(run: _Run) -> float:
    return _mean(cell.accuracy for cell in run.cells.values())


def _above(cell: CategoryProfile) -> float:
    return normalised(cell.accuracy, cell.chance)


def _is_collapsed(cell: CategoryProfile) -> bool:
    return "collapsed" in cell.flags


def _ordered_models(runs: Sequence[_Run]) -> list[str]:
    """Models that err on the same items side by side; the end with the better model comes first."""
    distances = np.zeros((len(runs), len(runs)))
    for i, j in combinations(range(len(runs)), 2):
        differ = [
            outcome.correct != runs[j].items[category][item_id].correct
            for category, items in runs[i].items.items()
            for item_id, outcome in items.items()
            if item_id in runs[j].items.get(category, {})
        ]
        distances[i, j] = distances[j, i] = _mean(differ) if differ else _NO_COMMON
    order, _ = _clustered(distances, [-_macro(run) for run in runs])
    return [runs[i].name for i in order]


def _ordered_categories(runs: Sequence[_Run]) -> tuple[list[str], list[int]]:
    """Categories that the models fail alike side by side, the end with the worse one first, and their clusters."""
    categories = sorted({category for run in runs for category in run.cells})
    rows = [{c: _above(cell) for c, cell in run.cells.items()} for run in runs]
    distances = np.zeros((len(categories), len(categories)))
    for (i, a), (j, b) in combinations(enumerate(categories), 2):
        squares = [(row[a] - row[b]) ** 2 for row in rows if a in row and b in row]
        distances[i, j] = distances[j, i] = _mean(squares) ** 0.5 if squares else _NO_COMMON
    order, labels = _clustered(distances, [_mean(row[c] for row in rows if c in row) for c in categories])
    # Leaf order keeps a cluster together, so numbers by first appearance rise along the columns.
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels[i] for i in order))}
    return [categories[i] for i in order], [numbers[labels[i]] for i in order]


def _clustered(distances: Distances, rank: Sequence[float]) -> tuple[list[int], list[int]]:
    """Leaf order, turned so that its end of lower rank comes first, and the cluster of each row."""
    if len(distances) == 1:
        return [0], [0]
    from scipy.cluster.hierarchy import fcluster, leaves_list, linkage
    from scipy.spatial.distance import squareform

    tree = linkage(squareform(distances), "average", optimal_ordering=True)
    order = [int(i) for i in leaves_list(tree)]
    if (rank[order[-1]], order[-1]) < (rank[order[0]], order[0]):
        order.reverse()
    return order, [int(label) for label in fcluster(tree, ALIKE, "distance")]


# ------------------------------------------------------------------------------------------------- what all models miss


def _missed_by_all(runs: Sequence[_Run], categories: Sequence[str], alpha: float) -> tuple[str, ...]:
    """Categories in which no model is above chance; every cell of the matrix is one test of the family."""
    tests = [(category, cell.p_chance) for run in runs for category, cell in run.cells.items()]
    corrected = holm([p for _, p in tests])
    seen = {category for (category, _), p in zip(tests, corrected, strict=True) if p < alpha}
    return tuple(category for category in categories if category not in seen)


def _missed_items(runs: Sequence[_Run], category: str) -> tuple[str, ...]:
    """Items that at least two models were scored on and none answers rightly."""
    verdicts: dict[str, list[bool]] = {}
    for run in runs:
        for item_id, outcome in run.items.get(category, {}).items():
            verdicts.setdefault(item_id, []).append(outcome.correct is True)
    return tuple(sorted(item_id for item_id, right in verdicts.items() if len(right) > 1 and not any(right)))


def _suspects(runs: Sequence[_Run]) -> tuple[list[Suspect], float]:
    """Items whose key most answering models contradict with one letter, the surest first, and how many there would be
    if the models erred independently of each other.

    A model that gives the same letter to everything in a category has no vote there.
    """
    suspects, by_chance = [], 0.0
    for category in sorted({category for run in runs for category in run.items}):
        votes: dict[str, list[tuple[Outcome, float]]] = {}
        for run in runs:
            if category in run.cells and not _is_collapsed(run.cells[category]):
                error = 1 - run.cells[category].answered
                for item_id, outcome in run.items[category].items():
                    if outcome.letter is not None:
                        votes.setdefault(item_id, []).append((outcome, error))
        for item_id, cast in votes.items():
            least = max(math.ceil(AGREEMENT * len(cast)), LEAST_VOTES)
            if least > len(cast):
                continue
            gold, wrong = cast[0][0].gold or "", cast[0][0].n_options - 1
            by_chance += wrong * poisson_binomial_p(least, [error / wrong for _, error in cast]) if wrong else 0.0
            said, agree = Counter(outcome.letter or "" for outcome, _ in cast).most_common(1)[0]
            if said != gold and agree >= least:
                suspects.append(
                    Suspect(item_id=item_id, category=category, gold=gold, said=said, agree=agree, answered=len(cast))
                )
    suspects.sort(key=lambda it: (-it.agree / it.answered, -it.agree, it.category, it.item_id))
    return suspects, by_chance


# -------------------------------------------------------------------------------------------------------------- output


def matrix_to_json(matrix: Matrix) -> dict[str, JsonValue]:
    """The content of matrix.json: as the record; `models` are the rows, `categories` the columns."""
    return asdict(matrix)


def format_matrix(matrix: Matrix) -> str:
    """The matrix for a terminal, turned so that names fit: a line a category, a column a model, accuracy in percent.

    `=` marks a cell in which the model gives nearly always the same letter, `-` one without a value.
    """
    heads = [f"({i})" for i in range(1, len(matrix.models) + 1)]
    width = max(8, *map(len, matrix.categories))
    lines = [
        f"{head} {name}: mean {100 * macro:.1f}"
        for head, name, macro in zip(heads, matrix.models, matrix.macro, strict=True)
    ]
    lines.append(f"{'category':<{width}}{'like':>5}{'n':>6}{'chance':>8}" + "".join(f"{head:>7}" for head in heads))
    for j, category in enumerate(matrix.categories):
        cells = "".join(_value(row[j], same[j]) for row, same in zip(matrix.accuracy, matrix.collapsed, strict=True))
        blind = "  all at chance" if category in matrix.missed_by_all else ""
        label = chr(ord("a") + matrix.clusters[j] % 26)
        lines.append(
            f"{category:<{width}}{label:>5}{matrix.n[j]:>6}{100 * matrix.chance[j]:>8.1f}{cells}{blind}".rstrip()
        )
    missed = sum(map(len, matrix.missed_items.values()))
    lines.append(
        f"{missed} of {sum(matrix.n)} items are missed by every model; {len(matrix.suspects)} keys are suspect"
    )
    lines += [
        f"suspect key: {it.item_id}: {it.agree} of {it.answered} say {it.said}, the key {it.gold}"
        for it in matrix.suspects[:_SHOWN]
    ]
    lines += [textwrap.fill(f"warning: {text}", WIDTH, subsequent_indent="  ") for text in matrix.warnings]
    return "\n".join(lines)


def _value(accuracy: float | None, collapsed: bool) -> str:
    number = "-" if accuracy is None else f"{100 * accuracy:.1f}"
    return f"{number}{'=' if collapsed else ' '}".rjust(7)
