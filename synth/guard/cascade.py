"""The guard itself: one image through the stages, cheapest first, until one of them names a benchmark image.

File bytes, then pixels, then PDQ of the picture's panels in eight orientations, then local features with geometry,
then the pixels under that geometry. A hit is a word for a human too: `copy` where both show the same, `crop` where one
shows a part of the other, `scene` where the same thing or place is seen in another picture.

Rendered scenes and drawings share textures, objects and frames, so local features would call innocent ones copies (36 %
of 200 rendered rooms against 400 views of other rooms): those stop after PDQ, at thresholds of their own.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from pydantic import Field

from synth import images
from synth.config import Config
from synth.errors import GuardError, ImageError
from synth.guard import features, pdq, warp
from synth.guard.drawings import is_drawing
from synth.guard.features import Features, Grey
from synth.guard.index import MIN_QUALITY, REVIEW, THRESHOLDS, GuardIndex, pixel_digest
from synth.guard.masking import fill
from synth.guard.panels import TRIMMED, WHOLE, Panel, panels
from synth.guard.votes import Alignment, Search
from synth.types import Box, Drop, JsonValue, Rgb, View

Content = Literal["photograph", "rendered"]
Route = Literal["photograph", "rendered", "drawing"]
Word = Literal["clean", "copy", "crop", "scene", "unverifiable"]

HITS: tuple[Word, ...] = ("copy", "crop", "scene")
LATER_STAGES = ("sscd",)
"""Stages that this version does not run; certificates record them as not_run."""

ENOUGH_POINTS = 40
"""Key points from which on a photograph too smooth for PDQ can be checked."""

_RENDERED_DOMAINS = ("rendered", "drawn")
_CACHED = 20_000


class GuardOptions(Config):
    """Working point. Laxer values than the shipped ones are allowed; every certificate then says not_established."""

    threshold_photograph: int = Field(default=THRESHOLDS["photograph"], ge=0, le=256)
    threshold_rendered: int = Field(default=THRESHOLDS["rendered"], ge=0, le=256)
    threshold_drawing: int = Field(default=THRESHOLDS["drawing"], ge=0, le=256)
    review_photograph: int = Field(default=REVIEW["photograph"], ge=0, le=256)
    """Clean images up to this distance are listed as near misses."""
    review_rendered: int = Field(default=REVIEW["rendered"], ge=0, le=256)
    min_quality: int = Field(default=MIN_QUALITY, ge=0, le=100)
    """PDQ quality below which a panel says nothing."""
    inliers: int = Field(default=8, ge=3)
    """Matches at distinct places that agree on one similarity; from here on an image is a hit."""
    review_inliers: int = Field(default=5, ge=2)
    """Clean images from here on are listed as near misses."""
    correlation: float = Field(default=0.8, ge=0.0, le=1.0)
    """Of the aligned pixels, from which on they are the same picture."""
    certain_inliers: int = Field(default=40, ge=3)
    """From which on they are the same picture even where the pixels differ (parts blacked out or exchanged)."""
    planted: int = Field(default=25, ge=0)
    """Copies planted a run: one of each kind. Fewer than 10 establish nothing."""

    def threshold(self, route: Route) -> int:
        """Distance up to which a panel is the benchmark's image."""
        of = {"photograph": self.threshold_photograph, "rendered": self.threshold_rendered}
        return of.get(route, self.threshold_drawing)

    def review(self, route: Route) -> int:
        """Distance up to which a clean image is a near miss."""
        return self.review_photograph if route == "photograph" else self.review_rendered


