"""Which rows a training sees, and in which order: replay mixed in, a dev set held out, easy rows first.

Source groups (scene, video, photo) are never torn: what the dev set asks is in no training row's photo.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from finetune.rows import read_rows
from finetune.settings import Curriculum, DevOptions, ReplayOptions
from synth.config import Config
from synth.errors import DatasetError
from synth.geometry import generator

if TYPE_CHECKING:
    from datasets import Dataset

BANDS = 3
"""Stages of the staged curriculum."""


class Replayed(Config):
    """What was mixed in."""

    dataset: str
    certificate: str
    rows: int
    source_groups: int
    wanted_share: float
    share: float
    """Of all rows trained on."""
    held_out: int
    """Rows left out because the dev set holds their source group."""


def split_dev(rows: Dataset, options: DevOptions, folder: Path, cache: Path, seed: int) -> tuple[Dataset, Dataset]:
    """Training rows and dev rows, no source group in both. Raises DatasetError where that cannot be."""
    groups = _groups(rows)
    if options.split is not None:
        dev = read_rows(folder, options.split, cache=cache)
        shared = sorted(set(groups) & set(_groups(dev)))
        if shared:
            raise DatasetError(
                f"{len(shared)} source groups are in both splits, e.g. {shared[0]}",
                where=f"{folder} {options.split}",
                fix="leave dev.split out: dev.share takes whole source groups out of the training split",
            )
    else:
        names = sorted(set(groups))
        n = max(1, round(options.share * len(names)))
        if n >= len(names):
            raise DatasetError(f"{len(names)} source groups cannot be split", where=str(folder), fix="leave dev out")
        held = {names[i] for i in generator(seed, "dev").permutation(len(names))[:n]}
        dev = rows.select([i for i, group in enumerate(groups) if group in held])
        rows = rows.select([i for i, group in enumerate(groups) if group not in held])
    return rows, dev.select(spread(_groups(dev), options.max_rows, generator(seed, "dev rows")))


def mix_replay(
    rows: Dataset, options: ReplayOptions, certificate: str, cache: Path, seed: int, held: Sequence[str] = ()
) -> tuple[Dataset, Replayed]:
    """Rows with replay behind them, its role set to `replay`, spread evenly over its source groups.

    `held`: source groups of the dev set, which replay must not bring back.
    """
    from datasets import concatenate_datasets

    other = read_rows(options.path, options.split, cache=cache)
    if "role" in other.column_names:
        other = other.remove_columns(["role"])
    other = other.add_column("role", ["replay"] * len(other))
    if "role" not in rows.column_names:
        rows = rows.add_column("role", ["target"] * len(rows))
    groups = _groups(other)
    barred = set(held)
    free = [i for i, group in enumerate(groups) if group not in barred]
    wanted = round(options.share / (1 - options.share) * len(rows))
    chosen = [free[i] for i in spread([groups[i] for i in free], wanted, generator(seed, "replay"))]
    if not chosen:
        raise DatasetError("no row is left to replay", where=str(options.path))
    columns = [name for name in rows.column_names if name in other.column_names]
    part = other.select(chosen).select_columns(columns).cast(rows.select_columns(columns).features)
    mixed = concatenate_datasets([rows.select_columns(columns), part])
    return mixed, Replayed(
        dataset=str(options.path),
        certificate=certificate,
        rows=len(chosen),
        source_groups=len({groups[i] for i in chosen}),
        wanted_share=options.share,
        share=round(len(chosen) / len(mixed), 4),
        held_out=len(groups) - len(free),
    )


def spread(groups: Sequence[str], n: int, rng: np.random.Generator) -> list[int]:
    """Indices of n rows (or all), drawn so that every source group gives its first before one gives a second."""
    given: Counter[str] = Counter()
    turns: list[tuple[int, int, int]] = []
    for place, index in enumerate(rng.permutation(len(groups))):
        group = groups[int(index)]
        turns.append((given[group], place, int(index)))
        given[group] += 1
    return sorted(index for _, _, index in sorted(turns)[:n])


def ordered(rows: Dataset, curriculum: Curriculum, seed: int) -> Dataset:
    """Rows in the order in which they are trained on, equal ones drawn by the seed.

    Difficulties of different skills are not on one scale, and replay must go on all the while: a row's place is its
    rank among the rows of its own skill, so that every stretch of the training holds each skill in its share.

    Raises DatasetError when the dataset does not say how difficult its rows are.
    """
    if curriculum == "none":
        return rows
    if "difficulty" not in rows.column_names:
        raise DatasetError("no column `difficulty`", where=f"curriculum: {curriculum}", fix="use curriculum: none")
    rng = generator(seed, "curriculum")
    difficulty = np.asarray(rows["difficulty"], dtype=np.float64)
    skills = np.asarray(rows["skill"] if "skill" in rows.column_names else [""] * len(rows))
    rank = np.empty(len(rows))
    for skill in np.unique(skills):
        mine = rng.permutation(np.flatnonzero(skills == skill))
        rank[mine[np.argsort(difficulty[mine], kind="stable")]] = (np.arange(len(mine)) + 0.5) / len(mine)
    order = np.argsort(rank, kind="stable")
    if curriculum == "staged":
        order = np.concatenate([rng.permutation(band) for band in np.array_split(order, BANDS)])
    return rows.select(order.tolist())


def _groups(rows: Dataset) -> list[str]:
    if "source_group" not in rows.column_names:
        raise DatasetError("no column `source_group`: rows cannot be kept apart by photo", where="dataset")
    return list(rows["source_group"])
