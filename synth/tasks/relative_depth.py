"""Which of two marks is nearer to the camera.

Decided by depth at two flat places. Metres: |ln(depth ratio)|; relative inverse depth: difference as a share of the
image's own p0.5 to p99.5 range. Every member of the depth consensus must give the same order and exceed its margin, or
nothing is asked. "Nearer" is read by some as depth and by others as distance along the ray; with metres both are known,
and both must exceed the margin, so that neither reader is told a falsehood.
Worked example: A at 1.50 m and B at 2.10 m: ln(2.10 / 1.50) = 0.34 > 0.14, so A. A at 1.50 m and B at 1.60 m: silence.
Answers and the lower/higher stratum are drawn half and half, since in photos the lower point is mostly the nearer one.
The choices stand in the order A, B, as in benchmarks of this kind; `swap_share` turns some of them around.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from synth.contracts import Dial, Need, Task, Trial
from synth.geometry import Points
from synth.tasks._asking import Asker, Draft, Ledger, Wording, alternate, is_truth, letter, mapping, numbers, rows
from synth.tasks._depths import Floats, Indices, Member, flat, inverse_range, member_at, ray_factor
from synth.tasks._places import Flags, object_points, on_any, random_points
from synth.types import QA, Drop, Mark, MetricDepth, Panel, PluginOptions, Provenance, Scene, Skill, narrow

NAME, VERSION = "relative_depth", 2
WORDINGS = (
    Wording(question="Of the points A and B, which one is closer to the camera?", choice="point {}"),
    Wording(question="Which of the two marks lies at the smaller distance from the camera?"),
    Wording(question="Points A and B are marked. Which one is closest to the viewer?", choice="{} is closest"),
    Wording(question="Seen from the camera, which mark is in front of the other?", choice="mark {}"),
    Wording(question="Which point has the smaller depth?", choice="point {}"),
    Wording(question="Compare marks A and B: which of them is the nearer one?", choice="mark {}"),
)
DISPLAYS = (
    *("sky", "mirror", "window", "glass", "reflection", "tv", "television", "monitor", "screen", "laptop"),
    *("picture", "painting", "poster", "photo", "cell phone"),
)
"""Where a depth model sees what is shown, reflected or behind instead of the surface. Any word of a label counts."""


class Options(PluginOptions):
    """Lengths are shares of the picture's short side."""

    per_image: int = Field(6, ge=1, le=1024)
    place_uses: int = Field(2, ge=1)
    """Pairs in which one place may stand."""
    margin_metric: float = Field(0.14, gt=0)
    """Least |ln(farther / nearer)|, for depth in metres: 0.14 is 15 %."""
    margin_relative: float = Field(0.15, gt=0)
    """Least difference of inverse depth, as a share of its p0.5 to p99.5 range."""
    margin_metric_higher: float | None = Field(None, gt=0)
    margin_relative_higher: float | None = Field(None, gt=0)
    """The same where the nearer place is the higher one in the picture; None: the same margin. Depth models lean on
    "lower is nearer", so they are wrong more often there."""
    flat_metric: float = Field(1.06, gt=1)
    """Most max / min of the depths around a mark."""
    flat_relative: float = Field(0.06, gt=0)
    """Most span of inverse depth around a mark, as a share of its range."""
    patch: float = Field(0.0157, gt=0, lt=0.1)
    """Radius of the flat place: 2 px at 128."""
    border: float = Field(0.0625, ge=0, lt=0.4)
    min_distance: float = Field(0.156, gt=0)
    min_vertical: float = Field(0.031, ge=0)
    object_share: float = Field(0.6, ge=0, le=1)
    """Share of the points that are looked for on objects, where regions are known."""
    pool: int = Field(40, ge=2, le=200)
    """Most places that pairs are made of."""
    swap_share: float = Field(0.0, ge=0, le=1)
    """Share of the questions whose choices stand in the order B, A."""
    fov_deg: float = Field(60.0, gt=0, lt=180)
    """Horizontal field of view taken for distance along the ray where the camera is unknown."""
    avoid: tuple[str, ...] = DISPLAYS


