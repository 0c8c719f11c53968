"""Which of four marks in the second picture is the place marked REF in the first.

The second picture is the first one under a known homography (and other light), so that the truth is exact, or another
photo of the same scene, where a place counts that all matchers agree on (see `_shared`). Marks stand on texture only,
since a place without it cannot be found again; the other candidates are such places, too, far from the truth and from
each other, and none that looks the same. Where the place itself looks like another one of the second photo, nothing is
asked: the matchers may have been misled together.
Worked example: REF at (200, 120); the homography, or each pass of the matcher, sends it to (231.4, 98.0), where C
stands; A, B and D are at least 7 % of the diagonal away: C.
Stratum: how many of the wrong candidates lie nearer to REF's own position in the frame than the right one does, 0 to 3;
each is to be as frequent as the others, or the position alone would give the answer away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from synth.contracts import Need, Task
from synth.tasks._asking import (
    Asker,
    Draft,
    Ledger,
    Wording,
    is_truth,
    letter,
    mapping,
    number,
    point,
    rows,
    text,
)
from synth.tasks._shared import PlaceOptions, Shared, lengths, model_measures, motion, of_photos, of_warp
from synth.types import (
    QA,
    Drop,
    JsonValue,
    Mark,
    Panel,
    PluginOptions,
    Provenance,
    Scene,
    SecondView,
    Skill,
    WarpedPair,
    narrow,
)

NAME, VERSION = "visual_correspondence", 2
WORDINGS = (
    Wording(question="Which mark in the second picture shows the place marked REF in the first one?", choice="mark {}"),
    Wording(question="The place called REF in image 1 appears again in image 2. Under which letter?"),
    Wording(question="Find the spot REF of the first picture in the second: which letter is it?", choice="letter {}"),
    Wording(question="Both pictures show one scene. Which lettered mark of the second lies at REF?", choice="mark {}"),
    Wording(question="Where is REF from the first image to be found in the second image?", choice="at {}"),
)
_LABELS = ("A", "B", "C", "D")
_TOLERANCE_PX = 1.0
_FAR = 0.05
_WIDEST = 0.01
_TRIES = 200
"""Sets that are drawn for one question."""


class Options(PlaceOptions):
    """Distances are shares of the second picture's diagonal."""

    per_image: int = Field(4, ge=1, le=64)
    """Of each pair of pictures."""
    apart: float = Field(0.06, gt=0)
    like_motion: float | None = Field(0.02, gt=0)
    """How well a wrong candidate's distance from REF's own position must fit the way of some place, in shares of the
    sides; nothing is asked where places move too little for that. None: they may lie anywhere, and the position alone
    mostly tells the truth: for measuring labels, not for training."""


@dataclass(frozen=True)
class _Set:
    """A place and three others."""

    truth: int
    others: tuple[int, ...]
    alike: float
    """Largest correlation of another one with the truth."""
    repeated: float | None
    """Largest correlation of the truth with a place elsewhere in the second photo."""
    nearer: int
    """How many of the others lie nearer to REF's own position than the truth."""


def generate(scene: Scene, options: PluginOptions, rng: np.random.Generator) -> Iterator[QA | Drop]:
    """Up to `per_image` questions of each pair of pictures, then what fell and why."""
    chosen = narrow(options, Options)
    ledger = Ledger(NAME, scene.view)
    asker = Asker(NAME, VERSION, scene.view, rng)
    if scene.pair is None and not any(second.matches for second in scene.seconds):
        ledger.add("no_pair", "no second picture is known for this image")
    if scene.pair is not None:
        places = of_warp(scene, scene.pair, chosen, ledger)
        for found in _sets(places, chosen, rng, ledger):
            yield asker.ask(_draft(places, found, _warp_facts(scene.pair), "pair", 0, rng), WORDINGS)
    for index, second in enumerate(scene.seconds):
        if not second.matches:
            continue
        if not len(second.matches[0].here):
            ledger.add("no_overlap", f"nothing, or one small part only, relates {second.view.name} to this photo")
            continue
        places = of_photos(scene, second, chosen, ledger)
        if len(places.index) and motion(places) < chosen.least_motion:
            ledger.add("same_view", f"{second.view.name} shows everything where this photo does")
            continue
        for found in _sets(places, chosen, rng, ledger):
            facts = _photo_facts(second, places, found.truth, chosen)
            yield asker.ask(_draft(places, found, facts, "second", index, rng), WORDINGS)
    yield from ledger.drops()


