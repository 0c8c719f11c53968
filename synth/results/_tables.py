"""Tables of records, whatever their file: .xlsx, .tsv, .csv, .json (a list of objects), .jsonl."""

from __future__ import annotations

import csv
import json
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from synth.errors import ResultsError

Row: TypeAlias = Mapping[str, object]
SUFFIXES = (".xlsx", ".tsv", ".csv", ".json", ".jsonl", ".ndjson")
CELL_LIMIT = 32_767
"""Characters that a cell of .xlsx holds; what is longer was cut off."""
_HEAD = 1 << 20
_DELIMITERS = {".tsv": "\t", ".csv": ","}


def columns(path: Path) -> tuple[str, ...]:
    """The columns of a table (its first record's, where it has no head); () for what is none. Reads little."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES or not path.is_file():
        return ()
    try:
        if suffix == ".json":
            with path.open(encoding="utf-8") as handle:
                head = handle.read(_HEAD).lstrip()
            first, _ = json.JSONDecoder().raw_decode(head[1:].lstrip()) if head[:1] == "[" else (None, 0)
            return tuple(first) if isinstance(first, dict) else ()
        if suffix in (".jsonl", ".ndjson"):
            return next((tuple(row) for _, row in rows(path)), ())
        return next((tuple(_head(cells, path)) for _, cells in _cells(path)), ())
    except (OSError, ValueError, csv.Error, ResultsError):
        return ()


def rows(path: Path) -> Iterator[tuple[str, Row]]:
    """(place, record) of every record of the file. Raises ResultsError with file and line."""
    suffix = path.suffix.lower()
    try:
        if suffix == ".json":
            yield from _list(path)
        elif suffix == ".xlsx" or suffix in _DELIMITERS:
            yield from _framed(path)
        else:
            yield from _lines(path)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ResultsError(f"cannot be read: {error}", where=str(path), fix="is the file whole, and UTF-8?") from None


def _framed(path: Path) -> Iterator[tuple[str, Row]]:
    """Records of a file whose first row names the columns."""
    head: list[str] = []
    for number, cells in _cells(path):
        if not head:
            head = _head(cells, path)
            continue
        if len(cells) != len(head):
            raise ResultsError(
                f"{len(cells)} cells where the head has {len(head)}",
                where=f"{path}:{number}",
                fix="quote cells that hold the delimiter or a line break",
            )
        yield f"{path}:{number}", {name: cell for name, cell in zip(head, cells, strict=True) if name}


def _head(cells: Sequence[object], path: Path) -> list[str]:
    names = ["" if cell is None else str(cell).strip() for cell in cells]
    doubled = sorted({name for name in names if name and names.count(name) > 1})
    if doubled:
        raise ResultsError(f"the column {doubled[0]!r} comes twice", where=str(path), fix="rename one of them")
    return names


def _cells(path: Path) -> Iterator[tuple[int, Sequence[object]]]:
    return _sheet(path) if path.suffix.lower() == ".xlsx" else _delimited(path)


def _sheet(path: Path) -> Iterator[tuple[int, Sequence[object]]]:
    """(row number from 1, cells) of the rows that are not empty, all as long as the first."""
    import openpyxl
    from openpyxl.utils.escape import unescape
    from openpyxl.utils.exceptions import InvalidFileException
    from openpyxl.worksheet._read_only import ReadOnlyWorksheet

    try:
        # A reply that begins with "=" was stored as a formula: data_only would lose it.
        book = openpyxl.load_workbook(path, read_only=True, data_only=False)
    except (InvalidFileException, zipfile.BadZipFile, KeyError, ValueError) as error:
        raise ResultsError(f"not a workbook: {error}", where=str(path), fix="fetch the file again") from None
    try:
        sheet = book.worksheets[0]
        if isinstance(sheet, ReadOnlyWorksheet):
            sheet.reset_dimensions()  # some writers note a wrong size, and what lies outside it would be lost
        width = 0
        for number, found in enumerate(sheet.iter_rows(values_only=True), start=1):
            cells = [unescape(cell) if isinstance(cell, str) and "_x" in cell else cell for cell in found]
            while cells and cells[-1] is None:
                cells.pop()
            width = width or len(cells)
            if cells:
                yield number, cells + [None] * (width - len(cells))
    finally:
        book.close()


def _delimited(path: Path) -> Iterator[tuple[int, Sequence[object]]]:
    """(line number, cells) of the rows that are not empty."""
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # pictures may stand in a cell
    with path.open(encoding="utf-8-sig", newline="") as handle:
        reader = csv.reader(handle, delimiter=_DELIMITERS[path.suffix.lower()])
        for cells in reader:
            if cells:
                yield reader.line_num, cells


def _list(path: Path) -> Iterator[tuple[str, Row]]:
    try:
        data: object = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ResultsError(f"not JSON: {error.msg}", where=f"{path}:{error.lineno}", fix="is the file whole?") from None
    if not isinstance(data, list):
        raise ResultsError(f"expected a list of records, found {type(data).__name__}", where=str(path))
    for number, row in enumerate(data):
        yield f"{path}: [{number}]", _object(row, f"{path}: [{number}]")


def _lines(path: Path) -> Iterator[tuple[str, Row]]:
    with path.open(encoding="utf-8") as handle:
        for number, line in enumerate(handle, start=1):
            if line.strip():
                try:
                    row: object = json.loads(line)
                except json.JSONDecodeError as error:
                    raise ResultsError(f"not JSON: {error.msg}", where=f"{path}:{number}") from None
                yield f"{path}:{number}", _object(row, f"{path}:{number}")


def _object(row: object, where: str) -> Row:
    if not isinstance(row, dict):
        raise ResultsError(f"expected an object, found {type(row).__name__}", where=where)
    return row
