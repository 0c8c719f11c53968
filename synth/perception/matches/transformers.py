"""Matches from a Hugging Face checkpoint, by default Efficient LoFTR (Wang et al., CVPR 2024; arXiv 2403.04765).

Any `AutoModelForKeypointMatching` works: Efficient LoFTR, LightGlue (Lindenberger et al., ICCV 2023; arXiv 2306.13643)
with SuperPoint, and SuperGlue. The weights of SuperPoint and SuperGlue are for non-commercial research only; look at a
checkpoint's licence before you sell what came of it. What comes out must be explained by one geometry (see `_model`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pydantic import Field

from synth.contracts import MatchBackend
from synth.perception import _checkpoint
from synth.perception.matches import _model
from synth.types import Frame, Matches, PluginOptions, narrow

WHERE = "perception.two_views.matches"
DEFAULT = "zju-community/efficientloftr"


class Options(_checkpoint.CheckpointOptions):
    """Which checkpoint, how it is run, and from which score on a match counts."""

    path: str = DEFAULT
    threshold: float = Field(default=0.2, ge=0, lt=1)
    """Least score of a match."""


def identity(options: PluginOptions) -> str:
    """The checkpoint's content and the options that change the matches. Raises BackendError."""
    chosen = narrow(options, Options)
    return _checkpoint.identity(chosen, WHERE, DEFAULT, f"threshold={chosen.threshold}")


def load(options: PluginOptions) -> _Runner:
    """Load the checkpoint. Raises BackendError that says how to fetch it."""
    chosen = narrow(options, Options)
    checkpoint = _checkpoint.locate(chosen, WHERE, DEFAULT)  # before the import, which takes seconds
    _model.opencv()
    from transformers import AutoImageProcessor, AutoModelForKeypointMatching

    what = "a checkpoint for keypoint matching"
    loaded = _checkpoint.load(checkpoint, chosen, AutoModelForKeypointMatching, AutoImageProcessor, what)
    return _Runner(loaded=loaded, options=chosen, name=identity(chosen))


@dataclass(frozen=True, kw_only=True)
class _Runner:
    loaded: _checkpoint.Loaded
    options: Options
    name: str

    def __call__(self, here: Frame, there: Frame) -> Matches:
        model, processor = self.loaded.model, self.loaded.processor
        pictures = [here.rgb.copy(), there.rgb.copy()]
        settings = _checkpoint.sized(processor, self.options.size, WHERE)
        pixels = processor(images=pictures, return_tensors="pt", **settings)["pixel_values"]
        with _checkpoint.inference(self.options, WHERE):
            outputs = model(pixel_values=pixels.to(self.loaded.device, model.dtype))
        sizes = [tuple(picture.shape[:2] for picture in pictures)]
        (found,) = processor.post_process_keypoint_matching(outputs, sizes, threshold=self.options.threshold)
        # The processor cuts places to whole pixels; the middle of the pixel is the best guess.
        places = [found[key].cpu().numpy().astype(np.float64) + 0.5 for key in ("keypoints0", "keypoints1")]
        scores = found["matching_scores"].float().cpu().numpy().astype(np.float64)
        raw = Matches(here=places[0], there=places[1], scores=scores, backend=self.name)
        return _model.explained(raw, here.rgb, there.rgb)


BACKEND = MatchBackend(name="transformers", version=1, options=Options, identity=identity, load=load)
