"""The order of a `generate` run: list, plan, guard, perceive and ask shard by shard, assemble, certify.

The file system is the journal. `.work/plan.json` fixes what the run is; a scan or shard file that exists is done; the
manifest is derived at the end and written last. The same recipe over the same images gives the same bytes, whatever the
number of workers and however often the run was killed.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from filelock import FileLock, Timeout

from synth import __version__
from synth.audit.leaks import TESTED_FROM, not_tested, shortcuts_json, with_allowed
from synth.audit.shortcuts import find_shortcuts
from synth.certifying import CERTIFICATE, Certified, certify_dataset
from synth.config import dump
from synth.contracts import BenchmarkData
from synth.dataset.asked import asked_rows
from synth.dataset.assemble import (
    Assembled,
    Light,
    Selection,
    assemble,
    read_candidates,
    select,
    thin_candidates,
    write_drops,
)
from synth.dataset.card import write_card
from synth.dataset.shards import ShardNote, iterate, read_note
from synth.drawing import DrawSpec, draw_shard
from synth.engines import local, ray
from synth.errors import BackendError, ConfigError, GateFailed, GuardError, RunError, SourceError
from synth.files import clear_temporary, write_json
from synth.findings import Plan
from synth.guard.building import build_index
from synth.guard.cascade import Guard, GuardVerdict
from synth.guard.certificate import read_certificate
from synth.guard.embeddings import load_networks
from synth.guard.index import Expected, GuardIndex, load_index, save_index
from synth.guard.options import content_of
from synth.guard.plant import Proof, plant, proof_json, prove
from synth.guard.reading import benchmark_images
from synth.guard.scan import Scan
from synth.manifest import all_drops, build_manifest, drop_rows, quota_row, removed_images
from synth.perception.ranking import (
    Ranked,
    Ranking,
    RankSpec,
    Unranked,
    choose,
    forget,
    rank_shard,
    ranking_of,
    read_shards,
    section,
)
from synth.plan import load_plan
from synth.progress import Silent
from synth.recipe import Recipe, Stages, partners_of, path_of, quotas_of, resolve_recipe, run_identity
from synth.types import JsonValue, Reporter, SourceItem
from synth.work import Scanned, ShardSpec, read_scan, run_shard, scan_shard

SpecT = TypeVar("SpecT")


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """What a run would do."""

    images: int
    shards: int
    quotas: tuple[Mapping[str, JsonValue], ...]
    resolved: Mapping[str, JsonValue]


@dataclass(frozen=True, kw_only=True)
class _Guarded:
    """The index in use, its file, and the benchmark behind it where it is at hand."""

    index: GuardIndex
    path: Path
    benchmark: BenchmarkData | None


@dataclass(frozen=True, kw_only=True)
class _Run:
    """What the steps of one run share."""

    recipe: Recipe
    plan: Plan
    stages: Stages
    ranking: Ranking | Unranked
    items: Sequence[SourceItem]
    out: Path
    reporter: Reporter

    @property
    def work(self) -> Path:
        return self.out / ".work"


def preview(recipe: Recipe) -> DryRun:
    """Resolve everything and count, without work. Raises what `generate` would raise before its first image."""
    plan = _plan(recipe)
    stages = resolve_recipe(recipe, plan)
    items = stages.source.list(stages.source_options)
    shards = -(-len(items) // recipe.output.images_per_shard)
    quotas = tuple(quota_row(quota) for quota in plan.quotas)
    return DryRun(images=len(items), shards=shards, quotas=quotas, resolved=dump(recipe))


def generate(
    recipe: Recipe, out: Path, reporter: Reporter | None = None, benchmark: BenchmarkData | None = None
) -> dict[str, JsonValue]:
    """Run the whole of it and return the manifest.

    `benchmark` may hand over the guard's benchmark where the caller has it in memory. A finished folder of the same run
    is left as it is. Raises GateFailed when the guard misses a planted copy, and
    ConfigError, SourceError, BackendError, BenchmarkError, GuardError or RunError for what the user can mend.
    """
    plan = _plan(recipe)
    stages = resolve_recipe(recipe, plan)
    if recipe.guard.benchmark is None and recipe.guard.index is None and not recipe.guard.unguarded:
        raise GuardError(
            "no benchmark to guard against",
            where="guard",
            fix="set guard.benchmark or guard.index, or type --unguarded (it stamps every row)",
        )
    _check_backends(stages)
    ranking = ranking_of(recipe.ranking, {name: task for name, (task, _) in stages.tasks.items()}, plan.quotas)
    items = stages.source.list(stages.source_options)
    if not items:
        raise SourceError("no images", where=f"source {recipe.source.name}")
    run = _Run(
        recipe=recipe,
        plan=plan,
        stages=stages,
        ranking=ranking,
        items=items,
        out=out,
        reporter=reporter or Silent(),
    )
    out.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(out / ".lock", timeout=0):
            return _locked(run, benchmark)
    except Timeout:
        raise RunError(
            "another process works in this folder", where=str(out), fix="wait for it, or use another --out"
        ) from None


def _locked(run: _Run, benchmark: BenchmarkData | None) -> dict[str, JsonValue]:
    """The steps, in order."""
    started = time.monotonic()
    run.work.mkdir(exist_ok=True)
    for folder in (run.out, run.work, run.work / "evidence"):
        clear_temporary(folder)
    guarded = _guarded(run, benchmark)
    identity = _identity(run, guarded)
    _claim(run, identity)
    if (run.out / "manifest.json").exists():
        return _finished(run)
    workers = run.recipe.engine.workers
    if run.stages.source.prepare is not None:
        run.stages.source.prepare(
            run.items,
            run.stages.source_options,
            workers,
            lambda done, total: run.reporter.stage("preparing images", done, total),
        )
    ranked = _rank(run, identity)
    specs = _specs(replace(run, items=ranked.kept), identity, guarded)
    scanned = _scan(run, specs)
    proof = _prove(run, guarded, scanned)
    rejected = _rejected(scanned)
    seen = {one.key: one.verdict.image_id for one in scanned}
    specs = [replace(spec, rejected=_part(spec, rejected), scanned=_part(spec, seen)) for spec in specs]
    _run_all(run, "making pairs", run_shard, [s for s in specs if not s.shard_path.exists()], len(specs))
    notes = [read_note(spec.shard_path, identity) for spec in specs] + [_low(ranked, identity)]
    _account(notes, run.items)
    drawn, selection = _draw(run, specs)
    notes += [read_note(path, identity) for path in drawn]
    assembled = assemble(
        drawn,
        selection,
        run.out,
        seed=run.recipe.seed,
        rows_per_file=run.recipe.output.rows_per_file,
        validation_share=run.recipe.output.validation_share,
    )
    if not assembled.kept:
        _empty(notes, assembled)
    manifest = build_manifest(run.recipe, run.plan, identity, notes, assembled)
    manifest["ranking"] = section(run.ranking, ranked, Counter(row.group for row in assembled.kept))
    manifest["shortcuts"] = _shortcuts(run, len(assembled.kept))
    write_drops(run.out / "drops.parquet", all_drops(notes, assembled))
    _copy_evidence(run)
    certificate = _certify(run, identity, guarded, proof, scanned, notes)
    manifest["guard"] = {
        "verdict": certificate["verdict"],
        "planted": proof.n if proof else 0,
        "found": proof.found if proof else 0,
        "removed": dict(removed_images(notes)),
        "wording": certificate["template_overlap"],
    }
    write_card(run.out, manifest, certificate)
    manifest["seconds"] = round(time.monotonic() - started, 1)
    write_json(run.out / "manifest.json", manifest)
    return manifest


def _identity(run: _Run, guarded: _Guarded | None) -> str:
    fingerprints = tuple(f"{item.key}:{item.fingerprint}" for item in run.items)
    index = guarded.index.sha256 if guarded else ""
    return run_identity(
        run.recipe, run.plan, fingerprints, index, __version__, run.stages.calibration, run.ranking.identity
    )


def _part(spec: ShardSpec, by_key: Mapping[str, str]) -> dict[str, str]:
    """The part of what the guard said that concerns a shard: its images and those shown beside them."""
    shown = (other for item in spec.items for other in spec.partners.get(item.key, ()))
    return {item.key: by_key[item.key] for item in (*spec.items, *shown) if item.key in by_key}


def _finished(run: _Run) -> dict[str, JsonValue]:
    """The manifest of a finished folder; what the recipe allows may have changed since."""
    manifest: dict[str, JsonValue] = json.loads((run.out / "manifest.json").read_text(encoding="utf-8"))
    section = manifest.get("shortcuts")
    if isinstance(section, Mapping):
        allowed = with_allowed(section, run.recipe.output.allow_shortcuts)
        if allowed != section:
            manifest |= {"shortcuts": allowed, "config": dump(run.recipe)}
            write_card(run.out, manifest, read_certificate(run.out / CERTIFICATE))
            write_json(run.out / "manifest.json", manifest)
    return manifest


def _shortcuts(run: _Run, n: int) -> dict[str, JsonValue]:
    """What a solver that does not look gets on the finished pairs."""
    if n <= TESTED_FROM:
        return not_tested(f"{n} pairs; shortcuts are looked for in more than {TESTED_FROM}")
    run.reporter.stage("looking for shortcuts", 0, 1)
    found = find_shortcuts(asked_rows(run.out))
    run.reporter.stage("looking for shortcuts", 1, 1)
    return with_allowed(shortcuts_json(found), run.recipe.output.allow_shortcuts)


def _check_backends(stages: Stages) -> None:
    """Missing weights are found before any work, and all of them at once. Raises BackendError."""
    missing: list[BackendError] = []
    for chosen in (stages.depth, stages.regions, *stages.matchers):
        if chosen is not None:
            backend, options = chosen
            try:
                if backend.identity is not None:
                    backend.identity(options)
            except BackendError as error:
                missing.append(error)
    if len(missing) == 1:
        raise missing[0]
    if missing:
        raise BackendError("\n".join(str(error) for error in missing))


def _plan(recipe: Recipe) -> Plan:
    return quotas_of(recipe, load_plan(path_of(recipe.plan)) if recipe.plan else None)


def _guarded(run: _Run, given: BenchmarkData | None) -> _Guarded | None:
    """The guard's index: read, or built once into the work folder. None for an unguarded run."""
    guard = run.recipe.guard
    if guard.unguarded:
        return None
    if guard.index is not None:
        path = path_of(guard.index)
        benchmark = given or (_load_benchmark(run) if run.stages.benchmark else None)
        ready = load_index(path)
        ready.check_counts(Expected(items=guard.expect_items, images=guard.expect_images))
        return _Guarded(index=ready, path=path, benchmark=benchmark)
    data = given or _load_benchmark(run)
    path = run.work / "guard-index.npz"
    index = build_index(
        data,
        Expected(items=guard.expect_items, images=guard.expect_images),
        # Where every source image is rendered, no stage would ever read the local features.
        local=content_of(run.stages.source.domain) == "photograph",
        networks=load_networks(guard.options),
    )
    if not path.exists() or load_index(path).sha256 != index.sha256:
        save_index(index, path)
    return _Guarded(index=index, path=path, benchmark=data)


