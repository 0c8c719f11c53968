"""Which of four marks in the second picture is the place marked REF in the first.

The second picture is the first one under a known homography (and other light), so the truth is exact. Marks stand at
corners only, since a place without texture cannot be found again; the other candidates are corners, too, far from the
truth and from each other, and none that looks the same.
Worked example: REF at (200, 120); the homography sends it to (231.4, 98.0), where C stands; A, B and D are at least 7 %
of the diagonal away: C.
Stratum: "nearest" where the right candidate is also the one nearest to REF's own position in the frame, "elsewhere"
where another one is; half and half, or the position alone would give the answer away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pydantic import Field

from synth.geometry import Points, apply_homography
from synth.tasks._asking import Asker, Draft, Ledger, Wording, alternate, letter, mapping, number, point, rows
from synth.tasks._places import Flags, gather
from synth.tasks._texture import Corners, corners, likeness
from synth.types import QA, Drop, Mark, Need, Panel, PluginOptions, Provenance, Scene, Skill, Task, WarpedPair, narrow

NAME, VERSION = "visual_correspondence", 1
WORDINGS = (
    Wording(question="Which mark in the second picture shows the place marked REF in the first one?", choice="mark {}"),
    Wording(question="The place called REF in image 1 appears again in image 2. Under which letter?"),
    Wording(question="Find the spot REF of the first picture in the second: which letter is it?", choice="letter {}"),
    Wording(question="Both pictures show one scene. Which lettered mark of the second lies at REF?", choice="mark {}"),
    Wording(question="Where is REF from the first image to be found in the second image?", choice="at {}"),
)
_LABELS = ("A", "B", "C", "D")
_TOLERANCE_PX = 1.0
_TRIES = 24


class Options(PluginOptions):
    """Distances are shares of the second picture's diagonal, the border of each side."""

    per_image: int = Field(2, ge=1, le=16)
    border: float = Field(0.06, ge=0, lt=0.4)
    to_truth: float = Field(0.07, gt=0)
    apart: float = Field(0.06, gt=0)
    look_alike: float = Field(0.9, gt=0, le=1)
    """Normalised correlation of two patches from which they look the same."""
    min_texture: float = Field(5.0, gt=0)
    """Least corner strength, in grey levels."""
    patch: float = Field(0.015, gt=0, lt=0.1)
    """Radius, as a share of the short side, that must be covered in the second picture."""


@dataclass(frozen=True)
class _Candidates:
    """Corners that are visible in both pictures."""

    found: Corners
    index: npt.NDArray[np.int64]
    """(N,) which corner of `found`."""
    here: Points
    there: Points
    frame_here: Points
    """(N, 2) positions as shares of the first picture's sides."""
    frame_there: Points
    diagonal: float
    """Of the second picture, px."""

    def away(self, truth: int) -> npt.NDArray[np.float64]:
        """(N,) how far each candidate is from REF's own position in the frame."""
        return _lengths(self.frame_there - self.frame_here[truth])

    def likeness(self, i: int, j: int) -> float:
        return likeness(self.found, int(self.index[i]), int(self.index[j]))


@dataclass(frozen=True)
class _Set:
    """A point and three others."""

    truth: int
    others: tuple[int, ...]
    alike: float
    """Largest correlation of another one with the truth."""
    kind: str


def generate(scene: Scene, options: PluginOptions, rng: np.random.Generator) -> Iterator[QA | Drop]:
    """Up to `per_image` points, then what fell and why."""
    chosen = narrow(options, Options)
    ledger = Ledger(NAME, scene.view)
    if scene.pair is None:
        ledger.add("no_pair", "no second picture is known for this image")
    else:
        places = _candidates(scene, scene.pair, chosen, ledger)
        asker = Asker(NAME, VERSION, scene.view, rng)
        used: set[int] = set()
        for wanted in alternate("nearest", "elsewhere", chosen.per_image, rng):
            found = _search(places, wanted, used, chosen, rng, ledger)
            if found is None:
                ledger.add("too_few_corners", f"{len(places.index)} corners are visible in both pictures")
                continue
            used.add(found.truth)
            yield asker.ask(_draft(scene.pair, places, found, rng), WORDINGS)
    yield from ledger.drops()


def recompute(provenance: Provenance) -> str:
    """The stored homography sends the stored point to within a pixel of one candidate, and far from all others."""
    measures = provenance.measures
    h = [number(v) for row in rows(measures["homography"]) for v in rows(row)]
    x, y = point(measures["ref_px"])
    w = h[6] * x + h[7] * y + h[8]
    u, v = (h[0] * x + h[1] * y + h[2]) / w, (h[3] * x + h[4] * y + h[5]) / w
    marks = {label: point(place) for label, place in mapping(measures["candidates_px"]).items()}
    error = {label: float(np.hypot(a - u, b - v)) for label, (a, b) in marks.items()}
    nearest, *others = sorted(error, key=error.__getitem__)
    width, height = point(measures["pair_size_px"])
    far = 0.05 * float(np.hypot(width, height))
    if error[nearest] > _TOLERANCE_PX or any(error[label] < far for label in others):
        return ""
    return letter(provenance.options, nearest)


