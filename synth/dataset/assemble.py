"""From candidates to the finished dataset: choose under the quotas, split by source group, write the files."""

from __future__ import annotations

import hashlib
import math
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from synth.audit.cues import Asked
from synth.audit.thinning import Thinned, thin
from synth.balance import choose
from synth.dataset.candidates import LIGHT_COLUMNS
from synth.dataset.shards import ROW_GROUP, batches, iterate, parquet_writer, write_parquet
from synth.files import sha256_file, sync_folder
from synth.findings import Plan, Quota
from synth.plugins import TASKS, load
from synth.types import Drop, JsonValue

BANDS = ("easy", "medium", "hard")
MIN_LEFT = 0.25
"""Share of a skill's pairs that thinning must leave."""


@dataclass(frozen=True)
class Light:
    """What balance needs to know of a candidate."""

    qa_id: str
    task: str
    skill: str
    stratum: str
    answer: str
    image_id: str
    group: str
    difficulty: float = 0.0
    shard: int = 0
    """Place of its shard among those that were read."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What the quotas take of the candidates, and what was left out."""

    kept: tuple[Light, ...]
    drops: tuple[Drop, ...]


@dataclass(frozen=True, kw_only=True)
class Assembled:
    """What went into the files."""

    files: tuple[Mapping[str, JsonValue], ...]
    kept: tuple[Light, ...]
    splits: Mapping[str, int]
    drops: tuple[Drop, ...]


def read_lights(shards: Sequence[Path]) -> list[Light]:
    """What balance needs to know of every candidate in the work shards."""
    return [light for number, path in enumerate(shards) for light in _lights(path, number)]


def select(lights: Sequence[Light], plan: Plan, seed: int) -> Selection:
    """Choose each quota's pairs. The choice depends on the candidates and the seed only."""
    kept: list[Light] = []
    drops: list[Drop] = []
    for quota in plan.quotas:
        mine = [row for row in lights if row.task == quota.task and row.skill == quota.skill]
        chosen, lost = choose_quota(mine, quota, seed, load(TASKS, quota.task).strata)
        kept += chosen
        drops += lost
    return Selection(kept=tuple(kept), drops=tuple(drops))


def thin_candidates(lights: Sequence[Light], pairs: Sequence[Asked], plan: Plan, seed: int) -> Thinned:
    """What to leave out so that a solver which does not look is no better than chance.

    A skill of which less than MIN_LEFT would be left keeps its pairs: what leaks through and through must be mended in
    the task, and the run says so (`synth.audit.leaks`). `pairs`: the same candidates.
    """
    thinned = thin(pairs, seed)
    left = [one for one in lights if one.qa_id not in thinned.left_out]
    before, after = (Counter(one.skill for one in select(some, plan, seed).kept) for some in (lights, left))
    return thinned.without({skill for skill, n in before.items() if after[skill] < MIN_LEFT * n})


def assemble(
    drawn: Sequence[Path], selection: Selection, out: Path, *, seed: int, rows_per_file: int, validation_share: float
) -> Assembled:
    """Write the selected rows of the drawn shards to `out/data/{split}-00000-of-000NN.parquet`.

    The folder appears whole, by a rename.
    """
    kept = selection.kept
    splits = _split({row.group for row in kept}, seed, validation_share)
    by_split = {name: {row.qa_id for row in kept if splits[row.group] == name} for name in ("train", "validation")}
    temporary, final = out / ".data.tmp", out / "data"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    files: list[Mapping[str, JsonValue]] = []
    for split, ids in by_split.items():
        if ids:
            files += _write_split(drawn, split, ids, temporary, rows_per_file)
    shutil.rmtree(final, ignore_errors=True)
    temporary.replace(final)
    sync_folder(out)
    counts = {name: len(ids) for name, ids in by_split.items() if ids}
    return Assembled(files=tuple(files), kept=kept, splits=counts, drops=selection.drops)


def band_of(difficulty: float) -> str:
    """easy, medium or hard: thirds of 0..1."""
    return BANDS[min(2, int(3 * difficulty))]


def choose_quota(
    rows: Sequence[Light], quota: Quota, seed: int, together: Sequence[str] = ()
) -> tuple[list[Light], list[Drop]]:
    """Balanced pairs of one quota, and what was left out; nothing where one of the strata `together` is missing.

    With shares of difficulty each band is balanced by itself, and what a band lacks comes from the others.
    """
    if not quota.difficulty:
        return choose(rows, quota.n, seed, together=together)
    kept: list[Light] = []
    drops: list[Drop] = []
    for band in BANDS:
        mine = [row for row in rows if band_of(row.difficulty) == band]
        chosen, _ = choose(mine, round(quota.n * quota.difficulty.get(band, 0.0)), seed, together=together)
        kept += chosen
    ids = {row.qa_id for row in kept}
    rest = [row for row in rows if row.qa_id not in ids]
    more, drops = choose(rest, max(0, quota.n - len(kept)), seed, together=together)
    return [*kept, *more][: quota.n], drops


