"""Rendered rooms as training pictures: cropped, flipped and relit copies, marks on them, and labels for every patch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image

from finetune.tiny.build import IMAGE_SIDE
from finetune.tiny.wordings import COLOURS, MARKS, NAMES
from synth.marks import draw_marks
from synth.rooms.render import RoomFrame
from synth.rooms.store import load, path_of
from synth.types import DepthArray, Mark, Rgb

PATCH = 8
"""Side of a labelled patch in pixels; an image token covers 2 x 2 patches."""
PATCHES = IMAGE_SIDE // PATCH
IGNORED = -100
_VIEWS = (0, 1)
_Number = TypeVar("_Number", np.int16, np.float32)
_PURITY = 0.55
_BORDER = 7
_FAR = 40.0
_MARK_GAP = 20.0
_STRUCTURE_SHARE = 0.3


@dataclass(frozen=True, kw_only=True, eq=False)
class Picture:
    """A room picture with its truth, (IMAGE_SIDE, IMAGE_SIDE)."""

    seed: int
    view: int
    rgb: Rgb
    depth: DepthArray
    """Metres along the camera's axis."""
    ids: npt.NDArray[np.int16]
    """Instance of every pixel: an index into names and colours, or negative."""
    names: tuple[str, ...]
    colours: tuple[str, ...]
    """"" for floor, wall, ceiling and window."""

    @property
    def areas(self) -> npt.NDArray[np.int64]:
        """Visible pixels of every instance."""
        return np.bincount(self.ids[self.ids >= 0].ravel(), minlength=len(self.names))

    def objects(self, area: int) -> list[int]:
        """Coloured instances with more visible pixels than `area`."""
        return [i for i, pixels in enumerate(self.areas) if self.colours[i] and pixels > area]


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A mark and the instance that it lies on."""

    x: int
    y: int
    instance: int


@dataclass(frozen=True, kw_only=True, eq=False)
class PatchLabels:
    """Truth for the dense heads, one value a patch, row by row (PATCHES * PATCHES,). IGNORED: no label."""

    name: npt.NDArray[np.int64]
    """Index into NAMES."""
    colour: npt.NDArray[np.int64]
    """0 for no colour, else 1 + index into COLOURS."""
    mark: npt.NDArray[np.int64]
    """0 for no mark, else 1 + index into MARKS."""
    name_under: npt.NDArray[np.int64]
    """As name, of what a mark in the patch lies on."""
    colour_under: npt.NDArray[np.int64]
    log_depth: npt.NDArray[np.float32]
    """Log depth minus its mean over the picture; NaN where there is nothing."""


def picture(frame: RoomFrame) -> Picture:
    """A rendered frame as it is."""
    return Picture(
        seed=frame.seed,
        view=frame.view,
        rgb=frame.rgb,
        depth=frame.depth,
        ids=frame.ids,
        names=frame.names,
        colours=frame.colours,
    )


def load_pictures(folder: Path, seeds: Iterable[int]) -> list[Picture]:
    """Both views of every seed whose file exists, in the order of the seeds."""
    rendered = [seed for seed in seeds if path_of(seed, IMAGE_SIDE, folder).exists()]
    return [picture(load(seed, view, IMAGE_SIDE, folder)) for seed in rendered for view in _VIEWS]


def augment(source: Picture, rng: np.random.Generator) -> Picture:
    """A copy, by chance zoomed into (up to 1.45 times) and flipped, with another brightness and contrast."""
    rgb, depth, ids = source.rgb, source.depth, source.ids
    if rng.random() < 0.6:
        side = int(rng.integers(88, IMAGE_SIDE))
        x, y = (int(v) for v in rng.integers(0, IMAGE_SIDE - side + 1, 2))
        nearest = ((np.arange(IMAGE_SIDE) + 0.5) * side / IMAGE_SIDE).astype(int)
        cut = np.ix_(y + nearest, x + nearest)
        depth, ids = depth[cut], ids[cut]
        part = Image.fromarray(rgb[y : y + side, x : x + side])
        rgb = np.asarray(part.resize((IMAGE_SIDE, IMAGE_SIDE), Image.Resampling.BICUBIC))
    if rng.random() < 0.5:
        rgb, depth, ids = rgb[:, ::-1], depth[:, ::-1], ids[:, ::-1]
    lit = rgb.astype(np.float32) * rng.uniform(0.8, 1.2) + rng.uniform(-12, 12)
    return replace(source, rgb=np.clip(lit, 0, 255).astype(np.uint8), depth=depth, ids=ids)


# ------------------------------------------------------------------------------------------------------------ the marks


def place_marks(source: Picture, labels: Iterable[str], area: int, rng: np.random.Generator) -> dict[str, Placed]:
    """Marks at random places at least 20 px apart, mostly on objects with more than `area` visible pixels.

    Fewer than asked for where the picture has no room for more.
    """
    objects = source.objects(area)
    surfaces = [i for i, colour in enumerate(source.colours) if not colour]
    wanted = list(labels)
    placed: dict[str, Placed] = {}
    for _ in range(60):
        if len(placed) == len(wanted):
            break
        on_object = objects and rng.random() >= _STRUCTURE_SHARE
        spot = _inside(source, int(rng.choice(objects if on_object else surfaces)), rng)
        if spot and all(np.hypot(spot.x - p.x, spot.y - p.y) >= _MARK_GAP for p in placed.values()):
            placed[wanted[len(placed)]] = spot
    return placed


def _inside(source: Picture, instance: int, rng: np.random.Generator) -> Placed | None:
    """A pixel of the instance whose eight neighbours belong to it too."""
    inner = source.ids[_BORDER:-_BORDER, _BORDER:-_BORDER]
    rows, columns = np.nonzero(inner == instance)
    if len(rows) < 6:
        return None
    for pick in rng.integers(len(rows), size=12):
        x, y = int(columns[pick]) + _BORDER, int(rows[pick]) + _BORDER
        if (source.ids[y - 1 : y + 2, x - 1 : x + 2] == instance).all():
            return Placed(x=x, y=y, instance=instance)
    return None


def draw(source: Picture, placed: Mapping[str, Placed], rng: np.random.Generator, magnify: float = 1.0) -> Rgb:
    """The picture with its marks.

    With magnify > 1 the marks are drawn on an enlarged copy that is scaled down again: what the processor makes of a
    larger photo.
    """
    if not placed:
        return source.rgb
    marks = [Mark(label=label, x=(p.x + 0.5) * magnify, y=(p.y + 0.5) * magnify) for label, p in placed.items()]
    if magnify == 1.0:
        return draw_marks(source.rgb, marks, rng).rgb
    side = round(IMAGE_SIDE * magnify)
    large = Image.fromarray(source.rgb).resize((side, side), Image.Resampling.BICUBIC)
    drawn = Image.fromarray(draw_marks(np.asarray(large), marks, rng).rgb)
    return np.asarray(drawn.resize((IMAGE_SIDE, IMAGE_SIDE), Image.Resampling.BICUBIC))


# ------------------------------------------------------------------------------------------------------------ the truth


def patch_labels(source: Picture, placed: Mapping[str, Placed]) -> PatchLabels:
    """Labels of every patch; a patch without one instance on more than 55 % of it has neither name nor colour."""
    tiles = _tiles(np.maximum(source.ids, 0))
    counts = np.stack([(tiles == i).sum(1) for i in range(len(source.names))])
    owner = counts.argmax(0)
    pure = counts.max(0) > _PURITY * PATCH * PATCH
    names = np.array([NAMES.index(name) for name in source.names])
    colours = np.array([COLOURS.index(colour) + 1 if colour else 0 for colour in source.colours])
    mark = np.zeros(PATCHES * PATCHES, dtype=np.int64)
    name_under = np.full_like(mark, IGNORED)
    colour_under = np.full_like(mark, IGNORED)
    for label, spot in placed.items():
        patch = (spot.y // PATCH) * PATCHES + spot.x // PATCH
        mark[patch] = 1 + MARKS.index(label)
        name_under[patch], colour_under[patch] = names[spot.instance], colours[spot.instance]
    return PatchLabels(
        name=np.where(pure, names[owner], IGNORED),
        colour=np.where(pure, colours[owner], IGNORED),
        mark=mark,
        name_under=name_under,
        colour_under=colour_under,
        log_depth=_log_depth(source.depth),
    )


def _log_depth(depth: DepthArray) -> npt.NDArray[np.float32]:
    median = np.median(_tiles(depth), 1)
    known = np.isfinite(median) & (median > 0) & (median < _FAR)
    logs = np.log(np.where(known, median, 1.0))
    return np.where(known, logs - logs[known].mean() if known.any() else logs, np.nan).astype(np.float32)


def _tiles(values: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    """(side, side) -> (patches, pixels of a patch)."""
    blocks = values.reshape(PATCHES, PATCH, PATCHES, PATCH).transpose(0, 2, 1, 3)
    return blocks.reshape(PATCHES * PATCHES, PATCH * PATCH)
