"""Consensus, cache and perceiver, with small backends whose answers are known in advance."""

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from synth import plugins
from synth.config import PluginChoice
from synth.contracts import DepthBackend, Need, RegionBackend
from synth.errors import BackendError, ConfigError
from synth.geometry import apply_homography, generator
from synth.perception import cache as cache_module
from synth.perception.cache import Cache, decode, encode, key_of
from synth.perception.consensus import (
    ConsensusOptions,
    Member,
    depth_of,
    inputs_of,
    mirror_depth,
    mirror_regions,
    regions_of,
)
from synth.perception.perceive import Perceiver, missing_needs
from synth.types import (
    DepthMap,
    Drop,
    Frame,
    MetricDepth,
    PluginOptions,
    Region,
    Regions,
    RelativeDepth,
    Scene,
    Truth,
    View,
)

NO_OPTIONS = PluginOptions()
DEPTH_AND_REGIONS = frozenset({Need.DEPTH, Need.REGIONS})


def frame(seed: int = 0, width: int = 37, height: int = 23, truth: Truth | None = None) -> Frame:
    rgb = np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8)
    data = rgb.tobytes()
    view = View(
        image_id=hashlib.sha256(data).hexdigest(),
        data=data,
        width=width,
        height=height,
        name=f"photo-{seed}",
        source="test",
        group=f"photo-{seed}",
        truth=truth,
    )
    return Frame(view=view, rgb=rgb)


class Calls:
    """Backends that look at the pixels: depth is the red channel, one region sits on the reddest pixel."""

    def __init__(self) -> None:
        self.loads = 0
        self.depth = 0
        self.regions = 0

    def depth_backend(self, metric: bool = True, exact: bool = False) -> DepthBackend:
        def run(frames: Sequence[Frame]) -> list[MetricDepth | RelativeDepth | None]:
            self.depth += len(frames)
            maps = []
            for one in frames:
                red = one.rgb[..., 0].astype(np.float32)
                valid = one.rgb[..., 1] > 20
                if metric:
                    maps.append(MetricDepth(metres=red, valid=valid, backend="red"))
                else:
                    maps.append(RelativeDepth(inverse=red, valid=valid, backend="red"))
            return maps

        def load(options: PluginOptions):
            self.loads += 1
            return run

        return DepthBackend(
            name="red", version=1, options=PluginOptions, exact=exact, identity=lambda o: "red-1", load=load
        )

    def region_backend(self, name: str = "dot") -> RegionBackend:
        def run(frames: Sequence[Frame]) -> list[Regions | None]:
            self.regions += len(frames)
            found = []
            for one in frames:
                row, column = np.unravel_index(one.rgb[..., 0].argmax(), one.rgb.shape[:2])
                mask = np.zeros(one.rgb.shape[:2], dtype=bool)
                mask[row, column] = True
                box = (float(column), float(row), float(column + 1), float(row + 1))
                region = Region(label="dot", box=box, score=0.5, mask=mask, attributes={"colour": "red"})
                found.append(Regions(items=(region,), complete=False, backend=name, vocabulary=("dot", "dash")))
            return found

        return RegionBackend(
            name=name, version=1, options=PluginOptions, exact=False, identity=lambda o: name, load=lambda o: run
        )


def perceiver(calls: Calls, cache: Cache | None = None, flip: bool = True, metric: bool = True) -> Perceiver:
    return Perceiver(
        depth=(calls.depth_backend(metric), NO_OPTIONS),
        regions=(calls.region_backend(), NO_OPTIONS),
        matches=None,
        consensus_options=ConsensusOptions(flip=flip),
        cache=cache,
    )


