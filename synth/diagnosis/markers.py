"""Finds the circles and letters that a benchmark has burned into its pictures, without any trained model.

BLINK marks points by small saturated circles with a letter (or REF) beside each, and publishes no coordinates. Circles
are round holes or round blobs in the pixels of one hue; letters are connected shapes of one colour beside a circle,
compared with rendered glyphs. A wrong position is worse than none: unless every expected label is found exactly once,
all in one style (circle size, letter height, letter colour), the search says `marks_not_found`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from synth.diagnosis.glyphs import READABLE, read_letter
from synth.types import Box, Mark, Mask, Rgb

NOT_FOUND = "marks_not_found"
WORKING_SIDE = 400
"""Pictures with a shorter side below this are enlarged by a whole factor, or a letter has too few pixels to be read."""
CHROMA = (80, 150, 215, 245)
"""Least max - min of a coloured pixel's channels: the lowest bears JPEG's chroma blur, the highest a coloured scene."""
PURE, PURE_DISC = 140, 200
"""Least chroma of a circle's colour: what is drawn is purer than what is seen; JPEG takes more from a thin outline."""
HUE_STEP, HUE_REACH = 15, 12
"""Hues are looked at in overlapping windows; units of OpenCV's hue, 2 degrees."""
MIN_RADIUS, MAX_RADIUS = 4.0, 60.0
ROUNDNESS = 0.06
"""Most relative spread of a circle's radius, besides what rasterisation adds."""
MOST_SHADING = 14.0
"""Standard deviation of a disc's colour, grey levels a channel."""
LETTER_COLOURS = ((255, 255, 255), (255, 255, 0), (0, 0, 0), (255, 0, 0))
"""Besides the circle's own colour."""
COLOUR_DISTANCES = (70.0, 120.0, 170.0)
"""Radii around a letter's colour, in RGB units."""
MOST_HEIGHT = 2.6
"""Of a letter, in radii of its circle."""
SAME_RADIUS, SAME_HEIGHT = 1.35, 1.3
"""Largest ratio between the marks of one picture."""
MOST_CIRCLES = 80
_DETAIL = 3

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class FoundMark:
    """A mark read off a picture; pixels of that picture."""

    mark: Mark
    radius: float
    """Outer radius of the circle."""
    thickness: float
    """Of the outline; the radius for a filled disc."""
    letters: Box
    confidence: float
    """0..1: how well letters and circle fit their models; not a probability."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """Every expected label, or none and why."""

    marks: tuple[FoundMark, ...]
    reason: str = ""
    detail: str = ""


@dataclass(frozen=True)
class _Circle:
    x: float
    y: float
    radius: float
    thickness: float
    filled: bool
    residual: float
    colour: tuple[int, int, int]


@dataclass(frozen=True)
class _Glyph:
    label: str
    box: Box
    score: float


@dataclass(frozen=True)
class _Candidate:
    """A label beside a circle."""

    circle: int
    glyph: _Glyph
    style: int
    """Index of the letter's colour; 0: the circle's own."""


def find_marks(rgb: Rgb, labels: Sequence[str]) -> Search:
    """Positions of the expected labels ("A" to "F", "REF") in an (H, W, 3) picture, in their order.

    Raises ValueError for a label that has no glyph model.
    """
    unknown = sorted({label for label in labels if not label or not set(label) <= READABLE})
    if unknown:
        raise ValueError(f"no glyphs for the labels {', '.join(unknown)}")
    if not labels:
        return Search(marks=())
    factor = max(1, math.ceil(WORKING_SIDE / min(rgb.shape[:2])))
    picture = _enlarged(rgb, factor)
    circles = _circles(picture)
    if len(circles) < len(labels):
        return Search(marks=(), reason=NOT_FOUND, detail=f"{len(circles)} circles for {len(labels)} labels")
    candidates: list[_Candidate] = []
    for index, circle in enumerate(circles):
        if sum(_alike(circle.radius, other.radius, SAME_RADIUS) for other in circles) < len(labels):
            continue
        candidates += _beside(picture, circles, index, set(labels), max(1, round(_DETAIL / factor)))
    told = _solve(candidates, circles, labels)
    if isinstance(told, str):
        return Search(marks=(), reason=NOT_FOUND, detail=f"{told}; {len(circles)} circles seen")
    return Search(marks=tuple(_found(candidate, circles[candidate.circle], factor) for candidate in told))


def erase(rgb: Rgb, marks: Sequence[FoundMark]) -> Rgb:
    """The picture with circles and letters painted over from their surroundings.

    Telea (2004), "An image inpainting technique based on the fast marching method"; the inside of an outline stays.
    """
    import cv2

    if not marks:
        return rgb
    cover = np.zeros(rgb.shape[:2], dtype=np.bool_)
    for found in marks:
        cover |= _covered(found, rgb.shape[1], rgb.shape[0])
    return np.asarray(cv2.inpaint(rgb, cover.astype(np.uint8), 3, cv2.INPAINT_TELEA), dtype=np.uint8)


def _covered(found: FoundMark, width: int, height: int) -> Mask:
    rows, columns = np.mgrid[0:height, 0:width] + 0.5
    away = np.hypot(columns - found.mark.x, rows - found.mark.y)
    # Soft edges, dark outlines and chroma blur reach a little beyond what was recognised as the circle.
    soft = 1.5 + 0.12 * found.radius
    ring = (away <= found.radius + soft) & (away >= found.radius - found.thickness - soft)
    x1, y1, x2, y2 = found.letters
    box = (columns > x1 - 2.5) & (columns < x2 + 2.5) & (rows > y1 - 2.5) & (rows < y2 + 2.5)
    return np.asarray(ring | box, dtype=np.bool_)


def _enlarged(rgb: Rgb, factor: int) -> Rgb:
    if factor == 1:
        return rgb
    size = (rgb.shape[1] * factor, rgb.shape[0] * factor)
    return np.asarray(Image.fromarray(rgb).resize(size, Image.Resampling.BICUBIC))


# -------------------------------------------------------------------------------------------------------------- circles


def _circles(rgb: Rgb) -> list[_Circle]:
    """Outlines and discs of one hue, the roundest first, each once."""
    import cv2

    hsv = cv2.cvtColor(rgb, cv2.COLOR_RGB2HSV)
    chroma = rgb.max(axis=2).astype(np.int16) - rgb.min(axis=2)
    found: list[_Circle] = []
    for hue in range(0, 180, HUE_STEP):
        away = np.abs((hsv[:, :, 0].astype(np.int16) - hue + 90) % 180 - 90)
        for least in CHROMA:
            mask = (away <= HUE_REACH) & (chroma >= least)
            if mask.sum() > MIN_RADIUS**2:
                found += _round_shapes(mask, rgb)
    kept: list[_Circle] = []
    for circle in sorted(found, key=lambda c: c.residual):
        if all(math.hypot(circle.x - k.x, circle.y - k.y) > 2 + 0.25 * k.radius for k in kept):
            kept.append(circle)
    return kept[:MOST_CIRCLES]


def _round_shapes(mask: Mask, rgb: Rgb) -> Iterator[_Circle]:
    import cv2

    contours, tree = cv2.findContours(mask.astype(np.uint8), cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE)
    if tree is None:
        return
    for contour, (_, _, child, parent) in zip(contours, tree[0], strict=True):
        if not 8 <= len(contour) <= 8 * MAX_RADIUS:
            continue
        fit = _fit(np.asarray(contour, dtype=np.float64).reshape(-1, 2) + 0.5)
        if fit is None:
            continue
        x, y, radius, residual = fit
        if parent >= 0:
            thickness = _wall(mask, x, y, radius)
            if thickness is None:
                continue
            outer, filled = radius + thickness - 0.5, False
        elif child < 0 and _is_lone(mask, x, y, radius) and _is_even(rgb, x, y, 0.7 * radius):
            outer, thickness, filled = radius + 0.5, radius + 0.5, True
        else:
            continue
        colour = _colour(rgb, mask, x, y, outer)
        if max(colour) - min(colour) >= (PURE_DISC if filled else PURE):
            yield _Circle(x, y, outer, thickness, filled, residual, colour)


def _fit(points: Floats) -> tuple[float, float, float, float] | None:
    """Centre, radius and relative residual of a closed contour (N, 2) that is a circle; None where it is none."""
    spans = np.ptp(points, axis=0)
    if min(spans) < 1.4 * MIN_RADIUS - 2 or max(spans) > 1.25 * min(spans) + 2:
        return None
    # Kasa's algebraic fit: linear, and unbiased for a whole circle.
    system = np.column_stack([2 * points, np.ones(len(points))])
    (x, y, rest), *_ = np.linalg.lstsq(system, (points**2).sum(axis=1), rcond=None)
    radius = math.sqrt(max(0.0, rest + x * x + y * y))
    if not MIN_RADIUS - 1 <= radius <= MAX_RADIUS:
        return None
    away = np.hypot(points[:, 0] - x, points[:, 1] - y)
    spread = float(np.sqrt(np.mean((away - radius) ** 2)))
    angles = np.sort(np.arctan2(points[:, 1] - y, points[:, 0] - x))
    gap = float(np.max(np.diff(np.concatenate([angles, angles[:1] + 2 * math.pi]))))
    if spread > ROUNDNESS * radius + 0.33 or gap > 0.8:
        return None
    return float(x), float(y), radius, spread / radius


def _profile(mask: Mask, x: float, y: float, radii: Floats) -> npt.NDArray[np.bool_]:
    """The mask along 48 rays, (48, radii); outside the picture there is nothing."""
    angles = np.arange(48) * (2 * math.pi / 48)
    columns = np.floor(x + np.outer(np.cos(angles), radii)).astype(np.int64)
    rows = np.floor(y + np.outer(np.sin(angles), radii)).astype(np.int64)
    inside = (columns >= 0) & (rows >= 0) & (columns < mask.shape[1]) & (rows < mask.shape[0])
    return np.asarray(inside & mask[rows.clip(0, mask.shape[0] - 1), columns.clip(0, mask.shape[1] - 1)])


def _wall(mask: Mask, x: float, y: float, radius: float) -> float | None:
    """Thickness of the outline around a round hole; None where most of it is no thin wall of even thickness."""
    steps = np.arange(0.0, radius + 3.0, 0.5)
    ends = ~_profile(mask, x, y, radius + steps)
    # The hole's contour runs through pixels of the wall, so the first steps may still lie in the hole.
    ends[:, :2] = False
    closed = ends.any(axis=1)
    if closed.mean() < 0.6:
        return None
    lengths = steps[ends.argmax(axis=1)][closed]
    median = float(np.median(lengths))
    even = np.abs(lengths - median) <= 1.5 + 0.3 * median
    return median if even.sum() >= 0.55 * len(ends) else None


def _is_lone(mask: Mask, x: float, y: float, radius: float) -> bool:
    around = _profile(mask, x, y, np.array([radius + 2.0]))
    return bool(around.mean() < 0.25)


def _is_even(rgb: Rgb, x: float, y: float, radius: float) -> bool:
    """The disc has one colour, which round things of a scene seldom have: they are shaded."""
    reach = math.ceil(radius)
    rows, columns = np.mgrid[int(y) - reach : int(y) + reach + 1, int(x) - reach : int(x) + reach + 1]
    rows, columns = rows.clip(0, rgb.shape[0] - 1), columns.clip(0, rgb.shape[1] - 1)
    inside = np.hypot(columns + 0.5 - x, rows + 0.5 - y) <= radius
    return float(rgb[rows[inside], columns[inside]].std(axis=0).max()) <= MOST_SHADING


def _colour(rgb: Rgb, mask: Mask, x: float, y: float, radius: float) -> tuple[int, int, int]:
    """The circle's purest colour: the median of its more saturated half."""
    reach = math.ceil(radius) + 1
    rows = slice(max(0, int(y) - reach), int(y) + reach + 1)
    columns = slice(max(0, int(x) - reach), int(x) + reach + 1)
    pixels = rgb[rows, columns][mask[rows, columns]].astype(np.int64)
    chroma = pixels.max(axis=1) - pixels.min(axis=1)
    red, green, blue = np.median(pixels[chroma >= np.median(chroma)], axis=0)
    return int(red), int(green), int(blue)


