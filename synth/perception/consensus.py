"""Which passes make up a consensus, and how the result of a mirrored or zoomed pass comes back.

A depth order or a detection that does not survive a mirror, another scale or another model is not worth asking about.
The first member is the plain pass; then come the mirrored one, the zoomed ones, and one plain pass of each further
backend. Truth stands alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Generic, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from synth.config import Config, PluginChoice, resolve
from synth.contracts import DepthBackend, RegionBackend
from synth.errors import ConfigError
from synth.geometry import mirror_box
from synth.images import mirror
from synth.plugins import DEPTH, REGIONS, Folder
from synth.types import DepthMap, Frame, MetricDepth, PluginOptions, Region, Regions, RelativeDepth

BackendT = TypeVar("BackendT", DepthBackend, RegionBackend)
DepthZoom = Annotated[float, Field(ge=0.25, le=1.8)]
"""Above 1.8 the corners would hardly overlap."""
RegionZoom = Annotated[float, Field(ge=0.25, lt=1)]
_GREY = 114
"""The canvas around a picture that is shown smaller; what letterboxing detectors use."""
_Part = tuple[slice, slice]
_Floats = npt.NDArray[np.float64]
_MIN_OVERLAP = 64
"""Pixels that two corners must share before one can be brought to the other's scale."""


class ConsensusOptions(Config):
    """Members beside the plain pass."""

    flip: bool = True
    """The same model on the mirrored picture."""
    depth_zooms: tuple[DepthZoom, ...] = ()
    """The same depth model at other scales: below 1 on the picture amid a grey canvas, above 1 on its four overlapping
    corners, whose maps are joined. For a model of fixed input size this is what a second size means."""
    region_zooms: tuple[RegionZoom, ...] = ()
    """The same detector on the picture amid a grey canvas."""
    depth: tuple[PluginChoice, ...] = ()
    """Further depth backends, each with its options."""
    regions: tuple[PluginChoice, ...] = ()
    """Further detectors, each with its options."""


@dataclass(frozen=True, kw_only=True)
class Member(Generic[BackendT]):
    """One pass of the consensus."""

    name: str
    """plain, flip, zoom-0.5 …, second-1, second-2 …"""
    backend: BackendT
    options: PluginOptions
    mirrored: bool = False
    zoom: float = 1.0


def depth_members(
    first: tuple[DepthBackend, PluginOptions], options: ConsensusOptions
) -> tuple[Member[DepthBackend], ...]:
    """All depth passes, the plain one first. Raises ConfigError for an unknown or exact further backend."""
    return _members(first, options, (options.depth_zooms, options.depth), DEPTH, "perception.consensus.depth")


def region_members(
    first: tuple[RegionBackend, PluginOptions], options: ConsensusOptions
) -> tuple[Member[RegionBackend], ...]:
    """All detection passes, the plain one first. Raises ConfigError for an unknown or exact further backend."""
    return _members(first, options, (options.region_zooms, options.regions), REGIONS, "perception.consensus.regions")


def mirror_frame(frame: Frame) -> Frame:
    """The frame with its picture mirrored left to right; its view is the same."""
    return replace(frame, rgb=mirror(frame.rgb))


def mirror_depth(depth: DepthMap) -> DepthMap:
    """A depth map of a mirrored picture, back in the picture's own pixels."""
    valid = mirror(depth.valid)
    if isinstance(depth, MetricDepth):
        return replace(depth, metres=mirror(depth.metres), valid=valid)
    return replace(depth, inverse=mirror(depth.inverse), valid=valid)


def mirror_regions(regions: Regions, width: int) -> Regions:
    """Regions of a mirrored picture of that width, back in the picture's own pixels."""
    return replace(regions, items=tuple(_mirror_region(region, width) for region in regions.items))


def _mirror_region(region: Region, width: int) -> Region:
    mask = None if region.mask is None else mirror(region.mask)
    return replace(region, box=mirror_box(region.box, width), mask=mask)


# ------------------------------------------------------------------------------------------------- other scales


def inputs_of(member: Member[BackendT], frame: Frame) -> list[Frame]:
    """What the member's model looks at: one picture, or the four corners of one that is enlarged."""
    if member.mirrored:
        return [mirror_frame(frame)]
    if member.zoom == 1:
        return [frame]
    height, width = frame.rgb.shape[:2]
    if member.zoom > 1:
        return [
            replace(frame, rgb=np.ascontiguousarray(frame.rgb[part])) for part in _corners(height, width, member.zoom)
        ]
    rows, columns = _amid(height, width, member.zoom)
    full = (round(height / member.zoom), round(width / member.zoom), 3)
    canvas = np.full(full, _GREY, dtype=np.uint8)
    canvas[rows, columns] = frame.rgb
    return [replace(frame, rgb=canvas)]


def depth_of(member: Member[DepthBackend], frame: Frame, maps: Sequence[DepthMap]) -> DepthMap:
    """The model's maps of `inputs_of`, as one map in the frame's own pixels.

    What is shown smaller looks farther by as much; metres are brought back.
    """
    height, width = frame.rgb.shape[:2]
    if member.mirrored:
        return mirror_depth(maps[0])
    if member.zoom == 1:
        return maps[0]
    if member.zoom > 1:
        return _joined(maps, _corners(height, width, member.zoom), (height, width), member.zoom)
    part = _amid(height, width, member.zoom)
    depth, valid = maps[0], np.ascontiguousarray(maps[0].valid[part])
    if isinstance(depth, MetricDepth):
        return replace(depth, metres=np.ascontiguousarray(depth.metres[part] * np.float32(member.zoom)), valid=valid)
    return replace(depth, inverse=np.ascontiguousarray(depth.inverse[part]), valid=valid)


