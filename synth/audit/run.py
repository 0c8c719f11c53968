"""`s2p audit`: how often are our labels right, on photos that bring their truth?

Every candidate that a task would ask about a photo is graded against the photo's truth with the grader's own code. What
the truth cannot decide is counted apart, never as right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from synth.audit.calibrate import Curve, calibrate_task, calibration_json
from synth.audit.cues import asked_of
from synth.audit.depths import nearer
from synth.audit.leaks import shortcuts_json
from synth.audit.shortcuts import find_shortcuts
from synth.audit.thinning import thin
from synth.audit.truth import Graded, Tried, grade, summarise
from synth.audit.wrong import Wrong, wrong_label
from synth.balance import choose
from synth.contracts import Need
from synth.errors import ConfigError, ImageError, SourceError
from synth.geometry import generator
from synth.images import decode
from synth.perception.perceive import missing_needs
from synth.perception.two_views import load_partners
from synth.plugins import CHECKS, DEPTH, REGIONS, TASKS, load, load_all
from synth.recipe import Recipe, Stages, TaskConfig, partners_of, perceiver_of, quotas_of, resolve_recipe
from synth.types import QA, Drop, Frame, JsonValue, Scene, View

BATCH = 8
Groups: TypeAlias = Literal["all", "even", "odd"]
"""All source groups, or every other one of each domain in the order of the source: one half to calibrate on, one to
audit."""
_ROLES = {Need.DEPTH: "depth", Need.METRIC_DEPTH: "depth", Need.REGIONS: "regions"}


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """Grades of every candidate, and what did not become one."""

    graded: tuple[Graded, ...]
    drops: tuple[Drop, ...]
    n_images: int
    summary: Mapping[str, JsonValue]
    """audit.json."""
    wrong: tuple[Wrong, ...] = ()
    """The evidence against every label that is wrong."""


def audit(
    recipe: Recipe,
    progress: Callable[[int, int], None] | None = None,
    limit: int | None = None,
    groups: Groups = "all",
    *,
    grades_only: bool = False,
) -> AuditResult:
    """Grade every candidate of the recipe's tasks on a source with truth. Raises SourceError where no photo has any.

    `grades_only` leaves out the summary and the evidence, which take long with the many candidates of a calibration.
    """
    stages = resolve_recipe(recipe, quotas_of(recipe, None))
    items = list(stages.source.list(stages.source_options))[:limit]
    if stages.source.prepare is not None:
        stages.source.prepare(items, stages.source_options, recipe.engine.workers, None)
    perceiver = perceiver_of(recipe, stages)
    partners = partners_of(recipe, stages, items)
    graded: list[Graded] = []
    tried: list[Tried] = []
    drops: list[Drop] = []
    wrong: list[Wrong] = []
    sizes: dict[str, tuple[int, int]] = {}
    with_truth = n_images = 0
    frames: list[Frame] = []
    others: list[list[Frame]] = []
    half = _Half(groups)
    for done, item in enumerate(items, 1):
        try:
            view = stages.source.load(item, stages.source_options)
            if half.takes(view):
                frames.append(Frame(view=view, rgb=decode(view.data)))
                found, lost = load_partners(
                    partners.get(item.key, ()), lambda other: stages.source.load(other, stages.source_options), {}
                )
                others.append(found)
                drops += lost
                with_truth += view.truth is not None
                n_images += 1
        except ImageError as error:
            drops.append(Drop(stage="source", task="", image=item.key, reason=error.reason, example=error.message))
        if frames and (len(frames) == BATCH or done == len(items)):
            scenes = perceiver.perceive(frames, stages.needs, recipe.seed, others)
            for frame, scene in zip(frames, scenes, strict=True):
                if isinstance(scene, Drop):
                    drops.append(scene)
                else:
                    truth = replace(truth_scene(frame), seconds=scene.seconds)
                    mine = list(_graded(scene, truth, stages, recipe.seed, drops))
                    graded += mine
                    if grades_only:
                        continue
                    wrong += (wrong_label(one, scene, truth) for one in mine if one.grade == "wrong")
                    sizes[frame.view.image_id] = (frame.view.width, frame.view.height)
                    tried += _tried(scene, truth, stages, recipe.seed)
            frames, others = [], []
        if progress is not None:
            progress(done, len(items))
    if not with_truth:
        raise SourceError(
            "no photo of this source has truth to grade against", fix="see `synth/sources/folder.py`: truth.jsonl"
        )
    if grades_only:
        return AuditResult(graded=tuple(graded), drops=tuple(drops), n_images=n_images, summary={})
    asked = {g.qa.qa_id: asked_of(g.qa, sizes[g.qa.image_id], g.group) for g in graded}
    left_out = thin(list(asked.values()), recipe.seed).left_out if recipe.output.thin else {}
    balanced = _balanced([g.qa for g in graded if g.qa.qa_id not in left_out], recipe.seed)
    summary = {
        **summarise(graded, list(stages.tasks), n_images, balanced, tried),
        "shortcuts": shortcuts_json(find_shortcuts([asked[qa.qa_id] for qa in balanced])),
    }
    return AuditResult(graded=tuple(graded), drops=tuple(drops), n_images=n_images, summary=summary, wrong=tuple(wrong))


class _Half:
    """Says which photos belong to the chosen half of the source groups, group by group as they come."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._places: dict[str, dict[str, int]] = {}

    def takes(self, view: View) -> bool:
        known = self._places.setdefault(view.domain, {})
        place = known.setdefault(view.group or view.name, len(known))
        return self._groups == "all" or (place % 2 == 0) == (self._groups == "even")


