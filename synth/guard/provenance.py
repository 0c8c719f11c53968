"""Which benchmarks drew on the pool that a user's images come from: the shipped table, looked up by name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from synth.config import Config, read_yaml, validate
from synth.types import JsonValue

TABLE = Path(__file__).with_name("provenance.yaml")

Action = Literal["warn", "require_scan", "refuse"]


class Use(Config):
    """One benchmark task that drew on a data set."""

    benchmark: str
    task: str
    standing: Literal["s", "r", "s?"]
    """s: read in a source, r: recalled and to be checked, s?: the sources contradict."""


class DataSet(Config):
    """One row of the table."""

    name: str
    aliases: tuple[str, ...]
    action: Action
    drawn_on_by: tuple[Use, ...]
    copy_of: str = ""
    """The benchmark of which it is a translated, recast or repackaged copy; "" where it is none."""
    how: str = ""
    """What the copy changed."""


class _Table(Config):
    version: int
    data_sets: tuple[DataSet, ...]


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A pool of the user's that a row of the table speaks of."""

    name: str
    """As the user names it: a source, a folder, a file."""
    data_set: DataSet

    def json(self, scan: str) -> dict[str, JsonValue]:
        """For the certificate; `scan` says what became of the duty to scan."""
        uses = self.data_set.drawn_on_by
        copied = {"copy_of": f"{self.data_set.copy_of} ({self.data_set.how})"} if self.data_set.copy_of else {}
        return {
            **copied,
            "name": self.name,
            "data_set": self.data_set.name,
            "shares_ancestry_with": [f"{use.benchmark}/{use.task} ({use.standing})" for use in uses],
            "action": self.data_set.action,
            "scan": scan,
        }


@lru_cache(maxsize=1)
def table() -> tuple[DataSet, ...]:
    """The shipped rows. Raises ConfigError where the file was damaged."""
    return validate(read_yaml(TABLE), _Table, TABLE.name).data_sets


def pools(names: Iterable[str]) -> tuple[Pool, ...]:
    """The rows that names of sources, folders or files point to, each with the first name that did.

    A name points to a row where it holds its name or an alias as whole words ("data/coco_val2017" holds "coco"). No hit
    clears nothing: file names are hints.
    """
    found: dict[str, Pool] = {}
    for name in names:
        words = f" {_words(name)} "
        for row in table():
            known = (_words(alias) for alias in (row.name, *row.aliases))
            if row.name not in found and any(f" {alias} " in words for alias in known):
                found[row.name] = Pool(name=name, data_set=row)
    return tuple(found.values())


def _words(text: str) -> str:
    return " ".join(re.sub(r"[^a-z0-9]+", " ", text.casefold()).split())
