"""The folder is the registry: a plug-in is one file with one capitalised constant.

`names` lists files without importing them, so a heavy or broken plug-in cannot break the list; `load` imports one and
checks that its constant exists, has the right type and carries the name of its file.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from synth import contracts as t
from synth.errors import ConfigError


class Named(Protocol):
    """What every plug-in record has."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int: ...


RecordT = TypeVar("RecordT", bound=Named)


@dataclass(frozen=True)
class Folder(Generic[RecordT]):
    """A folder of plug-ins."""

    package: str
    constant: str
    record: type[RecordT]


SOURCES = Folder("synth.sources", "SOURCE", t.Source)
TASKS = Folder("synth.tasks", "TASK", t.Task)
CHECKS = Folder("synth.checks", "CHECK", t.Check)
DEPTH = Folder("synth.perception.depth", "BACKEND", t.DepthBackend)
REGIONS = Folder("synth.perception.regions", "BACKEND", t.RegionBackend)
MASKS = Folder("synth.perception.masks", "BACKEND", t.MaskBackend)
MATCHES = Folder("synth.perception.matches", "BACKEND", t.MatchBackend)
BENCHMARKS = Folder("synth.benchmarks", "BENCHMARK", t.Benchmark)
RESULTS = Folder("synth.results", "RESULTS", t.ResultsFormat)
EXPORTS = Folder("synth.dataset.exports", "EXPORT", t.Export)
ALL = (SOURCES, TASKS, CHECKS, DEPTH, REGIONS, MASKS, MATCHES, BENCHMARKS, RESULTS, EXPORTS)


@cache
def _directory(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"no package {package}")
    return Path(spec.submodule_search_locations[0])


def names(folder: Folder[RecordT]) -> list[str]:
    """Names of the plug-ins in a folder, sorted; nothing is imported. Files that begin with "_" are helpers."""
    return sorted(p.stem for p in _directory(folder.package).glob("*.py") if not p.stem.startswith("_"))


def load(folder: Folder[RecordT], name: str) -> RecordT:
    """Import one plug-in. Raises ConfigError for an unknown name and TypeError for a broken plug-in file."""
    known = names(folder)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
        raise ConfigError(f"no {folder.package.rsplit('.', 1)[-1]} plug-in named {name!r}", fix=hint)
    module = importlib.import_module(f"{folder.package}.{name}")
    record = getattr(module, folder.constant, None)
    if not isinstance(record, folder.record):
        raise TypeError(f"{module.__name__} has no {folder.constant} of type {folder.record.__name__}")
    if record.name != name:
        raise TypeError(f"{module.__name__}: {folder.constant}.name is {record.name!r}, the file says {name!r}")
    return record


def load_all(folder: Folder[RecordT]) -> list[RecordT]:
    """Every plug-in of a folder."""
    return [load(folder, name) for name in names(folder)]
