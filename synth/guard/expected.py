"""How much a known benchmark must hold: the shipped table, looked up by the benchmark's name."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from pydantic import Field

from synth.config import Config, read_yaml, validate
from synth.contracts import BenchmarkData
from synth.errors import GuardError

TABLE = Path(__file__).with_name("expected.yaml")


class Known(Config):
    """One row of the table."""

    name: str
    aliases: tuple[str, ...]
    source: str
    """Where the numbers were read."""
    rows: dict[str, dict[str, int]]
    """Split -> category -> questions; one category "" where there are none."""
    pictures: dict[str, int] = Field(default_factory=dict)
    """Category -> least pictures of a question."""
    ids: str = ""
    """Pattern of its items' ids, by which a copy is known under any name."""
    refused: dict[str, str] = Field(default_factory=dict)
    """Revision -> why it must not be used."""


class _Table(Config):
    version: int
    benchmarks: tuple[Known, ...]


@lru_cache(maxsize=1)
def table() -> tuple[Known, ...]:
    """The shipped rows. Raises ConfigError where the file was damaged."""
    return validate(read_yaml(TABLE), _Table, TABLE.name).benchmarks


def known(data: BenchmarkData) -> Known | None:
    """The row of a benchmark by its name (plug-in, folder or file) or its items' ids; None where the table has none."""
    plain = _plain(data.name)
    for row in table():
        if plain in map(_plain, (row.name, *row.aliases)):
            return row
        if row.ids and any(re.fullmatch(row.ids, item.item_id) for item in data.items):
            return row
    return None


def check_revision(data: BenchmarkData, row: Known) -> None:
    """Raises GuardError for a revision that the table refuses."""
    if data.revision in row.refused:
        raise GuardError(
            f"an outdated copy: {row.refused[data.revision]}", where=data.name, fix="fetch the benchmark again"
        )


def check_known(data: BenchmarkData, row: Known) -> tuple[str, ...]:
    """The splits that a copy lacks; it must hold one or more of them whole.

    Raises GuardError where a category is missing, short or long, or where a question has too few pictures.
    """
    for item in data.items:
        least = row.pictures.get(_category(item.category), 1)
        if len(item.images) < least:
            raise GuardError(
                f"{len(item.images)} of {least} pictures of a question", where=f"{data.name}/{item.item_id}", fix=_FIX
            )
    found = Counter(_category(item.category) for item in data.items)
    whole = {"": sum(found.values()) + sum(data.skipped.values())}
    for splits in _subsets(row.rows):
        wanted = Counter[str]()
        for split in splits:
            wanted.update(row.rows[split])
        if wanted == (whole if set(wanted) == {""} else found):
            return tuple(sorted(set(row.rows) - set(splits)))
    raise GuardError(_difference(row, found, whole[""]), where=data.name, fix=_FIX)


_FIX = (
    "load it in full; or say how many it must have (--expect-items and --expect-images, or guard.expect_items and "
    "guard.expect_images) where you are judged on a part"
)


def _difference(row: Known, found: Counter[str], n_rows: int) -> str:
    """How a copy differs from the split or splits that it is nearest to."""
    if all(set(categories) == {""} for categories in row.rows.values()):
        return f"{n_rows} questions were read, {sum(n[''] for n in row.rows.values())} are expected"
    options = []
    for splits in _subsets(row.rows):
        wanted = Counter[str]()
        for split in splits:
            wanted.update(row.rows[split])
        wrong = [f"{found[name]} of {n} of {name}" for name, n in wanted.items() if found[name] != n]
        strange = [f"{n} of the unknown {name or 'category'}" for name, n in found.items() if name not in wanted]
        options.append((len(wrong) + len(strange), splits, [*wrong, *strange]))
    _, splits, wrong = min(options)
    more = f" and {len(wrong) - 4} more" if len(wrong) > 4 else ""
    return f"not the whole of {' and '.join(splits)}: {', '.join(wrong[:4])}{more}"


def _subsets(names: Iterable[str]) -> list[tuple[str, ...]]:
    """All splits together first."""
    ordered = sorted(names)
    return [chosen for n in range(len(ordered), 0, -1) for chosen in itertools.combinations(ordered, n)]


def _category(text: str) -> str:
    return text.replace(" ", "_")


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.casefold())
