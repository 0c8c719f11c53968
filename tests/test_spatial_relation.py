"""Left of, above, in front of: asked of two objects, each the only one of its kind, and only where it is sure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from synth.audit.truth import grade
from synth.balance import choose
from synth.geometry import mirror_box
from synth.plugins import TASKS, load
from synth.tasks import spatial_relation
from synth.types import QA, Region, Skill
from tests.toy import ask, boxes, detected, metric, mirrored, reasons, relative, room, said, scene_of, texture

RGB = texture(0, 200, 100)
TASK = load(TASKS, "spatial_relation")
WIDE = spatial_relation.Options(per_image=32)
FLAT = spatial_relation.Options(axes=("horizontal",), per_image=8)


def asked(*members: tuple[Region, ...], options: spatial_relation.Options = FLAT) -> tuple[list[QA], dict[str, int]]:
    found, drops = ask("spatial_relation", scene_of(RGB, [], [detected(items) for items in members]), 0, options)
    return found, reasons(drops)


CUP_LEFT = boxes(("cup", 20, 30, 40, 40), ("lamp", 90, 20, 50, 50))


def test_the_answer_is_the_order_of_the_boxes_whichever_way_it_is_asked() -> None:
    seen = set()
    for seed in range(40):
        for qa in ask("spatial_relation", scene_of(RGB, [], [detected(CUP_LEFT)]), seed, FLAT)[0]:
            m = qa.provenance.measures
            left = (m["a"] == "cup") == (m["relation"] == "to the left of")
            assert said(qa) == ("yes" if left else "no")
            assert str(m["a"]) in qa.question and str(m["b"]) in qa.question and str(m["relation"]) in qa.question
            seen.add((m["a"], m["relation"], said(qa)))
    assert len(seen) == 4


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        (boxes(("cup", 20, 30, 40, 40), ("lamp", 50, 20, 50, 50)), "no_clear_order_horizontal"),
        (boxes(("cup", 20, 30, 40, 40), ("lamp", 63, 20, 50, 50)), "no_clear_order_horizontal"),  # 3 px of 200
        (boxes(("cup", 20, 30, 40, 40), ("cup", 150, 30, 20, 20), ("lamp", 90, 20, 50, 50)), "not_the_only_one"),
        (boxes(("cup", 20, 30, 40, 40), ("mug", 150, 30, 20, 20), ("lamp", 90, 20, 50, 50)), "two_names"),
        (boxes(("cup", 0, 30, 20, 30), ("lamp", 90, 20, 50, 50)), "cut_by_edge"),
        (boxes(("cup", 20, 30, 4, 4), ("lamp", 90, 20, 50, 50)), "tiny"),
        (boxes(("cup", 20, 30, 40, 40), ("lamp", 90, 20, 50, 50), score=0.4), "low_score"),
        (boxes(("cup", 20, 30, 40, 40), ("scissors", 90, 20, 50, 50)), "plural_name"),
    ],
)
def test_what_is_not_sure_is_not_asked(items: tuple[Region, ...], reason: str) -> None:
    found, why = asked(items)
    assert not found and reason in why


def test_a_second_object_that_hardly_scores_silences_the_name() -> None:
    ghost = boxes(("cup", 150, 60, 30, 30), score=0.2)
    found, why = asked(CUP_LEFT, (*CUP_LEFT, *ghost))
    assert not found and why["not_the_only_one"] == 1


def test_members_must_mean_the_same_box_and_the_same_order() -> None:
    moved = boxes(("cup", 60, 30, 40, 40), ("lamp", 90, 20, 50, 50))
    found, why = asked(CUP_LEFT, moved)
    assert not found and "members_disagree" in why
    touching = boxes(("cup", 24, 30, 44, 40), ("lamp", 70, 20, 60, 50))  # the same things, seen with less space between
    assert asked(CUP_LEFT)[0] and not asked(CUP_LEFT, touching)[0]


def test_a_mirror_swaps_left_and_right_and_keeps_the_rest() -> None:
    answered = 0
    for seed in range(12):
        scene = room(seed, 192, 192)
        other = mirrored(scene)
        for qa in ask("spatial_relation", scene, seed, WIDE)[0]:
            boxes_px = {label: mirror_box(box, 192) for label, box in qa.provenance.measures["boxes_px"].items()}
            measures = {**qa.provenance.measures, "boxes_px": boxes_px}
            provenance = replace(qa.provenance, measures=measures)
            seen = replace(qa, image_id=other.view.image_id, provenance=provenance)
            swapped = qa.provenance.measures["axis"] == "horizontal"
            assert grade(qa, scene.view, scene, TASK) == "right"
            assert grade(seen, other.view, other, TASK) == ("wrong" if swapped else "right")
            answered += 1
    assert answered > 30


def test_in_front_needs_quartiles_that_do_not_overlap_in_every_member() -> None:
    depth = np.full((100, 200), 8.0)
    depth[30:70, 20:60], depth[20:70, 90:140] = 2.0, 4.0
    only = spatial_relation.Options(axes=("depth",), per_image=8)
    regions = [detected(CUP_LEFT)]
    found, _ = ask("spatial_relation", scene_of(RGB, [metric(depth, "m")], regions), 0, only)
    assert found
    for qa in found:
        cup_first = qa.provenance.measures["a"] == "cup"
        says_closer = str(qa.provenance.measures["relation"]).startswith("closer")
        assert said(qa) == ("yes" if cup_first == says_closer else "no")
    slanted = depth.copy()
    slanted[20:70, 90:140] = np.linspace(1.5, 3.2, 50)[None]
    assert not ask("spatial_relation", scene_of(RGB, [metric(slanted, "m")], regions), 0, only)[0]
    both = [metric(depth, "m"), relative(1 / depth[:, ::-1].copy(), "second")]
    assert not ask("spatial_relation", scene_of(RGB, both, regions), 0, only)[0]


def test_what_is_always_above_is_never_asked_but_what_goes_both_ways_is_balanced() -> None:
    over = boxes(("lamp", 40, 5, 30, 20), ("table", 30, 60, 60, 30))
    under = boxes(("lamp", 40, 70, 30, 20), ("table", 30, 10, 60, 30))
    only = spatial_relation.Options(axes=("vertical",), per_image=4)

    def pairs(items: tuple[Region, ...], seeds: range) -> list[QA]:
        found = []
        for seed in seeds:
            scene = scene_of(texture(seed, 200, 100), [], [detected(items)])
            found += ask("spatial_relation", scene, seed, only)[0]
        return found

    habit = pairs(over, range(30))
    kept, lost = choose(habit, 100, 0)
    assert habit and not kept and {drop.reason for drop in lost} == {"one_sided"}
    kept, _ = choose([*habit, *pairs(under, range(30, 42))], 100, 0)
    upper = [qa.provenance.measures["first"] for qa in kept]
    assert upper.count("lamp") == upper.count("table") > 4
    lamp_higher = [
        said(qa)
        for qa in kept
        if (qa.provenance.measures["a"] == "lamp") == str(qa.provenance.measures["relation"]).startswith("higher")
    ]
    assert abs(lamp_higher.count("yes") - lamp_higher.count("no")) <= 2
    assert all(qa.skill is Skill.SPATIAL_RELATION for qa in kept)


# ------------------------------------------------------------------------------------------------------ grading


def graded_against(*true: tuple[Region, ...] | Region, complete: bool = True) -> set[str]:
    """Grades of the horizontal questions about cup and lamp, against these true boxes."""
    found, _ = asked(CUP_LEFT)
    assert found
    items = tuple(region for group in true for region in (group if isinstance(group, tuple) else (group,)))
    truth = scene_of(RGB, [], [replace(detected(items), complete=complete, backend="truth")])
    return {str(grade(qa, truth.view, truth, TASK)) for qa in found}


def test_the_true_object_is_the_one_whose_box_was_asked_about() -> None:
    lamp = boxes(("lamp", 88, 22, 52, 50))
    assert graded_against(boxes(("cup", 22, 30, 40, 42)), lamp) == {"right"}
    assert graded_against(boxes(("cup", 22, 30, 40, 42), ("cup", 5, 60, 20, 20)), lamp) == {"right"}  # both are left
    # A second cup on the other side: "the cup" means neither.
    assert graded_against(boxes(("cup", 22, 30, 40, 42), ("cup", 160, 60, 20, 20)), lamp) == {"wrong"}
    # The only cup is elsewhere: what was asked about is none.
    assert graded_against(boxes(("cup", 160, 30, 30, 40)), lamp) == {"wrong"}
    assert graded_against(boxes(("cup", 160, 30, 30, 40)), lamp, complete=False) == {"undecidable"}
    assert graded_against(lamp) == {"undecidable"}
    crowd = replace(boxes(("cup", 150, 20, 40, 40))[0], crowd=True)
    assert graded_against(boxes(("cup", 22, 30, 40, 42)), lamp, crowd) == {"undecidable"}


def test_what_the_edge_cuts_is_asked_about_where_much_of_it_is_seen() -> None:
    assert asked(boxes(("cup", 0, 30, 40, 40), ("lamp", 90, 20, 50, 50)))[0]


def test_difficulty_falls_with_the_margin() -> None:
    by_gap = []
    for gap in (10, 30, 60):
        found, _ = asked(boxes(("cup", 20, 30, 40, 40), ("lamp", 60 + gap, 20, 50, 50)))
        by_gap.append({qa.difficulty for qa in found})
    assert all(len(values) == 1 for values in by_gap)
    first, second, third = (values.pop() for values in by_gap)
    assert first > second > third > 0
