"""The guard itself: one image through the stages, cheapest first, until one of them names a benchmark image.

File bytes, then pixels, then PDQ of the picture's panels in eight orientations. What these stages cannot see (crops off
the centre, small turns, a picture inside a page) needs local features; that stage is not part of this version and every
certificate says so. A hit is a word for a human too: `copy` where the benchmark's picture is all or a panel of this
one, `crop` where the benchmark holds the middle of this one; `scene` (another photo of the same place) is never said
here.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from synth import images
from synth.config import Config
from synth.errors import GuardError, ImageError
from synth.guard import pdq
from synth.guard.index import MIN_QUALITY, REVIEW, THRESHOLDS, GuardIndex, pixel_digest
from synth.guard.panels import TRIMMED, WHOLE, Panel, panels
from synth.types import Box, Drop, JsonValue, Rgb, View

Content = Literal["photograph", "rendered"]
Word = Literal["clean", "copy", "crop", "scene", "unverifiable"]

HITS: tuple[Word, ...] = ("copy", "crop", "scene")
LATER_STAGES = ("sift_ransac", "warp_correlation", "sscd")
"""Stages that this version does not run; certificates record them as not_run."""

Floats = npt.NDArray[np.float32]
_RENDERED_DOMAINS = ("rendered", "drawn")
_CACHED = 20_000


class GuardOptions(Config):
    """Working point. Laxer values than the shipped ones are allowed; every certificate then says not_established."""

    threshold_photograph: int = Field(default=THRESHOLDS["photograph"], ge=0, le=256)
    threshold_rendered: int = Field(default=THRESHOLDS["rendered"], ge=0, le=256)
    review_photograph: int = Field(default=REVIEW["photograph"], ge=0, le=256)
    """Clean images up to this distance are listed as near misses."""
    review_rendered: int = Field(default=REVIEW["rendered"], ge=0, le=256)
    min_quality: int = Field(default=MIN_QUALITY, ge=0, le=100)
    """PDQ quality below which a panel says nothing."""
    planted: int = Field(default=13, ge=0)
    """Copies planted a run; fewer than 10 establish nothing."""

    def threshold(self, content: Content) -> int:
        """Distance up to which a panel is the benchmark's image."""
        return self.threshold_photograph if content == "photograph" else self.threshold_rendered

    def review(self, content: Content) -> int:
        """Distance up to which a clean image is a near miss."""
        return self.review_photograph if content == "photograph" else self.review_rendered


