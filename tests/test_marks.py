"""Marks: exactly at their point, labels readable and clear of each other, size as the module states it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from synth.marks import PALETTE, WHITE, Drawn, draw_marks, mark_colour, mark_scale
from synth.types import Box, Mark, Rgb

GREY = 90


def plain(width: int, height: int) -> Rgb:
    return np.full((height, width, 3), GREY, dtype=np.uint8)


def changed(before: Rgb, drawn: Drawn) -> np.ndarray:
    return (before != drawn.rgb).any(2)


def inside(box: Box, shape: tuple[int, ...]) -> np.ndarray:
    """Mask of a box of whole pixels."""
    mask = np.zeros(shape[:2], dtype=bool)
    x1, y1, x2, y2 = (int(v) for v in box)
    mask[y1:y2, x1:x2] = True
    return mask


def pixels_of(drawn: Drawn, label: str) -> np.ndarray:
    """Rows and columns of the pixels that have the label's hue, however dark the outline makes them."""
    colour = np.array(mark_colour(label), dtype=float)
    pixels = drawn.rgb.astype(float)
    alike = pixels @ colour / np.maximum(1e-9, np.linalg.norm(pixels, axis=2) * np.linalg.norm(colour))
    return np.argwhere((alike > 0.97) & (pixels.max(2) > 110))


@pytest.mark.parametrize(
    ("width", "height"), [(32, 32), (32, 300), (128, 128), (200, 90), (640, 480), (1100, 2000), (8000, 3000)]
)
def test_every_changed_pixel_lies_in_a_box_and_every_box_in_the_image(width: int, height: int) -> None:
    picture = plain(width, height)
    marks = [Mark(label="A", x=width * 0.25, y=height * 0.3), Mark(label="B", x=width * 0.8, y=height * 0.75)]
    drawn = draw_marks(picture, marks, np.random.default_rng(0))
    assert drawn.rgb.shape == picture.shape
    assert (picture == GREY).all(), "the input was drawn on"
    rest = drawn.rgb.copy()
    for x1, y1, x2, y2 in ((int(v) for v in box) for box in drawn.boxes):
        assert 0 <= x1 < x2 <= width
        assert 0 <= y1 < y2 <= height
        assert (drawn.rgb[y1:y2, x1:x2] != GREY).any(2).sum() > 30
        rest[y1:y2, x1:x2] = GREY
    assert (rest == GREY).all()


