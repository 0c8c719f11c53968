"""Draws training samples: a room picture cropped, flipped and relit at random, with marks and questions on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from finetune.tiny.frames import Picture, Placed, augment, draw, patch_labels, place_marks
from finetune.tiny.packing import Sample
from finetune.tiny.questions import SEMANTIC, Question, Style, ask
from synth.types import Skill

QUESTIONS = 8
"""Questions a picture."""

_MIX_EARLY = (0.36, 0.28, 0.06, 0.10, 0.20)
_MIX = (0.19, 0.15, 0.24, 0.15, 0.27)
"""Shares of the questions, in the order of SEMANTIC."""
_UNMARKED = frozenset({Skill.OBJECT_COLOUR, Skill.EXISTENCE})
_MAGNIFIED = (1.5, 2.5)
_MARK_COUNTS = (0, 1, 2, 2, 2, 2, 2, 2, 3, 4, 4)


def sample_picture(pool: Sequence[Picture], progress: float, rng: np.random.Generator, *, asks: bool) -> Sample:
    """A picture of the pool, altered and marked; with questions, or with four marks for the dense heads alone."""
    picture = augment(pool[int(rng.integers(len(pool)))], rng)
    labels = _labels(4 if not asks else int(rng.choice(_MARK_COUNTS)), rng)
    style = _style(progress)
    placed = place_marks(picture, labels, style.area, rng)
    questions = _questions(picture, placed, style, progress, rng) if asks else ()
    magnify = float(rng.choice(_MAGNIFIED)) if rng.random() < 0.2 else 1.0
    return Sample(rgb=draw(picture, placed, rng, magnify), questions=questions, labels=patch_labels(picture, placed))


def _labels(count: int, rng: np.random.Generator) -> list[str]:
    labels = list("ABCD"[:count])
    if count in (1, 4) and rng.random() < 0.4:
        labels[-1] = "REF"
    return labels


def _style(progress: float) -> Style:
    """One-word answers first; then half of them lettered."""
    return Style(lettered=0.05 if progress < 0.12 else 0.5, instructed=0.15, nouns=0.2)


def _questions(
    picture: Picture, placed: Mapping[str, Placed], style: Style, progress: float, rng: np.random.Generator
) -> tuple[Question, ...]:
    mix = np.array(_MIX_EARLY if progress < 0.12 else _MIX)
    allowed = np.array([bool(placed) or skill in _UNMARKED for skill in SEMANTIC])
    shares = mix * allowed / (mix * allowed).sum()
    found: list[Question] = []
    for choice in rng.choice(len(SEMANTIC), size=5 * QUESTIONS, p=shares):
        question = ask(SEMANTIC[int(choice)], picture, placed, style, rng)
        if question is not None:
            found.append(question)
        if len(found) == QUESTIONS:
            break
    return tuple(found)


def pixel_values(samples: Sequence[Sample]) -> Tensor:
    """(B, 3, side, side) as the processor makes them: -1..1."""
    stacked = torch.from_numpy(np.stack([sample.rgb for sample in samples]))
    return stacked.permute(0, 3, 1, 2).float().div(127.5).sub(1.0)
