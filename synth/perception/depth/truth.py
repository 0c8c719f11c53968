"""Depth that came with the image: sensor, stereo or renderer. Says nothing about an image without it."""

from __future__ import annotations

from collections.abc import Sequence

from synth.contracts import DepthBackend
from synth.types import DepthMap, Frame, PluginOptions


def identity(options: PluginOptions) -> str:
    """Truth has no weights."""
    return "truth"


def load(options: PluginOptions) -> _Reader:
    """Nothing is loaded."""
    return _Reader()


class _Reader:
    def __call__(self, frames: Sequence[Frame]) -> list[DepthMap | None]:
        return [frame.view.truth.depth if frame.view.truth else None for frame in frames]


BACKEND = DepthBackend(
    name="truth",
    version=1,
    options=PluginOptions,
    exact=True,
    identity=identity,
    load=load,
    metres="truth, on images that bring depth in metres",
)
