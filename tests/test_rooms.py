"""Rooms: composed the same every time, rendered with exact truth, kept on disk so that a run can resume."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from synth.errors import SourceError
from synth.rooms.compose import STRUCTURE, Room, compose
from synth.rooms.objects import COLOURS, KINDS, build
from synth.rooms.render import RENDERER_VERSION, RoomFrame, render, render_views
from synth.rooms.store import ensure, load, path_of

SEED = 3  # both views of this room show the window and five objects
SIZE = 64
FEW = 16  # pixels, where only the machinery is tested
REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def room() -> Room:
    return compose(SEED)


@pytest.fixture(scope="module")
def views(room: Room) -> tuple[RoomFrame, ...]:
    return render_views(room, SIZE, spp=1)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rooms") / "not yet there"
    ensure([1, 2], FEW, folder, 1)
    return folder


def same(first: RoomFrame, second: RoomFrame) -> bool:
    arrays = ("rgb", "depth", "ids", "K", "R", "t")
    return (first.seed, first.view, first.names, first.colours) == (
        second.seed,
        second.view,
        second.names,
        second.colours,
    ) and all(np.array_equal(getattr(first, name), getattr(second, name)) for name in arrays)


def rays(frame: RoomFrame) -> npt.NDArray[np.float64]:
    """(H, W, 3) directions through the pixel centres, camera frame, z = 1."""
    height, width = frame.depth.shape
    v, u = np.mgrid[0:height, 0:width] + 0.5
    pixels = np.stack([u, v, np.ones_like(u)], axis=-1)
    directions: npt.NDArray[np.float64] = pixels @ np.linalg.inv(frame.K).T
    return directions


def world_points(frame: RoomFrame) -> npt.NDArray[np.float64]:
    """(H, W, 3) of what each pixel shows, world frame, metres."""
    points: npt.NDArray[np.float64] = (rays(frame) * frame.depth[..., None].astype(float) - frame.t) @ frame.R
    return points


# ------------------------------------------------------------------------------------------------ composition


def test_compose_is_a_function_of_the_seed() -> None:
    first, second, other = compose(5), compose(5), compose(6)
    assert (first.names, first.colours, first.size) == (second.names, second.colours, second.size)
    assert len(first.parts) == len(second.parts)
    for mine, theirs in zip(first.parts, second.parts, strict=True):
        assert mine.instance == theirs.instance
        assert np.array_equal(mine.mesh.vertices, theirs.mesh.vertices)
        assert mine.material.colour == theirs.material.colour
    assert np.array_equal(first.cameras[1].eye, second.cameras[1].eye)
    assert first.size != other.size


def test_rooms_keep_within_their_ranges() -> None:
    kinds: set[str] = set()
    for seed in range(25):
        room = compose(seed)
        assert room.names[:4] == STRUCTURE and set(room.colours[:4]) == {""}
        assert 1 <= len(room.names) - 4 <= 10
        assert set(room.names[4:]) <= set(KINDS) and set(room.colours[4:]) <= set(COLOURS)
        assert {part.instance for part in room.parts} == set(range(len(room.names)))
        kinds.update(room.names[4:])
        for camera in room.cameras:
            assert 0.5 <= camera.eye[2] <= 2.2 and 58 <= camera.fov <= 78
            assert abs(camera.eye[0]) < room.size.width / 2 and abs(camera.eye[1]) < room.size.depth / 2
    assert kinds == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_meshes_are_sound(kind: str) -> None:
    for piece in build(kind, "red", np.random.default_rng(0)):
        mesh = piece.mesh
        assert mesh.uv.shape == (len(mesh.vertices), 2) and mesh.faces.max() < len(mesh.vertices)
        assert np.allclose(np.linalg.norm(mesh.normals, axis=1), 1)
        first, second, third = (mesh.vertices[mesh.faces[:, k]] for k in range(3))
        facing = np.cross(second - first, third - first)
        if piece.material.colour != (0.07, 0.28, 0.06):  # leaves are one sheet: they have no outside
            assert ((facing * mesh.normals[mesh.faces].mean(axis=1)).sum(axis=1) > 0).all()


# ------------------------------------------------------------------------------------------------------ truth


def nearest_hits(
    room: Room, origin: npt.NDArray[np.float64], directions: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Brute force over all triangles in float64: ray parameter of the hit, its instance; both (N,)."""
    triangles = np.concatenate([part.mesh.vertices[part.mesh.faces] for part in room.parts])
    owner = np.concatenate([np.full(len(part.mesh.faces), part.instance) for part in room.parts])
    edge1, edge2 = triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]
    normal, offset = np.cross(edge1, edge2), origin - triangles[:, 0]
    parameters, instances = [], []
    for direction in directions:
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = -1 / (normal @ direction)
            turned = np.cross(offset, direction)
            u = (edge2 * turned).sum(axis=1) * scale
            v = -(edge1 * turned).sum(axis=1) * scale
            parameter = (normal * offset).sum(axis=1) * scale
        inside = (u >= -1e-9) & (v >= -1e-9) & (u + v <= 1 + 1e-9) & (parameter > 1e-3)
        reached = np.where(inside, parameter, np.inf)
        parameters.append(reached.min())
        instances.append(owner[reached.argmin()])
    return np.array(parameters), np.array(instances)