def same(a: object, b: object) -> bool:
    """Deep equality of frozen records with arrays, types included."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if dataclasses.is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a == b


# ------------------------------------------------------------------------------------------------ consensus


def test_the_mirrored_member_comes_back_in_the_photos_own_pixels() -> None:
    frames = [frame(0), frame(1, width=40, height=31)]
    calls = Calls()
    for one, scene in zip(frames, perceiver(calls).perceive(frames, DEPTH_AND_REGIONS, 0), strict=True):
        assert isinstance(scene, Scene)
        plain, flipped = scene.depths
        assert same(plain, flipped)  # a backend that reads single pixels cannot tell a mirror
        assert np.array_equal(plain.metres, one.rgb[..., 0].astype(np.float32))
        found, mirrored = scene.regions
        assert same(found, mirrored)
    assert (calls.depth, calls.regions, calls.loads) == (4, 4, 1)


def test_mirroring_twice_changes_nothing_and_moves_what_it_should() -> None:
    calls = Calls()
    (scene,) = perceiver(calls, flip=False).perceive([frame(3)], DEPTH_AND_REGIONS, 0)
    assert isinstance(scene, Scene) and len(scene.depths) == len(scene.regions) == 1
    depth, regions = scene.depths[0], scene.regions[0]
    assert same(mirror_depth(mirror_depth(depth)), depth)
    assert same(mirror_regions(mirror_regions(regions, 37), 37), regions)
    moved = mirror_regions(regions, 37).items[0]
    column = int(regions.items[0].box[0])
    assert moved.box[0] == 37 - column - 1
    assert moved.mask is not None and moved.mask[:, 37 - column - 1].any()


def zoomed(zooms: tuple[float, ...], metric: bool, one: Frame) -> tuple[tuple[DepthMap, ...], Perceiver]:
    """Depth of one frame by `Calls`' backend with these zooms, and the perceiver."""
    calls = Calls()
    seen = Perceiver(
        depth=(calls.depth_backend(metric), NO_OPTIONS),
        regions=None,
        matches=None,
        consensus_options=ConsensusOptions(flip=False, depth_zooms=zooms),
        cache=None,
    )
    (scene,) = seen.perceive([one], frozenset({Need.DEPTH}), 0)
    assert isinstance(scene, Scene)
    return scene.depths, seen


def smooth_frame(width: int = 90, height: int = 70) -> Frame:
    one = frame(0, width, height)
    rgb = np.full((height, width, 3), 200, dtype=np.uint8)
    rgb[..., 0] = 40 + np.arange(width) + np.arange(height)[:, None]
    return dataclasses.replace(one, rgb=rgb)


def test_a_zoomed_member_comes_back_pixel_for_pixel() -> None:
    one = smooth_frame()
    (plain, small, large), seen = zoomed((0.5, 1.333), True, one)
    assert isinstance(plain, MetricDepth) and isinstance(small, MetricDepth) and isinstance(large, MetricDepth)
    # The backend reads single pixels, so only the factor tells a smaller picture: what looks smaller looks farther.
    assert np.allclose(small.metres, plain.metres * 0.5) and np.array_equal(small.valid, plain.valid)
    assert np.allclose(large.metres, plain.metres * 1.333, rtol=1e-5) and large.valid.all()
    assert list(seen.identities()) == ["depth/plain", "depth/zoom-0.5", "depth/zoom-1.333"]
    assert {m.member: (m.images, m.passes) for m in seen.stats().members} == {
        "plain": (1, 1),
        "zoom-0.5": (1, 1),
        "zoom-1.333": (1, 4),
    }


@pytest.mark.parametrize("metric", [True, False])
def test_corners_of_unlike_scale_are_joined_to_one_order(metric: bool) -> None:
    """Each corner has a scale of its own (and a shift, where depth is relative); joined, the order is the photo's."""
    one = smooth_frame()
    member = Member(name="zoom-1.5", backend=Calls().depth_backend(metric), options=NO_OPTIONS, zoom=1.5)
    maps: list[DepthMap] = []
    for k, picture in enumerate(inputs_of(member, one)):
        red = picture.rgb[..., 0].astype(np.float32)
        valid = np.ones(red.shape, dtype=bool)
        if metric:
            maps.append(MetricDepth(metres=red * (1 + k), valid=valid, backend="m"))
        else:
            maps.append(RelativeDepth(inverse=red * (1 + k) + 50 * k, valid=valid, backend="m"))
    joined = depth_of(member, one, maps)
    values = joined.metres if isinstance(joined, MetricDepth) else joined.inverse
    order = one.rgb[..., 0].astype(int).ravel()
    assert joined.valid.all() and np.corrcoef(values.ravel(), order)[0, 1] > 0.995
    ends = values[:, :30].mean() / values[:, -30:].mean()
    assert ends < 1 if metric else values[:, :30].mean() < values[:, -30:].mean()


