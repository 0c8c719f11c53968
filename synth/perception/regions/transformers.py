"""Objects from a Hugging Face detector, by default RT-DETR v2 r18 (Lv et al., arXiv 2407.17140; Apache-2.0).

Any `AutoModelForObjectDetection` with an image processor that can post-process detections works (RT-DETR, D-FINE,
RF-DETR, DETR and their kin). Thresholds that decide are a task's; `min_score` only keeps the lists short.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from synth.contracts import RegionBackend
from synth.perception import _checkpoint
from synth.perception.regions._boxes import found_in
from synth.types import Frame, PluginOptions, Regions, narrow

if TYPE_CHECKING:
    import torch

WHERE = "perception.regions"
DEFAULT = "PekingU/rtdetr_v2_r18vd"


class Options(_checkpoint.CheckpointOptions):
    """Which checkpoint, how it is run, and which boxes are worth keeping."""

    path: str = DEFAULT
    min_score: float = Field(default=0.05, ge=0, le=1)
    """Boxes below are not listed at all."""


def identity(options: PluginOptions) -> str:
    """The checkpoint's content and the options that change the boxes. Raises BackendError."""
    chosen = narrow(options, Options)
    return _checkpoint.identity(chosen, WHERE, DEFAULT, f"{chosen.min_score:g}")


def load(options: PluginOptions) -> _Runner:
    """Load the checkpoint. Raises BackendError that says how to fetch it."""
    chosen = narrow(options, Options)
    checkpoint = _checkpoint.locate(chosen, WHERE, DEFAULT)  # before the import, which takes seconds
    from transformers import AutoImageProcessor, AutoModelForObjectDetection

    loaded = _checkpoint.load(checkpoint, chosen, AutoModelForObjectDetection, AutoImageProcessor, "a detector")
    labels = {int(index): str(label) for index, label in loaded.model.config.id2label.items()}
    return _Runner(loaded=loaded, options=chosen, labels=labels, name=identity(chosen))


@dataclass(frozen=True, kw_only=True)
class _Runner:
    loaded: _checkpoint.Loaded
    options: Options
    labels: Mapping[int, str]
    name: str

    def __call__(self, frames: Sequence[Frame]) -> list[Regions | None]:
        return _checkpoint.in_batches(frames, self.options, self._prepare, self._run)

    def _prepare(self, frame: Frame) -> Mapping[str, torch.Tensor]:
        settings = _checkpoint.sized(self.loaded.processor, self.options.size, WHERE)
        photo = _checkpoint.to_device(frame.rgb, self.loaded.device)
        inputs: Mapping[str, torch.Tensor] = self.loaded.processor(images=photo, return_tensors="pt", **settings)
        return inputs

    def _run(self, frames: Sequence[Frame], inputs: dict[str, torch.Tensor]) -> list[Regions | None]:
        inputs["pixel_values"] = inputs["pixel_values"].to(self.loaded.model.dtype)
        with _checkpoint.inference(self.options, WHERE):
            outputs = self.loaded.model(**inputs)
            results = self.loaded.processor.post_process_object_detection(
                outputs, threshold=self.options.min_score, target_sizes=[frame.rgb.shape[:2] for frame in frames]
            )
        return [self._as_regions(frame, result) for frame, result in zip(frames, results, strict=True)]

    def _as_regions(self, frame: Frame, result: Mapping[str, torch.Tensor]) -> Regions:
        rows = zip(
            result["scores"].tolist(),
            [self.labels[index] for index in result["labels"].tolist()],
            result["boxes"].tolist(),
            strict=True,
        )
        vocabulary = tuple(self.labels[index] for index in sorted(self.labels))
        items = found_in(frame.rgb.shape, rows)
        return Regions(items=items, complete=False, backend=self.name, vocabulary=vocabulary)


BACKEND = RegionBackend(name="transformers", version=1, options=Options, exact=False, identity=identity, load=load)
