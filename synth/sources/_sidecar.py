"""Reads `truth.jsonl`, the truth beside photos. The format is written down in `folder.py`."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from synth.config import validate
from synth.errors import ConfigError, SourceError
from synth.geometry import box_area, box_iou
from synth.types import (
    Box,
    Camera,
    DepthMap,
    Mask,
    Matches,
    Matrix,
    MetricDepth,
    Region,
    Regions,
    RelativeDepth,
    Truth,
)

NAME = "truth.jsonl"
BACKEND = "truth"
_SAME_OBJECT_IOU = 0.7  # a mask and a box drawn by the same annotators agree far better; neighbours far worse
_Row = tuple[FiniteFloat, FiniteFloat, FiniteFloat]
_Quad = tuple[FiniteFloat, FiniteFloat, FiniteFloat, FiniteFloat]
_Point = tuple[FiniteFloat, FiniteFloat]


class _Part(BaseModel):
    # Keys that we do not know are notes of the writer; a misspelt one of ours is caught by `_misspelt`.
    model_config = ConfigDict(frozen=True, extra="allow")


class _Depth(_Part):
    file: str
    scale: Annotated[FiniteFloat, Field(gt=0)]
    unit: Literal["m", "relative", "disparity"]
    order_only: bool = False
    right: str | None = None


class _Boxed(_Part):
    label: str
    xyxy: _Quad


class _Segment(_Part):
    id: int
    label: str
    thing: bool = True
    crowd: bool = False


class _Masks(_Part):
    file: str
    encoding: Literal["coco_panoptic"]
    segments: tuple[_Segment, ...]


class _Homography(_Part):
    to: str
    matrix: tuple[_Row, _Row, _Row]


class _Matches(_Part):
    to: str
    here: tuple[_Point, ...]
    there: tuple[_Point, ...]


class _Camera(_Part):
    K: tuple[_Row, _Row, _Row]
    R: tuple[_Row, _Row, _Row] | None = None
    t: _Row | None = None


class Line(_Part):
    """One photo's line."""

    file: str
    group: str | None = None
    domain: str = ""
    licence: str | None = None
    depth: _Depth | None = None
    boxes: tuple[_Boxed, ...] | None = None
    complete: bool = False
    crowd: tuple[_Boxed | _Quad, ...] = ()
    vocabulary: tuple[str, ...] = ()
    masks: _Masks | None = None
    homographies: tuple[_Homography, ...] = ()
    camera: _Camera | None = None
    counts: dict[str, int] = {}
    matches: _Matches | None = None
    keypoints: object = None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A line with its place in the file system."""

    line: Line
    folder: Path
    where: str
    """file:line, for messages."""

    def beside(self, name: str) -> Path:
        """A file that the line names, which must lie in the sidecar's folder. Raises SourceError."""
        path = (self.folder / name).resolve()
        if not path.is_relative_to(self.folder.resolve()):
            raise SourceError(
                f"{name!r} lies outside the folder", where=self.where, fix="name a file beside the photos"
            )
        if not path.is_file():
            raise SourceError(f"no such file: {name!r}", where=self.where, fix="correct the name, or drop the line")
        return path

    def companions(self) -> tuple[str, ...]:
        """Names of the files of truth that look like photos but are none."""
        return tuple(part.file for part in (self.line.depth, self.line.masks) if part is not None)

    def other_views(self) -> Iterator[str]:
        """Names of the photos of the same scene to which this line leads."""
        yield from (homography.to for homography in self.line.homographies)
        if self.line.matches is not None:
            yield self.line.matches.to
        if self.line.depth is not None and self.line.depth.right is not None:
            yield self.line.depth.right


def read(path: Path) -> dict[str, Entry]:
    """All lines of one sidecar by the photo's name, as written. Raises SourceError with file:line."""
    stat = path.stat()
    return _read(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=64)
def _read(path: Path, _mtime: int, _size: int) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise SourceError(f"not UTF-8 text ({error})", where=str(path)) from None
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        where = f"{path}:{number}"
        line = _parse(text, where)
        name = Path(line.file).as_posix()
        if name in entries:
            raise SourceError(f"{name!r} has a line already ({entries[name].where})", where=where)
        entries[name] = Entry(line=line, folder=path.parent, where=where)
    return entries


