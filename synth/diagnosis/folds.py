"""Stratified rotation: a fifth of each category is held out of planning, another one each round.

What is planned for is then never what the gain is measured on. The fold of an item is fixed by its id alone and by the
items beside it in the same category, so take the outcomes of a whole run. Items of one group (an image, a pair, the
rotations of one question) stay together. Scheme: Blind-Spots-Bench's rotated 20 % holdout.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from synth.types import Outcome

FOLDS = 5


def fold_for_round(number: int) -> int:
    """The fold that round `number` (0, 1, …) holds out."""
    return number % FOLDS


def folds_of(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """Item id → fold 0..4, in fifths of each category by the rank of a hash (blake2b) of the group or id.

    Fifths of equal size (± 1) where items stand alone; a group goes where its middle lies. Items with a hidden answer
    are divided among themselves.
    """
    strata: dict[tuple[str, bool], dict[str, set[str]]] = {}
    for outcome in outcomes:
        units = strata.setdefault((outcome.category, outcome.gold is None), {})
        units.setdefault(outcome.group or outcome.item_id, set()).add(outcome.item_id)
    folds: dict[str, int] = {}
    for units in strata.values():
        n = sum(map(len, units.values()))
        before = 0
        # Hashed without the category: a group that several categories share falls into about the same fold in all.
        for unit in sorted(units, key=lambda unit: (hashlib.blake2b(unit.encode(), digest_size=16).digest(), unit)):
            fold = FOLDS * (2 * before + len(units[unit])) // (2 * n)
            folds.update(dict.fromkeys(units[unit], fold))
            before += len(units[unit])
    return folds


def planning(outcomes: Sequence[Outcome], number: int) -> list[Outcome]:
    """What round `number` may plan from: everything but its held-out fold."""
    folds = folds_of(outcomes)
    return [outcome for outcome in outcomes if folds[outcome.item_id] != fold_for_round(number)]


def held_out(outcomes: Sequence[Outcome], number: int) -> list[Outcome]:
    """What round `number` is judged on."""
    folds = folds_of(outcomes)
    return [outcome for outcome in outcomes if folds[outcome.item_id] == fold_for_round(number)]
