"""A benchmark's tables: found on this machine or on the Hub, read in a fixed order, with every picture they name.

Parquet (pictures as {bytes, path}), TSV and CSV (pictures as base64, or files), JSON and JSON lines (files). Nothing is
skipped here: a file, a shard, a column or a picture that is missing is an error.
"""

from __future__ import annotations

import base64
import binascii
import csv
import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field

from synth.errors import BenchmarkError
from synth.files import sha256_file
from synth.types import PluginOptions, Progress

_HUB_PATTERNS = ["*.parquet", "*.tsv", "*.csv", "*.json", "*.jsonl", "*.jpg", "*.jpeg", "*.png"]
_SHARD = re.compile(r"(.*)-\d+-of-(\d+)(\.\w+)")
_PICTURE = re.compile(r"[^\n]{1,250}\.(?:jpe?g|png|webp|bmp|gif|tiff?)", re.IGNORECASE)
_REFERENCE = 64
"""Longest image cell of a TSV that names the row whose picture is meant; a base64 picture is longer."""


class TableOptions(PluginOptions):
    """Where a benchmark is: a local copy, or a dataset of the Hub at a pinned commit."""

    path: str = ""
    """The file, or the folder of a local copy; goes before `repo`."""
    repo: str = ""
    """Dataset id on the Hub."""
    revision: str = Field(default="", pattern=r"^([0-9a-f]{40})?$")
    """Commit on the Hub, 40 hex digits: a branch would let the benchmark change between two runs."""
    allow_partial: bool = False
    """Take a copy with other counts than the published ones; the data's revision then ends in `-partial`."""


@dataclass(frozen=True)
class Row:
    """One row of a table."""

    cells: Mapping[str, object]
    file: Path
    line: int
    """Place in the file, from 0."""
    number: int
    """Place in the whole benchmark, from 0."""

    @property
    def where(self) -> str:
        """File and row, for messages."""
        return f"{self.file}: row {self.line}"

    def get(self, *names: str) -> str:
        """The first of these columns that holds something, as text; "" where none does."""
        for name in names:
            text = _text(self.cells.get(name))
            if text:
                return text
        return ""

    def need(self, *names: str) -> str:
        """As `get`. Raises BenchmarkError where none of the columns holds anything."""
        text = self.get(*names)
        if not text:
            lacking = "nothing in the column" if any(name in self.cells for name in names) else "no column"
            there = ", ".join(self.cells)
            raise BenchmarkError(f"{lacking} {' or '.join(names)}", where=self.where, fix=f"the columns are {there}")
        return text

    def among(self, name: str, known: Collection[str]) -> str:
        """A column that holds one of the known words. Raises BenchmarkError for another one."""
        word = self.need(name)
        if word not in known:
            fix = f"known are {', '.join(known)}: is this another version of the benchmark?"
            raise BenchmarkError(f"the {name} {word!r} is new", where=self.where, fix=fix)
        return word

    def texts(self, name: str) -> tuple[str, ...]:
        """A column that holds a list of texts, or the JSON of one; empty where it holds nothing."""
        value = self.cells.get(name)
        if isinstance(value, str) and value.lstrip().startswith("["):
            value = _decode(value, self.where)
        if value is None or value == "":
            return ()
        if not isinstance(value, list):
            raise BenchmarkError(f"expected a list under {name}, found {value!r}", where=self.where)
        return tuple(_text(entry) for entry in value)

    def lettered(self) -> tuple[str, ...]:
        """Option texts of the columns A, B, C …, up to the first that is empty."""
        found = []
        for letter in "ABCDEFGH":
            text = self.get(letter)
            if not text:
                break
            found.append(text)
        return tuple(found)