def _candidates(scene: Scene, pair: WarpedPair, options: Options, ledger: Ledger) -> _Candidates:
    height, width = scene.rgb.shape[:2]
    rows_there, columns_there = pair.covered.shape
    found = corners(scene.rgb, options.min_texture)
    there = apply_homography(pair.homography, found.points)
    inside = _within(found.points, width, height, options.border)
    inside &= _within(there, columns_there, rows_there, options.border)
    radius = max(2, round(options.patch * min(rows_there, columns_there)))
    fits = (there >= radius + 1).all(axis=1) & (there < np.array([columns_there, rows_there]) - radius - 1).all(axis=1)
    keep = np.flatnonzero(inside & fits)
    covered = gather(pair.covered, there[keep], radius).all(axis=(1, 2))
    keep = keep[covered]
    ledger.add("out_of_frame", "corner that the second picture does not show", len(found.points) - len(keep))
    return _Candidates(
        found=found,
        index=np.asarray(keep, dtype=np.int64),
        here=found.points[keep],
        there=there[keep],
        frame_here=found.points[keep] / np.array([width, height]),
        frame_there=there[keep] / np.array([columns_there, rows_there]),
        diagonal=float(np.hypot(rows_there, columns_there)),
    )


def _lengths(vectors: Points) -> npt.NDArray[np.float64]:
    return np.asarray(np.hypot(vectors[:, 0], vectors[:, 1]))


def _within(points: Points, width: int, height: int, edge: float) -> Flags:
    size = np.array([width, height])
    return np.asarray((points >= edge * size).all(axis=1) & (points <= (1 - edge) * size).all(axis=1))


def _search(
    places: _Candidates, wanted: str, used: set[int], options: Options, rng: np.random.Generator, ledger: Ledger
) -> _Set | None:
    """A point of the wanted stratum, or of the other one where the picture has none."""
    order = [int(k) for k in rng.permutation(len(places.index))[: _TRIES + len(used)] if int(k) not in used]
    for kind in (wanted, "nearest" if wanted == "elsewhere" else "elsewhere"):
        for truth in order[:_TRIES]:
            found = _others(places, truth, kind, options, rng, ledger)
            if found is not None:
                return found
    return None


def _others(
    places: _Candidates, truth: int, kind: str, options: Options, rng: np.random.Generator, ledger: Ledger
) -> _Set | None:
    """Three other corners; "elsewhere": the first is nearer to REF's position than the truth, "nearest": none is."""
    away = places.away(truth)
    free = _lengths(places.there - places.there[truth]) >= options.to_truth * places.diagonal
    first = free & (away < away[truth]) if kind == "elsewhere" else free & (away >= away[truth])
    rest = free if kind == "elsewhere" else first
    chosen: list[int] = []
    alike: list[float] = []
    for pool, need in ((first, 1), (rest, 3)):
        for k in rng.permutation(np.flatnonzero(pool))[:_TRIES]:
            if len(chosen) == need:
                break
            if (_lengths(places.there[chosen] - places.there[k]) < options.apart * places.diagonal).any():
                continue
            correlation = places.likeness(truth, int(k))
            if correlation > options.look_alike:
                where = places.there[k]
                ledger.add("look_alike", f"({where[0]:.0f}, {where[1]:.0f}) looks like the truth")
                continue
            chosen.append(int(k))
            alike.append(correlation)
        if len(chosen) < need:
            return None
    return _Set(truth, tuple(chosen), max(alike), kind)


def _draft(pair: WarpedPair, places: _Candidates, found: _Set, rng: np.random.Generator) -> Draft:
    order = [(found.truth, *found.others)[k] for k in rng.permutation(len(_LABELS))]
    at = {label: [round(float(v), 2) for v in places.there[k]] for label, k in zip(_LABELS, order, strict=True)}
    ref = [float(v) for v in places.here[found.truth]]
    gaps = _lengths(places.there[list(found.others)] - places.there[found.truth])
    nearest = float(gaps.min()) / places.diagonal
    return Draft(
        skill=Skill.VISUAL_CORRESPONDENCE,
        options=_LABELS,
        right=_LABELS[order.index(found.truth)],
        panels=(
            Panel(image="view", marks=(Mark(label="REF", x=ref[0], y=ref[1]),)),
            Panel(image="pair", marks=tuple(Mark(label=label, x=x, y=y) for label, (x, y) in at.items())),
        ),
        backends=(pair.backend,),
        measures={
            "homography": [[float(v) for v in row] for row in pair.homography],
            "ref_px": ref,
            "candidates_px": at,
            "pair_size_px": [pair.covered.shape[1], pair.covered.shape[0]],
            "nearest_distractor_of_diagonal": round(nearest, 4),
            "most_alike_correlation": round(found.alike, 4),
        },
        difficulty=0.5 * max(0.0, found.alike) + 0.5 * max(0.0, 1 - nearest / 0.4),
        stratum=found.kind,
    )


TASK = Task(
    name=NAME,
    version=VERSION,
    skills=(Skill.VISUAL_CORRESPONDENCE,),
    needs=(Need.PAIR,),
    options=Options,
    generate=generate,
    recompute=recompute,
)
