"""The settings of one `generate` run, and their resolution into plug-ins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from synth.audit.cues import NAMES as CUE_NAMES
from synth.calibration import Calibration, load_calibration
from synth.config import Config, PluginChoice, digest, dump, resolve
from synth.contracts import Benchmark, DepthBackend, MaskBackend, MatchBackend, Need, RegionBackend, Source, Task
from synth.errors import ConfigError
from synth.findings import Plan, Quota
from synth.guard.options import GuardOptions
from synth.perception.cache import Cache
from synth.perception.clip import LabelCheckOptions
from synth.perception.consensus import ConsensusOptions
from synth.perception.perceive import Perceiver
from synth.perception.ranking import RankingOptions
from synth.perception.refine import label_step, mask_step
from synth.perception.two_views import TwoViewOptions, matchers_of, partners
from synth.plugins import BENCHMARKS, DEPTH, MASKS, MATCHES, REGIONS, SOURCES, TASKS, load
from synth.types import JsonValue, PluginOptions, SourceItem


class PerceptionConfig(Config):
    """Which models look at the photos."""

    depth: PluginChoice | None = None
    regions: PluginChoice | None = None
    labels: LabelCheckOptions | None = None
    """The check that a region's label fits its crop; null: off. Without its weights the run goes on and says so."""
    masks: PluginChoice | None = None
    """A segmenter that gives the detector's boxes their masks; null: boxes only."""
    matches: PluginChoice | None = None
    """Makes a second picture of each photo."""
    two_views: TwoViewOptions | None = None
    """Matches photos of one source group; both kinds of pairs are asked about where both are set."""
    consensus: ConsensusOptions = ConsensusOptions()
    cache: str | None = "outputs/cache/perception"
    """Folder of the perception cache, shared by runs; null switches it off."""


class TaskConfig(Config):
    """How many pairs of a task, and the task's own options."""

    n: int = Field(default=0, ge=0)
    """Pairs wanted; with a plan file the plan's quotas count instead."""
    role: Literal["target", "replay"] = "target"
    contrast: float = Field(default=0.0, ge=0, le=1)
    """Share of the pairs that come as contrast pairs: one photo, the same words, the marks' letters exchanged and so
    the other answer. Only of skills that ask about two lettered marks. With a plan file: of its targets, where the plan
    asks for less."""
    options: dict[str, object] = Field(default_factory=dict)


class GuardConfig(Config):
    """The benchmark that must stay out."""

    benchmark: PluginChoice | None = None
    index: str | None = None
    """A ready index file; without one the index is built from the benchmark."""
    expect_items: int | None = Field(default=None, ge=1)
    """How many items the benchmark must have; goes before the shipped table of known benchmarks."""
    expect_images: int | None = Field(default=None, ge=1)
    """How many images of it the guard must read."""
    options: GuardOptions = GuardOptions()
    """Thresholds and planted copies; anything laxer than the shipped values voids the certificate."""
    unguarded: bool = False
    """Only the command line's --unguarded may set this; it stamps every row and the card."""


class OutputConfig(Config):
    """How the dataset is written."""

    image_format: Literal["png", "jpeg"] = "jpeg"
    rows_per_file: int = Field(default=2000, ge=100)
    validation_share: float = Field(default=0.05, ge=0, lt=0.5)
    """Share of source groups whose pairs go to the validation split."""
    images_per_shard: int = Field(default=64, ge=1)
    evidence: int = Field(default=24, ge=0)
    """Images whose depth overlay is kept for `s2p view`."""
    per_image: int = Field(default=12, ge=1)
    """Most pairs of one skill from one image; a contrast pair counts as one."""
    oversample: float = Field(default=4.0, ge=1)
    """Pairs drawn in all, for each pair wanted: room for balance, and for images that yield nothing."""
    thin: bool = True
    """Leave out candidates until a solver that does not look is no better than chance (`synth.audit.thinning`)."""
    allow_shortcuts: tuple[str, ...] = ()
    """Cues (or task/cue) that may give answers away: the card says so, and the run does not fail for them."""

    @field_validator("allow_shortcuts")
    @classmethod
    def _known(cls, cues: tuple[str, ...]) -> tuple[str, ...]:
        strange = [cue for cue in cues if cue.rpartition("/")[2] not in CUE_NAMES]
        if strange:
            raise ValueError(f"no cue named {', '.join(strange)}; known are {', '.join(CUE_NAMES)}")
        return cues