# -------------------------------------------------------------------------------------------------------------- letters


def _beside(
    picture: Rgb, circles: Sequence[_Circle], index: int, labels: set[str], detail: int
) -> Iterator[_Candidate]:
    """Labels that stand beside a circle and near to no other."""
    circle = circles[index]
    longest = max(len(label) for label in labels)
    reach = math.ceil(2.8 * circle.radius + (8 + 18 * longest) * max(1.0, min(picture.shape[:2]) / 480))
    left, top = max(0, int(circle.x) - reach), max(0, int(circle.y) - reach)
    window = picture[top : int(circle.y) + reach + 1, left : int(circle.x) + reach + 1]
    large = _enlarged(window, detail).astype(np.float32)
    lengths = np.einsum("hwc,hwc->hw", large, large)
    origin = (left, top)
    rows, columns = (np.mgrid[0 : large.shape[0], 0 : large.shape[1]] + 0.5) / detail
    own = np.hypot(columns + left - circle.x, rows + top - circle.y) <= circle.radius + 0.5
    colours = [circle.colour, *LETTER_COLOURS]
    for style, colour in enumerate(colours):
        if style and math.dist(colour, circle.colour) < 60:
            continue
        wanted = np.asarray(colour, dtype=np.float32)
        squared = lengths - 2 * (large @ wanted) + float(wanted @ wanted)
        for limit in COLOUR_DISTANCES:
            glyphs = list(_glyphs((squared < limit * limit) & ~own, origin, detail, circle))
            for glyph in _words(glyphs, labels):
                if _belongs(glyph, circles, index):
                    yield _Candidate(index, glyph, style)


