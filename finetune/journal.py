"""What an interrupted run has finished: a file of JSON lines that begins with the identity of the run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from synth.files import write_text
from synth.types import JsonValue

Row = Mapping[str, JsonValue]


def resume(path: Path, identity: str) -> list[dict[str, JsonValue]]:
    """Rows of an interrupted run; leaves a file that begins with `identity` and holds whole lines only.

    A journal of another identity is thrown away.
    """
    lines = path.read_text(encoding="utf-8").split("\n") if path.is_file() else []
    rows: list[dict[str, JsonValue]] = []
    for text in lines[1:-1] if lines[:1] == [identity] else ():  # behind the last line break there is no whole row
        try:
            rows.append(json.loads(text))
        except json.JSONDecodeError:
            break  # damaged by a crash of the machine
    write_text(path, identity + "\n" + "".join(map(line, rows)))
    return rows


@contextmanager
def append(path: Path) -> Iterator[Callable[[Sequence[Row]], None]]:
    """A function that adds rows, which are on the disk when it returns."""
    with path.open("a", encoding="utf-8") as handle:

        def write(rows: Sequence[Row]) -> None:
            handle.writelines(map(line, rows))
            handle.flush()
            os.fsync(handle.fileno())

        yield write


def line(row: Row) -> str:
    """One row as text."""
    return json.dumps(row, ensure_ascii=False) + "\n"
