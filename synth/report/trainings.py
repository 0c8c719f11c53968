"""All trainings of a round side by side: what differs, what it changed, and how the training went."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from synth.report.changes import Row, row_of
from synth.report.html import number, points, words
from synth.report.lines import Chart, Dot, Series, over_steps, style_of
from synth.report.reading import Round, steps_of
from synth.report.records import Cell, Comparison, TrainRecord

MAIN = "First training"
_NO_MATTER = {
    "allow_uncertified", "benchmark", "control", "dataset", "device", "logging_steps", "model", "out", "save_steps",
    "split", "threads", "workers",
}  # fmt: skip
"""Settings that say where and how fast, not what is learned."""
_CONTROLS = {
    "shuffled": "answers of the taught skills shuffled",
    "grey": "grey pictures instead of the photos",
    "other": "pairs of other skills only",
}
_MOST = 6
"""Differing settings that are named; more are counted."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """One training."""

    title: str
    differs: str
    record: TrainRecord | None
    rows: tuple[Row, ...]
    """One a taught skill."""
    others: Cell | None
    """Skills not taught that the model had, pooled; of further trainings the change only."""
    control: bool


@dataclass(frozen=True, kw_only=True)
class Trainings:
    """The table, the spread of each taught skill in words, and the curves."""

    table: tuple[Training, ...]
    spread: tuple[str, ...]
    curves: tuple[Chart, ...]
    kept: str
    """Which weights were kept where questions held out of the training chose them."""


def trainings_of(facts: Round, taught: Sequence[Row]) -> Trainings:
    """Of a round: its own training first, then further ones on the same data, then the controls."""
    compared = facts.comparison
    records = _records(facts)
    names = [row.name for row in taught]
    table: list[Training] = []
    if compared is not None:
        pool = _pool(compared)
        for key, cells, is_control in _measured(compared):
            table.append(
                Training(
                    title=_title(key),
                    differs=_differs(key, records.get(key), facts.train),
                    record=records.get(key),
                    rows=tuple(row_of(facts, name, cells[name], "target") for name in names if name in cells),
                    others=pooled(cells, pool) if key else _together(compared),
                    control=is_control,
                )
            )
    return Trainings(
        table=tuple(table),
        spread=tuple(_spread(compared)) if compared is not None else (),
        curves=tuple(_curves(records)),
        kept=_kept(records),
    )


def differences(settings: Mapping[str, object], main: Mapping[str, object]) -> list[str]:
    """Settings that differ from the main training's, in words; those that only place or speed the training left out."""
    mine, its = _flat(settings), _flat(main)
    found = []
    stage = str(mine.get("adapter") or "")
    if stage and stage != its.get("adapter"):
        from_main = stage == str(its.get("out"))
        found.append(f"goes on from {'the first training' if from_main else 'the adapter ' + stage}")
    of_method = mine.get("method") != its.get("method")
    for key in sorted(mine.keys() | its.keys(), key=lambda key: (key != "method", key != "seed", key)):
        if key == "adapter" or key.split(".")[0] in _NO_MATTER or mine.get(key) == its.get(key):
            continue
        if of_method and key.startswith(("dpo.", "grpo.")):
            continue  # the first training has none of these
        found.append(f"{key} {number(mine.get(key))} instead of {number(its.get(key))}")
    return found


def pooled(cells: Mapping[str, Cell], names: Collection[str]) -> Cell | None:
    """All questions of these skills together; None unless each of them was measured."""
    found = [cells[name] for name in names if name in cells]
    n = sum(cell.n or 0 for cell in found)
    if not n or len(found) < len(names) or any(cell.n is None or cell.delta is None for cell in found):
        return None
    return Cell(n=n, delta=sum((cell.n or 0) * (cell.delta or 0.0) for cell in found) / n)


