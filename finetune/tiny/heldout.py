"""Scores a checkpoint on rooms that pretraining never saw: what it was taught, and three skills that it was not.

Depth, left/right and counting are asked here only, to show that the model is at chance on them. In the depth items the
closer point is the lower one in exactly half, so "lower is closer" scores chance too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from finetune.tiny.frames import Picture, Placed, draw, place_marks
from finetune.tiny.questions import SEMANTIC, Style, ask
from finetune.tiny.wordings import OBJECTS, plural
from synth.types import LETTERS, DepthArray, Rgb, Skill

if TYPE_CHECKING:
    from transformers import LlavaForConditionalGeneration, LlavaProcessor

UNTAUGHT: tuple[Skill, ...] = (Skill.RELATIVE_DEPTH, Skill.LEFT_RIGHT, Skill.COUNTING)
AREA = 130
"""Smallest visible area (px) of an object that the held-out questions ask about."""
_MOST = 3
_DEPTH_RATIO = 1.15
_FLATNESS = 1.06
_TRIES = 200
_DEPTH = "Which point is closer to the camera?\n(A) A is closer\n(B) B is closer"
_LEFT = "Which mark is further to the left in the image?\n(A) A is further left\n(B) B is further left"


@dataclass(frozen=True, kw_only=True)
class HeldOutItem:
    """A question as the model sees it."""

    rgb: Rgb
    text: str
    answer: str
    letters: str
    """The letters of the options."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """Accuracy on one skill, 0..1."""

    n: int
    accuracy: float
    chance: float
    option_mass: float
    """Mean probability that the model gives to the option letters together."""


def make_items(pictures: Sequence[Picture], n: int, seed: int) -> dict[Skill, list[HeldOutItem]]:
    """Up to n items a skill, over the pictures in turn. Same arguments, same items."""
    return {skill: _items(skill, pictures, n, np.random.default_rng([seed, order])) for order, skill in enumerate(_ALL)}


_ALL = (*SEMANTIC, *UNTAUGHT)


def _items(skill: Skill, pictures: Sequence[Picture], n: int, rng: np.random.Generator) -> list[HeldOutItem]:
    order = rng.permutation(len(pictures))
    items: list[HeldOutItem] = []
    for turn in range(30 * n):
        if len(items) == n:
            break
        picture = pictures[order[turn % len(order)]]
        if skill in SEMANTIC:
            item = _semantic(skill, picture, rng)
        elif skill is Skill.RELATIVE_DEPTH:
            item = _depth(picture, "AB"[len(items) % 2], lower_is_closer=len(items) // 2 % 2 == 0, rng=rng)
        elif skill is Skill.LEFT_RIGHT:
            item = _left_right(picture, "AB"[len(items) % 2], rng)
        else:
            item = _count(picture, len(items) % (_MOST + 1), rng)
        if item is not None:
            items.append(item)
    return items


def _semantic(skill: Skill, picture: Picture, rng: np.random.Generator) -> HeldOutItem | None:
    marked = skill in (Skill.OBJECT_AT_MARK, Skill.COLOUR_AT_MARK, Skill.MARK_ON_OBJECT)
    placed = place_marks(picture, "AB", AREA, rng) if marked else {}
    if marked and len(placed) < 2:
        return None
    question = ask(skill, picture, placed, Style(area=AREA), rng)
    if question is None:
        return None
    letters = LETTERS[: len(question.options)]
    return HeldOutItem(rgb=draw(picture, placed, rng), text=question.text, answer=question.answer, letters=letters)


def _depth(picture: Picture, answer: str, *, lower_is_closer: bool, rng: np.random.Generator) -> HeldOutItem | None:
    objects = picture.objects(25)
    for _ in range(_TRIES):
        first, second = (_flat_point(picture, objects, rng) for _ in range(2))
        if first is None or second is None or np.hypot(first.x - second.x, first.y - second.y) < 20:
            continue
        near, far = sorted((first, second), key=lambda spot: float(picture.depth[spot.y, spot.x]))
        ratio = picture.depth[far.y, far.x] / picture.depth[near.y, near.x]
        if ratio < _DEPTH_RATIO or abs(near.y - far.y) < 4 or (near.y > far.y) != lower_is_closer:
            continue
        placed = {"A": near, "B": far} if answer == "A" else {"A": far, "B": near}
        return HeldOutItem(rgb=draw(picture, placed, rng), text=_DEPTH, answer=answer, letters="AB")
    return None


def _flat_point(picture: Picture, objects: Sequence[int], rng: np.random.Generator) -> Placed | None:
    """A point whose 5 x 5 neighbourhood has nearly one depth; on an object in 60 % of the cases."""
    side = picture.ids.shape[0]
    if objects and rng.random() < 0.6:
        rows, columns = np.nonzero(picture.ids[8:-8, 8:-8] == rng.choice(objects))
        if len(rows) == 0:
            return None
        pick = rng.integers(len(rows))
        x, y = int(columns[pick]) + 8, int(rows[pick]) + 8
    else:
        x, y = (int(v) for v in rng.integers(8, side - 8, 2))
    patch: DepthArray = picture.depth[y - 2 : y + 3, x - 2 : x + 3]
    if not np.isfinite(patch).all() or patch.min() <= 0 or patch.max() > _FLATNESS * patch.min() or patch.max() > 50:
        return None
    return Placed(x=x, y=y, instance=int(picture.ids[y, x]))


def _left_right(picture: Picture, answer: str, rng: np.random.Generator) -> HeldOutItem | None:
    placed = place_marks(picture, "AB", AREA, rng)
    if len(placed) < 2 or abs(placed["A"].x - placed["B"].x) < 10:
        return None
    if (placed["A"].x < placed["B"].x) != (answer == "A"):
        placed = {"A": placed["B"], "B": placed["A"]}
    return HeldOutItem(rgb=draw(picture, placed, rng), text=_LEFT, answer=answer, letters="AB")


def _count(picture: Picture, number: int, rng: np.random.Generator) -> HeldOutItem | None:
    visible = [picture.names[i] for i in picture.objects(AREA // 2)]
    traces = [picture.names[i] for i in picture.objects(0)]
    sure = [name for name in OBJECTS if visible.count(name) == traces.count(name) == number]
    if not sure:
        return None
    name = sure[int(rng.integers(len(sure)))]
    options = "\n".join(f"({LETTERS[k]}) {k}" for k in range(_MOST + 1))
    text = f"How many {plural(name)} are there?\n{options}"
    return HeldOutItem(rgb=picture.rgb, text=text, answer=LETTERS[number], letters=LETTERS[: _MOST + 1])


def score(
    model: LlavaForConditionalGeneration, processor: LlavaProcessor, items: Mapping[Skill, Sequence[HeldOutItem]]
) -> dict[Skill, Score]:
    """One forward pass an item through the processor; the answer is the likeliest option letter."""
    import torch

    was_training = model.training
    model.eval()
    with torch.inference_mode():
        scores = {
            skill: _score_skill(model, processor, list(of_skill)) for skill, of_skill in items.items() if of_skill
        }
    model.train(was_training)
    return scores


def _score_skill(
    model: LlavaForConditionalGeneration, processor: LlavaProcessor, items: Sequence[HeldOutItem], batch: int = 32
) -> Score:
    import torch
    from PIL import Image

    tokens = [processor.tokenizer(f" {letter}", add_special_tokens=False).input_ids[0] for letter in LETTERS[:6]]
    right, mass = 0, 0.0
    for start in range(0, len(items), batch):
        chunk = items[start : start + batch]
        chats = [
            [
                {
                    "role": "user",
                    "content": [{"type": "image", "image": Image.fromarray(i.rgb)}, {"type": "text", "text": i.text}],
                }
            ]
            for i in chunk
        ]
        inputs = processor.apply_chat_template(
            chats,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
            add_generation_prompt=True,
            processor_kwargs={"padding": True, "padding_side": "left"},
        )
        logits = model(**inputs, logits_to_keep=1, use_cache=False).logits[:, -1].float()
        probabilities = torch.softmax(logits, -1)
        for item, row in zip(chunk, probabilities, strict=True):
            options = row[tokens[: len(item.letters)]]
            mass += float(options.sum())
            right += item.letters[int(options.argmax())] == item.answer
    chance = float(np.mean([1 / len(item.letters) for item in items]))
    return Score(n=len(items), accuracy=right / len(items), chance=chance, option_mass=mass / len(items))
