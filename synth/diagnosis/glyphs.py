"""Reads a single letter off its shape, by comparison with rendered glyphs; anything doubtful is no letter.

The glyphs are those of Pillow's own font and of OpenCV's, in several weights, so that nothing depends on the fonts of a
machine. A shape must correlate with a letter, lead over every rival, and have the letter's number of holes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from synth.types import Mask

SURE, LEAST_LEAD = 0.80, 0.05
"""Correlation with the glyph, and its lead over the next label's glyph."""
LIKELY, LARGE_LEAD = 0.70, 0.10
"""Letters of an unknown font correlate less; then no other letter or digit may come near."""
_GLYPH = (20, 28)
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_HOLES = {"A": 1, "B": 2, "C": 0, "D": 1, "E": 0, "F": 0, "R": 1}
READABLE = frozenset(_HOLES)
"""The letters of marks; all others only compete."""

Floats = npt.NDArray[np.float64]


def read_letter(shape: Mask) -> tuple[str, float] | None:
    """The letter whose glyph a shape is, with its correlation; None where it is none, or might be another."""
    labels, bank, ratios = _templates()
    vector = _normalised(shape)
    scores = bank @ vector
    ratio = shape.shape[1] / shape.shape[0]
    scores[np.abs(np.log(ratios / ratio)) > 0.35] = -1.0
    best = int(scores.argmax())
    label, score = labels[best], float(scores[best])
    if score < LIKELY or label not in READABLE or _holes(shape) != _HOLES[label]:
        return None
    others = [(float(s), name) for s, name in zip(scores, labels, strict=True) if name != label]
    if score >= SURE:
        lead = score - max(s for s, name in others if name in READABLE)
        return (label, score) if lead >= LEAST_LEAD else None
    return (label, score) if score - max(s for s, _ in others) >= LARGE_LEAD else None


def _normalised(shape: Mask) -> npt.NDArray[np.float32]:
    """The shape stretched to one size, as a unit vector without mean."""
    import cv2

    small = cv2.resize(shape.astype(np.float32), _GLYPH, interpolation=cv2.INTER_AREA)
    vector = cv2.GaussianBlur(small, (0, 0), 0.8).ravel()
    vector = vector - vector.mean()
    return np.asarray(vector / max(1e-6, float(np.linalg.norm(vector))), dtype=np.float32)


def _holes(shape: Mask) -> int:
    """Enclosed areas that are more than a speck."""
    import cv2

    padded = np.pad(~shape, 1, constant_values=True).astype(np.uint8)
    n, _, stats, _ = cv2.connectedComponentsWithStats(padded, connectivity=4)
    areas = sorted(stats[1:n, cv2.CC_STAT_AREA], reverse=True)
    return sum(area >= 0.008 * shape.size for area in areas[1:])


@lru_cache(maxsize=1)
def _templates() -> tuple[list[str], npt.NDArray[np.float32], Floats]:
    """Letters, their unit vectors (N, pixels) and width / height, in several fonts and weights."""
    labels: list[str] = []
    vectors: list[npt.NDArray[np.float32]] = []
    ratios: list[float] = []
    for label in _ALPHABET:
        for drawn in _renderings(label):
            rows, columns = np.flatnonzero(drawn.any(axis=1)), np.flatnonzero(drawn.any(axis=0))
            shape = drawn[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
            labels.append(label)
            vectors.append(_normalised(shape))
            ratios.append(shape.shape[1] / shape.shape[0])
    return labels, np.stack(vectors), np.asarray(ratios, dtype=np.float64)


def _renderings(label: str) -> Iterator[Mask]:
    """The letter in Pillow's font and in OpenCV's, each in several weights."""
    import cv2

    font = ImageFont.load_default(48)
    for stroke in (0, 1, 2, 3):
        canvas = Image.new("L", (96, 96))
        ImageDraw.Draw(canvas).text((48, 48), label, font=font, fill=255, anchor="mm", stroke_width=stroke)
        yield np.asarray(canvas) > 127
    for face in (cv2.FONT_HERSHEY_SIMPLEX, cv2.FONT_HERSHEY_DUPLEX, cv2.FONT_HERSHEY_TRIPLEX):
        for weight in (3, 5, 8):
            plain = np.zeros((96, 96), dtype=np.uint8)
            cv2.putText(plain, label, (20, 72), face, 2.0, 255, weight)
            yield plain > 127