def recompute(provenance: Provenance) -> str:
    """The candidate where the stored homography, or every stored member, puts REF, far from all others."""
    measures = provenance.measures
    marks = {label: point(place) for label, place in mapping(measures["candidates_px"]).items()}
    diagonal = float(np.hypot(*point(measures["pair_size_px"])))
    if "homography" in measures:
        told = [_mapped(measures["homography"], point(measures["ref_px"]))]
        tolerance = _TOLERANCE_PX
    else:
        told = [point(place) for place in mapping(measures["members_px"]).values()]
        tolerance = number(measures["tolerance_px"])
        if tolerance > _WIDEST * diagonal or not _model_allows(measures, tolerance):
            return ""
        if len(told) < 2 and not all(is_truth(backend) for backend in provenance.backends):
            return ""  # one pass alone has nobody to confirm it
    named = set()
    for x, y in told:
        error = {label: float(np.hypot(a - x, b - y)) for label, (a, b) in marks.items()}
        nearest, *others = sorted(error, key=error.__getitem__)
        if error[nearest] > tolerance or any(error[label] < _FAR * diagonal for label in others):
            return ""
        named.add(nearest)
    return letter(provenance.options, named.pop()) if len(named) == 1 else ""


def _mapped(matrix: JsonValue, place: tuple[float, float]) -> tuple[float, float]:
    h = [number(v) for row in rows(matrix) for v in rows(row)]
    x, y = place
    w = h[6] * x + h[7] * y + h[8]
    return (h[0] * x + h[1] * y + h[2]) / w, (h[3] * x + h[4] * y + h[5]) / w


def _model_allows(measures: Mapping[str, JsonValue], tolerance: float) -> bool:
    """Whether the plain pass's place agrees with the stored homography, or lies on its epipolar line."""
    model, ref = text(measures["model"]), point(measures["ref_px"])
    u, v = point(mapping(measures["members_px"])["plain"])
    if model == "homography":
        x, y = _mapped(measures["model_matrix"], ref)
        return bool(np.hypot(x - u, y - v) <= tolerance)
    if model == "fundamental":
        a, b, c = (
            sum(number(m) * p for m, p in zip(rows(row), (*ref, 1.0), strict=True))
            for row in rows(measures["model_matrix"])
        )
        return bool(abs(a * u + b * v + c) <= tolerance * np.hypot(a, b))
    return model == "exact"


def _sets(places: Shared, options: Options, rng: np.random.Generator, ledger: Ledger) -> Iterator[_Set]:
    used: set[int] = set()
    for _ in range(options.per_image):
        found = _search(places, used, options, rng, ledger)
        if found is None:
            ledger.add("too_few_corners", f"{len(places.index)} places are visible in both pictures")
            return
        used.add(found.truth)
        yield found


def _search(places: Shared, used: set[int], options: Options, rng: np.random.Generator, ledger: Ledger) -> _Set | None:
    """A place that looks like no other one, with three others.

    Whatever does not fit, the whole set is drawn anew: to try again for one candidate alone would favour those that lie
    far out, and the distance would tell them from the truth.
    """
    free = [k for k in range(len(places.index)) if k not in used]
    repeated: dict[int, float | None] = {}
    for _ in range(_TRIES if free else 0):
        truth = free[int(rng.integers(len(free)))]
        if truth not in repeated:
            repeated[truth] = places.repeats.likest(truth) if places.repeats else None
            if (repeated[truth] or 0.0) > options.look_alike:
                x, y = places.there[truth]
                ledger.add("repeats", f"({x:.0f}, {y:.0f}) of the second photo looks like another place of it")
        if (repeated[truth] or 0.0) > options.look_alike:
            continue
        found = _others(places, truth, options, rng, ledger)
        if found is not None:
            others, alike = found
            away = places.away(truth)
            return _Set(truth, others, alike, repeated[truth], int((away[list(others)] < away[truth]).sum()))
    return None