class EngineConfig(Config):
    """Where shards run."""

    name: Literal["local", "ray"] = "local"
    """ray needs the extra of that name; every worker must see the same folders."""
    workers: int = Field(default=1, ge=1)


class Recipe(Config):
    """One run of `s2p generate`."""

    name: str
    seed: int = 0
    source: PluginChoice
    ranking: RankingOptions | None = None
    """Takes the photos that promise most, by open_clip; null: all photos. Without its weights the run takes all, too,
    and says so."""
    perception: PerceptionConfig = PerceptionConfig()
    tasks: dict[str, TaskConfig] = Field(default_factory=dict)
    calibration: str | None = None
    """A file of `s2p calibrate`: its options, by the photo's domain, go before those of `tasks`."""
    plan: str | None = None
    """A plan.json; its quotas replace the tasks' own `n`."""
    guard: GuardConfig = GuardConfig()
    output: OutputConfig = OutputConfig()
    engine: EngineConfig = EngineConfig()


@dataclass(frozen=True, kw_only=True)
class Stages:
    """A recipe with its plug-ins loaded and their options checked."""

    source: Source
    source_options: PluginOptions
    depth: tuple[DepthBackend, PluginOptions] | None
    regions: tuple[RegionBackend, PluginOptions] | None
    matches: tuple[MatchBackend, PluginOptions] | None
    matchers: tuple[tuple[MatchBackend, PluginOptions], ...]
    """Of two photos of one group; empty where the recipe asks for none."""
    tasks: Mapping[str, tuple[Task, PluginOptions]]
    benchmark: tuple[Benchmark, PluginOptions] | None
    needs: frozenset[Need] = field(default_factory=frozenset)
    calibration: Calibration | None = None
    masks: tuple[MaskBackend, PluginOptions] | None = None

    def options_for(self, task: str, default: PluginOptions, domain: str) -> PluginOptions | str:
        """A task's options for a photo of that domain, or why it asks nothing there."""
        return default if self.calibration is None else self.calibration.options_for(task, default, domain)


def resolve_recipe(recipe: Recipe, plan: Plan) -> Stages:
    """Load what the recipe names. Raises ConfigError for a wrong name or option, before any work."""
    source, source_options = resolve(recipe.source, SOURCES, "source")
    sight = recipe.perception
    tasks: dict[str, tuple[Task, PluginOptions]] = {}
    for name in sorted({quota.task for quota in plan.quotas}):
        settings = recipe.tasks.get(name, TaskConfig())
        choice = PluginChoice.model_validate({**settings.options, "name": name})
        tasks[name] = resolve(choice, TASKS, f"tasks.{name}.options")
    for quota in plan.quotas:
        if quota.contrast and quota.skill not in tasks[quota.task][0].twins:
            raise ConfigError(f"{quota.task} makes no contrast pairs of {quota.skill}", where=recipe.plan or "plan")
    return Stages(
        source=source,
        source_options=source_options,
        depth=resolve(sight.depth, DEPTH, "perception.depth") if sight.depth else None,
        regions=resolve(sight.regions, REGIONS, "perception.regions") if sight.regions else None,
        masks=resolve(sight.masks, MASKS, "perception.masks") if sight.masks else None,
        matches=resolve(sight.matches, MATCHES, "perception.matches") if sight.matches else None,
        matchers=matchers_of(sight.two_views) if sight.two_views else (),
        tasks=tasks,
        benchmark=resolve(recipe.guard.benchmark, BENCHMARKS, "guard.benchmark") if recipe.guard.benchmark else None,
        needs=frozenset(need for task, _ in tasks.values() for need in task.needs),
        calibration=load_calibration(path_of(recipe.calibration)) if recipe.calibration else None,
    )