def _load_benchmark(run: _Run) -> BenchmarkData:
    if run.stages.benchmark is None:
        raise ConfigError("neither a benchmark nor an index", where="guard")
    record, options = run.stages.benchmark
    return record.load(options, lambda done, total: run.reporter.stage("reading the benchmark", done, total))


def _claim(run: _Run, identity: str) -> None:
    """Write plan.json, or refuse a folder that belongs to another plan."""
    path = run.work / "plan.json"
    if path.exists():
        if json.loads(path.read_text(encoding="utf-8"))["run"] != identity:
            raise RunError(
                "this folder belongs to another plan (other settings, images, benchmark or version)",
                where=str(run.out),
                fix="use a new --out folder, or delete this one",
            )
        return
    if (run.out / "manifest.json").exists():
        raise RunError("the folder holds a dataset and not its plan", where=str(run.out), fix="use a new --out folder")
    write_json(path, {"run": identity, "items": [item.key for item in run.items]})


def _rank(run: _Run, identity: str) -> Ranked:
    """The photos that the run goes on with: all, unless the recipe asks for those that promise most."""
    if isinstance(run.ranking, Unranked):
        return Ranked(kept=tuple(run.items))
    specs = [
        RankSpec(
            source=run.recipe.source,
            ranking=run.ranking,
            cache=run.recipe.perception.cache,
            run=identity,
            number=number,
            items=chunk,
            folder=run.work,
        )
        for number, chunk in enumerate(_chunks(run))
    ]
    _run_all(run, "ranking images", rank_shard, [s for s in specs if not s.path.exists()], len(specs))
    forget()
    likeness, counts = read_shards(specs)
    return replace(choose(run.items, likeness, run.ranking, run.recipe.seed), counts=counts)


