"""Parts of a picture that may be somebody else's whole picture: a collage, a letterbox or a bordered copy holds one.

A global hash does not survive a border, a collage or a crop; hashing these parts recovers the first two, and the copies
whose benchmark image is itself a centred crop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from synth.guard.pdq import Luma

WHOLE = "whole"
TRIMMED = "trimmed"
CENTRE_CROPS = (0.9, 0.8, 0.7, 0.6)
"""Sides kept, as a share."""

_MIN_SIDE = 40
"""Pixels: less holds no picture that a 64 x 64 hash could tell."""
_MOST_PARTS = 4
_UNIFORM_SPREAD = 6.0
"""Standard deviation, in grey levels, up to which a row or column counts as border or gutter; JPEG rings a little."""
_UNIFORM_STEP = 12.0
"""Rows of one border differ by at most this in their mean."""
_GUTTER_SPREAD = 5.0
"""Grey levels: a gutter is a line of which `_GUTTER_SHARE` lies this near to its median; a mark may reach across it."""
_GUTTER_SHARE = 0.8
_GUTTER_STEP = 10.0
"""Mean step in grey levels from a gutter to the pictures beside it, or every clear sky would be one."""
_SAMPLES = 128
"""Pixels looked at in a line."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A part of the working picture (`pdq.working_luma`)."""

    name: str
    """whole, trimmed, part1 …, left, right, top, bottom, centre90 …"""
    luma: Luma

    @property
    def is_crop(self) -> bool:
        """True where the picture shows more than the part: a match means that the benchmark holds a crop of it."""
        return self.name.startswith("centre")


def panels(picture: Luma) -> tuple[Panel, ...]:
    """All parts of a working luma picture (H, W); the whole comes first, the trimmed one only where it differs."""
    found = [*frames(picture)]
    height, width = picture.shape
    halves = {
        "left": picture[:, : width // 2],
        "right": picture[:, (width + 1) // 2 :],
        "top": picture[: height // 2],
        "bottom": picture[(height + 1) // 2 :],
    }
    found += [Panel(name=name, luma=_trim(part)) for name, part in halves.items()]
    inner = _trim(picture)
    found += [Panel(name=f"centre{round(100 * side)}", luma=_centre(inner, side)) for side in CENTRE_CROPS]
    return tuple(panel for panel in found if panel.name == WHOLE or min(panel.luma.shape) >= _MIN_SIDE)


def frames(picture: Luma) -> tuple[Panel, ...]:
    """The whole picture, and what its own borders and gutters divide it into; what a benchmark image is indexed by."""
    inner = _trim(picture)
    found = [Panel(name=WHOLE, luma=picture)]
    if inner.shape != picture.shape:
        found.append(Panel(name=TRIMMED, luma=inner))
    parts = _split(inner, axis=1)
    parts = parts if len(parts) > 1 else _split(inner, axis=0)
    if len(parts) > 1:
        for number, part in enumerate(parts[:_MOST_PARTS], start=1):
            found.append(Panel(name=f"part{number}", luma=part))
            if (trimmed := _trim(part)).shape != part.shape:
                found.append(Panel(name=f"part{number}_{TRIMMED}", luma=trimmed))
    return tuple(panel for panel in found if panel.name == WHOLE or min(panel.luma.shape) >= _MIN_SIDE)


def _trim(picture: Luma) -> Luma:
    """The picture without uniform borders; unchanged where hardly anything would be left."""
    top, bottom = _border(picture)
    left, right = _border(picture[top : picture.shape[0] - bottom].T)
    inner = picture[top : picture.shape[0] - bottom, left : picture.shape[1] - right]
    return inner if min(inner.shape) >= _MIN_SIDE else picture


def _border(picture: Luma) -> tuple[int, int]:
    """Uniform rows at the top and at the bottom, and one blended row where a border meets the picture."""
    uniform = picture.std(axis=1) <= _UNIFORM_SPREAD
    means = picture.mean(axis=1)

    def run(flags: npt.NDArray[np.bool_], levels: npt.NDArray[np.float32]) -> int:
        if not flags[0]:
            return 0
        same = flags & (np.abs(levels - levels[0]) <= _UNIFORM_STEP)
        length = int(np.argmin(same)) if not same.all() else len(same)
        return length + 1 if 2 <= length < len(same) else (length if length >= 2 else 0)

    top, bottom = run(uniform, means), run(uniform[::-1], means[::-1])
    return (top, bottom) if top + bottom < len(picture) else (0, 0)


def _split(picture: Luma, axis: int) -> list[Luma]:
    """Parts between columns (axis 1) or rows (axis 0) of one level that cross the whole picture."""
    lines = picture if axis == 1 else picture.T
    sampled = lines[:: max(1, lines.shape[0] // _SAMPLES)]
    middle = sampled.shape[0] // 2
    levels = np.partition(sampled, middle, axis=0)[middle]
    uniform = (np.abs(sampled - levels) <= _GUTTER_SPREAD).mean(axis=0) >= _GUTTER_SHARE
    edges = np.flatnonzero(np.diff(np.concatenate([[False], uniform, [False]]).astype(np.int8)))
    gutters = []
    for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        level = levels[(begin + end) // 2]
        # One column on either side is a blend of gutter and picture.
        beside = [sampled[:, at] for at in (begin - 2, end + 1) if 0 <= at < lines.shape[1]]
        if len(beside) == 2 and min(float(np.abs(side - level).mean()) for side in beside) >= _GUTTER_STEP:
            gutters.append((begin, end))
    return [part if axis == 1 else part.T for part in _between(lines, gutters) if part.shape[1] >= _MIN_SIDE]


def _between(lines: Luma, gutters: list[tuple[int, int]]) -> Iterator[Luma]:
    start = 0
    for begin, end in [*gutters, (lines.shape[1], lines.shape[1])]:
        # One blended column on either side belongs to the gutter.
        inner = lines[:, (start + 1 if start else 0) : (begin - 1 if end < lines.shape[1] else begin)]
        if inner.shape[1] > 0:
            yield inner
        start = end


def _centre(picture: Luma, side: float) -> Luma:
    height, width = picture.shape
    tall, wide = round(height * side), round(width * side)
    top, left = (height - tall) // 2, (width - wide) // 2
    return picture[top : top + tall, left : left + wide]