def test_a_corner_that_shares_nothing_is_left_out_rather_than_guessed() -> None:
    one = smooth_frame()
    member = Member(name="zoom-1.5", backend=Calls().depth_backend(), options=NO_OPTIONS, zoom=1.5)
    pictures = inputs_of(member, one)
    maps: list[DepthMap] = []
    for k, picture in enumerate(pictures):
        valid = np.zeros(picture.rgb.shape[:2], dtype=bool)
        valid[:10, :10] = True
        if k == 0:
            valid[:] = True
            valid[:10, 30:] = False
        maps.append(MetricDepth(metres=np.full(valid.shape, 2.0, np.float32), valid=valid, backend="m"))
    joined = depth_of(member, one, maps)
    assert not joined.valid[:10, 30:40].any() and joined.valid[20, 20]


def test_regions_on_a_canvas_come_back_cut_to_the_picture() -> None:
    one = frame(0, 100, 60)
    member = Member(name="zoom-0.5", backend=Calls().region_backend(), options=NO_OPTIONS, zoom=0.5)
    (canvas,) = inputs_of(member, one)
    assert canvas.rgb.shape == (120, 200, 3) and np.array_equal(canvas.rgb[30:90, 50:150], one.rgb)
    inside = Region(label="dot", box=(60.0, 40.0, 70.0, 50.0))
    over, beside = Region(label="dot", box=(20.0, 20.0, 80.0, 60.0)), Region(label="dot", box=(0.0, 0.0, 40.0, 20.0))
    given = Regions(items=(inside, over, beside), complete=False, backend="dot")
    assert [r.box for r in regions_of(member, one, [given]).items] == [(10, 10, 20, 20), (0, 0, 30, 30)]


def test_exact_backends_stand_alone_and_are_not_cached(tmp_path: Path) -> None:
    calls = Calls()
    seen = Perceiver(
        depth=(calls.depth_backend(exact=True), NO_OPTIONS),
        regions=None,
        matches=None,
        consensus_options=ConsensusOptions(flip=True),
        cache=Cache(tmp_path),
    )
    for _ in range(2):
        (scene,) = seen.perceive([frame()], frozenset({Need.DEPTH}), 0)
        assert isinstance(scene, Scene) and len(scene.depths) == 1
    assert calls.depth == 2 and not list(tmp_path.rglob("*.zst"))


def test_a_second_opinion_is_a_further_member_and_may_not_be_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls()
    real = plugins.load
    other = calls.region_backend("other")
    monkeypatch.setattr("synth.config.load", lambda folder, name: other if name == "other" else real(folder, name))
    seen = Perceiver(
        depth=None,
        regions=(calls.region_backend(), NO_OPTIONS),
        matches=None,
        consensus_options=ConsensusOptions(regions=(PluginChoice(name="other"),)),
        cache=None,
    )
    (scene,) = seen.perceive([frame()], frozenset({Need.REGIONS}), 0)
    assert isinstance(scene, Scene)
    assert [regions.backend for regions in scene.regions] == ["dot", "dot", "other"]
    assert set(seen.identities()) == {"regions/plain", "regions/flip", "regions/second-1"}
    with pytest.raises(ConfigError, match=r"perception.consensus.depth.0.name: truth is truth"):
        Perceiver(
            depth=(calls.depth_backend(), NO_OPTIONS),
            regions=None,
            matches=None,
            consensus_options=ConsensusOptions(depth=(PluginChoice(name="truth"),)),
            cache=None,
        )


# ------------------------------------------------------------------------------------------------ needs


