"""Is a picture drawn (a diagram, a puzzle, a chart) rather than photographed?

Drawings of one kind share their frame, so that local features verify the frame and call every one of them a copy. They
are told by their even ground and by the lack of shades: most of a photograph changes by a few grey levels from pixel to
pixel. In doubt a picture is a photograph, which is checked by more.
"""

from __future__ import annotations

import numpy as np

from synth.guard.features import Grey

GROUND = 0.6
"""At least this share of a drawing has one grey level (and its two neighbours): drawings on paper measured 0.60 to 0.97
through marks and JPEG, photographs at most 0.70."""
SHADED = 0.085
"""At most this share of a drawing differs slightly from the next pixel. Clean drawings measured 0.01 to 0.08 (0.05 to
0.23 after marks or JPEG), 162 photographs 0.16 and more; their least crop with an even ground, sweets on white paper,
0.093."""

_SLIGHT = (2, 24)
"""Grey levels."""


def is_drawing(picture: Grey) -> bool:
    """True for a canonical picture (`features.canonical`) with an even ground and hardly a shade."""
    levels = np.bincount(picture.ravel(), minlength=256)
    ground = np.convolve(levels, np.ones(3), "same").max() / picture.size
    if ground < GROUND or min(picture.shape) < 2:
        return False
    grey = picture.astype(np.int16)
    steps = np.maximum(np.abs(np.diff(grey, axis=0))[:, :-1], np.abs(np.diff(grey, axis=1))[:-1])
    return float(((steps >= _SLIGHT[0]) & (steps <= _SLIGHT[1])).mean()) <= SHADED
