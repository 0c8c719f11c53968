"""Renders a composed room with Mitsuba 3 on the CPU: a photo-like picture, and exact depth and instance ids.

Depth and ids come from a render of their own, one ray through each pixel centre, so they are exact there; the
picture is noisy light transport, denoised. One thread is used, because rooms are rendered side by side; on
one machine the result is bit-equal between runs and workers. A process that has rendered must not fork: the
child would hang.
"""

import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from synth.rooms.compose import Camera, Part, Room
from synth.rooms.textures import Colour, Material
from synth.types import DepthArray, Matrix, Rgb

IdArray: TypeAlias = npt.NDArray[np.int16]
"""Instance of each pixel, shape (H, W)."""
LightArray: TypeAlias = npt.NDArray[np.float32]
"""Linear light, shape (H, W, 3)."""

RENDERER_VERSION = 1
"""Raised whenever the same seed would give another frame; stored frames of other versions are not used."""

_SMALL = 160
_BOUNCES = 4
_LEAST_ROUGHNESS = 0.05
_VARIANT = "scalar_rgb"  # llvm_ad_rgb is faster, but aborts the process with most LLVM libraries


@dataclass(frozen=True, eq=False)
class RoomFrame:
    """One view of a room with its truth; H = W = the rendered size.

    rgb: (H, W, 3) sRGB. depth: (H, W) camera z in metres at pixel centres, inf where nothing was hit.
    ids: (H, W) index into names, -1 where nothing was hit. names, colours: per instance; '' is no colour.
    K (3, 3), R (3, 3), t (3,): x_camera = R @ x_world + t in metres, pixel = K @ x_camera / z; OpenCV camera
    axes (x right, y down, z forward); pixel (row i, column j) is centred at (j + .5, i + .5).
    """

    seed: int
    view: int
    rgb: Rgb
    depth: DepthArray
    ids: IdArray
    names: tuple[str, ...]
    colours: tuple[str, ...]
    K: Matrix
    R: Matrix
    t: Matrix


def render(
    room: Room,
    view: int,
    size: int = 128,
    spp: int | None = None,
    seed: int | None = None,
) -> RoomFrame:
    """One view (0 or 1) of the room, `size` x `size` px.

    spp: samples a pixel, by default `default_spp(size)`; take 64 for a picture that people look at closely.
    seed: decides the exposure and the noise of light transport; by default the room's own.
    """
    return _frame(_build(room), room, view, size, spp, seed)


def render_views(
    room: Room,
    size: int = 128,
    spp: int | None = None,
    seed: int | None = None,
) -> tuple[RoomFrame, ...]:
    """All views of the room as `render` gives them, for the price of preparing the room once."""
    built = _build(room)
    return tuple(_frame(built, room, view, size, spp, seed) for view in range(len(room.cameras)))


def default_spp(size: int) -> int:
    """Samples a pixel that the denoiser can make do with: 8 for small pictures (128 px), 16 beyond."""
    return 8 if size <= _SMALL else 16


@dataclass(frozen=True, eq=False)
class _Built:
    """A scene that Mitsuba has loaded, and the instance of each of its shapes in Mitsuba's order."""

    scene: object
    instances: npt.NDArray[np.int16]


def _frame(
    built: _Built,
    room: Room,
    view: int,
    size: int,
    spp: int | None,
    seed: int | None,
) -> RoomFrame:
    camera = room.cameras[view]
    own = room.seed if seed is None else seed
    depth, ids = _truth(built, camera, size)
    light = _photo(built, camera, size, default_spp(size) if spp is None else spp, 2 * own + view)
    exposure = np.random.default_rng(own + 7).uniform(0.8, 1.5)
    rotation, translation = camera.pose()
    return RoomFrame(
        seed=own,
        view=view,
        rgb=_srgb(_filmic(light * exposure)),
        depth=depth,
        ids=ids,
        names=room.names,
        colours=room.colours,
        K=camera.intrinsics(size),
        R=rotation,
        t=translation,
    )


def _mitsuba() -> ModuleType:
    # By name, since Mitsuba's stubs do not describe what a variant adds at run time.
    mitsuba = importlib.import_module("mitsuba")
    if mitsuba.variant() != _VARIANT:
        mitsuba.set_variant(_VARIANT)
    importlib.import_module("drjit").set_thread_count(1)
    return mitsuba


def _build(room: Room) -> _Built:
    mitsuba = _mitsuba()
    bsdfs: dict[Material, object] = {}
    scene: dict[str, object] = {"type": "scene"}
    for index, part in enumerate(room.parts):
        if part.emission is not None:
            surface = _emitter(mitsuba, part.emission)
        else:
            if part.material not in bsdfs:
                bsdfs[part.material] = _bsdf(mitsuba, part.material)
            surface = bsdfs[part.material]
        scene[f"part{index:04d}"] = _shape(mitsuba, f"part{index:04d}", part, surface)
    # Unoptimised, since merging meshes would lose which part a ray has hit.
    loaded = mitsuba.load_dict(scene, optimize=False)
    order = [int(shape.id().removeprefix("part")) for shape in loaded.shapes()]
    return _Built(loaded, np.array([room.parts[index].instance for index in order], dtype=np.int16))


