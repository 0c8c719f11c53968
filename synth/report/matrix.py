"""The page of many models: a heat map of models by categories, what all of them miss, and labels to doubt."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from synth.files import write_text
from synth.findings import Matrix
from synth.report.charts import Shade, shade
from synth.report.html import percent, render, words

SHOWN = 200
"""Items listed under one heading; the counts are of all."""
_SCALE = (
    ("40% below guessing", -0.4),
    ("20% below", -0.2),
    ("guessing", 0.0),
    ("25%", 0.25),
    ("50%", 0.5),
    ("75%", 0.75),
    ("all right", 1.0),
)


@dataclass(frozen=True, kw_only=True)
class _Square:
    """One model on one category."""

    text: str
    said: str
    """For the pointer and for screen readers."""
    shade: Shade
    collapsed: bool


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One category over all models."""

    name: str
    title: str
    n: int
    chance: float
    human: float | None
    squares: tuple[_Square, ...]
    missed: bool
    """No model is above chance."""


@dataclass(frozen=True, kw_only=True)
class _Missed:
    """Items of one category that no model answers rightly."""

    title: str
    total: int
    n: int
    shown: tuple[str, ...]


def write_matrix(matrix: Matrix, out: Path) -> None:
    """Write the comparison of many models as one HTML file, atomically. Colours are shares of the way from chance to
    all right; the printed numbers are accuracies."""
    rows = [_row(matrix, index) for index in range(len(matrix.categories))]
    runs = groupby(zip(matrix.clusters, rows, strict=True), key=lambda pair: pair[0])
    context: dict[str, object] = {
        "title": "What these models can and cannot see",
        "matrix": matrix,
        "sentence": _sentence(matrix),
        "also": _also(matrix),
        "clusters": [[row for _, row in group] for _, group in runs],
        "scale": [(text, shade(share)) for text, share in _SCALE],
        "collapsed": any(any(row) for row in matrix.collapsed),
        "has_human": any(human is not None for human in matrix.human),
        "missed": _missed(matrix),
        "suspects": matrix.suspects[:SHOWN],
        "hidden_suspects": max(0, len(matrix.suspects) - SHOWN),
    }
    write_text(out, render("matrix.html.j2", context))


def _row(matrix: Matrix, index: int) -> _Row:
    name = matrix.categories[index]
    return _Row(
        name=name,
        title=words(name),
        n=matrix.n[index],
        chance=matrix.chance[index],
        human=matrix.human[index],
        squares=tuple(_square(matrix, model, index) for model in range(len(matrix.models))),
        missed=name in matrix.missed_by_all,
    )


def _square(matrix: Matrix, model: int, category: int) -> _Square:
    accuracy, above = matrix.accuracy[model][category], matrix.above_chance[model][category]
    collapsed = matrix.collapsed[model][category]
    where = f"{matrix.models[model]}, {words(matrix.categories[category])}"
    if accuracy is None:
        return _Square(text="–", said=f"{where}: no scored item", shade=shade(None), collapsed=False)
    share = "" if above is None else f", {100 * above:.0f}% of the way from guessing to all right"
    one = ", nearly always the same letter" if collapsed else ""
    said = f"{where}: {percent(accuracy)}{share}{one}"
    return _Square(text=f"{100 * accuracy:.0f}", said=said, shade=shade(above), collapsed=collapsed)


def _sentence(matrix: Matrix) -> str:
    models, categories = len(matrix.models), len(matrix.categories)
    if not matrix.missed_by_all:
        return f"Each of {categories} categories is above guessing for at least one of {models} models."
    names = ", ".join(words(name) for name in matrix.missed_by_all)
    return (
        f"In {len(matrix.missed_by_all)} of {categories} categories none of {models} models is above guessing: {names}."
    )


def _also(matrix: Matrix) -> list[str]:
    told = []
    if matrix.models:
        best = max(range(len(matrix.models)), key=lambda k: (matrix.macro[k], matrix.models[k]))
        told.append(
            f"Best of {len(matrix.models)}: {matrix.models[best]}, {percent(matrix.macro[best])} over the categories."
        )
    one = sum(sum(row) for row in matrix.collapsed)
    if one:
        cells = sum(value is not None for row in matrix.accuracy for value in row)
        told.append(f"{one} of {cells} squares are one letter given nearly always: their number says nothing of sight.")
    items = sum(len(ids) for ids in matrix.missed_items.values())
    if items:
        told.append(f"{items:,} of {sum(matrix.n):,} questions are answered rightly by no model.")
    if matrix.suspects:
        told.append(f"On {len(matrix.suspects):,} questions most models contradict the key with the same letter.")
    return told


def _missed(matrix: Matrix) -> list[_Missed]:
    sizes = dict(zip(matrix.categories, matrix.n, strict=True))
    found = [
        _Missed(title=words(name), total=sizes.get(name, 0), n=len(ids), shown=ids[:SHOWN])
        for name, ids in matrix.missed_items.items()
        if ids
    ]
    return sorted(found, key=lambda it: (-it.n / max(1, it.total), it.title))
