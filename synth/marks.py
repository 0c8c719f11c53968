"""Draws lettered rings on an image, and knows where it drew.

Size rule: with s the shorter side of the image in pixels, a mark is drawn at scale max(1, s / 128) ** 0.93 of a ring of
3.6 px radius with a letter of 9.5 px, so 128 px gives exactly that, 448 px a ring of 11.5 px, 640 px one of 16 px and
4000 px one of 88 px. Marks grow nearly with the image because most models see it scaled down; a little less than in
proportion, because they need not cover more of it than they must. Below 128 px a smaller letter would not be readable.

Marks are the visual prompts of BLINK (Fu et al. 2024) with one colour a letter instead of red for all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from synth.types import LETTERS, Box, Mark, Rgb

Colour = tuple[int, int, int]
Point = tuple[float, float]

REFERENCE_SIDE = 128
GROWTH = 0.93
RING_RADIUS = 3.6
"""All lengths from here on are pixels at scale 1."""
RING_WIDTH = 1.3
OUTLINE_RADIUS = 4.1
OUTLINE_WIDTH = 2.2
LETTER_HEIGHT = 9.5
LETTER_STROKE = 0.9
LETTER_ASIDE = 7.8
"""From the ring's centre to the centre of a letter beside it."""
LETTER_ABOVE = 8.4
SHORT_TEXT = 6.9
"""Width of a single letter; the centre of a longer label moves outwards by half of what it is wider."""

PALETTE: tuple[Colour, ...] = (
    (255, 0, 200),  # A magenta
    (0, 230, 255),  # B cyan
    (170, 255, 0),  # C lime
    (255, 150, 0),  # D orange
    (255, 60, 60),
    (160, 130, 255),
    (255, 240, 0),
    (0, 255, 150),
)
WHITE: Colour = (255, 255, 255)
"""REF, and every label that is no single letter."""

_SIDES: tuple[tuple[float, float], ...] = ((1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (-1, -1), (-1, 1), (1, 1))
_CACHED_SCALE = 4.0
_FAINT = 10


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """An image with its marks."""

    rgb: Rgb
    boxes: tuple[Box, ...]
    """One box a mark, in the order of the marks: every pixel that changed lies in it (ring, letter and outlines)."""


def mark_scale(width: int, height: int) -> float:
    """Factor on all lengths of a mark for an image of this size (pixels)."""
    return float(max(1.0, min(width, height) / REFERENCE_SIDE) ** GROWTH)


def mark_colour(label: str) -> Colour:
    """A magenta, B cyan, C lime, D orange, four more, then round again; white for REF and other words."""
    return PALETTE[LETTERS.index(label) % len(PALETTE)] if len(label) == 1 and label in LETTERS else WHITE


def draw_marks(rgb: Rgb, marks: Sequence[Mark], rng: np.random.Generator | None = None) -> Drawn:
    """Draw a ring at each mark (exactly there, cut where the border cuts it) and its label beside it.

    The label goes to the side with most room, inside the image and over no other mark as long as any of the sides is
    free, else where it covers least. With `rng` the choice between sides with room is random; without, it is fixed.
    `rgb` is (H, W, 3) uint8 and stays as it is. Raises ValueError for a mark outside the image.
    """
    height, width = rgb.shape[:2]
    for mark in marks:
        if not (0 <= mark.x <= width and 0 <= mark.y <= height):
            raise ValueError(f"mark {mark.label} at ({mark.x}, {mark.y}) is outside an image of {width} x {height}")
    scale = mark_scale(width, height)
    rings = [_around((mark.x, mark.y), (OUTLINE_RADIUS * scale,) * 2) for mark in marks]
    canvas = rgb.copy()
    letters: list[Box] = []
    for index, mark in enumerate(marks):
        taken = rings[:index] + rings[index + 1 :] + letters
        centre = _place(mark, scale, (width, height), taken, rng)
        letters.append(_around(centre, _half_text(mark.label, scale)))
    for mark, ring, letter in zip(marks, rings, letters, strict=True):
        _paste(canvas, mark, ((letter[0] + letter[2]) / 2, (letter[1] + letter[3]) / 2), _union(ring, letter), scale)
    boxes = (_clip(_union(ring, letter), width, height) for ring, letter in zip(rings, letters, strict=True))
    return Drawn(rgb=canvas, boxes=tuple(boxes))


# ------------------------------------------------------------------------------------------------- where the label goes


def _place(
    mark: Mark, scale: float, size: tuple[int, int], taken: Sequence[Box], rng: np.random.Generator | None
) -> Point:
    """Centre of the label: the free candidate with most room, or the one that covers least."""
    half = _half_text(mark.label, scale)
    scored: list[tuple[float, float, Point]] = []
    for order, side in enumerate(_SIDES):
        centre = _beside(mark, side, half, scale)
        inside = (_inwards(centre[0], half[0], size[0]), _inwards(centre[1], half[1], size[1]))
        moved = math.dist(centre, inside)
        box = _around(inside, half)
        own = _around((mark.x, mark.y), (OUTLINE_RADIUS * scale,) * 2)
        # A label that the border pushes onto its own ring hides the point; a slanted one is the second choice.
        covered = sum(_overlap(box, other) for other in taken) + (_overlap(box, own) if moved > 0 else 0.0)
        room = min([_gap(box, other) for other in taken] + [20 * scale]) / scale
        chance = 20 * rng.random() if rng is not None else 0.0
        slanted = 100.0 if order >= 4 else 0.0
        scored.append((-covered, room + chance - slanted - 10 * moved / scale, inside))
    return max(scored, key=lambda entry: entry[:2])[2]


def _beside(mark: Mark, side: tuple[float, float], half: tuple[float, float], scale: float) -> Point:
    longer = max(0.0, half[0] - (SHORT_TEXT / 2 + LETTER_STROKE) * scale)
    return (
        mark.x + side[0] * (LETTER_ASIDE * scale + longer),
        mark.y + side[1] * LETTER_ABOVE * scale,
    )


@lru_cache(maxsize=256)
def _half_text(label: str, scale: float) -> tuple[float, float]:
    """Half width and half height of a drawn label with its outline, pixels."""
    left, top, right, bottom = _font(LETTER_HEIGHT * scale).getbbox(label, anchor="mm")
    stroke = LETTER_STROKE * scale
    return max(-left, right) + stroke, max(-top, bottom) + stroke


def _inwards(centre: float, half: float, side: int) -> float:
    return side / 2 if 2 * half >= side else min(max(centre, half), side - half)


def _around(centre: Point, half: tuple[float, float]) -> Box:
    return centre[0] - half[0], centre[1] - half[1], centre[0] + half[0], centre[1] + half[1]


def _union(a: Box, b: Box) -> Box:
    return min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])