@pytest.mark.parametrize("side", [64, 128, 448, 1000])
@pytest.mark.parametrize("fraction", [0.0, 0.5, 0.8])
def test_the_ring_is_centred_on_the_point(side: int, fraction: float) -> None:
    point = (side // 2 + fraction, side // 3 + fraction)
    drawn = draw_marks(plain(side, side), [Mark(label="A", x=point[0], y=point[1])])
    scale = mark_scale(side, side)
    rows, columns = np.indices((side, side)) + 0.5
    distance = np.hypot(columns - point[0], rows - point[1])
    touched = changed(plain(side, side), drawn)
    shade = np.abs(drawn.rgb.astype(int) - GREY).max(2)
    assert shade[distance < 1.2 * scale].max() < 15, "the marked point itself must stay visible"
    near = touched & (distance < 5.0 * scale)
    assert near[(distance > 3.0 * scale) & (distance < 3.6 * scale)].all(), "the ring is closed"
    colour = pixels_of(drawn, "A")
    ring = colour[np.hypot(colour[:, 1] + 0.5 - point[0], colour[:, 0] + 0.5 - point[1]) < 4.3 * scale]
    centre = (ring.min(0) + ring.max(0) + 1) / 2
    assert np.abs(centre - point[::-1]).max() <= 0.75


@pytest.mark.parametrize(("side", "radius"), [(32, 3.6), (128, 3.6), (448, 11.5), (640, 16.1), (8000, 168.0)])
def test_size_rule(side: int, radius: float) -> None:
    assert 3.6 * mark_scale(side, 3 * side) == pytest.approx(radius, rel=0.01)
    assert mark_scale(side, 3 * side) == mark_scale(3 * side, side)


def test_128_px_marks_have_the_size_that_the_small_model_reads() -> None:
    for label in "ABCD":
        (box,) = draw_marks(plain(128, 128), [Mark(label=label, x=64.5, y=64.5)]).boxes
        long, short = sorted((box[2] - box[0], box[3] - box[1]), reverse=True)
        assert 17 <= long <= 21
        assert 10 <= short <= 15


@pytest.mark.parametrize("seed", range(30))
def test_labels_stay_inside_and_clear_of_other_marks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    side = int(rng.choice([96, 128, 300]))
    reach = 20 * mark_scale(side, side)
    marks: list[Mark] = []
    while len(marks) < 4:
        x, y = rng.uniform(0, side, 2)
        if all(np.hypot(x - m.x, y - m.y) > reach for m in marks):
            marks.append(Mark(label="ABCD"[len(marks)], x=float(x), y=float(y)))
    together = draw_marks(plain(side, side), marks, np.random.default_rng(seed))
    for a, b in itertools.combinations(range(4), 2):
        first, second = (inside(together.boxes[i], (side, side)) for i in (a, b))
        both = np.argwhere(first & second)
        # Boxes of soft edges may touch by a pixel; what is drawn in them may not.
        assert len(both) == 0 or (np.ptp(both, axis=0) <= 2).any()
    for mark in marks:
        pixels = pixels_of(together, mark.label) + 0.5
        letter = pixels[np.hypot(pixels[:, 1] - mark.x, pixels[:, 0] - mark.y) > 4.6 * mark_scale(side, side)]
        assert len(letter) > 4, f"letter {mark.label} is cut off or hidden"


@pytest.mark.parametrize("corner", [(0.0, 0.0), (128.0, 0.0), (0.0, 128.0), (128.0, 128.0), (64.0, 0.0), (128.0, 50.0)])
def test_at_the_border_the_letter_is_whole(corner: tuple[float, float]) -> None:
    away = draw_marks(plain(128, 128), [Mark(label="B", x=64.5, y=64.5)])
    drawn = draw_marks(plain(128, 128), [Mark(label="B", x=corner[0], y=corner[1])])

    def letter(result: Drawn, x: float, y: float) -> int:
        pixels = pixels_of(result, "B") + 0.5
        return int((np.hypot(pixels[:, 1] - x, pixels[:, 0] - y) > 4.6).sum())

    assert letter(drawn, *corner) >= 0.7 * letter(away, 64.5, 64.5)


def test_deterministic_without_rng_and_with_equal_rngs() -> None:
    marks = [Mark(label="A", x=30.5, y=40.5), Mark(label="REF", x=90.5, y=60.5)]
    first, second = (draw_marks(plain(128, 128), marks) for _ in range(2))
    assert (first.rgb == second.rgb).all()
    third, fourth = (draw_marks(plain(128, 128), marks, np.random.default_rng(7)) for _ in range(2))
    assert (third.rgb == fourth.rgb).all()
    sides = {draw_marks(plain(128, 128), marks[:1], np.random.default_rng(s)).boxes for s in range(20)}
    assert len(sides) == 4, "with a generator the letter goes to any of the four free sides"


def test_colours() -> None:
    assert [mark_colour(letter) for letter in "ABCD"] == list(PALETTE[:4])
    assert mark_colour("I") == mark_colour("A")
    assert mark_colour("REF") == WHITE
    assert len(set(PALETTE)) == len(PALETTE)


def test_no_marks_and_marks_outside() -> None:
    picture = plain(50, 40)
    assert (draw_marks(picture, []).rgb == picture).all()
    with pytest.raises(ValueError, match="outside"):
        draw_marks(picture, [Mark(label="A", x=51.0, y=3.0)])
