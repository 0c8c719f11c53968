"""`s2p audit`: how often are our labels right, on photos that bring their truth?

Every candidate that a task would ask about a photo is graded against the photo's truth with the grader's own code. What
the truth cannot decide is counted apart, never as right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from synth.audit.truth import Graded, grade, summarise
from synth.balance import choose
from synth.errors import ImageError, SourceError
from synth.geometry import generator
from synth.images import decode
from synth.perception.perceive import missing_needs
from synth.plugins import CHECKS, DEPTH, REGIONS, load, load_all
from synth.recipe import Recipe, Stages, perceiver_of, quotas_of, resolve_recipe
from synth.types import QA, Drop, Frame, JsonValue, Scene

BATCH = 8


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """Grades of every candidate, and what did not become one."""

    graded: tuple[Graded, ...]
    drops: tuple[Drop, ...]
    n_images: int
    summary: Mapping[str, JsonValue]
    """audit.json."""


def audit(recipe: Recipe, progress: Callable[[int, int], None] | None = None, limit: int | None = None) -> AuditResult:
    """Grade every candidate of the recipe's tasks on a source with truth. Raises SourceError where no photo has any."""
    stages = resolve_recipe(recipe, quotas_of(recipe, None))
    items = list(stages.source.list(stages.source_options))[:limit]
    if stages.source.prepare is not None:
        stages.source.prepare(items, stages.source_options, recipe.engine.workers, None)
    perceiver = perceiver_of(recipe, stages)
    graded: list[Graded] = []
    drops: list[Drop] = []
    with_truth = 0
    frames: list[Frame] = []
    for done, item in enumerate(items, 1):
        try:
            view = stages.source.load(item, stages.source_options)
            frames.append(Frame(view=view, rgb=decode(view.data)))
            with_truth += view.truth is not None
        except ImageError as error:
            drops.append(Drop(stage="source", task="", image=item.key, reason=error.reason, example=error.message))
        if len(frames) == BATCH or done == len(items):
            for frame, scene in zip(frames, perceiver.perceive(frames, stages.needs, recipe.seed), strict=True):
                if isinstance(scene, Drop):
                    drops.append(scene)
                else:
                    graded += _graded(scene, _truth_scene(frame), stages, recipe.seed, drops)
            frames = []
        if progress is not None:
            progress(done, len(items))
    if not with_truth:
        raise SourceError(
            "no photo of this source has truth to grade against", fix="see `synth/sources/folder.py`: truth.jsonl"
        )
    summary = summarise(graded, list(stages.tasks), len(items), _balanced([g.qa for g in graded], recipe.seed))
    return AuditResult(graded=tuple(graded), drops=tuple(drops), n_images=len(items), summary=summary)


def _balanced(candidates: Sequence[QA], seed: int) -> list[QA]:
    """What balance would keep of all candidates: blind accuracy is a question about these."""
    skills = sorted({qa.skill for qa in candidates})
    kept: list[QA] = []
    for skill in skills:
        mine = [qa for qa in candidates if qa.skill == skill]
        kept += choose(mine, len(mine), seed)[0]
    return kept


def _graded(scene: Scene, truth: Scene, stages: Stages, seed: int, drops: list[Drop]) -> Iterator[Graded]:
    for qa in _candidates(scene, stages, seed, drops):
        task = stages.tasks[qa.task][0]
        yield Graded(qa=qa, image=scene.view.name, domain=scene.view.domain, grade=grade(qa, scene.view, truth, task))


def _candidates(scene: Scene, stages: Stages, seed: int, drops: list[Drop]) -> Iterator[QA]:
    for name, (task, options) in stages.tasks.items():
        if missing_needs(scene, frozenset(task.needs)):
            continue
        for result in task.generate(scene, options, generator(seed, name, scene.view.image_id)):
            if isinstance(result, Drop):
                drops.append(result)
            elif all(check.judge(result, scene, task).keep for check in load_all(CHECKS)):
                yield result


def _truth_scene(frame: Frame) -> Scene:
    """The scene as the truth tells it; empty where the photo brings none."""
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
