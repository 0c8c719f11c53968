"""Objects known by their masks: what every member says is at a place, and places that show one object only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from synth.tasks._places import is_sliver, is_stuff, pure_places, square
from synth.tasks._words import is_plural, names_stuff, share_a_word, spoken
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


@dataclass(frozen=True)
class Limits:
    """How plainly a thing must be visible. Lengths are shares of the short side."""

    min_area: float
    """Share of the image."""
    border: float
    min_distance: float
    pure: float


@dataclass(frozen=True, kw_only=True)
class Visible:
    """What of a scene may be asked about."""

    scene: Scene
    member: Regions
    """The regions member with masks."""
    objects: tuple[Region, ...]
    stuff: tuple[Region, ...]
    limits: Limits


def masked(scene: Scene) -> Regions | None:
    """The first member whose objects all carry masks (a crowd may have a box only); None where there is none."""
    for member in scene.regions:
        objects = [region for region in member.items if not region.crowd]
        if objects and all(region.mask is not None for region in objects):
            return member
    return None


def visible(scene: Scene, member: Regions, limits: Limits) -> Visible:
    """What may be asked about: enough of it is to be seen, no sliver, no crowd."""
    least = limits.min_area * scene.rgb.shape[0] * scene.rgb.shape[1]
    found = [
        region
        for region in member.items
        if region.mask is not None
        and not region.crowd
        and not is_sliver(region)
        and np.count_nonzero(region.mask) >= least
    ]
    objects, stuff = (tuple(r for r in found if is_stuff(r) == flag) for flag in (False, True))
    return Visible(scene=scene, member=member, objects=objects, stuff=stuff, limits=limits)


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


def distractors(seen: Visible, right: str, beside: str, stuff_share: float, rng: np.random.Generator) -> list[str]:
    """Up to three other names that cannot be taken for the right one or for each other.

    Drawn as right answers are drawn: stuff in the same share, objects mostly from this picture. Else "floor", often
    right and seldom among many wrong names, could be guessed without looking. `beside` lies at the other mark; it comes
    in half the time.
    """
    stuff = {spoken(r.label) for r in seen.member.items if is_stuff(r)}
    stuff |= {spoken(name) for name in seen.member.vocabulary if names_stuff(name)}
    here = {spoken(r.label) for r in seen.objects} - stuff
    known = {spoken(name) for name in seen.member.vocabulary} - stuff
    chosen: list[str] = [beside] if rng.random() < 0.5 and not share_a_word(beside, right) else []
    for _ in range(40):
        pool = stuff if rng.random() < stuff_share else here if rng.random() < 0.7 else known
        if len(chosen) == 3 or not (stuff | here | known):
            break
        names = sorted(pool or stuff | here | known)
        name = names[int(rng.integers(len(names)))]
        if not any(share_a_word(name, other) for other in (right, *chosen)):
            chosen.append(name)
    return chosen


def two_places(
    seen: Visible, rng: np.random.Generator, stuff_share: float, *, coloured: bool = False, differ: bool = False
) -> dict[str, Place] | None:
    """Two pure places far enough apart, A and B in random order; one of known colour, or of two names, if so wanted."""
    side = min(seen.scene.rgb.shape[:2])
    radius = max(1, round(seen.limits.pure * side))
    if coloured and not any(region.attributes.get("colour") for region in seen.objects):
        return None
    for _ in range(6):
        places = []
        for _ in range(2):
            use_stuff = seen.stuff and not coloured and rng.random() < stuff_share
            pool = seen.stuff if use_stuff or not seen.objects else seen.objects
            if not pool:
                return None
            region = pool[int(rng.integers(len(pool)))]
            place = place_on(region, seen.scene.regions, rng, seen.limits.border * side, radius)
            if place is not None:
                places.append(place)
        if len(places) < 2 or (differ and places[0].label == places[1].label):
            continue
        if coloured and not any(place.colour for place in places):
            continue
        if np.hypot(places[0].x - places[1].x, places[0].y - places[1].y) >= seen.limits.min_distance * side:
            return {"A": places[0], "B": places[1]}
    return None


def present(seen: Visible) -> list[list[str]]:
    """[name, colour] of everything that is listed, however small."""
    return [[spoken(r.label), r.attributes.get("colour", "")] for r in seen.member.items]


def near_misses(seen: Visible, near: tuple[str, str], colours: Sequence[str]) -> list[tuple[str, str]]:
    """What is certainly absent, but close to a (name, colour) that is there: one of the two is another."""
    label, colour = near
    names = {spoken(name) for name in seen.member.vocabulary if not names_stuff(name)}
    misses = [(name, colour) for name in sorted(names) if not is_plural(name)]
    if colour:
        misses += [(label, other) for other in colours]
    everything = [(spoken(r.label), r.attributes.get("colour", "")) for r in seen.member.items]
    # An object whose own colour is unknown may have any.
    return [
        miss
        for miss in misses
        if not any(share_a_word(miss[0], name) and (not miss[1] or own in ("", miss[1])) for name, own in everything)
    ]