def _glyphs(mask: Mask, origin: tuple[int, int], detail: int, circle: _Circle) -> Iterator[_Glyph]:
    """Connected shapes of a letter's size and form that read as one of the readable letters."""
    import cv2

    _, ids, stats, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=8)
    sizes = stats[:, cv2.CC_STAT_HEIGHT] / detail
    ratios = stats[:, cv2.CC_STAT_WIDTH] / stats[:, cv2.CC_STAT_HEIGHT]
    areas = stats[:, cv2.CC_STAT_AREA] / (stats[:, cv2.CC_STAT_WIDTH] * stats[:, cv2.CC_STAT_HEIGHT])
    tall = MOST_HEIGHT * circle.radius
    fits = (sizes >= 5) & (sizes <= tall) & (ratios > 0.3) & (ratios < 1.5) & (areas > 0.12) & (areas < 0.8)
    fits &= (stats[:, 0] > 0) & (stats[:, 1] > 0)
    fits &= (stats[:, 0] + stats[:, 2] < mask.shape[1]) & (stats[:, 1] + stats[:, 3] < mask.shape[0])
    fits[0] = False
    for number in np.flatnonzero(fits):
        x, y, width, height = (int(v) for v in stats[number, :4])
        shape = ids[y : y + height, x : x + width] == number
        read = read_letter(shape)
        if read is not None:
            label, score = read
            x1, y1 = origin[0] + x / detail, origin[1] + y / detail
            yield _Glyph(label, (x1, y1, x1 + width / detail, y1 + height / detail), score)


