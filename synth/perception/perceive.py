"""Pixels to scenes: runs the members of each consensus over a batch of photos, through the cache, and counts.

Models are loaded at their first use, once, and stay loaded. A scene is returned with whatever was found: a photo that
brings boxes but no depth still serves tasks that need boxes. `missing_needs` says what a scene lacks for a task.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeAlias, TypeVar

from synth.contracts import DepthBackend, DepthRunner, MatchBackend, Need, RegionBackend, RegionRunner
from synth.errors import BackendError, ConfigError
from synth.geometry import generator
from synth.perception import consensus
from synth.perception.cache import Cache, CacheStats, key_of
from synth.perception.consensus import ConsensusOptions, Member
from synth.perception.refine import Refined, Refinement
from synth.perception.two_views import Matcher, TwoViewOptions
from synth.plugins import DEPTH, MATCHES, REGIONS, load_all, names
from synth.types import (
    DepthMap,
    Drop,
    Frame,
    MetricDepth,
    PluginOptions,
    Regions,
    RelativeDepth,
    Scene,
    SecondView,
    View,
    WarpedPair,
)

NO_TRUTH = "no_truth"
"""Reason of a drop: the backends read truth, and the image brings none of what is needed."""
NO_SECOND_VIEW = "no_second_view"
"""Reason of a drop: only a second picture is lacking; the photo is alone in its group, or nothing relates the two."""


@dataclass(frozen=True, kw_only=True)
class MemberStats:
    """What one member of a consensus has cost so far."""

    role: str
    """depth or regions; labels/… and masks/… for what refines the regions."""
    member: str
    identity: str
    images: int
    passes: int
    """Pictures that went through the model: an enlarged image is four."""
    cache_hits: int
    absent: int
    """Images that a truth backend knows nothing about."""
    seconds: float
    """In the model, loading left out."""


@dataclass(frozen=True, kw_only=True)
class PerceptionStats:
    """What perception has cost so far."""

    members: tuple[MemberStats, ...]
    pairs: int
    pair_seconds: float
    second_views: int
    """Pairs of photos that were matched."""
    second_views_absent: int
    """Those about which a truth backend says nothing."""
    match_passes: int
    """Pairs of pictures that went through a matcher."""
    match_cache_hits: int
    match_seconds: float
    load_seconds: float
    cache: CacheStats | None


ResultT = TypeVar("ResultT", DepthMap, Regions)
BackendT = TypeVar("BackendT", DepthBackend, RegionBackend)
RunnerT = TypeVar("RunnerT")
_Runner: TypeAlias = Callable[[Sequence[Frame]], Sequence[ResultT | None]]


@dataclass(frozen=True, kw_only=True)
class _Role(Generic[BackendT, ResultT]):
    """How depth differs from regions, so that one loop serves both."""

    name: str
    narrow: Callable[[DepthMap | Regions | None], ResultT | None]
    restore: Callable[[Member[BackendT], Frame, Sequence[ResultT]], ResultT]
    """What the model gave for `consensus.inputs_of`, in the frame's own pixels."""
    check: Callable[[ResultT, Frame, str], None]


