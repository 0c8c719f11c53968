"""Which of two marks is further left (or right) in the picture.

Exact: only the marks' own positions count, whatever the picture shows. Left and right are one task with an axis.
Worked example: A at x = 30, B at x = 90 of 128 pixels: A is further left, B further right. Less than 10 % of the width
between them: silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from pydantic import Field

from synth.contracts import Task
from synth.tasks._asking import Asker, Draft, Ledger, Wording, alternate, letter, number, numbers, text
from synth.tasks._places import object_points, random_points
from synth.types import QA, Drop, Mark, Panel, PluginOptions, Provenance, Scene, Skill, narrow

NAME, VERSION = "left_right", 2
WORDINGS = (
    Wording(question="Of the points A and B, which one is further to the {side}?", choice="point {}"),
    Wording(question="Which of the two marks lies further to the {side} in the picture?"),
    Wording(question="Points A and B are marked. Which one is furthest to the {side}?", choice="point {}"),
    Wording(question="Seen in the picture, which mark is to the {side} of the other?", choice="mark {}"),
    Wording(question="Which point lies more to the {side}?", choice="point {}"),
    Wording(question="Compare marks A and B: which of them is further {side}?", choice="mark {}"),
)
"""They begin as those of relative depth do and borrow no word of depth (near, close, front …), so that nothing but what
is asked tells the two apart. A small model told them apart by how they begin, or by "nearer to the left edge", and then
answered "which point is nearer to the camera?" by left and right.
"""


class Options(PluginOptions):
    """What is asked and how clear it must be."""

    per_image: int = Field(2, ge=1, le=32)
    margin: float = Field(0.1, gt=0, lt=0.8)
    """Least horizontal distance, as a share of the width."""
    sides: tuple[Literal["left", "right"], ...] = Field(("left", "right"), min_length=1)
    border: float = Field(0.0625, ge=0, lt=0.4)
    """Least distance of a mark from the edge, as a share of the short side."""
    min_distance: float = Field(0.156, gt=0, lt=0.5)
    """Least distance between the marks, as a share of the short side."""
    object_share: float = Field(0.6, ge=0, le=1)
    """Share of the marks that are put on objects, where regions are known."""


def generate(scene: Scene, options: PluginOptions, rng: np.random.Generator) -> Iterator[QA | Drop]:
    """Up to `per_image` pairs of marks, then what fell and why."""
    chosen = narrow(options, Options)
    ledger = Ledger(NAME, scene.view)
    asker = Asker(NAME, VERSION, scene.view, rng)
    height, width = scene.rgb.shape[:2]
    sides = alternate(chosen.sides[0], chosen.sides[-1], chosen.per_image, rng)
    for side, right in zip(sides, alternate("A", "B", chosen.per_image, rng), strict=True):
        pair = _pair(scene, chosen, rng)
        if pair is None:
            ledger.add("inside_margin", f"no two places {chosen.margin * width:.0f} px apart in {width}x{height}")
            continue
        lesser, greater = pair  # by x
        winner, loser = (lesser, greater) if side == "left" else (greater, lesser)
        at = {right: winner, "B" if right == "A" else "A": loser}
        yield asker.ask(_draft(side, right, {"A": at["A"], "B": at["B"]}, width), WORDINGS)
    yield from ledger.drops()


def recompute(provenance: Provenance) -> str:
    """Compares the stored x of the marks on the stored side."""
    x = numbers(provenance.measures["x_px"])
    side = text(provenance.measures["side"])
    low, high = sorted(x, key=x.__getitem__)
    if x[high] - x[low] < 0.05 * number(provenance.measures["width_px"]):
        return ""
    return letter(provenance.options, {"left": low, "right": high}[side])


def _pair(
    scene: Scene, options: Options, rng: np.random.Generator
) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Two places in the order of x, or None."""
    height, width = scene.rgb.shape[:2]
    side = min(width, height)
    border = options.border * side
    n = 32
    on_objects = object_points(scene, rng, round(n * options.object_share), border)
    points = np.concatenate([on_objects, random_points(rng, n - len(on_objects), width, height, border)])
    points = points[rng.permutation(n)]
    for k in range(1, n):
        gap = np.abs(points[:k] - points[k])
        clear = (gap[:, 0] >= options.margin * width) & (np.hypot(gap[:, 0], gap[:, 1]) >= options.min_distance * side)
        if clear.any():
            i = int(np.flatnonzero(clear)[0])
            first, second = sorted(((float(x), float(y)) for x, y in points[[i, k]]), key=lambda place: place[0])
            return first, second
    return None


def _draft(side: str, right: str, at: dict[str, tuple[float, float]], width: int) -> Draft:
    gap = abs(at["A"][0] - at["B"][0]) / width
    return Draft(
        skill=Skill.LEFT_RIGHT,
        options=("A", "B"),
        right=right,
        panels=(Panel(image="view", marks=tuple(Mark(label=label, x=x, y=y) for label, (x, y) in at.items())),),
        backends=(),
        measures={
            "x_px": {label: x for label, (x, _) in at.items()},
            "y_px": {label: y for label, (_, y) in at.items()},
            "side": side,
            "width_px": width,
        },
        difficulty=max(0.0, 1 - gap / 0.6),
        stratum=side,
        words={"side": side},
    )


TASK = Task(
    name=NAME,
    version=VERSION,
    skills=(Skill.LEFT_RIGHT,),
    needs=(),
    options=Options,
    generate=generate,
    recompute=recompute,
    twins=(Skill.LEFT_RIGHT,),
)