def _parse(text: str, where: str) -> Line:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise SourceError(
            f"not JSON: {error.msg} at column {error.colno}", where=where, fix="one object a line"
        ) from None
    if not isinstance(data, dict):
        raise SourceError(f"expected an object, found {type(data).__name__}", where=where)
    _misspelt(data, where)
    try:
        line = validate(data, Line, where)
    except ConfigError as error:
        raise SourceError(error.message, where=where) from None
    if line.matches is not None and len(line.matches.here) != len(line.matches.there):
        found = f"{len(line.matches.here)} and {len(line.matches.there)}"
        raise SourceError(f"matches: as many places here as there, found {found}", where=where)
    if line.depth is not None and line.depth.right is not None and line.depth.unit != "disparity":
        raise SourceError("depth: a right photo needs unit disparity", where=where, fix="disparity in pixels")
    for boxed in line.boxes or ():
        if box_area(boxed.xyxy) <= 0:
            raise SourceError(f"box of {boxed.label!r} has no area: {list(boxed.xyxy)}", where=where, fix="x1 y1 x2 y2")
    return line


def _misspelt(data: dict[str, object], where: str) -> None:
    known = list(Line.model_fields)
    for key in data:
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.8)
        if key not in known and near:
            raise SourceError(f"unknown key {key!r}", where=where, fix=f"did you mean {near[0]!r}?")


def check_sizes(entry: Entry, width: int, height: int) -> None:
    """The maps of a line must have the photo's upright size. Reads headers only; raises SourceError."""
    for name in entry.companions():
        path = entry.beside(name)
        with _open(path, entry.where) as image:
            _same_size(image, path, width, height, entry.where)


def truth(entry: Entry, width: int, height: int, below: PurePosixPath) -> Truth | None:
    """Everything the line knows about a photo of that upright size, or None where that is nothing.

    `below` is the sidecar's folder as the source sees it: other photos are named by their keys.
    """
    line = entry.line
    depth = _depth(entry, line.depth, width, height) if line.depth else None
    regions = _regions(entry, width, height)
    camera = _camera(line.camera) if line.camera else None
    homographies = {(below / h.to).as_posix(): _matrix(h.matrix) for h in line.homographies}
    matches = {(below / line.matches.to).as_posix(): _matches(line.matches)} if line.matches else {}
    if depth is None and regions is None and camera is None and not homographies and not matches:
        return None
    right = (below / line.depth.right).as_posix() if line.depth and line.depth.right else ""
    return Truth(depth=depth, regions=regions, camera=camera, homographies=homographies, matches=matches, right=right)


def _matches(spec: _Matches) -> Matches:
    here, there = (np.asarray(points, dtype=np.float64).reshape(-1, 2) for points in (spec.here, spec.there))
    return Matches(here=here, there=there, scores=np.ones(len(here)), backend=BACKEND)


def _depth(entry: Entry, spec: _Depth, width: int, height: int) -> DepthMap:
    path = entry.beside(spec.file)
    with _open(path, entry.where) as image:
        _same_size(image, path, width, height, entry.where)
        if image.mode not in ("L", "I", "I;16", "I;16B"):
            raise SourceError(
                f"{path.name}: depth has {image.mode} pixels", where=entry.where, fix="store one 16-bit channel"
            )
        values = np.asarray(image).astype(np.float32)
    valid: Mask = values > 0
    scaled = values / np.float32(spec.scale)
    if spec.unit == "m":
        return MetricDepth(metres=scaled, valid=valid, backend=BACKEND)
    if spec.unit == "disparity":
        return RelativeDepth(inverse=scaled, valid=valid, backend=BACKEND)
    inverse = np.divide(1, scaled, out=np.zeros_like(scaled), where=valid)
    return RelativeDepth(inverse=inverse, valid=valid, backend=BACKEND)


