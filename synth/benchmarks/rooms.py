"""The built-in benchmark `rooms`: questions about rendered rooms with exact truth.

Every answer follows from the renderer's own depth, instance ids and colours, never from a model. Depth items are
balanced twice: the right letter is A in half of them, and the nearer point is lower in the picture in half of them, so
that "lower is closer" scores at chance. `left_right` is a control that the demo never trains. The wordings here are the
benchmark's own; no task of ours uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from synth.contracts import Benchmark, BenchmarkData
from synth.errors import BenchmarkError
from synth.geometry import generator, patch
from synth.images import encode_png
from synth.marks import draw_marks
from synth.rooms import store
from synth.rooms.objects import COLOURS, KINDS
from synth.rooms.render import RENDERER_VERSION, RoomFrame
from synth.types import LETTERS, Box, Item, Mark, PluginOptions, Progress, Skill, narrow

STUFF = ("floor", "wall", "ceiling", "window")
SKILLS = {
    "relative_depth": Skill.RELATIVE_DEPTH,
    "left_right": Skill.LEFT_RIGHT,
    "object_at_mark": Skill.OBJECT_AT_MARK,
    "colour_at_mark": Skill.COLOUR_AT_MARK,
    "mark_on_object": Skill.MARK_ON_OBJECT,
    "object_colour": Skill.OBJECT_COLOUR,
}
N_OPTIONS = {
    "relative_depth": 2,
    "left_right": 2,
    "object_at_mark": 4,
    "colour_at_mark": 4,
    "mark_on_object": 2,
    "object_colour": 4,
}
MIN_PIXELS = 0.008
"""Share of the picture that an object must show to be asked about."""
MIN_RATIO = 1.15
"""Depth ratio of the two points of a depth item."""


class Options(PluginOptions):
    """Which rooms, how large, how many items."""

    first_seed: int = 1_000_000
    n_rooms: int = 250
    size: int = 128
    n_depth: int = 600
    n_left_right: int = 300
    n_semantic: int = 300
    """Items of each of the four semantic categories."""
    cache: str = "outputs/cache/rooms"
    workers: int = 2
    seed: int = 0


@dataclass(frozen=True)
class _Ask:
    """One question before it becomes an item."""

    question: str
    choices: tuple[str, ...]
    answer: int
    marks: tuple[Mark, ...]
    tags: Mapping[str, str]
    boxes: tuple[Box, ...] = ()


@dataclass(frozen=True)
class _Want:
    """What balance asks of the next item of a category."""

    letter: int
    flag: bool


Maker = Callable[[RoomFrame, np.random.Generator, _Want], _Ask | None]


def load(options: PluginOptions, progress: Progress | None) -> BenchmarkData:
    """Render the rooms (cached) and ask. Raises BenchmarkError when a category cannot be filled."""
    chosen = narrow(options, Options)
    seeds = range(chosen.first_seed, chosen.first_seed + chosen.n_rooms)
    folder = Path(chosen.cache)
    store.ensure(seeds, chosen.size, folder, chosen.workers, progress)
    frames = [store.load(seed, view, chosen.size, folder) for seed in seeds for view in (0, 1)]
    wanted = dict.fromkeys(SKILLS, chosen.n_semantic)
    wanted |= {"relative_depth": chosen.n_depth, "left_right": chosen.n_left_right}
    items: list[Item] = []
    used: dict[str, bytes] = {}
    for category, n in wanted.items():
        made = _fill(category, n, frames, chosen.seed)
        if len(made) < n:
            raise BenchmarkError(
                f"only {len(made)} of {n} {category} items can be asked about {chosen.n_rooms} rooms",
                where="benchmark rooms",
                fix="more rooms (n_rooms) or fewer items",
            )
        items += made
    groups = {item.group for item in items}
    for frame in frames:
        if f"room-{frame.seed}" in groups:
            used[_clean_name(frame)] = encode_png(frame.rgb)
    revision = f"{RENDERER_VERSION}-{chosen.first_seed}-{chosen.n_rooms}-{chosen.size}-{chosen.seed}"
    return BenchmarkData(name="rooms", revision=revision, items=tuple(items), clean_images=used)


def _fill(category: str, n: int, frames: list[RoomFrame], seed: int) -> list[Item]:
    """Cycle over the frames in a fixed random order until n items stand."""
    rng = generator(seed, "rooms-benchmark", category)
    order = rng.permutation(len(frames))
    made: list[Item] = []
    for attempt in range(30 * n):
        if len(made) == n:
            break
        frame = frames[order[attempt % len(frames)]]
        index = len(made)
        n_options = N_OPTIONS[category]
        ask = MAKERS[category](frame, rng, _Want(letter=index % n_options, flag=bool(index // n_options % 2)))
        if ask is not None:
            made.append(_item(category, index, ask, frame, rng))
    return made


def _item(category: str, index: int, ask: _Ask, frame: RoomFrame, rng: np.random.Generator) -> Item:
    drawn = draw_marks(frame.rgb, ask.marks, rng)
    lines = [f"({LETTERS[i]}) {choice}" for i, choice in enumerate(ask.choices)]
    return Item(
        item_id=f"rooms_{category}_{index:04d}",
        category=category,
        skill=SKILLS[category],
        question=ask.question,
        choices=ask.choices,
        answer=LETTERS[ask.answer],
        prompt="\n".join([ask.question, *lines]),
        images=(encode_png(drawn.rgb),),
        group=f"room-{frame.seed}",
        tags=ask.tags,
        marks=(ask.marks,),
        clean=(_clean_name(frame),),
        boxes=(ask.boxes,),
    )


def _clean_name(frame: RoomFrame) -> str:
    """Name of the picture without marks in the benchmark's clean images."""
    return f"room-{frame.seed}-{frame.view}"