@dataclass(frozen=True, kw_only=True)
class GuardVerdict:
    """The guard's word on one image."""

    image_id: str
    verdict: Word
    match: str | None
    """Name of the benchmark image, where there is one."""
    stage: str
    """The stage that decided: decode, file_sha256, pixel_sha256, pdq_panels, sift_ransac, warp_correlation."""
    evidence: Mapping[str, JsonValue]
    """What it was decided on. `route`: photograph, rendered, drawing. PDQ: distance (bits), nearest, panel,
    orientation, quality, threshold. Local features: key_points, inliers, shares_with; and under that geometry
    correlation, covered and spread (see `warp.Overlap`)."""
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
    aligned: tuple[Alignment, ...] = ()
    """Benchmark images that geometry found, for the stage that compares pixels."""


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

    @cached_property
    def canonical(self) -> Grey:
        """(H, W) luma, see `features.canonical`."""
        return features.canonical(self.visible)

    @cached_property
    def features(self) -> Features:
        """Key points of the visible picture."""
        return features.extract(self.canonical)

    @cached_property
    def route(self) -> Route:
        """Which tests are fit for it."""
        if self.content == "rendered":
            return "rendered"
        return "drawing" if is_drawing(self.canonical) else "photograph"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One test. The name is the one in the certificate."""

    name: str
    look: Callable[[Probe, Finding], Finding]
    """Given the picture and what the stage before found."""
    photographs_only: bool = False


class Guard:
    """A benchmark's index with a working point. Checks are pure; results are remembered by pixels."""

    def __init__(self, index: GuardIndex, options: GuardOptions | None = None) -> None:
        self.index = index
        self.options = options or GuardOptions()
        self._files = _first_by_digest(index.file_sha256)
        self._pixels = _first_by_digest(index.pixel_sha256)
        self._search = Search(index.bank)
        self._seen: OrderedDict[tuple[bytes, Content, tuple[Box, ...]], tuple[str, Finding]] = OrderedDict()
        self.stages = (
            Stage(name="file_sha256", look=self._file),
            Stage(name="pixel_sha256", look=self._pixel),
            Stage(name="pdq_panels", look=self._panels),
            Stage(name="sift_ransac", look=self._geometry, photographs_only=True),
            Stage(name="warp_correlation", look=self._pixels_under, photographs_only=True),
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
        return GuardVerdict(
            image_id=probe.file_sha256.hex(),
            verdict=finding.verdict or "clean",
            match=finding.match,
            stage=name,
            evidence=finding.evidence,
            content=content,
            pixel_sha256=probe.pixel_sha256.hex(),
            near_miss=finding.verdict is None and self._is_near(finding.evidence, probe.route),
        )

    def _decide(self, probe: Probe) -> tuple[str, Finding]:
        first = self.stages[0]
        finding = first.look(probe, Finding())
        if finding.verdict is not None:
            return first.name, finding
        key = (probe.pixel_sha256, probe.content, probe.masked)
        if key not in self._seen:
            self._seen[key] = self._run(probe)
            if len(self._seen) > _CACHED:
                self._seen.popitem(last=False)
        return self._seen[key]

    def _run(self, probe: Probe) -> tuple[str, Finding]:
        name, finding, evidence = "", Finding(), dict[str, JsonValue]()
        for stage in self.stages[1:]:
            if stage.photographs_only and probe.route != "photograph":
                break
            name, finding = stage.name, stage.look(probe, finding)
            evidence |= finding.evidence
            if finding.verdict is not None:
                break
        return name, Finding(verdict=finding.verdict, match=finding.match, evidence=evidence)

    def _is_near(self, evidence: Mapping[str, JsonValue], route: Route) -> bool:
        distance, inliers = evidence.get("distance"), evidence.get("inliers")
        by_hash = isinstance(distance, int) and distance <= self.options.review(route)
        return by_hash or (isinstance(inliers, int) and inliers >= self.options.review_inliers)

    def _file(self, probe: Probe, before: Finding) -> Finding:
        found = self._files.get(probe.file_sha256)
        return Finding() if found is None else Finding(verdict="copy", match=self._name(found))

    def _pixel(self, probe: Probe, before: Finding) -> Finding:
        found = self._pixels.get(probe.pixel_sha256)
        return Finding() if found is None else Finding(verdict="copy", match=self._name(found))

    def _panels(self, probe: Probe, before: Finding) -> Finding:
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
            low: dict[str, JsonValue] = {"route": probe.route, "quality": best, "min_quality": self.options.min_quality}
            if probe.route == "photograph" and len(probe.features) >= ENOUGH_POINTS:
                return Finding(evidence=low)
            return Finding(verdict="unverifiable", evidence={"reason": "low_quality", **low})
        table = pdq.distances(np.concatenate(packed), self.index.rows)
        query, row = np.unravel_index(int(np.argmin(table)), table.shape)
        panel, quality = usable[int(query) // len(pdq.ORIENTATIONS)]
        distance = int(table[query, row])
        name = self._name(int(self.index.owners[row]))
        threshold = self.options.threshold(probe.route)
        evidence: dict[str, JsonValue] = {
            "route": probe.route,
            "distance": distance,
            "nearest": name,
            "nearest_part": str(self.index.parts[row]),
            "panel": panel.name,
            "orientation": pdq.ORIENTATIONS[int(query) % len(pdq.ORIENTATIONS)],
            "quality": quality,
            "threshold": threshold,
            "panels": len(usable),
        }
        if distance > threshold:
            return Finding(evidence=evidence)
        return Finding(verdict="crop" if panel.is_crop else "copy", match=name, evidence=evidence)

    def _geometry(self, probe: Probe, before: Finding) -> Finding:
        aligned = self._search.align(probe.features)
        evidence: dict[str, JsonValue] = {
            "key_points": len(probe.features),
            "inliers": aligned[0].inliers if aligned else 0,
            "shares_with": self._name(aligned[0].owner) if aligned else None,
        }
        enough = tuple(one for one in aligned if one.inliers >= self.options.inliers)
        return Finding(evidence=evidence, aligned=enough)

    def _pixels_under(self, probe: Probe, before: Finding) -> Finding:
        found, best = Finding(), (False, -2.0)
        for one in before.aligned:
            bank = self.index.bank
            seen = warp.overlap(probe.canonical, bank.thumbnail(one.owner), int(bank.sizes[one.owner, 2]), one)
            word = warp.word(one.inliers, seen, self.options.correlation, self.options.certain_inliers)
            # Of two frames of one scene, that one is meant whose pixels agree best.
            rank = (word in ("copy", "crop"), seen.correlation)
            if not found.evidence or (word is not None and rank > best):
                name, best = self._name(one.owner), rank if word else best
                shares = {key: round(value, 3) for key, value in vars(seen).items()}
                evidence: dict[str, JsonValue] = {"inliers": one.inliers, "shares_with": name, **shares}
                found = Finding(verdict=word, match=name if word else None, evidence=evidence)
        return found

    def _name(self, row: int) -> str:
        return str(self.index.names[row])


def content_of(domain: str) -> Content:
    """Which threshold a view's `domain` asks for; everything not said to be rendered or drawn is a photograph."""
    return "rendered" if domain in _RENDERED_DOMAINS else "photograph"


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
