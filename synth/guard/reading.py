"""Where a benchmark's images come from: its plug-in, a folder of images, or the tables in which benchmarks are shared.

Tables are parquet files (pictures as the Hub stores them) and VLMEvalKit's TSV (pictures as base64). All of a row's
pictures count; what cannot be read, or might hold pictures and is not read, is an error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from synth import images
from synth.benchmarks._tables import Pictures, Row, files_of, read_rows
from synth.contracts import BenchmarkData
from synth.errors import GuardError
from synth.types import Item, Skill

TABLES = (".parquet", ".tsv")

_TEXT_SUFFIXES = ("", ".json", ".jsonl", ".md", ".txt", ".csv", ".tsv", ".yaml", ".yml", ".html")
_LONG = 20_000
"""Characters of a line of text from which on it may hold a picture as base64."""
_IDS = ("idx", "index", "item_id", "question_id", "id")
_CATEGORIES = ("sub_task", "category", "task", "subtask")
_QUESTIONS = ("question", "prompt", "query", "text")
_OPTIONS = ("choices", "options")
_ENCODED = ("image", "images", *(f"image_{n}" for n in range(1, 9)))
"""Columns of a TSV that hold pictures."""


def read_benchmark(path: Path) -> BenchmarkData | Path:
    """A copy of a benchmark on this machine: its tables as items, or the folder itself where it holds images alone.

    Raises GuardError or BenchmarkError for what is neither, or cannot be read in full.
    """
    if path.is_dir():
        if any(path.rglob("*.parquet")):
            _refuse_other_tables(path)
            return _tables(path, files_of(path, ["**/*.parquet"]))
        tables = [file for file in sorted(path.rglob("*.tsv")) if _may_hold_pictures(file)]
        return _tables(path, tables) if tables else path
    if path.suffix.lower() not in TABLES:
        raise GuardError(
            f"not a table of pictures: {path.name}",
            where=str(path),
            fix=f"give a folder, or one of {', '.join(TABLES)}",
        )
    if not path.is_file():
        raise GuardError("no such file", where=str(path), fix="give the benchmark's file or folder")
    return _tables(path, [path])


def benchmark_images(benchmark: BenchmarkData) -> Iterator[tuple[str, bytes]]:
    """(name in the index, encoded bytes) of every image. Raises GuardError for an item without one."""
    for item in benchmark.items:
        if not item.images:
            raise GuardError(
                "an item of the benchmark has no image",
                where=f"{benchmark.name}/{item.item_id}",
                fix="load the benchmark in full",
            )
        for number, data in enumerate(item.images, start=1):
            yield (item.item_id if len(item.images) == 1 else f"{item.item_id}#{number}"), data
    for name, data in benchmark.clean_images.items():
        yield f"clean/{name}", data


def folder_images(folder: Path) -> Iterator[tuple[str, bytes]]:
    """(path, encoded bytes) of every image below a folder. Raises GuardError for a file that may hold others."""
    if not folder.is_dir():
        raise GuardError("no such folder", where=str(folder), fix="give the folder that holds the benchmark's images")
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        suffix = path.suffix.lower()
        if suffix in images.SUFFIXES:
            yield name, path.read_bytes()
        elif suffix not in _TEXT_SUFFIXES or _may_hold_pictures(path):
            raise GuardError(
                f"a file that may hold benchmark images and cannot be read as one: {suffix or 'no suffix'}",
                where=str(path),
                fix=f"convert it to one of {', '.join(images.SUFFIXES)}, use the benchmark's plug-in, or move it away",
            )


def _may_hold_pictures(path: Path) -> bool:
    with path.open("rb") as handle:
        return any(len(line) > _LONG for line in iter(lambda: handle.readline(_LONG + 1), b""))


def _refuse_other_tables(folder: Path) -> None:
    for file in sorted(folder.rglob("*.tsv")):
        if _may_hold_pictures(file):
            raise GuardError(
                "a table with pictures beside the parquet files",
                where=str(file),
                fix="index one copy; move the other away",
            )


def _tables(root: Path, files: Sequence[Path]) -> BenchmarkData:
    pictures = Pictures(tuple(dict.fromkeys([*(file.parent for file in files), root])))
    items: list[Item] = []
    seen: set[str] = set()
    for row in read_rows(files):
        item = _item(row, root, pictures)
        if item.item_id in seen:
            place = row.file.relative_to(root).as_posix() if root.is_dir() else row.file.name
            item = replace(item, item_id=f"{place}:{row.line}")
        seen.add(item.item_id)
        items.append(item)
    revision = f"md5-{_md5(files[0])}" if len(files) == 1 else ""
    loose = _loose(root, items) if root.is_dir() else {}
    return BenchmarkData(name=root.stem, revision=revision, items=tuple(items), clean_images=loose)


def _item(row: Row, root: Path, pictures: Pictures) -> Item:
    columns = [name for name, value in row.cells.items() if _holds_picture(row, name, value)]
    found = pictures.of(row, *columns)
    if not found:
        there = ", ".join(row.cells)
        raise GuardError("a row without a picture", where=row.where, fix=f"its columns are {there}: is this the table?")
    folder = row.file.parent.name if row.file.parent != root and root.is_dir() else ""
    question = row.get(*_QUESTIONS)
    return Item(
        item_id=row.get(*_IDS) or f"row{row.number}",
        category=row.get(*_CATEGORIES) or folder,
        skill=Skill.OTHER,
        question=question,
        choices=_choices(row),
        answer=None,
        prompt=row.get("prompt") or question,
        images=found,
    )


def _holds_picture(row: Row, name: str, value: object) -> bool:
    """True for bytes, for the Hub's {bytes, path}, for lists of these, and for the picture columns of a TSV."""
    if isinstance(value, list):
        return any(_holds_picture(row, name, entry) for entry in value)
    if isinstance(value, Mapping):
        return bool(set(value) & {"bytes"}) and bool(value.get("bytes") or value.get("path"))
    return isinstance(value, bytes) or (isinstance(value, str) and value != "" and name in _ENCODED)


def _choices(row: Row) -> tuple[str, ...]:
    for name in _OPTIONS:
        value = row.cells.get(name)
        if isinstance(value, list) or (isinstance(value, str) and value.lstrip().startswith("[")):
            return row.texts(name)
    return row.lettered()


def _loose(root: Path, items: Sequence[Item]) -> dict[str, bytes]:
    """Image files beside the tables that no row names."""
    named = {hashlib.sha256(data).digest() for item in items for data in item.images}
    paths = (path for path in sorted(root.rglob("*")) if path.suffix.lower() in images.SUFFIXES and path.is_file())
    loose = ((path.relative_to(root).as_posix(), path.read_bytes()) for path in paths)
    return {name: data for name, data in loose if hashlib.sha256(data).digest() not in named}


def _md5(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "md5").hexdigest()
