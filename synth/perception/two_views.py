"""Real second views: which photos of a source group go together, and where the second shows the places of the first.

A match that is not found again with the two photos exchanged, in their mirror images, or by another matcher, is not
worth asking about. The members are kept side by side, all in the pixels of the plain pass; what they agree on is for a
task to say. Truth stands alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from pydantic import Field

from synth.config import Config, PluginChoice, resolve
from synth.contracts import MatchBackend, MatchRunner
from synth.errors import ConfigError, ImageError
from synth.images import decode
from synth.perception.cache import Cache, key_of
from synth.perception.consensus import mirror_frame
from synth.plugins import MATCHES, load_all
from synth.types import Drop, Frame, Matches, Matrix, PluginOptions, SecondView, SourceItem, View


class TwoViewOptions(Config):
    """Which photos are shown together, and who matches them."""

    matches: PluginChoice = PluginChoice(name="sift")
    further: tuple[PluginChoice, ...] = ()
    """Further matchers, each with its options: a place must be found by all."""
    flip: bool = True
    """The same matcher on both photos mirrored."""
    per_photo: int = Field(default=1, ge=1, le=16)
    """Second views of one photo."""
    nearest: int = Field(default=1, ge=1)
    """How many places later in its group a second view stands at least: more for the frames of a video."""
    farthest: int = Field(default=3, ge=1)
    """And at most."""


def partners(items: Sequence[SourceItem], options: TwoViewOptions) -> dict[str, tuple[SourceItem, ...]]:
    """Key of each photo that has any -> its second views, from the order of the source alone.

    Raises ConfigError where no second view could be near enough.
    """
    if options.farthest < options.nearest:
        raise ConfigError(
            f"nearest is {options.nearest} and farthest is {options.farthest}",
            where="perception.two_views",
            fix="set farthest to nearest or more",
        )
    groups: dict[str, list[SourceItem]] = {}
    for item in items:
        groups.setdefault(item.group, []).append(item)
    found: dict[str, tuple[SourceItem, ...]] = {}
    for members in groups.values():
        for place, item in enumerate(members):
            later = members[place + options.nearest : place + options.farthest + 1]
            if later:
                found[item.key] = tuple(later[: options.per_photo])
    return found


def load_partners(
    items: Sequence[SourceItem], load: Callable[[SourceItem], View], rejected: Mapping[str, str]
) -> tuple[list[Frame], list[Drop]]:
    """Second views decoded, and those that cannot be used: damaged, or `rejected` by the guard (key -> reason)."""
    frames: list[Frame] = []
    drops: list[Drop] = []
    for item in items:
        if item.key in rejected:
            reason = f"second_view_{rejected[item.key]}"
            drops.append(Drop(stage="guard", task="", image=item.key, reason=reason, example=item.key))
            continue
        try:
            view = load(item)
            frames.append(Frame(view=view, rgb=decode(view.data)))
        except ImageError as error:
            reason = f"second_view_{error.reason}"
            drops.append(Drop(stage="source", task="", image=item.key, reason=reason, example=error.message))
    return frames, drops


def matchers_of(options: TwoViewOptions) -> tuple[tuple[MatchBackend, PluginOptions], ...]:
    """The matcher and the further ones, with their options. Raises ConfigError for one that cannot serve."""
    where = "perception.two_views"
    found = [_matcher(options.matches, f"{where}.matches")]
    for number, choice in enumerate(options.further):
        found.append(_matcher(choice, f"{where}.further.{number}"))
        if found[0][0].exact or found[-1][0].exact:
            raise ConfigError(
                "truth needs no second opinion and gives none",
                where=f"{where}.further.{number}.name",
                fix="use truth as the only matcher, or not at all",
            )
    return tuple(found)


def _matcher(choice: PluginChoice, where: str) -> tuple[MatchBackend, PluginOptions]:
    backend, options = resolve(choice, MATCHES, where)
    if backend.load is None:
        able = [other.name for other in load_all(MATCHES) if other.load is not None]
        raise ConfigError(
            f"{backend.name} makes a second picture and cannot match two photos",
            where=f"{where}.name",
            fix=f"one of {', '.join(able)} here; {backend.name} belongs to perception.matches",
        )
    return backend, options


class Matcher:
    """Runs the members of the consensus over two photos; a model is loaded at the first pair that no cache knows."""

    def __init__(self, options: TwoViewOptions, cache: Cache | None = None) -> None:
        """Loads nothing. Raises ConfigError for a backend that cannot match, or truth as a second opinion."""
        self._options = options
        self._backends = matchers_of(options)
        self._cache = cache
        self._names: dict[int, str] = {}
        self._runners: dict[int, MatchRunner] = {}
        self.pairs = 0
        self.passes = 0
        """Pairs of pictures that went through a matcher."""
        self.cache_hits = 0
        """Pairs of pictures that the cache knew."""
        self.absent = 0
        """Pairs about which a truth backend says nothing."""
        self.seconds = 0.0
        """In the matchers, loading left out."""
        self.load_seconds = 0.0

    def identities(self) -> dict[str, str]:
        """Member -> the backend's identity. Raises BackendError as loading does."""
        names_of = ["plain", *(f"second-{number}" for number in range(1, len(self._backends)))]
        return {name: self._identity(number) for number, name in enumerate(names_of)}

    def second_view(self, here: Frame, there: Frame) -> SecondView:
        """The other photo with all members' matches; without any where a truth backend says nothing about the pair."""
        plain = self._run(0, here, there, "plain")
        self.pairs += 1
        if plain is None:
            self.absent += 1
            return SecondView(view=there.view, rgb=there.rgb)
        members = [plain]
        if not self._backends[0][0].exact:
            members.append(_swapped(self._certain(0, there, here, "swap")))
            if self._options.flip:
                found = self._certain(0, mirror_frame(here), mirror_frame(there), "flip")
                members.append(_mirrored(found, here.rgb.shape[1], there.rgb.shape[1]))
            further = range(1, len(self._backends))
            members += [self._certain(number, here, there, f"second-{number}") for number in further]
        return SecondView(view=there.view, rgb=there.rgb, matches=tuple(members))

    def _certain(self, number: int, here: Frame, there: Frame, member: str) -> Matches:
        found = self._run(number, here, there, member)
        if found is None:
            raise TypeError(f"match backend {self._backends[number][0].name} gave None, which only truth may")
        return found

    def _run(self, number: int, here: Frame, there: Frame, member: str) -> Matches | None:
        cache = None if self._backends[number][0].exact else self._cache
        if cache is None:
            found = self._matched(number, here, there)
        else:
            key = self._key(number, here, there, mirrored=member == "flip")
            found = cache.get_matches(key)
            if found is not None:
                self.cache_hits += 1
            elif (found := self._matched(number, here, there)) is not None:
                cache.put_matches(key, found)
        return None if found is None else replace(found, member=member)

    def _matched(self, number: int, here: Frame, there: Frame) -> Matches | None:
        run = self._runner(number)
        start = time.perf_counter()
        found = run(here, there)
        self.seconds += time.perf_counter() - start
        self.passes += 1
        return found

    def _key(self, number: int, here: Frame, there: Frame, *, mirrored: bool) -> str:
        """A pass with the photos exchanged is the plain pass of the other pair, and shares its entry."""
        backend, _ = self._backends[number]
        pictures = f"{here.view.image_id}+{there.view.image_id}"
        member = "flip" if mirrored else "plain"
        return key_of(pictures, backend.name, backend.version, self._identity(number), member)

    def _identity(self, number: int) -> str:
        if number not in self._names:
            backend, options = self._backends[number]
            self._names[number] = backend.identity(options) if backend.identity else backend.name
        return self._names[number]

    def _runner(self, number: int) -> MatchRunner:
        if number not in self._runners:
            backend, options = self._backends[number]
            if backend.load is None:
                raise TypeError(f"match backend {backend.name} has no matcher")
            start = time.perf_counter()
            self._runners[number] = backend.load(options)
            self.load_seconds += time.perf_counter() - start
        return self._runners[number]


def _swapped(found: Matches) -> Matches:
    """Matches of the second photo with the first, read the other way."""
    H, F = found.homography, found.fundamental
    return replace(
        found,
        here=found.there,
        there=found.here,
        homography=None if H is None else np.asarray(np.linalg.inv(H), dtype=np.float64),
        fundamental=None if F is None else F.T,
    )


def _mirrored(found: Matches, width_here: int, width_there: int) -> Matches:
    """Matches of the mirrored photos of these widths, in the photos' own pixels."""
    here, there = _mirror(width_here), _mirror(width_there)
    H, F = found.homography, found.fundamental
    return replace(
        found,
        here=found.here * [-1, 1] + [width_here, 0],
        there=found.there * [-1, 1] + [width_there, 0],
        homography=None if H is None else there @ H @ here,
        fundamental=None if F is None else there.T @ F @ here,
    )


def _mirror(width: int) -> Matrix:
    return np.array([[-1.0, 0.0, width], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