class Perceiver:
    """Turns frames into scenes with the chosen backends; None where no backend is chosen."""

    def __init__(
        self,
        depth: tuple[DepthBackend, PluginOptions] | None,
        regions: tuple[RegionBackend, PluginOptions] | None,
        matches: tuple[MatchBackend, PluginOptions] | None,
        consensus_options: ConsensusOptions,
        cache: Cache | None,
        two_views: TwoViewOptions | None = None,
        refinements: Sequence[Refinement] = (),
    ) -> None:
        """Loads nothing. `refinements` work on the plain pass of a detector, in order; truth needs none.

        Raises ConfigError for a backend that cannot do what it is chosen for.
        """
        self._depth = consensus.depth_members(depth, consensus_options) if depth else ()
        self._regions = consensus.region_members(regions, consensus_options) if regions else ()
        if matches and matches[0].pair is None:
            raise ConfigError(
                f"{matches[0].name} matches two photos and makes no second picture",
                where="perception.matches.name",
                fix=f"choose homography here, or --set perception.two_views.matches.name={matches[0].name}",
            )
        self._matches = matches
        self._matcher = Matcher(two_views, cache) if two_views else None
        self._cache = cache
        self._depth_runners: dict[str, DepthRunner] = {}
        self._region_runners: dict[str, RegionRunner] = {}
        steps = () if regions is None or regions[0].exact else refinements
        self._refined = Refined(steps, cache, self._count)
        self._identities: dict[tuple[str, str], str] = {}
        self._stats: dict[tuple[str, str], MemberStats] = {}
        self._pairs, self._pair_seconds, self._load_seconds = 0, 0.0, 0.0

    def stats(self) -> PerceptionStats:
        """A snapshot of all counters."""
        return PerceptionStats(
            members=tuple(self._stats.values()),
            pairs=self._pairs,
            pair_seconds=self._pair_seconds,
            second_views=self._matcher.pairs if self._matcher else 0,
            second_views_absent=self._matcher.absent if self._matcher else 0,
            match_passes=self._matcher.passes if self._matcher else 0,
            match_cache_hits=self._matcher.cache_hits if self._matcher else 0,
            match_seconds=self._matcher.seconds if self._matcher else 0.0,
            load_seconds=self._load_seconds
            + self._refined.load_seconds
            + (self._matcher.load_seconds if self._matcher else 0.0),
            cache=self._cache.stats() if self._cache else None,
        )

    def identities(self) -> dict[str, str]:
        """Role and member -> the backend's identity, for plans and manifests. Raises BackendError as loading does."""
        found = {f"depth/{m.name}": self._identity("depth", m) for m in self._depth}
        found |= {f"regions/{m.name}": self._identity("regions", m) for m in self._regions}
        if self._regions:
            found["regions/plain"] = self._refined.identity(found["regions/plain"])
        if self._matches:
            backend, options = self._matches
            found[f"matches/{backend.name}"] = f"{backend.name}/{backend.version}:{options.model_dump_json()}"
        if self._matcher:
            found |= {f"two_views/{name}": identity for name, identity in self._matcher.identities().items()}
        return found

    def perceive(
        self, frames: Sequence[Frame], needs: frozenset[Need], seed: int, others: Sequence[Sequence[Frame]] = ()
    ) -> list[Scene | Drop]:
        """One scene a frame, in order; a Drop (`no_truth`, `no_second_view`) where a photo lacks all that is needed.

        `others`: other photos of each frame's source group, to be matched with it. Only what is needed is run. Raises
        BackendError for a need that the chosen backends cannot meet.
        """
        self._check(needs)
        depths = self._all_depths(frames) if needs & {Need.DEPTH, Need.METRIC_DEPTH} else [()] * len(frames)
        if Need.METRIC_DEPTH in needs:
            self._check_metres(depths)
        regions = self._all_regions(frames) if Need.REGIONS in needs else [()] * len(frames)
        found: list[Scene | Drop] = []
        for k, (frame, depth, region) in enumerate(zip(frames, depths, regions, strict=True)):
            pair = self._pair(frame, seed) if Need.PAIR in needs else None
            seconds = self._seconds(frame, others[k]) if Need.PAIR in needs and others else ()
            scene = Scene(view=frame.view, rgb=frame.rgb, depths=depth, regions=region, pair=pair, seconds=seconds)
            lacking = missing_needs(scene, needs)
            found.append(lacks(frame.view, "", lacking) if needs and lacking == needs else scene)
        return found

    def _check(self, needs: frozenset[Need]) -> None:
        if needs & {Need.DEPTH, Need.METRIC_DEPTH} and not self._depth:
            raise _unmet("depth", names(DEPTH))
        if Need.REGIONS in needs and not self._regions:
            raise _unmet("regions", names(REGIONS))
        if Need.PAIR in needs and not (self._matches or self._matcher):
            raise _unmet("matches", names(MATCHES))

    def _check_metres(self, depths: Sequence[tuple[DepthMap, ...]]) -> None:
        member = self._depth[0]
        if member.backend.exact or not any(isinstance(maps[0], RelativeDepth) for maps in depths if maps):
            return
        able = "; ".join(backend.metres for backend in load_all(DEPTH) if backend.metres)
        raise BackendError(
            f"a task needs depth in metres, and {member.backend.name} gives relative depth",
            where="perception.depth",
            fix=f"these give metres: {able}; or leave the task out",
        )

    def _all_depths(self, frames: Sequence[Frame]) -> list[tuple[DepthMap, ...]]:
        role = _Role[DepthBackend, DepthMap](
            name="depth",
            narrow=lambda value: None if isinstance(value, Regions) else value,
            restore=consensus.depth_of,
            check=_check_depth,
        )

        def runner(member: Member[DepthBackend]) -> DepthRunner:
            return self._loaded(self._depth_runners, member, member.backend.load)

        columns = [self._member(role, member, runner, frames) for member in self._depth]
        return [_present(row) for row in zip(*columns, strict=True)]

    def _all_regions(self, frames: Sequence[Frame]) -> list[tuple[Regions, ...]]:
        role = _Role[RegionBackend, Regions](
            name="regions",
            narrow=lambda value: value if isinstance(value, Regions) else None,
            restore=consensus.regions_of,
            check=_check_regions,
        )

        def runner(member: Member[RegionBackend]) -> RegionRunner:
            return self._loaded(self._region_runners, member, member.backend.load)

        columns = [self._member(role, member, runner, frames) for member in self._regions]
        plain = _present(columns[0])
        if len(plain) == len(frames):  # else it is truth, which is not refined
            columns[0] = [*self._refined(frames, plain, self._identity("regions", self._regions[0]))]
        return [_present(row) for row in zip(*columns, strict=True)]

    def _member(
        self,
        role: _Role[BackendT, ResultT],
        member: Member[BackendT],
        runner: Callable[[Member[BackendT]], _Runner[ResultT]],
        frames: Sequence[Frame],
    ) -> list[ResultT | None]:
        """One member over all frames, in order, in the frames' own pixels."""
        backend, identity = member.backend, self._identity(role.name, member)
        cache = None if backend.exact else self._cache
        keys = [key_of(f.view.image_id, backend.name, backend.version, identity, member.name) for f in frames]
        results: list[ResultT | None] = [None] * len(frames)
        if cache is not None:
            results = [role.narrow(cache.get(key)) for key in keys]
        todo = [index for index, result in enumerate(results) if result is None]
        inputs = [consensus.inputs_of(member, frames[i]) for i in todo]
        seconds = 0.0
        if todo:
            run = runner(member)
            start = time.perf_counter()
            outputs = iter(run([one for pictures in inputs for one in pictures]))
            seconds = time.perf_counter() - start
            for index, pictures in zip(todo, inputs, strict=True):
                given = [next(outputs) for _ in pictures]
                known = [output for output in given if output is not None]
                if len(known) < len(given) and not backend.exact:
                    raise TypeError(f"{role.name} backend {backend.name} gave None, which only truth may")
                if known:
                    for one, output in zip(pictures, known, strict=True):
                        role.check(output, one, backend.name)
                    result = role.restore(member, frames[index], known)
                    results[index] = result
                    if cache is not None:
                        cache.put(keys[index], result)
        passes = sum(len(pictures) for pictures in inputs)
        counts = (len(frames), passes, len(frames) - len(todo), results.count(None))
        self._count(role.name, member.name, identity, counts, seconds)
        return results

    def _count(self, role: str, member: str, identity: str, counts: tuple[int, int, int, int], seconds: float) -> None:
        images, passes, cache_hits, absent = counts
        empty = MemberStats(
            role=role, member=member, identity=identity, images=0, passes=0, cache_hits=0, absent=0, seconds=0.0
        )
        old = self._stats.get((role, member), empty)
        self._stats[role, member] = replace(
            old,
            images=old.images + images,
            passes=old.passes + passes,
            cache_hits=old.cache_hits + cache_hits,
            absent=old.absent + absent,
            seconds=old.seconds + seconds,
        )

    def _identity(self, role: str, member: Member[BackendT]) -> str:
        key = (role, member.name)
        if key not in self._identities:
            self._identities[key] = member.backend.identity(member.options)
        return self._identities[key]

    def _loaded(
        self,
        runners: dict[str, RunnerT],
        member: Member[BackendT],
        load: Callable[[PluginOptions], RunnerT],
    ) -> RunnerT:
        name = f"{member.backend.name}:{member.options.model_dump_json()}"
        if name not in runners:
            start = time.perf_counter()
            runners[name] = load(member.options)
            self._load_seconds += time.perf_counter() - start
        return runners[name]

    def _pair(self, frame: Frame, seed: int) -> WarpedPair | None:
        if self._matches is None or self._matches[0].pair is None:
            return None
        backend, options = self._matches
        make = self._matches[0].pair
        start = time.perf_counter()
        made = make(frame, options, generator(seed, f"matches/{backend.name}", frame.view.image_id))
        self._pairs += 1
        self._pair_seconds += time.perf_counter() - start
        return made

    def _seconds(self, frame: Frame, others: Sequence[Frame]) -> tuple[SecondView, ...]:
        if self._matcher is None:
            return ()
        return tuple(self._matcher.second_view(frame, other) for other in others)