def _others(
    places: Shared, truth: int, options: Options, rng: np.random.Generator, ledger: Ledger
) -> tuple[tuple[int, ...], float] | None:
    """Three other places and their largest likeness to the truth.

    Each lies as far from REF's own position as some place of this pair moves from picture to picture: else the distance
    would tell the truth, which moves as places do, from places that are picked anywhere.
    """
    away = places.away(truth)
    free = lengths(places.there - places.there[truth]) >= options.to_truth * places.diagonal
    chosen: list[int] = []
    alike: list[float] = []
    for wanted in rng.choice(places.ways, len(_LABELS) - 1):
        like = free if options.like_motion is None else free & (np.abs(away - wanted) <= options.like_motion)
        fits = np.flatnonzero(like)
        if not len(fits):
            return None
        k = int(rng.choice(fits))
        if (lengths(places.there[chosen] - places.there[k]) < options.apart * places.diagonal).any():
            return None
        correlation = places.likeness(truth, k)
        if correlation > options.look_alike:
            where = places.there[k]
            ledger.add("look_alike", f"({where[0]:.0f}, {where[1]:.0f}) looks like the truth")
            return None
        chosen.append(k)
        alike.append(correlation)
    return tuple(chosen), max(alike)


def _warp_facts(pair: WarpedPair) -> tuple[tuple[str, ...], dict[str, JsonValue]]:
    """Backends and the numbers that decide, for a warped copy."""
    return (pair.backend,), {"route": "warp", "homography": [[float(v) for v in row] for row in pair.homography]}


def _photo_facts(
    second: SecondView, places: Shared, truth: int, options: Options
) -> tuple[tuple[str, ...], dict[str, JsonValue]]:
    """The same for another photo."""
    plain = second.matches[0]
    backends = tuple(dict.fromkeys(member.backend for member in second.matches))
    return backends, {
        "route": "photos",
        **model_measures(plain),
        "members_px": {name: [round(float(v), 2) for v in points[truth]] for name, points in places.members.items()},
        "tolerance_px": round(options.tolerance * places.diagonal, 2),
        "second_photo": second.view.name,
    }


def _draft(
    places: Shared,
    found: _Set,
    facts: tuple[tuple[str, ...], dict[str, JsonValue]],
    image: Literal["pair", "second"],
    number_of: int,
    rng: np.random.Generator,
) -> Draft:
    backends, measures = facts
    order = [(found.truth, *found.others)[k] for k in rng.permutation(len(_LABELS))]
    at = {label: [round(float(v), 2) for v in places.there[k]] for label, k in zip(_LABELS, order, strict=True)}
    ref = [float(v) for v in places.here[found.truth]]
    gaps = lengths(places.there[list(found.others)] - places.there[found.truth])
    nearest = float(gaps.min()) / places.diagonal
    repeated = {} if found.repeated is None else {"most_alike_elsewhere_correlation": round(found.repeated, 4)}
    return Draft(
        skill=Skill.VISUAL_CORRESPONDENCE,
        options=_LABELS,
        right=_LABELS[order.index(found.truth)],
        panels=(
            Panel(image="view", marks=(Mark(label="REF", x=ref[0], y=ref[1]),)),
            Panel(
                image=image,
                marks=tuple(Mark(label=label, x=x, y=y) for label, (x, y) in at.items()),
                number=number_of,
            ),
        ),
        backends=backends,
        measures={
            **measures,
            "ref_px": ref,
            "candidates_px": at,
            "pair_size_px": list(places.size_there),
            "nearest_distractor_of_diagonal": round(nearest, 4),
            "most_alike_correlation": round(found.alike, 4),
            **repeated,
        },
        difficulty=0.5 * max(0.0, found.alike) + 0.5 * max(0.0, 1 - nearest / 0.4),
        stratum=f"{found.nearer} nearer",
    )


TASK = Task(
    name=NAME,
    version=VERSION,
    skills=(Skill.VISUAL_CORRESPONDENCE,),
    needs=(Need.PAIR,),
    strata=tuple(f"{n} nearer" for n in range(len(_LABELS))),
    options=Options,
    generate=generate,
    recompute=recompute,
    wants=("a photo of a place with many details", "a photo of a building with windows"),
)
