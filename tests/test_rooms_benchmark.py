"""The built-in benchmark: every answer follows from the renderer's truth, and the sets are balanced as promised."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from synth.benchmarks import rooms
from synth.contracts import BenchmarkData
from synth.errors import BenchmarkError
from synth.geometry import generator
from synth.images import decode
from synth.rooms import store
from synth.rooms.render import RoomFrame
from synth.types import LETTERS

SEEDS = range(1_000_000, 1_000_008)
OPTIONS = {"n_rooms": 8, "n_depth": 24, "n_left_right": 12, "n_semantic": 12, "workers": 2}


@pytest.fixture(scope="module")
def data(rooms_cache: Path) -> BenchmarkData:
    return rooms.load(rooms.Options(cache=str(rooms_cache), **OPTIONS), None)


@pytest.fixture(scope="module")
def frames(data: BenchmarkData, rooms_cache: Path) -> list[RoomFrame]:
    return [store.load(seed, view, 128, rooms_cache) for seed in SEEDS for view in (0, 1)]


def pixel(mark: object) -> tuple[int, int]:
    return int(mark.y), int(mark.x)


def test_counts_letters_and_strata(data: BenchmarkData) -> None:
    counts = Counter(item.category for item in data.items)
    assert counts == {"relative_depth": 24, "left_right": 12} | dict.fromkeys(
        ("object_at_mark", "colour_at_mark", "mark_on_object", "object_colour"), 12
    )
    depth = [item for item in data.items if item.category == "relative_depth"]
    assert Counter(item.answer for item in depth) == {"A": 12, "B": 12}
    cells = Counter((item.answer, item.tags["nearer_point"]) for item in depth)
    assert set(cells.values()) == {6} and len(cells) == 4
    for category in ("object_at_mark", "object_colour"):
        letters = Counter(item.answer for item in data.items if item.category == category)
        assert letters == dict.fromkeys("ABCD", 3)


def test_items_are_whole(data: BenchmarkData) -> None:
    assert len({item.item_id for item in data.items}) == len(data.items)
    for item in data.items:
        assert decode(item.images[0]).shape == (128, 128, 3)
        assert len(set(item.choices)) == len(item.choices) == rooms.N_OPTIONS[item.category]
        assert item.answer in LETTERS[: len(item.choices)]
        assert item.prompt.startswith(item.question) and all(c in item.prompt for c in item.choices)
        assert item.group.startswith("room-100000")
    assert set(data.clean_images) == {f"room-{s}-{v}" for s in SEEDS for v in (0, 1)}


def test_loading_twice_gives_the_same_items(data: BenchmarkData, rooms_cache: Path) -> None:
    again = rooms.load(rooms.Options(cache=str(rooms_cache), **OPTIONS), None)
    assert again.items == data.items and again.revision == data.revision


@pytest.mark.parametrize("category", sorted(rooms.MAKERS))
def test_answers_follow_from_the_truth(category: str, frames: list[RoomFrame]) -> None:
    """Checked with the frame's own arrays, apart from the maker's reasoning."""
    rng = generator(1, category)
    made = 0
    for frame in frames:
        for letter in range(2):
            ask = rooms.MAKERS[category](frame, rng, rooms._Want(letter=letter, flag=bool(made % 2)))
            if ask is None:
                continue
            made += 1
            answer = ask.choices[ask.answer]
            places = {m.label: pixel(m) for m in ask.marks}
            names = {label: frame.names[frame.ids[p]] for label, p in places.items()}
            colours = {label: frame.colours[frame.ids[p]] for label, p in places.items()}
            if category == "relative_depth":
                nearer = min(places, key=lambda label: float(frame.depth[places[label]]))
                assert answer == f"{nearer} is nearer"
                lower = max(places, key=lambda label: places[label][0])
                assert ask.tags["nearer_point"] == ("lower" if lower == nearer else "higher")
                x = {mark.label: mark.x for mark in ask.marks}
                left = x[nearer] < min(where for label, where in x.items() if label != nearer)
                assert ask.tags["nearer_side"] == ("left" if left else "right")
            elif category == "left_right":
                assert answer == f"{min(places, key=lambda label: places[label][1])} is further left"
            elif category == "object_at_mark":
                assert answer == names[ask.question.rstrip("?")[-1]]
            elif category == "colour_at_mark":
                assert answer == colours[ask.question.rstrip("?")[-1]]
            elif category == "mark_on_object":
                named = ask.question.removeprefix("Which mark is on the ").rstrip("?")
                assert [label for label, name in names.items() if name == named] == [answer[-1]]
            else:
                named = ask.question.removeprefix("What colour is the ").rstrip("?")
                shown = {i for i in np.unique(frame.ids) if i >= 0 and frame.names[i] == named}
                assert {frame.colours[i] for i in shown} == {answer}
    assert made >= 8


def test_a_category_that_cannot_be_filled_is_an_error(rooms_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never a short benchmark: here no two points of a room differ enough in depth."""
    monkeypatch.setattr(rooms, "MIN_RATIO", 1000.0)
    options = rooms.Options(cache=str(rooms_cache), **{**OPTIONS, "n_rooms": 1, "n_depth": 2})
    with pytest.raises(BenchmarkError, match="of 2 relative_depth"):
        rooms.load(options, None)