def test_a_need_without_a_backend_names_the_backends() -> None:
    empty = Perceiver(depth=None, regions=None, matches=None, consensus_options=ConsensusOptions(), cache=None)
    for need, known in ((Need.DEPTH, "onnx"), (Need.REGIONS, "transformers"), (Need.PAIR, "homography")):
        with pytest.raises(BackendError) as caught:
            empty.perceive([frame()], frozenset({need}), 0)
        assert known in caught.value.fix


def test_metres_from_a_relative_backend_are_refused_with_those_that_have_them() -> None:
    calls = Calls()
    with pytest.raises(BackendError, match="red gives relative depth") as caught:
        perceiver(calls, metric=False).perceive([frame()], frozenset({Need.METRIC_DEPTH}), 0)
    assert "truth" in caught.value.fix and "perception.depth.output=metric" in caught.value.fix
    (scene,) = perceiver(calls, metric=True).perceive([frame()], frozenset({Need.METRIC_DEPTH}), 0)
    assert isinstance(scene, Scene)


def test_truth_serves_each_photo_as_far_as_it_goes() -> None:
    depth = MetricDepth(metres=np.ones((23, 37), np.float32), valid=np.ones((23, 37), bool), backend="truth")
    relative = RelativeDepth(inverse=depth.metres, valid=depth.valid, backend="truth")
    regions = Regions(items=(), complete=True, backend="truth")
    truths = [Truth(depth=depth), Truth(regions=regions), Truth(depth=relative, regions=regions), Truth(), None]
    frames = [frame(i, truth=truth) for i, truth in enumerate(truths)]
    seen = Perceiver(
        depth=(plugins.load(plugins.DEPTH, "truth"), NO_OPTIONS),
        regions=(plugins.load(plugins.REGIONS, "truth"), NO_OPTIONS),
        matches=None,
        consensus_options=ConsensusOptions(),
        cache=None,
    )
    needs = frozenset({Need.DEPTH, Need.METRIC_DEPTH, Need.REGIONS})
    results = seen.perceive(frames, needs, 0)
    lacking = [missing_needs(r, needs) if isinstance(r, Scene) else r.reason for r in results]
    assert lacking == [
        {Need.REGIONS},
        {Need.DEPTH, Need.METRIC_DEPTH},
        {Need.METRIC_DEPTH},
        "no_truth",
        "no_truth",
    ]
    dropped = results[3]
    assert isinstance(dropped, Drop) and dropped.image == "photo-3" and dropped.stage == "perception"
    absent = {member.role: member.absent for member in seen.stats().members}
    assert absent == {"depth": 3, "regions": 3}


def test_only_what_is_needed_is_run() -> None:
    calls = Calls()
    seen = perceiver(calls)
    (scene,) = seen.perceive([frame()], frozenset({Need.REGIONS}), 0)
    assert isinstance(scene, Scene) and not scene.depths
    assert (calls.depth, calls.regions) == (0, 2)


def test_a_backend_with_maps_of_another_size_is_a_bug() -> None:
    broken = dataclasses.replace(
        Calls().depth_backend(),
        load=lambda o: (
            lambda frames: [
                MetricDepth(metres=np.ones((2, 2), np.float32), valid=np.ones((2, 2), bool), backend="x")
                for _ in frames
            ]
        ),
    )
    seen = Perceiver(
        depth=(broken, NO_OPTIONS), regions=None, matches=None, consensus_options=ConsensusOptions(), cache=None
    )
    with pytest.raises(ValueError, match=r"map \(2, 2\), photo \(23, 37\)"):
        seen.perceive([frame()], frozenset({Need.DEPTH}), 0)


# ------------------------------------------------------------------------------------------------ cache


def test_the_cache_gives_back_the_very_same_scene_without_a_pass(tmp_path: Path) -> None:
    frames = [frame(0), frame(1)]
    first_calls, second_calls = Calls(), Calls()
    first = perceiver(first_calls, Cache(tmp_path)).perceive(frames, DEPTH_AND_REGIONS, 0)
    seen = perceiver(second_calls, Cache(tmp_path))
    second = seen.perceive([*frames, frame(2)], DEPTH_AND_REGIONS, 0)
    assert same(tuple(first), tuple(second[:2]))
    assert (second_calls.depth, second_calls.regions) == (2, 2)
    stats = seen.stats()
    assert {(m.role, m.member): (m.images, m.passes, m.cache_hits) for m in stats.members} == {
        ("depth", "plain"): (3, 1, 2),
        ("depth", "flip"): (3, 1, 2),
        ("regions", "plain"): (3, 1, 2),
        ("regions", "flip"): (3, 1, 2),
    }
    assert stats.cache is not None and (stats.cache.hits, stats.cache.misses, stats.cache.corrupt) == (8, 4, 0)
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(".tmp")]