@pytest.mark.parametrize("view", [0, 1])
def test_depth_and_ids_equal_brute_force(room: Room, views: tuple[RoomFrame, ...], view: int) -> None:
    frame = views[view]
    rows, columns = np.divmod(np.random.default_rng(0).choice(SIZE * SIZE, 400, replace=False), SIZE)
    directions = rays(frame)[rows, columns] @ frame.R
    expected, instance = nearest_hits(room, -frame.R.T @ frame.t, directions)
    error = np.abs(frame.depth[rows, columns] - expected)
    assert np.median(error) < 1e-6
    # A ray that grazes an edge may fall on either side of it in single precision.
    assert np.mean(error < 1e-4) > 0.995
    assert np.mean(frame.ids[rows, columns] == instance) > 0.995


def test_nothing_is_seen_outside_the_room() -> None:
    for seed in range(4):
        for frame in render_views(compose(seed), SIZE, spp=1):
            assert (frame.ids >= 0).all() and np.isfinite(frame.depth).all()


def test_the_window_is_an_instance_of_its_own(room: Room, views: tuple[RoomFrame, ...]) -> None:
    for frame in views:
        shown = frame.ids == frame.names.index("window")
        assert shown.sum() > 50
        x, y, z = world_points(frame)[shown].T
        assert np.allclose(x, room.size.width / 2 + 0.05, atol=1e-4)
        assert (np.abs(y) <= room.size.window_width / 2 + 1e-4).all()
        assert z.min() > 0.9 - 1e-4 and z.max() < 2.1 + 1e-4
        assert (frame.rgb[shown] > 200).mean() > 0.9


def test_views_agree_where_both_see_the_same_point(views: tuple[RoomFrame, ...]) -> None:
    here, there = views
    points = world_points(here) @ there.R.T + there.t
    pixels = points @ there.K.T
    u, v = (pixels[..., axis] / pixels[..., 2] - 0.5 for axis in (0, 1))
    inside = (points[..., 2] > 0.1) & (u >= 0) & (u < SIZE - 1) & (v >= 0) & (v < SIZE - 1)
    j, i = np.floor(u[inside]).astype(int), np.floor(v[inside]).astype(int)
    du, dv = u[inside] - j, v[inside] - i
    corners = [(i, j), (i, j + 1), (i + 1, j), (i + 1, j + 1)]
    weights = [(1 - dv) * (1 - du), (1 - dv) * du, dv * (1 - du), dv * du]
    # On a plane the inverse of depth is linear in the pixels, so on the floor interpolation is exact.
    inverse = sum(weight / there.depth[at] for weight, at in zip(weights, corners, strict=True))
    error = np.abs(points[..., 2][inside] * inverse - 1)
    floor = here.names.index("floor")
    on_floor = (here.ids[inside] == floor) & np.all([there.ids[at] == floor for at in corners], axis=0)
    assert on_floor.sum() > 300
    assert error[on_floor].max() < 1e-4
    same_thing = np.all([there.ids[at] == here.ids[inside] for at in corners], axis=0)
    assert np.mean(error[same_thing] < 0.02) > 0.95


