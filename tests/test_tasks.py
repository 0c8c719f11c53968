"""What tasks ask, and above all what they do not ask."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.audit.truth import grade
from synth.balance import choose
from synth.contracts import Trial
from synth.geometry import apply_homography, generator
from synth.plugins import TASKS, load, names
from synth.tasks import counting, left_right, recognition, relative_depth, visual_correspondence
from synth.tasks._asking import Asker, Draft, Wording, letter
from synth.tasks._words import plural, same_kind, spoken, with_article
from synth.types import QA, Panel, Region, Regions, Scene, Skill, Truth
from tests.toy import (
    ask,
    boxes,
    camera,
    detected,
    metric,
    mirrored,
    reasons,
    rectangle,
    region,
    relative,
    room,
    said,
    scene_of,
    shift,
    texture,
    view_of,
    warped,
)

quick = settings(max_examples=25, deadline=None)
ROOMS = [room(seed) for seed in range(6)]
RGB = texture(0, 128, 128)


def two_planes(left: float, right: float, width: int = 128, height: int = 128) -> np.ndarray:
    """Depth of a picture whose left half is at one distance and whose right half at another; metres."""
    depth = np.full((height, width), right)
    depth[:, : width // 2] = left
    return depth


# ------------------------------------------------------------------------------------------------ relative depth


@quick
@given(ratio=st.floats(1.01, 2.0), near_left=st.booleans(), seed=st.integers(0, 99))
def test_depth_is_asked_beyond_the_margin_only(ratio, near_left, seed):
    depth = two_planes(2.0, 2.0 * ratio) if near_left else two_planes(2.0 * ratio, 2.0)
    options = relative_depth.Options(fov_deg=20)  # a long lens: depth and ray agree
    found, drops = ask("relative_depth", scene_of(RGB, [metric(depth)]), seed, options)
    if np.log(ratio) <= options.margin_metric:
        assert not found and reasons(drops)["inside_margin"] > 0
    elif np.log(ratio) > options.margin_metric + 0.02:
        assert found
    for qa in found:
        x = {mark.label: mark.x for mark in qa.panels[0].marks}
        assert (x[said(qa)] < 64) == near_left


@quick
@given(seed=st.integers(0, 1000), factor=st.sampled_from([2.0**k for k in range(-5, 8)]))
def test_scaling_all_depths_changes_no_question_and_no_answer(seed, factor):
    scene = ROOMS[seed % len(ROOMS)]
    far = replace(scene, depths=(metric(scene.depths[0].metres * factor),))
    first, second = ask("relative_depth", scene, seed)[0], ask("relative_depth", far, seed)[0]
    assert [(qa.qa_id, qa.answer) for qa in first] == [(qa.qa_id, qa.answer) for qa in second] and first


@quick
@given(seed=st.integers(0, 1000), scale=st.sampled_from([0.125, 2.0, 64.0]), offset=st.sampled_from([-1.0, 0.0, 8.0]))
def test_relative_depth_needs_no_scale_and_no_offset(seed, scale, offset):
    inverse = np.round(1 / ROOMS[seed % len(ROOMS)].depths[0].metres * 1024) / 1024  # exact under these changes
    first = ask("relative_depth", scene_of(RGB, [relative(inverse)]), seed)[0]
    second = ask("relative_depth", scene_of(RGB, [relative(inverse * scale + offset)]), seed)[0]
    assert [(qa.qa_id, qa.answer) for qa in first] == [(qa.qa_id, qa.answer) for qa in second] and first


@quick
@given(seed=st.integers(0, 1000), backwards=st.booleans())
def test_a_mirror_keeps_depth_order(seed, backwards):
    scene = ROOMS[seed % len(ROOMS)]
    other = mirrored(scene)
    asked, truth = (other, scene) if backwards else (scene, other)
    task = load(TASKS, "relative_depth")
    for qa in ask("relative_depth", asked, seed)[0]:
        seen = replace(qa, image_id=truth.view.image_id, panels=tuple(_mirrored(p, 128) for p in qa.panels))
        assert grade(seen, truth.view, truth, task) == "right"


def _mirrored(panel: Panel, width: int) -> Panel:
    return replace(panel, marks=tuple(replace(mark, x=width - mark.x) for mark in panel.marks))


def test_members_that_disagree_are_silent():
    depth = two_planes(2.0, 4.0)
    other = two_planes(4.0, 2.0)
    found, drops = ask("relative_depth", scene_of(RGB, [metric(depth, "plain"), metric(other, "flip")]))
    assert not found and reasons(drops)["members_disagree"] > 0
    found, _ = ask("relative_depth", scene_of(RGB, [metric(depth, "plain"), relative(1 / depth, "second")]))
    assert found and all(qa.provenance.backends == ("plain", "second") for qa in found)
    weak = relative(1 / depth + np.linspace(0, 3, 128), "unsure")  # the same order, but hardly any margin
    found, drops = ask("relative_depth", scene_of(RGB, [metric(depth, "plain"), weak]))
    assert len(found) < 6 and "inside_margin" in reasons(drops)


def test_nearer_by_depth_but_farther_along_the_ray_is_not_asked():
    depth = np.full((128, 128), np.nan)  # known in the middle and in the corners only
    depth[48:80, 48:80] = 1.2
    for corner in (np.s_[:32, :32], np.s_[:32, -32:], np.s_[-32:, :32], np.s_[-32:, -32:]):
        depth[corner] = 1.0
    scene = scene_of(RGB, [metric(depth)])
    wide = replace(scene, view=replace(scene.view, truth=Truth(camera=camera(128, 128, focal=40))))
    found, drops = ask("relative_depth", wide)
    assert not found and reasons(drops)["inside_margin"] > 0
    assert ask("relative_depth", scene, options=relative_depth.Options(fov_deg=10))[0]


def test_marks_stand_on_flat_valid_places_away_from_the_border():
    scene = room(3, 320, 240)
    depth = scene.depths[0].metres.copy()
    valid = np.ones_like(depth, dtype=bool)
    valid[:, 150:200] = False
    broken = replace(scene.depths[0], valid=valid)
    found, drops = ask("relative_depth", replace(scene, depths=(broken,)))
    assert found and reasons(drops)["not_flat"] > 0
    for qa in found:
        a, b = qa.panels[0].marks
        assert np.hypot(a.x - b.x, a.y - b.y) >= 0.156 * 240 and abs(a.y - b.y) >= 0.031 * 240
        for mark in (a, b):
            around = np.s_[int(mark.y) - 4 : int(mark.y) + 5, int(mark.x) - 4 : int(mark.x) + 5]
            assert valid[around].all() and depth[around].max() < 1.06 * depth[around].min()
            assert 15 <= mark.x <= 305 and 15 <= mark.y <= 225


def test_trials_are_random_and_answered_where_the_pair_would_be_asked():
    scene = scene_of(RGB, [metric(two_planes(2.0, 4.0), "model")])

    def tried(**options: float) -> list[Trial]:
        return list(relative_depth.trials(scene, relative_depth.Options(**options), generator(0, "trials")))

    wide, narrow, closed = tried(), tried(margin_metric=0.5, margin_metric_higher=100.0), tried(margin_metric=0.8)
    assert len(wide) == len(narrow) == 200 and [t.marks for t in wide] == [t.marks for t in narrow]
    for pair in wide:
        a, b = pair.marks
        across = (a.x < 64) != (b.x < 64)
        by_an_edge = min(abs(a.x - 64), abs(b.x - 64)) < 4
        assert (pair.answer == "") == (not across) or by_an_edge
        if pair.answer:
            assert pair.answer == ("A" if a.x < 64 else "B")
    assert any(t.answer for t in wide) and not any(t.answer for t in closed)
    for before, after in zip(wide, narrow, strict=True):
        near, far = sorted(before.marks, key=lambda mark: mark.x)
        assert after.answer == (before.answer if near.y > far.y else "")
    relied = scene_of(RGB, [metric(two_planes(2.0, 4.0), "model"), metric(two_planes(4.0, 2.0), "flip")])
    assert not any(t.answer for t in relative_depth.trials(relied, relative_depth.Options(), generator(0, "trials")))


def test_difficulty_falls_as_the_depths_part():
    hardest = []
    for ratio in (1.3, 1.8, 2.6):
        found, _ = ask("relative_depth", scene_of(RGB, [metric(two_planes(2.0, 2.0 * ratio))]))
        hardest.append(max(qa.difficulty for qa in found))
    assert hardest[0] > hardest[1] > hardest[2] > 0


def test_a_models_depth_is_not_believed_on_mirrors_and_screens_but_truth_is():
    depth = two_planes(2.0, 4.0)
    glass = detected([region("wall-mirror", rectangle((128, 128), 64, 0, 64, 128))])
    by_model, drops = ask("relative_depth", scene_of(RGB, [metric(depth, "model")], [glass]))
    assert not by_model and reasons(drops)["display_or_sky"] > 0
    assert ask("relative_depth", scene_of(RGB, [metric(depth, "truth")], [glass]))[0]


def test_lower_and_higher_are_drawn_half_and_half_and_letters_too():
    found = [qa for seed in range(8) for scene in ROOMS for qa in ask("relative_depth", scene, seed)[0]]
    strata, letters = Counter(qa.stratum for qa in found), Counter(qa.answer for qa in found)
    assert len(found) > 200 and abs(letters["A"] - letters["B"]) <= len(found) * 0.08
    assert min(strata.values()) > 0.3 * len(found)
    for qa in found:
        y = {mark.label: mark.y for mark in qa.panels[0].marks}
        nearer, farther = said(qa), "B" if said(qa) == "A" else "A"
        assert qa.stratum == ("lower" if y[nearer] > y[farther] else "higher")


def test_swapped_choices_move_the_letter_and_not_the_content():
    options = relative_depth.Options(swap_share=1.0)
    swapped = ask("relative_depth", ROOMS[0], options=options)[0]
    assert swapped and all(qa.provenance.options == ("B", "A") for qa in swapped)
    task = load(TASKS, "relative_depth")
    assert all(grade(qa, ROOMS[0].view, ROOMS[0], task) == "right" for qa in swapped)


# -------------------------------------------------------------------------------------------------------- counting


def chairs(n: int, score: float = 0.9) -> tuple[Region, ...]:
    return boxes(*(("chair", 4 + 24 * (i % 5), 4 + 40 * (i // 5), 14, 20) for i in range(n)), score=score)


@pytest.mark.parametrize(
    ("reason", "members"),
    [
        ("members_disagree", [detected(chairs(3)), detected(chairs(4))]),
        ("members_disagree", [detected(chairs(3)), detected(())]),
        ("thresholds_disagree", [detected((*chairs(3), *boxes(("chair", 60, 90, 20, 20), score=0.35)))]),
        ("overlap", [detected((*chairs(2), *boxes(("chair", 5, 5, 14, 20))))]),
        ("overlap", [detected((*chairs(2), *boxes(("sofa", 4, 4, 14, 20))))]),
        ("overlap", [detected((*chairs(2), *boxes(("chair", 2, 2, 60, 40))))]),  # a box around a group
        ("cut_by_edge", [detected((*chairs(2), *boxes(("chair", 124, 60, 4, 20))))]),
        ("tiny", [detected((*chairs(2), *boxes(("chair", 60, 90, 3, 3))))]),
        ("crowd", [detected((*chairs(2), replace(boxes(("chair", 60, 60, 50, 50))[0], crowd=True)))]),
        ("crowd", [detected((*chairs(2), replace(boxes(("", 60, 60, 50, 50))[0], crowd=True)))]),
        ("sliver", [detected((*chairs(2), replace(chairs(3)[2], attributes={"sliver": "yes"})))]),
        ("too_many", [detected(chairs(11))]),
        ("two_names", [detected((*boxes(("person", 4, 4, 20, 40)), *boxes(("people", 60, 4, 40, 40))))]),
        ("two_names", [detected((*chairs(2), *boxes(("office chair", 60, 60, 20, 20))))]),
    ],
)
def test_a_doubtful_number_is_not_asked(reason, members):
    found, drops = ask("counting", scene_of(RGB, regions=members))
    assert reason in reasons(drops)
    assert not [qa for qa in found if "chair" in qa.question or "person" in qa.question or "people" in qa.question]


@quick
@given(n=st.integers(1, 10), seed=st.integers(0, 50))
def test_an_agreed_number_is_asked_with_four_whole_options(n, seed):
    (qa,) = ask("counting", scene_of(RGB, regions=[detected(chairs(n)), detected(chairs(n), "flip")]), seed)[0]
    options = sorted(int(option) for option in qa.provenance.options)
    assert said(qa) == str(n) and "chairs" in qa.question
    assert options == list(range(options[0], options[0] + 4)) and options[0] >= 1


def test_not_detected_is_never_none():
    empty = detected(())
    for seed in range(20):
        found, _ = ask("counting", scene_of(RGB, regions=[empty]), seed)
        assert not found
        for scene in (
            scene_of(RGB, regions=[detected(chairs(2))]),
            scene_of(RGB, regions=[detected(ROOMS[0].regions[0].items)]),
        ):
            assert all(
                said(qa) not in ("0", "no") for task in ("counting", "recognition") for qa in ask(task, scene, seed)[0]
            )
            assert all("0" not in qa.choices for qa in ask("counting", scene, seed)[0])


def test_zero_is_asked_of_a_complete_truth_and_never_of_what_may_be_there():
    seen = [qa for seed in range(30) for scene in ROOMS[:3] for qa in ask("counting", scene, seed)[0]]
    zero = [qa for qa in seen if said(qa) == "0"]
    assert zero
    for qa in zero:
        assert qa.provenance.measures["label"] in ("plant", "sofa", "table", "vase")
        assert recompute_with(qa, complete_lists=0) == ""
    assert not any("walls" in qa.question or "floors" in qa.question for qa in seen)


def recompute_with(qa: QA, **changes: object) -> str:
    measures = {**qa.provenance.measures, **changes}
    return load(TASKS, qa.task).recompute(replace(qa.provenance, measures=measures))


def test_the_rank_of_the_truth_is_uniform_once_balanced():
    """Small numbers are more frequent, as in photos; after balance each option of a block is right equally often."""
    rng = generator(0, "counts")
    found = []
    picture = scene_of(RGB)
    for k in range(900):
        n = min(4, int(rng.geometric(0.45)))
        view = replace(picture.view, image_id=f"{k:064x}")
        found += ask("counting", replace(picture, view=view, regions=(detected(chairs(n)),)), k)[0]
    chosen, _ = choose(found, 10_000, 0)
    ranks = Counter(sorted(int(o) for o in qa.provenance.options).index(int(said(qa))) for qa in chosen)
    letters = Counter(qa.answer for qa in chosen)
    assert len(chosen) >= 80 and max(ranks.values()) - min(ranks.values()) <= 1
    assert set(ranks) == {0, 1, 2, 3} and max(letters.values()) - min(letters.values()) <= 4


def test_larger_numbers_are_preferred_since_they_are_rare():
    mixed = detected((*chairs(3), *boxes(("ball", 100, 60, 20, 20)), *boxes(("vase", 100, 90, 20, 20))))
    for seed in range(5):
        found, _ = ask("counting", scene_of(RGB, regions=[mixed]), seed, counting.Options(per_image=1))
        assert [said(qa) for qa in found] == ["3"]


# -------------------------------------------------------------------------------------------- visual correspondence


@quick
@given(seed=st.integers(0, 500))
def test_the_right_mark_stands_where_the_homography_sends_ref(seed):
    scene = ROOMS[seed % len(ROOMS)]
    found, _ = ask("visual_correspondence", scene, seed, visual_correspondence.Options(like_motion=None))
    assert found
    for qa in found:
        ref = qa.panels[0].marks[0]
        there = apply_homography(scene.pair.homography, np.array([[ref.x, ref.y]]))[0]
        error = {m.label: float(np.hypot(m.x - there[0], m.y - there[1])) for m in qa.panels[1].marks}
        assert ref.label == "REF" and error.pop(said(qa)) < 0.1
        diagonal = np.hypot(128, 128)
        assert min(error.values()) >= 0.06 * diagonal - 0.1
        marks = qa.panels[1].marks
        assert min(np.hypot(a.x - b.x, a.y - b.y) for i, a in enumerate(marks) for b in marks[:i]) > 0.0599 * diagonal
        assert all(scene.pair.covered[int(m.y), int(m.x)] for m in marks)


def test_a_wall_without_texture_offers_no_place():
    grey = np.full((128, 128, 3), 120, dtype=np.uint8)
    found, drops = ask("visual_correspondence", scene_of(grey, pair=warped(grey, shift(5, 3))))
    assert not found and reasons(drops)["too_few_corners"] == 1


def test_a_place_that_looks_like_the_truth_is_no_candidate():
    period = 32
    rgb = np.tile(texture(1, period, period, 6), (4, 4, 1))  # every place comes back 15 times
    fell = 0
    for seed in range(20):
        anywhere = visual_correspondence.Options(like_motion=None)
        found, drops = ask("visual_correspondence", scene_of(rgb, pair=warped(rgb, shift(6, 4))), seed, anywhere)
        fell += reasons(drops).get("look_alike", 0)
        for qa in found:
            place = {mark.label: np.array([mark.x, mark.y]) for mark in qa.panels[1].marks}
            truth = place.pop(said(qa))
            for other in place.values():
                phase = (other - truth + period / 2) % period - period / 2
                assert np.abs(phase).max() > 1
    assert fell > 5


def test_position_alone_does_not_give_the_answer_away():
    found = [qa for seed in range(8) for scene in ROOMS for qa in ask("visual_correspondence", scene, seed)[0]]
    ranks = []
    for qa in found:
        ref = qa.panels[0].marks[0]
        away = {mark.label: np.hypot(mark.x - ref.x, mark.y - ref.y) for mark in qa.panels[1].marks}
        ranks.append(sum(gap < away[said(qa)] for gap in away.values()))
        assert qa.stratum == f"{ranks[-1]} nearer"
    assert {0, 1, 2} <= set(ranks)


# ---------------------------------------------------------------------------------------------------- left and right


@quick
@given(seed=st.integers(0, 10_000), width=st.integers(64, 300), height=st.integers(64, 300))
def test_left_and_right_follow_x_and_a_mirror_swaps_them(seed, width, height):
    scene = scene_of(np.zeros((height, width, 3), dtype=np.uint8))
    task = load(TASKS, "left_right")
    for qa in ask("left_right", scene, seed)[0]:
        x = {mark.label: mark.x for mark in qa.panels[0].marks}
        winner = min(x, key=x.get) if qa.stratum == "left" else max(x, key=x.get)
        assert said(qa) == winner and abs(x["A"] - x["B"]) >= 0.1 * width
        assert qa.stratum in qa.question
        swapped = {label: width - value for label, value in x.items()}
        assert recompute_with(qa, x_px=swapped) == ("B" if qa.answer == "A" else "A")
        seen = replace(qa, panels=tuple(_mirrored(p, width) for p in qa.panels))
        assert grade(seen, scene.view, scene, task) == "wrong"


def test_left_right_keeps_to_the_sides_asked_for():
    only = left_right.Options(sides=("left",), per_image=6)
    found, _ = ask("left_right", ROOMS[0], options=only)
    assert found and all(qa.stratum == "left" and "right" not in qa.question.split()[-4:] for qa in found)


def test_left_right_begins_as_depth_does_and_borrows_no_word_of_it():
    """Asked for "the place nearer to the left edge", a small model took "nearer to the camera" for one of sides."""
    first = [sorted(wording.question.split()[0] for wording in task.WORDINGS) for task in (left_right, relative_depth)]
    assert first[0] == first[1]
    of_depth = ("near", "close", "front", "behind", "depth", "distance", "camera", "viewer")
    for wording in left_right.WORDINGS:
        assert not [word for word in of_depth if word in f"{wording.question} {wording.choice}".lower()]
    assert any("near" in wording.question for wording in relative_depth.WORDINGS)


# ------------------------------------------------------------------------------------------------------- recognition


def test_recognition_is_right_and_asks_all_its_skills():
    found = [qa for seed in range(12) for scene in ROOMS for qa in ask("recognition", scene, seed)[0]]
    task = load(TASKS, "recognition")
    by_image = {scene.view.image_id: scene for scene in ROOMS}
    assert {qa.skill for qa in found} == set(task.skills)
    assert all(grade(qa, by_image[qa.image_id].view, by_image[qa.image_id], task) == "right" for qa in found)
    existence = [qa for qa in found if qa.skill is Skill.EXISTENCE]
    assert {said(qa) for qa in existence} == {"yes", "no"}


def test_marks_stand_well_inside_their_object():
    for seed in range(6):
        scene = room(seed, 300, 200)
        labels = [r.label for r in scene.regions[0].items]
        for qa in ask("recognition", scene, seed)[0]:
            for mark in qa.panels[0].marks:
                around = np.s_[int(mark.y) - 2 : int(mark.y) + 3, int(mark.x) - 2 : int(mark.x) + 3]
                on = [k for k, r in enumerate(scene.regions[0].items) if r.mask[around].any()]
                assert len(on) == 1
                named = qa.provenance.measures.get("label_at", {})
                assert named.get(mark.label, labels[on[0]]) == labels[on[0]]


def test_boxes_alone_say_nothing_about_a_point():
    found, drops = ask("recognition", scene_of(RGB, regions=[detected(chairs(3))]))
    assert not found and reasons(drops) == {"no_mask": 1}


def test_a_second_one_or_an_unfinished_list_forbids_the_colour_question():
    scene = ROOMS[0]
    for seed in range(20):
        for qa in ask("recognition", scene, seed)[0]:
            if qa.skill is Skill.OBJECT_COLOUR:
                assert qa.provenance.measures["object"] != "chair"  # there are two of them
    unfinished = replace(scene, regions=(replace(scene.regions[0], complete=False),))
    found, drops = ask("recognition", unfinished)
    assert reasons(drops)["not_complete"] == 2
    assert not {qa.skill for qa in found} & {Skill.OBJECT_COLOUR, Skill.EXISTENCE}


def test_a_sliver_forbids_no_as_an_answer():
    scene = ROOMS[0]
    sliver = region("vase", rectangle((128, 128), 126, 126, 2, 2), sliver="yes")
    items = (*scene.regions[0].items, sliver)
    with_sliver = replace(scene, regions=(replace(scene.regions[0], items=items),))
    asked = [qa for seed in range(60) for qa in ask("recognition", with_sliver, seed)[0] if qa.skill is Skill.EXISTENCE]
    assert asked and not any("vase" in qa.question for qa in asked)


def test_two_members_must_agree_on_what_lies_at_a_mark():
    scene = ROOMS[0]
    items = scene.regions[0].items
    other = Regions(items=(region("plant", np.ones((128, 128), dtype=bool)),), complete=False, backend="x")
    found, _ = ask("recognition", replace(scene, regions=(replace(scene.regions[0], items=items), other)))
    assert not [qa for qa in found if qa.panels[0].marks]


# ------------------------------------------------------------------------------------------------------------- words

BENCHMARKS = {
    "two points are circled on the image, labeled by a and b beside each circle. which point is closer to the camera?",
    "which point is closer to the camera?",
    "which marked point is nearer to the camera?",
    "which mark is further to the left in the image?",
    "which point on the second image corresponds to the point in the first image? select from the following options.",
    "how many chairs are there?",
}
BENCHMARK_CHOICES = {
    ("a is closer", "b is closer"),
    ("a is nearer", "b is nearer"),
    ("a is further left", "b is further left"),
}
BENCHMARK_CHOICES |= {("point a", "point b", "point c", "point d")}
LEAST_WORDINGS = {
    "relative_depth": 5,
    "counting": 4,
    "visual_correspondence": 4,
    "left_right": 4,
    "recognition": 3,
}
WORDINGS = {
    "relative_depth": [relative_depth.WORDINGS],
    "counting": [counting.WORDINGS],
    "visual_correspondence": [visual_correspondence.WORDINGS],
    "left_right": [left_right.WORDINGS],
    "recognition": list(recognition.WORDINGS.values()),
}


@pytest.mark.parametrize("name", sorted(WORDINGS))
def test_wordings_are_many_and_none_is_a_benchmarks(name):
    for wordings in WORDINGS[name]:
        assert len({w.question for w in wordings}) == len(wordings) >= LEAST_WORDINGS[name]
        for wording in wordings:
            assert wording.question.endswith("?") and wording.choice.count("{}") == 1
            assert wording.question.lower() not in BENCHMARKS
    seen = [qa for seed in range(10) for scene in ROOMS for qa in ask(name, scene, seed)[0]]
    for qa in seen:
        assert qa.question.lower() not in BENCHMARKS
        assert tuple(choice.lower() for choice in qa.choices) not in BENCHMARK_CHOICES
    used = {(qa.skill, qa.provenance.wording) for qa in seen}
    assert len(used) == sum(len(wordings) for wordings in WORDINGS[name])


def test_every_wording_of_a_question_has_the_same_answer():
    """The answer is what an option stands for; words and order only decide its letter."""
    view = view_of(RGB)
    for seed in range(40):
        asker = Asker("counting", 1, view, generator(seed, "x"))
        order = tuple(str(n) for n in generator(seed, "order").permutation(4))
        draft = Draft(
            skill=Skill.COUNTING,
            options=order,
            right="2",
            panels=(Panel(image="view"),),
            backends=("truth",),
            measures={},
            difficulty=0.1,
            stratum="any",
            words={"plural": "mice"},
        )
        qa = asker.ask(draft, counting.WORDINGS)
        assert qa.choices["ABCD".index(qa.answer)] == "2" and "mice" in qa.question


def test_an_answer_that_is_no_option_is_a_bug_and_raises():
    draft = Draft(
        skill=Skill.COUNTING,
        options=("1", "2"),
        right="3",
        panels=(),
        backends=(),
        measures={},
        difficulty=0,
        stratum="any",
    )
    with pytest.raises(ValueError, match="exactly one"):
        Asker("counting", 1, view_of(RGB), generator(0)).ask(draft, (Wording(question="What?"),))
    assert letter(("a", "b", "a"), "a") == "" and letter(("a", "b"), "b") == "B"


@pytest.mark.parametrize(
    ("one", "many"),
    [
        ("person", "people"),
        ("sheep", "sheep"),
        ("knife", "knives"),
        ("bus", "buses"),
        ("traffic light", "traffic lights"),
        ("wine glass", "wine glasses"),
        ("bench", "benches"),
        ("cherry", "cherries"),
        ("toy", "toys"),
        ("box", "boxes"),
        ("mouse", "mice"),
        ("couch", "couches"),
        ("scissors", "scissors"),
        ("skis", "skis"),
        ("fisherman", "fishermen"),
        ("donut", "donuts"),
        ("platelets", "platelets"),
    ],
)
def test_plurals(one, many):
    assert plural(one) == many
    assert same_kind(one, many)


def test_labels_are_spoken_as_people_say_them():
    assert spoken("sky-other-merged") == "sky" and spoken("Traffic_Light") == "traffic light"
    assert with_article("orange ball") == "an orange ball" and with_article("unicycle") == "a unicycle"
    assert with_article("umbrella") == "an umbrella"
    assert same_kind("couch", "sofa") and not same_kind("chair", "stool") and not same_kind("cup", "bowl")


# ------------------------------------------------------------------------------------------------ all tasks together


@pytest.mark.parametrize("name", names(TASKS))
@pytest.mark.parametrize("size", [(128, 128), (640, 480), (200, 600)])
def test_any_size_of_picture_gives_marks_inside_it(name, size):
    scene = room(1, *size)
    found, _ = ask(name, scene)
    assert found
    for qa in found:
        for panel in qa.panels:
            assert all(0 < m.x < size[0] and 0 < m.y < size[1] for m in panel.marks)


@pytest.mark.parametrize("name", names(TASKS))
def test_drops_come_once_a_reason_and_name_the_picture(name):
    scene = ROOMS[0]
    for bare in (scene, Scene(view=scene.view, rgb=scene.rgb), Scene(view=scene.view, rgb=scene.rgb[:33, :33])):
        _, drops = ask(name, bare)
        assert len({drop.reason for drop in drops}) == len(drops)
        assert all(d.stage == "task" and d.task == name and d.image == scene.view.name and d.count > 0 for d in drops)


def test_provenance_survives_json():
    for name in names(TASKS):
        task = load(TASKS, name)
        for qa in ask(name, ROOMS[2])[0]:
            stored = replace(qa.provenance, measures=json.loads(json.dumps(qa.provenance.measures, allow_nan=False)))
            assert task.recompute(stored) == qa.answer


def test_marks_of_depth_stand_on_the_centres_of_pixels():
    for qa in ask("relative_depth", ROOMS[0])[0]:
        assert all(mark.x % 1 == 0.5 and mark.y % 1 == 0.5 for mark in qa.panels[0].marks)