def regions_of(member: Member[RegionBackend], frame: Frame, found: Sequence[Regions]) -> Regions:
    """The model's regions of `inputs_of`, in the frame's own pixels; what lies beside the picture is left out."""
    height, width = frame.rgb.shape[:2]
    if member.mirrored:
        return mirror_regions(found[0], width)
    if member.zoom == 1:
        return found[0]
    part = _amid(height, width, member.zoom)
    moved = (_from_canvas(region, part, height, width) for region in found[0].items)
    return replace(found[0], items=tuple(region for region in moved if region is not None))


def _amid(height: int, width: int, zoom: float) -> _Part:
    """Where the picture lies on the canvas."""
    top, left = (round(height / zoom) - height) // 2, (round(width / zoom) - width) // 2
    return slice(top, top + height), slice(left, left + width)


def _corners(height: int, width: int, zoom: float) -> list[_Part]:
    tall, wide = min(height, round(height / zoom)), min(width, round(width / zoom))
    rows, columns = (0, height - tall), (0, width - wide)
    return [(slice(top, top + tall), slice(left, left + wide)) for top in rows for left in columns]


def _joined(maps: Sequence[DepthMap], parts: Sequence[_Part], shape: tuple[int, int], zoom: float) -> DepthMap:
    """Overlapping maps as one: each is brought to the scale of those before it where they overlap, then blended.

    Metres differ by a factor (a shift of ln), inverse depth by scale and shift (quartiles and median).
    """
    total, weight = np.zeros(shape), np.zeros(shape)
    metric = isinstance(maps[0], MetricDepth)
    for depth, part in zip(maps, parts, strict=True):
        valid = depth.valid & (depth.metres > 0) if isinstance(depth, MetricDepth) else depth.valid
        raw = depth.metres if isinstance(depth, MetricDepth) else depth.inverse
        values = np.log(np.where(valid, raw, 1.0)) if metric else np.where(valid, raw, 0.0).astype(np.float64)
        shared = valid & (weight[part] > 0)
        if weight.any():
            if shared.sum() < _MIN_OVERLAP:
                continue  # its scale is unknown: these pixels stay without depth
            values = _matched(values, values[shared], total[part][shared] / weight[part][shared], scaled=not metric)
        blend = np.where(valid, np.outer(_ramp(valid.shape[0]), _ramp(valid.shape[1])), 0.0)
        total[part] += blend * values
        weight[part] += blend
    known = weight > 0
    mean = np.divide(total, weight, out=np.zeros(shape), where=known)
    if metric:
        metres = np.where(known, np.exp(mean) * zoom, 0.0).astype(np.float32)
        return MetricDepth(metres=metres, valid=known, backend=maps[0].backend)
    return RelativeDepth(inverse=mean.astype(np.float32), valid=known, backend=maps[0].backend)


def _matched(values: _Floats, here: _Floats, there: _Floats, *, scaled: bool) -> _Floats:
    """`values` shifted, and scaled if so, to take `here` to `there`."""
    if not scaled:
        return np.asarray(values + np.median(there - here))
    spans = [float(np.subtract(*np.percentile(side, (75, 25)))) for side in (there, here)]
    factor = spans[0] / spans[1] if min(spans) > 0 else 1.0
    return np.asarray((values - np.median(here)) * factor + np.median(there))


def _ramp(n: int) -> _Floats:
    """Weight along one side: most in the middle, where a model has most around it to go by."""
    steps = np.arange(n)
    return np.minimum(steps + 1, n - steps) / n


def _from_canvas(region: Region, part: _Part, height: int, width: int) -> Region | None:
    rows, columns = part
    x1, y1, x2, y2 = region.box
    left, top = columns.start, rows.start
    box = (max(0.0, x1 - left), max(0.0, y1 - top), min(float(width), x2 - left), min(float(height), y2 - top))
    if box[2] - box[0] < 1 or box[3] - box[1] < 1:
        return None
    mask = None if region.mask is None else np.ascontiguousarray(region.mask[part])
    return replace(region, box=box, mask=mask)


def _members(
    first: tuple[BackendT, PluginOptions],
    chosen: ConsensusOptions,
    others: tuple[Sequence[float], Sequence[PluginChoice]],
    folder: Folder[BackendT],
    where: str,
) -> tuple[Member[BackendT], ...]:
    backend, options = first
    members = [Member(name="plain", backend=backend, options=options)]
    if backend.exact:
        return tuple(members)
    zooms, further = others
    if chosen.flip:
        members.append(Member(name="flip", backend=backend, options=options, mirrored=True))
    for zoom in sorted(set(zooms) - {1.0}):
        members.append(Member(name=f"zoom-{zoom:g}", backend=backend, options=options, zoom=zoom))
    for number, choice in enumerate(further, 1):
        other, settings = resolve(choice, folder, f"{where}.{number - 1}")
        if other.exact:
            raise ConfigError(
                f"{other.name} is truth, which needs no second opinion and gives none",
                where=f"{where}.{number - 1}.name",
                fix="name a model here, or use truth as the only backend",
            )
        members.append(Member(name=f"second-{number}", backend=other, options=settings))
    return tuple(members)
