"""A furnished room from a seed: surfaces, window, objects and two cameras.

World frame: metres, z up; the floor is z = 0 and the room's middle is x = y = 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from synth.rooms.meshes import FloatArray, Mesh, box, merge, move
from synth.rooms.objects import COLOURS, KINDS, Piece, build
from synth.rooms.textures import Colour, Material, texture

STRUCTURE: tuple[str, ...] = ("floor", "wall", "ceiling", "window")
"""Names of the first instances of every room; the objects follow."""

_FLOOR, _WALL, _CEILING, _WINDOW = range(4)
_FLOORS: tuple[Colour, ...] = (
    (0.5, 0.32, 0.18),
    (0.62, 0.6, 0.56),
    (0.42, 0.4, 0.38),
    (0.35, 0.22, 0.14),
    (0.5, 0.5, 0.46),
)
_WALLS: tuple[Colour, ...] = (
    (0.75, 0.72, 0.66),
    (0.62, 0.68, 0.72),
    (0.7, 0.62, 0.5),
    (0.55, 0.62, 0.55),
    (0.7, 0.6, 0.62),
)
_BRICK: Colour = (0.5, 0.3, 0.22)
_WHITE: Colour = (1.0, 1.0, 1.0)
_DAYLIGHT: Colour = (3.2, 3.8, 4.6)
_LAMPLIGHT: Colour = (9.0, 8.0, 6.5)
_PLASTER = Material((0.85, 0.85, 0.85), 0.95)
_SKIRTING = Material((0.8, 0.8, 0.78), 0.4)
_PANE = Material((0.5, 0.5, 0.5), 1.0)

_THICKNESS = 0.1  # of floor, walls and ceiling
_SILL, _WINDOW_HEIGHT = 0.9, 1.2
_OVERLAP = 0.02  # of the pane with the wall: flush edges would let single rays slip out of the room
_TRIES = 60


@dataclass(frozen=True)
class Size:
    """Inner extents of a room in metres; x runs over +-width/2, y over +-depth/2, z over 0..height."""

    width: float
    depth: float
    height: float

    @property
    def window_width(self) -> float:
        """Width of the window in the +x wall, metres along y."""
        return self.depth * 0.5


@dataclass(frozen=True, eq=False)
class Camera:
    """A level pinhole camera. eye, target: (3,) world metres. fov: horizontal, degrees."""

    eye: FloatArray
    target: FloatArray
    fov: float

    def pose(self) -> tuple[FloatArray, FloatArray]:
        """(R, t) of x_camera = R @ x_world + t in metres; OpenCV camera axes (x right, y down, z forward)."""
        forward = (self.target - self.eye) / np.linalg.norm(self.target - self.eye)
        right = np.cross(forward, [0.0, 0.0, 1.0])
        right /= np.linalg.norm(right)
        rotation = np.stack([right, np.cross(forward, right), forward])
        return rotation, -rotation @ self.eye

    def intrinsics(self, size: int) -> FloatArray:
        """K (3, 3) of a square picture of `size` px; pixel (row i, column j) lies at (j + .5, i + .5)."""
        focal = size / 2 / np.tan(np.radians(self.fov) / 2)
        return np.array([[focal, 0.0, size / 2], [0.0, focal, size / 2], [0.0, 0.0, 1.0]])


@dataclass(frozen=True, eq=False)
class Part:
    """One mesh in world coordinates that belongs to one instance; a light has an `emission`, its radiance."""

    mesh: Mesh
    material: Material
    instance: int
    emission: Colour | None = None


@dataclass(frozen=True, eq=False)
class Room:
    """A composed room. names, colours: per instance; what belongs to the building has the colour ''."""

    seed: int
    size: Size
    parts: tuple[Part, ...]
    names: tuple[str, ...]
    colours: tuple[str, ...]
    cameras: tuple[Camera, Camera]


def compose(seed: int) -> Room:
    """The room of this seed: 5 to 10 objects are drawn, and those stay for which a free place is found."""
    rng = np.random.default_rng(seed)
    size = Size(rng.uniform(4, 6.5), rng.uniform(4, 7), rng.uniform(2.5, 3.1))
    floor, wall = _floor_material(rng), _wall_material(rng)
    parts = [*_shell(size, floor, wall), *_lights(size)]
    names, colours = list(STRUCTURE), [""] * len(STRUCTURE)
    cameras = _cameras(size, rng)
    layout = _Layout(size, (cameras[0].eye[:2], cameras[1].eye[:2]))
    few_kinds = rng.choice(KINDS, 6, replace=False)
    kinds = [str(rng.choice(few_kinds)) for _ in range(int(rng.integers(5, 11)))]
    for kind in kinds:
        colour = str(rng.choice(list(COLOURS)))
        pieces = build(kind, colour, rng)
        spot = layout.place(kind, _radius(pieces), rng)
        if spot is None:
            continue
        for piece in pieces:
            parts.append(Part(move(piece.mesh, spot.position, spot.turn), piece.material, len(names)))
        names.append(kind)
        colours.append(colour)
    return Room(seed, size, tuple(parts), tuple(names), tuple(colours), cameras)


def _floor_material(rng: np.random.Generator) -> Material:
    kind = str(rng.choice(["wood", "tile", "carpet"]))
    base = _FLOORS[rng.integers(len(_FLOORS))]
    red, green, blue = np.array(base) * rng.uniform(0.8, 1.1)
    image = texture(kind, (red, green, blue), rng)
    return Material(_WHITE, 0.95 if kind == "carpet" else 0.5, texture=image, period=rng.uniform(1.2, 2.4))


def _wall_material(rng: np.random.Generator) -> Material:
    kind = str(rng.choice(["paint", "brick", "stripes"]))
    plain = _WALLS[rng.integers(len(_WALLS))]
    image = texture(kind, _BRICK if kind == "brick" else plain, rng)
    return Material(_WHITE, 0.9, texture=image, period=rng.uniform(1.2, 2.4))


def _shell(size: Size, floor: Material, wall: Material) -> list[Part]:
    # Floor and ceiling reach under and over the walls, so that no ray slips out along a seam.
    outer = (size.width + 2 * _THICKNESS, size.depth + 2 * _THICKNESS)
    slab = box(*outer, _THICKNESS)
    return [
        Part(move(slab, (0, 0, -_THICKNESS)), floor, _FLOOR),
        Part(move(slab, (0, 0, size.height)), _PLASTER, _CEILING),
        Part(_walls(size), wall, _WALL),
        Part(_skirting(size), _SKIRTING, _WALL),
    ]


def _walls(size: Size) -> Mesh:
    """Three whole walls, and four boxes around the window in the +x one."""
    x, y = (size.width + _THICKNESS) / 2, (size.depth + _THICKNESS) / 2
    long = box(size.width + 2 * _THICKNESS, _THICKNESS, size.height)
    walls = [move(long, (0, y, 0)), move(long, (0, -y, 0))]
    walls.append(move(box(_THICKNESS, size.depth, size.height), (-x, 0, 0)))
    half, side, top = size.depth / 2, size.window_width / 2, _SILL + _WINDOW_HEIGHT
    around = [
        (-half, half, 0.0, _SILL),
        (-half, half, top, size.height),
        (-half, -side, _SILL, top),
        (side, half, _SILL, top),
    ]
    for y0, y1, z0, z1 in around:
        walls.append(move(box(_THICKNESS, y1 - y0, z1 - z0), (x, (y0 + y1) / 2, z0)))
    return merge(walls)


def _skirting(size: Size) -> Mesh:
    thick, high = 0.02, 0.1
    x, y = (size.width - thick) / 2, (size.depth - thick) / 2
    along_x, along_y = box(size.width, thick, high), box(thick, size.depth, high)
    boards = [(along_x, 0.0, y), (along_x, 0.0, -y), (along_y, -x, 0.0), (along_y, x, 0.0)]
    return merge([move(board, (at_x, at_y, 0)) for board, at_x, at_y in boards])


def _lights(size: Size) -> list[Part]:
    """The window's pane, an instance of its own, and the light panel, which belongs to the ceiling."""
    x = (size.width + _THICKNESS) / 2
    y0, y1 = -size.window_width / 2 - _OVERLAP, size.window_width / 2 + _OVERLAP
    z0, z1 = _SILL - _OVERLAP, _SILL + _WINDOW_HEIGHT + _OVERLAP
    pane = _quad([(x, y0, z0), (x, y0, z1), (x, y1, z1), (x, y1, z0)])
    z = size.height - 0.01
    panel = _quad([(-0.5, -0.5, z), (-0.5, 0.5, z), (0.5, 0.5, z), (0.5, -0.5, z)])
    return [Part(pane, _PANE, _WINDOW, _DAYLIGHT), Part(panel, _PANE, _CEILING, _LAMPLIGHT)]


