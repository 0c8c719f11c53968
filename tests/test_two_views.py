"""Two photos of one scene: which go together, what the matchers find, what the consensus keeps, and what truth says."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from synth.audit.correspondence import right_mark
from synth.contracts import Need
from synth.dataset.shards import read_rows
from synth.errors import BackendError, ConfigError
from synth.geometry import apply_homography, generator, warp
from synth.images import encode_png
from synth.perception.cache import Cache, decode_matches, encode_matches
from synth.perception.matches import _model
from synth.perception.perceive import missing_needs
from synth.perception.two_views import Matcher, TwoViewOptions, partners
from synth.pipeline import generate
from synth.plugins import MATCHES, SOURCES, TASKS, load
from synth.recipe import Recipe
from synth.types import (
    LETTERS,
    QA,
    Camera,
    Drop,
    Frame,
    Mark,
    Matches,
    MetricDepth,
    RelativeDepth,
    Scene,
    SecondView,
    SourceItem,
    Truth,
)
from tests.scenes import benchmark_folder
from tests.toy import texture, view_of

TASK = load(TASKS, "visual_correspondence")
SIFT = TwoViewOptions.model_validate({"matches": {"name": "sift"}})
TRUTH = TwoViewOptions.model_validate({"matches": {"name": "truth"}})
SIZE = (320, 240)
NEAR, FAR = (60, 50, 180, 190), 8.0
"""A board (x1, y1, x2, y2) in front of a wall, and how far the wall moves between the two photos; px."""
BOARD_SHIFT = 24.0
TURN = np.array([[0.97, -0.12, 22.0], [0.11, 0.98, -14.0], [2e-5, -4e-5, 1.0]])


def named(rgb: np.ndarray, name: str, truth: Truth | None = None) -> Frame:
    return Frame(view=view_of(rgb, truth, name=name), rgb=rgb)


def flat_pair() -> tuple[Frame, Frame]:
    """A flat scene, seen again through TURN."""
    rgb = texture(3, *SIZE, cell=6)
    return named(rgb, "a.png", Truth(homographies={"b.png": TURN})), named(warp(rgb, TURN, *SIZE)[0], "b.png")


def stereo_pair() -> tuple[Frame, Frame]:
    """A wall and a board before it, by two cameras side by side: the right photo is put together layer by layer."""
    width, height = SIZE
    wall, board = texture(4, width + 40, height, cell=6), texture(5, width, height, cell=6)
    x1, y1, x2, y2 = NEAR
    left, right = wall[:, :width].copy(), wall[:, int(FAR) : width + int(FAR)].copy()
    left[y1:y2, x1:x2] = board[y1:y2, x1:x2]
    right[y1:y2, x1 - int(BOARD_SHIFT) : x2 - int(BOARD_SHIFT)] = board[y1:y2, x1:x2]
    disparity = np.full((height, width), FAR, dtype=np.float32)
    disparity[y1:y2, x1:x2] = BOARD_SHIFT
    depth = RelativeDepth(inverse=disparity, valid=np.ones_like(disparity, dtype=bool), backend="truth")
    return named(left, "l.png", Truth(depth=depth, right="r.png")), named(right, "r.png")


def scene_with(here: Frame, *seconds: SecondView) -> Scene:
    return Scene(view=here.view, rgb=here.rgb, seconds=tuple(seconds))


def ask(scene: Scene, seed: int = 0, **options: object) -> tuple[list[QA], dict[str, int]]:
    # Patches of the toy texture are small and smooth: unlike ones correlate more than those of photos do.
    chosen = TASK.options.model_validate({"per_image": 8, "look_alike": 0.98, "like_motion": None, **options})
    found = list(TASK.generate(scene, chosen, generator(seed, TASK.name, scene.view.image_id)))
    return [one for one in found if isinstance(one, QA)], {
        one.reason: one.count for one in found if isinstance(one, Drop)
    }


def right_place(qa: QA) -> tuple[Mark, Mark]:
    """REF and the mark that the answer names."""
    label = qa.provenance.options[LETTERS.index(qa.answer)]
    return qa.panels[0].marks[0], next(mark for mark in qa.panels[1].marks if mark.label == label)


# ------------------------------------------------------------------------------------------------ which photos


def items(*groups: str) -> list[SourceItem]:
    return [SourceItem(key=f"{k:02d}", fingerprint=str(k), group=group) for k, group in enumerate(groups)]


def test_partners_are_later_neighbours_of_the_same_group() -> None:
    listed = items("x", "y", "x", "x", "z", "y", "x")

    def keys(**options: object) -> dict[str, list[str]]:
        chosen = TwoViewOptions.model_validate(options)
        return {key: [item.key for item in found] for key, found in partners(listed, chosen).items()}

    assert keys() == {"00": ["02"], "02": ["03"], "03": ["06"], "01": ["05"]}
    assert keys(per_photo=2) == {"00": ["02", "03"], "02": ["03", "06"], "03": ["06"], "01": ["05"]}
    assert keys(per_photo=5, farthest=2) == {"00": ["02", "03"], "02": ["03", "06"], "03": ["06"], "01": ["05"]}
    assert keys(nearest=2) == {"00": ["03"], "02": ["06"]}
    with pytest.raises(ConfigError, match="nearest is 4"):
        keys(nearest=4, farthest=3)


def test_a_folder_may_be_a_scene_and_lines_lead_to_their_other_views(tmp_path: Path) -> None:
    source = load(SOURCES, "folder")
    for name in ("v/0.png", "v/1.png", "w/0.png", "w/1.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(encode_png(texture(len(name), 64, 48)))
    line = {"file": "0.png", "homographies": [{"to": "1.png", "matrix": np.eye(3).tolist()}]}
    (tmp_path / "w" / "truth.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")

    def groups(**options: object) -> dict[str, str]:
        chosen = source.options.model_validate({"path": tmp_path, **options})
        return {item.key: item.group for item in source.list(chosen)}

    assert groups() == {"v/0.png": "v/0", "v/1.png": "v/1", "w/0.png": "w/0", "w/1.png": "w/0"}
    assert groups(group="folder") == {"v/0.png": "v", "v/1.png": "v", "w/0.png": "w/0", "w/1.png": "w/0"}
    options = source.options.model_validate({"path": tmp_path})
    first = next(item for item in source.list(options) if item.key == "w/0.png")
    truth = source.load(first, options).truth
    assert truth is not None and list(truth.homographies) == ["w/1.png"]  # by its key, not as the line spells it


# ------------------------------------------------------------------------------------------------ matchers


def test_sift_finds_a_flat_scene_again_and_every_member_speaks_in_the_photos_own_pixels() -> None:
    here, there = flat_pair()
    second = Matcher(SIFT).second_view(here, there)
    assert [member.member for member in second.matches] == ["plain", "swap", "flip"]
    for member in second.matches:
        assert len(member.here) > 60 and member.homography is not None and member.fundamental is None
        assert np.hypot(*(apply_homography(TURN, member.here) - member.there).T).max() < 1.5
        assert np.hypot(*(apply_homography(member.homography, member.here) - member.there).T).max() < 1.5


def test_matches_come_from_the_cache_to_the_last_bit_and_no_matcher_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flat, deep = flat_pair(), stereo_pair()
    first = Matcher(SIFT, Cache(tmp_path))
    computed = [first.second_view(*pair).matches for pair in (flat, deep)]
    assert (first.passes, first.cache_hits) == (6, 0)  # two pairs, each plain, swap and flip

    monkeypatch.setattr(Matcher, "_runner", lambda *_: pytest.fail("a matcher was asked for"))
    again = Matcher(SIFT, Cache(tmp_path))
    for pair, members in zip((flat, deep), computed, strict=True):
        for one, other in zip(members, again.second_view(*pair).matches, strict=True):
            assert (one.backend, one.member) == (other.backend, other.member) and len(other.here) > 60
            for name in ("here", "there", "scores", "homography", "fundamental"):
                a, b = getattr(one, name), getattr(other, name)
                assert (a is None) == (b is None) and (a is None or (a.dtype == b.dtype and np.array_equal(a, b)))
    assert (again.passes, again.cache_hits) == (0, 6)


def test_the_cache_holds_a_pair_under_its_order_and_what_changes_its_matches(tmp_path: Path) -> None:
    here, there = flat_pair()
    Matcher(SIFT, Cache(tmp_path)).second_view(here, there)
    turned = Matcher(SIFT, Cache(tmp_path))
    turned.second_view(there, here)
    assert (turned.passes, turned.cache_hits) == (1, 2)  # plain and swap change places, mirrored is another picture
    other = TwoViewOptions.model_validate({"matches": {"name": "sift", "ratio": 0.7}})
    changed = Matcher(other, Cache(tmp_path))
    changed.second_view(here, there)
    assert (changed.passes, changed.cache_hits) == (3, 0)


@given(
    n=st.integers(0, 5),
    geometry=st.sampled_from([(), ("homography",), ("fundamental",)]),
    seed=st.integers(0, 99),
    cut=st.integers(1, 40),
)
def test_matches_are_stored_whole_and_a_shortened_entry_is_none(
    n: int, geometry: tuple[str, ...], seed: int, cut: int
) -> None:
    rng = np.random.default_rng(seed)
    matrices = {name: rng.normal(size=(3, 3)) for name in geometry}
    matches = Matches(
        here=rng.normal(size=(n, 2)), there=rng.normal(size=(n, 2)), scores=rng.random(n), backend="b", **matrices
    )
    data = encode_matches(matches, "k")
    back = decode_matches(data, "k")
    assert all(np.array_equal(getattr(matches, name), getattr(back, name)) for name in ("here", "there", "scores"))
    assert all(np.array_equal(matrix, getattr(back, name)) for name, matrix in matrices.items())
    for bad, key in ((data[:-cut], "k"), (data, "l")):
        with pytest.raises((ValueError, struct.error, zstandard.ZstdError)):
            decode_matches(bad, key)


def test_sift_tells_depth_from_a_plane_and_keeps_both_layers() -> None:
    here, there = stereo_pair()
    for member in Matcher(SIFT).second_view(here, there).matches:
        assert member.fundamental is not None and member.homography is None
        shift = member.here[:, 0] - member.there[:, 0]
        x, y = member.here.T
        x1, y1, x2, y2 = NEAR
        on_board = (x > x1 + 4) & (x < x2 - 4) & (y > y1 + 4) & (y < y2 - 4)
        beside = (x < x1 - 4) | (x > x2 + 4) | (y < y1 - 4) | (y > y2 + 4)
        assert on_board.sum() > 20 and beside.sum() > 20
        assert np.abs(shift[on_board] - BOARD_SHIFT).max() < 1 and np.abs(shift[beside] - FAR).max() < 1
        lines = np.column_stack([member.here, np.ones(len(x))]) @ member.fundamental.T
        onto = np.column_stack([member.there, np.ones(len(x))])
        assert (np.abs((lines * onto).sum(1)) / np.hypot(lines[:, 0], lines[:, 1])).max() < 1.5


def test_photos_of_different_things_have_nothing_in_common_even_with_one_object_in_both() -> None:
    a, b = texture(1, *SIZE, cell=6), texture(2, *SIZE, cell=6)
    assert not len(Matcher(SIFT).second_view(named(a, "a"), named(b, "b")).matches[0].here)
    thing = texture(3, 90, 70, cell=4)
    a[20:90, 30:120], b[120:190, 150:240] = thing, thing
    second = Matcher(SIFT).second_view(named(a, "a"), named(b, "b"))
    assert not len(second.matches[0].here)  # the object may have been carried from one place to the other
    assert ask(scene_with(named(a, "a"), second))[1] == {"no_overlap": 1}


def test_a_match_along_its_epipolar_line_must_move_as_its_neighbours_do() -> None:
    rng = np.random.default_rng(0)
    here = rng.uniform(20, 300, (300, 2))
    there = here - np.column_stack([np.where(here[:, 1] > 150, 30.0, 9.0), np.zeros(300)])
    wrong = np.arange(0, 300, 15)
    there[wrong, 0] -= 12  # still on the line, since all lines are rows
    blank = np.zeros((320, 320, 3), dtype=np.uint8)
    found = _model.explained(Matches(here=here, there=there, scores=np.ones(300), backend="b"), blank, blank)
    assert found.fundamental is not None and 150 < len(found.here) < 285
    assert not set(map(tuple, here[wrong])) & set(map(tuple, found.here))


def tiny_loftr(folder: Path) -> None:
    from transformers import EfficientLoFTRConfig, EfficientLoFTRForKeypointMatching, EfficientLoFTRImageProcessor

    config = EfficientLoFTRConfig(
        stage_num_blocks=[1, 1, 1, 1],
        out_features=[16, 16, 32, 64],
        hidden_size=64,
        num_attention_heads=8,
        num_attention_layers=1,
        coarse_matching_threshold=0.0,
    )
    EfficientLoFTRForKeypointMatching(config).save_pretrained(folder)
    EfficientLoFTRImageProcessor(size={"height": 96, "width": 128}).save_pretrained(folder)


def tiny_lightglue(folder: Path) -> None:
    from transformers import LightGlueConfig, LightGlueForKeypointMatching, LightGlueImageProcessor, SuperPointConfig

    points = SuperPointConfig(
        encoder_hidden_sizes=[8, 8, 16, 16],
        decoder_hidden_size=16,
        descriptor_decoder_dim=16,
        keypoint_threshold=0.0,
        max_keypoints=60,
    )
    config = LightGlueConfig(
        keypoint_detector_config=points,
        descriptor_dim=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        filter_threshold=0.0,
    )
    LightGlueForKeypointMatching(config).save_pretrained(folder)
    LightGlueImageProcessor(size={"height": 96, "width": 128}).save_pretrained(folder)


@pytest.mark.parametrize("make", [tiny_loftr, tiny_lightglue])
def test_a_checkpoint_of_each_family_matches_in_the_photos_pixels(
    make: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    torch.manual_seed(0)
    assert callable(make)
    make(tmp_path)
    backend = load(MATCHES, "transformers")
    assert backend.load is not None and backend.identity is not None
    options = backend.options.model_validate({"path": str(tmp_path), "threshold": 0.0})
    # Random weights find no geometry; what is tested is how their matches come back.
    monkeypatch.setattr(_model, "explained", lambda found, here, there: found)
    runner = backend.load(options)
    rgb = texture(6, *SIZE, cell=6)
    found = runner(named(rgb, "a"), named(rgb, "b"))
    assert found is not None and len(found.here) == len(found.there) == len(found.scores) > 0
    assert np.hypot(*(found.here - found.there).T).mean() < 0.1 * np.hypot(*SIZE)  # a picture matches itself
    wide = runner(named(rgb, "a"), named(np.asarray(Image.fromarray(rgb).resize((640, 240))), "b"))
    assert wide is not None and np.abs(wide.there - wide.here * [2, 1]).max() <= 1.5  # its places are whole pixels
    assert backend.identity(options) != backend.identity(options.model_copy(update={"threshold": 0.5}))


def test_a_missing_checkpoint_says_how_to_get_it() -> None:
    backend = load(MATCHES, "transformers")
    assert backend.load is not None
    with pytest.raises(BackendError) as caught:
        backend.load(backend.options.model_validate({"path": "models/none"}))
    assert "hf download zju-community/efficientloftr" in caught.value.fix
    assert "perception.two_views.matches.path" in caught.value.fix


def test_a_backend_is_refused_where_it_cannot_serve() -> None:
    for choice, message in (
        ({"matches": {"name": "homography"}}, "cannot match two photos"),
        ({"matches": {"name": "truth"}, "further": [{"name": "sift"}]}, "no second opinion"),
        ({"matches": {"name": "sift"}, "further": [{"name": "truth"}]}, "no second opinion"),
    ):
        with pytest.raises(ConfigError, match=message):
            Matcher(TwoViewOptions.model_validate(choice))
    twice = TwoViewOptions.model_validate({"matches": {"name": "sift"}, "further": [{"name": "sift", "ratio": 0.7}]})
    assert [m.member for m in Matcher(twice).second_view(*flat_pair()).matches] == ["plain", "swap", "flip", "second-1"]


# ------------------------------------------------------------------------------------------------ truth


def test_truth_reads_every_kind_of_pair_and_is_silent_about_others() -> None:
    here, there = flat_pair()
    (flat,) = Matcher(TRUTH).second_view(here, there).matches
    assert np.allclose(apply_homography(TURN, flat.here), flat.there) and (flat.there >= 0).all()
    marked = Matches(here=np.array([[5.0, 6]]), there=np.array([[7.0, 8]]), scores=np.ones(1), backend="truth")
    by_hand = named(here.rgb, "a.png", Truth(matches={"b.png": marked}))
    assert Matcher(TRUTH).second_view(by_hand, there).matches[0].there.tolist() == [[7, 8]]
    alone = Matcher(TRUTH)
    assert alone.second_view(there, here).matches == () and alone.absent == 1


def test_stereo_truth_leaves_out_what_the_board_hides() -> None:
    left, right = stereo_pair()
    (found,) = Matcher(TRUTH).second_view(left, right).matches
    x, y = found.here.T
    shift = x - found.there[:, 0]
    x1, y1, x2, y2 = NEAR
    inside = (x > x1) & (x < x2) & (y > y1) & (y < y2)
    assert inside.any() and set(shift[inside]) == {BOARD_SHIFT} and set(shift[~inside]) == {FAR}
    hidden = (y > y1) & (y < y2) & (x < x1) & (x - FAR > x1 - BOARD_SHIFT + 1)
    assert not hidden.any()  # the wall just left of the board


def posed(R: np.ndarray, t: Sequence[float], depth: float, name: str) -> Frame:
    """A photo whose depth is the same everywhere."""
    rgb = texture(1, *SIZE)
    K = np.array([[300.0, 0, 160], [0, 300, 120], [0, 0, 1]])
    metres = np.full((SIZE[1], SIZE[0]), depth, dtype=np.float32)
    truth = Truth(
        depth=MetricDepth(metres=metres, valid=metres > 0, backend="truth"),
        camera=Camera(K=K, R=R, t=np.asarray(t, dtype=np.float64)),
    )
    return named(rgb, name, truth)


def test_cameras_tell_where_a_place_lies_and_that_nothing_is_known_without_poses() -> None:
    here, there = posed(np.eye(3), (0, 0, 0), 3.0, "a"), posed(np.eye(3), (0.2, 0, 0), 3.0, "b")
    (found,) = Matcher(TRUTH).second_view(here, there).matches
    assert np.allclose(found.there - found.here, [20, 0], atol=1e-4)  # 300 px * 0.2 m / 3 m
    assert Matcher(TRUTH).second_view(here, posed(np.eye(3), (0, 0, 0), 3.0, "c")).matches == ()
    behind = posed(np.eye(3), (0.2, 0, 0), 2.0, "d")  # something nearer stands before every place
    assert not len(Matcher(TRUTH).second_view(here, behind).matches[0].here)
    ref = Mark(label="REF", x=100.0, y=80.0)
    marks = [Mark(label=label, x=x, y=80.0) for label, x in (("A", 60.0), ("B", 120.0), ("C", 200.0))]
    assert right_mark(ref, marks, here.view, there.view) == "B"
    assert right_mark(ref, marks, here.view, behind.view) == ""
    assert right_mark(ref, marks, here.view, posed(np.eye(3), (0, 0, 0), 3.0, "c").view) is None


def test_the_grader_reads_homographies_both_ways_disparity_and_marked_places() -> None:
    def candidates(*places: tuple[float, float]) -> list[Mark]:
        return [Mark(label="ABCD"[k], x=x, y=y) for k, (x, y) in enumerate(places)]

    here, there = flat_pair()
    ref = Mark(label="REF", x=150.0, y=100.0)
    u, v = apply_homography(TURN, np.array([[150.0, 100.0]]))[0]
    assert right_mark(ref, candidates((u + 40, v), (u + 1, v)), here.view, there.view) == "B"
    assert right_mark(ref, candidates((u + 40, v), (u + 6, v)), here.view, there.view) == ""
    assert right_mark(ref, candidates((u + 1, v), (u, v)), here.view, there.view) == ""  # two are right: none is
    back = Mark(label="REF", x=float(u), y=float(v))
    assert right_mark(back, candidates((150, 100), (20, 20)), there.view, here.view) == "A"
    left, right = stereo_pair()
    assert right_mark(ref, candidates((150 - FAR, 100), (150 - BOARD_SHIFT, 100)), left.view, right.view) == "B"
    edge = Mark(label="REF", x=NEAR[0] + 0.5, y=100.0)
    for shift in (FAR, BOARD_SHIFT):  # beside the edge of the board a mark shows both
        assert right_mark(edge, candidates((edge.x - shift, 100)), left.view, right.view) == "A"
    marked = Matches(here=np.array([[148.0, 100]]), there=np.array([[50.0, 60]]), scores=np.ones(1), backend="truth")
    by_hand = named(here.rgb, "a.png", Truth(matches={"b.png": marked})).view
    assert right_mark(ref, candidates((52, 60), (90, 60)), by_hand, there.view) == "A"
    assert right_mark(replace(ref, x=160.0), candidates((52, 60)), by_hand, there.view) is None
    assert right_mark(ref, candidates((52, 60)), there.view, there.view) is None


# ------------------------------------------------------------------------------------------------ questions


def test_questions_about_two_photos_are_right_and_their_numbers_say_so() -> None:
    for here, there in (flat_pair(), stereo_pair()):
        scene = scene_with(here, Matcher(SIFT).second_view(here, there))
        assert missing_needs(scene, frozenset({Need.PAIR})) == frozenset()
        found, _ = ask(scene)
        assert len(found) >= 6
        for qa in found:
            assert qa.panels[1].image == "second" and TASK.recompute(qa.provenance) == qa.answer
            ref, _ = right_place(qa)
            told = right_mark(ref, qa.panels[1].marks, here.view, there.view)
            assert told == qa.provenance.options[LETTERS.index(qa.answer)]


def test_truth_alone_needs_no_second_voice() -> None:
    here, there = flat_pair()
    found, _ = ask(scene_with(here, Matcher(TRUTH).second_view(here, there)))
    assert found and all(TASK.recompute(qa.provenance) == qa.answer for qa in found)


def test_recompute_refuses_numbers_that_do_not_agree() -> None:
    here, there = stereo_pair()
    found, _ = ask(scene_with(here, Matcher(SIFT).second_view(here, there)))
    for qa in found:
        measures = dict(qa.provenance.measures)
        members = dict(measures["members_px"])  # type: ignore[call-overload]
        x, y = members["flip"]
        _, right = right_place(qa)
        other = next(mark for mark in qa.panels[1].marks if mark.label != right.label)
        for change in (
            {"members_px": {**members, "flip": [x + 9, y]}},
            {"members_px": {**members, "flip": [other.x, other.y]}},
            {"members_px": {"plain": members["plain"]}},
            {"ref_px": [measures["ref_px"][0], measures["ref_px"][1] + 9]},  # type: ignore[index]  # off its line
            {"tolerance_px": 30.0},
        ):
            assert TASK.recompute(replace(qa.provenance, measures={**measures, **change})) == ""


def test_a_place_that_one_member_does_not_confirm_is_not_asked_about() -> None:
    here, there = flat_pair()
    second = Matcher(SIFT).second_view(here, there)
    plain, swap, flip = second.matches
    half = flip.here[:, 0] < 160
    silent = replace(flip, here=flip.here[half], there=flip.there[half])
    found, drops = ask(scene_with(here, replace(second, matches=(plain, swap, silent))))
    assert found and drops["not_confirmed"] > 20
    assert all(right_place(qa)[0].x < 162 and max(m.x for m in qa.panels[1].marks) < 200 for qa in found)
    moved = replace(flip, there=flip.there + np.where(half[:, None], 0.0, 7.0))
    found, drops = ask(scene_with(here, replace(second, matches=(plain, swap, moved))))
    assert found and drops["members_differ"] > 20 and all(right_place(qa)[0].x < 162 for qa in found)


def test_one_view_taken_twice_and_a_repeated_pattern_are_not_asked_about() -> None:
    rgb = texture(3, *SIZE, cell=6)
    still = Matcher(SIFT).second_view(named(rgb, "a"), named(rgb.copy(), "b"))
    assert ask(scene_with(named(rgb, "a"), still))[1]["same_view"] == 1
    tiles = np.tile(texture(7, 80, 80, cell=5), (3, 4, 1))
    grid = np.stack(np.meshgrid(np.arange(30.0, 250, 11), np.arange(30.0, 200, 11)), axis=-1).reshape(-1, 2) + 0.5
    moved = np.roll(tiles, 12, axis=1)
    told = Matches(here=grid, there=grid + np.array([12, 0]), scores=np.ones(len(grid)), backend="b")
    second = SecondView(view=view_of(moved, name="b"), rgb=moved, matches=(told, replace(told, member="swap")))
    found, drops = ask(scene_with(named(tiles, "a"), second))
    assert not found and drops["repeats"] > 5


def test_wrong_candidates_lie_as_far_from_ref_as_places_move_and_keep_their_distance() -> None:
    wall = texture(11, 480, 240, cell=6)
    here, there = named(wall[:, :320], "a"), named(wall[:, 40:360], "b")
    second = Matcher(SIFT).second_view(here, there)
    found = [qa for seed in range(4) for qa in ask(scene_with(here, second), seed, like_motion=0.02)[0]]
    assert len(found) > 8
    for qa in found:
        ref, _ = right_place(qa)
        away = [np.hypot((mark.x - ref.x) / 320, (mark.y - ref.y) / 240) for mark in qa.panels[1].marks]
        assert all(abs(gap - 40 / 320) < 0.025 for gap in away)
        assert float(str(qa.provenance.measures["nearest_distractor_of_diagonal"])) >= 0.06
    anywhere = [qa for seed in range(4) for qa in ask(scene_with(here, second), seed)[0]]
    assert len({qa.stratum for qa in found}) == 4 > len({qa.stratum for qa in anywhere if qa.stratum != "0 nearer"})


# ------------------------------------------------------------------------------------------------ a whole run


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two videos of five frames as sub-folders: the camera slides along a wall. One frame is torn."""
    root = tmp_path_factory.mktemp("film")
    for video, seed in (("one", 11), ("two", 12)):
        wall = texture(seed, 480, 240, cell=6)
        (root / "photos" / video).mkdir(parents=True)
        for frame in range(5):
            data = encode_png(wall[:, 30 * frame : 30 * frame + 320])
            (root / "photos" / video / f"{frame}.png").write_bytes(data)
    torn = root / "photos" / "two" / "3.png"
    torn.write_bytes(torn.read_bytes()[:5000])
    benchmark_folder(root / "bench", 14)
    return root