def perceiver_of(recipe: Recipe, stages: Stages) -> Perceiver:
    """The recipe's models behind its cache; nothing is loaded before the first photo.

    Raises ConfigError where the recipe's calibration was made with other models.
    """
    sight = recipe.perception
    perceiver = Perceiver(
        depth=stages.depth,
        regions=stages.regions,
        matches=stages.matches,
        consensus_options=sight.consensus,
        cache=Cache(Path(sight.cache)) if sight.cache else None,
        two_views=sight.two_views,
        refinements=(
            *([label_step(sight.labels)] if sight.labels else []),
            *([mask_step(*stages.masks)] if stages.masks else []),
        ),
    )
    if stages.calibration is not None:
        stages.calibration.check(perceiver.identities(), recipe.calibration or "")
    return perceiver


def partners_of(recipe: Recipe, stages: Stages, items: Sequence[SourceItem]) -> dict[str, tuple[SourceItem, ...]]:
    """Key of a photo -> the others of its group that are shown with it; empty where no task needs any."""
    chosen = recipe.perception.two_views
    return partners(items, chosen) if chosen is not None and Need.PAIR in stages.needs else {}


def quotas_of(recipe: Recipe, plan: Plan | None) -> Plan:
    """The plan's quotas, or the recipe's own numbers as a plan. Raises ConfigError when nothing is asked for."""
    for name, settings in recipe.tasks.items():
        if settings.contrast and not load(TASKS, name).twins:
            raise ConfigError("this task makes no contrast pairs", where=f"tasks.{name}.contrast", fix="leave it out")
    if plan is not None:
        if not plan.quotas:
            raise ConfigError("the plan asks for nothing", where=recipe.plan or "plan")
        return replace(plan, quotas=tuple(_contrasted(recipe, quota) for quota in plan.quotas))
    quotas = []
    for name, settings in sorted(recipe.tasks.items()):
        task = load(TASKS, name)
        skills = task.skills
        share, rest = divmod(settings.n, len(skills))
        for i, skill in enumerate(skills):
            n = share + (i < rest)
            if n:
                contrast = settings.contrast if skill in task.twins else 0.0
                quotas.append(
                    Quota(
                        task=name,
                        skill=skill,
                        n=n,
                        why="asked for in the config",
                        role=settings.role,
                        contrast=contrast,
                    )
                )
    if not quotas:
        raise ConfigError("no pairs are asked for", where="tasks", fix="set tasks.<name>.n, or plan: plan.json")
    return Plan(quotas=tuple(quotas))


def _contrasted(recipe: Recipe, quota: Quota) -> Quota:
    """A target of a plan with the recipe's share of contrast pairs, where that is the larger one."""
    settings = recipe.tasks.get(quota.task)
    if settings is None or quota.role != "target" or quota.skill not in load(TASKS, quota.task).twins:
        return quota
    return replace(quota, contrast=max(quota.contrast, settings.contrast))


def per_image_cap(quota: Quota, images: int, output: OutputConfig) -> int:
    """Pairs of a quota that one image may give: its even share with room to spare, at least one."""
    return max(1, min(output.per_image, math.ceil(output.oversample * quota.n / max(1, images))))


def run_identity(
    recipe: Recipe,
    plan: Plan,
    fingerprints: tuple[str, ...],
    index: str,
    code: str,
    calibration: Calibration | None = None,
    ranking: str = "",
) -> str:
    """What makes two runs the same: settings, quotas, inputs, guard index and code. Workers and cache do not count.

    `ranking`: identity of the ranking that chooses among the inputs, "" where none does.
    """
    settings = dump(recipe)
    for place in ("engine", "plan"):  # where it runs and where the quotas lie; the quotas themselves count
        settings.pop(place, None)
    settings["ranking"] = ranking
    settings["perception"] = {**dump(recipe.perception), "cache": None}
    # What is allowed changes what is said of the pairs, not the pairs.
    settings["output"] = {**dump(recipe.output), "allow_shortcuts": []}
    if calibration is not None:  # what the file says counts, not where it lies
        settings["calibration"] = calibration.digest
    quotas: list[JsonValue] = [
        [
            *(q.task, str(q.skill), q.n, q.role),
            *([dict(q.difficulty)] if q.difficulty else []),
            *([{"contrast": q.contrast}] if q.contrast else []),
        ]
        for q in plan.quotas
    ]
    return digest(settings, quotas, list(fingerprints), index, code)


def path_of(text: str) -> Path:
    """A path as the user wrote it, with `~` expanded."""
    return Path(text).expanduser()