# ------------------------------------------------------------------------------------------------------ perception


def _depth(frame: RoomFrame, rng: np.random.Generator, want: _Want) -> _Ask | None:
    """Two flat places whose depths differ by at least 15 %; `want.flag`: the nearer one is lower in the picture."""
    gap = _scaled(frame, 20)
    for _ in range(200):
        first, second = _flat_point(frame, rng), _flat_point(frame, rng)
        if first is None or second is None:
            return None
        if np.hypot(first[0] - second[0], first[1] - second[1]) < gap or abs(first[1] - second[1]) < gap / 5:
            continue
        z1, z2 = (float(frame.depth[int(y), int(x)]) for x, y in (first, second))
        ratio = max(z1, z2) / min(z1, z2)
        if ratio < MIN_RATIO:
            continue
        near, far = (first, second) if z1 < z2 else (second, first)
        lower = near[1] > far[1]
        if lower != want.flag:
            continue
        places = (near, far) if want.letter == 0 else (far, near)
        band = "1.15-1.3" if ratio < 1.3 else "1.3-1.7" if ratio < 1.7 else "over 1.7"
        return _Ask(
            question="Which marked point is nearer to the camera?",
            choices=("A is nearer", "B is nearer"),
            answer=want.letter,
            marks=_marks(*places),
            tags={
                "nearer_point": "lower" if lower else "higher",
                "nearer_side": "left" if near[0] < far[0] else "right",
                "depth_ratio": band,
            },
        )
    return None


def _left_right(frame: RoomFrame, rng: np.random.Generator, want: _Want) -> _Ask | None:
    places = _places(frame, rng)
    if places is None or abs(places[0][0][0] - places[1][0][0]) < frame.rgb.shape[1] * 0.1:
        return None
    (left, _), (right, _) = sorted(places, key=lambda place: place[0][0])
    return _Ask(
        question="Which mark is further to the left in the image?",
        choices=("A is further left", "B is further left"),
        answer=want.letter,
        marks=_marks(left, right) if want.letter == 0 else _marks(right, left),
        tags={},
    )


# -------------------------------------------------------------------------------------------------------- semantics


def _object_at_mark(frame: RoomFrame, rng: np.random.Generator, want: _Want) -> _Ask | None:
    places = _places(frame, rng)
    if places is None:
        return None
    asked = int(rng.integers(2))
    answer = frame.names[places[asked][1]]
    return _options(
        f"What is at mark {LETTERS[asked]}?", answer, (*KINDS, *STUFF), want, rng, _marks(places[0][0], places[1][0])
    )


def _colour_at_mark(frame: RoomFrame, rng: np.random.Generator, want: _Want) -> _Ask | None:
    places = _places(frame, rng)
    coloured = [i for i in (0, 1) if places is not None and frame.colours[places[i][1]]]
    if places is None or not coloured:
        return None
    asked = coloured[int(rng.integers(len(coloured)))]
    question = f"What colour is the object at mark {LETTERS[asked]}?"
    answer = frame.colours[places[asked][1]]
    return _options(question, answer, tuple(COLOURS), want, rng, _marks(places[0][0], places[1][0]))


def _mark_on_object(frame: RoomFrame, rng: np.random.Generator, want: _Want) -> _Ask | None:
    places = _places(frame, rng)
    if places is None or frame.names[places[0][1]] == frame.names[places[1][1]]:
        return None
    target, other = places if rng.random() < 0.5 else places[::-1]
    return _Ask(
        question=f"Which mark is on the {frame.names[target[1]]}?",
        choices=("mark A", "mark B"),
        answer=want.letter,
        marks=_marks(target[0], other[0]) if want.letter == 0 else _marks(other[0], target[0]),
        tags={},
    )


def _object_colour(frame: RoomFrame, rng: np.random.Generator, want: _Want) -> _Ask | None:
    shown = [i for i, area in _areas(frame).items() if area > 0 and frame.colours[i]]
    names = [frame.names[i] for i in shown]
    alone = [i for i in _large(frame) if frame.colours[i] and names.count(frame.names[i]) == 1]
    if not alone:
        return None
    chosen = alone[int(rng.integers(len(alone)))]
    question = f"What colour is the {frame.names[chosen]}?"
    ask = _options(question, frame.colours[chosen], tuple(COLOURS), want, rng, ())
    return replace(ask, boxes=(_box(frame, chosen),))


