"""The nouns of See2Perceive: frozen records that cross the borders between rooms.

Conventions (pinned by tests/test_conventions.py): pixel coordinates are (x, y), x to the right, y down, and the centre
of the pixel in column j and row i lies at (j + 0.5, i + 0.5). Boxes are (x1, y1, x2, y2) in pixels. Arrays are (H, W)
or (H, W, 3). The camera looks along +z, x right, y down; depth is the z coordinate, in metres where a type says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Literal, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

Rgb: TypeAlias = npt.NDArray[np.uint8]
"""Colour image, shape (H, W, 3), sRGB 0..255."""
DepthArray: TypeAlias = npt.NDArray[np.float32]
"""One value a pixel, shape (H, W)."""
Mask: TypeAlias = npt.NDArray[np.bool_]
"""Shape (H, W)."""
Matrix: TypeAlias = npt.NDArray[np.float64]
"""Small dense matrix, e.g. a homography (3, 3) or intrinsics (3, 3)."""
Places: TypeAlias = npt.NDArray[np.float64]
"""Pixel coordinates, shape (N, 2)."""
JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
Box: TypeAlias = tuple[float, float, float, float]
"""(x1, y1, x2, y2) in pixels."""
Progress: TypeAlias = Callable[[int, int], None]
"""Called with (done, total)."""


class Reporter(Protocol):
    """Where a long run says how far it is."""

    def stage(self, name: str, done: int, total: int) -> None:
        """`done` of `total` units of the named stage are finished."""
        ...


LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Skill(StrEnum):
    """The word that joins a benchmark's category with our tasks."""

    RELATIVE_DEPTH = "relative_depth"
    COUNTING = "counting"
    VISUAL_CORRESPONDENCE = "visual_correspondence"
    SEMANTIC_CORRESPONDENCE = "semantic_correspondence"
    FUNCTIONAL_CORRESPONDENCE = "functional_correspondence"
    SPATIAL_RELATION = "spatial_relation"
    LEFT_RIGHT = "left_right"
    OBJECT_LOCALIZATION = "object_localization"
    MULTI_VIEW = "multi_view"
    JIGSAW = "jigsaw"
    REFLECTANCE = "reflectance"
    VISUAL_SIMILARITY = "visual_similarity"
    ART_STYLE = "art_style"
    FORENSIC_DETECTION = "forensic_detection"
    IQ_TEST = "iq_test"
    OBJECT_AT_MARK = "object_at_mark"
    COLOUR_AT_MARK = "colour_at_mark"
    MARK_ON_OBJECT = "mark_on_object"
    OBJECT_COLOUR = "object_colour"
    EXISTENCE = "existence"
    OTHER = "other"


class PluginOptions(BaseModel):
    """Base of every plug-in's options: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


OptionsT = TypeVar("OptionsT", bound=PluginOptions)


def narrow(options: PluginOptions, kind: type[OptionsT]) -> OptionsT:
    """The options as the plug-in's own type; a wrong type is a bug of the caller, not of the user."""
    if not isinstance(options, kind):
        raise TypeError(f"expected {kind.__name__}, got {type(options).__name__}")
    return options


# ------------------------------------------------------------------------------------------ benchmark and model replies


