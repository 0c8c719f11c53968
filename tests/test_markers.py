"""Burned-in marks are found where they were drawn, or not at all."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from synth.diagnosis.markers import NOT_FOUND, erase, find_marks
from synth.images import decode
from synth.marks import draw_marks
from synth.types import Mark
from tests.scenes import textured

PLACES = {"A": (90, 80), "B": (250, 90), "C": (110, 300), "D": (400, 280), "REF": (300, 200)}
RED, WHITE = (255, 0, 0), (255, 255, 255)


def photo(seed: int = 0) -> np.ndarray:
    """A muted texture: white letters stay readable on it, and no blob of it is as pure as a drawn mark."""
    return (textured(np.random.default_rng(seed), 520, 400) * 0.35 + 50).astype(np.uint8)


def blink(
    rgb: np.ndarray,
    places: dict[str, tuple[int, int]],
    radius: int = 10,
    width: int = 2,
    letter: tuple[int, int, int] = RED,
    filled: bool = False,
    size: int = 20,
    quality: int | None = None,
    names: dict[str, str] | None = None,
) -> np.ndarray:
    """Red circles with letters to the right, the way BLINK's pictures look; not drawn by synth.marks."""
    image = Image.fromarray(rgb)
    pen = ImageDraw.Draw(image)
    for label, (x, y) in places.items():
        box = [x - radius, y - radius, x + radius, y + radius]
        pen.ellipse(box, outline=RED, width=width, fill=RED if filled else None)
        text = (names or {}).get(label, label)
        pen.text((x + radius + 5, y), text, font=ImageFont.load_default(size), fill=letter, anchor="lm")
    if quality is None:
        return np.asarray(image)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return np.asarray(Image.open(buffer))


def some(*labels: str) -> dict[str, tuple[int, int]]:
    return {label: PLACES[label] for label in labels}


@pytest.mark.parametrize(
    ("labels", "style"),
    [
        (("A", "B"), {}),
        (("A", "B"), {"letter": WHITE, "quality": 60}),
        (("A", "B", "C", "D"), {"radius": 7, "width": 1, "size": 16}),
        (("A", "B", "C", "D"), {"radius": 18, "width": 4, "letter": WHITE}),
        (("REF",), {"letter": WHITE}),
        (("A", "B"), {"radius": 6, "filled": True, "letter": (255, 255, 0)}),
    ],
)
def test_marks_are_found_where_they_were_drawn(labels: tuple[str, ...], style: dict) -> None:
    search = find_marks(blink(photo(), some(*labels), **style), labels)
    assert search.reason == "" and tuple(found.mark.label for found in search.marks) == labels
    for found in search.marks:
        x, y = PLACES[found.mark.label]
        assert np.hypot(found.mark.x - x - 0.5, found.mark.y - y - 0.5) < 1.0
        assert abs(found.radius - style.get("radius", 10)) < 2
        assert 0.5 < found.confidence <= 1


def test_the_order_is_that_of_the_labels() -> None:
    picture = blink(photo(), some("A", "B"))
    assert [found.mark.label for found in find_marks(picture, ("B", "A")).marks] == ["B", "A"]


def test_letters_are_read_and_not_guessed_from_the_position() -> None:
    swapped = blink(photo(), some("A", "B"), names={"A": "B", "B": "A"})
    a, b = find_marks(swapped, ("A", "B")).marks
    assert a.mark.x > b.mark.x


@pytest.mark.parametrize(
    ("picture", "labels", "why"),
    [
        (blink(photo(), some("A")), ("A", "B"), "1 circles for 2 labels"),
        (blink(photo(), some("A", "C")), ("A", "B"), "no circle with B"),
        (blink(photo(), some("A", "B"), names={"B": "A"}), ("A", "B"), "no circle with B"),
        (blink(photo(), some("A", "B", "C"), names={"C": "B"}), ("A", "B"), "2 ways to place"),
        (blink(blink(photo(), some("A"), radius=8), some("B"), radius=16), ("A", "B"), "differ in style|no circle"),
        (blink(photo(), some("A", "B"), names={"A": "", "B": ""}), ("A", "B"), "no circle with A, B"),
        (photo(), ("REF",), "0 circles"),
    ],
    ids=["one circle", "C for B", "twice A", "twice B", "two sizes", "no letters", "plain"],
)
def test_anything_but_each_label_once_is_not_found(picture: np.ndarray, labels: tuple[str, ...], why: str) -> None:
    search = find_marks(picture, labels)
    assert search.marks == () and search.reason == NOT_FOUND
    assert re.search(why, search.detail)