def _words(glyphs: Sequence[_Glyph], labels: set[str]) -> Iterator[_Glyph]:
    """Single letters that are labels, and rows of letters that spell one."""
    for label in labels:
        if len(label) == 1:
            lone = [glyph for glyph in glyphs if glyph.label == label]
            yield from (glyph for glyph in lone if not any(_follows(glyph, o) or _follows(o, glyph) for o in glyphs))
            continue
        for first in (glyph for glyph in glyphs if glyph.label == label[0]):
            row = [first]
            for letter in label[1:]:
                row += [g for g in glyphs if g.label == letter and _follows(row[-1], g)][:1]
            if len(row) == len(label):
                boxes = np.array([glyph.box for glyph in row])
                box = (*boxes[:, :2].min(axis=0).tolist(), *boxes[:, 2:].max(axis=0).tolist())
                yield _Glyph(label, box, min(glyph.score for glyph in row))


def _follows(first: _Glyph, second: _Glyph) -> bool:
    """The second letter stands to the right of the first on one line, close enough for a word."""
    height = first.box[3] - first.box[1]
    level = abs(first.box[3] - second.box[3]) <= 0.2 * height and abs(first.box[1] - second.box[1]) <= 0.2 * height
    return level and -0.1 * height <= second.box[0] - first.box[2] <= 0.6 * height


