"""The kinds of things that stand, hang or lie in a room, and how each is built.

Every builder works in the object's own frame: metres, z up, on the floor at the origin. A picture has its
back toward +y; a globe hangs from z = 0 downward.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from synth.rooms.meshes import FloatArray, Mesh, box, lathe, merge, move, sphere
from synth.rooms.textures import Colour, Material

COLOURS: dict[str, Colour] = {
    "red": (0.72, 0.05, 0.05),
    "blue": (0.06, 0.16, 0.62),
    "green": (0.08, 0.45, 0.12),
    "yellow": (0.88, 0.68, 0.05),
    "white": (0.88, 0.88, 0.86),
    "black": (0.03, 0.03, 0.035),
    "purple": (0.36, 0.08, 0.50),
    "orange": (0.90, 0.32, 0.03),
}
"""Linear RGB of the colour words that objects are given."""

_DARK = Material((0.12, 0.1, 0.09), 0.5)
_METAL = Material((0.55, 0.55, 0.57), 0.35, 1.0)
_LEAF = Material((0.07, 0.28, 0.06), 0.6)
_WOOD = (0.45, 0.28, 0.15)


@dataclass(frozen=True, eq=False)
class Piece:
    """One mesh of one material; an object is a few of them."""

    mesh: Mesh
    material: Material


@dataclass(frozen=True, eq=False)
class Look:
    """What every object of a room draws for itself, whether or not its kind makes use of it.

    body: the material that gives the object its colour. scale: factor on the sizes that a kind keeps fixed.
    """

    body: Material
    wood: Material
    scale: float


Builder: TypeAlias = Callable[[Look, np.random.Generator], tuple[Piece, ...]]


def build(kind: str, colour: str, rng: np.random.Generator) -> tuple[Piece, ...]:
    """A random object of one of `KINDS`, its main part in one of `COLOURS`."""
    body = Material(_shade(COLOURS[colour], rng.uniform(0.85, 1.1)), float(rng.uniform(0.3, 0.9)))
    wood = Material(_shade(_WOOD, rng.uniform(0.6, 1.3)))
    return BUILDERS[kind](Look(body, wood, rng.uniform(0.85, 1.2)), rng)


def _shade(colour: Colour, factor: float) -> Colour:
    red, green, blue = (min(max(channel * factor, 0.0), 1.0) for channel in colour)
    return red, green, blue


def _rod(radius: float, length: float, segments: int) -> Mesh:
    return lathe([(0, 0), (radius, 0), (radius, length), (0, length)], segments)


def _legs(width: float, depth: float, height: float, thickness: float) -> Mesh:
    leg = box(thickness, thickness, height)
    x, y = width / 2 - thickness, depth / 2 - thickness
    return merge([move(leg, (sx * x, sy * y, 0)) for sx in (-1, 1) for sy in (-1, 1)])


def _table(look: Look, rng: np.random.Generator) -> tuple[Piece, ...]:
    width, depth, height = rng.uniform(0.8, 1.3), rng.uniform(0.55, 0.8), rng.uniform(0.45, 0.75)
    top = move(box(width, depth, 0.05), (0, 0, height - 0.05))
    return (Piece(merge([_legs(width, depth, height - 0.05, 0.06), top]), look.body),)


def _chair(look: Look, rng: np.random.Generator) -> tuple[Piece, ...]:
    scale = look.scale
    width, height = 0.46 * scale, 0.45 * scale
    seat = move(box(width, width, 0.06), (0, 0, height - 0.05))
    back = move(box(width, 0.05, 0.5 * scale), (0, 0.2 * scale, height))
    return Piece(_legs(width, width, height, 0.05), look.wood), Piece(merge([seat, back]), look.body)


def _stool(look: Look, rng: np.random.Generator) -> tuple[Piece, ...]:
    height = 0.44 * look.scale
    seat = move(_rod(0.19, 0.06, 24), (0, 0, height))
    leg = _rod(0.018, height, 8)
    legs = merge([move(leg, (0.11 * np.cos(a), 0.11 * np.sin(a), 0)) for a in np.arange(3) * 2.1])
    return Piece(seat, look.body), Piece(legs, _METAL)


def _ball(look: Look, rng: np.random.Generator) -> tuple[Piece, ...]:
    return (Piece(sphere(rng.uniform(0.12, 0.25), 20), look.body),)


def _box(look: Look, rng: np.random.Generator) -> tuple[Piece, ...]:
    width = rng.uniform(0.28, 0.5)
    return (Piece(box(width, width * rng.uniform(0.8, 1.3), width * rng.uniform(0.7, 1.1)), look.body),)


def _bin(look: Look, rng: np.random.Generator) -> tuple[Piece, ...]:
    shell = lathe([(0, 0), (0.13, 0), (0.18, 0.4), (0.165, 0.4), (0.12, 0.012), (0, 0.012)], 28)
    return (Piece(move(shell, scale=look.scale), look.body),)


def _lamp(look: Look, rng: np.random.Generator) -> tuple[Piece, ...]:
    height = rng.uniform(1.1, 1.6)
    stand = lathe([(0, 0), (0.15, 0), (0.15, 0.03), (0.018, 0.04), (0.018, height), (0, height)], 16)
    shade = lathe([(0.22, 0), (0.14, 0.3), (0.135, 0.3), (0.21, 0)], 28)
    return Piece(stand, _DARK), Piece(move(shade, (0, 0, height - 0.12)), look.body)


def _vase(look: Look, rng: np.random.Generator) -> tuple[Piece, ...]:
    steps = np.linspace(0, 1, 16)
    height = rng.uniform(0.4, 0.65)
    radii = height * (0.22 + 0.14 * np.sin(steps * rng.uniform(4, 5.5) + 0.4))
    outside = [(float(radius), float(z)) for radius, z in zip(radii, steps * height, strict=True)]
    inside = outside[-1][0] - 0.012
    return (Piece(lathe([(0, 0), *outside, (inside, height), (inside, height - 0.05)], 28), look.body),)


def _plant(look: Look, rng: np.random.Generator) -> tuple[Piece, ...]:
    pot = lathe([(0, 0), (0.12, 0), (0.17, 0.26), (0.15, 0.26), (0.14, 0.22), (0, 0.22)], 24)
    leaves = []
    for _ in range(22):
        turn, rise, length = rng.uniform(0, 6.28), rng.uniform(0.4, 1.45), rng.uniform(0.3, 0.6)
        leaves.append(move(_leaf(rise, length), turn=turn))
    return Piece(pot, look.body), Piece(merge(leaves), _LEAF)


def _leaf(rise: float, length: float) -> Mesh:
    """A drooping blade along +x that starts above the pot at `rise` radians and is `length` metres long."""
    steps = np.linspace(0, 1, 6)
    zero = np.zeros_like(steps)
    droop = 0.15 * length * steps**2
    height = 0.22 + length * steps * np.sin(rise) - droop
    spine = np.stack([length * steps * np.cos(rise), zero, height], axis=1)
    half_width = np.stack([zero, 0.05 * np.sin(np.pi * steps**0.7), zero], axis=1)
    vertices: FloatArray = np.concatenate([spine + half_width, spine - half_width])
    left = np.arange(len(steps) - 1)
    right = left + len(steps)
    lower, upper = (left, right, left + 1), (left + 1, right, right + 1)
    faces = np.concatenate([np.stack(lower, axis=1), np.stack(upper, axis=1)])
    normals = np.tile([-np.sin(rise), 0.0, np.cos(rise)], (len(vertices), 1))
    return Mesh(vertices, faces, vertices[:, :2], normals)


def _sofa(look: Look, rng: np.random.Generator) -> tuple[Piece, ...]:
    width = rng.uniform(1.3, 1.9)
    seat = move(box(width, 0.8, 0.38), (0, 0, 0.04))
    back = move(box(width, 0.2, 0.5), (0, 0.3, 0.36))
    arms = [move(box(0.18, 0.8, 0.56), (side * (width / 2 - 0.09), 0, 0.04)) for side in (-1, 1)]
    return (Piece(merge([seat, back, *arms]), look.body),)


def _cone(look: Look, rng: np.random.Generator) -> tuple[Piece, ...]:
    height = 0.52 * look.scale
    body = lathe([(0, 0.03), (0.14, 0.03), (0.02, height), (0, height)], 24)
    return (Piece(merge([box(0.36, 0.36, 0.03), body]), look.body),)


def _picture(look: Look, rng: np.random.Generator) -> tuple[Piece, ...]:
    return (Piece(box(rng.uniform(0.5, 0.9), 0.05, rng.uniform(0.4, 0.7)), look.body),)


def _globe(look: Look, rng: np.random.Generator) -> tuple[Piece, ...]:
    radius, cord = rng.uniform(0.13, 0.24), rng.uniform(0.2, 0.9)
    ball = move(sphere(radius, 20), (0, 0, -cord - 2 * radius))
    return Piece(ball, look.body), Piece(move(_rod(0.012, cord, 8), (0, 0, -cord)), _DARK)


BUILDERS: dict[str, Builder] = {
    "table": _table,
    "chair": _chair,
    "stool": _stool,
    "ball": _ball,
    "box": _box,
    "bin": _bin,
    "lamp": _lamp,
    "vase": _vase,
    "plant": _plant,
    "sofa": _sofa,
    "cone": _cone,
    "picture": _picture,
    "globe": _globe,
}

KINDS: tuple[str, ...] = tuple(BUILDERS)
"""The kinds of objects a room is furnished with."""
