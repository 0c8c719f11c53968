"""The folder and the rooms: order, identity, truth beside photos, and what a user is told about mistakes."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from synth import plugins
from synth.contracts import Source
from synth.errors import ImageError, SourceError
from synth.geometry import project, unproject
from synth.images import decode
from synth.types import MetricDepth, RelativeDepth, View

FOLDER: Source = plugins.load(plugins.SOURCES, "folder")
ROOMS: Source = plugins.load(plugins.SOURCES, "rooms")


def png(path: Path, width: int = 48, height: int = 40, seed: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def depth_png(path: Path, values: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values.astype(np.uint16)).save(path)


def sidecar(folder: Path, *lines: object) -> None:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / "truth.jsonl").write_text(text, encoding="utf-8")


def options(path: Path, **more: object):
    return FOLDER.options.model_validate({"path": path, **more})


def load_all(path: Path, **more: object) -> dict[str, View]:
    chosen = options(path, **more)
    return {item.key: FOLDER.load(item, chosen) for item in FOLDER.list(chosen)}


# ------------------------------------------------------------------------------------------------ the folder


def test_items_come_in_path_order_with_content_identity(tmp_path: Path) -> None:
    for seed, name in enumerate(["b/2.png", "a.PNG", "b/1.jpeg", "c.webp", "notes.txt", ".hidden.png", ".git/x.png"]):
        png(tmp_path / name, seed=seed) if not name.endswith("txt") else (tmp_path / name).write_text("x")
    items = FOLDER.list(options(tmp_path))
    assert [item.key for item in items] == ["a.PNG", "b/1.jpeg", "b/2.png", "c.webp"]
    assert [item.group for item in items] == ["a", "b/1", "b/2", "c"]
    for item in items:
        view = FOLDER.load(item, options(tmp_path))
        assert view.image_id == item.fingerprint
        assert view.data == (tmp_path / item.key).read_bytes()
    assert [i.key for i in FOLDER.list(options(tmp_path, recursive=False))] == ["a.PNG", "c.webp"]
    assert [i.key for i in FOLDER.list(options(tmp_path, limit=3))] == ["a.PNG", "b/1.jpeg", "b/2.png"]


def test_a_domain_is_for_photos_of_which_no_line_says_one_and_never_loosens_the_guard(tmp_path: Path) -> None:
    png(tmp_path / "a.png", seed=1)
    png(tmp_path / "b.png", seed=2)
    (tmp_path / "truth.jsonl").write_text(json.dumps({"file": "b.png", "domain": "street"}) + "\n")
    assert {name: view.domain for name, view in load_all(tmp_path).items()} == {"a.png": "", "b.png": "street"}
    told = load_all(tmp_path, domain="indoor")
    assert {name: view.domain for name, view in told.items()} == {"a.png": "indoor", "b.png": "street"}
    for word in ("rendered", "drawn"):
        with pytest.raises(ValidationError, match="neither rendered nor drawn"):
            options(tmp_path, domain=word)


def test_missing_and_empty_folders_say_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not exist"):
        FOLDER.list(options(tmp_path / "absent"))
    (tmp_path / "a.tif").write_bytes(b"x")
    with pytest.raises(SourceError, match=r"looked for \.jpg.*found 1 \.tif"):
        FOLDER.list(options(tmp_path))
    png(tmp_path / "deep" / "a.png")
    with pytest.raises(SourceError) as caught:
        FOLDER.list(options(tmp_path, recursive=False))
    assert "hold 1 photos" in caught.value.fix
    with pytest.raises(SourceError, match="is a file"):
        FOLDER.list(options(tmp_path / "a.tif"))


def test_a_link_that_leaves_the_folder_is_refused(tmp_path: Path) -> None:
    secret = png(tmp_path / "secret.png")
    root = tmp_path / "photos"
    png(root / "a.png", seed=1)
    (root / "inside.png").symlink_to(root / "a.png")
    (root / "out.png").symlink_to(secret)
    (root / "elsewhere").symlink_to(tmp_path)
    items = {item.key: item for item in FOLDER.list(options(root))}
    assert set(items) == {"a.png", "inside.png", "out.png"}
    assert FOLDER.load(items["inside.png"], options(root)).width == 48
    with pytest.raises(ImageError) as caught:
        FOLDER.load(items["out.png"], options(root))
    assert caught.value.reason == "outside_root"
    linked = tmp_path / "linked"
    linked.symlink_to(root)
    assert len(FOLDER.list(options(linked))) == 3


def test_bad_files_are_listed_and_fail_one_by_one(tmp_path: Path) -> None:
    png(tmp_path / "good.png")
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "text.jpg").write_text("hello")
    png(tmp_path / "small.png", 8, 8)
    items = {item.key: item for item in FOLDER.list(options(tmp_path))}
    reasons = {}
    for key, item in items.items():
        try:
            FOLDER.load(item, options(tmp_path))
        except ImageError as error:
            reasons[key] = error.reason
    assert reasons == {"empty.jpg": "empty", "text.jpg": "unknown_format", "small.png": "too_small"}


def test_a_file_that_changed_since_it_was_listed_is_not_used(tmp_path: Path) -> None:
    png(tmp_path / "a.png")
    (item,) = FOLDER.list(options(tmp_path))
    png(tmp_path / "a.png", seed=9)
    with pytest.raises(ImageError, match="changed"):
        FOLDER.load(item, options(tmp_path))


def test_sidecar_truth_is_read_in_full(tmp_path: Path) -> None:
    for name in ("a.png", "b.png", "c.png", "plain.png"):
        png(tmp_path / name)
    values = np.arange(40 * 48).reshape(40, 48)
    depth_png(tmp_path / "maps" / "d.png", values)
    ids = np.zeros((40, 48, 3), dtype=np.uint8)
    ids[5:20, 4:20] = (7, 1, 0)
    ids[5:20, 24:40] = (8, 0, 2)
    Image.fromarray(ids).save(tmp_path / "maps" / "m.png")
    segments = [{"id": 7 + 256, "label": "cup", "thing": True}, {"id": 8 + 2 * 65536, "label": "cup", "thing": True}]
    homography = [[1, 0, 5], [0, 1, 6], [0, 0, 1]]
    sidecar(
        tmp_path,
        {
            "file": "a.png",
            "group": "kitchen",
            "domain": "indoor",
            "licence": "CC0",
            "depth": {"file": "maps/d.png", "scale": 1000, "unit": "m"},
            "boxes": [{"label": "cup", "xyxy": [24, 5, 40, 20]}, {"label": "cup", "xyxy": [4, 5, 99, 20.5]}],
            "complete": True,
            "crowd": [{"label": "spoon", "xyxy": [0, 0, 10, 10]}, [10, 20, 5, 6]],
            "vocabulary": ["fork"],
            "masks": {"file": "maps/m.png", "encoding": "coco_panoptic", "segments": segments},
            "homographies": [{"to": "b.png", "matrix": homography}],
            "camera": {"K": [[500, 0, 24], [0, 500, 20], [0, 0, 1]]},
            "note": "mine",
        },
        "",
        {"file": "b.png", "depth": {"file": "maps/d.png", "scale": 2, "unit": "disparity", "order_only": True}},
        {"file": "c.png", "depth": {"file": "maps/d.png", "scale": 2, "unit": "relative"}},
    )
    views = load_all(tmp_path, licence="house")
    assert set(views) == {"a.png", "b.png", "c.png", "plain.png"}  # neither the depth nor the mask file
    a = views["a.png"]
    assert (a.group, a.domain, a.licence) == ("kitchen", "indoor", "CC0")
    assert (views["b.png"].group, views["b.png"].licence) == ("kitchen", "house")  # a.png leads to it
    assert (views["plain.png"].group, views["plain.png"].truth) == ("plain", None)
    assert a.truth is not None and isinstance(a.truth.depth, MetricDepth)
    assert a.truth.depth.metres[3, 7] == pytest.approx((3 * 48 + 7) / 1000)
    assert not a.truth.depth.valid[0, 0] and a.truth.depth.valid[0, 1]
    regions = a.truth.regions
    assert regions is not None and regions.complete
    assert regions.vocabulary == ("cup", "fork", "spoon")
    first, second, spoon, bare = regions.items
    assert first.mask is not None and first.mask[10, 30] and not first.mask[10, 10]
    assert second.box == (4, 5, 48, 20.5)
    assert second.mask is None  # clipped it covers both cups: no mask fills it
    assert spoon.crowd and bare.crowd and bare.box == (10, 20, 15, 26) and bare.label == ""
    assert a.truth.homographies["b.png"].tolist() == homography
    assert a.truth.camera is not None and a.truth.camera.K[0, 0] == 500 and np.array_equal(a.truth.camera.R, np.eye(3))
    for name, nearer_is_larger_value in (("b.png", True), ("c.png", False)):
        truth = views[name].truth
        assert truth is not None and isinstance(truth.depth, RelativeDepth)
        assert (truth.depth.inverse[20, 20] > truth.depth.inverse[10, 10]) == nearer_is_larger_value


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "expected an object"),
        ({"group": "x"}, "missing key 'file'"),
        ({"file": "a.png", "boxs": []}, "unknown key 'boxs'"),
        ({"file": "a.png", "depth": {"file": "d.png", "scale": 0, "unit": "m"}}, "depth.scale"),
        ({"file": "a.png", "depth": {"file": "d.png", "scale": 1, "unit": "mm"}}, "depth.unit"),
        ({"file": "a.png", "depth": {"file": "gone.png", "scale": 1, "unit": "m"}}, "no such file: 'gone.png'"),
        ({"file": "a.png", "depth": {"file": "../out.png", "scale": 1, "unit": "m"}}, "outside the folder"),
        ({"file": "a.png", "depth": {"file": "d.png", "scale": 1, "unit": "m"}}, "d.png is 5x4, the photo"),
        ({"file": "a.png", "boxes": [{"label": "x", "xyxy": [5, 5, 5, 9]}]}, "no area"),
        ({"file": "a.png", "homographies": [{"to": "b.png", "matrix": [[1, 0], [0, 1]]}]}, "homographies"),
        ({"file": "elsewhere.png"}, "no line names a photo"),
    ],
)
def test_a_broken_sidecar_line_is_named(tmp_path: Path, line: object, message: str) -> None:
    root = tmp_path / "photos"
    png(root / "a.png")
    png(tmp_path / "out.png")
    depth_png(root / "d.png", np.ones((4, 5)))
    sidecar(root, line)
    with pytest.raises(SourceError, match=r"truth\.jsonl:1") as caught:
        FOLDER.list(options(root))
    assert message in str(caught.value)


def test_two_lines_for_one_photo_are_an_error(tmp_path: Path) -> None:
    png(tmp_path / "a.png")
    sidecar(tmp_path, {"file": "a.png"}, {"file": "./a.png"})
    with pytest.raises(SourceError, match=r"truth\.jsonl:2.*truth\.jsonl:1"):
        FOLDER.list(options(tmp_path))


def test_depth_size_is_compared_with_the_upright_photo(tmp_path: Path) -> None:
    image = Image.fromarray(np.zeros((40, 48, 3), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "a.jpg", exif=exif)
    sidecar(tmp_path, {"file": "a.jpg", "depth": {"file": "d.png", "scale": 1, "unit": "m"}})
    depth_png(tmp_path / "d.png", np.ones((48, 40)))
    view = load_all(tmp_path)["a.jpg"]
    assert (view.width, view.height) == (40, 48)
    assert view.truth is not None and view.truth.depth is not None and view.truth.depth.valid.shape == (48, 40)


def test_sidecars_in_subfolders_speak_for_their_own_photos(tmp_path: Path) -> None:
    png(tmp_path / "one" / "a.png")
    png(tmp_path / "two" / "a.png", seed=1)
    sidecar(tmp_path / "two", {"file": "a.png", "group": "scene", "domain": "street"})
    views = load_all(tmp_path)
    assert (views["one/a.png"].group, views["one/a.png"].domain) == ("one/a", "")
    assert (views["two/a.png"].group, views["two/a.png"].domain) == ("scene", "street")


def test_the_shared_photos_bring_their_truth(shared: Path) -> None:
    views = load_all(shared / "photos_gt")
    lines = [json.loads(text) for text in (shared / "photos_gt" / "truth.jsonl").read_text().splitlines()]
    assert {line["file"] for line in lines} <= set(views)
    for line in lines:
        truth = views[line["file"]].truth
        assert (truth is not None and truth.depth is not None) == ("depth" in line)
        assert (truth is not None and truth.regions is not None) == ("boxes" in line or "masks" in line)
        if "boxes" in line:
            assert truth is not None and truth.regions is not None
            assert sum(not item.crowd for item in truth.regions.items) == len(line["boxes"])
    nyu = views["nyu_00000.jpg"].truth
    assert nyu is not None and isinstance(nyu.depth, MetricDepth)
    assert 0.3 < float(np.median(nyu.depth.metres[nyu.depth.valid])) < 10
    things = [item for view in views.values() if view.name.startswith("coco_") for item in view.truth.regions.items]
    assert np.mean([item.mask is not None for item in things if not item.crowd]) > 0.85
    assert {item.label for item in things if item.crowd} == {"person"}


def test_odd_files_never_raise_anything_but_an_image_error(shared: Path) -> None:
    chosen = options(shared / "odd")
    outcomes = {}
    for item in FOLDER.list(chosen):
        try:
            outcomes[item.key] = FOLDER.load(item, chosen).width
        except ImageError as error:
            outcomes[item.key] = error.reason
    assert outcomes["empty.jpg"] == "empty"
    assert outcomes["one_pixel.png"] == "too_small"
    assert outcomes["text_as.jpg"] == "unknown_format"
    assert outcomes["huge_30000x30000_1bit.png"] == "too_large"
    assert isinstance(outcomes["name with spaces & ümläut 日本.jpg"], int)


# ------------------------------------------------------------------------------------------------ the rooms


def room_options(**more: object):
    return ROOMS.options.model_validate(more)


def test_room_items_name_seed_and_view() -> None:
    items = ROOMS.list(room_options(first_seed=100012, n_rooms=2, seeds=[7, 100013]))
    assert [item.key for item in items] == [
        "room-0000007-0",
        "room-0000007-1",
        "room-0100012-0",
        "room-0100012-1",
        "room-0100013-0",
        "room-0100013-1",
    ]
    assert items[2].group == items[3].group == "room-0100012"
    assert len({item.fingerprint for item in items}) == 6
    larger = ROOMS.list(room_options(first_seed=100012, n_rooms=1, size=256))
    assert larger[0].fingerprint != items[2].fingerprint
    assert len(ROOMS.list(room_options(n_rooms=3, views=1))) == 3
    with pytest.raises(SourceError, match="n_rooms is 0"):
        ROOMS.list(room_options(n_rooms=0))


@pytest.fixture(scope="module")
def rooms(rooms_cache: Path) -> list[View]:
    chosen = room_options(first_seed=100012, n_rooms=2, size=96, cache=rooms_cache)
    items = ROOMS.list(chosen)
    calls = []
    assert ROOMS.prepare is not None
    ROOMS.prepare(items, chosen, 1, lambda done, total: calls.append((done, total)))
    assert calls[-1] == (2, 2)
    return [ROOMS.load(item, chosen) for item in items]


def test_a_room_that_was_not_rendered_is_an_error(tmp_path: Path) -> None:
    chosen = room_options(n_rooms=1, cache=tmp_path)
    with pytest.raises(SourceError, match="no file"):
        ROOMS.load(ROOMS.list(chosen)[0], chosen)


def test_rooms_bring_exact_truth(rooms: list[View]) -> None:
    for view in rooms:
        rgb = decode(view.data)
        assert rgb.shape == (96, 96, 3) and (view.width, view.height) == (96, 96)
        assert view.truth is not None and isinstance(view.truth.depth, MetricDepth)
        metres, valid = view.truth.depth.metres, view.truth.depth.valid
        assert np.isfinite(metres).all() and valid.mean() > 0.99
        assert metres[valid].min() > 0.1 and metres[valid].max() < 12
        regions = view.truth.regions
        assert regions is not None and regions.complete
        assert np.sum([item.mask for item in regions.items], axis=0).max() == 1  # no pixel belongs to two
        for item in regions.items:
            assert item.mask is not None and item.label in regions.vocabulary
            rows, columns = np.nonzero(item.mask)
            assert item.box == (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
            assert (item.attributes.get("sliver") == "yes") == (item.mask.sum() < 0.001 * 96 * 96)
            assert ("colour" in item.attributes) != (item.attributes.get("stuff") == "yes")
        assert {"floor", "wall"} <= {i.label for i in regions.items if i.attributes.get("stuff") == "yes"}


def test_room_depth_and_cameras_agree_between_views(rooms: list[View]) -> None:
    """A point of one view, carried through both cameras, has the depth that the other view says (unless hidden)."""
    agreeing = []
    for first, second in zip(rooms[::2], rooms[1::2], strict=True):
        assert first.truth and second.truth and first.truth.camera and second.truth.camera
        here, there = first.truth.camera, second.truth.camera
        assert isinstance(first.truth.depth, MetricDepth) and isinstance(second.truth.depth, MetricDepth)
        rows, columns = np.mgrid[2:96:3, 2:96:3]
        pixels = np.stack([columns.ravel() + 0.5, rows.ravel() + 0.5], axis=1)
        depth = first.truth.depth.metres[rows.ravel(), columns.ravel()].astype(float)
        world = (unproject(pixels, depth, here.K) - here.t) @ here.R
        inside = world @ there.R.T + there.t
        inside = inside[inside[:, 2] > 0.1]
        target = project(inside, there.K)
        seen = ((target >= 1) & (target < 95)).all(axis=1)
        found = second.truth.depth.metres[tuple(np.floor(target[seen]).astype(int).T[::-1])]
        agreeing.append(np.mean(np.abs(found / inside[seen, 2] - 1) < 0.05))
    assert min(agreeing) > 0.7


def test_rooms_are_stable_bytes(rooms: list[View]) -> None:
    assert len({view.image_id for view in rooms}) == len(rooms)
    buffer = io.BytesIO()
    Image.fromarray(decode(rooms[0].data)).save(buffer, "PNG", compress_level=1)
    assert buffer.getvalue() == rooms[0].data
