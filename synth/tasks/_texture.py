"""Places that can be told apart: corners by Shi and Tomasi (CVPR 1994), and how much two of them look alike.

Works on luma reduced to a short side of about 160 pixels: texture finer than that is not visible to most models, and
the whole costs a few milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from synth.geometry import Points
from synth.types import Rgb

FloatImage = npt.NDArray[np.float32]

_SIDE = 160
_CELL = 6
_WINDOW = 2
_PATCH = 4
_SHIFT = 1
MARGIN = _PATCH + _SHIFT + 1
"""Reduced pixels that a corner keeps from the border, so that its patch fits."""


@dataclass(frozen=True)
class Corners:
    """Corners of an image."""

    points: Points
    """(N, 2) pixels of the full image."""
    strength: npt.NDArray[np.float32]
    """(N,) square root of the smaller eigenvalue of the mean structure tensor: grey levels a reduced pixel."""
    luma: FloatImage
    """The reduced image."""
    factor: int
    """Full pixels a reduced pixel."""


def corners(rgb: Rgb, min_strength: float) -> Corners:
    """The strongest corner of each cell of 6 x 6 reduced pixels, where it is at least `min_strength`."""
    luma, factor = _reduced(rgb)
    response = _smaller_eigenvalue(luma)
    rows, columns = response.shape[0] // _CELL, response.shape[1] // _CELL
    if not rows or not columns:
        return Corners(np.zeros((0, 2)), np.zeros(0, dtype=np.float32), luma, factor)
    cells = response[: rows * _CELL, : columns * _CELL].reshape(rows, _CELL, columns, _CELL).transpose(0, 2, 1, 3)
    flat = cells.reshape(rows * columns, _CELL * _CELL)
    best = flat.argmax(axis=1)
    cell_row, cell_column = np.divmod(np.arange(rows * columns), columns)
    y = cell_row * _CELL + best // _CELL
    x = cell_column * _CELL + best % _CELL
    inner = (x >= MARGIN) & (x < luma.shape[1] - MARGIN) & (y >= MARGIN) & (y < luma.shape[0] - MARGIN)
    x, y, strength = x[inner], y[inner], np.sqrt(flat[np.arange(len(best)), best][inner])
    # A cell's best may be the slope of a peak in the next cell; two alike corners would then be off by some pixels.
    steps = np.arange(-2, 3)
    highest = np.sqrt(response[y[:, None, None] + steps[:, None], x[:, None, None] + steps].max(axis=(1, 2)))
    keep = (strength >= min_strength) & (strength >= highest)
    points = (np.stack([x, y], axis=1)[keep] + 0.5) * factor
    return Corners(np.asarray(points, dtype=np.float64), strength[keep], luma, factor)


def textured(rgb: Rgb, places: Points, min_strength: float) -> tuple[Corners, npt.NDArray[np.int64]]:
    """Those of the places that have texture within two reduced pixels, as corners, and their indices.

    Places too near to the border, where no patch fits, have none.
    """
    luma, factor = _reduced(rgb)
    response = _smaller_eigenvalue(luma)
    x, y = np.floor(places / factor).astype(np.int64).T
    inner = (x >= MARGIN) & (x < luma.shape[1] - MARGIN) & (y >= MARGIN) & (y < luma.shape[0] - MARGIN)
    index = np.flatnonzero(inner)
    steps = np.arange(-2, 3)
    around = response[y[index][:, None, None] + steps[:, None], x[index][:, None, None] + steps]
    strength = np.sqrt(around.max(axis=(1, 2), initial=0.0))
    keep = strength >= min_strength
    return Corners(places[index][keep], strength[keep], luma, factor), np.asarray(index[keep], dtype=np.int64)


@dataclass(frozen=True)
class Patches:
    """Every patch of a picture."""

    vectors: FloatImage
    """(n, 81), mean 0 and length 1."""
    centres: Points
    """(n, 2) pixels of the full image."""


def patches(rgb: Rgb) -> Patches:
    """Every patch of a picture, at each reduced pixel where one fits."""
    luma, factor = _reduced(rgb)
    side = 2 * _PATCH + 1
    if min(luma.shape) < side:
        return Patches(np.zeros((0, side * side), dtype=np.float32), np.zeros((0, 2)))
    windows = np.lib.stride_tricks.sliding_window_view(luma, (side, side))
    rows, columns = np.mgrid[: windows.shape[0], : windows.shape[1]] + _PATCH + 0.5
    return Patches(_normalised(windows), np.stack([columns.ravel(), rows.ravel()], axis=1) * factor)


def likest(found: Corners, k: int, everywhere: Patches, away: float) -> float:
    """Largest correlation of a corner's patch with a patch of the same picture that is at least `away` px from it.

    -1 where there is none.
    """
    far = np.hypot(*(everywhere.centres - found.points[k]).T) >= away
    own = _normalised(_around(found, k, _PATCH)[None])[0]
    return float((everywhere.vectors @ own)[far].max(initial=-1.0))


def likeness(found: Corners, i: int, j: int) -> float:
    """Normalised correlation (-1..1) of the patches around two corners, the best over shifts of one reduced pixel."""
    side = 2 * _PATCH + 1
    shifted = np.lib.stride_tricks.sliding_window_view(_around(found, j, _PATCH + _SHIFT), (side, side))
    both = _normalised(np.concatenate([_around(found, i, _PATCH)[None], shifted.reshape(-1, side, side)]))
    return float((both[1:] @ both[0]).max())


def _reduced(rgb: Rgb) -> tuple[FloatImage, int]:
    """Luma with a short side of about 160 pixels, and the full pixels a reduced one."""
    factor = max(1, min(rgb.shape[:2]) // _SIDE)
    grey = Image.fromarray(rgb).convert("L")
    return np.asarray(grey.reduce(factor) if factor > 1 else grey, dtype=np.float32), factor


def _around(found: Corners, k: int, radius: int) -> FloatImage:
    x, y = (int(v) for v in found.points[k] // found.factor)
    return found.luma[y - radius : y + radius + 1, x - radius : x + radius + 1]


def _normalised(windows: FloatImage) -> FloatImage:
    """(…, k, k) patches -> (n, k * k) vectors of mean 0 and length 1."""
    flat = windows.reshape(-1, windows.shape[-2] * windows.shape[-1])
    centred = flat - flat.mean(axis=1, keepdims=True)
    length = np.sqrt(np.einsum("ij,ij->i", centred, centred))
    return np.asarray(centred / np.maximum(length, 1e-6)[:, None], dtype=np.float32)


def _smaller_eigenvalue(luma: FloatImage) -> FloatImage:
    gy, gx = np.zeros_like(luma), np.zeros_like(luma)
    gy[1:-1] = (luma[2:] - luma[:-2]) / 2
    gx[:, 1:-1] = (luma[:, 2:] - luma[:, :-2]) / 2
    xx, yy, xy = _mean(gx * gx), _mean(gy * gy), _mean(gx * gy)
    half, rest = (xx + yy) / 2, np.sqrt(((xx - yy) / 2) ** 2 + xy * xy)
    return np.asarray(np.maximum(half - rest, 0), dtype=np.float32)


def _mean(values: FloatImage) -> FloatImage:
    """Mean over a 5 x 5 window; the border, where it does not fit, is 0."""
    side = 2 * _WINDOW + 1
    out = np.zeros_like(values)
    if min(values.shape) <= side:
        return out
    rows, columns = values.shape[0] - side + 1, values.shape[1] - side + 1
    tall = np.add.reduce([values[k : rows + k] for k in range(side)])
    out[_WINDOW:-_WINDOW, _WINDOW:-_WINDOW] = np.add.reduce([tall[:, k : columns + k] for k in range(side)]) / side**2
    return out
