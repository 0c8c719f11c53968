"""A benchmark under another condition: without its pictures, with the wrong ones, its options in another order.

Each is a benchmark again, evaluated like any other; the items keep their ids, so that outcomes pair.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from finetune.controls import grey_like
from synth.contracts import BenchmarkData
from synth.dataset.prompt import item_prompt
from synth.geometry import generator
from synth.images import decode, encode_png
from synth.marks import draw_marks
from synth.types import LETTERS, Item, Mark, Outcome

_CAPITAL = re.compile(r"\b[A-Z]\b")


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A benchmark as it is shown under one condition."""

    name: str
    data: BenchmarkData
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Items that cannot be shown so, by reason."""


def text_only(data: BenchmarkData) -> Condition:
    """No picture at all: what the words alone tell."""
    return _condition("text_only", data, [_shown(item, ()) for item in data.items])


def grey(data: BenchmarkData) -> Condition:
    """A grey picture of the same size in the place of each: for families that need one, and for all others."""
    items = [_shown(item, tuple(grey_like(image) for image in item.images)) for item in data.items]
    return _condition("grey_image", data, items)


def wrong_image(data: BenchmarkData, seed: int) -> Condition:
    """The pictures of another item of the same category and another group; each item gives its pictures once at most.

    The pictures are of the right kind and the answer is not in them: what is still right here needs no looking.
    """
    kinds: dict[tuple[str, int], list[Item]] = defaultdict(list)
    for item in data.items:
        kinds[item.category, len(item.images)].append(item)
    donors: dict[str, Item] = {}
    for (category, n), members in kinds.items():
        order = list(dict.fromkeys(_group(item) for item in members))
        place = generator(seed, "wrong image", category, str(n)).permutation(len(order))
        rank = {group: int(k) for group, k in zip(order, place, strict=True)}
        members.sort(key=lambda item: (rank[_group(item)], item.item_id))
        # Sorted by group, a step as long as the largest group leads out of every group.
        step = max(Counter(map(_group, members)).values())
        for i, item in enumerate(members):
            donor = members[(i + step) % len(members)]
            if n and _group(donor) != _group(item):
                donors[item.item_id] = donor
    items = [
        replace(item, images=other.images, marks=other.marks, clean=other.clean, boxes=other.boxes)
        for item in data.items
        if (other := donors.get(item.item_id)) is not None
    ]
    missing = len(data.items) - len(items)
    left_out = {"no item of another group has pictures of this category": missing} if missing else {}
    return _condition("wrong_image", data, items, left_out)


def rotations(data: BenchmarkData) -> Condition:
    """Every item with its options in every other order that a rotation gives (the order 0 is the benchmark itself).

    Ids end in "@1", "@2" …; tags `rotation` and `question` tell which belong together. Where the options are the
    letters of marks ("A is nearer"), the marks change their letters instead: options turned alone would pair the letter
    A with the mark B, which is another, harder question.
    """
    items: list[Item] = []
    left_out: Counter[str] = Counter()
    for item in data.items:
        for k in range(1, len(item.choices)):
            turned = relabelled(item, data.clean_images, k) if lettered(item) else _rotated(item, k)
            if turned is None:
                left_out["the options name marks that cannot be drawn anew"] += 1
                break
            tags = {**item.tags, "rotation": str(k), "question": item.item_id}
            items.append(replace(turned, item_id=f"{item.item_id}@{k}", tags=tags))
    return _condition("rotations", data, items, dict(left_out))


def lettered(item: Item) -> bool:
    """At least two options hold one letter of an option each: "A is nearer", "mark B", "Point C"."""
    return len({letter for letter in _letters(item) if letter}) > 1


def relabelled(item: Item, clean: Mapping[str, bytes], k: int) -> Item | None:
    """The item with the letters of its marks moved on by `k`, and its answer with them; the options stay as they are.

    With two marks and k = 1 the two change their letters, so the right answer flips and nothing else does. None where
    the options are not all letters of marks, or where the picture without marks is unknown.
    """
    n = len(item.choices)
    letters = LETTERS[:n]
    named = [[mark for mark in marks if mark.label in letters] for marks in item.marks]
    drawn = sorted(mark.label for marks in named for mark in marks)
    if _letters(item) != list(letters) or drawn != list(letters) or len(item.clean) != len(item.images):
        return None
    images, moved = list(item.images), list(item.marks)
    for i, marks in enumerate(item.marks):
        if not named[i]:
            continue
        if item.clean[i] not in clean:
            return None
        moved[i] = tuple(replace(mark, label=_moved(mark, letters, k)) for mark in marks)
        images[i] = encode_png(draw_marks(decode(clean[item.clean[i]], min_side=1), moved[i]).rgb)
    answer = None if item.answer is None else letters[(letters.index(item.answer) + k) % n]
    return replace(item, images=tuple(images), marks=tuple(moved), answer=answer)


def most_frequent(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The best constant letter of each category, which knows the key and sees nothing."""
    golds: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in outcomes:
        if outcome.gold is not None:
            golds[outcome.category][outcome.gold] += 1
    found = []
    for outcome in outcomes:
        counts = golds[outcome.category]
        letter = min(counts, key=lambda name: (-counts[name], name)) if counts else None
        found.append(
            replace(
                outcome,
                model="most frequent letter",
                text=letter,
                letter=letter,
                reason="unscored" if outcome.gold is None else None,
                correct=None if outcome.gold is None else letter == outcome.gold,
                probabilities={},
                n_images=0,
                prompt_hash="",
            )
        )
    return found


def _shown(item: Item, images: tuple[bytes, ...]) -> Item:
    """The item with pictures in which there is nothing to point at."""
    return replace(item, images=images, marks=(), clean=(), boxes=())


def _condition(
    name: str, data: BenchmarkData, items: Sequence[Item], left_out: Mapping[str, int] | None = None
) -> Condition:
    changed = replace(data, items=tuple(items), revision=f"{data.revision}+{name}")
    return Condition(name=name, data=changed, left_out=left_out or {})


def _group(item: Item) -> str:
    return item.group or item.item_id


def _letters(item: Item) -> list[str]:
    """The letter of a mark that each option holds; "" where it holds none or several."""
    found = [set(_CAPITAL.findall(choice)) & set(LETTERS[: len(item.choices)]) for choice in item.choices]
    return [letters.pop() if len(letters) == 1 else "" for letters in found]


def _moved(mark: Mark, letters: str, k: int) -> str:
    return letters[(letters.index(mark.label) + k) % len(letters)] if mark.label in letters else mark.label


def _rotated(item: Item, k: int) -> Item:
    n = len(item.choices)
    choices = item.choices[k:] + item.choices[:k]
    answer = None if item.answer is None else LETTERS[(LETTERS.index(item.answer) - k) % n]
    return replace(item, choices=choices, answer=answer, prompt=item_prompt(item.question, choices))