def _quad(corners: Sequence[tuple[float, float, float]]) -> Mesh:
    """A flat quadrilateral; seen from its front the corners run counter-clockwise."""
    vertices = np.array(corners)
    normal = np.cross(vertices[1] - vertices[0], vertices[2] - vertices[0])
    uv = np.array([(0.0, 0.0), (0.0, 1.0), (1.0, 1.0), (1.0, 0.0)])
    faces = np.array([(0, 1, 2), (0, 2, 3)])
    return Mesh(vertices, faces, uv, np.tile(normal / np.linalg.norm(normal), (4, 1)))


def _cameras(size: Size, rng: np.random.Generator) -> tuple[Camera, Camera]:
    """One camera near a random side that looks across the room, and one about a step to its left or right."""
    angle = rng.uniform(0, 2 * np.pi)
    half = np.array([np.cos(angle) * size.width / 2, np.sin(angle) * size.depth / 2])
    eye = np.array([*(half * rng.uniform(0.62, 0.88)), rng.uniform(0.6, 2.1)])
    across = rng.uniform(0, 0.5), rng.uniform(0, 0.5)
    target = np.array([*(-half * across), rng.uniform(0.4, 1.5)])
    fov = rng.uniform(58, 78)
    ahead = (target - eye)[:2] / np.linalg.norm((target - eye)[:2])
    side = np.array([-ahead[1], ahead[0]]) * rng.choice([-1, 1]) * rng.uniform(0.4, 0.9)
    second = eye.copy()
    second[:2] += side + ahead * rng.uniform(-0.2, 0.5)
    limit = np.array([size.width, size.depth]) / 2 - 0.25
    second[:2] = np.clip(second[:2], -limit, limit)
    second[2] = np.clip(eye[2] + rng.uniform(-0.3, 0.3), 0.5, 2.2)
    shift = np.array([*(side * rng.uniform(-0.4, 0.2)), rng.uniform(-0.15, 0.15)])
    return Camera(eye, target, fov), Camera(second, target + shift, fov)


