"""Procedural surface textures, and the material that carries one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from synth.rooms.meshes import FloatArray

TextureArray: TypeAlias = npt.NDArray[np.float32]
"""sRGB in 0..1, shape (n, n, 3)."""
Colour: TypeAlias = tuple[float, float, float]
"""Linear RGB."""
_Pattern: TypeAlias = tuple[FloatArray, npt.NDArray[np.bool_] | None, float | None]
"""Brightness (n, n); where the joints are, if any; their grey (None: a darker shade of the colour itself)."""

_SEAM_SHADE = 0.45


@dataclass(frozen=True, eq=False)
class Material:
    """What a surface looks like. Compared by identity: one material is one BSDF in the renderer.

    colour: linear RGB in 0..1, used where there is no texture. texture: (n, n, 3) sRGB in 0..1, repeating
    every `period` metres. roughness, metallic: 0..1.
    """

    colour: Colour
    roughness: float = 0.5
    metallic: float = 0.0
    texture: TextureArray | None = None
    period: float = 1.0


def texture(kind: str, colour: Colour, rng: np.random.Generator, size: int = 256) -> TextureArray:
    """A (size, size, 3) sRGB texture in 0..1 of one of `TEXTURES`, tinted by `colour`."""
    y, x = np.mgrid[0:size, 0:size] / size
    grey, joint, joint_value = TEXTURES[kind](x, y, rng)
    image = np.array(colour) * grey[..., None]
    if joint is not None:
        image[joint] = image[joint] * _SEAM_SHADE if joint_value is None else joint_value
    return np.clip(image, 0, 1).astype(np.float32)


def _noise(rng: np.random.Generator, size: int, stretch: tuple[float, float] = (1.0, 1.0)) -> FloatArray:
    """Cloudy (size, size) noise in 0..1 that tiles; `stretch` lengthens its grain along (y, x)."""
    frequency = np.fft.fftfreq(size)
    fy, fx = np.meshgrid(frequency * stretch[0], frequency * stretch[1], indexing="ij")
    spectrum = np.fft.fft2(rng.standard_normal((size, size)))
    cloud: FloatArray = np.fft.ifft2(spectrum / np.maximum(np.hypot(fx, fy), 2 / size) ** 1.2).real
    cloud -= cloud.mean()
    return np.clip(cloud / (3 * cloud.std()) * 0.5 + 0.5, 0, 1)


def _wood(x: FloatArray, y: FloatArray, rng: np.random.Generator) -> _Pattern:
    rows, tones = 6, 97
    row = (x * rows).astype(int)
    along = (y + rng.random(rows)[row]) * 2
    plank = (row * 7 + along.astype(int)) % tones
    tone = rng.uniform(0.75, 1.1, tones)[plank]
    grain = _noise(rng, len(x), stretch=(12, 1))
    seam = (np.abs((x * rows) % 1 - 0.5) > 0.485) | (along % 1 < 0.004)
    return tone * (0.7 + 0.6 * grain), seam, None


def _tile(x: FloatArray, y: FloatArray, rng: np.random.Generator) -> _Pattern:
    count = 4
    odd = ((x * count).astype(int) + (y * count).astype(int)) % 2
    grout = (np.abs((x * count) % 1 - 0.5) > 0.488) | (np.abs((y * count) % 1 - 0.5) > 0.488)
    return np.where(odd, 1.0, 0.8) * (0.85 + 0.3 * _noise(rng, len(x))), grout, 0.35


def _carpet(x: FloatArray, y: FloatArray, rng: np.random.Generator) -> _Pattern:
    return 0.55 + 0.5 * _noise(rng, len(x)) + 0.25 * rng.standard_normal(x.shape), None, None


def _brick(x: FloatArray, y: FloatArray, rng: np.random.Generator) -> _Pattern:
    tones = 64
    course = (y * 8).astype(int)
    shifted = x * 4 + 0.5 * (course % 2)
    brick = (course * 13 + shifted.astype(int) % 4 * 5) % tones
    tone = rng.uniform(0.7, 1.1, tones)[brick]
    mortar = ((y * 8) % 1 < 0.08) | (shifted % 1 < 0.04)
    return tone * (0.8 + 0.4 * _noise(rng, len(x))), mortar, 0.7


def _stripes(x: FloatArray, y: FloatArray, rng: np.random.Generator) -> _Pattern:
    return np.where((x * 8) % 1 < 0.5, 1.0, 0.8) * (0.95 + 0.1 * _noise(rng, len(x))), None, None


def _paint(x: FloatArray, y: FloatArray, rng: np.random.Generator) -> _Pattern:
    return 0.93 + 0.14 * _noise(rng, len(x)), None, None


TEXTURES: dict[str, Callable[[FloatArray, FloatArray, np.random.Generator], _Pattern]] = {
    "wood": _wood,
    "tile": _tile,
    "carpet": _carpet,
    "brick": _brick,
    "stripes": _stripes,
    "paint": _paint,
}
"""By name: a pattern from the coordinates x, y, each (n, n) in 0..1."""
