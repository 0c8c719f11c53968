"""Objects from a Hugging Face detector, by default RT-DETR v2 r18 (Lv et al., arXiv 2407.17140; Apache-2.0).

Any `AutoModelForObjectDetection` with an image processor that can post-process detections works (RT-DETR, D-FINE, DETR
and their kin). Thresholds that decide are a task's; `min_score` only keeps the lists short.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from pydantic import Field

from synth.errors import BackendError
from synth.geometry import box_area
from synth.perception import _checkpoint
from synth.types import Box, Frame, PluginOptions, Region, RegionBackend, Regions, narrow

if TYPE_CHECKING:
    import torch
    from transformers import BaseImageProcessor, PreTrainedModel

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

    try:
        processor = AutoImageProcessor.from_pretrained(
            checkpoint.folder, local_files_only=True, trust_remote_code=False
        )
        model, report = AutoModelForObjectDetection.from_pretrained(
            checkpoint.folder,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            dtype=chosen.dtype,
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise BackendError(
            f"not a detector that transformers can load: {' '.join(str(error).split())[:300]}",
            where=str(checkpoint.folder),
            fix=_checkpoint.advice(chosen.path, WHERE, DEFAULT),
        ) from None
    _checkpoint.refuse_gaps(model, report["missing_keys"], report["mismatched_keys"], checkpoint)
    device = _checkpoint.device_of(chosen.device)
    labels = {int(index): str(label) for index, label in model.config.id2label.items()}
    return _Runner(
        model=model.eval().to(device),
        processor=processor,
        device=device,
        options=chosen,
        labels=labels,
        name=identity(chosen),
    )


@dataclass(frozen=True, kw_only=True)
class _Runner:
    model: PreTrainedModel
    processor: BaseImageProcessor
    device: str
    options: Options
    labels: Mapping[int, str]
    name: str

    def __call__(self, frames: Sequence[Frame]) -> list[Regions | None]:
        found: list[Regions | None] = []
        for start in range(0, len(frames), self.options.batch_size):
            batch = [(frame, self._inputs(frame)) for frame in frames[start : start + self.options.batch_size]]
            for _, alike in groupby(batch, key=lambda pair: pair[1]["pixel_values"].shape):
                found += self._run(list(alike))
        return found

    def _inputs(self, frame: Frame) -> Mapping[str, torch.Tensor]:
        size = _checkpoint.input_size(dict(self.processor.size), self.options.size)
        settings = {"size": size} if size else {}
        inputs: Mapping[str, torch.Tensor] = self.processor(images=frame.rgb.copy(), return_tensors="pt", **settings)
        return inputs

    def _run(self, batch: Sequence[tuple[Frame, Mapping[str, torch.Tensor]]]) -> list[Regions]:
        import torch

        joined = {key: torch.cat([inputs[key] for _, inputs in batch]).to(self.device) for key in batch[0][1]}
        joined["pixel_values"] = joined["pixel_values"].to(self.model.dtype)
        with torch.inference_mode():
            outputs = self.model(**joined)
        results = self.processor.post_process_object_detection(
            outputs, threshold=self.options.min_score, target_sizes=[frame.rgb.shape[:2] for frame, _ in batch]
        )
        return [self._as_regions(frame, result) for (frame, _), result in zip(batch, results, strict=True)]

    def _as_regions(self, frame: Frame, result: Mapping[str, torch.Tensor]) -> Regions:
        height, width = frame.rgb.shape[:2]
        rows = zip(result["scores"].tolist(), result["labels"].tolist(), result["boxes"].tolist(), strict=True)
        items = []
        for score, index, (x1, y1, x2, y2) in sorted(rows, key=lambda row: -row[0]):
            box: Box = (max(x1, 0.0), max(y1, 0.0), min(x2, float(width)), min(y2, float(height)))
            if box_area(box) >= 1:
                items.append(Region(label=self.labels[index], box=box, score=score))
        vocabulary = tuple(self.labels[index] for index in sorted(self.labels))
        return Regions(items=tuple(items), complete=False, backend=self.name, vocabulary=vocabulary)


BACKEND = RegionBackend(name="transformers", version=1, options=Options, exact=False, identity=identity, load=load)