@pytest.mark.parametrize("damage", ["empty", "cut", "bit", "foreign", "swapped"])
def test_a_damaged_entry_is_made_again_and_counted(tmp_path: Path, damage: str) -> None:
    one = frame()
    first = perceiver(Calls(), Cache(tmp_path), flip=False).perceive([one], DEPTH_AND_REGIONS, 0)
    entries = sorted(tmp_path.rglob("*.zst"))
    assert len(entries) == 2
    contents = [path.read_bytes() for path in entries]
    for path, content, other in zip(entries, contents, contents[::-1], strict=True):
        flipped = bytes([*content[:-9], content[-9] ^ 1, *content[-8:]])
        damaged = {"empty": b"", "cut": content[:-3], "bit": flipped, "foreign": b"{}", "swapped": other}[damage]
        path.write_bytes(damaged)
    calls = Calls()
    seen = perceiver(calls, Cache(tmp_path), flip=False)
    assert same(tuple(first), tuple(seen.perceive([one], DEPTH_AND_REGIONS, 0)))
    assert (calls.depth, calls.regions) == (1, 1)
    stats = seen.stats().cache
    assert stats is not None and stats.corrupt == 2 and stats.trouble
    assert [path.read_bytes() for path in entries] == contents


def test_a_cache_that_cannot_be_written_is_counted_and_does_no_harm(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    seen = perceiver(Calls(), Cache(blocked), flip=False)
    (scene,) = seen.perceive([frame()], DEPTH_AND_REGIONS, 0)
    assert isinstance(scene, Scene)
    stats = seen.stats().cache
    assert stats is not None and stats.unwritten == 2 and stats.trouble


def test_the_key_depends_on_everything_that_changes_a_result() -> None:
    base = ("image", "onnx", 1, "identity", "plain")
    keys = {key_of(*base)}
    for index, other in enumerate(("other", "other", 2, "other", "flip")):
        keys.add(key_of(*(*base[:index], other, *base[index + 1 :])))
    assert len(keys) == 6


FLOATS = hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=9))


@settings(max_examples=40, deadline=None)
@given(values=FLOATS, metric=st.booleans(), seed=st.integers(0, 99))
def test_depth_survives_the_cache_to_the_last_bit(values: np.ndarray, metric: bool, seed: int) -> None:
    valid = np.random.default_rng(seed).random(values.shape) < 0.5
    depth = (
        MetricDepth(metres=values, valid=valid, backend="b")
        if metric
        else RelativeDepth(inverse=values, valid=valid, backend="b")
    )
    assert same(decode(encode(depth, "k"), "k"), depth)


