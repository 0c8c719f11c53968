"""Objects from any ONNX detector that a small YAML describes (see `synth.perception._onnx`).

Two decoders: `yolox`, anchor-free grids as exported by YOLOX without its decoding (Ge et al., arXiv 2107.08430), and
`boxes_scores`, end-to-end models that give boxes, scores and class indices themselves (RT-DETR, D-FINE and the like).
Thresholds that decide are a task's; `min_score` only keeps the lists short.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pydantic import Field

from synth.contracts import RegionBackend
from synth.errors import BackendError
from synth.perception._onnx import DetectSpec, Model, OnnxOptions, Placed, Tensor, describe, open_model, place
from synth.types import Frame, PluginOptions, Region, Regions, narrow

WHERE = "perception.regions"
Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


class Options(OnnxOptions):
    """Which model, how it is run, and which boxes are worth keeping."""

    min_score: float = Field(default=0.05, ge=0, le=1)
    """Boxes below are not listed at all."""


def identity(options: PluginOptions) -> str:
    """Model file, its sha256, its description, the execution providers and the score floor. Raises BackendError."""
    chosen = narrow(options, Options)
    return f"{describe(chosen, WHERE)[1]}:{chosen.min_score:g}"


def load(options: PluginOptions) -> _Runner:
    """Open the model. Raises BackendError for a missing package, model or description."""
    chosen = narrow(options, Options)
    spec, _ = describe(chosen, WHERE)
    if spec.detect is None:
        raise BackendError("the model's description has no `detect` section", where=str(chosen.path), fix="add one")
    model = open_model(chosen, spec, WHERE)
    detect = spec.detect
    if detect.decoder == "boxes_scores":
        wanted = {detect.boxes, detect.scores, detect.classes}
        if not wanted <= set(model.outputs):
            lacking = ", ".join(sorted(wanted - set(model.outputs)))
            raise BackendError(f"no output {lacking}", where=str(chosen.path), fix=f"known: {', '.join(model.outputs)}")
    return _Runner(model=model, detect=detect, name=identity(options), min_score=chosen.min_score)


@dataclass(frozen=True, kw_only=True)
class _Found:
    """Candidates in pixels of the model's input unless the description says otherwise."""

    boxes: Floats
    """(N, 4) xyxy."""
    scores: Floats
    """(N,)"""
    classes: Indices
    """(N,)"""


@dataclass(frozen=True, kw_only=True)
class _Runner:
    model: Model
    detect: DetectSpec
    name: str
    min_score: float

    def __call__(self, frames: Sequence[Frame]) -> list[Regions | None]:
        return [self._one(frame) for frame in frames]

    def _one(self, frame: Frame) -> Regions:
        height, width = frame.rgb.shape[:2]
        placed = place(frame.rgb, self.model.spec.input)
        inputs: dict[str, Tensor] = {self.model.inputs[0]: placed.tensor}
        if self.detect.size_input:
            inputs[self.detect.size_input] = np.array([[width, height]], dtype=np.int64)
        found = self._decoded(inputs)
        boxes = _to_image(found.boxes, placed, self.detect, self.model.spec.input.size)
        boxes = boxes.clip(0, [width, height, width, height])
        # A box thinner than a pixel is what clipping leaves of one outside the picture.
        keep = (found.scores >= self.min_score) & ((boxes[:, 2:] - boxes[:, :2]) >= 1).all(axis=1)
        keep &= np.array([self._label(index) != "" for index in found.classes], dtype=bool)
        boxes, scores, classes = boxes[keep], found.scores[keep], found.classes[keep]
        order = np.argsort(-scores, kind="stable")
        if self.detect.nms_iou is not None:
            order = suppress(boxes, classes, order, self.detect.nms_iou)
        items = [Region(label=self._label(classes[i]), box=_as_box(boxes[i]), score=float(scores[i])) for i in order]
        vocabulary = tuple(label for label in self.detect.labels if label)
        return Regions(items=tuple(items), complete=False, backend=self.name, vocabulary=vocabulary)

    def _decoded(self, inputs: dict[str, Tensor]) -> _Found:
        if self.detect.decoder == "yolox":
            (raw,) = self.model.session.run([self.model.outputs[0]], inputs)
            return decode_yolox(np.asarray(raw, dtype=np.float64)[0], self.model.spec.input.size, self.detect.strides)
        names = [self.detect.boxes, self.detect.scores, self.detect.classes]
        boxes, scores, classes = self.model.session.run(names, inputs)
        return _Found(
            boxes=np.asarray(boxes, dtype=np.float64).reshape(-1, 4),
            scores=np.asarray(scores, dtype=np.float64).reshape(-1),
            classes=np.asarray(classes, dtype=np.int64).reshape(-1),
        )

    def _label(self, index: int) -> str:
        return self.detect.labels[index] if 0 <= index < len(self.detect.labels) else ""


def decode_yolox(raw: Floats, size: tuple[int, int], strides: Sequence[int]) -> _Found:
    """(N, 5 + classes) raw grid output -> boxes in input pixels.

    Centre = (offset + cell) * stride, size = exp(output) * stride, score = objectness * class probability; the best
    class of a cell counts. Raises BackendError when the grids of the strides do not add up to N cells.
    """
    cells, steps = [], []
    for stride in strides:
        across, down = size[0] // stride, size[1] // stride
        rows, columns = np.mgrid[0:down, 0:across]
        cells.append(np.stack([columns.ravel(), rows.ravel()], axis=1))
        steps.append(np.full((across * down, 1), stride))
    cell, step = np.concatenate(cells), np.concatenate(steps)
    if len(cell) != len(raw):
        raise BackendError(f"strides {list(strides)} make {len(cell)} cells, the model gave {len(raw)}", where=WHERE)
    centre = (raw[:, :2] + cell) * step
    half = np.exp(raw[:, 2:4]) * step / 2
    classes = raw[:, 5:].argmax(axis=1)
    scores = raw[:, 4] * raw[np.arange(len(raw)), 5 + classes]
    return _Found(boxes=np.concatenate([centre - half, centre + half], axis=1), scores=scores, classes=classes)


def suppress(boxes: Floats, classes: Indices, order: Indices, iou: float) -> Indices:
    """Greedy non-maximum suppression within each class; `order` is best first, and so is the result."""
    kept: list[int] = []
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    while len(order):
        best, rest = order[0], order[1:]
        kept.append(int(best))
        low = np.maximum(boxes[best, :2], boxes[rest, :2])
        high = np.minimum(boxes[best, 2:], boxes[rest, 2:])
        overlap = (high - low).clip(0).prod(axis=1)
        same = (classes[rest] == classes[best]) & (overlap > iou * (area[best] + area[rest] - overlap))
        order = rest[~same]
    return np.array(kept, dtype=np.int64)


def _to_image(boxes: Floats, placed: Placed, detect: DetectSpec, size: tuple[int, int]) -> Floats:
    if detect.coordinates == "image":
        return boxes
    inner = boxes * np.array([*size, *size]) if detect.coordinates == "normalised" else boxes
    shift = np.array([placed.left, placed.top, placed.left, placed.top])
    scale = np.array([placed.scale_x, placed.scale_y, placed.scale_x, placed.scale_y])
    return (inner - shift) / scale


def _as_box(row: Floats) -> tuple[float, float, float, float]:
    return float(row[0]), float(row[1]), float(row[2]), float(row[3])


BACKEND = RegionBackend(name="onnx", version=1, options=Options, exact=False, identity=identity, load=load)