_TRIALS = 200
"""Random pairs of places of one scene that the yield is measured on."""


@dataclass(frozen=True)
class _Pair:
    near: int
    far: int
    margins: Mapping[str, float]
    """margin_metric, margin_relative: the smallest over the members of that kind."""
    excess: float
    """margin / least margin, the smallest of the members'; above 1."""
    stratum: str


def generate(scene: Scene, options: PluginOptions, rng: np.random.Generator) -> Iterator[QA | Drop]:
    """Up to `per_image` pairs of marks, then what fell and why."""
    chosen = narrow(options, Options)
    ledger = Ledger(NAME, scene.view)
    spans = [inverse_range(depth) for depth in scene.depths]
    points = _places(scene, spans, chosen, rng, ledger)
    if len(points) >= 2:
        members = _members(scene, spans, points, chosen)
        pairs = _pairs(points, members, chosen, min(scene.rgb.shape[:2]), ledger)
        asker = Asker(NAME, VERSION, scene.view, rng)
        taken = _select(pairs, len(points), chosen, rng)
        for pair, nearer in zip(taken, alternate("A", "B", len(taken), rng), strict=True):
            swap = rng.random() < chosen.swap_share
            yield asker.ask(_draft(pair, nearer, points, members, swap=swap), WORDINGS)
    yield from ledger.drops()


def trials(scene: Scene, options: PluginOptions, rng: np.random.Generator) -> Iterator[Trial]:
    """Random pairs that are placed as asked pairs are, and which mark is nearer where they would be asked about."""
    chosen = narrow(options, Options)
    height, width = scene.rgb.shape[:2]
    points = random_points(rng, 4 * _TRIALS, width, height, _border(scene, chosen))
    i, j = np.arange(2 * _TRIALS), np.arange(2 * _TRIALS, 4 * _TRIALS)
    placed = _placed(points, i, j, chosen, min(height, width))
    i, j = i[placed][:_TRIALS], j[placed][:_TRIALS]
    spans = [inverse_range(depth) for depth in scene.depths]
    usable = _usable(scene, spans, points, chosen, Ledger(NAME, scene.view))
    whole = np.flatnonzero(usable[i] & usable[j])
    found = _compare(points, _members(scene, spans, points, chosen), i[whole], j[whole], chosen)
    answers = [""] * len(i)
    for k in np.flatnonzero(~found.against & (found.excess > 1)):
        answers[whole[k]] = "A" if found.signed[0, k] > 0 else "B"
    for first, second, answer in zip(points[i], points[j], answers, strict=True):
        a, b = (Mark(label=label, x=float(x), y=float(y)) for label, (x, y) in (("A", first), ("B", second)))
        yield Trial(marks=(a, b), answer=answer)


def recompute(provenance: Provenance) -> str:
    """Every member's numbers must put the same mark in front; metres must do so along the ray, too."""
    nearer: set[str] = set()
    for member in rows(provenance.measures["members"]):
        fields = mapping(member)
        if "inverse" in fields:
            values = numbers(fields["inverse"])
            nearer.add(max(values, key=values.__getitem__))
            continue
        for name in ("depths_m", "rays_m"):
            metres = numbers(fields[name])
            nearer.add(min(metres, key=metres.__getitem__))
    return letter(provenance.options, nearer.pop()) if len(nearer) == 1 else ""


def _places(scene: Scene, spans: Sequence[float], options: Options, rng: np.random.Generator, ledger: Ledger) -> Points:
    """(<= pool, 2) places that may be asked about; `spans` are the members' ranges."""
    if not scene.depths:
        ledger.add("no_depth", "no depth is known for this image")
        return np.zeros((0, 2))
    height, width = scene.rgb.shape[:2]
    border = _border(scene, options)
    wanted = 6 * options.pool
    on_objects = object_points(scene, rng, round(wanted * options.object_share), border)
    points = np.concatenate([on_objects, random_points(rng, wanted - len(on_objects), width, height, border)])
    points = points[rng.permutation(len(points))]
    return np.asarray(points[_usable(scene, spans, points, options, ledger)][: options.pool])


