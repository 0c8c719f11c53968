"""The order of a `generate` run: list, plan, guard, perceive and ask shard by shard, assemble, certify.

The file system is the journal. `.work/plan.json` fixes what the run is; a scan or shard file that exists is done; the
manifest is derived at the end and written last. The same recipe over the same images gives the same bytes, whatever the
number of workers and however often the run was killed.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from synth import __version__
from synth.config import dump
from synth.dataset.assemble import Assembled, assemble, letters_and_strata, write_drops
from synth.dataset.card import write_card
from synth.dataset.shards import ShardNote, read_note
from synth.engines.local import run as run_local
from synth.errors import ConfigError, GuardError, RunError, SourceError
from synth.files import write_json
from synth.guard.cascade import open_guard
from synth.guard.certificate import CertificateFacts, write_certificate
from synth.guard.index import GuardIndex, build_index, load_index, save_index
from synth.guard.plant import Proof, plant, prove
from synth.plan import load_plan
from synth.progress import Silent
from synth.recipe import Recipe, Stages, path_of, quotas_of, resolve_recipe, run_identity
from synth.types import BenchmarkData, Drop, JsonValue, Plan, Reporter, SourceItem
from synth.work import ShardSpec, merge_drops, run_shard, scan_shard

log = logging.getLogger("s2p")


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """What a run would do."""

    images: int
    shards: int
    quotas: tuple[Mapping[str, JsonValue], ...]
    resolved: Mapping[str, JsonValue]


def preview(recipe: Recipe) -> DryRun:
    """Resolve everything and count, without work. Raises what `generate` would raise before its first image."""
    plan = _plan(recipe)
    stages = resolve_recipe(recipe, plan)
    items = stages.source.list(stages.source_options)
    size = recipe.output.images_per_shard
    quotas = tuple(_quota_row(quota) for quota in plan.quotas)
    return DryRun(images=len(items), shards=-(-len(items) // size), quotas=quotas, resolved=dump(recipe))


def generate(
    recipe: Recipe, out: Path, reporter: Reporter | None = None, benchmark: BenchmarkData | None = None
) -> dict[str, JsonValue]:
    """Run the whole of it and return the manifest.

    `benchmark` may hand over the guard's benchmark where the caller has it in memory. A finished folder of the same run
    is left as it is. Raises ConfigError, SourceError, BackendError, BenchmarkError, GuardError, RunError.
    """
    reporter = reporter or Silent()
    started = time.monotonic()
    plan = _plan(recipe)
    stages = resolve_recipe(recipe, plan)
    if recipe.guard.benchmark is None and recipe.guard.index is None and not recipe.guard.unguarded:
        raise GuardError(
            "no benchmark to guard against",
            where="guard",
            fix="set guard.benchmark or guard.index, or type --unguarded (it stamps every row)",
        )
    items = stages.source.list(stages.source_options)
    if not items:
        raise SourceError("no images", where=f"source {recipe.source.name}")
    out.mkdir(parents=True, exist_ok=True)
    lock = FileLock(out / ".lock", timeout=0)
    try:
        with lock:
            return _locked(recipe, plan, stages, items, out, reporter, _Given(benchmark, started))
    except Timeout:
        raise RunError(
            "another process works in this folder", where=str(out), fix="wait for it, or use another --out"
        ) from None


@dataclass(frozen=True)
class _Given:
    benchmark: BenchmarkData | None
    started: float


def _locked(
    recipe: Recipe,
    plan: Plan,
    stages: Stages,
    items: Sequence[SourceItem],
    out: Path,
    reporter: Reporter,
    given: _Given,
) -> dict[str, JsonValue]:
    work = out / ".work"
    work.mkdir(exist_ok=True)
    index, index_path, protected = _index(recipe, stages, work, given.benchmark, reporter)
    fingerprints = tuple(f"{item.key}:{item.fingerprint}" for item in items)
    run = run_identity(recipe, plan, fingerprints, index.sha256 if index else "", __version__)
    _claim(out, work, run, items)
    if (out / "manifest.json").exists():
        finished: dict[str, JsonValue] = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
        return finished
    if stages.source.prepare is not None:
        prepare_done = lambda done, total: reporter.stage("preparing images", done, total)  # noqa: E731
        stages.source.prepare(items, stages.source_options, recipe.engine.workers, prepare_done)
    specs = _specs(recipe, plan, run, items, work, index_path)
    verdicts = _scan(specs, recipe.engine.workers, reporter)
    proof = _prove(recipe, index_path, protected, work, reporter)
    rejected = _rejected(verdicts, items)
    specs = [
        replace(spec, rejected={i.key: rejected[i.key] for i in spec.items if i.key in rejected}) for spec in specs
    ]
    _run_all(
        "making pairs",
        run_shard,
        [s for s in specs if not s.shard_path.exists()],
        len(specs),
        recipe.engine.workers,
        reporter,
    )
    notes = [read_note(spec.shard_path, run) for spec in specs]
    _account(notes, items)
    output = recipe.output
    assembled = assemble(
        [spec.shard_path for spec in specs],
        plan,
        out,
        seed=recipe.seed,
        rows_per_file=output.rows_per_file,
        validation_share=output.validation_share,
    )
    if not assembled.kept:
        _empty(notes, assembled)
    return _finish(_Facts(recipe, plan, stages, run, out, index, proof, verdicts), notes, assembled, given.started)


def _plan(recipe: Recipe) -> Plan:
    return quotas_of(recipe, load_plan(path_of(recipe.plan)) if recipe.plan else None)


def _claim(out: Path, work: Path, run: str, items: Sequence[SourceItem]) -> None:
    """Write plan.json, or refuse a folder that belongs to another plan."""
    path = work / "plan.json"
    if path.exists():
        old = json.loads(path.read_text(encoding="utf-8"))["run"]
        if old != run:
            raise RunError(
                "this folder belongs to another plan (other settings, images, benchmark or version)",
                where=str(out),
                fix="use a new --out folder, or delete this one",
            )
        return
    if (out / "manifest.json").exists():
        raise RunError("the folder holds a dataset and not its plan", where=str(out), fix="use a new --out folder")
    write_json(path, {"run": run, "items": [item.key for item in items]})


def _index(
    recipe: Recipe, stages: Stages, work: Path, given: BenchmarkData | None, reporter: Reporter
) -> tuple[GuardIndex | None, Path | None, BenchmarkData | None]:
    """The guard's index (read, or built once into the work folder) and the benchmark behind it where it is at hand."""
    if recipe.guard.unguarded:
        return None, None, None
    if recipe.guard.index is not None:
        path = path_of(recipe.guard.index)
        return load_index(path), path, given
    if stages.benchmark is None:
        raise ConfigError("neither a benchmark nor an index", where="guard")
    record, options = stages.benchmark
    data = given or record.load(options, lambda done, total: reporter.stage("reading the benchmark", done, total))
    path = work / "guard-index.npz"
    index = build_index(data)
    if path.exists() and load_index(path).sha256 == index.sha256:
        return index, path, data
    save_index(index, path)
    return index, path, data


