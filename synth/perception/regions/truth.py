"""Objects that came with the image: annotated or rendered. Says nothing about an image without them."""

from __future__ import annotations

from collections.abc import Sequence

from synth.contracts import RegionBackend
from synth.types import Frame, PluginOptions, Regions


def identity(options: PluginOptions) -> str:
    """Truth has no weights."""
    return "truth"


def load(options: PluginOptions) -> _Reader:
    """Nothing is loaded."""
    return _Reader()


class _Reader:
    def __call__(self, frames: Sequence[Frame]) -> list[Regions | None]:
        return [frame.view.truth.regions if frame.view.truth else None for frame in frames]


BACKEND = RegionBackend(name="truth", version=1, options=PluginOptions, exact=True, identity=identity, load=load)
