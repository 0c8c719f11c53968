"""Takes from a picture what a question is about, or as much of something else: blur, a flat fill, other places.

Where the picture without its marks is known, the marks themselves stay as they are: what is taken is what they
point at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from PIL import Image, ImageFilter

from synth.images import decode, encode_png
from synth.types import Box, Item, Mark, Mask, Rgb

RegionKind: TypeAlias = Literal["around_marks", "with_marks", "boxes", "whole_image"]
"""around_marks: discs, the marks kept; with_marks: discs, the marks taken too (no picture without them is known);
boxes: as the benchmark gives them; whole_image: nobody knows where to look."""

DISC = 0.1
"""Radius of the disc around a mark, as a share of the picture's shorter side."""
BLUR_SIDE = 512
"""Shorter side at which a blur is as many pixels as its number says."""
_TRIES = 200
_Change: TypeAlias = Callable[[Rgb, Mask], Rgb]
"""(source, mask) -> a picture of the same size, of which the mask's pixels are taken."""


@dataclass(frozen=True, kw_only=True)
class Patch:
    """A piece of a region: a mask with the place of its upper left corner."""

    image: int
    row: int
    column: int
    mask: Mask


@dataclass(frozen=True, kw_only=True)
class Subject:
    """An item's pictures, decoded, with the region that matters."""

    pictures: tuple[Rgb, ...]
    sources: tuple[Rgb, ...]
    """What pixels are taken from: the pictures without marks where known."""
    kept: tuple[Mask, ...]
    """Pixels that never change: the marks, where it is known which they are."""
    kind: RegionKind
    patches: tuple[Patch, ...]
    """No two of them share a pixel; together they are the region."""


def subject_of(item: Item, clean: Mapping[str, bytes]) -> Subject:
    """The item's pictures and its region. Raises ImageError for a picture that cannot be decoded."""
    pictures = tuple(decode(data, min_side=1) for data in item.images)
    sources = pictures
    known = len(item.clean) == len(pictures) and all(name in clean for name in item.clean)
    if known:
        found = tuple(decode(clean[name], min_side=1) for name in item.clean)
        known = all(a.shape == b.shape for a, b in zip(found, pictures, strict=True))
        sources = found if known else pictures
    kept = tuple((a != b).any(axis=2) for a, b in zip(pictures, sources, strict=True))
    kind: RegionKind = "whole_image"
    shapes: Sequence[Sequence[Mask]] = [[np.ones(rgb.shape[:2], np.bool_)] for rgb in pictures]
    if any(item.boxes):
        kind = "boxes"
        shapes = [[_box(box, rgb) for box in boxes] for boxes, rgb in zip(item.boxes, pictures, strict=True)]
    elif any(item.marks):
        kind = "around_marks" if known else "with_marks"
        shapes = [[_disc(mark, rgb) for mark in marks] for marks, rgb in zip(item.marks, pictures, strict=True)]
    return Subject(pictures=pictures, sources=sources, kept=kept, kind=kind, patches=tuple(_patches(shapes)))


def elsewhere(subject: Subject, rng: np.random.Generator) -> tuple[Patch, ...] | None:
    """Patches of the same shapes and areas in the same pictures, none of which touches the region or another one.

    None where there is no room for them.
    """
    taken = [mask.copy() for mask in _masks(subject, subject.patches)]
    found = []
    for patch in sorted(subject.patches, key=lambda patch: -int(patch.mask.sum())):
        height, width = patch.mask.shape
        occupied = taken[patch.image]
        for _ in range(_TRIES):
            row = int(rng.integers(occupied.shape[0] - height + 1))
            column = int(rng.integers(occupied.shape[1] - width + 1))
            window = occupied[row : row + height, column : column + width]
            if not (window & patch.mask).any():
                window |= patch.mask
                found.append(Patch(image=patch.image, row=row, column=column, mask=patch.mask))
                break
        else:
            return None
    return tuple(found)


def blurred(subject: Subject, patches: Sequence[Patch], sigma: float) -> tuple[bytes, ...]:
    """The pictures with the patches blurred (Gaussian, `sigma` in pixels of a picture of 512), as PNG."""

    def blur(source: Rgb, _: Mask) -> Rgb:
        radius = sigma * min(source.shape[:2]) / BLUR_SIDE
        return np.asarray(Image.fromarray(source).filter(ImageFilter.GaussianBlur(radius)))

    return _changed(subject, patches, blur)


def filled(subject: Subject, patches: Sequence[Patch]) -> tuple[bytes, ...]:
    """The pictures with the patches in their own mean colour, as PNG."""

    def fill(source: Rgb, mask: Mask) -> Rgb:
        colour = source[mask].mean(axis=0).round().astype(np.uint8)
        return np.broadcast_to(colour, source.shape)

    return _changed(subject, patches, fill)


def _changed(subject: Subject, patches: Sequence[Patch], change: _Change) -> tuple[bytes, ...]:
    images = []
    for i, mask in enumerate(_masks(subject, patches)):
        picture = subject.pictures[i]
        if mask.any():
            where = (mask & ~subject.kept[i])[..., None]
            picture = np.where(where, change(subject.sources[i], mask), picture)
        images.append(encode_png(picture))
    return tuple(images)


def _masks(subject: Subject, patches: Sequence[Patch]) -> list[Mask]:
    masks = [np.zeros(rgb.shape[:2], np.bool_) for rgb in subject.pictures]
    for patch in patches:
        height, width = patch.mask.shape
        masks[patch.image][patch.row : patch.row + height, patch.column : patch.column + width] |= patch.mask
    return masks


def _patches(shapes: Sequence[Sequence[Mask]]) -> list[Patch]:
    """Each shape without what an earlier one has, cut to its bounding box."""
    patches = []
    for image, masks in enumerate(shapes):
        taken: Mask | None = None
        for mask in masks:
            own = mask if taken is None else mask & ~taken
            taken = mask if taken is None else taken | mask
            rows, columns = np.flatnonzero(own.any(axis=1)), np.flatnonzero(own.any(axis=0))
            if len(rows):
                top, left = int(rows[0]), int(columns[0])
                cut = own[top : int(rows[-1]) + 1, left : int(columns[-1]) + 1]
                patches.append(Patch(image=image, row=top, column=left, mask=cut))
    return patches


def _disc(mark: Mark, rgb: Rgb) -> Mask:
    radius = DISC * min(rgb.shape[:2])
    y, x = np.ogrid[: rgb.shape[0], : rgb.shape[1]]
    return np.asarray((x + 0.5 - mark.x) ** 2 + (y + 0.5 - mark.y) ** 2 <= radius * radius)


def _box(box: Box, rgb: Rgb) -> Mask:
    y, x = np.ogrid[: rgb.shape[0], : rgb.shape[1]]
    return np.asarray((x + 0.5 >= box[0]) & (x + 0.5 < box[2]) & (y + 0.5 >= box[1]) & (y + 0.5 < box[3]))
