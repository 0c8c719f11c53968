"""`s2p diagnose`: result files → outcomes, profile and report; several runs → a matrix; a baseline → what changed.

The order is that of what needs what: all runs are read, then a judge reads what the rules left, then the matrix (whose
suspect keys the profiles name), then one folder a run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from synth.config import Config, PluginChoice, load_config, resolve, resolve_named
from synth.contracts import Benchmark, BenchmarkData
from synth.diagnosis.contrast import contrast, to_json
from synth.diagnosis.folds import planning
from synth.diagnosis.joining import missing
from synth.diagnosis.matrix import make_matrix, matrix_to_json
from synth.diagnosis.profile import ROUTING, Beside, make_profile, profile_to_json
from synth.diagnosis.reading import Run, read_runs, write_outcomes
from synth.diagnosis.snapshots import SnapshotGate, compare_runs, snapshot_to_json
from synth.diagnosis.specialists import (
    Specialist,
    depth_specialist,
    patch_features,
    point_specialist,
    sift_features,
    view_specialist,
)
from synth.errors import ConfigError, ResultsError
from synth.files import write_json
from synth.findings import Contrast, Matrix, Profile, Snapshot
from synth.plugins import BENCHMARKS, DEPTH
from synth.report.diagnosis import write_diagnosis
from synth.report.examples import examples_of
from synth.report.matrix import write_matrix
from synth.types import JsonValue, Outcome, Reporter

if TYPE_CHECKING:
    from synth.diagnosis.judge import JudgeOptions


class SpecialistConfig(Config):
    """The file behind `--specialist`: experts that a model's failures are held against."""

    depth: PluginChoice | None = None
    """A depth backend, for questions of relative depth."""
    points: str | None = None
    """`sift`, or the folder of a vision transformer, for questions of correspondence."""
    views: bool = False
    """Matching of whole pictures, for questions of camera motion."""


@dataclass(frozen=True, kw_only=True)
class DiagnoseRequest:
    """What `s2p diagnose` was asked."""

    results: tuple[Path, ...]
    out: Path
    format: str = "auto"
    trust_extracted: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)
    """Our field → the table's column."""
    benchmark: str = ""
    """Name of the benchmark plug-in whose items are read; "" for none."""
    settings: tuple[str, ...] = ()
    """Its options as `key=value`."""
    baseline: Path | None = None
    gate: SnapshotGate | None = None
    specialist: Path | None = None
    judge: JudgeOptions | None = None
    round_number: int | None = None
    routing: float = ROUTING


