"""What a plug-in is: frozen records of plain functions, one kind a folder.

A plug-in's module holds one capitalised constant of its kind (`TASK`, `BACKEND`, `BENCHMARK` …), whose name is the
file's; `synth.plugins` finds and loads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import numpy as np

from synth.types import (
    QA,
    DepthMap,
    Drop,
    Frame,
    Item,
    Mark,
    Mask,
    Matches,
    PluginOptions,
    Progress,
    Provenance,
    Regions,
    Reply,
    Scene,
    Skill,
    SourceItem,
    Verdict,
    View,
    WarpedPair,
)


class Need(StrEnum):
    """What a task must find in a scene."""

    DEPTH = "depth"
    METRIC_DEPTH = "metric_depth"
    REGIONS = "regions"
    PAIR = "pair"
    """A second picture: a warped one, or another photo of the source group."""


@dataclass(frozen=True, kw_only=True)
class Dial:
    """An option of a task that trades yield for precision, so that it can be calibrated against truth."""

    option: str
    """A candidate passes where its measure is above this option's value."""
    measure: str
    """Key into `Provenance.measures`; candidates without it are not the dial's."""
    loose: float
    """The value with which calibration generates: smaller than any that may come out."""
    stratum: str = ""
    """Candidates of this stratum only; "" for all."""
    closed: float | None = None
    """The value that lets nothing through, where a stratum may be off alone; None: then the whole task is."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Two marks at random places, and what a task would say: the share it answers is its yield."""

    marks: tuple[Mark, Mark]
    answer: str
    """Label of the right mark, or "" where nothing would be asked."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One generator of questions. `generate` and `recompute` are written apart and must agree."""

    name: str
    version: int
    skills: tuple[Skill, ...]
    needs: tuple[Need, ...]
    options: type[PluginOptions]
    generate: Callable[[Scene, PluginOptions, np.random.Generator], Iterator[QA | Drop]]
    """Candidates of one scene. Yields a Drop with a reason rather than guess."""
    recompute: Callable[[Provenance], str]
    """The right letter from the stored numbers alone."""
    strata: tuple[str, ...] = ()
    """Strata that a set must hold together: one of them alone could be answered without looking."""
    dials: tuple[Dial, ...] = ()
    """What `s2p calibrate` may turn; a task without any is audited as it is."""
    trials: Callable[[Scene, PluginOptions, np.random.Generator], Iterator[Trial]] | None = None
    """Random places of one scene, whatever their depth: what `s2p audit` takes the yield over."""
    wants: tuple[str, ...] = ()
    """Captions of photos that serve it ("a photo of …"), by which a large source is ranked; () where any photo does."""
    twins: tuple[Skill, ...] = ()
    """Skills that ask about the marks A and B alone, so that exchanging the letters changes nothing but the picture and
    the right answer (`synth.twins`)."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One test of one finished QA."""

    name: str
    version: int
    judge: Callable[[QA, Scene, Task], Verdict]


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where images come from."""

    name: str
    version: int
    options: type[PluginOptions]
    list: Callable[[PluginOptions], Sequence[SourceItem]]
    """Raises SourceError when there is nothing to read."""
    load: Callable[[SourceItem, PluginOptions], View]
    """Raises ImageError for an image that cannot be used; the run drops it and goes on."""
    prepare: Callable[[Sequence[SourceItem], PluginOptions, int, Progress | None], None] | None = None
    """Optional: make the items loadable (render), with a number of worker processes."""
    domain: str = ""
    """The domain of every view, where the source has only one."""


class DepthRunner(Protocol):
    """A loaded depth model."""

    def __call__(self, frames: Sequence[Frame]) -> Sequence[DepthMap | None]:
        """One map a frame in the frame's pixels; None where it cannot say (truth absent)."""
        ...


class RegionRunner(Protocol):
    """A loaded detector."""

    def __call__(self, frames: Sequence[Frame]) -> Sequence[Regions | None]:
        """One list a frame in the frame's pixels; None where it cannot say (truth absent)."""
        ...


