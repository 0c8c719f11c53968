"""Small experts that answer a benchmark's questions from the pixels alone, to hold a model's failures against.

Their decision rules are ours; BLINK's paper (Fu et al. 2024, arXiv 2404.12390) compares with such experts and does not
publish the rules. Depth: the median of the map in a small disc at each mark. Correspondence: the candidate whose
feature is most alike. Multi-view: the way in which most of the picture moves. A specialist that cannot tell says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from synth.contracts import DepthRunner
from synth.errors import BackendError
from synth.geometry import Points
from synth.perception import _checkpoint
from synth.types import LETTERS, DepthMap, Frame, Item, Mark, MetricDepth, Rgb, Skill

Floats = npt.NDArray[np.float64]
Features: TypeAlias = Callable[[Rgb, Points], Floats]
"""(H, W, 3) and (N, 2) pixels -> (N, V, D): V unit vectors a point, of which the best pair counts."""

NEAREST = frozenset({"closer", "closest", "nearer", "nearest"})
FARTHEST = frozenset({"farther", "farthest", "further", "furthest"})
DISC_SHARE = 1 / 64
DISC = (5.0, 9.0)
"""Diameter of the disc at a mark: that share of the shorter side, within these pixels."""
FLOW_SIDE = 640
"""Pictures are scaled down to this longer side before they are matched."""


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What a specialist is given: pictures without marks, the marks' places, and the item."""

    item: Item
    frames: tuple[Frame, ...]
    marks: tuple[tuple[Mark, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Said:
    """A specialist's letter, or why there is none."""

    letter: str | None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Specialist:
    """An expert for some skills."""

    name: str
    skills: frozenset[Skill]
    labels: Callable[[Item], tuple[tuple[str, ...], ...] | None]
    """The marks that each picture must show; None where the item's options are not understood."""
    answer: Callable[[Sight], Said]


def _mark_labels(item: Item) -> tuple[str, ...] | None:
    """The mark that each option names ("A is closer", "Point B"); None unless each names another one."""
    named = [re.findall(r"\b[A-F]\b", choice) for choice in item.choices]
    labels = [found[0] for found in named if len(found) == 1]
    return tuple(labels) if len(set(labels)) == len(item.choices) else None


# ---------------------------------------------------------------------------------------------------------------- depth


@dataclass(frozen=True, kw_only=True)
class DepthRule:
    """How different two depths must be to be told apart."""

    min_log_ratio: float = 0.05
    """Metres: |ln(farther / nearer)|."""
    min_share: float = 0.02
    """Relative inverse depth: difference as a share of the picture's p0.5 to p99.5 range."""


def depth_specialist(runner: DepthRunner, name: str, rule: DepthRule | None = None) -> Specialist:
    """Answers "which mark is nearer (or farther)" from a loaded depth backend (`synth.plugins.DEPTH`)."""
    return Specialist(
        name=name,
        skills=frozenset({Skill.RELATIVE_DEPTH}),
        labels=lambda item: None if (labels := _mark_labels(item)) is None else (labels,),
        answer=_DepthAnswer(runner, rule or DepthRule()),
    )


class _DepthAnswer:
    """Keeps the map of the last picture: items come picture by picture."""

    def __init__(self, runner: DepthRunner, rule: DepthRule) -> None:
        self._runner, self._rule = runner, rule
        self._last: tuple[str, DepthMap | None] | None = None

    def __call__(self, sight: Sight) -> Said:
        wanted = _wanted_end(sight.item)
        if wanted is None:
            return Said(letter=None, reason="question_unclear")
        depth = self._map(sight.frames[0])
        if depth is None:
            return Said(letter=None, reason="no_depth")
        told = nearness(depth, sight.marks[0], self._rule)
        if told is None:
            return Said(letter=None, reason="no_depth")
        order = sorted(range(len(told)), key=lambda i: told[i], reverse=wanted == "nearest")
        # Both units of `nearness` put the least difference that counts at 1.
        if abs(told[order[0]] - told[order[1]]) < 1:
            return Said(letter=None, reason="inside_margin")
        return Said(letter=LETTERS[order[0]])

    def _map(self, frame: Frame) -> DepthMap | None:
        if self._last is None or self._last[0] != frame.view.image_id:
            self._last = (frame.view.image_id, self._runner([frame])[0])
        return self._last[1]


def nearness(depth: DepthMap, marks: Sequence[Mark], rule: DepthRule) -> list[float] | None:
    """How near each mark is, in units of the least difference that counts; None where a mark has no depth."""
    values = depth.metres if isinstance(depth, MetricDepth) else depth.inverse
    medians = [_disc_median(values, depth.valid, mark) for mark in marks]
    known = [median for median in medians if median is not None]
    if len(known) < len(medians):
        return None
    if isinstance(depth, MetricDepth):
        return [-math.log(median) / rule.min_log_ratio for median in known] if min(known) > 0 else None
    low, high = np.percentile(values[depth.valid], (0.5, 99.5))
    least = rule.min_share * float(high - low)
    return [median / least for median in known] if least > 0 else None


def _disc_median(values: npt.NDArray[np.float32], valid: npt.NDArray[np.bool_], mark: Mark) -> float | None:
    """Median of the valid values in the disc; None where fewer than half of them are."""
    height, width = values.shape
    reach = min(max(DISC_SHARE * min(height, width), DISC[0]), DISC[1]) / 2
    top, left = max(0, math.floor(mark.y - reach)), max(0, math.floor(mark.x - reach))
    part = (slice(top, math.ceil(mark.y + reach)), slice(left, math.ceil(mark.x + reach)))
    rows, columns = np.mgrid[part[0].start : min(part[0].stop, height), part[1].start : min(part[1].stop, width)]
    disc = np.hypot(columns + 0.5 - mark.x, rows + 0.5 - mark.y) <= reach
    good = disc & valid[part] & np.isfinite(values[part])
    return float(np.median(values[part][good])) if good.sum() * 2 >= disc.sum() and good.any() else None


def _wanted_end(item: Item) -> str | None:
    words = set(re.findall(r"[a-z]+", " ".join([item.question, *item.choices]).lower()))
    near, far = bool(words & NEAREST), bool(words & FARTHEST)
    return None if near == far else "nearest" if near else "farthest"


# ------------------------------------------------------------------------------------------------------- correspondence


def point_specialist(features: Features, name: str, min_lead: float = 0.01) -> Specialist:
    """Answers "which point corresponds to REF" by the largest cosine, if it leads the next by `min_lead`."""

    def answer(sight: Sight) -> Said:
        (reference, *_), candidates = sight.marks
        here = features(sight.frames[0].rgb, np.array([[reference.x, reference.y]]))
        there = features(sight.frames[1].rgb, np.array([[mark.x, mark.y] for mark in candidates]))
        cosines = np.einsum("ud,nvd->nuv", here[0], there).reshape(len(candidates), -1).max(axis=1)
        order = np.argsort(-cosines)
        if not cosines[order[0]] - cosines[order[1]] >= min_lead:
            return Said(letter=None, reason="inside_margin")
        return Said(letter=LETTERS[int(order[0])])

    return Specialist(
        name=name,
        skills=frozenset({Skill.VISUAL_CORRESPONDENCE, Skill.SEMANTIC_CORRESPONDENCE}),
        labels=lambda item: None if (labels := _mark_labels(item)) is None else (("REF",), labels),
        answer=answer,
    )


def sift_features(rgb: Rgb, points: Points) -> Floats:
    """SIFT descriptors at given points, (N, 6, 128): three sizes, upright and along the local gradient.

    Lowe (2004); square-rooted as in Arandjelovic and Zisserman (2012), "Three things everyone should know".
    """
    import cv2

    grey = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    scale = min(rgb.shape[:2]) / 480
    keypoints = []
    for index, (x, y) in enumerate(points):
        for variant, size in enumerate((6 * scale, 12 * scale, 24 * scale)):
            turned = _gradient_angle(grey, float(x), float(y), 3 * size)
            for k, angle in enumerate((0.0, turned)):
                number = 6 * index + 2 * variant + k
                keypoints.append(cv2.KeyPoint(float(x) - 0.5, float(y) - 0.5, size, angle, 1.0, 0, number))
    kept, descriptors = cv2.SIFT.create().compute(grey, keypoints)
    found = np.zeros((6 * len(points), 128))
    if descriptors is not None:
        # A descriptor that cannot be computed is left out of the list; it stays zero and is like nothing.
        found[[keypoint.class_id for keypoint in kept]] = np.sqrt(
            descriptors / np.maximum(descriptors.sum(axis=1, keepdims=True), 1e-9)
        )
    return found.reshape(len(points), 6, 128)


def _gradient_angle(grey: npt.NDArray[np.uint8], x: float, y: float, reach: float) -> float:
    """Main direction of the intensity around a point (intensity centroid, Rublee et al. 2011), degrees."""
    rows, columns = np.mgrid[
        max(0, int(y - reach)) : min(grey.shape[0], int(y + reach) + 1),
        max(0, int(x - reach)) : min(grey.shape[1], int(x + reach) + 1),
    ]
    dx, dy = columns + 0.5 - x, rows + 0.5 - y
    inside = np.hypot(dx, dy) <= reach
    values = grey[rows, columns].astype(np.float64) * inside
    return math.degrees(math.atan2(float((values * dy).sum()), float((values * dx).sum()))) % 360


def patch_features(path: str, device: str = "auto") -> Features:
    """Patch features of a vision transformer of `transformers` (DINOv2 and its like) in a local folder or on the hub.

    The picture is stretched to the model's own square input; a point takes its four nearest patches, bilinear. Raises
    BackendError for a checkpoint that cannot be loaded or gives no grid of patches.
    """
    where, default = "specialist", "facebook/dinov2-small"
    checkpoint = _checkpoint.locate(_checkpoint.CheckpointOptions(path=path), where, default)
    import torch
    from transformers import AutoImageProcessor, AutoModel

    try:
        processor = AutoImageProcessor.from_pretrained(checkpoint.folder, local_files_only=True)
        model = AutoModel.from_pretrained(checkpoint.folder, local_files_only=True, use_safetensors=True)
        side, patch = int(model.config.image_size), int(model.config.patch_size)
    except (OSError, ValueError, RuntimeError, AttributeError) as error:
        raise BackendError(
            f"not a vision transformer that transformers can load: {' '.join(str(error).split())[:300]}",
            where=str(checkpoint.folder),
            fix=_checkpoint.advice(path, where, default),
        ) from None
    place = _checkpoint.device_of(device)
    model = model.eval().to(place)
    grid = side // patch

    def features(rgb: Rgb, points: Points) -> Floats:
        inputs = processor(images=rgb, size={"height": side, "width": side}, do_center_crop=False, return_tensors="pt")
        with torch.inference_mode():
            tokens = model(pixel_values=inputs["pixel_values"].to(place)).last_hidden_state[0]
        if len(tokens) < grid * grid:
            raise BackendError(f"{len(tokens)} tokens are no {grid} x {grid} patches", where=str(checkpoint.folder))
        # Class and register tokens come first in every model of this kind.
        patches = tokens[-grid * grid :].reshape(grid, grid, -1).double().cpu().numpy()
        scaled = points * (grid / np.array([rgb.shape[1], rgb.shape[0]])) - 0.5
        vectors = _bilinear(patches, scaled)
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))[:, None]

    return features


