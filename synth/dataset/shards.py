"""Parquet files and run folders: the file system is the journal.

A work shard that exists under its final name is done. Its Arrow metadata carries the run it belongs to, the drops and
the fate of every planned image, so that nothing is lost and nothing is counted twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from synth.errors import DatasetError, RunError
from synth.files import atomic
from synth.types import Drop, JsonValue

ROW_GROUP = 100
PICTURES_AT_ONCE = 10
"""Rows with pictures that a reader holds: a row group of them is tens of megabytes."""
_BUFFER = 1 << 20
NOTE_KEY = b"s2p"


@dataclass(frozen=True, kw_only=True)
class ShardNote:
    """What a work shard says about itself."""

    run: str
    shard: int
    fates: dict[str, str]
    """Source key of every planned image -> "used" or the reason for its drop."""
    drops: tuple[Drop, ...]
    counts: dict[str, float]
    """Counters to be added up: candidates, checked pictures, model passes, cache hits …"""
    outputs: dict[str, list[dict[str, JsonValue]]]
    """qa_id -> the guard's verdicts on its finished pictures."""


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a table atomically, in row groups of about 100 rows, with page checksums and content-defined chunking."""
    with parquet_writer(path, table.schema) as writer:
        writer.write_table(table, row_group_size=ROW_GROUP)


@contextmanager
def parquet_writer(path: Path, schema: pa.Schema, *, lasting: bool = True) -> Iterator[pq.ParquetWriter]:
    """The same for a table that comes in parts; the file appears when all of them are written.

    A file that is not `lasting` is read by its own run only: it is neither compressed nor cut by content.
    """
    with (
        atomic(path) as handle,
        pq.ParquetWriter(
            handle,
            schema,
            compression="snappy" if lasting else "none",
            use_content_defined_chunking=lasting,
            write_page_checksum=True,
            write_page_index=True,
        ) as writer,
    ):
        yield writer


def write_group(writer: pq.ParquetWriter, table: pa.Table) -> None:
    """Write a table of pictures as a row group, and hand what Arrow freed meanwhile back to the system.

    Arrow's allocator keeps it otherwise, and a run's memory grows with its pictures although none of them is held.
    """
    writer.write_table(table)
    pa.default_memory_pool().release_unused()


def write_shard(path: Path, schema: pa.Schema, parts: Iterable[pa.Table], note: ShardNote) -> None:
    """Write a work shard with its note; each part becomes a row group."""
    text = json.dumps({**vars(note), "drops": [vars(drop) for drop in note.drops]}, ensure_ascii=False)
    noted = schema.with_metadata({**(schema.metadata or {}), NOTE_KEY: text.encode()})
    with parquet_writer(path, noted, lasting=False) as writer:
        for part in parts:
            write_group(writer, part.replace_schema_metadata(noted.metadata))


def read_note(path: Path, run: str) -> ShardNote:
    """The note of a work shard of this run. Raises RunError when it is damaged or belongs to another run."""
    try:
        raw = (pq.read_schema(path).metadata or {}).get(NOTE_KEY)
    except (pa.ArrowInvalid, OSError) as error:
        raise RunError(f"damaged shard ({error})", where=str(path), fix="delete this file and run again") from None
    if raw is None:
        raise RunError("not a shard of ours", where=str(path), fix="delete this file and run again")
    value = json.loads(raw)
    if value["run"] != run:
        raise RunError("a shard of another run", where=str(path), fix="use a new --out folder")
    return ShardNote(**{**value, "drops": tuple(Drop(**drop) for drop in value["drops"])})


def data_files(dataset: Path) -> list[Path]:
    """The parquet files of a finished dataset, in order. Raises DatasetError when there are none."""
    files = sorted((dataset / "data").glob("*.parquet"))
    if not files:
        raise DatasetError(
            "no data/*.parquet", where=str(dataset), fix="give the folder that `s2p generate --out` wrote"
        )
    return files


def read_rows(dataset: Path, columns: Sequence[str] | None = None) -> Iterator[dict[str, JsonValue]]:
    """Rows of a finished dataset as plain values, file by file."""
    for path in data_files(dataset):
        yield from iterate(path, columns)


def iterate(path: Path, columns: Sequence[str] | None = None) -> Iterator[dict[str, JsonValue]]:
    """Rows of one parquet file as plain values, a few at a time in memory. Checks page checksums."""
    with open_parquet(path) as file:
        for batch in batches(file, columns):
            yield from batch.to_pylist()


def open_parquet(path: Path) -> pq.ParquetFile:
    """A file that is read page by page and not by whole row groups; page checksums are checked."""
    return pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False, buffer_size=_BUFFER)


def batches(file: pq.ParquetFile, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of an open file. One row group is asked for at a time: a reader of all of them holds all their pages."""
    wanted = list(columns) if columns else None
    size = PICTURES_AT_ONCE if "images" in (wanted or file.schema_arrow.names) else ROW_GROUP
    for number in range(file.num_row_groups):
        yield from file.iter_batches(batch_size=size, row_groups=[number], columns=wanted)