def _regions(entry: Entry, width: int, height: int) -> Regions | None:
    line = entry.line
    if line.boxes is None and line.masks is None:
        return None
    segments = _segments(entry, line.masks, width, height) if line.masks else []
    if line.boxes is None:
        items = [Region(label=s.label, box=_box_of(m), mask=m, crowd=s.crowd) for s, m in segments if s.thing]
    else:
        boxes = [(b.label, _clipped(b.xyxy, width, height, entry.where)) for b in line.boxes]
        masks = _assign(boxes, [(s.label, m) for s, m in segments if s.thing and not s.crowd])
        items = [Region(label=label, box=box, mask=masks.get(i)) for i, (label, box) in enumerate(boxes)]
    crowds = [(s.label, _box_of(m)) for s, m in segments if s.crowd]
    for crowd in line.crowd:
        box = crowd.xyxy if isinstance(crowd, _Boxed) else _from_xywh(crowd)
        label = crowd.label if isinstance(crowd, _Boxed) else _crowd_label(box, crowds)
        items.append(Region(label=label, box=_clipped(box, width, height, entry.where), crowd=True))
    vocabulary = tuple(sorted({*line.vocabulary, *(item.label for item in items if item.label)}))
    return Regions(items=tuple(items), complete=line.complete, backend=BACKEND, vocabulary=vocabulary)


def _segments(entry: Entry, masks: _Masks, width: int, height: int) -> list[tuple[_Segment, Mask]]:
    path = entry.beside(masks.file)
    with _open(path, entry.where) as image:
        _same_size(image, path, width, height, entry.where)
        rgb = np.asarray(image.convert("RGB")).astype(np.int64)
    ids: npt.NDArray[np.int64] = rgb[..., 0] + 256 * rgb[..., 1] + 65536 * rgb[..., 2]
    found = [(segment, ids == segment.id) for segment in masks.segments]
    for segment, mask in found:
        if not mask.any():
            raise SourceError(f"{path.name} has no pixel of segment {segment.id}", where=entry.where)
    return found


def _assign(boxes: list[tuple[str, Box]], masks: list[tuple[str, Mask]]) -> dict[int, Mask]:
    """Which mask belongs to which box: same label, best overlap first, each used once."""
    pairs = [
        (box_iou(box, _box_of(mask)), i, j)
        for i, (label, box) in enumerate(boxes)
        for j, (other, mask) in enumerate(masks)
        if label == other
    ]
    chosen: dict[int, int] = {}
    for overlap, i, j in sorted(pairs, reverse=True):
        if overlap >= _SAME_OBJECT_IOU and i not in chosen and j not in chosen.values():
            chosen[i] = j
    return {i: masks[j][1] for i, j in chosen.items()}


def _crowd_label(box: Box, crowds: list[tuple[str, Box]]) -> str:
    """Label of a bare crowd box: that of the crowd segment it was drawn around; "" (any label) where none tells."""
    labels = {label for label, _ in crowds}
    if len(labels) == 1:
        return labels.pop()
    return max(crowds, key=lambda crowd: box_iou(box, crowd[1]))[0] if crowds else ""


def _box_of(mask: Mask) -> Box:
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)


def _from_xywh(quad: Box) -> Box:
    return quad[0], quad[1], quad[0] + quad[2], quad[1] + quad[3]


def _clipped(box: Box, width: int, height: int, where: str) -> Box:
    cut = (max(box[0], 0.0), max(box[1], 0.0), min(box[2], float(width)), min(box[3], float(height)))
    if box_area(cut) <= 0:
        raise SourceError(f"box {list(box)} lies outside a photo of {width}x{height}", where=where)
    return cut


def _camera(camera: _Camera) -> Camera:
    R = _matrix(camera.R) if camera.R else np.eye(3)
    t = np.asarray(camera.t, dtype=np.float64) if camera.t else np.zeros(3)
    return Camera(K=_matrix(camera.K), R=R, t=t)


def _matrix(rows: tuple[_Row, _Row, _Row]) -> Matrix:
    return np.asarray(rows, dtype=np.float64)


def _open(path: Path, where: str) -> Image.Image:
    try:
        return Image.open(path, formats=("PNG",))
    except (UnidentifiedImageError, OSError) as error:
        raise SourceError(f"{path.name} is not a readable PNG ({error})", where=where) from None


def _same_size(image: Image.Image, path: Path, width: int, height: int, where: str) -> None:
    if image.size != (width, height):
        found = f"{image.size[0]}x{image.size[1]}"
        raise SourceError(
            f"{path.name} is {found}, the photo (upright) {width}x{height}", where=where, fix="store it at photo size"
        )