@dataclass(frozen=True, kw_only=True)
class GuardVerdict:
    """The guard's word on one image."""

    image_id: str
    verdict: Word
    match: str | None
    """Name of the benchmark image, where there is one."""
    stage: str
    """The stage that decided: decode, file_sha256, pixel_sha256, pdq_panels."""
    evidence: Mapping[str, JsonValue]
    """What it was decided on; for PDQ: distance (bits), nearest, panel, orientation, quality, threshold."""
    content: Content
    pixel_sha256: str = ""
    near_miss: bool = False

    @property
    def is_hit(self) -> bool:
        """True for copy, crop and scene."""
        return self.verdict in HITS

    def line(self, image: str) -> dict[str, JsonValue]:
        """The object of verdicts.jsonl."""
        return {
            "image": image,
            "verdict": self.verdict,
            "match": self.match,
            "stage": self.stage,
            "evidence": dict(self.evidence),
        }


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one stage says: a verdict, or None to pass the image on with what was measured."""

    verdict: Word | None = None
    match: str | None = None
    evidence: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One image on its way through the stages; what several stages need is made once."""

    data: bytes
    rgb: Rgb
    masked: tuple[Box, ...]
    content: Content

    @cached_property
    def file_sha256(self) -> bytes:
        """sha256 of the encoded file."""
        return hashlib.sha256(self.data).digest()

    @cached_property
    def pixel_sha256(self) -> bytes:
        """Digest of the decoded pixels, marks included."""
        return pixel_digest(self.rgb)

    @cached_property
    def visible(self) -> Rgb:
        """(H, W, 3) with the masked boxes filled."""
        return fill(self.rgb, self.masked) if self.masked else self.rgb


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One test. The name is the one in the certificate."""

    name: str
    look: Callable[[Probe], Finding]


class Guard:
    """A benchmark's index with a working point. Checks are pure; results are remembered by pixels."""

    def __init__(self, index: GuardIndex, options: GuardOptions | None = None) -> None:
        self.index = index
        self.options = options or GuardOptions()
        self._files = _first_by_digest(index.file_sha256)
        self._pixels = _first_by_digest(index.pixel_sha256)
        self._seen: OrderedDict[tuple[bytes, Content, tuple[Box, ...]], tuple[str, Finding]] = OrderedDict()
        self.stages = (
            Stage(name="file_sha256", look=self._file),
            Stage(name="pixel_sha256", look=self._pixel),
            Stage(name="pdq_panels", look=self._panels),
        )

    def check_file(self, data: bytes, masked: Sequence[Box] = (), content: Content = "photograph") -> GuardVerdict:
        """`check` of an encoded image; one that cannot be decoded is unverifiable."""
        try:
            rgb = images.decode(data, min_side=1)
        except ImageError as error:
            return GuardVerdict(
                image_id=images.image_id(data),
                verdict="unverifiable",
                match=None,
                stage="decode",
                evidence={"reason": error.reason},
                content=content,
            )
        return self.check(data, rgb, masked, content)

    def check(self, data: bytes, rgb: Rgb, masked: Sequence[Box] = (), content: Content = "photograph") -> GuardVerdict:
        """Judge one image: its encoded bytes and its pixels (H, W, 3).

        masked: boxes (px) that the caller has drawn on it; they are filled before perceptual hashing.
        content: "rendered" for drawings and renders, which are compared at a stricter threshold.
        """
        probe = Probe(data=data, rgb=rgb, masked=tuple(masked), content=content)
        name, finding = self._decide(probe)
        distance = finding.evidence.get("distance")
        near = finding.verdict is None and isinstance(distance, int) and distance <= self.options.review(content)
        return GuardVerdict(
            image_id=probe.file_sha256.hex(),
            verdict=finding.verdict or "clean",
            match=finding.match,
            stage=name,
            evidence=finding.evidence,
            content=content,
            pixel_sha256=probe.pixel_sha256.hex(),
            near_miss=near,
        )

    def _decide(self, probe: Probe) -> tuple[str, Finding]:
        first = self.stages[0]
        finding = first.look(probe)
        if finding.verdict is not None:
            return first.name, finding
        key = (probe.pixel_sha256, probe.content, probe.masked)
        if key not in self._seen:
            self._seen[key] = self._run(probe)
            if len(self._seen) > _CACHED:
                self._seen.popitem(last=False)
        return self._seen[key]

    def _run(self, probe: Probe) -> tuple[str, Finding]:
        name, finding = "", Finding()
        for stage in self.stages[1:]:
            name, finding = stage.name, stage.look(probe)
            if finding.verdict is not None:
                break
        return name, finding

    def _file(self, probe: Probe) -> Finding:
        found = self._files.get(probe.file_sha256)
        return Finding() if found is None else Finding(verdict="copy", match=self._name(found))

    def _pixel(self, probe: Probe) -> Finding:
        found = self._pixels.get(probe.pixel_sha256)
        return Finding() if found is None else Finding(verdict="copy", match=self._name(found))

    def _panels(self, probe: Probe) -> Finding:
        usable: list[tuple[Panel, int]] = []
        packed: list[pdq.Hashes] = []
        best = 0
        for panel in panels(pdq.working_luma(probe.visible)):
            orientations, quality = pdq.hashes(panel.luma)
            best = max(best, quality if panel.name in (WHOLE, TRIMMED) else 0)
            if quality >= self.options.min_quality:
                usable.append((panel, quality))
                packed.append(orientations)
        if best < self.options.min_quality:
            # Parts alone would leave the picture itself unchecked.
            low: dict[str, JsonValue] = {
                "reason": "low_quality",
                "quality": best,
                "min_quality": self.options.min_quality,
            }
            return Finding(verdict="unverifiable", evidence=low)
        table = pdq.distances(np.concatenate(packed), self.index.rows)
        query, row = np.unravel_index(int(np.argmin(table)), table.shape)
        panel, quality = usable[int(query) // len(pdq.ORIENTATIONS)]
        distance = int(table[query, row])
        name = self._name(int(self.index.owners[row]))
        found = distance <= self.options.threshold(probe.content)
        evidence: dict[str, JsonValue] = {
            "distance": distance,
            "nearest": name,
            "nearest_part": str(self.index.parts[row]),
            "panel": panel.name,
            "orientation": pdq.ORIENTATIONS[int(query) % len(pdq.ORIENTATIONS)],
            "quality": quality,
            "threshold": self.options.threshold(probe.content),
            "panels": len(usable),
        }
        if not found:
            return Finding(evidence=evidence)
        return Finding(verdict="crop" if panel.is_crop else "copy", match=name, evidence=evidence)

    def _name(self, row: int) -> str:
        return str(self.index.names[row])


def content_of(domain: str) -> Content:
    """Which threshold a view's `domain` asks for; everything not said to be rendered or drawn is a photograph."""
    return "rendered" if domain in _RENDERED_DOMAINS else "photograph"


def fill(rgb: Rgb, boxes: Sequence[Box]) -> Rgb:
    """A copy of (H, W, 3) with each box (px) painted over from its four edges.

    Each pixel is the mean of the straight lines between the pixels left and right, and above and below, of its box: one
    flat colour would change a perceptual hash as much as the mark did. A box that covers the whole image becomes grey.
    """
    out = rgb.astype(np.float32)
    height, width = rgb.shape[:2]
    for y1, y2, x1, x2 in (_pixels_of(box, width, height) for box in boxes):
        across = _between(out[y1:y2, max(0, x1 - 2) : x1], out[y1:y2, x2 : x2 + 2], x2 - x1, axis=1)
        down = _between(out[max(0, y1 - 2) : y1, x1:x2], out[y2 : y2 + 2, x1:x2], y2 - y1, axis=0)
        lines = [line for line in (across, down) if line is not None]
        out[y1:y2, x1:x2] = np.mean(lines, axis=0) if lines else 127.0
    return np.rint(out).astype(np.uint8)


def _between(before: Floats, after: Floats, length: int, axis: int) -> Floats | None:
    """`length` samples along the axis from the mean of `before` to that of `after`; None where both are empty."""
    ends = [side.mean(axis=axis, keepdims=True) for side in (before, after) if side.shape[axis] > 0]
    if not ends:
        return None
    steps = (np.arange(length, dtype=np.float32) + 0.5) / max(length, 1)
    weights = steps.reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
    line: Floats = ends[0] * (1 - weights) + ends[-1] * weights
    return line


def _pixels_of(box: Box, width: int, height: int) -> tuple[int, int, int, int]:
    x1, x2 = (min(max(int(edge), 0), width) for edge in (np.floor(box[0]), np.ceil(box[2])))
    y1, y2 = (min(max(int(edge), 0), height) for edge in (np.floor(box[1]), np.ceil(box[3])))
    return y1, y2, x1, x2


def _first_by_digest(digests: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for row, digest in enumerate(digests):
        found.setdefault(digest.tobytes(), row)
    return found


# ------------------------------------------------------------------------------------------------------ a run's images


@dataclass(frozen=True, kw_only=True)
class Scan:
    """The first pass over all images of a run. Members of a source group (scene, video) fall together."""

    verdicts: Mapping[str, GuardVerdict]
    """By image id."""
    rejected_groups: Mapping[str, str]
    """Group -> id of the member that hit."""

    def reason(self, view: View) -> str | None:
        """Why this view must not be used: guard_copy, …_crop, …_scene, …_unverifiable, …_group; None where it may.

        Raises GuardError for a view that was not scanned: unchecked is not clean.
        """
        found = self.verdicts.get(view.image_id)
        if found is None:
            raise GuardError(
                "an image reached generation without a check", where=view.name, fix="scan all images first"
            )
        if found.verdict != "clean":
            return f"guard_{found.verdict}"
        return "guard_group" if view.group in self.rejected_groups else None

    def drop(self, view: View) -> Drop | None:
        """The ledger entry of a rejected view, with the benchmark image or the member that it fell for."""
        reason = self.reason(view)
        if reason is None:
            return None
        found = self.verdicts[view.image_id]
        example = self.rejected_groups[view.group] if reason == "guard_group" else found.match or found.stage
        return Drop(stage="guard", task="", image=view.name, reason=reason, example=example)


def scan(guard: Guard, views: Iterable[View]) -> Scan:
    """Check every image of a run. Views are not kept, so any number may pass."""
    verdicts: dict[str, GuardVerdict] = {}
    groups: dict[str, str] = {}
    for view in views:
        found = guard.check_file(view.data, content=content_of(view.domain))
        verdicts[found.image_id] = _stricter(verdicts.get(found.image_id), found)
        if found.is_hit and view.group:
            groups.setdefault(view.group, found.image_id)
    return Scan(verdicts=verdicts, rejected_groups=groups)


def merge(scans: Iterable[Scan]) -> Scan:
    """One scan from those of several shards; a group rejected in one of them is rejected in all."""
    verdicts: dict[str, GuardVerdict] = {}
    groups: dict[str, str] = {}
    for part in scans:
        for image_id, found in part.verdicts.items():
            verdicts[image_id] = _stricter(verdicts.get(image_id), found)
        for group, image_id in part.rejected_groups.items():
            groups.setdefault(group, image_id)
    return Scan(verdicts=verdicts, rejected_groups=groups)


def _stricter(a: GuardVerdict | None, b: GuardVerdict) -> GuardVerdict:
    if a is None or a.verdict == "clean":
        return b if a is None or b.verdict != "clean" or b.content == "photograph" else a
    return a