@settings(max_examples=20, deadline=None)
@given(
    boxes=st.lists(st.tuples(*[st.floats(0, 1e4, allow_nan=False)] * 4), max_size=4),
    label=st.text(max_size=5),
    score=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_regions_survive_the_cache_to_the_last_bit(boxes: list, label: str, score: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    items = tuple(
        Region(
            label=label,
            box=box,
            score=score,
            mask=rng.random((5, 7)) < 0.5 if i % 2 else None,
            attributes={"colour": label},
            crowd=bool(i % 3),
        )
        for i, box in enumerate(boxes)
    )
    regions = Regions(items=items, complete=bool(seed % 2), backend="b", vocabulary=(label, "x"))
    assert same(decode(encode(regions, "k"), "k"), regions)


def test_depth_is_not_stored_coarser_than_float32() -> None:
    values = (np.arange(64, dtype=np.float32) * 1e-6 + 3).reshape(8, 8)
    depth = MetricDepth(metres=values, valid=np.ones((8, 8), bool), backend="b")
    back = decode(encode(depth, "k"), "k")
    assert isinstance(back, MetricDepth) and len(np.unique(back.metres)) == len(np.unique(values)) > 16
    assert cache_module.FORMAT == 2


# ------------------------------------------------------------------------------------------------ pairs


MATCHES = plugins.load(plugins.MATCHES, "homography")
STILL = {"gain": (1, 1), "gamma": (1, 1), "noise": 0}


def ramp_frame(width: int, height: int) -> Frame:
    """Red is x, green is y, both linear over the picture: a colour tells where it came from."""
    rgb = np.zeros((height, width, 3), dtype=np.uint8)
    rgb[..., 0] = np.rint((np.arange(width) + 0.5) / width * 255)
    rgb[..., 1] = np.rint((np.arange(height) + 0.5) / height * 255)[:, None]
    return dataclasses.replace(frame(width=width, height=height), rgb=rgb)


@pytest.mark.parametrize(("width", "height", "max_side"), [(200, 150, 1024), (150, 200, 100), (301, 97, 128)])
def test_the_homography_tells_where_each_pixel_came_from(width: int, height: int, max_side: int) -> None:
    one = ramp_frame(width, height)
    options = MATCHES.options.model_validate({**STILL, "max_side": max_side})
    for seed in range(6):
        made = MATCHES.pair(one, options, np.random.default_rng(seed))
        assert max(made.rgb.shape) <= max(max_side, 3)
        rows, columns = np.nonzero(made.covered)
        points = np.stack([columns + 0.5, rows + 0.5], axis=1)
        source = apply_homography(np.linalg.inv(made.homography), points)
        there = made.rgb[rows, columns].astype(float)
        error = np.abs(there[:, :2] - source / [width, height] * 255)
        # Half a grey level of rounding, and the shrunk picture's averaging at its border.
        assert np.median(error) < 0.7 and np.quantile(error, 0.99) < 3
        assert (made.rgb[~made.covered] == 127).all()


def test_pairs_are_strong_enough_and_still_show_the_photo() -> None:
    one = ramp_frame(160, 120)
    options = MATCHES.options()
    moved, turned = [], []
    for seed in range(40):
        made = MATCHES.pair(one, options, np.random.default_rng(seed))
        assert made.covered.mean() >= 0.48
        centre = np.array([[80.0, 60.0], [90.0, 60.0]])
        a, b = apply_homography(made.homography, centre)
        moved.append(np.hypot(*(a - centre[0])))
        turned.append(np.degrees(np.arctan2(b[1] - a[1], b[0] - a[0])))
        corners = apply_homography(made.homography, np.array([[0, 0], [160, 0], [160, 120], [0, 120.0]]))
        edges = np.roll(corners, -1, axis=0) - corners
        following = np.roll(edges, -1, axis=0)
        assert (edges[:, 0] * following[:, 1] - edges[:, 1] * following[:, 0] > 0).all()  # convex, not mirrored
    assert np.mean(moved) > 3 and np.ptp(turned) > 15


def test_a_pair_depends_on_seed_and_image_only() -> None:
    frames = [frame(0, 64, 48), frame(1, 64, 48)]
    needs = frozenset({Need.PAIR})

    def pairs(order: Sequence[Frame], seed: int) -> dict[str, bytes]:
        seen = Perceiver(
            depth=None,
            regions=None,
            matches=(MATCHES, MATCHES.options()),
            consensus_options=ConsensusOptions(),
            cache=None,
        )
        scenes = seen.perceive(order, needs, seed)
        assert seen.stats().pairs == len(order)
        return {s.view.name: s.pair.rgb.tobytes() for s in scenes if isinstance(s, Scene) and s.pair is not None}

    assert pairs(frames, 5) == pairs(frames[::-1], 5)
    assert pairs(frames, 5) != pairs(frames, 6)
    direct = MATCHES.pair(frames[0], MATCHES.options(), generator(5, "matches/homography", frames[0].view.image_id))
    assert direct.rgb.tobytes() == pairs(frames, 5)["photo-0"]