def _bilinear(grid: Floats, points: Points) -> Floats:
    """(H, W, D) at (N, 2) positions in cells, clamped to the grid."""
    limits = np.array([grid.shape[1] - 1, grid.shape[0] - 1])
    clamped = np.clip(points, 0, limits)
    first = np.minimum(np.floor(clamped).astype(np.int64), np.maximum(limits - 1, 0))
    (fx, fy), second = (clamped - first).T[:, :, None], np.minimum(first + 1, limits)
    top = grid[first[:, 1], first[:, 0]] * (1 - fx) + grid[first[:, 1], second[:, 0]] * fx
    low = grid[second[:, 1], first[:, 0]] * (1 - fx) + grid[second[:, 1], second[:, 0]] * fx
    return np.asarray(top * (1 - fy) + low * fy)


# ----------------------------------------------------------------------------------------------------------- multi-view


def view_specialist(min_matches: int = 16, min_share: float = 0.005, min_agreement: float = 0.7) -> Specialist:
    """Answers "did the camera move left or right" by the median horizontal displacement of SIFT matches.

    What moves right in the picture was passed by a camera that moved left. Undecided with fewer than `min_matches`
    matches (`few_matches`), and (`inside_margin`) where the median is below `min_share` of the width or fewer than
    `min_agreement` of the matches move its way: around a centred object, front and background move against each other.
    """

    def answer(sight: Sight) -> Said:
        moves = _displacements(sight.frames[0].rgb, sight.frames[1].rgb)
        if len(moves) < min_matches:
            return Said(letter=None, reason="few_matches")
        median = float(np.median(moves))
        agree = float(np.mean(np.sign(moves) == np.sign(median)))
        if abs(median) < min_share or agree < min_agreement:
            return Said(letter=None, reason="inside_margin")
        sides = _sides(sight.item)
        return Said(letter=LETTERS[sides.index("left" if median > 0 else "right")])

    return Specialist(
        name="sift-flow",
        skills=frozenset({Skill.MULTI_VIEW}),
        labels=lambda item: ((), ()) if sorted(_sides(item)) == ["left", "right"] else None,
        answer=answer,
    )


