"""Masks by a panoptic segmenter, by default Mask2Former Swin-T COCO (Cheng et al., arXiv 2112.01527; MIT).

Mask2Former, MaskFormer and OneFormer (Jain et al., arXiv 2211.06220) through transformers. A segment is a box's mask
where both name the same thing and their boxes overlap most; a segment serves one box, the surest first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from pydantic import Field

from synth.contracts import MaskBackend
from synth.geometry import box_iou
from synth.perception import _checkpoint
from synth.perception.masks._fit import FIT, box_of
from synth.types import Box, Frame, Mask, PluginOptions, Regions, narrow

if TYPE_CHECKING:
    import torch

WHERE = "perception.masks"
DEFAULT = "facebook/mask2former-swin-tiny-coco-panoptic"
_FAMILIES = ("mask2former", "maskformer", "oneformer")


class Options(_checkpoint.CheckpointOptions):
    """Which checkpoint, how it is run, and which segments count."""

    path: str = DEFAULT
    min_score: float = Field(default=0.5, ge=0, le=1)
    """Segments below are none."""


def identity(options: PluginOptions) -> str:
    """The checkpoint's content and the options that change the masks. Raises BackendError."""
    chosen = narrow(options, Options)
    return _checkpoint.identity(chosen, WHERE, DEFAULT, f"{chosen.min_score:g}")


def load(options: PluginOptions) -> _Runner:
    """Load the checkpoint. Raises BackendError that says how to fetch it."""
    chosen = narrow(options, Options)
    checkpoint = _checkpoint.locate(chosen, WHERE, DEFAULT)  # before the import, which takes seconds
    family = _checkpoint.check_family(checkpoint, _FAMILIES, "a panoptic segmenter")
    from transformers import AutoImageProcessor, AutoModelForUniversalSegmentation, AutoProcessor

    kind = AutoProcessor if family == "oneformer" else AutoImageProcessor
    loaded = _checkpoint.load(checkpoint, chosen, AutoModelForUniversalSegmentation, kind, "a panoptic segmenter")
    labels = {int(index): _spelled(str(label)) for index, label in loaded.model.config.id2label.items()}
    return _Runner(loaded=loaded, options=chosen, labels=labels, tasked=family == "oneformer")


@dataclass(frozen=True, kw_only=True)
class _Segment:
    label: str
    mask: Mask
    box: Box


@dataclass(frozen=True, kw_only=True)
class _Runner:
    loaded: _checkpoint.Loaded
    options: Options
    labels: Mapping[int, str]
    tasked: bool
    """The model is told its task."""

    def __call__(self, frames: Sequence[Frame], regions: Sequence[Regions]) -> list[tuple[Mask | None, ...]]:
        segments = _checkpoint.in_batches(frames, self.options, self._prepare, self._run)
        return [matched(found, some) for found, some in zip(regions, segments, strict=True)]

    def _prepare(self, frame: Frame) -> Mapping[str, torch.Tensor]:
        processor = self.loaded.processor
        settings = _checkpoint.sized(getattr(processor, "image_processor", processor), self.options.size, WHERE)
        if self.tasked:
            settings["task_inputs"] = ["panoptic"]
        photo = _checkpoint.to_device(frame.rgb, self.loaded.device)
        inputs = processor(images=photo, return_tensors="pt", **settings)
        wanted = ("pixel_values", "pixel_mask", "task_inputs")
        return {key: inputs[key].to(self.loaded.device) for key in wanted if key in inputs}

    def _run(self, frames: Sequence[Frame], inputs: dict[str, torch.Tensor]) -> list[list[_Segment]]:
        pixels = inputs["pixel_values"] = inputs["pixel_values"].to(self.loaded.model.dtype)
        with _checkpoint.inference(self.options, WHERE):
            outputs = self.loaded.model(**inputs)
            # Last comes "no object".
            scores, labels = outputs.class_queries_logits.float().softmax(-1)[..., :-1].max(-1)
            found = []
            for i, frame in enumerate(frames):
                sure = scores[i] >= self.options.min_score
                logits = _enlarged(outputs.masks_queries_logits[i][sure].float(), pixels.shape[-2:])
                if "pixel_mask" in inputs:  # the rest is padding
                    seen = inputs["pixel_mask"][i].bool()
                    logits = logits[:, : int(seen.any(1).sum()), : int(seen.any(0).sum())]
                # The processors' own post-processing gives every pixel to some segment, however little it is worth.
                masks = (_enlarged(logits, frame.rgb.shape[:2]) > 0).cpu().numpy()
                found.append(self._segments(labels[i][sure].tolist(), masks))
        return found

    def _segments(self, labels: Sequence[int], masks: npt.NDArray[np.bool_]) -> list[_Segment]:
        boxes = [box_of(mask) for mask in masks]
        return [
            _Segment(label=self.labels[label], mask=mask, box=box)
            for label, mask, box in zip(labels, masks, boxes, strict=True)
            if box is not None
        ]


def _enlarged(logits: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    """(N, h, w) -> (N, *size), bilinear."""
    import torch

    if not len(logits):
        return logits.new_zeros((0, *size))
    return torch.nn.functional.interpolate(logits[None], size=tuple(size), mode="bilinear", align_corners=False)[0]


def matched(found: Regions, segments: Sequence[_Segment]) -> tuple[Mask | None, ...]:
    """The segment of each region, or None: same name, boxes that fit each other, no segment twice."""
    masks: list[Mask | None] = [None] * len(found.items)
    left = list(segments)
    for i in sorted(range(len(found.items)), key=lambda i: -found.items[i].score):
        region = found.items[i]
        fitting = [
            (box_iou(segment.box, region.box), number)
            for number, segment in enumerate(left)
            if segment.label == _spelled(region.label)
        ]
        overlap, number = max(fitting, default=(0.0, -1))
        if overlap >= FIT:
            masks[i] = left.pop(number).mask
    return tuple(masks)


def _spelled(label: str) -> str:
    return " ".join(label.casefold().replace("-", " ").replace("_", " ").split())


BACKEND = MaskBackend(name="panoptic", version=1, options=Options, identity=identity, load=load)