def lacks(view: View, task: str, lacking: frozenset[Need]) -> Drop:
    """What a photo lacks for a task (or, with task "", for all of them), as a drop."""
    reason = NO_SECOND_VIEW if lacking == {Need.PAIR} else NO_TRUTH
    example = "lacks " + ", ".join(sorted(need.value for need in lacking))
    return Drop(stage="perception", task=task, image=view.name, reason=reason, example=example)


def missing_needs(scene: Scene, needs: frozenset[Need]) -> frozenset[Need]:
    """What a scene lacks of these needs."""
    met = set()
    if scene.depths:
        met.add(Need.DEPTH)
        if isinstance(scene.depths[0], MetricDepth):
            met.add(Need.METRIC_DEPTH)
    if scene.regions:
        met.add(Need.REGIONS)
    if scene.pair is not None or any(second.matches for second in scene.seconds):
        met.add(Need.PAIR)
    return needs - met


def losses_of(scene: Scene) -> list[Drop]:
    """What perception left out of a scene, for the drop ledger."""
    name = scene.view.name
    return [
        Drop(stage="perception", task="", image=name, reason=loss.reason, count=loss.count, example=loss.example)
        for regions in scene.regions
        for loss in regions.losses
    ]


def _unmet(section: str, known: Sequence[str]) -> BackendError:
    return BackendError(
        f"a task needs {section}, and the config chooses no backend for it",
        where=f"perception.{section}",
        fix=f"--set perception.{section}.name=…, one of {', '.join(known)}",
    )


def _present(row: Sequence[ResultT | None]) -> tuple[ResultT, ...]:
    return tuple(result for result in row if result is not None)


def _check_depth(depth: DepthMap, frame: Frame, backend: str) -> None:
    values = depth.metres if isinstance(depth, MetricDepth) else depth.inverse
    if values.shape != frame.rgb.shape[:2] or depth.valid.shape != values.shape:
        raise ValueError(f"depth backend {backend}: map {values.shape}, photo {frame.rgb.shape[:2]}")


def _check_regions(regions: Regions, frame: Frame, backend: str) -> None:
    for region in regions.items:
        if region.mask is not None and region.mask.shape != frame.rgb.shape[:2]:
            raise ValueError(f"region backend {backend}: mask {region.mask.shape}, photo {frame.rgb.shape[:2]}")
