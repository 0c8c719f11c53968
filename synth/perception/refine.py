"""What is done to the regions of the plain pass before a task sees them: the labels are checked, boxes get masks.

Only the plain pass is refined. The other members are there to contradict it: a region that only the plain pass loses
makes them disagree, and then nothing is asked; masks of a second pass would cost as much again and no task reads them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from synth.contracts import MaskBackend
from synth.errors import BackendError
from synth.geometry import box_iou
from synth.perception import clip
from synth.perception.cache import Cache, key_of
from synth.perception.masks._fit import FIT, box_of
from synth.types import Frame, Loss, Mask, PluginOptions, Region, Regions

MISFIT = "mask_unlike_box"
"""Reason of a loss: the mask is empty or its bounding box is another one; the region keeps its box."""
UNCHECKED = "labels_unchecked"
"""Reason of a loss: the label check is asked for, and its weights are not here."""
Refiner: TypeAlias = Callable[[Sequence[Frame], Sequence[Regions]], Sequence[Regions]]
"""Regions of each frame to better ones, in order."""
Count: TypeAlias = Callable[[str, str, str, tuple[int, int, int, int], float], None]
"""Told (role, member, identity, (images, passes, cache hits, absent), seconds)."""


@dataclass(frozen=True, kw_only=True)
class Refinement:
    """One step."""

    role: str
    """labels/… or masks/…"""
    version: int
    identity: Callable[[], str]
    load: Callable[[], Refiner]


class Refined:
    """Runs the steps in order, through the cache; a step is loaded at its first photo that the cache does not know."""

    def __init__(self, steps: Sequence[Refinement], cache: Cache | None, count: Count) -> None:
        self._steps = tuple(steps)
        self._cache = cache
        self._count = count
        self._refiners: dict[str, Refiner] = {}
        self.load_seconds = 0.0

    def identity(self, detector: str) -> str:
        """What the regions depend on: the detector's identity and every step's. Raises BackendError as loading does."""
        return " + ".join([detector, *(step.identity() for step in self._steps)])

    def __call__(self, frames: Sequence[Frame], regions: Sequence[Regions], detector: str) -> list[Regions]:
        """The regions of each frame after every step; `detector` is the identity of what found them."""
        found, name = list(regions), detector
        for step in self._steps:
            name = f"{name} + {step.identity()}"
            found = self._step(step, name, frames, found)
        return found

    def _step(self, step: Refinement, name: str, frames: Sequence[Frame], regions: Sequence[Regions]) -> list[Regions]:
        keys = [key_of(frame.view.image_id, step.role, step.version, name, "plain") for frame in frames]
        known = [self._cache.get(key) if self._cache else None for key in keys]
        found = [entry if isinstance(entry, Regions) else old for entry, old in zip(known, regions, strict=True)]
        todo = [i for i, entry in enumerate(known) if not isinstance(entry, Regions)]
        seconds = 0.0
        if todo:
            run = self._loaded(step)
            start = time.perf_counter()
            made = run([frames[i] for i in todo], [found[i] for i in todo])
            seconds = time.perf_counter() - start
            for i, better in zip(todo, made, strict=True):
                found[i] = better
                if self._cache:
                    self._cache.put(keys[i], better)
        self._count(step.role, "plain", name, (len(frames), len(todo), len(frames) - len(todo), 0), seconds)
        return found

    def _loaded(self, step: Refinement) -> Refiner:
        if step.role not in self._refiners:
            start = time.perf_counter()
            self._refiners[step.role] = step.load()
            self.load_seconds += time.perf_counter() - start
        return self._refiners[step.role]


def mask_step(backend: MaskBackend, options: PluginOptions) -> Refinement:
    """Masks for boxes; those that do not fit are dropped and counted. Raises BackendError when it is used."""

    def load() -> Refiner:
        run, name = backend.load(options), backend.identity(options)

        def refine(frames: Sequence[Frame], regions: Sequence[Regions]) -> list[Regions]:
            masks = run(frames, regions)
            for frame, some in zip(frames, masks, strict=True):
                if any(mask is not None and mask.shape != frame.rgb.shape[:2] for mask in some):
                    raise ValueError(f"mask backend {backend.name}: not the photo's size {frame.rgb.shape[:2]}")
            return [fitted(found, some, name) for found, some in zip(regions, masks, strict=True)]

        return refine

    return Refinement(
        role=f"masks/{backend.name}",
        version=backend.version,
        identity=lambda: backend.identity(options),
        load=load,
    )


def label_step(options: clip.LabelCheckOptions) -> Refinement:
    """The label check; without its weights every photo passes unchecked, and each says so."""

    def identity() -> str:
        try:
            return clip.identity(options)
        except BackendError:
            return UNCHECKED

    def load() -> Refiner:
        try:
            clip.identity(options)
        except BackendError as error:
            return _unchecked(f"{error.message}: {error.fix}")
        return clip.load(options)

    return Refinement(role="labels/clip", version=1, identity=identity, load=load)


def fitted(regions: Regions, masks: Sequence[Mask | None], backend: str) -> Regions:
    """The regions with those masks that fit their boxes; a region that brings its own mask keeps it."""
    items: list[Region] = []
    bad: list[str] = []
    for region, mask in zip(regions.items, masks, strict=True):
        if mask is None or region.mask is not None:
            items.append(region)
            continue
        box = box_of(mask)
        overlap = 0.0 if box is None else box_iou(box, region.box)
        if overlap < FIT:
            bad.append(f"{region.label}: its box and the mask's overlap {overlap:.2f}, wanted {FIT}")
        items.append(region if overlap < FIT else replace(region, mask=mask))
    losses = (Loss(reason=MISFIT, count=len(bad), example=bad[0]),) if bad else ()
    return replace(
        regions, items=tuple(items), backend=f"{regions.backend} + {backend}", losses=(*regions.losses, *losses)
    )


def _unchecked(why: str) -> Refiner:
    loss = Loss(reason=UNCHECKED, count=1, example=why)

    def refine(frames: Sequence[Frame], regions: Sequence[Regions]) -> list[Regions]:
        return [replace(found, losses=(*found.losses, loss)) for found in regions]

    return refine
