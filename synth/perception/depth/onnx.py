"""Depth from any ONNX model that a small YAML describes (see `synth.perception._onnx`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from synth.contracts import DepthBackend
from synth.errors import BackendError
from synth.perception._onnx import DepthSpec, Model, OnnxOptions, Placed, describe, open_model, place
from synth.types import DepthArray, DepthMap, Frame, MetricDepth, PluginOptions, RelativeDepth, narrow

WHERE = "perception.depth"


def identity(options: PluginOptions) -> str:
    """Model file, its sha256, its description and the execution providers. Raises BackendError."""
    return describe(narrow(options, OnnxOptions), WHERE)[1]


def load(options: PluginOptions) -> _Runner:
    """Open the model. Raises BackendError for a missing package, model or description."""
    chosen = narrow(options, OnnxOptions)
    spec, name = describe(chosen, WHERE)
    if spec.depth is None:
        raise BackendError("the model's description has no `depth` section", where=str(chosen.path), fix="add one")
    model = open_model(chosen, spec, WHERE)
    output = spec.depth.output or model.outputs[0]
    if output not in model.outputs:
        raise BackendError(f"no output {output!r}", where=str(chosen.path), fix=f"known: {', '.join(model.outputs)}")
    return _Runner(model=model, depth=spec.depth, output=output, name=name)


@dataclass(frozen=True, kw_only=True)
class _Runner:
    model: Model
    depth: DepthSpec
    output: str
    name: str

    def __call__(self, frames: Sequence[Frame]) -> list[DepthMap | None]:
        return [self._one(frame) for frame in frames]

    def _one(self, frame: Frame) -> DepthMap:
        placed = place(frame.rgb, self.model.spec.input)
        (raw,) = self.model.session.run([self.output], {self.model.inputs[0]: placed.tensor})
        height, width = frame.rgb.shape[:2]
        values = self._enlarged(np.squeeze(raw).astype(np.float32), placed, width, height)
        valid = np.isfinite(values)
        if self.depth.unit == "metres":
            metres = values * np.float32(self.depth.scale)
            return MetricDepth(metres=metres, valid=valid & (metres > 0), backend=self.name)
        # Only the order is physical, so a sign is enough to turn farther into nearer.
        inverse = values if self.depth.larger == "nearer" else -values
        return RelativeDepth(inverse=inverse, valid=valid, backend=self.name)

    def _enlarged(self, values: DepthArray, placed: Placed, width: int, height: int) -> DepthArray:
        """The part of the output that shows the picture, at the picture's size, bilinear."""
        if values.ndim != 2:
            raise BackendError(f"expected one value a pixel, the output has shape {values.shape}", where=self.name)
        full_width, full_height = self.model.spec.input.size
        across, down = values.shape[1] / full_width, values.shape[0] / full_height
        box = (
            placed.left * across,
            placed.top * down,
            (placed.left + placed.width) * across,
            (placed.top + placed.height) * down,
        )
        return np.array(Image.fromarray(values).resize((width, height), Image.Resampling.BILINEAR, box=box))


BACKEND = DepthBackend(
    name="onnx",
    version=1,
    options=OnnxOptions,
    exact=False,
    identity=identity,
    load=load,
    metres="onnx, with a model whose description says depth.unit: metres",
)