def _overlap(a: Box, b: Box) -> float:
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))


def _gap(a: Box, b: Box) -> float:
    return max(0.0, a[0] - b[2], b[0] - a[2]) + max(0.0, a[1] - b[3], b[1] - a[3])


def _clip(box: Box, width: int, height: int) -> Box:
    """Whole pixels inside the image: a drawn edge is soft over one more pixel."""
    return (
        float(max(0, math.floor(box[0]) - 1)),
        float(max(0, math.floor(box[1]) - 1)),
        float(min(width, math.ceil(box[2]) + 1)),
        float(min(height, math.ceil(box[3]) + 1)),
    )


# ---------------------------------------------------------------------------------------------------------- the drawing


def _paste(canvas: Rgb, mark: Mark, letter: Point, extent: Box, scale: float) -> None:
    """Paste ring and label; positions are rounded to 1/8 px so that equal marks come from the cache.

    Only the part under the sprite becomes a Pillow image: both ways, a whole photo costs more than its marks.
    """
    x, y = math.floor(mark.x), math.floor(mark.y)
    reach = math.ceil(max(mark.x - extent[0], extent[2] - mark.x, mark.y - extent[1], extent[3] - mark.y)) + 2
    cell = 4 * math.ceil(reach / 4)
    fraction = (round((mark.x - x) * 8) / 8, round((mark.y - y) * 8) / 8)
    offset = (round((letter[0] - mark.x) * 8) / 8, round((letter[1] - mark.y) * 8) / 8)
    make = _cached_sprite if scale <= _CACHED_SCALE else _sprite
    sprite = make(mark.label, fraction, offset, cell, scale)
    height, width = canvas.shape[:2]
    left, top = max(0, x - cell), max(0, y - cell)
    part = canvas[top : min(height, y + cell), left : min(width, x + cell)]
    patch = Image.fromarray(part)
    patch.paste(sprite, (x - cell - left, y - cell - top), sprite)
    part[:] = np.asarray(patch)


def _sprite(label: str, fraction: Point, offset: Point, cell: int, scale: float) -> Image.Image:
    """A transparent square of side 2 * cell; the ring's centre is at cell + fraction, the label `offset` from it."""
    fine = max(1, math.ceil(8 / scale))
    unit = fine * scale
    side = 2 * cell * fine
    image = Image.new("RGBA", (side, side), (0, 0, 0, 0))
    pen = ImageDraw.Draw(image)
    colour = (*mark_colour(label), 255)
    x, y = (cell + fraction[0]) * fine, (cell + fraction[1]) * fine
    _ring(pen, (x, y), OUTLINE_RADIUS * unit, (0, 0, 0, 255), OUTLINE_WIDTH * unit)
    _ring(pen, (x, y), RING_RADIUS * unit, colour, RING_WIDTH * unit)
    pen.text(
        (x + offset[0] * fine, y + offset[1] * fine),
        label,
        font=_font(LETTER_HEIGHT * unit),
        fill=colour,
        anchor="mm",
        stroke_width=int(LETTER_STROKE * unit),
        stroke_fill=(0, 0, 0, 255),
    )
    if fine == 1:
        return image
    small = image.resize((2 * cell, 2 * cell), Image.Resampling.LANCZOS)
    # Scaling down leaves faint rings around the drawing; without them what lies outside its box stays as it was.
    small.putalpha(small.getchannel("A").point([0 if alpha < _FAINT else alpha for alpha in range(256)]))
    return small


_cached_sprite = lru_cache(maxsize=512)(_sprite)


def _ring(
    pen: ImageDraw.ImageDraw, centre: Point, radius: float, colour: tuple[int, int, int, int], width: float
) -> None:
    x, y = centre
    pen.ellipse([x - radius, y - radius, x + radius, y + radius], outline=colour, width=int(width))


@lru_cache(maxsize=32)
def _font(size: float) -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(size)
    if not isinstance(font, ImageFont.FreeTypeFont):
        raise RuntimeError("Pillow was built without FreeType, which the letters of the marks need")
    return font
