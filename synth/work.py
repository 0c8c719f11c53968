"""What happens to one shard of images: the guard's scan, and the making of candidates.

Both functions are idempotent: a shard whose file exists is done, and the same spec gives the same bytes in any process.
"""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path

from synth.balance import BalanceOptions, choose
from synth.contracts import Check, Task
from synth.dataset.candidates import SCHEMA, Candidate, to_table
from synth.dataset.prompt import item_prompt
from synth.dataset.shards import ShardNote, write_shard
from synth.errors import ImageError, RunError
from synth.files import write_bytes, write_json
from synth.findings import Plan
from synth.geometry import generator
from synth.guard.cascade import Guard, GuardVerdict
from synth.guard.index import load_index
from synth.guard.options import GuardOptions, content_of
from synth.images import decode
from synth.manifest import merge_drops
from synth.perception.perceive import Perceiver, PerceptionStats, lacks, losses_of, missing_needs
from synth.perception.two_views import load_partners
from synth.plugins import CHECKS, load_all
from synth.recipe import Recipe, Stages, per_image_cap, perceiver_of, resolve_recipe
from synth.report.overlay import depth_overlay
from synth.twins import is_drawn, twins_of
from synth.types import QA, Drop, Frame, JsonValue, Scene, SourceItem, View

BATCH = 8
"""Images perceived together."""
AHEAD = 2 * BATCH
"""Images that are read and decoded while the models look at others."""
READERS = 2
"""Threads that read and decode."""
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
    """Source key -> reason, for images of the shard and their partners that the guard threw out."""
    scanned: Mapping[str, str] = field(default_factory=dict)
    """Source key -> id of the image that the guard saw under it, of the same images."""
    evidence: int = 0
    partners: Mapping[str, tuple[SourceItem, ...]] = field(default_factory=dict)
    """Source key of a photo of the shard -> other photos of its group, which may belong to other shards."""

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
    """Let the guard look at every source image of the shard. What cannot be decoded is noted, and never used."""
    if spec.index is None or spec.scan_path.exists():
        return
    guard = _guard(str(spec.index), spec.recipe.guard.options)
    stages = resolve_recipe(spec.recipe, spec.plan)
    found: list[JsonValue] = []
    unreadable: list[JsonValue] = []
    for item in spec.items:
        try:
            view = stages.source.load(item, stages.source_options)
            rgb = decode(view.data)
        except ImageError:
            unreadable.append(item.key)
            continue
        verdict = guard.check(view.data, rgb, content=content_of(view.domain), name=view.name)
        found.append({"key": item.key, "name": view.name, "group": view.group, "verdict": asdict(verdict)})
    write_json(spec.scan_path, {"run": spec.run, "found": found, "unreadable": unreadable})


def read_scan(spec: ShardSpec) -> list[Scanned]:
    """The verdicts of a scanned shard. Raises RunError for a file of another run, or one that leaves out an image."""
    value = json.loads(spec.scan_path.read_text(encoding="utf-8"))
    if value["run"] != spec.run:
        raise RunError("a scan of another run", where=str(spec.scan_path), fix="use a new --out folder")
    seen = {*(line["key"] for line in value["found"]), *value["unreadable"]}
    missing = [item.key for item in spec.items if item.key not in seen]
    if missing:
        raise RunError(
            f"{len(missing)} images without the guard's verdict, e.g. {missing[0]}",
            where=str(spec.scan_path),
            fix="delete this file and run the same command again",
        )
    return [Scanned(**{**line, "verdict": GuardVerdict(**line["verdict"])}) for line in value["found"]]


def run_shard(spec: ShardSpec) -> None:
    """Read, perceive, ask and check one shard, and commit its candidates."""
    if spec.shard_path.exists():
        return
    started = time.process_time()
    kit = kit_of(spec)
    fates: dict[str, str] = {}
    ledger = _Ledger([], Counter())
    candidates: list[Candidate] = []
    before = _flat(kit.perceiver.stats())
    shown = 0
    for batch in _batches(_frames(spec, kit.stages, fates, ledger.drops), BATCH):
        others = [partners_of_photo(key, spec, kit.stages, ledger.drops) for key, _ in batch]
        results = kit.perceiver.perceive([frame for _, frame in batch], kit.stages.needs, spec.recipe.seed, others)
        for (key, frame), result in zip(batch, results, strict=True):
            if isinstance(result, Drop):
                fates[key] = result.reason
                ledger.drops.append(result)
                continue
            fates[key] = "used"
            ledger.drops.extend(losses_of(result))
            candidates += _ask(spec, kit, key, result, ledger)
            if shown < spec.evidence and result.depths:
                write_bytes(spec.folder / "evidence" / f"{frame.view.image_id}.jpg", depth_overlay(result))
                shown += 1
    totals: dict[str, float] = dict(ledger.counts)
    for name, value in _flat(kit.perceiver.stats()).items():
        totals[name] = round(value - before.get(name, 0.0), 3)
    totals["cpu_seconds"] = round(time.process_time() - started, 3)
    candidates.sort(key=lambda candidate: candidate.qa.qa_id)
    note = ShardNote(
        run=spec.run, shard=spec.number, fates=fates, drops=merge_drops(ledger.drops), counts=totals, outputs={}
    )
    write_shard(spec.shard_path, SCHEMA, [to_table(candidates)], note)