@dataclass(frozen=True, kw_only=True)
class Item:
    """One question of a benchmark."""

    item_id: str
    category: str
    """The benchmark's own grouping."""
    skill: Skill
    question: str
    choices: tuple[str, ...]
    """Option texts without letters, in order."""
    answer: str | None
    """Right letter ("A" …) or None where the benchmark hides it."""
    prompt: str
    """The full text shown to a model, options included."""
    images: tuple[bytes, ...]
    """Encoded images in the order in which the model sees them."""
    group: str = ""
    """Items that share an image or a scene share this; the unit of the bootstrap."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Strata for reports, e.g. {"nearer_point": "lower"}."""
    marks: tuple[tuple[Mark, ...], ...] = ()
    """What is marked in each image, where the benchmark knows it (ours do); pixel coordinates of that image."""
    clean: tuple[str, ...] = ()
    """Key into `BenchmarkData.clean_images` of each image without its marks, where there is one."""
    boxes: tuple[tuple[Box, ...], ...] = ()
    """What the question is about in each image, where the benchmark knows it and no mark says it."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One row of somebody's result file, before it is read."""

    item_id: str
    category: str
    model: str
    text: str | None
    gold: str | None
    """Right letter, or None where hidden."""
    released: str | None = None
    """The model's letter as the file itself gives it, "Z" where it says none; None without such a column."""
    choices: tuple[str, ...] = ()
    """Option texts where the file or the benchmark tells them."""
    n_options: int = 0
    n_images: int = 1
    """Images that the model was sent, where the file tells; else those of the benchmark's item."""
    benchmark: str = ""
    """Name of the benchmark plug-in whose item this is, where the file tells it."""
    prompt: str = ""
    """The text that the model was sent, where the file holds it."""
    question: str = ""
    """The question alone, where the file holds it; tells which item of a benchmark a row number means."""
    truncated: bool = False
    """The harness itself says that the reply ran into a length limit."""
    harness_correct: bool | None = None
    """The harness's own verdict, where the file gives one."""
    group: str = ""
    """Items that belong together (an image, a pair, the rotations of one question)."""
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One model's reply to one item, read: a line of outcomes.jsonl."""

    item_id: str
    category: str
    skill: Skill
    model: str
    text: str | None
    letter: str | None
    reason: str | None
    """Why there is no letter or no score: refusal, ambiguous, empty, truncated, out_of_range, conflict, unscored …"""
    gold: str | None
    correct: bool | None
    """None: cannot be scored (hidden key)."""
    n_options: int
    n_images: int
    group: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    probabilities: Mapping[str, float] = field(default_factory=dict)
    """Model probability of each option letter where it was measured (not renormalised: the sum is the option mass)."""
    prompt_hash: str = ""
    """First 16 hex digits of the sha256 of the text that the model was sent; "" where unknown."""
    harness_correct: bool | None = None
    """What the harness that wrote the file made of the reply; never used for `correct`."""
    judge: str | None = None
    """Letter that a judge model read where the rules abstain ("Z": none); never part of `letter` or `correct`."""

    @property
    def option_mass(self) -> float | None:
        """Sum of the option probabilities; near 0 the letter means little. None where they were not measured."""
        return sum(self.probabilities.values()) if self.probabilities else None

    @property
    def margin(self) -> float | None:
        """Probability of the likeliest option minus that of the next; None where they were not measured."""
        if len(self.probabilities) < 2:
            return None
        first, second = sorted(self.probabilities.values(), reverse=True)[:2]
        return first - second


# -------------------------------------------------------------------------------------------------- images and truth


@dataclass(frozen=True, kw_only=True)
class MetricDepth:
    """Depth in metres along the camera's z axis."""

    metres: DepthArray
    valid: Mask
    backend: str


@dataclass(frozen=True, kw_only=True)
class RelativeDepth:
    """Inverse depth up to an unknown scale and shift: larger is nearer, and only the order is physical."""

    inverse: DepthArray
    valid: Mask
    backend: str


DepthMap: TypeAlias = MetricDepth | RelativeDepth


@dataclass(frozen=True, kw_only=True)
class Region:
    """One object found in an image."""

    label: str
    box: Box
    score: float = 1.0
    mask: Mask | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    """E.g. {"colour": "red"}; only what the backend vouches for."""
    crowd: bool = False
    """Stands for several objects; never counted."""


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What perception left out of an image: why, how often, and the first example."""

    reason: str
    count: int
    example: str


@dataclass(frozen=True, kw_only=True)
class Regions:
    """What one backend found in one image."""

    items: tuple[Region, ...]
    complete: bool
    """True only where the truth says that every instance is listed. A detector's list never is."""
    backend: str
    vocabulary: tuple[str, ...] = ()
    """Every label that the backend can find."""
    losses: tuple[Loss, ...] = ()
    """Boxes, masks and checks that are missing, each with its reason; they go to the drop ledger."""


@dataclass(frozen=True, kw_only=True)
class Camera:
    """Pinhole camera, OpenCV frame: x_cam = R @ x_world + t (metres), pixel = K @ x_cam / z."""

    K: Matrix
    R: Matrix
    t: Matrix


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What is known for certain about an image."""

    depth: DepthMap | None = None
    regions: Regions | None = None
    camera: Camera | None = None
    homographies: Mapping[str, Matrix] = field(default_factory=dict)
    """Name of another image of the source -> this photo's pixels to the other's, (3, 3)."""
    matches: Mapping[str, Matches] = field(default_factory=dict)
    """Name of another image of the source -> places that were marked in both by hand."""
    right: str = ""
    """Name of the right photo of a rectified stereo pair whose left one this is: `depth` holds the disparity in pixels,
    and the place (x, y) lies at (x - disparity, y) there."""


@dataclass(frozen=True, kw_only=True)
class Matches:
    """Places of one image that one pass found again in another."""

    here: Places
    there: Places
    """Same length; the places in the other image."""
    scores: npt.NDArray[np.float64]
    """(N,) 0..1, as the backend means them."""
    backend: str
    member: str = "plain"
    """Which pass of the consensus: plain, swap (photos exchanged), flip (both mirrored), second-1 …"""
    homography: Matrix | None = None
    """(3, 3), here -> there, where one explains all matches: a flat scene, or a camera that only turned."""
    fundamental: Matrix | None = None
    """(3, 3), there^T F here = 0, where the scene has depth and the camera moved. With neither, matches are exact."""


@dataclass(frozen=True, kw_only=True)
class SourceItem:
    """One image that a source can load."""

    key: str
    """Unique in the source, stable between runs; its order is the order of the run."""
    fingerprint: str
    """Identity of the content (sha256 of the file, or seed and renderer version)."""
    group: str
    """Scene, video or photo: what must stay in one split and falls together under the guard."""


@dataclass(frozen=True, kw_only=True)
class View:
    """One image with what is known about it."""

    image_id: str
    """sha256 of `data`, hex."""
    data: bytes
    """The file's bytes, never re-encoded."""
    width: int
    height: int
    """Pixels, after the EXIF orientation is applied."""
    name: str
    source: str
    group: str
    licence: str = "unknown"
    domain: str = ""
    truth: Truth | None = None


