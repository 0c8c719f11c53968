"""What happens to one shard of images: the guard's scan, and the making of questions.

Both functions are idempotent: a shard whose file exists is done, and the same spec gives the same bytes in any process.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path

from synth.balance import BalanceOptions, choose
from synth.dataset.rows import Row, draw, to_table
from synth.dataset.shards import ShardNote, write_shard
from synth.errors import ImageError, RunError
from synth.files import write_bytes, write_json
from synth.findings import Plan, Quota
from synth.geometry import generator
from synth.guard.cascade import Guard, GuardOptions, GuardVerdict, content_of
from synth.guard.index import load_index
from synth.images import decode
from synth.manifest import merge_drops
from synth.perception.perceive import Perceiver, PerceptionStats, missing_needs
from synth.plugins import CHECKS, load_all
from synth.recipe import Recipe, Stages, per_image_cap, perceiver_of, resolve_recipe
from synth.report.overlay import depth_overlay
from synth.types import QA, Drop, Frame, JsonValue, Scene, SourceItem, Task, View

BATCH = 8
"""Images perceived together."""
THIN = BalanceOptions(equal=False)
"""One image's share is thinned without forcing evenness on it: the whole set is balanced at the end."""


@dataclass(frozen=True, kw_only=True)
class ShardSpec:
    """One unit of work and of commit. Everything in it can be pickled."""

    recipe: Recipe
    plan: Plan
    run: str
    number: int
    items: tuple[SourceItem, ...]
    n_images: int
    """Images of the whole run, for the share that each may give."""
    folder: Path
    """The run's work folder."""
    index: Path | None
    """The guard's index file; None when the run is unguarded."""
    rejected: Mapping[str, str] = field(default_factory=dict)
    """Source key -> reason, for images that the guard threw out (with their whole group)."""
    evidence: int = 0

    @property
    def shard_path(self) -> Path:
        """Where the shard's rows go."""
        return self.folder / f"shard-{self.number:05d}.parquet"

    @property
    def scan_path(self) -> Path:
        """Where the guard's verdicts go."""
        return self.folder / f"scan-{self.number:05d}.json"


@dataclass(frozen=True, kw_only=True)
class Scanned:
    """The guard's verdict on one source image."""

    key: str
    name: str
    group: str
    verdict: GuardVerdict


def scan_shard(spec: ShardSpec) -> None:
    """Let the guard look at every source image of the shard. What cannot be decoded is left to `run_shard` to drop."""
    if spec.index is None or spec.scan_path.exists():
        return
    guard = _guard(str(spec.index), spec.recipe.guard.options)
    stages = resolve_recipe(spec.recipe, spec.plan)
    found: list[JsonValue] = []
    for item in spec.items:
        try:
            view = stages.source.load(item, stages.source_options)
            rgb = decode(view.data)
        except ImageError:
            continue
        verdict = guard.check(view.data, rgb, content=content_of(view.domain))
        found.append({"key": item.key, "name": view.name, "group": view.group, "verdict": asdict(verdict)})
    write_json(spec.scan_path, {"run": spec.run, "found": found})


def read_scan(spec: ShardSpec) -> list[Scanned]:
    """The verdicts of a scanned shard. Raises RunError for a file of another run."""
    value = json.loads(spec.scan_path.read_text(encoding="utf-8"))
    if value["run"] != spec.run:
        raise RunError("a scan of another run", where=str(spec.scan_path), fix="use a new --out folder")
    return [Scanned(**{**line, "verdict": GuardVerdict(**line["verdict"])}) for line in value["found"]]


def run_shard(spec: ShardSpec) -> None:
    """Read, perceive, ask, check, draw and commit one shard."""
    if spec.shard_path.exists():
        return
    started = time.process_time()
    kit = _kit(spec.recipe, spec.plan, str(spec.index) if spec.index else "")
    fates: dict[str, str] = {}
    drops: list[Drop] = []
    counts: Counter[str] = Counter()
    rows: list[Row] = []
    outputs: dict[str, list[dict[str, JsonValue]]] = {}
    before = _flat(kit.perceiver.stats())
    frames = list(_frames(spec, kit.stages, fates, drops))
    shown = 0
    for start in range(0, len(frames), BATCH):
        batch = frames[start : start + BATCH]
        results = kit.perceiver.perceive([frame for _, frame in batch], kit.stages.needs, spec.recipe.seed)
        for (key, frame), result in zip(batch, results, strict=True):
            if isinstance(result, Drop):
                fates[key] = result.reason
                drops.append(result)
                continue
            fates[key] = "used"
            rows += _ask(spec, kit, result, _Ledger(drops, counts, outputs))
            if shown < spec.evidence and result.depths:
                write_bytes(spec.folder / "evidence" / f"{frame.view.image_id}.jpg", depth_overlay(result))
                shown += 1
    totals: dict[str, float] = dict(counts)
    for name, value in _flat(kit.perceiver.stats()).items():
        totals[name] = round(value - before.get(name, 0.0), 3)
    totals["cpu_seconds"] = round(time.process_time() - started, 3)
    rows.sort(key=lambda row: row.qa.qa_id)
    note = ShardNote(
        run=spec.run, shard=spec.number, fates=fates, drops=merge_drops(drops), counts=totals, outputs=outputs
    )
    write_shard(spec.shard_path, to_table(rows), note)


