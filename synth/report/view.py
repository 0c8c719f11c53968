"""`s2p view`: a finished dataset as pages to look at, one card a question with the numbers behind its answer."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from synth.dataset.shards import data_files, iterate
from synth.errors import DatasetError
from synth.files import write_text
from synth.report.cards import Card, Example, Picture, card, picture
from synth.report.html import histogram, number, render, share_bar
from synth.types import JsonValue

PAGE = 50
"""Questions a page."""
_LIGHT = ("qa_id", "skill")
_NEEDED = ("qa_id", "images", "question", "choices", "answer")
_UNITS = {"m": " m", "px": " px", "deg": "°", "pct": "%"}
_SHOWN_ITEMS = 8
"""Items of a long list of numbers that are printed."""
_SHOWN_FACTS = 60


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One printed number of a provenance."""

    key: str
    """As stored."""
    label: str
    value: str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A dataset row, ready to print."""

    qa_id: str
    card: Card
    overlays: tuple[Picture, ...]
    task: str
    role: str
    stratum: str
    difficulty: float | None
    source: str
    licence: str
    group: str
    origin: tuple[Fact, ...]
    """Task version, wording, backends, what the choices stand for."""
    measures: tuple[Fact, ...]
    damaged: str
    """Why the provenance could not be read, or ""."""


def write_view(dataset: Path, out: Path, limit: int) -> int:
    """Write `out/index.html`, and `page-002.html` … when there are more than 50 cards; returns the number of cards.

    `limit` bounds the cards, taken evenly over the skills; 0 shows every row. The pictures of the chosen rows are in
    memory at once. Raises DatasetError when the folder is not a finished dataset of ours.
    """
    where, total = choose(dataset, limit)
    entries = [entry(row, dataset) for row in rows_at(dataset, where)]
    entries.sort(key=lambda e: (e.card.skill, e.stratum, e.qa_id))
    pages = [entries[i : i + PAGE] for i in range(0, len(entries), PAGE)] or [[]]
    names = [page_name(index) for index in range(len(pages))]
    for index, page in enumerate(pages):
        context: dict[str, object] = {
            "title": f"Training pairs of {dataset.resolve().name}",
            "entries": page,
            "shown": len(entries),
            "total": total,
            "skills": _tally([e.card.skill for e in entries]),
            "first": index * PAGE + 1,
            "pages": names,
            "here": index,
            "summary": _summary(entries) if index == 0 else [],
            "difficulty": histogram(
                [e.difficulty for e in entries if e.difficulty is not None], label="difficulty, 0 easy to 1 hard"
            ),
        }
        write_text(out / names[index], render("view.html.j2", context))
    for stale in out.glob("page-*.html"):
        if re.fullmatch(r"page-\d{3,}\.html", stale.name) and stale.name not in names:
            stale.unlink()
    return len(entries)


def page_name(index: int) -> str:
    """File name of a page, counted from 0."""
    return "index.html" if index == 0 else f"page-{index + 1:03d}.html"


def choose(dataset: Path, limit: int) -> tuple[set[int], int]:
    """Row numbers (in file order) of a sample that is even over the skills, and the number of rows in all.

    The same dataset and limit give the same sample: within a skill the rows with the smallest hash of their id are
    taken. Skills with fewer rows than their share leave the rest to the others; 0 takes every row.
    """
    by_skill: dict[str, list[tuple[str, int]]] = {}
    total = 0
    for path in data_files(dataset):
        present = _columns(path)
        for row in iterate(path, [name for name in _LIGHT if name in present]):
            key = hashlib.blake2b(str(row["qa_id"]).encode("utf-8", "replace"), digest_size=8).hexdigest()
            by_skill.setdefault(str(row.get("skill") or "other"), []).append((key, total))
            total += 1
    if limit <= 0 or limit >= total:
        return set(range(total)), total
    queues = [sorted(by_skill[skill]) for skill in sorted(by_skill)]
    chosen: set[int] = set()
    turn = 0
    while len(chosen) < limit:
        for queue in queues:
            if turn < len(queue) and len(chosen) < limit:
                chosen.add(queue[turn][1])
        turn += 1
    return chosen, total


def rows_at(dataset: Path, where: set[int]) -> list[Mapping[str, JsonValue]]:
    """The rows with these numbers, in file order."""
    rows: list[Mapping[str, JsonValue]] = []
    last, number_of_row = max(where, default=-1), 0
    for path in data_files(dataset):
        wanted = [name for name in _columns(path) if name not in ("prompt", "completion")]
        for row in iterate(path, wanted):
            if number_of_row in where:
                rows.append(row)
            number_of_row += 1
            if number_of_row > last:
                return rows
    return rows


def _columns(path: Path) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        present: list[str] = list(pq.read_schema(path).names)
    except (pa.ArrowInvalid, OSError) as error:
        raise DatasetError(f"not a readable parquet file ({error})", where=str(path)) from None
    missing = [name for name in _NEEDED if name not in present]
    if missing:
        raise DatasetError(
            f"columns are missing: {', '.join(missing)}",
            where=str(path),
            fix="give a folder that `s2p generate` wrote; other datasets have other columns",
        )
    return present


def entry(row: Mapping[str, JsonValue], dataset: Path) -> Entry:
    """A row of the dataset, ready to print."""
    origin, measures, damaged = _provenance(row.get("provenance"))
    difficulty = row.get("difficulty")
    return Entry(
        qa_id=str(row["qa_id"]),
        card=card(row_example(row)),
        overlays=_overlays(row.get("image_ids"), dataset / "evidence"),
        task=_text(row, "task"),
        role=_text(row, "role"),
        stratum=_text(row, "stratum"),
        difficulty=float(difficulty) if isinstance(difficulty, int | float) else None,
        source=_text(row, "source_name") or _text(row, "source"),
        licence=_text(row, "license") or "unknown",
        group=_text(row, "source_group"),
        origin=origin,
        measures=measures,
        damaged=damaged,
    )


def row_example(row: Mapping[str, JsonValue]) -> Example:
    """A row as a question without replies."""
    images = _items(row.get("images"))
    blobs: list[object] = [image.get("bytes") for image in images if isinstance(image, Mapping)]
    return Example(
        images=tuple(blob if isinstance(blob, bytes) else b"" for blob in blobs),
        question=_text(row, "question"),
        choices=tuple(str(choice) for choice in _items(row.get("choices"))),
        answer=_text(row, "answer") or None,
        skill=_text(row, "skill") or "other",
    )


def _items(value: JsonValue) -> Sequence[JsonValue]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _text(row: Mapping[str, JsonValue], key: str) -> str:
    value = row.get(key)
    return "" if value is None else str(value)


def _overlays(ids: JsonValue, folder: Path) -> tuple[Picture, ...]:
    found = []
    for name in _items(ids):
        # The id comes from the file: anything but a plain name could point outside the folder.
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,128}", name):
            continue
        path = folder / f"{name}.jpg"
        if path.is_file():
            found.append(picture(path.read_bytes(), "depth overlay"))
    return tuple(found)


def _provenance(text: JsonValue) -> tuple[tuple[Fact, ...], tuple[Fact, ...], str]:
    if not isinstance(text, str) or not text:
        return (), (), "no provenance is stored with this row"
    try:
        stored = json.loads(text)
    except ValueError:
        return (), (), "the stored provenance is not valid JSON"
    if not isinstance(stored, dict):
        return (), (), "the stored provenance is not an object"
    measures = stored.get("measures")
    measured = dict(measures) if isinstance(measures, dict) else {}
    measured.pop("skill", None)  # the card says it already
    rest = {key: value for key, value in stored.items() if key not in ("measures", "task", "panels")}
    return _facts(rest), (*_facts(measured), *_marks(stored.get("panels"))), ""


def _facts(values: Mapping[str, JsonValue]) -> tuple[Fact, ...]:
    facts = list(_flat(values, "", ""))
    if len(facts) > _SHOWN_FACTS:
        facts[_SHOWN_FACTS:] = [Fact(key="", label="and", value=f"{len(facts) - _SHOWN_FACTS} more, in the dataset")]
    return tuple(facts)


def _flat(values: Mapping[str, JsonValue], key: str, label: str) -> Iterator[Fact]:
    """One fact a value; what is nested goes under a longer label, and a mapping of plain values on one line."""
    for name, value in values.items():
        words, unit = _label(name)
        here, dotted = f"{label} · {words}" if label else words, f"{key}.{name}" if key else name
        if isinstance(value, Mapping) and any(isinstance(item, Mapping | list) for item in value.values()):
            yield from _flat(value, dotted, here)
        elif isinstance(value, Mapping):
            text = " · ".join(f"{part} = {_value(item)}{unit}" for part, item in value.items())
            yield Fact(key=dotted, label=here, value=text or "none")
        elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            for index, item in enumerate(value, start=1):
                if isinstance(item, Mapping):
                    yield from _flat(item, f"{dotted}.{index}", f"{here.removesuffix('s')} {index}")
        else:
            yield Fact(key=dotted, label=here, value=_value(value) + unit)


def _marks(panels: JsonValue) -> Iterator[Fact]:
    for index, panel in enumerate(_items(panels), start=1):
        marks = _items(panel.get("marks")) if isinstance(panel, Mapping) else ()
        for mark in marks:
            if isinstance(mark, Mapping):
                place = f"({_value(mark.get('x'))}, {_value(mark.get('y'))}) px"
                where = f", picture {index}" if len(_items(panels)) > 1 else ""
                yield Fact(key="panels", label=f"mark {mark.get('label')}{where}", value=place)


def _label(name: str) -> tuple[str, str]:
    """Words and unit of a key such as `depths_m`."""
    stem, _, last = name.rpartition("_")
    unit = _UNITS.get(last, "") if stem else ""
    return (stem if unit else name).replace("_", " "), unit


def _value(value: JsonValue) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        items = [_value(item) for item in value[:_SHOWN_ITEMS]]
        more = f", … {len(value) - _SHOWN_ITEMS} more" if len(value) > _SHOWN_ITEMS else ""
        return f"({', '.join(items)}{more})" if items else "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_value(item)}" for key, item in value.items())
    return number(value)


def _tally(values: Sequence[str]) -> dict[str, int]:
    return {value: values.count(value) for value in sorted(set(values))}


def _summary(entries: Sequence[Entry]) -> list[tuple[str, int, Markup, Markup]]:
    """Per skill: its name, cards shown, letter bar and stratum bar."""
    lines = []
    for skill in sorted({e.card.skill for e in entries}):
        mine = [e for e in entries if e.card.skill == skill]
        letters = _tally([c.letter for e in mine for c in e.card.choices if c.right])
        strata = _tally([e.stratum or "none" for e in mine])
        lines.append((skill, len(mine), share_bar(letters, label="letters"), share_bar(strata, label="strata")))
    return lines
