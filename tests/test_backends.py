"""ONNX backends: made models with known output, and the two real models. Checkpoints are in test_checkpoints.py."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import yaml

from synth import plugins
from synth.errors import BackendError, ConfigError, S2PError
from synth.geometry import box_iou
from synth.images import decode
from synth.perception._onnx import InputSpec, ModelSpec, place
from synth.perception.regions.onnx import decode_yolox, suppress
from synth.types import Frame, MetricDepth, PluginOptions, RelativeDepth, View
from tests.conftest import ROOT

FOLDER = plugins.load(plugins.SOURCES, "folder")
ONNX_DEPTH = plugins.load(plugins.DEPTH, "onnx")
ONNX_REGIONS = plugins.load(plugins.REGIONS, "onnx")


def frame_of(rgb: np.ndarray) -> Frame:
    data = rgb.tobytes()
    height, width = rgb.shape[:2]
    sha = hashlib.sha256(data).hexdigest()
    view = View(image_id=sha, data=data, width=width, height=height, name="made", source="test", group="made")
    return Frame(view=view, rgb=rgb)


def ramp(width: int, height: int) -> np.ndarray:
    """A grey ramp from left (20) to right (220)."""
    row = np.linspace(20, 220, width)
    return np.repeat(np.repeat(np.rint(row)[None, :, None], height, 0), 3, 2).astype(np.uint8)


def with_options(backend: object, **settings: object) -> PluginOptions:
    return backend.options.model_validate(settings)


# ------------------------------------------------------------------ a writer for very small ONNX files (protobuf wire)


def _varint(value: int) -> bytes:
    out = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


KINDS = {"uint8": 2, "float32": 1, "int64": 7}


def value_info(name: str, dtype: str, shape: Sequence[int]) -> bytes:
    dims = b"".join(field(1, field(1, size)) for size in shape)
    tensor = field(1, KINDS[dtype]) + field(2, dims)
    return field(1, name) + field(2, field(1, tensor))


def constant(name: str, array: np.ndarray) -> bytes:
    dims = b"".join(field(1, size) for size in array.shape)
    tensor = dims + field(2, KINDS[str(array.dtype)]) + field(9, array.tobytes())
    return node("Constant", [], [name], field(1, "value") + field(5, tensor) + field(20, 4))


def node(kind: str, inputs: Sequence[str], outputs: Sequence[str], *attributes: bytes) -> bytes:
    body = b"".join([field(1, i) for i in inputs] + [field(2, o) for o in outputs])
    return body + field(4, kind) + b"".join(field(5, attribute) for attribute in attributes)


def number(name: str, value: int) -> bytes:
    return field(1, name) + field(3, value) + field(20, 2)


def numbers(name: str, values: Sequence[int]) -> bytes:
    return field(1, name) + b"".join(field(8, value) for value in values) + field(20, 7)


def write_model(
    path: Path, nodes: Sequence[bytes], inputs: Sequence[bytes], outputs: Sequence[bytes], spec: dict | None = None
) -> Path:
    graph = b"".join(field(1, n) for n in nodes) + field(2, "g")
    graph += b"".join(field(11, i) for i in inputs) + b"".join(field(12, o) for o in outputs)
    path.write_bytes(field(1, 8) + field(7, graph) + field(8, field(2, 13)))
    if spec is not None:
        path.with_suffix(".yaml").write_text(yaml.safe_dump(spec))
    return path


def mean_model(path: Path, size: tuple[int, int], dtype: str = "float32", spec: dict | None = None) -> Path:
    """Depth = mean over the colours of the input (NCHW)."""
    width, height = size
    nodes = [node("ReduceMean", ["x"], ["y"], numbers("axes", [1]), number("keepdims", 0))]
    return write_model(
        path, nodes, [value_info("x", dtype, (1, 3, height, width))], [value_info("y", dtype, (1, height, width))], spec
    )


METRES = {"unit": "metres", "larger": "farther", "scale": 0.01}


# ------------------------------------------------------------------------------------------------ onnx, depth


@pytest.mark.parametrize("mode", ["stretch", "top_left", "centre"])
@pytest.mark.parametrize(("width", "height"), [(90, 40), (40, 90), (64, 48)])
def test_depth_comes_back_at_the_photos_place(tmp_path: Path, mode: str, width: int, height: int) -> None:
    fit = {"resize": "stretch"} if mode == "stretch" else {"resize": "letterbox", "corner": mode, "pad": 0}
    path = mean_model(tmp_path / "m.onnx", (64, 48), spec={"input": {"size": [64, 48], **fit}, "depth": METRES})
    run = ONNX_DEPTH.load(with_options(ONNX_DEPTH, path=path, threads=1))
    (depth,) = run([frame_of(ramp(width, height))])
    assert isinstance(depth, MetricDepth) and depth.metres.shape == (height, width) and depth.valid.all()
    expected = np.broadcast_to(np.linspace(20, 220, width) / 100, (height, width))
    inner = (slice(2, -2), slice(4, -4))
    assert np.abs(depth.metres - expected)[inner].max() < 0.06  # half an input pixel of a shrunk ramp


def test_normalisation_and_colour_order_are_as_described(tmp_path: Path) -> None:
    rgb = np.zeros((48, 64, 3), dtype=np.uint8)
    rgb[...] = (10, 20, 30)
    spec = {"size": [64, 48], "colour": "bgr", "scale": 0.5, "mean": [1.0, 2.0, 3.0], "std": [2.0, 2.0, 4.0]}
    placed = place(rgb, InputSpec.model_validate(spec))
    assert placed.tensor[0, :, 5, 5].tolist() == [(15 - 1) / 2, (10 - 2) / 2, (5 - 3) / 4]
    placed = place(rgb, InputSpec.model_validate({"size": [64, 48], "layout": "nhwc", "dtype": "uint8"}))
    assert placed.tensor.dtype == np.uint8 and placed.tensor.shape == (1, 48, 64, 3)
    assert placed.tensor[0, 5, 5].tolist() == [10, 20, 30]


@pytest.mark.parametrize("larger", ["nearer", "farther"])
def test_a_relative_model_keeps_its_order(tmp_path: Path, larger: str) -> None:
    spec = {"input": {"size": [64, 48]}, "depth": {"unit": "relative", "larger": larger}}
    path = mean_model(tmp_path / "m.onnx", (64, 48), spec=spec)
    (depth,) = ONNX_DEPTH.load(with_options(ONNX_DEPTH, path=path))([frame_of(ramp(64, 48))])
    assert isinstance(depth, RelativeDepth)
    assert (depth.inverse[10, 60] > depth.inverse[10, 4]) == (larger == "nearer")  # larger inverse is nearer


def test_zero_metres_are_no_depth(tmp_path: Path) -> None:
    path = mean_model(tmp_path / "m.onnx", (64, 48), spec={"input": {"size": [64, 48]}, "depth": METRES})
    rgb = ramp(64, 48)
    rgb[:, :20] = 0
    (depth,) = ONNX_DEPTH.load(with_options(ONNX_DEPTH, path=path))([frame_of(rgb)])
    assert depth is not None and not depth.valid[:, :19].any() and depth.valid[:, 21:].all()


def test_identity_follows_model_description_and_nothing_else(tmp_path: Path) -> None:
    spec = {"input": {"size": [64, 48]}, "depth": METRES}
    path = mean_model(tmp_path / "m.onnx", (64, 48), spec=spec)
    base = ONNX_DEPTH.identity(with_options(ONNX_DEPTH, path=path))
    assert ONNX_DEPTH.identity(with_options(ONNX_DEPTH, path=path, threads=2)) == base
    (tmp_path / "m.yaml").write_text(yaml.safe_dump({**spec, "about": "text for people"}))
    assert ONNX_DEPTH.identity(with_options(ONNX_DEPTH, path=path)) == base
    (tmp_path / "m.yaml").write_text(yaml.safe_dump({**spec, "depth": {**METRES, "scale": 0.02}}))
    other = ONNX_DEPTH.identity(with_options(ONNX_DEPTH, path=path))
    path.write_bytes(path.read_bytes() + field(3, "someone"))  # producer_version: same graph, other file
    (tmp_path / "m.yaml").write_text(yaml.safe_dump(spec))
    third = ONNX_DEPTH.identity(with_options(ONNX_DEPTH, path=path))
    assert len({base, other, third}) == 3
    scores = [ONNX_REGIONS.identity(with_options(ONNX_REGIONS, path=path, min_score=s)) for s in (0.05, 0.1)]
    assert scores[0] != scores[1]


def test_onnx_mistakes_are_told_with_a_way_out(tmp_path: Path) -> None:
    def failure(**settings: object) -> S2PError:
        with pytest.raises((BackendError, ConfigError)) as caught:
            ONNX_DEPTH.load(with_options(ONNX_DEPTH, **settings))
        return caught.value

    assert "--set perception.depth.path=" in failure(path=tmp_path / "gone.onnx").fix
    bare = mean_model(tmp_path / "bare.onnx", (64, 48))
    assert "looked for" in failure(path=bare).message and "bare.yaml" in failure(path=bare).fix
    good = {"input": {"size": [64, 48]}, "depth": METRES}
    path = mean_model(tmp_path / "m.onnx", (64, 48), spec=good)
    mistakes = {
        "did you mean 'size'": {"input": {"sizes": [64, 48]}, "depth": METRES},
        "the model takes": {"input": {"size": [32, 32]}, "depth": METRES},
        "no `depth` section": {"input": {"size": [64, 48]}},
        "no output 'z'": {**good, "depth": {**METRES, "output": "z"}},
        "larger: farther": {**good, "depth": {"unit": "metres", "larger": "nearer"}},
    }
    for message, spec in mistakes.items():
        (tmp_path / "m.yaml").write_text(yaml.safe_dump(spec))
        assert message in str(failure(path=path)), message
    (tmp_path / "m.yaml").write_text(yaml.safe_dump(good))
    assert "known: " in failure(path=path, providers=["NoSuchProvider"]).fix
    path.write_bytes(b"\x08\x08 not a model")
    assert "not a model that onnxruntime can run" in failure(path=path).message


def test_a_missing_onnxruntime_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = mean_model(tmp_path / "m.onnx", (64, 48), spec={"input": {"size": [64, 48]}, "depth": METRES})
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(BackendError) as caught:
        ONNX_DEPTH.load(with_options(ONNX_DEPTH, path=path))
    assert caught.value.fix == "pip install 'see2perceive[onnx]'"


# ------------------------------------------------------------------------------------------------ onnx, detection


def test_yolox_grid_decodes_boxes_that_were_encoded_by_hand() -> None:
    size, strides = (64, 32), (8, 16)
    raw = np.zeros((8 * 4 + 4 * 2, 5 + 3))
    # stride 8, cell column 5 row 2: index 2*8 + 5; centre (46, 19), size (20, 10)
    raw[21] = [46 / 8 - 5, 19 / 8 - 2, np.log(20 / 8), np.log(10 / 8), 0.9, 0.1, 0.8, 0.2]
    # stride 16, cell column 3 row 1: index 32 + 1*4 + 3; centre (50, 24), size (28, 16)
    raw[39] = [50 / 16 - 3, 24 / 16 - 1, np.log(28 / 16), np.log(1), 0.5, 0.0, 0.0, 1.0]
    found = decode_yolox(raw, size, strides)
    assert found.boxes[21] == pytest.approx([36, 14, 56, 24])
    assert found.boxes[39] == pytest.approx([36, 16, 64, 32])
    assert (found.classes[21], found.classes[39]) == (1, 2)
    assert (found.scores[21], found.scores[39]) == pytest.approx((0.72, 0.5))
    with pytest.raises(BackendError, match="make 32 cells, the model gave 40"):
        decode_yolox(raw, size, (8,))


def test_suppression_stays_within_a_class() -> None:
    boxes = np.array([[0, 0, 10, 10], [1, 0, 11, 10], [1, 0, 11, 10], [40, 0, 50, 10], [0, 0, 4, 4.0]])
    classes = np.array([0, 0, 1, 0, 0])
    kept = suppress(boxes, classes, np.array([1, 0, 2, 3, 4]), 0.5)
    assert kept.tolist() == [1, 2, 3, 4]


def boxes_model(path: Path, coordinates: str, boxes: np.ndarray, classes: Sequence[int]) -> Path:
    scores = np.linspace(0.9, 0.02, len(boxes)).astype(np.float32)
    labels = np.array([classes], dtype=np.int64)
    inputs = [value_info("x", "float32", (1, 3, 100, 100))]
    nodes = [constant("scores", scores[None]), constant("labels", labels)]
    if coordinates == "image":
        inputs.append(value_info("sizes", "int64", (1, 2)))
        nodes += [
            constant("shares", boxes[None].astype(np.float32)),
            node("Concat", ["sizes", "sizes"], ["four"], number("axis", 1)),
            node("Cast", ["four"], ["scale"], number("to", 1)),
            node("Mul", ["shares", "scale"], ["boxes"]),
        ]
    else:
        nodes.append(constant("boxes", boxes[None].astype(np.float32)))
    n = len(boxes)
    outputs = [
        value_info("boxes", "float32", (1, n, 4)),
        value_info("scores", "float32", (1, n)),
        value_info("labels", "int64", (1, n)),
    ]
    detect = {
        "decoder": "boxes_scores",
        "labels": ["cat", "", "dog"],
        "coordinates": coordinates,
        "size_input": "sizes" if coordinates == "image" else None,
    }
    fit = {"resize": "letterbox", "corner": "centre"} if coordinates == "input" else {"resize": "stretch"}
    return write_model(path, nodes, inputs, outputs, {"input": {"size": [100, 100], **fit}, "detect": detect})


@pytest.mark.parametrize("coordinates", ["input", "normalised", "image"])
def test_end_to_end_boxes_land_on_the_photo(tmp_path: Path, coordinates: str) -> None:
    shares = np.array(
        [[0.1, 0.2, 0.5, 0.8], [-0.2, 0.0, 0.3, 2.0], [0.5, 0.5, 0.9, 0.9], [1.2, 0.1, 1.5, 0.2], [0, 0, 1, 1]]
    )
    width, height = 200, 50
    boxes = shares
    if coordinates == "input":  # letterboxed in the middle: 100x25 px from row 37 on
        boxes = shares * [100, 25, 100, 25] + [0, 37, 0, 37]
    path = boxes_model(tmp_path / "d.onnx", coordinates, boxes, [2, 0, 1, 0, 2])
    (found,) = ONNX_REGIONS.load(with_options(ONNX_REGIONS, path=path))([frame_of(ramp(width, height))])
    assert found is not None and not found.complete and found.vocabulary == ("cat", "dog")
    # The unnamed class, the box outside and the one below the score floor are gone; the second is clipped.
    assert [item.label for item in found.items] == ["dog", "cat"]
    assert found.items[0].box == pytest.approx((20, 10, 100, 40), abs=1e-4)
    assert found.items[1].box == pytest.approx((0, 0, 60, 50), abs=1e-4)
    assert found.items[0].score == pytest.approx(0.9)
    everything = ONNX_REGIONS.load(with_options(ONNX_REGIONS, path=path, min_score=0.0))(
        [frame_of(ramp(width, height))]
    )
    assert len(everything[0].items) == 3


def test_a_detector_without_its_outputs_is_refused(tmp_path: Path) -> None:
    path = boxes_model(tmp_path / "d.onnx", "normalised", np.zeros((2, 4)), [0, 0])
    spec = yaml.safe_load((tmp_path / "d.yaml").read_text())
    spec["detect"]["scores"] = "confidence"
    (tmp_path / "d.yaml").write_text(yaml.safe_dump(spec))
    with pytest.raises(BackendError, match="no output confidence") as caught:
        ONNX_REGIONS.load(with_options(ONNX_REGIONS, path=path))
    assert caught.value.fix == "known: boxes, scores, labels"


# ------------------------------------------------------------------------------------------------ the two real models


@pytest.fixture(scope="module")
def photos(shared: Path) -> dict[str, Frame]:
    wanted = ("nyu_", "sunrgbd_office", "coco_0000000000", "coco_0000000001")
    options = FOLDER.options.model_validate({"path": shared / "photos_gt"})
    frames = {}
    for item in FOLDER.list(options):
        if item.key.startswith(wanted):
            view = FOLDER.load(item, options)
            frames[item.key] = Frame(view=view, rgb=decode(view.data))
    return frames


def test_fastdepth_orders_indoor_photos_as_published(shared: Path, photos: dict[str, Frame]) -> None:
    frames = [frame for name, frame in photos.items() if name.startswith(("nyu_", "sunrgbd"))]
    options = with_options(ONNX_DEPTH, path=shared / "weights" / "fastdepth_224.onnx", threads=1)
    shares = []
    for frame, depth in zip(frames, ONNX_DEPTH.load(options)(frames), strict=True):
        truth = frame.view.truth
        assert truth and isinstance(truth.depth, MetricDepth) and isinstance(depth, MetricDepth)
        places = np.argwhere(truth.depth.valid)
        rng = np.random.default_rng(0)
        a, b = (tuple(places[rng.integers(len(places), size=5000)].T) for _ in range(2))
        near, far = truth.depth.metres[a], truth.depth.metres[b]
        apart = np.maximum(near, far) > 1.1 * np.minimum(near, far)
        shares.append(((depth.metres[a] < depth.metres[b]) == (near < far))[apart].mean())
        ratio = np.median(depth.metres[truth.depth.valid] / truth.depth.metres[truth.depth.valid])
        assert 0.6 < ratio < 1.6  # the scale in the description is in metres
    assert len(shares) >= 6 and np.mean(shares) > 0.92 and min(shares) > 0.85


def test_yolox_finds_coco_objects_as_published(shared: Path, photos: dict[str, Frame]) -> None:
    frames = [frame for name, frame in photos.items() if name.startswith("coco_")]
    options = with_options(ONNX_REGIONS, path=shared / "weights" / "yolox_nano.onnx", threads=1)
    hits = claims = objects = 0
    for frame, found in zip(frames, ONNX_REGIONS.load(options)(frames), strict=True):
        assert frame.view.truth and frame.view.truth.regions and found is not None
        truth = [item for item in frame.view.truth.regions.items if not item.crowd]
        assert {item.label for item in truth} <= set(found.vocabulary)
        objects += len(truth)
        for item in (item for item in found.items if item.score >= 0.3):
            claims += 1
            match = next((t for t in truth if t.label == item.label and box_iou(t.box, item.box) >= 0.5), None)
            if match is not None:
                truth.remove(match)
                hits += 1
    assert len(frames) >= 8 and hits / claims > 0.55 and hits / objects > 0.3


def test_threads_do_not_change_a_result(shared: Path, photos: dict[str, Frame]) -> None:
    frame = photos["coco_000000000089.jpg"]
    for backend, name in ((ONNX_DEPTH, "fastdepth_224"), (ONNX_REGIONS, "yolox_nano")):
        path = shared / "weights" / f"{name}.onnx"
        one, two = (backend.load(with_options(backend, path=path, threads=n))([frame])[0] for n in (1, 2))
        if isinstance(one, MetricDepth):
            assert isinstance(two, MetricDepth) and np.array_equal(one.metres, two.metres)
        else:
            assert one == two


def test_descriptions_are_found_by_content_and_by_name(shared: Path, tmp_path: Path) -> None:
    source = shared / "weights" / "fastdepth_224.onnx"
    renamed = tmp_path / "renamed.onnx"
    renamed.write_bytes(source.read_bytes())
    by_content = ONNX_DEPTH.identity(with_options(ONNX_DEPTH, path=renamed))
    by_name = ONNX_DEPTH.identity(with_options(ONNX_DEPTH, path=renamed, spec="fastdepth"))
    assert by_content == by_name and by_content.startswith("onnx:renamed@dec9da06445c")


@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "models").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_description_in_configs_is_valid(path: Path) -> None:
    spec = ModelSpec.model_validate(yaml.safe_load(path.read_text()))
    assert (spec.depth is None) != (spec.detect is None)
    assert spec.licence != "unknown" and spec.sha256
    if spec.detect is not None:
        assert len(spec.detect.labels) == len(set(spec.detect.labels)) == 80
