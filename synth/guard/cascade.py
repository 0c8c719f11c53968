"""The guard itself: one image through the stages, cheapest first, until one of them names a benchmark image.

Names and metadata that only the benchmark has, then file bytes, then pixels, then PDQ of the picture's panels in eight
orientations, then (where the user has weights) what networks propose, then local features with geometry, then the
pixels under that geometry. A hit is a word for a human too: `copy` where both show the same, `crop` where one shows a
part of the other, `scene` where the same thing or place is seen in another picture.

Rendered scenes and drawings share textures, objects and frames, so local features would call innocent ones copies (36 %
of 200 rendered rooms against 400 views of other rooms): those stop after PDQ, at thresholds of their own.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

import numpy as np

from synth import images
from synth.errors import GuardError, ImageError
from synth.guard import features, pdq, warp
from synth.guard.canaries import canaries_in_image, canaries_in_text
from synth.guard.drawings import is_drawing
from synth.guard.embeddings import Network, load_networks, proposed
from synth.guard.features import Features, Grey
from synth.guard.index import GuardIndex, pixel_digest
from synth.guard.masking import fill
from synth.guard.options import HITS, Content, GuardOptions, Route, Word
from synth.guard.panels import TRIMMED, WHOLE, Panel, panels
from synth.guard.votes import Alignment, Search
from synth.types import Box, JsonValue, Rgb

ENOUGH_POINTS = 40
"""Key points from which on a photograph too smooth for PDQ can be checked."""

_CACHED = 20_000


@dataclass(frozen=True, kw_only=True)
class GuardVerdict:
    """The guard's word on one image."""

    image_id: str
    verdict: Word
    match: str | None
    """Name of the benchmark image, where there is one."""
    stage: str
    """The stage that decided: decode, metadata, file_sha256, pixel_sha256, pdq_panels, sscd, clip, sift_ransac,
    warp_correlation."""
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
    proposals: tuple[int, ...] = ()
    """Rows of the index that a network proposes, for the stages of geometry."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One image on its way through the stages; what several stages need is made once."""

    data: bytes
    rgb: Rgb
    masked: tuple[Box, ...]
    content: Content
    name: str = ""

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
        networks = load_networks(self.options)
        for network in networks:
            self._check_network(network)
        self._seen: OrderedDict[tuple[bytes, Content, tuple[Box, ...]], tuple[str, Finding]] = OrderedDict()
        self.stages = (
            Stage(name="metadata", look=self._metadata),
            Stage(name="file_sha256", look=self._file),
            Stage(name="pixel_sha256", look=self._pixel),
            Stage(name="pdq_panels", look=self._panels),
            *(Stage(name=one.name, look=self._proposing(one), photographs_only=True) for one in networks),
            Stage(name="sift_ransac", look=self._geometry, photographs_only=True),
            Stage(name="warp_correlation", look=self._pixels_under, photographs_only=True),
        )

    def check_file(
        self, data: bytes, masked: Sequence[Box] = (), content: Content = "photograph", name: str = ""
    ) -> GuardVerdict:
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
        return self.check(data, rgb, masked, content, name)

    def check(
        self, data: bytes, rgb: Rgb, masked: Sequence[Box] = (), content: Content = "photograph", name: str = ""
    ) -> GuardVerdict:
        """Judge one image: its encoded bytes and its pixels (H, W, 3).

        masked: boxes (px) that the caller has drawn on it; they are filled before perceptual hashing.
        content: "rendered" for drawings and renders, which are compared at a stricter threshold.
        name: what the image is called; the id of a benchmark's item in it is a hit.
        """
        probe = Probe(data=data, rgb=rgb, masked=tuple(masked), content=content, name=name)
        stage, finding = self._decide(probe)
        return GuardVerdict(
            image_id=probe.file_sha256.hex(),
            verdict=finding.verdict or "clean",
            match=finding.match,
            stage=stage,
            evidence=finding.evidence,
            content=content,
            pixel_sha256=probe.pixel_sha256.hex(),
            near_miss=finding.verdict is None and self._is_near(finding.evidence, probe.route),
        )

    def resembles(self, data: bytes, name: str, content: Content = "photograph") -> bool:
        """Would this picture be called a copy or crop of that one benchmark image, if it were the only one?

        Raises ImageError for a picture that cannot be decoded.
        """
        probe = Probe(data=data, rgb=images.decode(data, min_side=1), masked=(), content=content)
        hashed = [pdq.hashes(panel.luma) for panel in panels(pdq.working_luma(probe.visible))]
        near = [self.index.distance(hashes, name) for hashes, quality in hashed if quality >= self.options.min_quality]
        if min(near, default=256) <= self.options.threshold(probe.route):
            return True
        if probe.route != "photograph":
            return False
        aligned = self._search.align_with(probe.features, self.index.described(name))
        return self._pixels_under(probe, Finding(aligned=self._enough(aligned))).verdict in ("copy", "crop")

    def _decide(self, probe: Probe) -> tuple[str, Finding]:
        for first in self.stages[:2]:
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
        for stage in self.stages[2:]:
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
        by_network = bool(evidence.get("proposed"))
        return by_hash or by_network or (isinstance(inliers, int) and inliers >= self.options.review_inliers)

    def _metadata(self, probe: Probe, before: Finding) -> Finding:
        found = next(chain(canaries_in_text(probe.name), canaries_in_image(probe.data)), None)
        return Finding() if found is None else Finding(verdict="copy", evidence={"canary": found})

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

    def _proposing(self, network: Network) -> Callable[[Probe, Finding], Finding]:
        """The stage of an optional network: what it proposes is for geometry to confirm."""

        def look(probe: Probe, before: Finding) -> Finding:
            found = proposed(
                network.describe(probe.visible), self.index.embedded[network.name].vectors, network.similarity
            )
            names = [*_texts(before.evidence.get("proposed")), *(self._name(row) for row, _ in found)]
            evidence: dict[str, JsonValue] = {f"{network.name}_similarity": round(found[0][1], 3)} if found else {}
            if names:
                evidence["proposed"] = names
            return Finding(evidence=evidence, proposals=(*before.proposals, *(row for row, _ in found)))

        return look

    def _check_network(self, network: Network) -> None:
        held = self.index.embedded.get(network.name)
        if held is None or held.identity != network.identity:
            raise GuardError(
                f"the index holds {f'descriptors by {held.identity}' if held else 'no descriptors'}, "
                f"these weights are {network.identity}",
                where=f"guard stage {network.name}",
                fix="build the index again with these weights",
            )

    def _geometry(self, probe: Probe, before: Finding) -> Finding:
        if not self.index.local:
            # Hashes alone miss every crop, so a photograph that only they have seen is not clean.
            return Finding(verdict="unverifiable", evidence={"reason": "no_local_features"})
        proposals = {one for row in before.proposals for one in self.index.described(self._name(row))}
        aligned = (*self._search.align(probe.features), *self._search.align_with(probe.features, sorted(proposals)))
        aligned = tuple(sorted(aligned, key=lambda one: (-one.inliers, one.owner)))
        evidence: dict[str, JsonValue] = {
            "key_points": len(probe.features),
            "inliers": aligned[0].inliers if aligned else 0,
            "shares_with": self._name(aligned[0].owner) if aligned else None,
        }
        return Finding(evidence=evidence, aligned=self._enough(aligned))

    def _enough(self, aligned: Sequence[Alignment]) -> tuple[Alignment, ...]:
        return tuple(one for one in aligned if one.inliers >= self.options.inliers)

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


def _texts(value: JsonValue) -> list[str]:
    return [str(text) for text in value] if isinstance(value, list) else []


def _first_by_digest(digests: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for row, digest in enumerate(digests):
        found.setdefault(digest.tobytes(), row)
    return found