def _records(facts: Round) -> dict[str, TrainRecord]:
    """Records by key ("", arms/NAME, controls/NAME), in the order of the comparison."""
    found = {"": facts.train} if facts.train is not None else {}
    found |= {f"arms/{name}": record for name, record in facts.arms.items()}
    found |= {f"controls/{name}": record for name, record in facts.controls.items()}
    order = [] if facts.comparison is None else [key for key, _, _ in _measured(facts.comparison)]
    return {key: found[key] for key in dict.fromkeys([*order, *found]) if key in found}


def _measured(compared: Comparison) -> Iterable[tuple[str, Mapping[str, Cell], bool]]:
    yield "", compared.per_skill, False
    for name, cells in compared.arms.items():
        yield f"arms/{name}", cells, False
    for name, cells in compared.controls.items():
        yield f"controls/{name}", cells, True


def _title(key: str) -> str:
    return words(key.partition("/")[2]) if key else MAIN


def _differs(key: str, record: TrainRecord | None, main: TrainRecord | None) -> str:
    if not key:
        return ""
    mine = record.settings if record is not None else None
    its = main.settings if main is not None else None
    found = None if mine is None or its is None else differences(mine, its)
    control = record.control if record is not None else None
    said = [_CONTROLS.get(control, control)] if control is not None else []
    if found is None:
        return "; ".join(said) or "not on record"
    more = f"; and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return ("; ".join(said + found[:_MOST]) or "nothing") + more


def _flat(settings: Mapping[str, object], before: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{before}{key}.")
        else:
            found[f"{before}{key}"] = value
    return found


def _pool(compared: Comparison) -> list[str]:
    """The skills that the pooled cell of the comparison holds."""
    return [
        name
        for name, cell in compared.retention.items()
        if isinstance(cell, Cell) and name in compared.per_skill and cell.kept != "nothing to keep"
    ]


def _together(compared: Comparison) -> Cell | None:
    found = [cell for name, cell in compared.retention.items() if name not in compared.per_skill]
    return next((cell for cell in found if isinstance(cell, Cell)), None)


def _spread(compared: Comparison) -> Iterable[str]:
    for skill, it in compared.spread.items():
        yield (
            f"{words(skill)} over {it.n} seeds: {points(it.mean)} points on average, "
            f"from {points(it.least)} to {points(it.most)} (standard deviation {100 * it.sd:.1f}); improved after "
            f"{it.improved} of them."
        )


# ---------------------------------------------------------------------------------------------------------- curves


def _curves(records: Mapping[str, TrainRecord]) -> Iterable[Chart]:
    styles = {key: style_of(index) for index, key in enumerate(records)}

    def lines(values: Mapping[str, Sequence[tuple[float, float]]]) -> list[Series]:
        return [
            Series(name=_title(key), style=styles[key], dots=tuple(Dot(x=step, y=value) for step, value in found))
            for key, found in values.items()
        ]

    methods = dict.fromkeys(record.method for record in records.values())
    # A loss of GRPO stays near 0 whatever is learned: its reward is what rises.
    by_loss = [method for method in methods if method != "grpo"]
    for method in by_loss:
        losses = {key: steps_of(record.losses) for key, record in records.items() if record.method == method}
        name = "Training loss" if len(by_loss) == 1 else f"Training loss ({method.upper()})"
        yield from _drawn(over_steps(name, lines(losses), y="loss"))
    rewards = {key: record.rewards for key, record in records.items() if record.rewards}
    yield from _drawn(over_steps("Reward of the replies (GRPO)", lines(rewards), y="mean reward"))
    dev = {key: record.dev.accuracy for key, record in records.items() if record.dev is not None}
    yield from _drawn(over_steps("Questions kept out of the training", lines(dev), y="answered right", top=1.0))


def _drawn(chart: Chart | None) -> Iterable[Chart]:
    return () if chart is None else (chart,)


def _kept(records: Mapping[str, TrainRecord]) -> str:
    chosen = [
        f"{_title(key)}: step {record.dev.best_step}"
        for key, record in records.items()
        if record.dev is not None and record.dev.best_step is not None
    ]
    return f"Weights kept, chosen on these questions: {'; '.join(chosen)}." if chosen else ""