@dataclass(frozen=True, kw_only=True)
class CalibrationResult:
    """A calibration file's content, and the curves behind it."""

    content: Mapping[str, JsonValue]
    curves: tuple[Curve, ...]


def calibrate(
    recipe: Recipe,
    target: float,
    progress: Callable[[int, int], None] | None = None,
    groups: Groups = "all",
) -> CalibrationResult:
    """Margins for a target precision, measured on a source with truth with every dial wide open.

    `groups` takes every other source group only, so that the rest can audit what came out. Raises ConfigError where no
    task of the recipe has a dial, SourceError where no photo has truth.
    """
    recipe = recipe.model_copy(update={"calibration": None, "tasks": _opened(recipe)})
    result = audit(recipe, progress, groups=groups, grades_only=True)
    curves = [curve for name in recipe.tasks for curve in calibrate_task(load(TASKS, name), result.graded, target)]
    stages = resolve_recipe(recipe, quotas_of(recipe, None))
    roles = {_ROLES[need] for need in stages.needs if need in _ROLES}
    identities = perceiver_of(recipe, stages).identities()
    used = {name: value for name, value in identities.items() if name.split("/")[0] in roles}
    content = calibration_json(curves, target, used, f"{recipe.name}, source groups: {groups}", result.n_images)
    return CalibrationResult(content=content, curves=tuple(curves))


def _opened(recipe: Recipe) -> dict[str, TaskConfig]:
    """The recipe's tasks that have dials, each at its loosest."""
    opened = {}
    for name, settings in recipe.tasks.items():
        loose = {dial.option: dial.loose for dial in load(TASKS, name).dials}
        if loose:
            opened[name] = settings.model_copy(update={"options": {**settings.options, **loose}})
    if not opened:
        raise ConfigError("no task of this config has a margin to calibrate", where="tasks")
    return opened


def _balanced(candidates: Sequence[QA], seed: int) -> list[QA]:
    """What balance would keep of all candidates: blind accuracy is a question about these."""
    skills = sorted({qa.skill for qa in candidates})
    kept: list[QA] = []
    for skill in skills:
        mine = [qa for qa in candidates if qa.skill == skill]
        kept += choose(mine, len(mine), seed, together=load(TASKS, mine[0].task).strata)[0]
    return kept


def _graded(scene: Scene, truth: Scene, stages: Stages, seed: int, drops: list[Drop]) -> Iterator[Graded]:
    for qa in _candidates(scene, stages, seed, drops):
        task = stages.tasks[qa.task][0]
        verdict = grade(qa, scene.view, truth, task)
        yield Graded(qa=qa, image=scene.view.name, domain=scene.view.domain, grade=verdict, group=scene.view.group)


def _tried(scene: Scene, truth: Scene, stages: Stages, seed: int) -> Iterator[Tried]:
    """How many random pairs of places the truth decides, and how many of these each task would ask about."""
    for name, (task, default) in stages.tasks.items():
        if task.trials is None or not scene.depths or not truth.depths:
            continue
        options = stages.options_for(name, default, scene.view.domain)
        rng = generator(seed, f"{name}/trials", scene.view.image_id)
        pairs = list(task.trials(scene, default if isinstance(options, str) else options, rng))
        told = [nearer(pair.marks, scene.view, truth) for pair in pairs]
        off = isinstance(options, str)
        known = [("" if off else pair.answer, by_truth) for pair, by_truth in zip(pairs, told, strict=True) if by_truth]
        yield Tried(
            task=name,
            domain=scene.view.domain,
            decided=len(known),
            kept=sum(bool(answer) for answer, _ in known),
            right=sum(answer == by_truth for answer, by_truth in known),
        )


def _candidates(scene: Scene, stages: Stages, seed: int, drops: list[Drop]) -> Iterator[QA]:
    for name, (task, default) in stages.tasks.items():
        if missing_needs(scene, frozenset(task.needs)):
            continue
        options = stages.options_for(name, default, scene.view.domain)
        if isinstance(options, str):
            drops.append(Drop(stage="task", task=name, image=scene.view.name, reason="off_here", example=options))
            continue
        for result in task.generate(scene, options, generator(seed, name, scene.view.image_id)):
            if isinstance(result, Drop):
                drops.append(result)
            elif all(check.judge(result, scene, task).keep for check in load_all(CHECKS)):
                yield result


def truth_scene(frame: Frame) -> Scene:
    """The photo as its truth tells it; empty where the photo brings none."""
    depth, regions = load(DEPTH, "truth"), load(REGIONS, "truth")
    depths = depth.load(depth.options())([frame])
    found = regions.load(regions.options())([frame])
    return Scene(
        view=frame.view,
        rgb=frame.rgb,
        depths=tuple(d for d in depths if d is not None),
        regions=tuple(r for r in found if r is not None),
    )


def reasons(drops: Sequence[Drop]) -> Counter[str]:
    """Losses by stage, task and reason."""
    counts: Counter[str] = Counter()
    for drop in drops:
        counts[f"{drop.stage}/{drop.task or 'image'}: {drop.reason}"] += drop.count
    return counts
