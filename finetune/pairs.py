"""Preference pairs from rows: the right letter, and the wrong one that is most like it.

A number's rejected answer is the nearest other number, an order's the one with most pairs in place, a mark's the
nearest other mark in the same picture (a pair of points: the other point). Where options lie on no scale, one of the
wrong ones is drawn by (seed, row).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from finetune.rewards import nearness
from synth.dataset.prompt import completion_messages
from synth.errors import DatasetError
from synth.geometry import generator
from synth.types import LETTERS

if TYPE_CHECKING:
    from datasets import Dataset

Kind: TypeAlias = Literal["only", "scale", "mark", "drawn"]
"""only: there is one wrong option; scale: the nearest; mark: the nearest mark; drawn: any, by the seed."""
PAIR_COLUMNS = ("images", "prompt", "chosen", "rejected")


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """A wrong answer and how it was found."""

    letter: str
    kind: Kind


def rejected(qa_id: str, choices: Sequence[str], answer: str, provenance: str, seed: int) -> Rejected:
    """The wrong option of a row. `provenance`: the row's JSON, or "" where it has none."""
    wrong = [letter for letter in LETTERS[: len(choices)] if letter != answer]
    if not wrong:
        raise DatasetError("a question with one option has no wrong answer", where=f"row {qa_id}")
    if len(wrong) == 1:
        return Rejected(letter=wrong[0], kind="only")
    rng = generator(seed, "rejected", qa_id)
    shuffled = [wrong[i] for i in rng.permutation(len(wrong))]
    near = nearness(choices, answer)
    if near is not None:
        return Rejected(letter=max(shuffled, key=near.__getitem__), kind="scale")
    gaps = _gaps(choices, answer, provenance)
    if gaps is not None:
        return Rejected(letter=min(shuffled, key=gaps.__getitem__), kind="mark")
    return Rejected(letter=shuffled[0], kind="drawn")


def preference_pairs(rows: Dataset, seed: int) -> tuple[Dataset, Mapping[Kind, int]]:
    """Rows with `chosen` and `rejected` for TRL's DPO trainer, and how many of each kind were made."""
    found = [
        rejected(row["qa_id"], row["choices"], row["answer"], row.get("provenance") or "", seed)
        for row in rows.remove_columns(["images"])
    ]
    kinds = Counter(pair.kind for pair in found)
    pairs = rows.rename_column("completion", "chosen").add_column(
        "rejected", [completion_messages(pair.letter) for pair in found], feature=rows.features["completion"]
    )
    return pairs.select_columns(list(PAIR_COLUMNS)), dict(kinds)


def _gaps(choices: Sequence[str], answer: str, provenance: str) -> Mapping[str, float] | None:
    """Distance in pixels of each option's mark from the right one's, where each option names one mark of a picture."""
    if not provenance:
        return None
    for panel in json.loads(provenance).get("panels", []):
        places = {mark["label"]: (float(mark["x"]), float(mark["y"])) for mark in panel["marks"]}
        named = [[label for label in places if re.search(rf"\b{re.escape(label)}\b", choice)] for choice in choices]
        if all(len(labels) == 1 for labels in named):
            x, y = places[named[LETTERS.index(answer)][0]]
            where = [places[labels[0]] for labels in named]
            return {LETTERS[i]: ((u - x) ** 2 + (v - y) ** 2) ** 0.5 for i, (u, v) in enumerate(where)}
    return None