def test_a_label_without_glyphs_is_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match="G"):
        find_marks(photo(), ("A", "G"))


def test_our_own_marks_are_found() -> None:
    """Coloured by letter, with dark outlines."""
    rgb = np.asarray(Image.fromarray(photo()).resize((448, 448)))
    marks = [Mark(label="A", x=120.5, y=100.5), Mark(label="B", x=300.5, y=330.5)]
    found = find_marks(draw_marks(rgb, marks).rgb, ("A", "B")).marks
    assert all(np.hypot(f.mark.x - m.x, f.mark.y - m.y) < 1 for f, m in zip(found, marks, strict=True))


@pytest.mark.parametrize("seed", range(4))
def test_a_gaudy_scene_never_yields_a_wrong_place(seed: int) -> None:
    """Full of round saturated blobs, some nearer to a label than its own circle."""
    scene = textured(np.random.default_rng(seed), 520, 400)
    for found in find_marks(blink(scene, some("REF"), letter=WHITE, quality=60), ("REF",)).marks:
        assert np.hypot(found.mark.x - PLACES["REF"][0], found.mark.y - PLACES["REF"][1]) < 2


def test_a_label_between_two_circles_belongs_to_neither() -> None:
    picture = blink(photo(), {"A": (100, 200), "B": (300, 100)})
    image = Image.fromarray(picture)
    ImageDraw.Draw(image).ellipse([135, 190, 155, 210], outline=RED, width=2)
    search = find_marks(np.asarray(image), ("A", "B"))
    assert search.marks == () and "no circle with A" in search.detail


def test_erasing_leaves_neither_ring_nor_letter_and_touches_nothing_else() -> None:
    clean = np.full((400, 520, 3), (90, 110, 130), np.uint8)
    marked = blink(clean, some("A", "B"), letter=WHITE)
    bare = erase(marked, find_marks(marked, ("A", "B")).marks)
    assert np.abs(bare.astype(int) - clean).max() <= 3
    scene = photo()
    marked = blink(scene, some("A", "B"))
    bare = erase(marked, find_marks(marked, ("A", "B")).marks)
    changed = (bare != marked).any(axis=2)
    for label in "AB":
        x, y = PLACES[label]
        assert not changed[y - 4 : y + 5, x - 4 : x + 5].any()
        changed[y - 20 : y + 21, x - 20 : x + 50] = False
    assert not changed.any()


def test_on_real_photos_what_is_found_is_right(shared: Path) -> None:
    """Sizes, colours and compression vary; a position is never wrong, and most are found."""
    rng = np.random.default_rng(3)
    found = wrong = 0
    files = sorted((shared / "photos").glob("cocoplain_*.jpg"))[:5]
    for file in files:
        rgb = decode(file.read_bytes())
        size = int(rng.integers(16, 24))
        places = {
            label: (int(rng.integers(left, left + 110)), int(rng.integers(40, rgb.shape[0] - 40)))
            for label, left in (("A", 60), ("B", rgb.shape[1] - 200))
        }
        style = {"radius": int(rng.integers(7, 16)), "width": int(rng.integers(2, 4)), "size": size}
        picture = blink(rgb, places, letter=RED if rng.random() < 0.5 else WHITE, **style)
        for mark in (f.mark for f in find_marks(picture, ("A", "B")).marks):
            x, y = places[mark.label]
            found += 1
            wrong += np.hypot(mark.x - x, mark.y - y) > 2
    assert wrong == 0 and found >= len(files)
