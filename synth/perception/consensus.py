"""Which passes make up a consensus, and how the result of a mirrored pass comes back.

A depth order or a detection that does not survive a mirror, or another model, is not worth asking about. The first
member is the plain pass; then comes the mirrored one, then one plain pass of each further backend (another model, or
the same one at another input size). Truth stands alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from synth.config import Config, PluginChoice, resolve
from synth.errors import ConfigError
from synth.geometry import mirror_box
from synth.plugins import DEPTH, REGIONS, Folder
from synth.types import (
    DepthBackend,
    DepthMap,
    Frame,
    MetricDepth,
    PluginOptions,
    Region,
    RegionBackend,
    Regions,
)

BackendT = TypeVar("BackendT", DepthBackend, RegionBackend)


class ConsensusOptions(Config):
    """Members beside the plain pass."""

    flip: bool = True
    """The same model on the mirrored picture."""
    depth: tuple[PluginChoice, ...] = ()
    """Further depth backends, each with its options."""
    regions: tuple[PluginChoice, ...] = ()
    """Further detectors, each with its options."""


@dataclass(frozen=True, kw_only=True)
class Member(Generic[BackendT]):
    """One pass of the consensus."""

    name: str
    """plain, flip, second-1, second-2 …"""
    backend: BackendT
    options: PluginOptions
    mirrored: bool = False


def depth_members(
    first: tuple[DepthBackend, PluginOptions], options: ConsensusOptions
) -> tuple[Member[DepthBackend], ...]:
    """All depth passes, the plain one first. Raises ConfigError for an unknown or exact further backend."""
    return _members(first, options.flip, options.depth, DEPTH, "perception.consensus.depth")


def region_members(
    first: tuple[RegionBackend, PluginOptions], options: ConsensusOptions
) -> tuple[Member[RegionBackend], ...]:
    """All detection passes, the plain one first. Raises ConfigError for an unknown or exact further backend."""
    return _members(first, options.flip, options.regions, REGIONS, "perception.consensus.regions")


def mirror_frame(frame: Frame) -> Frame:
    """The frame with its picture mirrored left to right; its view is the same."""
    return replace(frame, rgb=np.ascontiguousarray(frame.rgb[:, ::-1]))


def mirror_depth(depth: DepthMap) -> DepthMap:
    """A depth map of a mirrored picture, back in the picture's own pixels."""
    valid = np.ascontiguousarray(depth.valid[:, ::-1])
    if isinstance(depth, MetricDepth):
        return replace(depth, metres=np.ascontiguousarray(depth.metres[:, ::-1]), valid=valid)
    return replace(depth, inverse=np.ascontiguousarray(depth.inverse[:, ::-1]), valid=valid)


def mirror_regions(regions: Regions, width: int) -> Regions:
    """Regions of a mirrored picture of that width, back in the picture's own pixels."""
    return replace(regions, items=tuple(_mirror_region(region, width) for region in regions.items))


def _mirror_region(region: Region, width: int) -> Region:
    mask = None if region.mask is None else np.ascontiguousarray(region.mask[:, ::-1])
    return replace(region, box=mirror_box(region.box, width), mask=mask)


def _members(
    first: tuple[BackendT, PluginOptions],
    flip: bool,
    further: Sequence[PluginChoice],
    folder: Folder[BackendT],
    where: str,
) -> tuple[Member[BackendT], ...]:
    backend, options = first
    members = [Member(name="plain", backend=backend, options=options)]
    if backend.exact:
        return tuple(members)
    if flip:
        members.append(Member(name="flip", backend=backend, options=options, mirrored=True))
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
