"""A question drawn with the numbers behind its answer: boxes, what was measured at each mark, the margins below."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from synth.images import encode_png
from synth.types import Box, JsonValue, Mark, Rgb

SIDE = 640
"""Least width of a picture in the figure, pixels."""
_TEXT = 15
_PAPER, _INK = (251, 250, 247), (27, 34, 48)
_BOX = (255, 214, 10)
_POSITIONS = ("points_px", "candidates_px", "boxes_px", "x_px", "y_px", "homography")
"""Measures that say where something is; the picture shows it."""
_UNITS = {"m": " m", "px": " px", "deg": "°"}


def figure(
    pictures: Sequence[Rgb], marks: Sequence[Sequence[Mark]], measures: Mapping[str, JsonValue], words: Sequence[str]
) -> bytes:
    """PNG of the pictures side by side, each with its numbers, over the words and the numbers of no place.

    Args:
        pictures: as shown to a model, marks drawn.
        marks: of each picture, in its pixels.
        measures: of the provenance.
        words: lines printed below.
    """
    drawn = [
        _annotated(rgb, own, measures, boxes=number == 0)
        for number, (rgb, own) in enumerate(zip(pictures, marks, strict=True))
    ]
    width = sum(image.width for image in drawn) + 8 * (len(drawn) - 1)
    labels = {mark.label for own in marks for mark in own}
    lines = [part for line in (*words, *_scalars(measures, labels)) for part in _wrapped(line, width - 24)]
    tall = max(image.height for image in drawn)
    canvas = Image.new("RGB", (width, tall + 24 + (_TEXT + 6) * len(lines)), _PAPER)
    left = 0
    for image in drawn:
        canvas.paste(image, (left, 0))
        left += image.width + 8
    pen = ImageDraw.Draw(canvas)
    for number, line in enumerate(lines):
        pen.text((12, tall + 12 + (_TEXT + 6) * number), line, font=_font(), fill=_INK)
    return encode_png(np.asarray(canvas, dtype=np.uint8))


def _annotated(rgb: Rgb, marks: Sequence[Mark], measures: Mapping[str, JsonValue], *, boxes: bool) -> Image.Image:
    """One picture, enlarged where it is small, with its boxes and the numbers at its marks."""
    scale = max(1.0, SIDE / rgb.shape[1])
    size = (round(rgb.shape[1] * scale), round(rgb.shape[0] * scale))
    image = Image.fromarray(rgb).resize(size, Image.Resampling.BICUBIC)
    pen = ImageDraw.Draw(image)
    for name, box in _boxes(measures.get("boxes_px")) if boxes else ():
        corners = [value * scale for value in box]
        pen.rectangle(corners, outline=(0, 0, 0), width=5)
        pen.rectangle(corners, outline=_BOX, width=3)
        _label(pen, (corners[0] + 4, corners[1] + 4), name, size)
    for mark in marks:
        lines = _at_mark(measures, mark.label, {other.label for other in marks})
        below = 14 + 4.5 * scale
        _label(pen, (mark.x * scale - 20, mark.y * scale + below), "\n".join(lines), size)
    return image


def _label(pen: ImageDraw.ImageDraw, place: tuple[float, float], text: str, size: tuple[int, int]) -> None:
    """White text with a dark edge, moved into the picture."""
    if not text:
        return
    _, _, wide, tall = pen.multiline_textbbox((0, 0), text, font=_font())
    x, y = min(max(2.0, place[0]), size[0] - wide - 4), min(max(2.0, place[1]), size[1] - tall - 6)
    pen.multiline_text((x, y), text, font=_font(), fill=(255, 255, 255), stroke_width=2, stroke_fill=(0, 0, 0))


def _boxes(value: JsonValue) -> Iterator[tuple[str, Box]]:
    """Named boxes, from a mapping of names or a list that is numbered."""
    if isinstance(value, Mapping):
        named: list[tuple[str, JsonValue]] = list(value.items())
    else:
        named = [(str(k), box) for k, box in enumerate(_list(value), start=1)]
    for name, box in named:
        numbers = [float(v) for v in _list(box) if isinstance(v, int | float)]
        if len(numbers) == 4:
            yield name, (numbers[0], numbers[1], numbers[2], numbers[3])


def _at_mark(measures: Mapping[str, JsonValue], mark: str, marks: set[str]) -> list[str]:
    """What is stored for one mark: a line a number, a member of a consensus each."""
    found: list[str] = []
    for key, value in measures.items():
        if key == "members":
            for member in _list(value):
                found += _at_mark(member, mark, marks) if isinstance(member, Mapping) else []
        elif isinstance(value, Mapping) and key not in _POSITIONS and mark in value and set(value) <= marks:
            inner = value[mark]
            if isinstance(inner, str | int | float):
                found.append(f"{_stem(key)} {_value(inner)}{_unit(key)}")
    return found


def _scalars(measures: Mapping[str, JsonValue], marks: set[str]) -> Iterator[str]:
    """The measures that belong to no mark and no box, one a line."""
    for key, value in measures.items():
        if key == "skill" or key in _POSITIONS or (isinstance(value, Mapping) and set(value) <= marks):
            continue
        if isinstance(value, str | int | float):
            yield f"{_stem(key)}: {_value(value)}{_unit(key)}"
        elif key == "members":
            for number, member in enumerate(_list(value), start=1):
                rest = (
                    {k: v for k, v in member.items() if not _of_marks(v, marks)} if isinstance(member, Mapping) else {}
                )
                if rest:
                    yield f"member {number}: {', '.join(f'{_stem(k)} {_value(v)}' for k, v in rest.items())}"


def _of_marks(value: JsonValue, marks: set[str]) -> bool:
    return isinstance(value, Mapping) and bool(value) and set(value) <= marks


def _stem(key: str) -> str:
    return (key.rpartition("_")[0] if _unit(key) else key).replace("_", " ")


def _unit(key: str) -> str:
    return _UNITS.get(key.rpartition("_")[2], "")


def _value(value: JsonValue) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return " ".join(f"{key} {_value(inner)}" for key, inner in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"({', '.join(_value(inner) for inner in value)})"
    return str(value)


def _list(value: JsonValue) -> Sequence[JsonValue]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _wrapped(line: str, width: int) -> Iterator[str]:
    """Lines that fit; a word that is too long stays whole."""
    current = ""
    for word in line.split():
        longer = f"{current} {word}".strip()
        if current and _font().getlength(longer) > width:
            yield current
            longer = word
        current = longer
    yield current


def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(_TEXT)
