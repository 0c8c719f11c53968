"""Triangle meshes in metres, z up: the few shapes that a room is made of, and how to move and join them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]

_BOX_UV = [[1, 2], [0, 2], [0, 1]]  # by normal axis; v runs up every wall, so that bricks lie flat
_SMALLEST_AREA = 1e-12
_SMALLEST_RADIUS = 0.01


@dataclass(frozen=True, eq=False)
class Mesh:
    """Triangles with a normal and a texture coordinate per vertex.

    vertices: (V, 3) metres. faces: (F, 3) vertex indices, counter-clockwise from outside. normals: (V, 3)
    unit, outward. uv: (V, 2) metres along the surface, so that a texture has the same scale on every object.
    """

    vertices: FloatArray
    faces: IntArray
    uv: FloatArray
    normals: FloatArray


def box(width: float, depth: float, height: float) -> Mesh:
    """Axis-aligned box of extents (x, y, z) in metres, centred in x and y, standing on z = 0."""
    extent = np.array([width, depth, height])
    corners = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)], dtype=float)
    vertices: list[FloatArray] = []
    faces: list[IntArray] = []
    uv: list[FloatArray] = []
    normals: list[FloatArray] = []
    for axis in range(3):
        first, second = (axis + 1) % 3, (axis + 2) % 3
        for side in (-1.0, 1.0):
            quad = np.zeros((4, 3))
            quad[:, axis] = side
            quad[:, first] = corners[:, 0] * side
            quad[:, second] = corners[:, 1]
            start = 4 * len(vertices)
            vertices.append(quad * extent / 2)
            faces.append(np.array([(0, 1, 2), (0, 2, 3)]) + start)
            uv.append(((quad + 1) / 2 * extent)[:, _BOX_UV[axis]])
            normals.append(np.tile(np.eye(3)[axis] * side, (4, 1)))
    standing = np.concatenate(vertices) + np.array([0.0, 0.0, height / 2])
    return Mesh(standing, np.concatenate(faces), np.concatenate(uv), np.concatenate(normals))


def lathe(profile: Sequence[tuple[float, float]], segments: int = 48, crease: float = 40.0) -> Mesh:
    """Surface of revolution about z of a profile of (radius, z) points in metres.

    The profile is listed along the outside from bottom to top; its corners sharper than `crease` degrees stay
    sharp, the others are shaded smooth.
    """
    points = np.array(profile, dtype=float)
    steps = np.diff(points, axis=0)
    lengths = np.linalg.norm(steps, axis=1)
    along = steps / lengths[:, None]
    outward = np.stack([along[:, 1], -along[:, 0]], axis=1)
    height_on_surface = np.concatenate([[0.0], np.cumsum(lengths)])
    around = max(points[:, 0].max(), _SMALLEST_RADIUS)
    angle = np.linspace(0, 2 * np.pi, segments + 1)
    cos, sin = np.cos(angle), np.sin(angle)
    vertices, faces, uv, normals = [], [], [], []
    for band in range(len(along)):
        for point in (band, band + 1):
            radius, z = points[point]
            across, up = _profile_normal(outward, point, band, np.cos(np.radians(crease)))
            vertices.append(np.stack([radius * cos, radius * sin, np.full_like(cos, z)], axis=1))
            normals.append(np.stack([across * cos, across * sin, np.full_like(cos, up)], axis=1))
            uv.append(np.stack([angle * around, np.full_like(cos, height_on_surface[point])], axis=1))
        lower = 2 * band * (segments + 1) + np.arange(segments)
        upper = lower + segments + 1
        faces.append(np.stack([lower, lower + 1, upper + 1], axis=1))
        faces.append(np.stack([lower, upper + 1, upper], axis=1))
    return _without_slivers(Mesh(*(np.concatenate(part) for part in (vertices, faces, uv, normals))))


def sphere(radius: float, rings: int = 32) -> Mesh:
    """Sphere of `radius` metres that rests on z = 0."""
    angle = np.linspace(-np.pi / 2, np.pi / 2, rings)
    profile = [(float(radius * np.cos(a)), float(radius * np.sin(a) + radius)) for a in angle]
    return lathe(profile, 2 * rings)


def move(
    mesh: Mesh,
    offset: tuple[float, float, float] = (0.0, 0.0, 0.0),
    turn: float = 0.0,
    scale: float = 1.0,
) -> Mesh:
    """The mesh scaled about the origin, turned by `turn` radians about z, then moved by `offset` metres."""
    cos, sin = np.cos(turn), np.sin(turn)
    rotation = np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])
    vertices = mesh.vertices * scale @ rotation.T + np.array(offset)
    return Mesh(vertices, mesh.faces, mesh.uv, mesh.normals @ rotation.T)


def merge(meshes: Sequence[Mesh]) -> Mesh:
    """One mesh with the triangles of all."""
    starts = np.cumsum([0] + [len(mesh.vertices) for mesh in meshes[:-1]])
    return Mesh(
        np.concatenate([mesh.vertices for mesh in meshes]),
        np.concatenate([mesh.faces + start for mesh, start in zip(meshes, starts, strict=True)]),
        np.concatenate([mesh.uv for mesh in meshes]),
        np.concatenate([mesh.normals for mesh in meshes]),
    )


def _profile_normal(outward: FloatArray, point: int, band: int, smooth_above: float) -> FloatArray:
    """Unit (radial, z) normal at a profile point as seen from one of the two bands that meet there."""
    other = point - 1 if band == point else point
    if 0 <= other < len(outward) and other != band and outward[other] @ outward[band] > smooth_above:
        mean: FloatArray = outward[other] + outward[band]
        return mean / np.linalg.norm(mean)
    own: FloatArray = outward[band]
    return own


def _without_slivers(mesh: Mesh) -> Mesh:
    corners = mesh.vertices[mesh.faces]
    area = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1)
    return Mesh(mesh.vertices, mesh.faces[area > _SMALLEST_AREA], mesh.uv, mesh.normals)
