"""Wrong answers to show: which ones, and as cards."""

from __future__ import annotations

from collections.abc import Sequence

from synth.contracts import BenchmarkData
from synth.diagnosis.statistics import normalised
from synth.geometry import generator
from synth.report.cards import Example
from synth.types import Outcome

LONGEST_REPLY = 280
"""Characters of a reply printed under an example."""


def examples_of(outcomes: Sequence[Outcome], items: BenchmarkData, n: int = 12, seed: int = 0) -> list[Example]:
    """Up to `n` questions that the model got wrong, one a category in turn, the category furthest from all right first.

    Outcomes whose item the benchmark does not hold cannot be shown and are passed over. The same arguments give the
    same examples, whatever the order of the outcomes.
    """
    held = {item.item_id: item for item in items.items}
    scored = {o.item_id: o for o in outcomes if o.correct is not None}
    groups: dict[str, list[Outcome]] = {}
    for item_id in sorted(scored):
        groups.setdefault(scored[item_id].category, []).append(scored[item_id])
    wrong: list[list[Outcome]] = []
    for name in sorted(groups, key=lambda name: (_above_chance(groups[name]), name)):
        rows = [row for row in groups[name] if not row.correct and row.item_id in held]
        order = generator(seed, "examples", name).permutation(len(rows))
        wrong.append([rows[i] for i in order])
    turns = [(place, rank, row) for rank, rows in enumerate(wrong) for place, row in enumerate(rows)]
    chosen = [row for _, _, row in sorted(turns, key=lambda turn: turn[:2])[:n]]
    return [
        Example(
            images=held[row.item_id].images,
            question=held[row.item_id].question,
            choices=held[row.item_id].choices,
            answer=row.gold,
            skill=row.category,
            replies={row.model: row.letter},
            note=_reply_note(row),
        )
        for row in chosen
    ]


def _above_chance(rows: Sequence[Outcome]) -> float:
    chance = sum(1 / row.n_options for row in rows) / len(rows)
    return normalised(sum(bool(row.correct) for row in rows) / len(rows), chance)


def _reply_note(row: Outcome) -> str:
    why = f"No letter: {row.reason.replace('_', ' ')}. " if row.letter is None and row.reason else ""
    text = " ".join((row.text or "").split())
    # Replies reason first and answer last, so both ends are shown.
    half = LONGEST_REPLY // 2
    shown = text if len(text) <= LONGEST_REPLY else f"{text[:half]} … {text[-half:]}"
    # A reply that is the letter alone is on the card already.
    said = f"It replied: “{shown}”" if len(text) > 4 else ""
    return f"{row.item_id}. {why}{said}".strip()