def _side(scene: Scene) -> int:
    """The picture's short side."""
    return int(min(scene.rgb.shape[:2]))


def _radius(scene: Scene, options: Options) -> int:
    return max(2, round(options.patch * _side(scene)))


def _border(scene: Scene, options: Options) -> float:
    return max(options.border * _side(scene), _radius(scene, options) + 1.0)


def _usable(scene: Scene, spans: Sequence[float], points: Points, options: Options, ledger: Ledger) -> Flags:
    """(N,) True where a place is flat and valid in every member, and shows a surface itself."""
    radius = _radius(scene, options)
    shown = np.zeros(len(points), dtype=np.bool_)
    if not all(is_truth(depth.backend) for depth in scene.depths):
        shown = _on_display(scene, options.avoid, points)
        ledger.add("display_or_sky", "place on a mirror, window, screen, picture or the sky", int(shown.sum()))
    smooth = np.ones(len(points), dtype=np.bool_)
    for depth, span in zip(scene.depths, spans, strict=True):
        limit = options.flat_metric if isinstance(depth, MetricDepth) else options.flat_relative * span
        smooth &= flat(depth, points, radius, limit)
    ledger.add("not_flat", f"place with an edge, a slope or no depth within {radius} px", int((~smooth & ~shown).sum()))
    return np.asarray(smooth & ~shown)


def _on_display(scene: Scene, avoid: Sequence[str], points: Points) -> Flags:
    words = set(avoid)
    items = [region for regions in scene.regions for region in regions.items]
    shown = [r for r in items if r.label in words or words & set(r.label.replace("-", " ").replace("_", " ").split())]
    return on_any(shown, points)


def _members(scene: Scene, spans: Sequence[float], points: Points, options: Options) -> list[Member]:
    rays = ray_factor(scene, points, options.fov_deg)
    return [member_at(depth, points, rays, span) for depth, span in zip(scene.depths, spans, strict=True)]


def _placed(points: Points, i: Indices, j: Indices, options: Options, side: int) -> Flags:
    """True where two places lie far enough apart."""
    gap = np.abs(points[i] - points[j])
    far = np.hypot(gap[:, 0], gap[:, 1]) >= options.min_distance * side
    return np.asarray(far & (gap[:, 1] >= options.min_vertical * side))


@dataclass(frozen=True)
class _Compared:
    """P pairs of places, as M members see them."""

    signed: Floats
    """(M, P) how much nearer the first place is."""
    lower: Flags
    """True where the nearer place is the lower one."""
    excess: Floats
    """margin / least margin, the smallest of the members'."""
    against: Flags
    """True where members give opposite orders. One that says 0, no order at all, is against nobody."""


def _compare(points: Points, members: Sequence[Member], i: Indices, j: Indices, options: Options) -> _Compared:
    signed = np.stack([member.nearer(i, j) for member in members])
    lower = np.asarray((points[i, 1] > points[j, 1]) == (signed[0] > 0))
    least = np.stack([_least(member.metric, lower, options) for member in members])
    against = np.asarray((signed > 0).any(axis=0) & (signed < 0).any(axis=0))
    return _Compared(signed, lower, (np.abs(signed) / least).min(axis=0), against)


def _pairs(points: Points, members: Sequence[Member], options: Options, side: int, ledger: Ledger) -> list[_Pair]:
    """Every pair of places that may be asked."""
    i, j = (np.asarray(index, dtype=np.int64) for index in np.triu_indices(len(points), 1))
    placed = _placed(points, i, j, options, side)
    i, j = i[placed], j[placed]
    found = _compare(points, members, i, j, options)
    inside = ~found.against & (found.excess <= 1)
    ledger.add("members_disagree", _example(points, members, i, j, found.against), int(found.against.sum()))
    ledger.add("inside_margin", _example(points, members, i, j, inside), int(inside.sum()))
    metric = np.array([member.metric for member in members])
    # Hundreds of pairs a photo: one reduction over all of them, not one a pair.
    smallest = {
        name: np.abs(found.signed[kind]).min(axis=0)
        for name, kind in (("margin_metric", metric), ("margin_relative", ~metric))
        if kind.any()
    }
    pairs = []
    for k in np.flatnonzero(~found.against & ~inside):
        near, far = (int(i[k]), int(j[k])) if found.signed[0, k] > 0 else (int(j[k]), int(i[k]))
        margins = {name: round(float(values[k]), 5) for name, values in smallest.items()}
        pairs.append(_Pair(near, far, margins, float(found.excess[k]), "lower" if found.lower[k] else "higher"))
    return pairs


