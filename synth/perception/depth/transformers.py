"""Depth from a Hugging Face checkpoint, by default Depth Anything V2 Small (Yang et al., arXiv 2406.09414; Apache-2.0).

Any `AutoModelForDepthEstimation` works whose prediction is one map of the whole picture. What its numbers mean is
declared by `output`; a checkpoint does not say it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal

import numpy as np

from synth.errors import BackendError
from synth.perception import _checkpoint
from synth.types import DepthArray, DepthBackend, DepthMap, Frame, MetricDepth, PluginOptions, RelativeDepth, narrow

if TYPE_CHECKING:
    import torch
    from transformers import BaseImageProcessor, PreTrainedModel

WHERE = "perception.depth"
DEFAULT = "depth-anything/Depth-Anything-V2-Small-hf"


class Options(_checkpoint.CheckpointOptions):
    """Which checkpoint, how it is run, and what its numbers mean."""

    path: str = DEFAULT
    output: Literal["relative_inverse", "relative", "metric"] = "relative_inverse"
    """relative_inverse: larger is nearer. relative: larger is farther. metric: metres."""


def identity(options: PluginOptions) -> str:
    """The checkpoint's content and the options that change the map. Raises BackendError."""
    chosen = narrow(options, Options)
    return _checkpoint.identity(chosen, WHERE, DEFAULT, chosen.output)


def load(options: PluginOptions) -> _Runner:
    """Load the checkpoint. Raises BackendError that says how to fetch it."""
    chosen = narrow(options, Options)
    checkpoint = _checkpoint.locate(chosen, WHERE, DEFAULT)  # before the import, which takes seconds
    from transformers import AutoImageProcessor, AutoModelForDepthEstimation

    try:
        processor = AutoImageProcessor.from_pretrained(
            checkpoint.folder, local_files_only=True, trust_remote_code=False
        )
        model, report = AutoModelForDepthEstimation.from_pretrained(
            checkpoint.folder,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            dtype=chosen.dtype,
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise BackendError(
            f"not a depth checkpoint that transformers can load: {' '.join(str(error).split())[:300]}",
            where=str(checkpoint.folder),
            fix=_checkpoint.advice(chosen.path, WHERE, DEFAULT),
        ) from None
    _checkpoint.refuse_gaps(model, report["missing_keys"], report["mismatched_keys"], checkpoint)
    device = _checkpoint.device_of(chosen.device)
    return _Runner(
        model=model.eval().to(device), processor=processor, device=device, options=chosen, name=identity(chosen)
    )


@dataclass(frozen=True, kw_only=True)
class _Runner:
    model: PreTrainedModel
    processor: BaseImageProcessor
    device: str
    options: Options
    name: str

    def __call__(self, frames: Sequence[Frame]) -> list[DepthMap | None]:
        found: list[DepthMap | None] = []
        for start in range(0, len(frames), self.options.batch_size):
            batch = [(frame, self._pixels(frame)) for frame in frames[start : start + self.options.batch_size]]
            # Photos of another shape make an input of another shape; neighbours of one shape go together.
            for _, alike in groupby(batch, key=lambda pair: pair[1].shape):
                found += self._run(list(alike))
        return found

    def _pixels(self, frame: Frame) -> torch.Tensor:
        size = _checkpoint.input_size(dict(self.processor.size), self.options.size)
        settings: dict[str, object] = {"size": size} if size else {}
        if getattr(self.processor, "do_pad", False):
            settings["do_pad"] = False  # the prediction would show the padding too
        pixels: torch.Tensor = self.processor(images=frame.rgb.copy(), return_tensors="pt", **settings)["pixel_values"]
        return pixels

    def _run(self, batch: Sequence[tuple[Frame, torch.Tensor]]) -> list[DepthMap]:
        import torch

        inputs = torch.cat([pixels for _, pixels in batch]).to(self.device, self.model.dtype)
        with torch.inference_mode():
            predicted = self.model(pixel_values=inputs).predicted_depth.float()
            maps = []
            for (frame, _), prediction in zip(batch, predicted, strict=True):
                resized = torch.nn.functional.interpolate(
                    prediction.reshape(1, 1, *prediction.shape[-2:]),
                    size=frame.rgb.shape[:2],
                    mode="bilinear",
                    align_corners=False,
                )
                maps.append(self._as_map(resized[0, 0].cpu().numpy()))
        return maps

    def _as_map(self, values: DepthArray) -> DepthMap:
        valid = np.isfinite(values)
        if self.options.output == "metric":
            return MetricDepth(metres=values, valid=valid & (values > 0), backend=self.name)
        inverse = values if self.options.output == "relative_inverse" else -values
        return RelativeDepth(inverse=inverse, valid=valid, backend=self.name)


BACKEND = DepthBackend(
    name="transformers",
    version=1,
    options=Options,
    exact=False,
    identity=identity,
    load=load,
    metres="transformers, with a metric checkpoint and --set perception.depth.output=metric",
)