@dataclass(frozen=True, kw_only=True)
class DiagnosedRun:
    """One model's results and where they lie."""

    name: str
    folder: Path
    profile: Profile
    files: tuple[str, ...]
    """What was written there."""
    snapshot: Snapshot | None
    contrasts: tuple[Contrast, ...]


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Everything that was found."""

    runs: tuple[DiagnosedRun, ...]
    matrix: Matrix | None


@dataclass(frozen=True, kw_only=True)
class _Ground:
    """What all runs are read and judged against."""

    benchmark: Benchmark | None
    data: BenchmarkData | None
    baseline: tuple[Outcome, ...]
    specialists: tuple[Specialist, ...]


def diagnose(request: DiagnoseRequest, reporter: Reporter) -> Diagnosis:
    """Read, judge, compare and write. One run is written to `out`, several each to a folder of their name in it.

    Raises S2PError: files that cannot be read, a benchmark that is not whole, a specialist that cannot be loaded.
    """
    ground = _ground(request, reporter)
    runs = _runs(request, ground)
    folders = _folders(request.out, list(runs))
    if request.judge is not None:
        for name, run in runs.items():
            record = folders[name] / "judged.jsonl"
            runs[name] = replace(run, outcomes=_judged(run, ground.data, request.judge, record))
    matrix = None
    if len(runs) > 1:
        homes = {run.benchmark.name: run.benchmark for run in runs.values() if run.benchmark is not None}
        matrix = make_matrix(
            {name: run.outcomes for name, run in runs.items()}, next(iter(homes.values())) if len(homes) == 1 else None
        )
    found = tuple(
        _diagnose_run(name, run, folders[name], request, ground, matrix, reporter) for name, run in runs.items()
    )
    if matrix is not None:
        write_json(request.out / "matrix.json", matrix_to_json(matrix))
        write_matrix(matrix, request.out / "matrix.html")
    return Diagnosis(runs=found, matrix=matrix)


# ------------------------------------------------------------------------------------------------------------- reading


def _ground(request: DiagnoseRequest, reporter: Reporter) -> _Ground:
    """Everything that can be wrong with the request itself is found here, before results are read."""
    benchmark, data = None, None
    if request.benchmark:
        benchmark, options = resolve_named(request.benchmark, request.settings, BENCHMARKS, "--benchmark")
        data = benchmark.load(options, lambda done, total: reporter.stage("benchmark", done, total))
    elif request.settings:
        raise ConfigError("options of no benchmark", where="--set", fix="name it with --benchmark")
    if request.specialist is not None and data is None:
        raise ConfigError("a specialist needs the pictures", where="--specialist", fix="name the --benchmark")
    baseline: list[Outcome] = []
    if request.baseline is not None:
        runs = _read(request.baseline, request, data)
        if len(runs) != 1:
            names = ", ".join(run.model for run in runs)
            raise ResultsError(f"results of {len(runs)} models: {names}", where=str(request.baseline), fix="give one")
        baseline = runs[0].outcomes
    return _Ground(
        benchmark=benchmark,
        data=data,
        baseline=tuple(baseline),
        specialists=_specialists(request.specialist) if request.specialist is not None else (),
    )


def _read(path: Path, request: DiagnoseRequest, data: BenchmarkData | None) -> list[Run]:
    return read_runs(path, request.format, request.trust_extracted, data, request.columns)


def _runs(request: DiagnoseRequest, ground: _Ground) -> dict[str, Run]:
    """Name → run, in the order given. Two runs of one model are told apart by their files, then by number."""
    found = [
        (path, replace(run, benchmark=ground.benchmark or run.benchmark))
        for path in request.results
        for run in _read(path, request, ground.data)
    ]
    models = Counter(run.model for _, run in found)
    runs: dict[str, Run] = {}
    for path, run in found:
        name = label = run.model if models[run.model] == 1 else f"{run.model} ({path.stem})"
        for number in range(2, len(found) + 1):
            name = f"{label} {number}" if name in runs else name
        runs[name] = run
    return runs


def _folders(out: Path, names: Sequence[str]) -> dict[str, Path]:
    if len(names) == 1:
        return {names[0]: out}
    folders: dict[str, Path] = {}
    for name in names:
        # Model names hold slashes; and two may differ in nothing else.
        folder = out / (re.sub(r"[^\w.+()-]+", "_", name).strip(".") or "run")
        while folder in folders.values():
            folder = folder.with_name(f"{folder.name}_")
        folders[name] = folder
    return folders


def _judged(run: Run, data: BenchmarkData | None, options: JudgeOptions, record: Path) -> list[Outcome]:
    from synth.diagnosis.judge import judge

    own = {item.item_id: item.choices for item in data.items} if data is not None else {}
    fixed = run.benchmark.choices if run.benchmark is not None else {}

    def choices_of(outcome: Outcome) -> Sequence[str]:
        return own.get(outcome.item_id) or fixed.get(outcome.category, ())

    return judge(run.outcomes, choices_of, options, record=record)


# ------------------------------------------------------------------------------------------------------------- one run


def _diagnose_run(
    name: str,
    run: Run,
    folder: Path,
    request: DiagnoseRequest,
    ground: _Ground,
    matrix: Matrix | None,
    reporter: Reporter,
) -> DiagnosedRun:
    data = ground.data
    beside = Beside(
        missing=missing(run.outcomes, data) if data is not None else {},
        suspects=matrix.suspects if matrix is not None else (),
        baseline=ground.baseline,
    )
    profile = make_profile(
        run.outcomes, run.benchmark, name, round_number=request.round_number, routing=request.routing, beside=beside
    )
    snapshot = compare_runs(ground.baseline, run.outcomes, gate=request.gate) if ground.baseline else None
    contrasts = _contrasts(run, request, ground, reporter)
    write_outcomes(folder / "outcomes.jsonl", run.outcomes)
    tables: dict[str, JsonValue] = {"profile.json": profile_to_json(profile)}
    if snapshot is not None:
        tables["snapshot.json"] = snapshot_to_json(snapshot)
    if contrasts:
        tables["contrast.json"] = to_json(contrasts)
    for file, table in tables.items():
        write_json(folder / file, table)
    for stale in {"snapshot.json", "contrast.json"} - tables.keys():
        # Of an earlier diagnosis with other arguments: it would be read as part of this one.
        (folder / stale).unlink(missing_ok=True)
    write_diagnosis(
        profile,
        folder / "report.html",
        examples=examples_of(run.outcomes, data) if data is not None else (),
        snapshot=snapshot,
        contrasts=contrasts,
    )
    return DiagnosedRun(
        name=name,
        folder=folder,
        profile=profile,
        files=("outcomes.jsonl", *tables, "report.html"),
        snapshot=snapshot,
        contrasts=contrasts,
    )


def _contrasts(run: Run, request: DiagnoseRequest, ground: _Ground, reporter: Reporter) -> tuple[Contrast, ...]:
    """The quadrants, of what the round may plan from: a plan reads them."""
    if ground.data is None:
        return ()
    outcomes = run.outcomes if request.round_number is None else planning(run.outcomes, request.round_number)
    found: list[Contrast] = []
    for specialist in ground.specialists:
        found += contrast(
            ground.data.items,
            outcomes,
            specialist,
            ground.data.clean_images,
            partial(reporter.stage, specialist.name),
        )
    return tuple(found)


def _specialists(path: Path) -> tuple[Specialist, ...]:
    config = load_config(path, SpecialistConfig)
    found = []
    if config.depth is not None:
        backend, options = resolve(config.depth, DEPTH, "depth")
        found.append(depth_specialist(backend.load(options), backend.identity(options)))
    if config.points == "sift":
        found.append(point_specialist(sift_features, "sift"))
    elif config.points:
        found.append(point_specialist(patch_features(config.points), Path(config.points).name))
    if config.views:
        found.append(view_specialist())
    if not found:
        raise ConfigError("names no specialist", where=str(path), fix="set depth, points or views")
    return tuple(found)
