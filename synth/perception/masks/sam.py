"""Masks by a segmenter that takes boxes, by default SAM 2.1 hiera-small (Ravi et al., arXiv 2408.00714; Apache-2.0).

SAM (Kirillov et al., arXiv 2304.02643), SAM-HQ, SAM 2 and SAM 3 (Carion et al., arXiv 2511.16719; the part of it that
takes boxes; gated weights under a licence of its own), each through transformers. A box leaves little doubt which
object is meant, so the model's one mask is taken, not the best of its three.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from synth.contracts import MaskBackend
from synth.perception import _checkpoint
from synth.types import Box, Frame, Mask, PluginOptions, Regions, narrow

WHERE = "perception.masks"
DEFAULT = "facebook/sam2.1-hiera-small"
_FAMILIES = ("sam", "sam_hq", "sam2", "sam2_video", "sam3_tracker", "sam3_video")
_CHUNK = 16
"""Boxes whose masks are enlarged at once: their floats weigh 32 times as much as the masks."""


class Options(_checkpoint.CheckpointOptions):
    """Which checkpoint, how it is run, and which boxes get a mask."""

    path: str = DEFAULT
    size: None = None
    """The model's own: its position embeddings allow no other."""
    batch_size: Literal[1] = 1
    """Each photo has its own number of boxes."""
    min_score: float = Field(default=0.3, ge=0, le=1)
    """Regions below get no mask: a doubtful box is not worth one."""


def identity(options: PluginOptions) -> str:
    """The checkpoint's content and the options that change the masks. Raises BackendError."""
    chosen = narrow(options, Options)
    return _checkpoint.identity(chosen, WHERE, DEFAULT, f"{chosen.min_score:g}")


def load(options: PluginOptions) -> _Runner:
    """Load the checkpoint. Raises BackendError that says how to fetch it."""
    chosen = narrow(options, Options)
    checkpoint = _checkpoint.locate(chosen, WHERE, DEFAULT)  # before the import, which takes seconds
    family = _checkpoint.check_family(checkpoint, _FAMILIES, "a segmenter that takes boxes")
    from transformers import (
        AutoModelForMaskGeneration,
        Sam2Processor,
        Sam3TrackerProcessor,
        SamHQProcessor,
        SamProcessor,
    )

    # Published checkpoints of SAM 2 and 3 name the processor for videos, which is not needed.
    later = Sam3TrackerProcessor if family.startswith("sam3") else Sam2Processor
    processor = {"sam": SamProcessor, "sam_hq": SamHQProcessor}.get(family, later)
    loaded = _checkpoint.load(checkpoint, chosen, AutoModelForMaskGeneration, processor, "a segmenter")
    return _Runner(loaded=loaded, options=chosen)


@dataclass(frozen=True, kw_only=True)
class _Runner:
    loaded: _checkpoint.Loaded
    options: Options

    def __call__(self, frames: Sequence[Frame], regions: Sequence[Regions]) -> list[tuple[Mask | None, ...]]:
        return [self._one(frame, found) for frame, found in zip(frames, regions, strict=True)]

    def _one(self, frame: Frame, found: Regions) -> tuple[Mask | None, ...]:
        wanted = [i for i, region in enumerate(found.items) if region.score >= self.options.min_score]
        masks: list[Mask | None] = [None] * len(found.items)
        if wanted:
            for i, mask in zip(wanted, self._masks(frame, [found.items[i].box for i in wanted]), strict=True):
                masks[i] = mask
        return tuple(masks)

    def _masks(self, frame: Frame, boxes: Sequence[Box]) -> list[Mask]:
        processor, model = self.loaded.processor, self.loaded.model
        photo = _checkpoint.to_device(frame.rgb, self.loaded.device)
        inputs = processor(images=photo, input_boxes=[[list(box) for box in boxes]], return_tensors="pt")
        with _checkpoint.inference(self.options, WHERE):
            outputs = model(
                pixel_values=inputs["pixel_values"].to(self.loaded.device, model.dtype),
                input_boxes=inputs["input_boxes"].to(self.loaded.device, model.dtype),
                multimask_output=False,
            )
            logits = outputs.pred_masks[0].float()
            # Of the first SAM: what of its square input is the photo.
            padding = [inputs["reshaped_input_sizes"]] if "reshaped_input_sizes" in inputs else []
            masks: list[Mask] = []
            for start in range(0, len(logits), _CHUNK):
                (some,) = processor.post_process_masks(
                    [logits[start : start + _CHUNK]], inputs["original_sizes"], *padding
                )
                masks += list(some[:, 0].cpu().numpy())
        return masks


BACKEND = MaskBackend(name="sam", version=1, options=Options, identity=identity, load=load)