def _radius(pieces: Sequence[Piece]) -> float:
    """Largest horizontal distance of any vertex from the object's own axis, metres."""
    vertices = np.concatenate([piece.mesh.vertices for piece in pieces])
    return float(np.hypot(vertices[:, 0], vertices[:, 1]).max())


@dataclass(frozen=True)
class _Spot:
    position: tuple[float, float, float]
    turn: float = 0.0


@dataclass
class _Layout:
    """Where there is still room. eyes: two (2,) ground positions that stay free of things."""

    size: Size
    eyes: tuple[FloatArray, FloatArray]
    standing: list[tuple[FloatArray, float]] = field(default_factory=list)
    pictures: list[FloatArray] = field(default_factory=list)
    globes: list[FloatArray] = field(default_factory=list)

    def place(self, kind: str, radius: float, rng: np.random.Generator) -> _Spot | None:
        """A free place for an object of this kind and radius (metres), or None after `_TRIES` misses."""
        for _ in range(_TRIES):
            if kind == "picture":
                spot = self._on_wall(rng)
            elif kind == "globe":
                spot = self._under_ceiling(rng)
            else:
                spot = self._on_floor(radius, rng)
            if spot is not None:
                return spot
        return None

    def _on_wall(self, rng: np.random.Generator) -> _Spot | None:
        wall, z, along = int(rng.integers(4)), rng.uniform(0.9, 1.7), rng.uniform(-0.4, 0.4)
        x, y = self.size.width / 2 - 0.03, self.size.depth / 2 - 0.03
        u, v = along * self.size.width, along * self.size.depth
        place, turn = [((u, y), 0.0), ((u, -y), np.pi), ((-x, v), np.pi / 2), ((x, v), -np.pi / 2)][wall]
        if wall == 3 and abs(v) < self.size.window_width / 2 + 0.4:
            return None
        ground = np.array(place)
        if _distance(ground, self.eyes[0]) <= 1.2 or any(_distance(ground, at) <= 1 for at in self.pictures):
            return None
        self.pictures.append(ground)
        return _Spot((*place, z), turn)

    def _under_ceiling(self, rng: np.random.Generator) -> _Spot | None:
        ground = self._anywhere(rng, 0.4)
        under_panel = np.linalg.norm(ground) <= 0.8
        in_face = min(_distance(ground, eye) for eye in self.eyes) <= 0.9
        if under_panel or in_face or any(_distance(ground, at) <= 0.5 for at in self.globes):
            return None
        self.globes.append(ground)
        return _Spot((*ground, self.size.height))

    def _on_floor(self, radius: float, rng: np.random.Generator) -> _Spot | None:
        turn = rng.uniform(0, 6.28)
        ground = self._anywhere(rng, 0.3)
        if min(_distance(ground, eye) for eye in self.eyes) < 0.75 + radius:
            return None
        if abs(ground[0]) > self.size.width / 2 - radius or abs(ground[1]) > self.size.depth / 2 - radius:
            return None
        if any(_distance(ground, at) <= radius + taken + 0.03 for at, taken in self.standing):
            return None
        self.standing.append((ground, radius))
        return _Spot((*ground, 0.0), turn)

    def _anywhere(self, rng: np.random.Generator, margin: float) -> FloatArray:
        x, y = self.size.width / 2 - margin, self.size.depth / 2 - margin
        return np.array([rng.uniform(-x, x), rng.uniform(-y, y)])


def _distance(first: FloatArray, second: FloatArray) -> float:
    return float(np.linalg.norm(first - second))