def _batches(frames: Iterator[tuple[str, Frame]], size: int) -> Iterator[list[tuple[str, Frame]]]:
    while batch := list(islice(frames, size)):
        yield batch


def _flat(stats: PerceptionStats) -> dict[str, float]:
    """Perception counters by name, so that shards can be added up."""
    flat: dict[str, float] = {"pairs_made": stats.pairs, "load_seconds": stats.load_seconds}
    if stats.second_views:
        flat["two_views: pairs matched"] = stats.second_views
        flat["two_views: pairs without truth"] = stats.second_views_absent
        flat["two_views: passes"] = stats.match_passes
        flat["two_views: cache hits"] = stats.match_cache_hits
        flat["two_views: seconds"] = stats.match_seconds
    for member in stats.members:
        name = f"{member.role}/{member.member}"
        flat[f"{name}: passes"] = member.passes
        flat[f"{name}: cache hits"] = member.cache_hits
        flat[f"{name}: seconds"] = member.seconds
    if stats.cache is not None:
        flat["cache: hits"] = stats.cache.hits
        flat["cache: misses"] = stats.cache.misses
        flat["cache: damaged entries"] = stats.cache.corrupt
        flat["cache: entries not written"] = stats.cache.unwritten
    return flat


@dataclass(frozen=True)
class _Ledger:
    """What a shard writes down beside its candidates."""

    drops: list[Drop]
    counts: Counter[str]

    def drop(self, stage: str, task: str, view: View, reason: str, example: str) -> None:
        """Note one loss."""
        self.drops.append(Drop(stage=stage, task=task, image=view.name, reason=reason, example=example))


@dataclass(frozen=True)
class Kit:
    """What a worker loads once."""

    stages: Stages
    perceiver: Perceiver
    guard: Guard | None
    checks: tuple[Check, ...]


@lru_cache(maxsize=2)
def _guard(path: str, options: GuardOptions) -> Guard:
    return Guard(load_index(Path(path)), options)


_KITS: dict[str, Kit] = {}


def kit_of(spec: ShardSpec) -> Kit:
    """The run's plug-ins and models, loaded once in this process."""
    recipe, plan, index = spec.recipe, spec.plan, str(spec.index) if spec.index else ""
    key = f"{recipe.model_dump_json()}|{plan}|{index}"
    if key not in _KITS:
        stages = resolve_recipe(recipe, plan)
        _KITS.clear()  # one run at a time: the last run's models leave memory
        _KITS[key] = Kit(
            stages=stages,
            perceiver=perceiver_of(recipe, stages),
            guard=_guard(index, recipe.guard.options) if index else None,
            checks=tuple(load_all(CHECKS)),
        )
    return _KITS[key]


def _frames(spec: ShardSpec, stages: Stages, fates: dict[str, str], drops: list[Drop]) -> Iterator[tuple[str, Frame]]:
    """Decoded images of the shard in order, read a few ahead; what cannot be used is noted."""
    usable = []
    for item in spec.items:
        if item.key in spec.rejected:
            fates[item.key] = spec.rejected[item.key]
            drops.append(Drop(stage="guard", task="", image=item.key, reason=spec.rejected[item.key]))
        else:
            usable.append(item)
    todo = iter(usable)
    with ThreadPoolExecutor(READERS) as pool:
        ahead: deque[tuple[SourceItem, Future[Frame]]] = deque(
            (item, pool.submit(read_seen, spec, stages, item)) for item in islice(todo, AHEAD)
        )
        while ahead:
            item, future = ahead.popleft()
            try:
                yield item.key, future.result()
            except ImageError as error:
                fates[item.key] = error.reason
                drops.append(Drop(stage="source", task="", image=item.key, reason=error.reason, example=error.message))
            ahead.extend((item, pool.submit(read_seen, spec, stages, item)) for item in islice(todo, 1))