def _belongs(glyph: _Glyph, circles: Sequence[_Circle], index: int) -> bool:
    """The label is within reach of the circle, and clearly nearer to it than to any other."""
    mine = circles[index]
    gap = _gap(glyph.box, mine)
    height = glyph.box[3] - glyph.box[1]
    if not -0.15 * mine.radius <= gap <= 0.4 * mine.radius + 0.8 * height:
        return False
    rivals = [c for i, c in enumerate(circles) if i != index and not _holds(glyph.box, c)]
    # A round thing of the scene may be nearer to the letter than the circle that was drawn for it.
    return all(_gap(glyph.box, rival) > max(gap, 0.0) + 0.8 * height for rival in rivals)


def _gap(box: Box, circle: _Circle) -> float:
    """Pixels between a box and the circle's outer edge."""
    dx = max(box[0] - circle.x, circle.x - box[2], 0.0)
    dy = max(box[1] - circle.y, circle.y - box[3], 0.0)
    return math.hypot(dx, dy) - circle.radius


def _holds(box: Box, circle: _Circle) -> bool:
    """The "circle" is the round part of the letter itself."""
    return box[0] <= circle.x <= box[2] and box[1] <= circle.y <= box[3]


def _alike(a: float, b: float, ratio: float) -> bool:
    return max(a, b) <= ratio * min(a, b)


# ------------------------------------------------------------------------------------------------------------- solution


def _solve(
    candidates: Sequence[_Candidate], circles: Sequence[_Circle], labels: Sequence[str]
) -> tuple[_Candidate, ...] | str:
    """The one way to place every label in one style, or why there is none."""
    best: dict[tuple[str, int, int], _Candidate] = {}
    for candidate in candidates:
        key = (candidate.glyph.label, candidate.circle, candidate.style)
        if key not in best or candidate.glyph.score > best[key].glyph.score:
            best[key] = candidate
    options = [[c for c in best.values() if c.glyph.label == label] for label in labels]
    missing = [label for label, found in zip(labels, options, strict=True) if not found]
    if missing:
        return f"no circle with {', '.join(missing)} beside it"
    if math.prod(len(found) for found in options) > 5000:
        return "too many shapes look like letters beside circles"
    solutions: dict[tuple[int, ...], tuple[_Candidate, ...]] = {}
    for chosen in itertools.product(*options):
        if _one_style(chosen, circles):
            places = tuple(candidate.circle for candidate in chosen)
            if places not in solutions or _worth(chosen) > _worth(solutions[places]):
                solutions[places] = chosen
    if len(solutions) == 1:
        return next(iter(solutions.values()))
    return f"{len(solutions)} ways to place the labels in one style" if solutions else "the labels differ in style"


def _one_style(chosen: Sequence[_Candidate], circles: Sequence[_Circle]) -> bool:
    used = [circles[candidate.circle] for candidate in chosen]
    heights = [candidate.glyph.box[3] - candidate.glyph.box[1] for candidate in chosen]
    radii = [circle.radius for circle in used]
    return (
        len({candidate.circle for candidate in chosen}) == len(chosen)
        and len({candidate.style for candidate in chosen}) == 1
        and len({circle.filled for circle in used}) == 1
        and max(radii) <= SAME_RADIUS * min(radii)
        and max(heights) <= SAME_HEIGHT * min(heights)
    )


def _worth(chosen: Sequence[_Candidate]) -> float:
    return sum(candidate.glyph.score for candidate in chosen)


def _found(candidate: _Candidate, circle: _Circle, factor: int) -> FoundMark:
    x1, y1, x2, y2 = (value / factor for value in candidate.glyph.box)
    return FoundMark(
        mark=Mark(label=candidate.glyph.label, x=circle.x / factor, y=circle.y / factor),
        radius=circle.radius / factor,
        thickness=circle.thickness / factor,
        letters=(x1, y1, x2, y2),
        confidence=candidate.glyph.score * max(0.0, 1 - circle.residual),
    )