@dataclass(frozen=True, kw_only=True)
class WarpedPair:
    """A second image made from the first one by a known homography (exact correspondence)."""

    render: Callable[[], Rgb]
    """Makes the pixels, the same ones at each call; questions are asked without them."""
    homography: Matrix
    """(3, 3): pixel of the first image -> pixel of the second."""
    covered: Mask
    """Pixels of the second image that come from inside the first."""
    backend: str

    @cached_property
    def rgb(self) -> Rgb:
        """The second image."""
        return self.render()


@dataclass(frozen=True, kw_only=True)
class SecondView:
    """Another photo of the same source group, and where it shows the places of the first one."""

    view: View
    rgb: Rgb
    matches: tuple[Matches, ...] = ()
    """Members of the consensus, all from the first photo's pixels to this one's; the first is the plain pass."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """An image and everything perceived in it."""

    view: View
    rgb: Rgb
    depths: tuple[DepthMap, ...] = ()
    """Members of the depth consensus, all in this image's pixels; the first is the plain pass. Truth stands alone."""
    regions: tuple[Regions, ...] = ()
    """Members of the detection consensus, all in this image's pixels; the first is the plain pass."""
    pair: WarpedPair | None = None
    seconds: tuple[SecondView, ...] = ()
    """Other photos of the source group."""

    def picture(self, panel: Panel) -> Rgb | None:
        """The pixels that a panel shows, or None where the scene has no such picture."""
        if panel.image == "view":
            return self.rgb
        if panel.image == "pair":
            return self.pair.rgb if self.pair is not None else None
        return self.seconds[panel.number].rgb if panel.number < len(self.seconds) else None


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What a perception backend is given: the pixels, and the view for backends that read its truth."""

    view: View
    rgb: Rgb


# ------------------------------------------------------------------------------------------------------ questions


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A lettered ring drawn at a point (pixel coordinates of the panel)."""

    label: str
    x: float
    y: float


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One picture shown with the question."""

    image: Literal["view", "pair", "second"]
    marks: tuple[Mark, ...] = ()
    number: int = 0
    """Which of the scene's second views."""


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Everything needed to recompute an answer without the image."""

    task: str
    version: int
    wording: int
    """Index of the wording used."""
    backends: tuple[str, ...]
    options: tuple[str, ...]
    """What each choice stands for, in the order of the choices (a mark's label, a number, a name)."""
    measures: Mapping[str, JsonValue]
    """The numbers behind the answer, with their unit in the key."""

    def plain(self) -> dict[str, JsonValue]:
        """Its fields by name, not copied: `dataclasses.asdict` copies every number, which costs ten times as much."""
        return dict(vars(self))


@dataclass(frozen=True, kw_only=True)
class QA:
    """A question with its answer; the pictures are drawn only once it is chosen."""

    qa_id: str
    task: str
    skill: Skill
    image_id: str
    question: str
    choices: tuple[str, ...]
    """Option texts without letters."""
    answer: str
    """Right letter."""
    panels: tuple[Panel, ...]
    difficulty: float
    """0 easy … 1 hard."""
    stratum: str
    """What balance equalises within a skill, beside the answer letter (e.g. "lower", "higher")."""
    provenance: Provenance

    def plain(self) -> dict[str, JsonValue]:
        """Its fields by name, down to plain values."""
        panels = [{**vars(panel), "marks": [dict(vars(mark)) for mark in panel.marks]} for panel in self.panels]
        return {**vars(self), "panels": panels, "provenance": self.provenance.plain()}


@dataclass(frozen=True, kw_only=True)
class Drop:
    """Something that did not become a pair, with its reason."""

    stage: str
    """source, ranking, guard, perception, task, check, balance."""
    task: str
    """Task name, or "" where the whole image fell."""
    image: str
    """View name as the user knows it."""
    reason: str
    count: int = 1
    example: str = ""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A check's word on one QA."""

    keep: bool
    reason: str = ""
    detail: str = ""