def _options(
    question: str,
    answer: str,
    vocabulary: tuple[str, ...],
    want: _Want,
    rng: np.random.Generator,
    marks: tuple[Mark, ...],
) -> _Ask:
    """Four options with the answer at the wanted letter."""
    others = [word for word in vocabulary if word != answer]
    choices = [str(word) for word in rng.choice(others, 3, replace=False)]
    choices.insert(want.letter, answer)
    return _Ask(question=question, choices=tuple(choices), answer=want.letter, marks=marks, tags={})


# ---------------------------------------------------------------------------------------------------------- places

Place = tuple[float, float]
"""A pixel's centre (x, y)."""


def _marks(a: Place, b: Place) -> tuple[Mark, ...]:
    return (Mark(label="A", x=a[0], y=a[1]), Mark(label="B", x=b[0], y=b[1]))


def _scaled(frame: RoomFrame, pixels_at_128: float) -> float:
    return pixels_at_128 * int(min(frame.rgb.shape[:2])) / 128


def _areas(frame: RoomFrame) -> dict[int, int]:
    """Visible pixels of every instance."""
    ids, counts = np.unique(frame.ids[frame.ids >= 0], return_counts=True)
    return {int(i): int(n) for i, n in zip(ids, counts, strict=True)}


def _box(frame: RoomFrame, instance: int) -> Box:
    """Box of an instance's visible pixels."""
    rows, columns = np.nonzero(frame.ids == instance)
    return float(columns.min()), float(rows.min()), float(columns.max() + 1), float(rows.max() + 1)


def _large(frame: RoomFrame) -> list[int]:
    """Instances of objects (no walls or floor) that show enough of themselves."""
    least = MIN_PIXELS * frame.ids.size
    return [i for i, area in _areas(frame).items() if area >= least and frame.names[i] not in STUFF]


def _point_on(frame: RoomFrame, instance: int, rng: np.random.Generator) -> Place | None:
    """A random pixel well inside an instance and away from the border."""
    border = int(_scaled(frame, 7))
    height, width = frame.ids.shape
    rows, columns = np.nonzero(frame.ids[border : height - border, border : width - border] == instance)
    for _ in range(12):
        if len(rows) < 6:
            return None
        k = int(rng.integers(len(rows)))
        row, column = int(rows[k]) + border, int(columns[k]) + border
        if (frame.ids[row - 1 : row + 2, column - 1 : column + 2] == instance).all():
            return column + 0.5, row + 0.5
    return None


def _flat_point(frame: RoomFrame, rng: np.random.Generator) -> Place | None:
    """A place whose 5x5 patch (at 128 px) has nearly one depth; six in ten lie on objects."""
    border, radius = int(_scaled(frame, 8)), max(2, int(_scaled(frame, 2)))
    height, width = frame.ids.shape
    objects = _large(frame)
    for _ in range(40):
        if objects and rng.random() < 0.6:
            place = _point_on(frame, objects[int(rng.integers(len(objects)))], rng)
        else:
            place = (
                float(rng.integers(border, width - border)) + 0.5,
                float(rng.integers(border, height - border)) + 0.5,
            )
        if place is None:
            continue
        values = patch(frame.depth, *place, radius)
        if values is not None and np.isfinite(values).all() and values.max() / values.min() < 1.06:
            return place
    return None


def _places(frame: RoomFrame, rng: np.random.Generator) -> list[tuple[Place, int]] | None:
    """Two marked places at a distance, mostly on objects: [(place, instance), …]."""
    objects, found = _large(frame), list[tuple[Place, int]]()
    stuff = [i for i, name in enumerate(frame.names) if name in STUFF]
    for _ in range(60):
        pool = objects if objects and rng.random() < 0.7 else stuff
        instance = pool[int(rng.integers(len(pool)))]
        place = _point_on(frame, instance, rng)
        far = place is not None and all(
            np.hypot(place[0] - p[0], place[1] - p[1]) >= _scaled(frame, 20) for p, _ in found
        )
        if place is not None and far:
            found.append((place, instance))
        if len(found) == 2:
            return found
    return None


MAKERS: Mapping[str, Maker] = {
    "relative_depth": _depth,
    "left_right": _left_right,
    "object_at_mark": _object_at_mark,
    "colour_at_mark": _colour_at_mark,
    "mark_on_object": _mark_on_object,
    "object_colour": _object_colour,
}

BENCHMARK = Benchmark(
    name="rooms",
    version=1,
    options=Options,
    licence="Apache-2.0",
    skills=SKILLS,
    human={},
    n_options=N_OPTIONS,
    choices={
        "relative_depth": ("A is nearer", "B is nearer"),
        "left_right": ("A is further left", "B is further left"),
        "mark_on_object": ("mark A", "mark B"),
    },
    load=load,
)