def _specs(
    recipe: Recipe, plan: Plan, run: str, items: Sequence[SourceItem], work: Path, index: Path | None
) -> list[ShardSpec]:
    size = recipe.output.images_per_shard
    chunks = [tuple(items[start : start + size]) for start in range(0, len(items), size)]
    evidence = -(-recipe.output.evidence // len(chunks)) if recipe.output.evidence else 0
    return [
        ShardSpec(
            recipe=recipe,
            plan=plan,
            run=run,
            number=number,
            items=chunk,
            n_images=len(items),
            folder=work,
            index=index,
            evidence=evidence,
        )
        for number, chunk in enumerate(chunks)
    ]


def _run_all(name: str, work: object, todo: Sequence[ShardSpec], total: int, workers: int, reporter: Reporter) -> None:
    done = total - len(todo)
    reporter.stage(name, done, total)
    function = run_shard if work is run_shard else scan_shard
    for _ in run_local(function, todo, workers):
        done += 1
        reporter.stage(name, done, total)


def _scan(specs: Sequence[ShardSpec], workers: int, reporter: Reporter) -> dict[str, dict[str, JsonValue]]:
    """The guard's verdict on every source image, by source key."""
    if not specs or specs[0].index is None:
        return {}
    todo = [spec for spec in specs if not spec.scan_path.exists()]
    _run_all("guarding sources", scan_shard, todo, len(specs), workers, reporter)
    verdicts: dict[str, dict[str, JsonValue]] = {}
    for spec in specs:
        value = json.loads(spec.scan_path.read_text(encoding="utf-8"))
        if value["run"] != spec.run:
            raise RunError("a scan of another run", where=str(spec.scan_path), fix="use a new --out folder")
        verdicts.update(value["verdicts"])
    return verdicts


def _prove(
    recipe: Recipe, index_path: Path | None, protected: BenchmarkData | None, work: Path, reporter: Reporter
) -> Proof | None:
    """Plant transformed copies of benchmark images and find them by the same path; anything less stops the run."""
    if index_path is None:
        return None
    if protected is None:
        raise GuardError(
            "planted copies need the benchmark's images, and only an index was given",
            where="guard",
            fix="set guard.benchmark as well as guard.index",
        )
    images = [*protected.clean_images.values()] or [data for item in protected.items for data in item.images]
    rng = np.random.default_rng(recipe.seed)
    proof = prove(open_guard(index_path), plant(images, recipe.guard.plant, rng))
    reporter.stage("proving the guard", proof.found, proof.n)
    write_json(work / "planted.json", {"n": proof.n, "found": proof.found, "missed": list(proof.missed)})
    if proof.found < proof.n:
        raise GuardError(
            f"the guard found {proof.found} of {proof.n} planted copies of benchmark images: not established, "
            f"nothing is written (missed: {', '.join(proof.missed[:5])})",
            where="guard",
        )
    return proof


def _rejected(verdicts: Mapping[str, Mapping[str, JsonValue]], items: Sequence[SourceItem]) -> dict[str, str]:
    """Source key -> reason. A group falls with its first member that is not clean; unreadable images are no hit."""
    bad = ("copy", "crop", "scene", "unverifiable")
    own = {key: str(v["verdict"]) for key, v in verdicts.items() if v["verdict"] in bad}
    groups = {item.group for item in items if own.get(item.key) in ("copy", "crop", "scene")}
    out: dict[str, str] = {}
    for item in items:
        if item.key in own:
            out[item.key] = f"benchmark_{own[item.key]}"
        elif item.group in groups:
            out[item.key] = "benchmark_group"
    return out


def _account(notes: Sequence[ShardNote], items: Sequence[SourceItem]) -> None:
    """Every planned image has exactly one fate."""
    fates = Counter(key for note in notes for key in note.fates)
    if fates != Counter(item.key for item in items):
        raise RunError("the shards do not account for every planned image once", fix="delete the folder and run again")


def _empty(notes: Sequence[ShardNote], assembled: Assembled) -> None:
    drops = merge_drops([replace(d, image="") for n in notes for d in n.drops] + list(assembled.drops))
    top = sorted(drops, key=lambda d: -d.count)[:5]
    reasons = "; ".join(f"{d.count}x {d.stage}/{d.task or 'image'}: {d.reason}" for d in top) or "no candidate at all"
    raise RunError(f"not one pair could be made ({reasons})", fix="more or other photos, or other task options")


@dataclass(frozen=True)
class _Facts:
    recipe: Recipe
    plan: Plan
    stages: Stages
    run: str
    out: Path
    index: GuardIndex | None
    proof: Proof | None
    verdicts: Mapping[str, Mapping[str, JsonValue]]


def _finish(facts: _Facts, notes: Sequence[ShardNote], assembled: Assembled, started: float) -> dict[str, JsonValue]:
    """Drops, evidence, certificate, card; the manifest last."""
    out = facts.out
    drops = merge_drops([d for note in notes for d in note.drops] + list(assembled.drops))
    write_drops(out / "drops.parquet", drops)
    evidence = out / ".work" / "evidence"
    if evidence.is_dir():
        shutil.copytree(evidence, out / "evidence", dirs_exist_ok=True)
    rejected = Counter(reason for note in notes for reason in note.fates.values() if reason.startswith("benchmark_"))
    counts = Counter[str]()
    for note in notes:
        counts.update({k: v for k, v in note.counts.items()})  # type: ignore[arg-type]
    certificate = write_certificate(
        out,
        CertificateFacts(
            name=facts.recipe.name,
            run=facts.run,
            index=facts.index,
            proof=facts.proof,
            verdicts=facts.verdicts,
            n_outputs=int(counts["guard_outputs"]),
            output_hits=sum(d.count for d in drops if d.stage == "guard" and d.reason.startswith("output_")),
            removed=dict(rejected),
        ),
    )
    manifest = _manifest(facts, notes, assembled, drops, counts)
    manifest["guard"] = {
        "verdict": certificate["verdict"],
        "planted": facts.proof.n if facts.proof else 0,
        "found": facts.proof.found if facts.proof else 0,
        "removed": dict(rejected),
    }
    manifest["seconds"] = round(time.monotonic() - started, 1)
    write_card(out, manifest, certificate)
    write_json(out / "manifest.json", manifest)
    return manifest


def _manifest(
    facts: _Facts,
    notes: Sequence[ShardNote],
    assembled: Assembled,
    drops: Sequence[Drop],
    counts: Mapping[str, float],
) -> dict[str, JsonValue]:
    fates = Counter(fate for note in notes for fate in note.fates.values())
    letters, strata = letters_and_strata(assembled.kept)
    by_skill = Counter(row.skill for row in assembled.kept)
    by_task = Counter((row.task, row.skill) for row in assembled.kept)
    candidates = {k.split(":", 1)[1]: int(v) for k, v in sorted(counts.items()) if k.startswith("candidates:")}
    ledger = merge_drops([replace(drop, image="") for drop in drops])
    return {
        "schema": "s2p-manifest/1",
        "run": facts.run,
        "name": facts.recipe.name,
        "code_version": __version__,
        "config": dump(facts.recipe),
        "images": {
            "listed": sum(fates.values()),
            "used": fates["used"],
            "dropped": sum(fates.values()) - fates["used"],
        },
        "pairs": {
            "candidates": sum(candidates.values()),
            "candidates_by_skill": candidates,
            "kept": len(assembled.kept),
            "by_skill": dict(sorted(by_skill.items())),
            "by_split": dict(assembled.splits),
            "letters": letters,
            "strata": strata,
        },
        "quotas": [
            {
                "task": q.task,
                "skill": str(q.skill),
                "n": q.n,
                "why": q.why,
                "role": q.role,
                "made": by_task[(q.task, str(q.skill))],
            }
            for q in facts.plan.quotas
        ],
        "drops": [
            {"stage": d.stage, "task": d.task, "reason": d.reason, "count": d.count, "example": d.example}
            for d in sorted(ledger, key=lambda d: -d.count)
        ],
        "perception": {k: v for k, v in sorted(counts.items()) if ":" not in k},
        "files": list(assembled.files),
    }
