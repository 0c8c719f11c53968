"""The guard's working point, and the words in which it speaks of pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from synth.config import Config

Content = Literal["photograph", "rendered"]
Route = Literal["photograph", "rendered", "drawing"]
Word = Literal["clean", "copy", "crop", "scene", "unverifiable"]

HITS: tuple[Word, ...] = ("copy", "crop", "scene")

THRESHOLDS: Mapping[str, int] = {"photograph": 60, "rendered": 52, "drawing": 31}
"""Hamming distance out of 256 up to which a panel counts as the benchmark's image, by content. Drawings and renders of
one kind share their frame, so unrelated ones are nearer to each other than photographs are. Nearest strangers measured
(tests/benchmarks/bench_guard.py): 82 among 363 photographs and altered copies against 41 others, 54 among 816 views of
408 rendered rooms against each other."""
REVIEW: Mapping[str, int] = {"photograph": 85, "rendered": 60}
"""Distance up to which a clean image is listed as a near miss."""
MIN_QUALITY = 30

_RENDERED_DOMAINS = ("rendered", "drawn")


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
    own_wording: bool = False
    """Drop pairs whose question or prompt is worded as one of the benchmark's: the format alone raises scores."""
    sscd_weights: str = ""
    """TorchScript file of SSCD, for more candidates; only those that geometry confirms are hits."""
    sscd_similarity: float = Field(default=0.5, ge=-1.0, le=1.0)
    """Cosine from which on a benchmark image is a candidate."""
    clip_weights: str = ""
    """Checkpoint file of an open_clip model, for more candidates."""
    clip_model: str = ""
    """The architecture of that checkpoint, as open_clip names it."""
    clip_similarity: float = Field(default=0.9, ge=-1.0, le=1.0)

    def threshold(self, route: Route) -> int:
        """Distance up to which a panel is the benchmark's image."""
        of = {"photograph": self.threshold_photograph, "rendered": self.threshold_rendered}
        return of.get(route, self.threshold_drawing)

    def review(self, route: Route) -> int:
        """Distance up to which a clean image is a near miss."""
        return self.review_photograph if route == "photograph" else self.review_rendered


def content_of(domain: str) -> Content:
    """Which threshold a view's `domain` asks for; everything not said to be rendered or drawn is a photograph."""
    return "rendered" if domain in _RENDERED_DOMAINS else "photograph"
