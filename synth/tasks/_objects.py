"""Objects known by their masks: what every member says is at a place, and places that show one object only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from synth.tasks._places import is_sliver, is_stuff, pure_places, square
from synth.tasks._words import share_a_word, spoken
from synth.types import Region, Regions, Scene


@dataclass(frozen=True)
class Place:
    """A place for a mark with what lies there."""

    x: float
    y: float
    label: str
    """Spoken name."""
    colour: str
    """"" where no backend vouches for it."""
    stuff: bool


def masked(scene: Scene) -> Regions | None:
    """The first member whose objects all carry masks (a crowd may have a box only); None where there is none."""
    for member in scene.regions:
        objects = [region for region in member.items if not region.crowd]
        if objects and all(region.mask is not None for region in objects):
            return member
    return None


def visible(member: Regions, min_area: float, pixels: int) -> list[Region]:
    """Regions of which enough is to be seen: at least that share of the image, no sliver, no crowd."""
    return [
        region
        for region in member.items
        if region.mask is not None
        and not region.crowd
        and not is_sliver(region)
        and np.count_nonzero(region.mask) >= min_area * pixels
    ]


def place_on(
    region: Region, members: Sequence[Regions], rng: np.random.Generator, border_px: float, radius: int
) -> Place | None:
    """A random place that shows nothing but this region, by all members; None where there is none."""
    if region.mask is None:
        return None
    name, colour = spoken(region.label), region.attributes.get("colour", "")
    others = [r for m in members for r in m.items if r is not region and (r.mask is not None or r.crowd)]
    rivals = [r for r in others if spoken(r.label) != name or r.attributes.get("colour", "") != colour]
    for x, y in pure_places(region.mask, region.box, rng, radius, border_px):
        if not any(_touches(rival, x, y, radius) for rival in rivals):
            return Place(x, y, name, colour, is_stuff(region))
    return None


def _touches(region: Region, x: float, y: float, radius: int) -> bool:
    """True where the region's mask (a crowd's box) comes within `radius` of the point."""
    if region.mask is not None:
        return bool(square(region.mask, x, y, radius).any())
    x1, y1, x2, y2 = region.box
    return x1 - radius <= x <= x2 + radius and y1 - radius <= y <= y2 + radius


def distractors(vocabulary: Sequence[str], right: str, n: int, rng: np.random.Generator, first: str = "") -> list[str]:
    """n other names that cannot be taken for the right one or for each other; `first` comes in if it is fit."""
    pool = sorted({spoken(label) for label in vocabulary})
    order = [first] if first else []
    order += [pool[k] for k in rng.permutation(len(pool))]
    chosen: list[str] = []
    for name in order:
        if len(chosen) < n and not any(share_a_word(name, other) for other in (right, *chosen)):
            chosen.append(name)
    return chosen