def read_seen(spec: ShardSpec, stages: Stages, item: SourceItem) -> Frame:
    """`load_seen`, decoded. Raises ImageError."""
    view = load_seen(spec, stages, item)
    return Frame(view=view, rgb=decode(view.data))


def load_seen(spec: ShardSpec, stages: Stages, item: SourceItem) -> View:
    """A source image; in a guarded run only the very one that the guard looked at. Raises ImageError."""
    view = stages.source.load(item, stages.source_options)
    if spec.index is not None and spec.scanned.get(item.key) != view.image_id:
        decode(view.data)  # damage is the better reason
        raise ImageError("unscanned: not the image that the guard looked at", where=item.key)
    return view


def partners_of_photo(key: str, spec: ShardSpec, stages: Stages, drops: list[Drop]) -> list[Frame]:
    """The other photos that are shown with one; what cannot be used is noted."""
    frames, lost = load_partners(spec.partners.get(key, ()), lambda item: load_seen(spec, stages, item), spec.rejected)
    drops.extend(lost)
    return frames


def _ask(spec: ShardSpec, kit: Kit, key: str, scene: Scene, ledger: _Ledger) -> list[Candidate]:
    """Every question of one scene that passed, at most the share of one image."""
    candidates: list[Candidate] = []
    for name, (task, default) in kit.stages.tasks.items():
        options = kit.stages.options_for(name, default, scene.view.domain)
        if isinstance(options, str):
            ledger.drop("task", name, scene.view, "off_here", options)
            continue
        lacking = missing_needs(scene, frozenset(task.needs))
        if lacking:
            ledger.drops.append(lacks(scene.view, name, lacking))
            continue
        passed: list[QA] = []
        for result in task.generate(scene, options, generator(spec.recipe.seed, name, scene.view.image_id)):
            if isinstance(result, Drop):
                ledger.drops.append(result)
                continue
            ledger.counts[f"candidates:{result.skill}"] += 1
            bad = _judged(result, scene, task, kit.checks) or _worded(result, scene, kit, spec.recipe.guard.options)
            if bad is None:
                passed.append(result)
            else:
                ledger.drops.append(bad)
        for quota in (q for q in spec.plan.quotas if q.task == name):
            mine = [qa for qa in passed if qa.skill == quota.skill]
            cap = per_image_cap(quota, spec.n_images, spec.recipe.output)
            chosen, lost = choose(mine, cap, spec.recipe.seed, THIN)
            ledger.drops.extend(lost)
            chosen = _with_twins(chosen, quota.contrast, spec, kit, scene, ledger)
            view, role = scene.view, quota.role
            candidates += [
                Candidate(qa=qa, key=key, group=view.group, role=role, width=view.width, height=view.height)
                for qa in chosen
            ]
    return candidates


def _with_twins(
    chosen: Sequence[QA], share: float, spec: ShardSpec, kit: Kit, scene: Scene, ledger: _Ledger
) -> list[QA]:
    """The same, some of them with a twin; a question whose twin falls goes with it."""
    known = {qa.qa_id for qa in chosen}
    out: list[QA] = []
    for qa in chosen:
        task, _ = kit.stages.tasks[qa.task]
        pair = twins_of(qa, task) if is_drawn(qa.qa_id, share, spec.recipe.seed) else None
        if pair is None or pair[1].qa_id in known:
            out.append(qa)
            continue
        ledger.counts[f"candidates:{qa.skill}"] += 1
        bad = _judged(pair[1], scene, task, kit.checks) or _worded(pair[1], scene, kit, spec.recipe.guard.options)
        if bad is None:
            out += pair
        else:
            ledger.drops.append(bad)
            ledger.drop("balance", qa.skill, scene.view, "twin_lost", qa.qa_id)
    return out


def _worded(qa: QA, scene: Scene, kit: Kit, options: GuardOptions) -> Drop | None:
    """Why not: a question of the benchmark's own, or one in its wording where the recipe asks for other words."""
    if kit.guard is None:
        return None
    found = kit.guard.index.text.look(qa.question, qa.choices, item_prompt(qa.question, qa.choices))
    reason = f"text_{found.hit}" if found.hit else "text_wording" if options.own_wording and found.same_wording else ""
    if not reason:
        return None
    return Drop(stage="guard", task=qa.task, image=scene.view.name, reason=reason, example=qa.question)


def _judged(qa: QA, scene: Scene, task: Task, checks: Sequence[Check]) -> Drop | None:
    """The first check that says no."""
    for check in checks:
        verdict = check.judge(qa, scene, task)
        if not verdict.keep:
            reason = f"{check.name}:{verdict.reason}"
            return Drop(stage="check", task=qa.task, image=scene.view.name, reason=reason, example=verdict.detail)
    return None