OUTPUT: dict[str, object] = {"images_per_shard": 2, "validation_share": 0.0, "per_image": 16, "oversample": 12}


def run(film: Path, out: Path, **changes: object) -> list[dict]:
    recipe = {
        "name": "film",
        "seed": 3,
        "source": {"name": "folder", "path": str(film / "photos"), "group": "folder"},
        "perception": {"two_views": {"matches": {"name": "sift"}}, "cache": None},
        "tasks": {"visual_correspondence": {"n": 14, "options": {"look_alike": 0.98, "per_image": 16}}},
        "guard": {"benchmark": {"name": "jsonl", "path": str(film / "bench")}},
        "output": OUTPUT,
        **changes,
    }
    generate(Recipe.model_validate(recipe), out)
    return list(read_rows(out))


def test_video_frames_make_pairs_whatever_shards_they_fall_into(film: Path, tmp_path: Path) -> None:
    rows = run(film, tmp_path / "small")
    assert len(rows) >= 8 and {row["source_group"] for row in rows} == {"one", "two"}
    ids = {row["image_ids"][0] for row in rows}
    assert len(ids) > 3 and all(len(row["image_ids"]) == len(row["images"]) == 2 for row in rows)
    certificate = json.loads((tmp_path / "small" / "certificate.json").read_text(encoding="utf-8"))
    assert certificate["verdict"] == "clean-under-stated-tests"
    drops = json.loads((tmp_path / "small" / "manifest.json").read_text(encoding="utf-8"))["drops"]
    told = {drop["reason"]: drop["count"] for drop in drops}
    assert told["second_view_truncated"] == 1 and told["truncated"] == 1 and told["no_second_view"] >= 2
    whole = run(film, tmp_path / "whole", output={**OUTPUT, "images_per_shard": 64})
    assert {row["qa_id"]: row["images"] for row in whole} == {row["qa_id"]: row["images"] for row in rows}
    second = json.loads(rows[0]["provenance"])["measures"]["second_photo"]
    assert second.split("/")[0] == rows[0]["source_group"]
