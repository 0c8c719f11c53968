"""Checks and the audit: each must find the fault that it is for, and only that."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from synth.audit.depths import nearer
from synth.audit.shortcuts import blind_accuracy
from synth.audit.truth import Graded, Tried, format_audit, grade, summarise, write_graded
from synth.checks.recompute import stored
from synth.diagnosis.statistics import wilson
from synth.geometry import generator
from synth.plugins import CHECKS, TASKS, load, load_all, names
from synth.types import QA, Mark, MetricDepth, Panel, Regions, RelativeDepth, Scene, Skill, Truth
from tests.toy import ask, boxes, camera, detected, mirrored, region, relative, room, said, scene_of, texture

ROOM = room(0)
RGB = texture(0, 128, 128)
EXAMPLES = {name: ask(name, ROOM)[0] for name in names(TASKS)}
ALL = [qa for found in EXAMPLES.values() for qa in found]


def verdict(check: str, qa: QA, scene: Scene = ROOM) -> str:
    """The reason, or "" where the check keeps the pair."""
    result = load(CHECKS, check).judge(qa, scene, load(TASKS, qa.task))
    assert result.keep == (not result.reason)
    return result.reason


@pytest.mark.parametrize("check", names(CHECKS))
def test_whatever_a_task_makes_passes(check):
    assert all(verdict(check, qa) == "" for qa in ALL) and len(ALL) > 15


# -------------------------------------------------------------------------------------------------------- recompute


@pytest.mark.parametrize("qa", ALL, ids=lambda qa: qa.qa_id[:24])
def test_another_letter_than_the_numbers_give_is_found(qa):
    others = [letter for letter in "ABCD"[: len(qa.choices)] if letter != qa.answer]
    assert all(verdict("recompute", replace(qa, answer=letter)) == "differs" for letter in others)


def test_every_stored_number_that_decides_is_used():
    """Numbers that would decide otherwise are noticed, and so are missing ones."""
    depth, count = EXAMPLES["relative_depth"][0], EXAMPLES["counting"][0]
    pair, side = EXAMPLES["visual_correspondence"][0], EXAMPLES["left_right"][0]
    member = dict(depth.provenance.measures["members"][0])
    flipped = {**member, "depths_m": dict(zip("AB", list(member["depths_m"].values())[::-1], strict=True))}
    counts = [{"backend": "x", "counts": {"0.3": 1, "0.4": 2}}]
    moved = {k: [x + 40, y] for k, (x, y) in pair.provenance.measures["candidates_px"].items()}
    wrong = [
        (depth, {"members": [flipped]}),
        (depth, {"members": [member, flipped]}),
        (depth, {"members": [{**member, "rays_m": flipped["depths_m"]}]}),
        (count, {"members": counts}),
        (pair, {"candidates_px": moved}),
        (pair, {"homography": np.eye(3).tolist()}),
        (side, {"side": "left" if side.provenance.measures["side"] == "right" else "right"}),
        (side, {"x_px": {"A": 50.0, "B": 51.0}}),
    ]
    for qa, change in wrong:
        assert verdict("recompute", with_measures(qa, **change)) == "differs"
    for qa in (depth, count, pair, side):
        for key in {"members", "candidates_px", "homography", "ref_px", "side", "x_px"} & set(qa.provenance.measures):
            rest = {k: v for k, v in qa.provenance.measures.items() if k != key}
            bare = replace(qa, provenance=replace(qa.provenance, measures=rest))
            assert verdict("recompute", bare) == "incomplete"


def with_measures(qa: QA, **changes: object) -> QA:
    return replace(qa, provenance=replace(qa.provenance, measures={**qa.provenance.measures, **changes}))


def test_recognition_is_recomputed_from_names_alone():
    for qa in EXAMPLES["recognition"]:
        if qa.skill is Skill.OBJECT_AT_MARK:
            assert verdict("recompute", with_measures(qa, label_at={"A": "moon", "B": "moon"})) == "differs"
        if qa.skill in (Skill.EXISTENCE, Skill.OBJECT_COLOUR):
            assert verdict("recompute", with_measures(qa, complete=False)) == "differs"
            twice = qa.provenance.measures["present"] * 2
            expected = "differs" if qa.skill is Skill.OBJECT_COLOUR else ""
            assert verdict("recompute", with_measures(qa, present=twice)) == expected


def test_a_pair_of_another_version_or_with_numbers_that_json_cannot_hold_is_refused():
    qa = EXAMPLES["relative_depth"][0]
    assert verdict("recompute", replace(qa, provenance=replace(qa.provenance, version=99))) == "other_task"
    assert verdict("recompute", with_measures(qa, margin=float("nan"))) == "incomplete"
    assert verdict("recompute", replace(qa, provenance=replace(qa.provenance, options=("A",)))) == "options"
    assert stored(qa.provenance).options == qa.provenance.options


# ------------------------------------------------------------------------------------------------------- wellformed


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        ("choices", {"choices": ("3", "3", "1", "2")}),
        ("choices", {"choices": ("Three", "three ", "1", "2")}),
        ("choices", {"choices": ("3",)}),
        ("choices", {"choices": ("3", "", "1", "2")}),
        ("answer", {"answer": "E"}),
        ("answer", {"answer": ""}),
        ("answer", {"answer": "AB"}),
        ("question", {"question": "Count the chairs."}),
        ("question", {"question": "How many " + "very " * 100 + "old chairs can be seen?"}),
        ("blanks", {"question": "How many  chairs can be seen?"}),
        ("blanks", {"choices": ("3 ", "4", "1", "2")}),
        ("slot", {"question": "How many {plural} can be seen?"}),
        ("slot", {"question": "How many None can be seen?"}),
        ("first_word", {"question": "how many chairs can be seen?"}),
        ("benchmark_id", {"question": "What does val_Relative_Depth_17 show?"}),
        ("benchmark_id", {"question": "Does the picture show 26b5c67b-86fb-4512-8e1e-0aa4bd5a4a5a?"}),
        ("benchmark_id", {"choices": ("BENCHMARK DATA SHOULD NEVER APPEAR", "4", "1", "2")}),
        ("benchmark_wording", {"question": "How many blue floats are there?"}),
        ("benchmark_wording", {"question": "Two points are circled. Which point is closer to the camera?"}),
        ("benchmark_wording", {"question": "Which marked point is nearer to the camera?"}),
        ("skill", {"skill": Skill.JIGSAW}),
        ("difficulty", {"difficulty": float("nan")}),
        ("panels", {"panels": ()}),
    ],
)
def test_broken_text_is_found(reason, changes):
    assert verdict("wellformed", replace(EXAMPLES["counting"][0], **changes)) == reason


# ------------------------------------------------------------------------------------------------------------- marks


@pytest.mark.parametrize(
    ("reason", "marks"),
    [
        ("border", (Mark(label="A", x=1.5, y=60.5), Mark(label="B", x=90.5, y=60.5))),
        ("border", (Mark(label="A", x=60.5, y=127.5), Mark(label="B", x=90.5, y=60.5))),
        ("border", (Mark(label="A", x=300.5, y=60.5), Mark(label="B", x=90.5, y=60.5))),
        ("too_close", (Mark(label="A", x=60.5, y=60.5), Mark(label="B", x=66.5, y=60.5))),
        ("labels", (Mark(label="A", x=30.5, y=60.5), Mark(label="A", x=90.5, y=60.5))),
        ("unmarked", (Mark(label="A", x=30.5, y=60.5), Mark(label="C", x=90.5, y=60.5))),
        ("unmarked", (Mark(label="A", x=30.5, y=60.5),)),
        ("", (Mark(label="A", x=30.5, y=60.5), Mark(label="B", x=90.5, y=60.5))),
    ],
)
def test_marks_that_cannot_be_seen_or_are_not_there_are_found(reason, marks):
    qa = EXAMPLES["relative_depth"][0]
    assert verdict("marks", replace(qa, panels=(Panel(image="view", marks=marks),))) == reason


def test_a_mark_in_a_missing_second_picture_is_found():
    qa = EXAMPLES["visual_correspondence"][0]
    assert verdict("marks", qa, replace(ROOM, pair=None)) == "no_pair"


def test_words_that_only_look_like_marks_are_left_alone():
    qa = replace(EXAMPLES["counting"][0], question="How many marks and letters can be seen at A Place?")
    assert verdict("marks", qa) == ""


# ------------------------------------------------------------------------------------------------------------- audit


def grades(qas: list[QA], truth: Scene) -> set[str]:
    return {grade(qa, truth.view, truth, load(TASKS, qa.task)) for qa in qas}


def test_right_answers_are_right_and_wrong_ones_wrong():
    assert grades(ALL, ROOM) == {"right"}
    for qa in ALL:
        other = next(letter for letter in "ABCD" if letter != qa.answer)
        assert grades([replace(qa, answer=other)], ROOM) == {"wrong"}


def test_the_grader_reads_the_truth_and_not_the_stored_numbers():
    other = mirrored(ROOM)
    for qa in EXAMPLES["relative_depth"]:
        depth = other.depths[0].metres
        a, b = (float(depth[int(m.y), int(m.x)]) for m in qa.panels[0].marks)
        expected = (
            "undecidable" if max(a, b) < 1.02 * min(a, b) else "right" if (a < b) == (said(qa) == "A") else "wrong"
        )
        assert grades([replace(qa, image_id=other.view.image_id)], other) == {expected}


def test_without_truth_nothing_is_decided():
    nothing = Scene(view=ROOM.view, rgb=ROOM.rgb)
    for name in ("relative_depth", "counting", "recognition"):
        assert grades(EXAMPLES[name], nothing) == {"undecidable"}
    unfinished = replace(ROOM, regions=(replace(ROOM.regions[0], complete=False),))
    assert grades(EXAMPLES["counting"], unfinished) == {"undecidable"}
    invalid = replace(ROOM.depths[0], valid=np.zeros((128, 128), dtype=bool))
    assert grades(EXAMPLES["relative_depth"], replace(ROOM, depths=(invalid,))) == {"undecidable"}


def test_depths_that_are_too_alike_for_a_sensor_are_not_decided():
    qa = EXAMPLES["relative_depth"][0]
    flat = replace(ROOM.depths[0], metres=np.full((128, 128), 2.0, dtype=np.float32))
    assert grades([qa], replace(ROOM, depths=(flat,))) == {"undecidable"}


def test_order_only_disparity_decides_by_order():
    disparity = relative(1 / ROOM.depths[0].metres, "truth")
    assert isinstance(disparity, RelativeDepth)
    assert grades(EXAMPLES["relative_depth"], replace(ROOM, depths=(disparity,))) == {"right"}
    backwards = relative(ROOM.depths[0].metres, "truth")
    assert grades(EXAMPLES["relative_depth"], replace(ROOM, depths=(backwards,))) == {"wrong"}


def lidar(*returns: tuple[int, int, float]) -> Scene:
    """The room with a few returns (column, row, metres) in place of dense depth."""
    metres = np.zeros((128, 128), dtype=np.float32)
    for column, row, value in returns:
        metres[row, column] = value
    return replace(ROOM, depths=(MetricDepth(metres=metres, valid=metres > 0, backend="truth"),))


FAR = ((89, 30, 9.0), (92, 30, 9.1))
"""Two returns on both sides of mark B at (90.5, 30.5)."""


@pytest.mark.parametrize(
    ("around_a", "told"),
    [
        (((28, 30, 4.0), (32, 31, 4.1)), "A"),
        (((28, 30, 12.0), (32, 31, 12.1)), "B"),
        (((28, 30, 4.0), (32, 31, 6.0)), None),  # they do not agree: an edge lies between
        (((28, 28, 4.0), (29, 28, 4.0)), None),  # on one side only: the mark may lie beyond an edge
        (((30, 30, 4.0),), None),  # one is no agreement
        (((24, 30, 4.0), (37, 30, 4.0)), None),  # too far off
        (((28, 30, 9.0), (32, 31, 9.1)), None),  # as far as B
    ],
)
def test_returns_of_a_lidar_decide_where_they_enclose_the_mark_and_agree(around_a, told):
    marks = (Mark(label="A", x=30.5, y=30.5), Mark(label="B", x=90.5, y=30.5))
    assert nearer(marks, ROOM.view, lidar(*around_a, *FAR)) == told


def test_the_yield_is_a_share_of_the_random_pairs_that_the_truth_decides():
    tried = [
        Tried(task="relative_depth", domain="indoor", decided=100, kept=20, right=19),
        Tried(task="relative_depth", domain="street", decided=0, kept=0, right=0),
        Tried(task="relative_depth", domain="indoor", decided=300, kept=20, right=20),
    ]
    row = summarise([], ["relative_depth", "counting"], 3, tried=tried)["tasks"]
    shares = row["relative_depth"]["yield_share"]
    assert (shares["decided"], shares["kept"], shares["share"], shares["precision"]) == (400, 40, 0.1, 0.975)
    assert shares["by_domain"]["indoor"]["share"] == 0.1 and shares["by_domain"]["street"]["share"] is None
    assert row["counting"]["yield_share"] is None


def test_where_depth_and_ray_disagree_the_truth_does_not_decide():
    depth = np.full((128, 128), 1.2, dtype=np.float32)
    depth[:40, :40] = 1.0
    qa = replace(
        EXAMPLES["relative_depth"][0],
        panels=(Panel(image="view", marks=(Mark(label="A", x=10.5, y=10.5), Mark(label="B", x=64.5, y=64.5))),),
    )
    for focal, decided in ((40.0, False), (900.0, True)):
        view = replace(ROOM.view, truth=Truth(camera=camera(128, 128, focal=focal)))
        scene = replace(ROOM, view=view, depths=(replace(ROOM.depths[0], metres=depth),))
        assert (grade(qa, view, scene, load(TASKS, "relative_depth")) != "undecidable") == decided


def test_a_count_is_graded_against_complete_boxes_of_the_same_label():
    picture = scene_of(RGB, regions=[detected(boxes(("chair", 5, 5, 20, 20), ("chair", 60, 5, 20, 20)))])
    (qa,) = ask("counting", picture)[0]
    listed = {
        "right": boxes(("chair", 5, 5, 20, 20), ("chair", 60, 5, 20, 20)),
        "wrong": boxes(("chair", 5, 5, 20, 20), ("chair", 60, 5, 20, 20), ("chair", 5, 60, 3, 3)),
    }
    for expected, items in listed.items():
        truth = Regions(items=items, complete=True, backend="truth", vocabulary=("chair",))
        assert grades([qa], replace(picture, regions=(truth,))) == {expected}
        assert grades([qa], replace(picture, regions=(replace(truth, vocabulary=("sofa",)),))) == {"undecidable"}
        crowd = replace(boxes(("chair", 90, 90, 30, 30))[0], crowd=True)
        assert grades([qa], replace(picture, regions=(replace(truth, items=(*items, crowd)),))) == {"undecidable"}
    nobody = Regions(items=(), complete=True, backend="truth", vocabulary=("chair",))
    assert grades([qa], replace(picture, regions=(nobody,))) == {"wrong"}


def test_grading_another_photo_is_a_bug_and_raises():
    qa = EXAMPLES["counting"][0]
    with pytest.raises(ValueError, match="graded as"):
        grade(replace(qa, image_id="0" * 64), ROOM.view, ROOM, load(TASKS, "counting"))


def test_a_mark_on_two_objects_is_not_decided():
    qa = next(qa for qa in EXAMPLES["recognition"] if qa.skill is Skill.OBJECT_AT_MARK)
    cloth = region("cloth", np.ones((128, 128), dtype=bool))
    over = replace(ROOM, regions=(replace(ROOM.regions[0], items=(*ROOM.regions[0].items, cloth)),))
    assert grades([qa], over) == {"undecidable"}


def test_the_summary_adds_up_and_is_json(tmp_path):
    qas = EXAMPLES["relative_depth"]
    marks = ["right"] * (len(qas) - 2) + ["wrong", "undecidable"]
    graded = [Graded(qa=qa, image="a", domain="indoor", grade=g) for qa, g in zip(qas, marks, strict=True)]
    summary = summarise(graded, ["relative_depth", "counting"], 2)
    row, empty = summary["tasks"]["relative_depth"], summary["tasks"]["counting"]
    n = len(qas) - 1
    low, high = wilson(n - 1, n)
    assert (row["n"], row["right"], row["undecidable"], row["candidates"]) == (n, n - 1, 1, n + 1)
    assert row["precision"] == round((n - 1) / n, 4) and (row["low"], row["high"]) == (round(low, 4), round(high, 4))
    assert row["yield"] == round((n + 1) / 2, 4) and row["chance"] == 0.5 and row["off"] is None
    assert empty["precision"] is None and empty["off"] == "no candidates" and empty["n"] == 0
    assert sum(part["n"] for part in row["by_stratum"].values()) == n and set(row["by_stratum"]) <= {"lower", "higher"}
    assert row["by_domain"]["indoor"]["right"] == row["by_skill"]["relative_depth"]["right"] == n - 1
    json.dumps(summary, allow_nan=False)
    table = format_audit(summary)
    assert "relative_depth" in table and f"{row['precision']:.4f}" in table and "no candidates" in table
    write_graded(tmp_path / "graded.jsonl", graded)
    rows = [json.loads(line) for line in (tmp_path / "graded.jsonl").read_text().splitlines()]
    assert [row["grade"] for row in rows] == marks and rows[0]["qa_id"] == qas[0].qa_id


# ------------------------------------------------------------------------------------------------------- blind solver


def many(leak: bool) -> list[QA]:
    """Two-way questions on 400 photos; with a leak, one wording always goes with A."""
    rng = generator(0, "blind")
    qa = EXAMPLES["relative_depth"][0]
    made = []
    for k in range(400):
        answer = "AB"[int(rng.integers(2))]
        question = "Is A it?" if leak and answer == "A" else "Which is it?"
        made.append(replace(qa, qa_id=str(k), image_id=f"{k:064x}", question=question, answer=answer))
    return made


def test_a_blind_solver_finds_a_leak_and_nothing_where_there_is_none():
    assert blind_accuracy(many(leak=True)) > 0.9
    assert abs(blind_accuracy(many(leak=False)) - 0.5) < 0.08
    assert blind_accuracy(many(leak=True)[:20]) is None
    graded = [Graded(qa=qa, image="a", domain="", grade="right") for qa in many(leak=True)]
    over_all = summarise(graded, ["relative_depth"], 400)["tasks"]["relative_depth"]
    over_kept = summarise(graded, ["relative_depth"], 400, many(leak=False))["tasks"]["relative_depth"]
    assert over_all["blind_accuracy"] > 0.9 > 0.6 > over_kept["blind_accuracy"]


def test_checks_are_pure():
    qa = EXAMPLES["counting"][0]
    for check in load_all(CHECKS):
        task = load(TASKS, qa.task)
        assert check.judge(qa, ROOM, task) == check.judge(qa, ROOM, task)