def _bsdf(mitsuba: ModuleType, material: Material) -> object:
    colour: dict[str, object] = {"type": "rgb", "value": list(material.colour)}
    if material.texture is not None:
        bitmap = mitsuba.Bitmap((material.texture * 255).astype(np.uint8))
        colour = {"type": "bitmap", "bitmap": bitmap, "raw": False}
    # "roughplastic" would look much the same, but takes seconds to build.
    surface = {
        "type": "principled",
        "base_color": colour,
        "roughness": max(material.roughness, _LEAST_ROUGHNESS),
        "metallic": material.metallic,
    }
    bsdf: object = mitsuba.load_dict({"type": "twosided", "surface": surface})
    return bsdf


def _emitter(mitsuba: ModuleType, radiance: Colour) -> object:
    colour = {"type": "rgb", "value": list(radiance)}
    emitter: object = mitsuba.load_dict({"type": "area", "radiance": colour})
    return emitter


def _shape(mitsuba: ModuleType, name: str, part: Part, surface: object) -> object:
    """A Mitsuba mesh whose surface is a BSDF, or an emitter (which then reflects nothing)."""
    mesh = part.mesh
    properties = mitsuba.Properties()
    properties["surface"] = surface
    shape: object = mitsuba.Mesh(
        name,
        len(mesh.vertices),
        len(mesh.faces),
        has_vertex_normals=True,
        has_vertex_texcoords=True,
        props=properties,
    )
    fields = mitsuba.traverse(shape)
    fields["vertex_positions"] = mesh.vertices.ravel().astype(np.float32)
    fields["vertex_normals"] = mesh.normals.ravel().astype(np.float32)
    fields["vertex_texcoords"] = (mesh.uv / part.material.period).ravel().astype(np.float32)
    fields["faces"] = mesh.faces.ravel().astype(np.uint32)
    fields.update()
    return shape


def _sensor(mitsuba: ModuleType, camera: Camera, size: int, sampler: dict[str, object]) -> object:
    # Any filter wider than a pixel correlates neighbours, and then the denoiser leaves the noise in.
    film = {
        "type": "hdrfilm",
        "width": size,
        "height": size,
        "rfilter": {"type": "box"},
        "pixel_format": "rgb",
        "component_format": "float32",
    }
    to_world = mitsuba.ScalarTransform4f().look_at(camera.eye.tolist(), camera.target.tolist(), [0, 0, 1])
    sensor: object = mitsuba.load_dict(
        {
            "type": "perspective",
            "fov": camera.fov,
            "fov_axis": "x",
            "near_clip": 0.01,
            "far_clip": 100.0,
            "to_world": to_world,
            "film": film,
            "sampler": sampler,
        }
    )
    return sensor


def _truth(built: _Built, camera: Camera, size: int) -> tuple[DepthArray, IdArray]:
    mitsuba = _mitsuba()
    sensor = _sensor(mitsuba, camera, size, {"type": "stratified", "sample_count": 1, "jitter": False})
    integrator = mitsuba.load_dict({"type": "aov", "aovs": "p:position,s:shape_index,d:depth"})
    values = np.array(mitsuba.render(built.scene, sensor=sensor, integrator=integrator, spp=1))[..., -5:]
    # Mitsuba's depth is the length of the ray, so it only tells whether there was a hit.
    hit = values[..., 4] > 0
    rotation, translation = camera.pose()
    z = values[..., :3].astype(np.float64) @ rotation[2] + translation[2]
    # In the scalar variant shapes are counted from 1 in each scene.
    shape = np.rint(values[..., 3]).astype(int) - 1
    instance = built.instances[np.where(hit, shape, 0)]
    depth = np.where(hit, z, np.inf).astype(np.float32)
    return depth, np.where(hit, instance, -1).astype(np.int16)


def _photo(built: _Built, camera: Camera, size: int, spp: int, seed: int) -> LightArray:
    """Linear light, (size, size, 3), denoised."""
    mitsuba = _mitsuba()
    sensor = _sensor(mitsuba, camera, size, {"type": "independent"})
    integrator = mitsuba.load_dict({"type": "path", "max_depth": _BOUNCES})
    noisy = np.array(mitsuba.render(built.scene, sensor=sensor, integrator=integrator, spp=spp, seed=seed))
    colour = np.ascontiguousarray(noisy[..., :3], dtype=np.float32)
    # Colour alone: albedo and normals to guide the denoiser would take four times as long to render.
    denoise = importlib.import_module("mitsuba_oidn").denoise
    return np.asarray(denoise(colour, hdr=True), dtype=np.float32)


def _filmic(light: LightArray) -> LightArray:
    """A film-like tone curve (the usual rational fit of ACES) from linear light to 0..1."""
    x = np.maximum(light, 0)
    return np.clip((x * (2.51 * x + 0.03)) / (x * (2.43 * x + 0.59) + 0.14), 0, 1)


def _srgb(linear: LightArray) -> Rgb:
    encoded = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return (encoded * 255 + 0.5).astype(np.uint8)