def _flat(stats: PerceptionStats) -> dict[str, float]:
    """Perception counters by name, so that shards can be added up."""
    flat: dict[str, float] = {"pairs_made": stats.pairs, "load_seconds": stats.load_seconds}
    for member in stats.members:
        name = f"{member.role}/{member.member}"
        flat[f"{name}: passes"] = member.passes
        flat[f"{name}: cache hits"] = member.cache_hits
        flat[f"{name}: seconds"] = member.seconds
    return flat


@dataclass(frozen=True)
class _Ledger:
    """What a shard writes down beside its rows."""

    drops: list[Drop]
    counts: Counter[str]
    outputs: dict[str, list[dict[str, JsonValue]]]

    def drop(self, stage: str, task: str, view: View, reason: str, example: str) -> None:
        """Note one loss."""
        self.drops.append(Drop(stage=stage, task=task, image=view.name, reason=reason, example=example))


@dataclass(frozen=True)
class _Kit:
    """What a worker loads once."""

    stages: Stages
    perceiver: Perceiver
    guard: Guard | None


@lru_cache(maxsize=2)
def _guard(path: str, options: GuardOptions) -> Guard:
    return Guard(load_index(Path(path)), options)


_KITS: dict[str, _Kit] = {}


def _kit(recipe: Recipe, plan: Plan, index: str) -> _Kit:
    key = f"{recipe.model_dump_json()}|{plan}|{index}"
    if key not in _KITS:
        stages = resolve_recipe(recipe, plan)
        _KITS.clear()  # one run at a time: the last run's models leave memory
        _KITS[key] = _Kit(
            stages=stages,
            perceiver=perceiver_of(recipe, stages),
            guard=_guard(index, recipe.guard.options) if index else None,
        )
    return _KITS[key]


def _frames(spec: ShardSpec, stages: Stages, fates: dict[str, str], drops: list[Drop]) -> Iterator[tuple[str, Frame]]:
    """Decoded images of the shard; what cannot be used is noted."""
    for item in spec.items:
        if item.key in spec.rejected:
            fates[item.key] = spec.rejected[item.key]
            drops.append(Drop(stage="guard", task="", image=item.key, reason=spec.rejected[item.key]))
            continue
        try:
            view = stages.source.load(item, stages.source_options)
            yield item.key, Frame(view=view, rgb=decode(view.data))
        except ImageError as error:
            fates[item.key] = error.reason
            drops.append(Drop(stage="source", task="", image=item.key, reason=error.reason, example=error.message))


def _ask(spec: ShardSpec, kit: _Kit, scene: Scene, ledger: _Ledger) -> list[Row]:
    """Every question of one scene that passed, drawn, at most the share of one image."""
    rows: list[Row] = []
    for name, (task, default) in kit.stages.tasks.items():
        options = kit.stages.options_for(name, default, scene.view.domain)
        if isinstance(options, str):
            ledger.drop("task", name, scene.view, "off_here", options)
            continue
        lacking = missing_needs(scene, frozenset(task.needs))
        if lacking:
            lacks = "lacks " + ", ".join(sorted(need.value for need in lacking))
            ledger.drop("perception", name, scene.view, "no_truth", lacks)
            continue
        passed: list[QA] = []
        for result in task.generate(scene, options, generator(spec.recipe.seed, name, scene.view.image_id)):
            if isinstance(result, Drop):
                ledger.drops.append(result)
                continue
            ledger.counts[f"candidates:{result.skill}"] += 1
            bad = _judged(result, scene, task)
            if bad is None:
                passed.append(result)
            else:
                ledger.drops.append(bad)
        for quota in (q for q in spec.plan.quotas if q.task == name):
            mine = [qa for qa in passed if qa.skill == quota.skill]
            cap = per_image_cap(quota, spec.n_images, spec.recipe.output)
            chosen, lost = choose(mine, cap, spec.recipe.seed, THIN)
            ledger.drops.extend(lost)
            rows += _drawn(chosen, quota, scene, spec, kit, ledger)
    return rows


def _judged(qa: QA, scene: Scene, task: Task) -> Drop | None:
    """The first check that says no."""
    for check in load_all(CHECKS):
        verdict = check.judge(qa, scene, task)
        if not verdict.keep:
            reason = f"{check.name}:{verdict.reason}"
            return Drop(stage="check", task=qa.task, image=scene.view.name, reason=reason, example=verdict.detail)
    return None


def _drawn(
    chosen: Sequence[QA], quota: Quota, scene: Scene, spec: ShardSpec, kit: _Kit, ledger: _Ledger
) -> Iterator[Row]:
    """Draw the pictures, let the guard look once more with our own marks masked, and make rows."""
    view = scene.view
    for qa in chosen:
        pictures = draw(qa, scene, spec.recipe.output.image_format)
        ledger.counts["pictures"] += len(pictures)
        if kit.guard is not None:
            found = [kit.guard.check(p.data, p.rgb, p.drawn, content_of(view.domain)) for p in pictures]
            hits = [verdict for verdict in found if verdict.verdict != "clean"]
            if hits:
                ledger.drop("guard", qa.task, view, f"output_{hits[0].verdict}", hits[0].match or hits[0].stage)
                continue
            ledger.outputs[qa.qa_id] = [dict(asdict(verdict)) for verdict in found]
        yield Row(
            qa=qa,
            pictures=pictures,
            source=view.source,
            source_name=view.name,
            group=view.group,
            licence=view.licence,
            domain=view.domain,
            role=quota.role,
            guarded=kit.guard is not None,
        )
