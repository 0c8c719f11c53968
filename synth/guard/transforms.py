"""What may have been done to a copy of a benchmark image: the table that planted copies and the self-test share.

Each transformation takes the picture, another picture (for collages) and a generator, and is encoded as JPEG at its own
quality. `hashed` ones are what PDQ alone is held to; the rest need local features.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from synth import images
from synth.marks import draw_marks
from synth.types import Mark, Rgb

_PAGE = (800, 1280)
"""Height and width of the page of `screenshot`, px."""


@dataclass(frozen=True, kw_only=True)
class Transform:
    """One way to alter a picture."""

    alter: Callable[[Rgb, Rgb, np.random.Generator], Rgb]
    quality: int = 90
    """Of the JPEG."""
    hashed: bool = False
    """True where the perceptual hash must find it without local features."""
    planted: bool = True
    """False where what becomes of a picture depends too much on the picture for a proof that must not fail."""

    def copy(self, rgb: Rgb, other: Rgb, rng: np.random.Generator) -> bytes:
        """The JPEG of the altered picture."""
        buffer = io.BytesIO()
        altered = np.ascontiguousarray(self.alter(rgb, other, rng))
        Image.fromarray(altered).save(buffer, "JPEG", quality=self.quality)
        return buffer.getvalue()


def clouds(height: int, width: int, rng: np.random.Generator) -> Rgb:
    """Noise of several scales, (height, width, 3): it resembles no photograph and has structure enough to be hashed."""
    total = np.zeros((height, width, 3), dtype=np.float32)
    for cells in (3, 7, 15, 31):
        coarse = rng.integers(0, 256, size=(cells, cells, 3), dtype=np.uint8)
        total += images.resize(coarse, width, height).astype(np.float32) / cells**0.5
    low, high = total.min(), total.max()
    return np.asarray((total - low) / max(high - low, 1e-6) * 255, dtype=np.uint8)


def crop(rgb: Rgb, side: float, rng: np.random.Generator) -> Rgb:
    """A window that keeps this share of either side, at a random place."""
    height, width = rgb.shape[:2]
    tall, wide = round(height * side), round(width * side)
    top, left = int(rng.integers(0, height - tall + 1)), int(rng.integers(0, width - wide + 1))
    return rgb[top : top + tall, left : left + wide]


def _scaled(rgb: Rgb, scale: float) -> Rgb:
    height, width = rgb.shape[:2]
    return images.resize(rgb, max(1, round(width * scale)), max(1, round(height * scale)))


def _thumb(rgb: Rgb) -> Rgb:
    """Longest side 128 px, or half of what it is."""
    longest = max(rgb.shape[:2])
    return _scaled(rgb, min(128, longest // 2) / longest)


def _gray(rgb: Rgb) -> Rgb:
    return np.asarray(Image.fromarray(rgb).convert("L").convert("RGB"))


def _bright(rgb: Rgb) -> Rgb:
    return np.asarray(np.clip(rgb.astype(np.float32) * 1.3 + 10, 0, 255), dtype=np.uint8)


def _turned_hue(rgb: Rgb) -> Rgb:
    """The hue by a quarter of the circle."""
    hsv = np.asarray(Image.fromarray(rgb).convert("HSV")).copy()
    hsv[..., 0] += 64
    return np.asarray(Image.fromarray(hsv, "HSV").convert("RGB"))


def _rotated(rgb: Rgb) -> Rgb:
    """By 5 degrees, the corners black."""
    return np.asarray(Image.fromarray(rgb).rotate(5, Image.Resampling.BILINEAR, expand=True, fillcolor=(0, 0, 0)))


def marked(rgb: Rgb, rng: np.random.Generator) -> Rgb:
    """Two to five lettered rings, as visual prompts have them."""
    height, width = rgb.shape[:2]
    points = rng.uniform(0.1, 0.9, size=(int(rng.integers(2, 6)), 2)) * (width, height)
    marks = [Mark(label="ABCDE"[i], x=float(x), y=float(y)) for i, (x, y) in enumerate(points)]
    return draw_marks(rgb, marks, rng).rgb


def _boxes(rgb: Rgb, rng: np.random.Generator) -> Rgb:
    """Three red rectangles, as answers of detectors are shown."""
    image = Image.fromarray(rgb)
    pen = ImageDraw.Draw(image)
    for _ in range(3):
        x, y = rng.uniform(0, 0.6, 2) * image.size
        wide, tall = rng.uniform(0.15, 0.4, 2) * image.size
        pen.rectangle([x, y, x + wide, y + tall], outline=(255, 0, 0), width=max(2, min(image.size) // 120))
    return np.asarray(image)


def _watermark(rgb: Rgb) -> Rgb:
    """Slanted words all over, at 35 %."""
    text = Image.new("L", (110, 110), 0)
    ImageDraw.Draw(text).text((5, 50), "SAMPLE PHOTO", fill=255)
    height, width = rgb.shape[:2]
    tile = np.tile(np.asarray(text.rotate(30)), (height // 110 + 1, width // 110 + 1))[:height, :width, None]
    share = tile / 255 * 0.35
    return np.asarray(rgb * (1 - share) + 255 * share, dtype=np.uint8)


def _padded(rgb: Rgb, vertical: int, horizontal: int, grey: int) -> Rgb:
    return np.pad(rgb, ((vertical, vertical), (horizontal, horizontal), (0, 0)), constant_values=grey)


def bordered(rgb: Rgb, rng: np.random.Generator) -> Rgb:
    """15 % of the size on every side, black, white or grey."""
    height, width = rgb.shape[:2]
    return _padded(rgb, round(0.15 * height), round(0.15 * width), int(rng.choice([0, 255, 127])))


def _letterbox(rgb: Rgb) -> Rgb:
    """Black bars that make it 16:9, or square where it is wide already."""
    height, width = rgb.shape[:2]
    if width * 9 < height * 16:
        return _padded(rgb, 0, (round(height * 16 / 9) - width) // 2, 0)
    return _padded(rgb, (width - height) // 2, 0, 0)


def _beside(rgb: Rgb, other: Rgb, rng: np.random.Generator, grey: int | None = None) -> Rgb:
    """Beside another picture at the same height, on either side; the gutter is `grey`, or unlike the edges."""
    height, width = rgb.shape[:2]
    neighbour = images.resize(other, max(1, round(other.shape[1] * height / other.shape[0])), height)
    edges = np.concatenate([rgb[:, :2], rgb[:, -2:]], axis=1).mean()
    level = grey if grey is not None else 255 if edges < 128 else 0
    gutter = np.full((height, max(4, round(0.03 * width)), 3), level, dtype=np.uint8)
    pair = [rgb, gutter, neighbour]
    return np.concatenate(pair if rng.random() < 0.5 else pair[::-1], axis=1)


def _screenshot(rgb: Rgb, rng: np.random.Generator) -> Rgb:
    """At about 36 % of the area in a page with a bar and lines of text."""
    tall, wide = _PAGE
    page = np.full((tall, wide, 3), 245, dtype=np.uint8)
    page[:60] = (60, 80, 120)
    for row in range(100, tall - 20, 22):
        page[row : row + 8, 900 : 900 + int(rng.integers(150, 350))] = 90
    height, width = rgb.shape[:2]
    scale = min(0.9 * tall / height, 820 / width, (0.36 * tall * wide / (height * width)) ** 0.5)
    small = _scaled(rgb, scale)
    page[70 : 70 + small.shape[0], 40 : 40 + small.shape[1]] = small
    return page


def _jigsaw(rgb: Rgb) -> Rgb:
    """The lower right quarter blacked out."""
    out = rgb.copy()
    out[rgb.shape[0] // 2 :, rgb.shape[1] // 2 :] = 0
    return out


TRANSFORMS: Mapping[str, Transform] = {
    "identity": Transform(alter=lambda r, o, g: r, quality=95, hashed=True),
    "jpeg20": Transform(alter=lambda r, o, g: r, quality=20, hashed=True),
    "jpeg60": Transform(alter=lambda r, o, g: r, quality=60, hashed=True),
    "resize50": Transform(alter=lambda r, o, g: _scaled(r, 0.5), hashed=True),
    "thumb128": Transform(alter=lambda r, o, g: _thumb(r), quality=85, hashed=True),
    "stretch336": Transform(alter=lambda r, o, g: images.resize(r, 336, 336), hashed=True),
    "crop90": Transform(alter=lambda r, o, g: crop(r, 0.9, g)),
    "crop70": Transform(alter=lambda r, o, g: crop(r, 0.7, g)),
    "crop50": Transform(alter=lambda r, o, g: crop(r, 0.5, g)),
    "hflip": Transform(alter=lambda r, o, g: r[:, ::-1], hashed=True),
    "rot90": Transform(alter=lambda r, o, g: np.rot90(r), hashed=True),
    "rot180": Transform(alter=lambda r, o, g: np.rot90(r, 2), hashed=True),
    "rot5": Transform(alter=lambda r, o, g: _rotated(r)),
    "bright": Transform(alter=lambda r, o, g: _bright(r), hashed=True),
    "gray": Transform(alter=lambda r, o, g: _gray(r), hashed=True),
    # Strong colours change their luma, and with it everything that is compared.
    "hue90": Transform(alter=lambda r, o, g: _turned_hue(r), planted=False),
    "marks": Transform(alter=lambda r, o, g: marked(r, g), quality=75, hashed=True),
    "boxes": Transform(alter=lambda r, o, g: _boxes(r, g)),
    "watermark": Transform(alter=lambda r, o, g: _watermark(r)),
    "border15": Transform(alter=lambda r, o, g: bordered(r, g), quality=85, hashed=True),
    "letterbox": Transform(alter=lambda r, o, g: _letterbox(r), quality=85, hashed=True),
    "collage": Transform(alter=_beside, quality=85, hashed=True),
    "collage_marks": Transform(alter=lambda r, o, g: marked(_beside(r, o, g, 255), g), quality=75),
    "screenshot": Transform(alter=lambda r, o, g: _screenshot(r, g)),
    "jigsaw": Transform(alter=lambda r, o, g: _jigsaw(r)),
    "flip_crop70_marks": Transform(alter=lambda r, o, g: marked(crop(r, 0.7, g)[:, ::-1], g)),
}
"""Names as the certificate and the tables of the self-test print them."""