def write_drops(path: Path, drops: Sequence[Drop]) -> None:
    """The ledger of everything that did not become a pair."""
    names = ("stage", "task", "image", "reason", "count", "example")
    kinds = pa.schema([(name, pa.int64() if name == "count" else pa.string()) for name in names])
    write_parquet(path, pa.Table.from_pylist([asdict(drop) for drop in drops], schema=kinds))


def letters_and_strata(kept: Sequence[Light]) -> tuple[dict[str, JsonValue], dict[str, JsonValue]]:
    """Counts of answer letters and of strata by skill."""
    letters: dict[str, Counter[str]] = {}
    strata: dict[str, Counter[str]] = {}
    for row in kept:
        letters.setdefault(row.skill, Counter())[row.answer] += 1
        strata.setdefault(row.skill, Counter())[row.stratum] += 1
    plain = [{skill: dict(sorted(c.items())) for skill, c in sorted(table.items())} for table in (letters, strata)]
    return dict(plain[0]), dict(plain[1])


def _lights(path: Path, number: int) -> Iterator[Light]:
    for row in iterate(path, LIGHT_COLUMNS):
        yield Light(
            qa_id=str(row["qa_id"]),
            task=str(row["task"]),
            skill=str(row["skill"]),
            stratum=str(row["stratum"]),
            answer=str(row["answer"]),
            image_id=str(row["image_id"]),
            group=str(row["source_group"]),
            difficulty=_number(row["difficulty"]),
            shard=number,
        )


def _number(value: JsonValue) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _split(groups: set[str], seed: int, share: float) -> dict[str, str]:
    """Split by source group: the groups with the lowest keyed hashes validate; at least one group trains."""
    ordered = sorted(groups, key=lambda g: hashlib.blake2b(f"{seed}|split|{g}".encode(), digest_size=8).digest())
    n = min(math.floor(share * len(ordered)), max(0, len(ordered) - 1))
    return {group: "validation" if i < n else "train" for i, group in enumerate(ordered)}


def _write_split(
    shards: Sequence[Path], split: str, ids: set[str], folder: Path, rows_per_file: int
) -> Iterator[Mapping[str, JsonValue]]:
    n_files = math.ceil(len(ids) / rows_per_file)
    groups = _row_groups(_selected(shards, pa.array(sorted(ids))), rows_per_file)
    for number in range(n_files):
        path = folder / f"{split}-{number:05d}-of-{n_files:05d}.parquet"
        rows = min(rows_per_file, len(ids) - number * rows_per_file)
        first = next(groups)
        with parquet_writer(path, first.schema) as writer:
            writer.write_table(first)
            written = first.num_rows
            while written < rows:
                group = next(groups)
                writer.write_table(group)
                written += group.num_rows
        yield {
            "file": f"data/{path.name}",
            "rows": rows,
            "bytes": path.stat().st_size,
            "sha256": sha256_file(path),
        }


def _selected(shards: Sequence[Path], wanted: pa.Array) -> Iterator[pa.Table]:
    """The wanted rows, a row group at a time."""
    for path in shards:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for batch in batches(file):
                table = pa.Table.from_batches([batch])
                chosen = table.filter(pc.is_in(table["qa_id"], value_set=wanted))
                if chosen.num_rows:
                    metadata = {k: v for k, v in (chosen.schema.metadata or {}).items() if k == b"huggingface"}
                    yield chosen.replace_schema_metadata(metadata)


def _row_groups(tables: Iterator[pa.Table], rows_per_file: int) -> Iterator[pa.Table]:
    """The same rows in tables of ROW_GROUP rows, fewer at the end of a file: memory holds one group, not one file."""
    held: list[pa.Table] = []
    count, room = 0, rows_per_file
    for table in tables:
        held.append(table)
        count += table.num_rows
        while count >= (size := min(ROW_GROUP, room)):
            whole = pa.concat_tables(held)
            yield whole.slice(0, size).combine_chunks()
            held, count = [whole.slice(size)], count - size
            room = room - size or rows_per_file
    if count:
        yield pa.concat_tables(held).combine_chunks()
