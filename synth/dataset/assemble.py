"""From candidates to the finished dataset: choose under the quotas, split by source group, write the files."""

from __future__ import annotations

import hashlib
import math
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from sys import intern

import pyarrow as pa

from synth.audit.cues import Asked, asked_of
from synth.audit.thinning import Thinned, thin
from synth.balance import choose
from synth.dataset.candidates import LIGHT_COLUMNS, candidate_of
from synth.dataset.shards import ROW_GROUP, batches, iterate, open_parquet, parquet_writer, write_group, write_parquet
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
    twin: str = ""
    """What joins the members of a contrast pair; "" for a question that stands alone."""


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


def read_candidates(shards: Sequence[Path], *, asked: bool) -> tuple[list[Light], list[Asked]]:
    """What balance needs to know of every candidate in the work shards, and what a blind solver sees of it, if asked.

    None of them is drawn yet.
    """
    lights: list[Light] = []
    pairs: list[Asked] = []
    for number, path in enumerate(shards):
        for row in iterate(path, None if asked else LIGHT_COLUMNS):
            lights.append(_light(row, number))
            if asked:
                one = candidate_of(row)
                pairs.append(asked_of(one.qa, (one.width, one.height), one.group))
    return lights, pairs


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
    if not thinned.left_out:
        return thinned
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

    With shares of difficulty each band is balanced by itself, and what a band lacks comes from the others. Contrast
    pairs are chosen first, each as one: it holds both answers, so its letters need no balance. What is left of the
    quota, or of the share of contrast pairs where there are too few, is chosen among the others, and the other way
    round. Counts of strata then differ by three at most, where they differ by one without contrast pairs.
    """
    alone, joined = pair_up(rows)
    if not joined.members:
        chosen, lost = _by_band(alone, quota.n, quota.difficulty, seed, together)
        return chosen, [*joined.drops, *lost]
    first, lost_pairs = _by_band(joined.units, round(quota.n * quota.contrast / 2), quota.difficulty, seed, together)
    others, lost = _by_band(alone, quota.n - 2 * len(first), quota.difficulty, seed, together)
    if room := (quota.n - 2 * len(first) - len(others)) // 2:
        taken = {unit.twin for unit in first}
        rest = [unit for unit in joined.units if unit.twin not in taken]
        more, lost_pairs = _by_band(rest, room, quota.difficulty, seed, together)
        first += more
    kept = [member for unit in first for member in joined.members[unit.twin]]
    return [*kept, *others], [*joined.drops, *(replace(drop, count=2 * drop.count) for drop in lost_pairs), *lost]


@dataclass(frozen=True, kw_only=True)
class Joined:
    """The contrast pairs among the candidates of one quota."""

    units: tuple[Light, ...]
    """One for each pair, with its key for an id and no answer."""
    members: Mapping[str, tuple[Light, ...]]
    """Key -> both members."""
    drops: tuple[Drop, ...]
    """Members whose twin is missing."""


def pair_up(rows: Sequence[Light]) -> tuple[list[Light], Joined]:
    """Questions that stand alone, and the contrast pairs; one that lost its twin (twin_lost) is neither."""
    by_key: dict[str, dict[str, Light]] = {}
    for row in rows:
        if row.twin:
            by_key.setdefault(row.twin, {})[row.qa_id] = row
    members = {key: tuple(found[qa_id] for qa_id in sorted(found)) for key, found in by_key.items() if len(found) == 2}
    broken = sorted((row for row in rows if row.twin and row.twin not in members), key=lambda row: row.qa_id)
    drops = [
        Drop(stage="balance", task=row.skill, image="", reason="twin_lost", count=len(broken), example=row.qa_id)
        for row in broken[:1]
    ]
    units = tuple(replace(pair[0], qa_id=key, answer="") for key, pair in members.items())
    inside = {row.qa_id for pair in members.values() for row in pair}
    alone = [row for row in rows if not row.twin and row.qa_id not in inside]
    return alone, Joined(units=units, members=members, drops=tuple(drops))


def _by_band(
    rows: Sequence[Light], n: int, shares: Mapping[str, float], seed: int, together: Sequence[str]
) -> tuple[list[Light], list[Drop]]:
    if not shares:
        return choose(rows, n, seed, together=together)
    kept: list[Light] = []
    for band in BANDS:
        mine = [row for row in rows if band_of(row.difficulty) == band]
        chosen, _ = choose(mine, round(n * shares.get(band, 0.0)), seed, together=together)
        kept += chosen
    ids = {row.qa_id for row in kept}
    rest = [row for row in rows if row.qa_id not in ids]
    more, drops = choose(rest, max(0, n - len(kept)), seed, together=together)
    return [*kept, *more][:n], drops


def write_drops(path: Path, drops: Sequence[Drop]) -> None:
    """The ledger of everything that did not become a pair."""
    names = ("stage", "task", "image", "reason", "count", "example")
    kinds = pa.schema([(name, pa.int64() if name == "count" else pa.string()) for name in names])
    write_parquet(path, pa.Table.from_pylist([vars(drop) for drop in drops], schema=kinds))


def letters_and_strata(kept: Sequence[Light]) -> tuple[dict[str, JsonValue], dict[str, JsonValue]]:
    """Counts of answer letters and of strata by skill."""
    letters: dict[str, Counter[str]] = {}
    strata: dict[str, Counter[str]] = {}
    for row in kept:
        letters.setdefault(row.skill, Counter())[row.answer] += 1
        strata.setdefault(row.skill, Counter())[row.stratum] += 1
    plain = [{skill: dict(sorted(c.items())) for skill, c in sorted(table.items())} for table in (letters, strata)]
    return dict(plain[0]), dict(plain[1])


def _light(row: Mapping[str, JsonValue], number: int) -> Light:
    """A run has tens of thousands of them: what many share is held once."""
    return Light(
        qa_id=str(row["qa_id"]),
        task=intern(str(row["task"])),
        skill=intern(str(row["skill"])),
        stratum=intern(str(row["stratum"])),
        answer=intern(str(row["answer"])),
        image_id=intern(str(row["image_id"])),
        group=intern(str(row["source_group"])),
        difficulty=_number(row["difficulty"]),
        shard=number,
        twin=intern(str(row["twin"])),
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
    groups = _row_groups(_selected(shards, ids), rows_per_file)
    for number in range(n_files):
        path = folder / f"{split}-{number:05d}-of-{n_files:05d}.parquet"
        rows = left = min(rows_per_file, len(ids) - number * rows_per_file)
        group = next(groups)
        with parquet_writer(path, group.schema) as writer:
            while group is not None:
                write_group(writer, group)
                left -= group.num_rows
                group = None  # two of them need not be in memory
                group = next(groups) if left else None
        yield {
            "file": f"data/{path.name}",
            "rows": rows,
            "bytes": path.stat().st_size,
            "sha256": sha256_file(path),
        }


def _selected(shards: Sequence[Path], wanted: Set[str]) -> Iterator[pa.Table]:
    """The wanted rows, a few at a time."""
    for path in shards:
        with open_parquet(path) as file:
            for batch in batches(file):
                table = pa.Table.from_batches([batch])
                # pyarrow's is_in would hash the whole of `wanted` for every few rows.
                chosen = table.filter(pa.array([one in wanted for one in table["qa_id"].to_pylist()], pa.bool_()))
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
            held, count = [whole.slice(size)], count - size
            room = room - size or rows_per_file
            whole = whole.slice(0, size)
            yield whole
            del whole  # before the next pictures are read
    if count:
        yield pa.concat_tables(held)
