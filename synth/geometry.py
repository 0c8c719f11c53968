"""Geometry in plain numpy; OpenCV samples the pixels of a warp.

Conventions, pinned by tests/test_conventions.py: x right, y down, z forward; the centre of the pixel in column j and
row i is (j + 0.5, i + 0.5); metres; boxes (x1, y1, x2, y2); a homography H maps (x, y, 1) of the first image to the
second and is scaled by its last coordinate.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from synth.types import Box, DepthArray, Mask, Matrix, Rgb

Points = npt.NDArray[np.float64]
"""(N, 2) pixel coordinates (x, y), or (N, 3) metres."""


def generator(seed: int, *names: str) -> np.random.Generator:
    """The one source of randomness: depends on the run seed and the names (task, image id), never on order or rank."""
    text = "\x1f".join((str(seed), *names))
    return np.random.default_rng(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "big"))


def pixel_of(x: float, y: float) -> tuple[int, int]:
    """(row, column) of the pixel that holds the point."""
    return int(np.floor(y)), int(np.floor(x))


def unproject(points: Points, depth: npt.NDArray[np.float64], K: Matrix) -> Points:
    """(N, 2) pixels with z depth (N,) in metres -> (N, 3) metres in the camera frame."""
    x = (points[:, 0] - K[0, 2]) / K[0, 0] * depth
    y = (points[:, 1] - K[1, 2]) / K[1, 1] * depth
    return np.asarray(np.stack([x, y, depth], axis=1), dtype=np.float64)


def project(points: Points, K: Matrix) -> Points:
    """(N, 3) metres in the camera frame, z > 0 -> (N, 2) pixels."""
    x = K[0, 0] * points[:, 0] / points[:, 2] + K[0, 2]
    y = K[1, 1] * points[:, 1] / points[:, 2] + K[1, 2]
    return np.asarray(np.stack([x, y], axis=1), dtype=np.float64)


def apply_homography(H: Matrix, points: Points) -> Points:
    """(N, 2) pixels through H (3, 3) -> (N, 2) pixels. Points at infinity come out as nan."""
    homogeneous = np.concatenate([points, np.ones((len(points), 1))], axis=1) @ H.T
    w = homogeneous[:, 2:]
    mapped: Points = np.full((len(points), 2), np.nan)
    np.divide(homogeneous[:, :2], w, out=mapped, where=np.abs(w) > 1e-12)
    return mapped


def homography_from_corners(source: Points, target: Points) -> Matrix:
    """The (3, 3) homography through four point pairs (N = 4), by the direct linear transform."""
    rows = []
    for (x, y), (u, v) in zip(source, target, strict=True):
        rows.append([x, y, 1, 0, 0, 0, -u * x, -u * y, -u])
        rows.append([0, 0, 0, x, y, 1, -v * x, -v * y, -v])
    H = np.linalg.svd(np.asarray(rows, dtype=np.float64))[2][-1].reshape(3, 3)
    return np.asarray(H / H[2, 2], dtype=np.float64)


def warp(rgb: Rgb, H: Matrix, width: int, height: int) -> tuple[Rgb, Mask]:
    """Warp an image by H (first -> second) with bilinear sampling.

    Returns the second image (height, width, 3) and `covered` pixels; the others are mid-grey.
    """
    import cv2

    indices = _of_indices(H)
    sampled = cv2.warpPerspective(rgb, indices, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT)
    inside = covered(H, (rgb.shape[1], rgb.shape[0]), (width, height))
    out = np.full((height, width, 3), 127, dtype=np.uint8)
    return np.asarray(cv2.copyTo(sampled, inside.view(np.uint8), out), dtype=np.uint8), inside


def covered(H: Matrix, source: tuple[int, int], target: tuple[int, int]) -> Mask:
    """Pixels of the second image for which all that bilinear sampling reads lies inside the first.

    Sizes are (width, height). Those pixels come from between the first and the last pixel centres: an intersection of
    half planes, a x + b y + c >= 0, so one interval of columns in each row.
    """
    indices = _of_indices(H)
    last = np.array(source) - 1
    x, y, w = np.linalg.inv(indices / np.sign(indices[2] @ [*(last / 2), 1]))
    rows, columns = np.arange(target[1]), np.arange(target[0])
    first, end = np.full(target[1], -np.inf), np.full(target[1], np.inf)
    for a, b, c in (x, y, last[0] * w - x, last[1] * w - y, w):
        reached = -(b * rows + c)
        if a > 0:
            first = np.maximum(first, reached / a)
        elif a < 0:
            end = np.minimum(end, reached / a)
        else:
            end = np.where(reached > 0, -np.inf, end)
    return np.asarray((columns >= first[:, None]) & (columns <= end[:, None]))


def _of_indices(H: Matrix) -> Matrix:
    """H for OpenCV, where the centre of the first pixel is (0, 0)."""
    from_half, to_half = (np.array([[1, 0, s], [0, 1, s], [0, 0, 1]]) for s in (-0.5, 0.5))
    return np.asarray(from_half @ H @ to_half, dtype=np.float64)


def box_iou(a: Box, b: Box) -> float:
    """Intersection over union of two boxes."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    overlap = width * height
    return overlap / (box_area(a) + box_area(b) - overlap)


def box_area(box: Box) -> float:
    """Area in square pixels; an inverted box has none."""
    return max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1])


def mirror_box(box: Box, width: int) -> Box:
    """The box in the horizontally mirrored image of that width."""
    return (width - box[2], box[1], width - box[0], box[3])


def patch(values: DepthArray, x: float, y: float, radius: int) -> DepthArray | None:
    """The (2 radius + 1) square of values around the pixel that holds the point, or None where it leaves the image."""
    row, column = pixel_of(x, y)
    if row - radius < 0 or column - radius < 0 or row + radius >= values.shape[0] or column + radius >= values.shape[1]:
        return None
    return values[row - radius : row + radius + 1, column - radius : column + radius + 1]