@dataclass
class Pictures:
    """Reads pictures from cells and from files below one of some folders; each file once."""

    folders: Sequence[Path]
    seen: dict[str, bytes] = field(default_factory=dict)

    def of(self, row: Row, *names: str) -> tuple[bytes, ...]:
        """Every picture of these columns, in order. Raises BenchmarkError for one that cannot be read."""
        return tuple(data for name in names for data in self._in(row.cells.get(name), row.where))

    def file(self, name: str, where: str) -> bytes:
        """A picture's bytes. Raises BenchmarkError where it is missing or lies outside of the folders."""
        if name not in self.seen:
            self.seen[name] = self._read(name, where)
        return self.seen[name]

    def _in(self, value: object, where: str) -> Iterator[bytes]:
        if isinstance(value, Mapping):
            value = value.get("bytes") or value.get("path")
        if isinstance(value, bytes) and value:
            yield value
        elif isinstance(value, list):
            for entry in value:
                yield from self._in(entry, where)
        elif isinstance(value, str) and value.lstrip().startswith("["):
            yield from self._in(_decode(value, where), where)
        elif isinstance(value, str) and _PICTURE.fullmatch(value):
            yield self.file(value, where)
        elif isinstance(value, str) and value:
            yield _base64(value, where)

    def _read(self, name: str, where: str) -> bytes:
        reason = "no such file"
        for folder in self.folders:
            try:
                file = (folder / name).resolve()
                if not file.is_relative_to(_within(folder.resolve())):
                    raise BenchmarkError(f"the picture {name!r} lies outside the benchmark's folder", where=where)
                return file.read_bytes()
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                reason = str(error)
        raise BenchmarkError(
            f"the picture {name!r} cannot be read: {reason}", where=where, fix="put it beside the file"
        )


@dataclass(frozen=True)
class Table:
    """A benchmark as it lies on this machine."""

    root: Path
    files: tuple[Path, ...]
    rows: tuple[Row, ...]
    pictures: Pictures

    def each(self, progress: Progress | None) -> Iterator[Row]:
        """The rows in order, telling how far it is."""
        for done, row in enumerate(self.rows, start=1):
            yield row
            if progress is not None:
                progress(done, len(self.rows))

    def digest(self) -> str:
        """16 hex digits over the content of the tables and of the picture files read so far."""
        digest = hashlib.sha256("".join(sha256_file(file) for file in self.files).encode())
        for name in sorted(self.pictures.seen):
            digest.update(hashlib.sha256(self.pictures.seen[name]).digest())
        return digest.hexdigest()[:16]


# ---------------------------------------------------------------------------------------------------------- where it is


def locate(options: TableOptions, name: str) -> Path:
    """The local copy, or the snapshot of the pinned commit, fetched unless it is here. Raises BenchmarkError."""
    where = f"benchmark {name}"
    if options.path:
        path = Path(options.path).expanduser()
        if path.exists():
            return path
        raise BenchmarkError("no such folder or file", where=options.path, fix=fetch(options, name))
    if not options.repo:
        raise BenchmarkError("no path is set", where=where, fix="set path to the file or folder of your copy")
    if not options.revision:
        raise BenchmarkError(
            f"neither a path nor a revision of {options.repo} is set",
            where=where,
            fix=f"{fetch(options, name)}; or set revision to that commit",
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        found = snapshot_download(
            options.repo, repo_type="dataset", revision=options.revision, allow_patterns=_HUB_PATTERNS
        )
    except (OSError, HFValidationError) as error:
        reason = " ".join(str(error).split())[:160]
        raise BenchmarkError(
            f"the hub did not give {options.repo} ({reason} …)", where=where, fix=fetch(options, name)
        ) from None
    return Path(found)


def fetch(options: TableOptions, name: str) -> str:
    """How to bring the benchmark to this machine: the command, where its place on the Hub is known."""
    if not options.repo:
        return "set path to the file or folder of your copy"
    commit = options.revision or "COMMIT"
    target = f"benchmarks/{name}"
    return (
        f"hf download {options.repo} --repo-type dataset --revision {commit} --local-dir {target}, then path: {target}"
    )


def open_table(options: TableOptions, name: str, patterns: Sequence[str], pictures: str = "") -> Table:
    """Find and read a benchmark's tables.

    Args:
        options: where it is.
        name: of the plug-in.
        patterns: globs below the folder; the files of the first that fits are read.
        pictures: folder of the picture files where they do not lie beside the table.

    Raises BenchmarkError.
    """
    root = locate(options, name)
    files = files_of(root, patterns)
    folders = dict.fromkeys([Path(pictures).expanduser()] if pictures else [*(file.parent for file in files), root])
    return Table(root=root, files=tuple(files), rows=tuple(read_rows(files)), pictures=Pictures(tuple(folders)))


def files_of(root: Path, patterns: Sequence[str]) -> list[Path]:
    """The file itself, or the files of the first pattern that fits, sorted. Raises BenchmarkError for a lost shard."""
    if root.is_file():
        return [root]
    for pattern in patterns:
        found = sorted(path for path in root.glob(pattern) if path.is_file() and not _hidden(path, root))
        if found:
            _check_shards(found)
            return found
    raise BenchmarkError(f"no {' or '.join(patterns)}", where=str(root), fix="is this the benchmark's folder?")


def _hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(root).parts)


