"""Depth from a Hugging Face checkpoint, by default Depth Anything V2 Small (Yang et al., arXiv 2406.09414; Apache-2.0).

Any `AutoModelForDepthEstimation` that sees one photo works: Depth Anything V1 and V2, relative or metric, DPT and
MiDaS, ZoeDepth, GLPN, Depth Pro. What the numbers mean is never guessed: the checkpoint's config says it, or `output`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from synth.contracts import DepthBackend
from synth.errors import BackendError
from synth.perception import _checkpoint
from synth.types import DepthArray, DepthMap, Frame, JsonValue, MetricDepth, PluginOptions, RelativeDepth, narrow

if TYPE_CHECKING:
    import torch
    from transformers.modeling_outputs import DepthEstimatorOutput

WHERE = "perception.depth"
DEFAULT = "depth-anything/Depth-Anything-V2-Small-hf"
Meaning: TypeAlias = Literal["relative_inverse", "relative", "metric"]
_REFUSED = {
    "prompt_depth_anything": "needs measured depth beside the photo, which a photo does not bring",
    "chmv2": "gives the height of trees seen from above, not depth",
}


class Options(_checkpoint.CheckpointOptions):
    """Which checkpoint, how it is run, and what its numbers mean."""

    path: str = DEFAULT
    output: Meaning | None = None
    """relative_inverse: larger is nearer. relative: larger is farther. metric: metres. None: what the checkpoint's
    config says; needed where it does not say it. `relative` takes only the order of a metric checkpoint."""


def identity(options: PluginOptions) -> str:
    """The checkpoint's content and the options that change the map. Raises BackendError."""
    chosen = narrow(options, Options)
    checkpoint = _checkpoint.locate(chosen, WHERE, DEFAULT)
    return _checkpoint.name_of(checkpoint, chosen, meaning(checkpoint, chosen.output))


def load(options: PluginOptions) -> _Runner:
    """Load the checkpoint. Raises BackendError that says how to fetch it, or what `output` must say."""
    chosen = narrow(options, Options)
    checkpoint = _checkpoint.locate(chosen, WHERE, DEFAULT)  # before the import, which takes seconds
    output = meaning(checkpoint, chosen.output)
    from transformers import AutoImageProcessor, AutoModelForDepthEstimation

    loaded = _checkpoint.load(checkpoint, chosen, AutoModelForDepthEstimation, AutoImageProcessor, "a depth checkpoint")
    return _Runner(loaded=loaded, options=chosen, output=output, name=identity(chosen))


def meaning(checkpoint: _checkpoint.Checkpoint, wanted: Meaning | None) -> Meaning:
    """What the checkpoint's numbers are. Raises BackendError where nobody says it, or the config says otherwise."""
    config = _checkpoint.config_of(checkpoint)
    family = str(config.get("model_type", "unknown"))
    if family in _REFUSED:
        raise BackendError(f"{family} {_REFUSED[family]}", where=str(checkpoint.folder), fix=f"e.g. {DEFAULT}")
    declared = _declared(family, config)
    if wanted is None and declared is None:
        raise BackendError(
            f"the config of a {family} checkpoint does not say what its numbers mean",
            where=str(checkpoint.folder),
            fix=f"see its model card, then --set {WHERE}.output=relative_inverse (larger is nearer: MiDaS, DPT trained "
            "as it), metric (metres) or relative (larger is farther)",
        )
    if wanted is None or declared is None or wanted == declared or (wanted, declared) == ("relative", "metric"):
        return wanted or declared or "relative"
    raise BackendError(
        f"output says {wanted}, the config of this {family} checkpoint says {declared}",
        where=str(checkpoint.folder),
        fix=f"leave {WHERE}.output out",
    )


def _declared(family: str, config: Mapping[str, JsonValue]) -> Meaning | None:
    """By the model's own code in transformers: which activation ends it, and what its processor makes of that."""
    if family == "depth_anything":
        return "metric" if config.get("depth_estimation_type") == "metric" else "relative_inverse"
    if family == "depth_pro":
        return "metric" if config.get("use_fov_model") else "relative"  # metres need the field of view
    return "metric" if family in ("zoedepth", "glpn") else None


@dataclass(frozen=True, kw_only=True)
class _Runner:
    loaded: _checkpoint.Loaded
    options: Options
    output: Meaning
    name: str

    def __call__(self, frames: Sequence[Frame]) -> list[DepthMap | None]:
        return _checkpoint.in_batches(frames, self.options, self._prepare, self._run)

    def _prepare(self, frame: Frame) -> Mapping[str, torch.Tensor]:
        processor = self.loaded.processor
        settings = _checkpoint.sized(processor, self.options.size, WHERE)
        if getattr(processor, "do_pad", False) and self._family != "zoedepth":
            settings["do_pad"] = False  # the prediction would show the padding too
        photo = _checkpoint.to_device(frame.rgb, self.loaded.device)
        return {"pixel_values": processor(images=photo, return_tensors="pt", **settings)["pixel_values"]}

    def _run(self, frames: Sequence[Frame], inputs: dict[str, torch.Tensor]) -> list[DepthMap | None]:
        with _checkpoint.inference(self.options, WHERE):
            outputs = self.loaded.model(pixel_values=inputs["pixel_values"].to(self.loaded.model.dtype))
            sizes = [frame.rgb.shape[:2] for frame in frames]
            return [self._as_map(one.cpu().numpy()) for one in self._enlarged(outputs, sizes)]

    def _enlarged(self, outputs: DepthEstimatorOutput, sizes: Sequence[tuple[int, int]]) -> list[torch.Tensor]:
        """Maps of the photos' sizes, (H, W) float32."""
        import torch

        outputs.predicted_depth = outputs.predicted_depth.float()
        if self._family == "zoedepth":  # takes its padding off
            found = self.loaded.processor.post_process_depth_estimation(outputs, source_sizes=sizes)
            return [one["predicted_depth"] for one in found]
        if self._family == "depth_pro":  # canonical inverse depth and field of view to depth
            if outputs.field_of_view is not None:
                outputs.field_of_view = outputs.field_of_view.float()
            found = self.loaded.processor.post_process_depth_estimation(outputs, target_sizes=sizes)
            return [one["predicted_depth"] for one in found]
        # The other processors only enlarge, bicubic: its overshoot beside an edge is an order that no model gave.
        return [
            torch.nn.functional.interpolate(
                one.reshape(1, 1, *one.shape[-2:]), size=size, mode="bilinear", align_corners=False
            )[0, 0]
            for one, size in zip(outputs.predicted_depth, sizes, strict=True)
        ]

    @property
    def _family(self) -> str:
        return str(self.loaded.model.config.model_type)

    def _as_map(self, values: DepthArray) -> DepthMap:
        valid = np.isfinite(values)
        if self.output == "metric":
            return MetricDepth(metres=values, valid=valid & (values > 0), backend=self.name)
        inverse = values if self.output == "relative_inverse" else -values
        return RelativeDepth(inverse=inverse, valid=valid, backend=self.name)


BACKEND = DepthBackend(
    name="transformers",
    version=1,
    options=Options,
    exact=False,
    identity=identity,
    load=load,
    metres="transformers, with a metric checkpoint (Depth Anything V2 Metric, ZoeDepth, Depth Pro; of a family whose "
    "config does not say it, with --set perception.depth.output=metric)",
)
