"""Rendered rooms with exact depth, instances and cameras: the source that needs no download and no model.

Rooms are composed from a seed and rendered once into a folder (see `synth.rooms`); the truth of a view lists every
instance that has a pixel. Floor, wall, ceiling and window carry the attribute stuff = "yes": they can be pointed at but
not counted. An instance that shows less than 0.1 % of the picture carries sliver = "yes": nobody could say for certain
whether it is there, so its label must not be counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pydantic import Field

from synth.config import digest
from synth.contracts import Source
from synth.errors import SourceError
from synth.images import encode_png, image_id
from synth.rooms import store
from synth.rooms.compose import STRUCTURE
from synth.rooms.objects import KINDS
from synth.rooms.render import RENDERER_VERSION, RoomFrame
from synth.types import (
    Box,
    Camera,
    Mask,
    MetricDepth,
    PluginOptions,
    Progress,
    Region,
    Regions,
    SourceItem,
    Truth,
    View,
    narrow,
)

VIEWS = 2
"""Cameras in a room."""
SLIVER_SHARE = 0.001
"""Of the picture's pixels."""


class Options(PluginOptions):
    """Which rooms, how large, and where their renderings are kept."""

    first_seed: int = Field(default=100_000, ge=0)
    n_rooms: int = Field(default=100, ge=0)
    seeds: tuple[int, ...] = ()
    """Further rooms, beside the `n_rooms` from `first_seed` on."""
    size: int = Field(default=128, ge=64, le=1024)
    """Pixels a side."""
    views: int = Field(default=VIEWS, ge=1, le=VIEWS)
    """Cameras a room."""
    cache: Path = Path("outputs/cache/rooms")


def list_items(options: PluginOptions) -> Sequence[SourceItem]:
    """One item a view, by seed and camera. Raises SourceError where the options ask for no room."""
    chosen = narrow(options, Options)
    seeds = sorted({*range(chosen.first_seed, chosen.first_seed + chosen.n_rooms), *chosen.seeds})
    if not seeds:
        raise SourceError("n_rooms is 0 and seeds is empty", where="source", fix="set source.n_rooms to 1 or more")
    if seeds[0] < 0:
        raise SourceError(f"a room's seed is not negative, found {seeds[0]}", where="source.seeds")
    return [
        SourceItem(
            key=f"room-{seed:07d}-{view}",
            fingerprint=digest("room", seed, view, chosen.size, RENDERER_VERSION),
            group=f"room-{seed:07d}",
        )
        for seed in seeds
        for view in range(chosen.views)
    ]


def prepare(items: Sequence[SourceItem], options: PluginOptions, workers: int, progress: Progress | None) -> None:
    """Render the rooms of these items that are not in the cache yet."""
    chosen = narrow(options, Options)
    seeds = sorted({_place(item)[0] for item in items})
    store.ensure(seeds, chosen.size, chosen.cache, workers, progress)


def load(item: SourceItem, options: PluginOptions) -> View:
    """One rendered view as PNG bytes with its truth. Raises SourceError where `prepare` has not rendered it."""
    chosen = narrow(options, Options)
    seed, view = _place(item)
    frame = store.load(seed, view, chosen.size, chosen.cache)
    data = encode_png(frame.rgb)
    return View(
        image_id=image_id(data),
        data=data,
        width=frame.rgb.shape[1],
        height=frame.rgb.shape[0],
        name=item.key,
        source="rooms",
        group=item.group,
        licence="Apache-2.0",
        domain="rendered",
        truth=_truth(frame),
    )


def _place(item: SourceItem) -> tuple[int, int]:
    _, seed, view = item.key.split("-")
    return int(seed), int(view)


def _truth(frame: RoomFrame) -> Truth:
    hit: Mask = np.isfinite(frame.depth)
    depth = MetricDepth(metres=np.where(hit, frame.depth, np.float32(0)), valid=hit, backend="truth")
    regions = Regions(
        items=tuple(_regions(frame)),
        complete=True,
        backend="truth",
        vocabulary=tuple(sorted({*STRUCTURE, *KINDS})),
    )
    return Truth(depth=depth, regions=regions, camera=Camera(K=frame.K, R=frame.R, t=frame.t))


def _regions(frame: RoomFrame) -> list[Region]:
    found = []
    for index, (name, colour) in enumerate(zip(frame.names, frame.colours, strict=True)):
        mask: Mask = frame.ids == index
        if not mask.any():
            continue
        attributes = {"colour": colour} if colour else {}
        if name in STRUCTURE:
            attributes["stuff"] = "yes"
        if mask.mean() < SLIVER_SHARE:
            attributes["sliver"] = "yes"
        found.append(Region(label=name, box=_box_of(mask), mask=mask, attributes=attributes))
    return found


def _box_of(mask: Mask) -> Box:
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)


SOURCE = Source(
    name="rooms", version=1, options=Options, list=list_items, load=load, prepare=prepare, domain="rendered"
)