def _sides(item: Item) -> list[str]:
    """The side that each option names, "" for none; clockwise around an object, seen from above, is to the left."""
    sides = []
    for choice in item.choices:
        words = re.findall(r"[a-z-]+", choice.lower().replace("counter clockwise", "counter-clockwise"))
        named = {"left": "left", "right": "right", "clockwise": "left", "counter-clockwise": "right"}
        found = {named[word] for word in words if word in named}
        sides.append(found.pop() if len(found) == 1 else "")
    return sides


def _displacements(first: Rgb, second: Rgb) -> Floats:
    """Horizontal displacement of each ratio-tested match (Lowe 2004), as a share of the width."""
    import cv2

    sift = cv2.SIFT.create(nfeatures=2000)
    described = []
    for rgb in (first, second):
        scale = min(1.0, FLOW_SIDE / max(rgb.shape[:2]))
        small = cv2.resize(rgb, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA) if scale < 1 else rgb
        keypoints, descriptors = sift.detectAndCompute(cv2.cvtColor(small, cv2.COLOR_RGB2GRAY), None)
        described.append((np.array([k.pt[0] / small.shape[1] for k in keypoints]), descriptors))
    (here, a), (there, b) = described
    if a is None or b is None or len(b) < 2:
        return np.zeros(0)
    pairs = cv2.BFMatcher(cv2.NORM_L2).knnMatch(a, b, k=2)
    good = [best for best, next_best in pairs if best.distance < 0.75 * next_best.distance]
    return np.array([there[match.trainIdx] - here[match.queryIdx] for match in good])