def _check_shards(files: Iterable[Path]) -> None:
    shards = [(path, m) for path in files if (m := _SHARD.fullmatch(path.name))]
    found = Counter((path.parent, m[1], m[2], m[3]) for path, m in shards)
    for (folder, stem, total, suffix), n in found.items():
        if n != int(total):
            raise BenchmarkError(f"{n} of {int(total)} files {stem}-*{suffix}", where=str(folder), fix="get the others")


def _within(folder: Path) -> Path:
    """Where a folder's files may really lie: in itself, or for a snapshot of the Hub's cache in the cache's copy."""
    for parent in (folder, *folder.parents):
        if parent.parent.name == "snapshots" and (parent.parent.parent / "blobs").is_dir():
            return parent.parent.parent
    return folder


# -------------------------------------------------------------------------------------------------------- what it says


def read_rows(files: Sequence[Path]) -> list[Row]:
    """Every row of the files, in order. Raises BenchmarkError with file and place."""
    rows: list[Row] = []
    for file in files:
        for number, cells in enumerate(_cells(file)):
            rows.append(Row(cells=cells, file=file, line=number, number=len(rows)))
    return rows


def _cells(file: Path) -> Sequence[Mapping[str, object]]:
    suffix = file.suffix.lower()
    try:
        if suffix == ".parquet":
            return _parquet(file)
        if suffix in (".tsv", ".csv"):
            return _separated(file, "\t" if suffix == ".tsv" else ",")
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BenchmarkError(f"cannot be read: {error}", where=str(file)) from None
    if suffix == ".jsonl" or (suffix == ".json" and not text.lstrip().startswith("[")):
        lines = [(n, line) for n, line in enumerate(text.splitlines(), start=1) if line.strip()]
        return [_object(_decode(line, f"{file}:{n}"), f"{file}:{n}") for n, line in lines]
    if suffix == ".json":
        value = _decode(text, str(file))
        return [_object(entry, f"{file}: row {n}") for n, entry in enumerate(value if isinstance(value, list) else [])]
    raise BenchmarkError("not a table", where=str(file), fix="give .parquet, .tsv, .csv, .json or .jsonl")


def _parquet(file: Path) -> list[Mapping[str, object]]:
    import pyarrow
    import pyarrow.parquet

    try:
        rows: list[Mapping[str, object]] = pyarrow.parquet.read_table(file).to_pylist()
    except (OSError, pyarrow.ArrowInvalid) as error:
        fix = "fetch the file again"
        raise BenchmarkError(f"not a parquet file that can be read: {error}", where=str(file), fix=fix) from None
    return rows


def _separated(file: Path, separator: str) -> list[Mapping[str, object]]:
    limit = csv.field_size_limit(2**31 - 1)  # a base64 picture is longer than the module's limit
    try:
        with file.open(encoding="utf-8-sig", newline="") as handle:
            rows = [dict[str, object](row) for row in csv.DictReader(handle, delimiter=separator, strict=True)]
    except csv.Error as error:
        raise BenchmarkError(f"not a table: {error}", where=str(file), fix="fetch the file again") from None
    finally:
        csv.field_size_limit(limit)
    pictures = {str(row["index"]): row["image"] for row in rows if "index" in row and "image" in row}
    for number, row in enumerate(rows):
        image = row.get("image")
        if isinstance(image, str) and 0 < len(image) <= _REFERENCE and not _PICTURE.fullmatch(image):
            target = pictures.get(image)
            if not isinstance(target, str) or len(target) <= _REFERENCE:
                raise BenchmarkError(f"the picture is that of row {image!r}, which has none", where=f"{file}: {number}")
            row["image"] = target
    return [*rows]


def _object(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise BenchmarkError(f"expected an object, found {type(value).__name__}", where=where)
    return value


def _decode(text: str, where: str) -> object:
    try:
        value: object = json.loads(text)
    except json.JSONDecodeError as error:
        # Lists of base64 in VLMEvalKit's tables are written by Python's repr; base64 and file names hold no quotes.
        if re.fullmatch(r"\[\s*'[^'\"]*'(?:\s*,\s*'[^'\"]*')*\s*\]", text.strip()):
            return re.findall(r"'([^']*)'", text)
        raise BenchmarkError(f"not JSON: {error.msg}", where=where) from None
    return value


def _base64(text: str, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BenchmarkError(f"neither a picture's file nor base64: {text[:40]!r}", where=where) from None


def _text(value: object) -> str:
    """A cell as text; an empty cell of a spreadsheet is NaN, and a whole number there may be a float."""
    if value is None or value != value:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()
