"""Small scenes of known geometry, made of numpy arrays: what the tests of tasks, checks and audit look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from synth.geometry import generator, warp
from synth.images import encode_png, image_id
from synth.plugins import TASKS, load
from synth.types import (
    QA,
    Camera,
    DepthMap,
    Drop,
    Mask,
    MetricDepth,
    PluginOptions,
    Region,
    Regions,
    RelativeDepth,
    Rgb,
    Scene,
    Truth,
    View,
    WarpedPair,
)

COLOURS = {"red": (200, 40, 40), "blue": (40, 60, 200), "green": (40, 160, 60), "yellow": (220, 200, 40)}
VOCABULARY = ("ball", "box", "chair", "floor", "lamp", "plant", "sofa", "table", "vase", "wall")


def view_of(rgb: Rgb, truth: Truth | None = None, name: str = "toy.png") -> View:
    data = encode_png(rgb)
    return View(
        image_id=image_id(data),
        data=data,
        width=rgb.shape[1],
        height=rgb.shape[0],
        name=name,
        source="toy",
        group=name,
        truth=truth,
    )


def texture(seed: int, width: int, height: int, cell: int = 5) -> Rgb:
    """Random squares: corners everywhere, no two places alike."""
    rng = generator(seed, "texture")
    small = rng.integers(20, 235, (-(-height // cell), -(-width // cell), 3))
    return np.kron(small, np.ones((cell, cell, 1))).astype(np.uint8)[:height, :width]


def camera(width: int, height: int, focal: float | None = None) -> Camera:
    f = float(focal or width)
    K = np.array([[f, 0, width / 2], [0, f, height / 2], [0, 0, 1]])
    return Camera(K=K, R=np.eye(3), t=np.zeros(3))


def rectangle(shape: tuple[int, int], x: int, y: int, w: int, h: int) -> Mask:
    mask = np.zeros(shape, dtype=np.bool_)
    mask[y : y + h, x : x + w] = True
    return mask


def region(label: str, mask: Mask, **attributes: str) -> Region:
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    box = (float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1))
    return Region(label=label, box=box, mask=mask, attributes=attributes)


def boxes(*found: tuple[str, float, float, float, float], score: float = 1.0) -> tuple[Region, ...]:
    """(label, x, y, width, height) each."""
    return tuple(Region(label=name, box=(x, y, x + w, y + h), score=score) for name, x, y, w, h in found)


def detected(items: Sequence[Region], backend: str = "detector") -> Regions:
    return Regions(items=tuple(items), complete=False, backend=backend, vocabulary=VOCABULARY)


def scene_of(
    rgb: Rgb, depths: Sequence[DepthMap] = (), regions: Sequence[Regions] = (), pair: WarpedPair | None = None
) -> Scene:
    return Scene(view=view_of(rgb), rgb=rgb, depths=tuple(depths), regions=tuple(regions), pair=pair)


def metric(metres: np.ndarray, backend: str = "truth") -> MetricDepth:
    return MetricDepth(metres=metres.astype(np.float32), valid=np.isfinite(metres) & (metres > 0), backend=backend)


def relative(inverse: np.ndarray, backend: str = "model") -> RelativeDepth:
    return RelativeDepth(inverse=inverse.astype(np.float32), valid=np.isfinite(inverse), backend=backend)


def room(seed: int, width: int = 128, height: int = 128) -> Scene:
    """A wall, a floor and five boxes-on-a-wall of known depth, colour and name, with a warped second picture."""
    rng = generator(seed, "room")
    rgb = texture(seed, width, height, cell=max(3, min(width, height) // 26))
    depth = np.full((height, width), 6.0)
    floor = rectangle((height, width), 0, height * 3 // 4, width, height - height * 3 // 4)
    depth[floor] = 3.2
    ids = np.where(floor, 1, 0)
    names, colours = ["wall", "floor"], ["", ""]
    kinds = ["chair", "ball", "lamp", "chair", "box"]
    for k, (column, row) in enumerate(((0, 0), (1, 0), (2, 0), (0, 1), (2, 1))):
        w, h = (int(v) for v in rng.integers((width // 5, height // 5), (width // 4, height // 4)))
        x, y = width * column // 3 + width // 24, height * row // 2 + height // 24
        shape = rectangle((height, width), x, y, w, h)
        depth[shape] = rng.uniform(1.0, 5.0)
        ids[shape] = len(names)
        colour = str(rng.choice(list(COLOURS)))
        rgb[shape] = rgb[shape] // 3 + np.array(COLOURS[colour], dtype=np.uint8) * 2 // 3
        names.append(kinds[k])
        colours.append(colour)
    items = [_item(name, ids == i, colours[i]) for i, name in enumerate(names)]
    regions = Regions(items=tuple(items), complete=True, backend="truth", vocabulary=VOCABULARY)
    truth = Truth(depth=metric(depth), regions=regions, camera=camera(width, height))
    view = view_of(rgb, truth, name=f"room-{seed}.png")
    pair = warped(rgb, shift(width * 0.14, height * 0.1) @ turn(0.12, width, height))
    return Scene(view=view, rgb=rgb, depths=(metric(depth),), regions=(regions,), pair=pair)


def _item(name: str, mask: Mask, colour: str) -> Region:
    return region(name, mask, colour=colour) if colour else region(name, mask, stuff="yes")


def shift(dx: float, dy: float) -> np.ndarray:
    return np.array([[1, 0, dx], [0, 1, dy], [0, 0, 1.0]])


def turn(angle: float, width: int, height: int) -> np.ndarray:
    rotation = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
    return shift(width / 2, height / 2) @ rotation @ shift(-width / 2, -height / 2)


def warped(rgb: Rgb, homography: np.ndarray) -> WarpedPair:
    image, covered = warp(rgb, homography, rgb.shape[1], rgb.shape[0])
    return WarpedPair(render=lambda: image, homography=homography, covered=covered, backend="toy")


def mirrored(scene: Scene) -> Scene:
    """The scene as a mirror shows it: picture, depth and regions."""
    width = scene.rgb.shape[1]
    rgb = np.ascontiguousarray(scene.rgb[:, ::-1])
    depths = tuple(_mirrored_depth(depth) for depth in scene.depths)
    regions = tuple(
        replace(
            member,
            items=tuple(
                replace(
                    r,
                    box=(width - r.box[2], r.box[1], width - r.box[0], r.box[3]),
                    mask=None if r.mask is None else r.mask[:, ::-1],
                )
                for r in member.items
            ),
        )
        for member in scene.regions
    )
    return Scene(view=view_of(rgb, name=scene.view.name), rgb=rgb, depths=depths, regions=regions)


def _mirrored_depth(depth: DepthMap) -> DepthMap:
    if isinstance(depth, MetricDepth):
        return replace(depth, metres=depth.metres[:, ::-1], valid=depth.valid[:, ::-1])
    return replace(depth, inverse=depth.inverse[:, ::-1], valid=depth.valid[:, ::-1])


def ask(
    task_name: str, scene: Scene, seed: int = 0, options: PluginOptions | None = None
) -> tuple[list[QA], list[Drop]]:
    """Everything a task yields on a scene: questions, drops."""
    task = load(TASKS, task_name)
    found = list(task.generate(scene, options or task.options(), generator(seed, task_name, scene.view.image_id)))
    return [x for x in found if isinstance(x, QA)], [x for x in found if isinstance(x, Drop)]


def said(qa: QA) -> str:
    """What the answer letter stands for."""
    return qa.provenance.options["ABCDEFGH".index(qa.answer)]


def reasons(drops: Sequence[Drop]) -> dict[str, int]:
    return {drop.reason: drop.count for drop in drops}