def _low(ranked: Ranked, identity: str) -> ShardNote:
    """What was ranked low, as the shards tell of their images."""
    return ShardNote(
        run=identity,
        shard=-1,
        fates={drop.image: drop.reason for drop in ranked.drops},
        drops=ranked.drops,
        counts=dict(ranked.counts),
        outputs={},
    )


def _chunks(run: _Run) -> list[tuple[SourceItem, ...]]:
    size = run.recipe.output.images_per_shard
    return [tuple(run.items[start : start + size]) for start in range(0, len(run.items), size)]


def _specs(run: _Run, identity: str, guarded: _Guarded | None) -> list[ShardSpec]:
    chunks = _chunks(run)
    partners = partners_of(run.recipe, run.stages, run.items)
    return [
        ShardSpec(
            recipe=run.recipe,
            plan=run.plan,
            run=identity,
            number=number,
            items=chunk,
            n_images=len(run.items),
            folder=run.work,
            index=guarded.path if guarded else None,
            evidence=-(-run.recipe.output.evidence // len(chunks)),
            partners={item.key: partners[item.key] for item in chunk if item.key in partners},
        )
        for number, chunk in enumerate(chunks)
    ]


def _run_all(run: _Run, name: str, work: Callable[[SpecT], None], todo: Sequence[SpecT], total: int) -> None:
    done = total - len(todo)
    run.reporter.stage(name, done, total)
    engine = ray.run if run.recipe.engine.name == "ray" else local.run
    for _ in engine(work, todo, run.recipe.engine.workers):
        done += 1
        run.reporter.stage(name, done, total)


def _draw(run: _Run, specs: Sequence[ShardSpec]) -> tuple[list[Path], Selection]:
    """Choose and draw, and choose again without what the guard threw out, until all that is chosen is drawn."""
    lights, asked = read_candidates([spec.shard_path for spec in specs], asked=run.recipe.output.thin)
    thinned = thin_candidates(lights, asked, run.plan, run.recipe.seed)
    del asked
    lights = [one for one in lights if one.qa_id not in thinned.left_out]
    drawn: list[Path] = []
    tried: set[str] = set()
    passed: set[str] = set()
    while True:
        thrown_out = tried - passed
        selection = select([one for one in lights if one.qa_id not in thrown_out], run.plan, run.recipe.seed)
        fresh = [one for one in selection.kept if one.qa_id not in tried]
        if not fresh:
            return drawn, replace(selection, drops=(*thinned.drops, *selection.drops))
        todo = _drawings(specs, fresh)
        _run_all(run, "drawing pairs", draw_shard, [one for one in todo if not one.path.exists()], len(todo))
        drawn += [one.path for one in todo]
        tried |= {one.qa_id for one in fresh}
        passed |= {str(row["qa_id"]) for one in todo for row in iterate(one.path, ("qa_id",))}


def _drawings(specs: Sequence[ShardSpec], chosen: Sequence[Light]) -> list[DrawSpec]:
    by_shard: dict[int, set[str]] = {}
    for one in chosen:
        by_shard.setdefault(one.shard, set()).add(one.qa_id)
    return [DrawSpec(shard=specs[number], chosen=frozenset(ids)) for number, ids in sorted(by_shard.items())]


def _scan(run: _Run, specs: Sequence[ShardSpec]) -> list[Scanned]:
    """The guard's verdict on every source image that can be decoded."""
    if specs[0].index is None:
        return []
    todo = [spec for spec in specs if not spec.scan_path.exists()]
    _run_all(run, "guarding sources", scan_shard, todo, len(specs))
    return [scanned for spec in specs for scanned in read_scan(spec)]


def _prove(run: _Run, guard: _Guarded | None, scanned: Sequence[Scanned]) -> Proof | None:
    """Plant transformed copies of benchmark images and find them by the same path; anything less stops the run."""
    if guard is None:
        return None
    if guard.benchmark is None:
        raise GuardError(
            "planted copies need the benchmark's images, and only an index was given",
            where="guard",
            fix="set guard.benchmark as well as guard.index",
        )
    contents = sorted({one.verdict.content for one in scanned}) or ["photograph"]
    rng = np.random.default_rng(run.recipe.seed)
    planted = plant(_images(guard.benchmark), run.recipe.guard.options.planted, rng)
    proof = prove(Guard(guard.index, run.recipe.guard.options), planted, contents)
    run.reporter.stage("proving the guard", proof.found, proof.n)
    write_json(run.work / "planted.json", proof_json(proof))
    if not proof.established:
        missed = ", ".join(f"{miss.transform} of {miss.truth}" for miss in proof.missed[:5])
        raise GateFailed(
            f"the guard found {proof.found} of {proof.n} planted copies of benchmark images: not established, "
            f"nothing is written (missed: {missed})",
            where="guard",
        )
    return proof


def _images(benchmark: BenchmarkData) -> dict[str, bytes]:
    """Benchmark images to plant, under their names in the index: the unmarked ones where the items have them."""
    named = dict(benchmark_images(benchmark))
    clean = {f"clean/{name}" for item in benchmark.items for name in item.clean}
    return {name: data for name, data in named.items() if name in clean} if clean else named


def _rejected(scanned: Sequence[Scanned]) -> dict[str, str]:
    """Source key -> reason. A whole source group falls with its first member that is in the benchmark."""
    groups = {one.group for one in scanned if one.verdict.is_hit and one.group}
    out: dict[str, str] = {}
    for one in scanned:
        if one.verdict.verdict != "clean":
            out[one.key] = f"benchmark_{one.verdict.verdict}"
        elif one.group in groups:
            out[one.key] = "benchmark_group"
    return out


def _account(notes: Sequence[ShardNote], items: Sequence[SourceItem]) -> None:
    """Every planned image has exactly one fate."""
    fates = Counter(key for note in notes for key in note.fates)
    if fates != Counter(item.key for item in items):
        raise RunError("the shards do not account for every planned image once", fix="delete the folder and run again")


def _empty(notes: Sequence[ShardNote], assembled: Assembled) -> None:
    rows = [row for row in drop_rows(all_drops(notes, assembled))[:5] if isinstance(row, dict)]
    reasons = "; ".join(f"{row['count']}x {row['stage']}/{row['task'] or 'image'}: {row['reason']}" for row in rows)
    raise RunError(
        f"not one pair could be made ({reasons or 'no candidate at all'})",
        fix="more or other photos, or other task options",
    )


def _copy_evidence(run: _Run) -> None:
    """Depth overlays for the viewer."""
    if (run.work / "evidence").is_dir():
        shutil.copytree(run.work / "evidence", run.out / "evidence", dirs_exist_ok=True)


def _certify(
    run: _Run,
    identity: str,
    guarded: _Guarded | None,
    proof: Proof | None,
    scanned: Sequence[Scanned],
    notes: Sequence[ShardNote],
) -> dict[str, JsonValue]:
    facts = Certified(
        name=run.recipe.name,
        run=identity,
        seed=run.recipe.seed,
        sources=(run.recipe.source.name, *(str(v) for v in run.recipe.source.settings().values())),
        guard=Guard(guarded.index, run.recipe.guard.options) if guarded else None,
        scan=Scan(
            verdicts={one.verdict.image_id: one.verdict for one in scanned},
            rejected_groups={one.group: one.verdict.image_id for one in scanned if one.verdict.is_hit and one.group},
            n_without_group=sum(not one.group for one in scanned),
        ),
        proof=proof,
        removed_text=sum(d.count for n in notes for d in n.drops if d.stage == "guard" and d.reason[:5] == "text_"),
        outputs={
            qa_id: tuple(GuardVerdict(**found) for found in verdicts)  # type: ignore[arg-type]  # plain JSON of ours
            for note in notes
            for qa_id, verdicts in note.outputs.items()
        },
    )
    return certify_dataset(run.out, facts)