class MaskRunner(Protocol):
    """A loaded segmenter."""

    def __call__(self, frames: Sequence[Frame], regions: Sequence[Regions]) -> Sequence[tuple[Mask | None, ...]]:
        """For each frame one mask a region, in the frame's pixels; None where there is none for it."""
        ...


@dataclass(frozen=True, kw_only=True)
class DepthBackend:
    """A way to get depth."""

    name: str
    version: int
    options: type[PluginOptions]
    exact: bool
    """True for ground truth: no consensus is asked of it."""
    identity: Callable[[PluginOptions], str]
    """Names weights, revision and every option that changes the result: the cache key and the provenance."""
    load: Callable[[PluginOptions], DepthRunner]
    """Raises BackendError that says what to fetch and how."""
    metres: str = ""
    """How this backend gives metres, for the message of a task that needs them; "" where it never does."""


@dataclass(frozen=True, kw_only=True)
class RegionBackend:
    """A way to get labelled regions."""

    name: str
    version: int
    options: type[PluginOptions]
    exact: bool
    identity: Callable[[PluginOptions], str]
    load: Callable[[PluginOptions], RegionRunner]


class MatchRunner(Protocol):
    """A loaded matcher."""

    def __call__(self, here: Frame, there: Frame) -> Matches | None:
        """What both photos show, possibly nothing; None where it cannot say (truth absent)."""
        ...


@dataclass(frozen=True, kw_only=True)
class MaskBackend:
    """A way to give the boxes of a detector their masks."""

    name: str
    version: int
    options: type[PluginOptions]
    identity: Callable[[PluginOptions], str]
    load: Callable[[PluginOptions], MaskRunner]
    """Raises BackendError that says what to fetch and how."""


@dataclass(frozen=True, kw_only=True)
class MatchBackend:
    """A way to get correspondence: it makes a second image (`pair`), or matches two photos (`load`, `identity`)."""

    name: str
    version: int
    options: type[PluginOptions]
    pair: Callable[[Frame, PluginOptions, np.random.Generator], WarpedPair] | None = None
    exact: bool = False
    """True for ground truth: no consensus is asked of its matches."""
    identity: Callable[[PluginOptions], str] | None = None
    """Names weights, revision and every option that changes the matches. Raises BackendError."""
    load: Callable[[PluginOptions], MatchRunner] | None = None
    """Raises BackendError that says what to fetch and how."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkData:
    """A benchmark's items, as read."""

    name: str
    revision: str
    items: tuple[Item, ...]
    clean_images: Mapping[str, bytes] = field(default_factory=dict)
    """Unmarked images behind the items where known, and the images of skipped rows, name -> encoded bytes; the guard
    indexes them too."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Rows that are no item of ours (free-form, no image, retired …), by reason."""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A benchmark: its items, and its categories mapped to skills."""

    name: str
    version: int
    options: type[PluginOptions]
    licence: str
    skills: Mapping[str, Skill]
    human: Mapping[str, float]
    """Human accuracy by category, 0..1; empty where none is published."""
    n_options: Mapping[str, int]
    """Options by category where that is fixed."""
    choices: Mapping[str, tuple[str, ...]]
    """Option texts by category where they are fixed (used to read replies)."""
    load: Callable[[PluginOptions, Progress | None], BenchmarkData]
    """Raises BenchmarkError when it cannot be read in full."""


@dataclass(frozen=True, kw_only=True)
class ResultsFormat:
    """A shape of result files."""

    name: str
    version: int
    benchmark: str
    """Name of the benchmark whose categories these are; "" where the rows bring their own."""
    sniff: Callable[[Path], bool]
    """True when the path is of this shape; reads as little as it can and never raises for a foreign file."""
    read: Callable[[Path], Iterator[Reply]]
    """Raises ResultsError with file and place."""
    read_mapped: Callable[[Path, Mapping[str, str]], Iterator[Reply]] | None = None
    """The same, our fields taken from the columns that a mapping names. Only a general format, which yields, has it."""
    looks_for: str = ""
    """What makes a path one of this shape, in a few words; told where nothing fits."""


@dataclass(frozen=True, kw_only=True)
class Export:
    """Another format for a finished dataset."""

    name: str
    version: int
    write: Callable[[Path, Path], int]
    """(dataset folder, output folder) -> rows written."""
