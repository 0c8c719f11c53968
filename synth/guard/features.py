"""Local features: where a picture has corners and blobs, and what they look like whatever its size or turn.

SIFT (Lowe 2004) through OpenCV, with the descriptors normalised as RootSIFT (Arandjelović & Zisserman 2012). Every
picture is brought to one size first, so that the strongest points of two copies are the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import numpy as np
import numpy.typing as npt
from PIL import Image

from synth.errors import GuardError
from synth.types import Rgb

SIDE = 384
"""Longest side in pixels that pictures are brought to."""
MOST = 400
"""Key points kept, the strongest."""
CONTRAST = 0.005
"""Threshold of the detector, an eighth of OpenCV's own: a plain wall or a door has few points above that, and a crop of
it none. Rich pictures keep the same strongest points."""
ENLARGED = 2.0
"""Small pictures are enlarged at most so much: SIFT doubles them once more, and beyond that nothing new appears."""
ALGORITHM = f"rootsift/{SIDE}/{MOST}/{CONTRAST}"
"""Changes whenever the same picture would get other features."""

Descriptors = npt.NDArray[np.uint8]
"""(K, 128): 4 x 4 cells of 8 directions, in the frame of the key point; length about `UNIT`."""
Places = npt.NDArray[np.float32]
"""(K, 4): x, y (pixels of the canonical picture), size (px), angle (radians, clockwise as y points down)."""
Grey = npt.NDArray[np.uint8]
"""(H, W) luma."""

UNIT = 512.0
"""Length of a descriptor; with it a component of 0.5 still fits a byte, and larger ones are cut as in SIFT."""

_GRID, _DIRECTIONS = 4, 8


@dataclass(frozen=True, kw_only=True, eq=False)
class Features:
    """The K key points of one picture, strongest first."""

    descriptors: Descriptors
    places: Places
    width: int
    """Of the canonical picture, px."""

    def __len__(self) -> int:
        return len(self.places)


def canonical(rgb: Rgb) -> Grey:
    """Luma of (H, W, 3) with the longest side at `SIDE`, or at twice what it is where that is less."""
    image = Image.fromarray(rgb).convert("L")
    scale = min(SIDE / max(image.size), ENLARGED)
    width, height = (max(1, round(side * scale)) for side in image.size)
    return np.asarray(image.resize((width, height), Image.Resampling.BICUBIC))


def extract(picture: Grey) -> Features:
    """Key points of a canonical picture (H, W). Raises GuardError without OpenCV."""
    cv2 = opencv()
    detector = cv2.SIFT_create(nfeatures=MOST, contrastThreshold=CONTRAST, enable_precise_upscale=True)
    points, found = detector.detectAndCompute(picture, None)
    width = picture.shape[1]
    if not points:
        return Features(descriptors=np.zeros((0, 128), np.uint8), places=np.zeros((0, 4), np.float32), width=width)
    places = np.array([(*p.pt, p.size, np.radians(p.angle)) for p in points], dtype=np.float32)
    strength = np.array([p.response for p in points])
    # Ties in strength would leave the choice to the order of detection.
    order = np.lexsort((*places.T, -strength))[:MOST]
    return Features(descriptors=_root(found[order]), places=places[order], width=width)


def mirrored(features: Features) -> Features:
    """What `extract` would find in the picture mirrored left to right: rows of cells swap, directions are negated."""
    cells = features.descriptors.reshape(-1, _GRID, _GRID, _DIRECTIONS)
    turned = cells[:, ::-1, :, -np.arange(_DIRECTIONS) % _DIRECTIONS]
    places = features.places.copy()
    places[:, 0] = features.width - 1 - places[:, 0]
    places[:, 3] = (np.pi - places[:, 3]) % (2 * np.pi)
    return Features(descriptors=turned.reshape(-1, 128), places=places, width=features.width)


def opencv() -> ModuleType:
    """The module cv2. Raises GuardError where it is not installed: unchecked is not clean."""
    try:
        import cv2
    except ImportError as error:
        raise GuardError(
            f"local features need OpenCV: {error}", where="guard", fix="pip install opencv-python-headless"
        ) from None
    # One process is one core of a run; OpenCV's own threads would compete with the other workers.
    cv2.setNumThreads(1)
    module: ModuleType = cv2
    return module


def _root(raw: npt.NDArray[np.float32]) -> Descriptors:
    share = raw / np.maximum(raw.sum(axis=1, keepdims=True), 1e-9)
    return np.asarray(np.minimum(np.rint(np.sqrt(share) * UNIT), 255), dtype=np.uint8)
