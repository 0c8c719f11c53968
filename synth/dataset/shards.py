"""Parquet files and run folders: the file system is the journal.

A work shard that exists under its final name is done. Its Arrow metadata carries the run it belongs to, the drops and
the fate of every planned image, so that nothing is lost and nothing is counted twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from synth.errors import DatasetError, RunError
from synth.files import atomic
from synth.types import Drop, JsonValue

ROW_GROUP = 100
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
def parquet_writer(path: Path, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """The same for a table that comes in parts; the file appears when all of them are written."""
    with (
        atomic(path) as handle,
        pq.ParquetWriter(
            handle,
            schema,
            compression="snappy",
            use_content_defined_chunking=True,
            write_page_checksum=True,
            write_page_index=True,
        ) as writer,
    ):
        yield writer


def write_shard(path: Path, table: pa.Table, note: ShardNote) -> None:
    """Write a work shard with its note."""
    text = json.dumps({**asdict(note), "drops": [asdict(drop) for drop in note.drops]}, ensure_ascii=False)
    metadata = {**(table.schema.metadata or {}), NOTE_KEY: text.encode()}
    write_parquet(path, table.replace_schema_metadata(metadata))


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
    """Rows of one parquet file as plain values; memory holds one row group at a time. Checks page checksums."""
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        for batch in batches(file, columns):
            yield from batch.to_pylist()


def batches(file: pq.ParquetFile, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of an open file. One row group is asked for at a time: a reader of all of them holds all their pages."""
    wanted = list(columns) if columns else None
    for number in range(file.num_row_groups):
        yield from file.iter_batches(batch_size=ROW_GROUP, row_groups=[number], columns=wanted)
