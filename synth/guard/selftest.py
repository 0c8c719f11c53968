"""What the guard finds and what it flags, measured on a user's own benchmark with the transforms of planted copies."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from synth import images
from synth.contracts import BenchmarkData
from synth.errors import GuardError
from synth.geometry import generator
from synth.guard import features
from synth.guard.building import build_index
from synth.guard.cascade import Guard
from synth.guard.drawings import is_drawing
from synth.guard.index import GuardIndex
from synth.guard.reading import benchmark_images, folder_images
from synth.guard.transforms import TRANSFORMS, clouds
from synth.types import JsonValue, Progress

ALTERED = 2
"""Random transformations of each negative, beside the picture as it is."""


@dataclass(frozen=True, kw_only=True)
class Recall:
    """One transformation."""

    n: int
    found: int
    """Named as the right image, or as one alike to it."""
    elsewhere: int
    """A hit, but on another image (the next frame, the other eye): rejected all the same."""
    words: Mapping[str, int]
    """Verdicts."""


@dataclass(frozen=True, kw_only=True)
class Flag:
    """A picture that is not in the benchmark and was called a hit, or a copy that was missed."""

    name: str
    transform: str
    match: str | None
    verdict: str
    evidence: Mapping[str, JsonValue]


@dataclass(frozen=True, kw_only=True)
class SelfTest:
    """The whole measurement."""

    index_sha256: str
    n_images: int
    n_drawings: int
    """Of the benchmark images that copies were made of; those are held to the hash only."""
    recall: Mapping[str, Recall]
    missed: tuple[Flag, ...]
    n_negatives: int
    """Queries: every negative as it is and altered."""
    flagged: tuple[Flag, ...]
    n_near_misses: int
    n_unverifiable: int
    check_ms: float
    """Process time of a check that no hash settled, decoding apart; 0.0 where there was none."""


def named_images(benchmark: BenchmarkData | Path) -> dict[str, bytes]:
    """Every image of a benchmark, or below a folder, under its name in the index."""
    return dict(folder_images(benchmark) if isinstance(benchmark, Path) else benchmark_images(benchmark))


def selftest(
    benchmark: BenchmarkData | Path,
    negatives: Mapping[str, bytes],
    most: int = 40,
    progress: Progress | None = None,
) -> SelfTest:
    """Index the benchmark, copy at most so many of its images in every way, and check copies and negatives.

    negatives: pictures known not to be in the benchmark. Raises GuardError where the benchmark has no image to copy.
    """
    index = build_index(benchmark)
    return measure(index, named_images(benchmark), negatives, most, progress)


def measure(
    index: GuardIndex,
    named: Mapping[str, bytes],
    negatives: Mapping[str, bytes],
    most: int = 40,
    progress: Progress | None = None,
) -> SelfTest:
    """`selftest` with an index at hand; `named`: its images."""
    chosen = [sorted(named)[i] for i in np.linspace(0, len(named) - 1, min(most, len(named))).astype(int)]
    if not chosen:
        raise GuardError("no image to copy", where=index.benchmark, fix="give a benchmark that holds images")
    guard = Guard(index)
    others = list(negatives.values())
    found: dict[str, list[tuple[str, bool]]] = {kind: [] for kind in TRANSFORMS}
    missed: list[Flag] = []
    spent: list[float] = []
    total = len(chosen) + len(negatives)
    n_drawings = 0
    for done, name in enumerate(chosen):
        rgb = images.decode(named[name], min_side=1)
        drawn = is_drawing(features.canonical(rgb))
        n_drawings += drawn
        for kind, transform in TRANSFORMS.items():
            if drawn and not transform.hashed:
                continue
            rng = generator(0, name, kind)
            other = clouds(rgb.shape[0], rgb.shape[1], rng)
            if others:
                other = images.decode(others[int(rng.integers(len(others)))], min_side=1)
            verdict = guard.check_file(transform.copy(rgb, other, rng))
            right = verdict.match is not None and index.alike(verdict.match, name)
            found[kind].append((verdict.verdict, right))
            if not (verdict.is_hit and right):
                missed.append(_flag(name, kind, verdict.verdict, verdict.match, verdict.evidence))
        if progress is not None:
            progress(done + 1, total)
    flagged, near, unverifiable, n = [], 0, 0, 0
    for done, name in enumerate(negatives):
        for kind, data in altered(name, negatives):
            rgb = images.decode(data, min_side=1)
            before = time.process_time()
            verdict = guard.check(data, rgb)
            if not verdict.is_hit:
                spent.append(time.process_time() - before)
            n, near = n + 1, near + verdict.near_miss
            unverifiable += verdict.verdict == "unverifiable"
            if verdict.is_hit:
                flagged.append(_flag(name, kind, verdict.verdict, verdict.match, verdict.evidence))
        if progress is not None:
            progress(len(chosen) + done + 1, total)
    return SelfTest(
        index_sha256=index.sha256,
        n_images=index.n_images,
        n_drawings=n_drawings,
        recall={kind: _recall(outcomes) for kind, outcomes in found.items() if outcomes},
        missed=tuple(missed),
        n_negatives=n,
        flagged=tuple(flagged),
        n_near_misses=near,
        n_unverifiable=unverifiable,
        check_ms=1000 * float(np.median(spent)) if spent else 0.0,
    )


def altered(name: str, pictures: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """(transformation, encoded) of one picture as it is and altered at random; collages take the picture before it."""
    names = list(pictures)
    rgb = images.decode(pictures[name], min_side=1)
    other = images.decode(pictures[names[names.index(name) - 1]], min_side=1)
    yield "identity", pictures[name]
    kinds = [kind for kind in TRANSFORMS if kind != "identity"]
    for kind in generator(0, name, "kinds").choice(kinds, ALTERED, replace=False).tolist():
        yield kind, TRANSFORMS[kind].copy(rgb, other, generator(0, name, kind))


def table(result: SelfTest) -> str:
    """For people."""
    lines = [f"{'transformation':20s} {'copies':>7s} {'found':>7s} {'recall':>8s}  verdicts"]
    for kind, one in result.recall.items():
        words = ", ".join(f"{word} {n}" for word, n in sorted(one.words.items()))
        aside = f"; {one.elsewhere} hit another image" if one.elsewhere else ""
        lines.append(f"{kind:20s} {one.n:7d} {one.found:7d} {100 * one.found / one.n:7.1f} %  {words}{aside}")
    for title, kinds in (
        ("all but crop50", [kind for kind in result.recall if kind != "crop50"]),
        ("crop50", [kind for kind in result.recall if kind == "crop50"]),
    ):
        n, found = (sum(getattr(result.recall[kind], what) for kind in kinds) for what in ("n", "found"))
        if n:
            lines.append(f"{title:20s} {n:7d} {found:7d} {100 * found / n:7.1f} %")
    lines += [f"  missed: {_said(flag)}" for flag in result.missed]
    if result.n_negatives:
        lines.append(
            f"negatives: {len(result.flagged)} of {result.n_negatives} flagged "
            f"({100 * len(result.flagged) / result.n_negatives:.2f} %), {result.n_near_misses} near misses, "
            f"{result.n_unverifiable} unverifiable; {result.check_ms:.0f} ms a clean photo"
        )
        lines += [f"  flagged: {_said(flag)}" for flag in result.flagged]
    else:
        lines.append("negatives: none given, so false alarms were not measured")
    if result.n_drawings:
        lines.append(f"{result.n_drawings} of the copied images are drawings: held to the hash only")
    return "\n".join(lines)


def to_json(result: SelfTest) -> dict[str, JsonValue]:
    """For machines."""
    return {
        "index_sha256": result.index_sha256,
        "n_images": result.n_images,
        "n_drawings": result.n_drawings,
        "recall": {kind: {**vars(one), "words": dict(one.words)} for kind, one in result.recall.items()},
        "missed": [_json(flag) for flag in result.missed],
        "negatives": {
            "n": result.n_negatives,
            "flagged": [_json(flag) for flag in result.flagged],
            "near_misses": result.n_near_misses,
            "unverifiable": result.n_unverifiable,
        },
        "check_ms": round(result.check_ms, 1),
    }


def _recall(outcomes: Sequence[tuple[str, bool]]) -> Recall:
    hits = [(word, right) for word, right in outcomes if word not in ("clean", "unverifiable")]
    return Recall(
        n=len(outcomes),
        found=sum(right for _, right in hits),
        elsewhere=sum(not right for _, right in hits),
        words=dict(Counter(word for word, _ in outcomes)),
    )


def _flag(name: str, kind: str, verdict: str, match: str | None, evidence: Mapping[str, JsonValue]) -> Flag:
    return Flag(name=name, transform=kind, match=match, verdict=verdict, evidence=evidence)


def _json(flag: Flag) -> dict[str, JsonValue]:
    return {**vars(flag), "evidence": dict(flag.evidence)}


def _said(flag: Flag) -> str:
    keys = ("distance", "inliers", "correlation", "covered", "spread", "shares_with", "key_points", "route")
    numbers = ", ".join(f"{key} {flag.evidence[key]}" for key in keys if key in flag.evidence)
    return f"{flag.name} {flag.transform}: {flag.verdict}{f' of {flag.match}' if flag.match else ''} ({numbers})"