def _least(metric: bool, lower: Flags, options: Options) -> Floats:
    """The margin of each pair, by whether its nearer place is the lower one."""
    own, higher = (
        (options.margin_metric, options.margin_metric_higher)
        if metric
        else (options.margin_relative, options.margin_relative_higher)
    )
    return np.where(lower, own, own if higher is None else higher)


def _example(points: Points, members: Sequence[Member], i: Indices, j: Indices, flags: Flags) -> str:
    """The first flagged pair in words."""
    found = np.flatnonzero(flags)
    if not len(found):
        return ""
    ends = int(i[found[0]]), int(j[found[0]])
    values: list[Floats] = [member.values for member in members]
    return " and ".join(
        f"({points[k][0]:.0f}, {points[k][1]:.0f}): {', '.join(f'{float(v[k]):.3g}' for v in values)}" for k in ends
    )


def _select(pairs: Sequence[_Pair], n_points: int, options: Options, rng: np.random.Generator) -> list[_Pair]:
    """`per_image` pairs, half lower and half higher as far as there are such; no place serves too often."""
    order = [pairs[k] for k in rng.permutation(len(pairs))]
    queues = {name: [pair for pair in order if pair.stratum == name] for name in ("lower", "higher")}
    uses = [0] * n_points
    taken: list[_Pair] = []
    for wanted in alternate("lower", "higher", options.per_image, rng):
        other = "higher" if wanted == "lower" else "lower"
        pair = _next(queues[wanted], uses, options.place_uses) or _next(queues[other], uses, options.place_uses)
        if pair is None:
            break
        taken.append(pair)
    return taken


def _next(queue: list[_Pair], uses: list[int], most: int) -> _Pair | None:
    while queue:
        pair = queue.pop()
        if uses[pair.near] < most and uses[pair.far] < most:
            uses[pair.near] += 1
            uses[pair.far] += 1
            return pair
    return None


def _draft(pair: _Pair, nearer: str, points: Points, members: Sequence[Member], *, swap: bool) -> Draft:
    farther = "B" if nearer == "A" else "A"
    index = {nearer: pair.near, farther: pair.far}
    at = {label: (float(points[index[label]][0]), float(points[index[label]][1])) for label in ("A", "B")}
    return Draft(
        skill=Skill.RELATIVE_DEPTH,
        options=("B", "A") if swap else ("A", "B"),
        right=nearer,
        panels=(Panel(image="view", marks=tuple(Mark(label=label, x=x, y=y) for label, (x, y) in at.items())),),
        backends=tuple(member.backend for member in members),
        measures={
            "points_px": {label: list(place) for label, place in at.items()},
            "members": [member.measures({"A": index["A"], "B": index["B"]}) for member in members],
            **pair.margins,
            "margin_over_least": round(pair.excess, 4),
        },
        difficulty=1 / pair.excess,
        stratum=pair.stratum,
    )


_CLOSED = 100.0
"""No two depths of a picture differ by this."""
_DIALS = tuple(
    Dial(option=kind + suffix, measure=kind, loose=1e-3, stratum=stratum, closed=_CLOSED)
    for kind in ("margin_metric", "margin_relative")
    for stratum, suffix in (("lower", ""), ("higher", "_higher"))
)
TASK = Task(
    name=NAME,
    version=VERSION,
    skills=(Skill.RELATIVE_DEPTH,),
    needs=(Need.DEPTH,),
    options=Options,
    generate=generate,
    recompute=recompute,
    wants=("a photo of a room with furniture at several distances", "a photo of a street with things near and far"),
    strata=("lower", "higher"),
    dials=_DIALS,
    trials=trials,
    twins=(Skill.RELATIVE_DEPTH,),
)