def test_rendering_is_deterministic(room: Room) -> None:
    first, second = render(room, 1, FEW), render(room, 1, FEW)
    assert same(first, second)
    assert first.rgb.dtype == np.uint8 and first.depth.dtype == np.float32 and first.ids.dtype == np.int16
    other = render(room, 1, FEW, seed=SEED + 1)
    assert np.array_equal(first.depth, other.depth) and not np.array_equal(first.rgb, other.rgb)


# ------------------------------------------------------------------------------------------------------ store


def test_store_gives_back_what_was_rendered(store: Path) -> None:
    for view, frame in enumerate(render_views(compose(2), FEW)):
        assert same(load(2, view, FEW, store), frame)
    assert sorted(path.name for path in store.iterdir()) == [
        f"room_00000{seed}_16px_v{RENDERER_VERSION}.npz" for seed in (1, 2)
    ]


def test_store_resumes_and_mends(store: Path) -> None:
    kept, cut, emptied, flipped = (path_of(seed, FEW, store) for seed in (1, 2, 4, 5))
    ensure([4, 5], FEW, store)
    good = [load(seed, 0, FEW, store) for seed in (2, 4, 5)]
    cut.write_bytes(cut.read_bytes()[:-200])
    emptied.write_bytes(b"")
    content = bytearray(flipped.read_bytes())
    content[len(content) // 3] ^= 0xFF
    flipped.write_bytes(content)
    with pytest.raises(SourceError, match="damaged"):
        load(2, 0, FEW, store)
    before = kept.stat().st_mtime_ns
    calls: list[tuple[int, int]] = []
    ensure([1, 2, 4, 5, 1], FEW, store, 1, lambda done, total: calls.append((done, total)))
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert kept.stat().st_mtime_ns == before
    assert all(same(load(frame.seed, 0, FEW, store), frame) for frame in good)


def test_store_names_what_is_missing(store: Path) -> None:
    with pytest.raises(SourceError, match=r"room 77 at 16 px, found no file"):
        load(77, 0, FEW, store)
    with pytest.raises(SourceError):
        load(1, 0, FEW + 1, store)


def test_workers_render_the_same(store: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from synth.rooms.store import ensure; "
        "ensure([1, 2], 16, Path(sys.argv[1]), 2)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=REPOSITORY, check=True)
    assert all(same(load(seed, 1, FEW, tmp_path), load(seed, 1, FEW, store)) for seed in (1, 2))


def test_a_dead_worker_is_a_clear_error(tmp_path: Path) -> None:
    # Without the guard each spawned worker runs the script again and dies of it.
    script = tmp_path / "unguarded.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(REPOSITORY)!r})\n"
        "from pathlib import Path\n"
        "from synth.rooms.store import ensure\n"
        f"ensure([1, 2], 16, Path({str(tmp_path)!r}), 2)\n"
    )
    finished = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert finished.returncode != 0
    assert "RunError" in finished.stderr and "__main__" in finished.stderr.split("RunError")[-1]


def test_importing_rooms_loads_no_renderer() -> None:
    code = (
        "import sys; from synth.rooms import compose, meshes, objects, render, store, textures; "
        "print(sorted({'mitsuba', 'drjit', 'mitsuba_oidn', 'torch', 'PIL'} & set(sys.modules)))"
    )
    finished = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, check=True)
    assert finished.stdout.strip() == b"[]"
