"""Specialist contrast: the decision rules, the quadrants, and what is left undecided."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from synth.benchmarks import rooms
from synth.diagnosis.contrast import contrast, format_contrast, to_json
from synth.diagnosis.specialists import (
    DepthRule,
    Said,
    Sight,
    Specialist,
    depth_specialist,
    nearness,
    patch_features,
    point_specialist,
    sift_features,
    view_specialist,
)
from synth.diagnosis.statistics import wilson
from synth.errors import BackendError, S2PError
from synth.geometry import apply_homography, warp
from synth.images import decode, encode_png
from synth.marks import draw_marks
from synth.rooms.render import RoomFrame
from synth.types import DepthMap, Frame, Item, Mark, MetricDepth, Outcome, RelativeDepth, Skill
from tests.scenes import textured
from tests.test_markers import blink, photo

A, B = Mark(label="A", x=40.5, y=60.5), Mark(label="B", x=150.5, y=30.5)


def depth_map(near_left: bool = True, relative: bool = False) -> DepthMap:
    """Two metres on one half, three on the other."""
    metres = np.full((100, 200), 2.0, np.float32)
    metres[:, 100:] = 3.0
    metres = metres if near_left else metres[:, ::-1].copy()
    valid = np.ones(metres.shape, np.bool_)
    if relative:
        return RelativeDepth(inverse=1 / metres, valid=valid, backend="made")
    return MetricDepth(metres=metres, valid=valid, backend="made")


def item(number: int = 0, **changes: object) -> Item:
    plain = Item(
        item_id=f"i{number}",
        category="Relative_Depth",
        skill=Skill.RELATIVE_DEPTH,
        question="Which point is closer to the camera?",
        choices=("A is closer", "B is closer"),
        answer="A",
        prompt="",
        images=(encode_png(textured(np.random.default_rng(0), 200, 100)),),
        marks=((A, B),),
        clean=("room",),
    )
    return replace(plain, **changes)


def outcome(of: Item, correct: bool | None = True, **changes: object) -> Outcome:
    plain = Outcome(
        item_id=of.item_id,
        category=of.category,
        skill=of.skill,
        model="m",
        text=None,
        letter=of.answer if correct else "B",
        reason=None,
        gold=of.answer,
        correct=correct,
        n_options=len(of.choices),
        n_images=len(of.images),
    )
    return replace(plain, **changes)


CLEAN = {"room": encode_png(textured(np.random.default_rng(1), 200, 100))}


class Runner:
    """A depth backend that notes what it was shown."""

    def __init__(self, depth: DepthMap | None) -> None:
        self.depth, self.seen = depth, list[Frame]()

    def __call__(self, frames: Sequence[Frame]) -> list[DepthMap | None]:
        self.seen += frames
        return [self.depth] * len(frames)


def said(of: Item, depth: DepthMap | None, rule: DepthRule | None = None) -> tuple[str | None, str]:
    (entry,) = contrast([of], [outcome(of)], depth_specialist(Runner(depth), "d", rule), CLEAN)
    (row,) = entry.items
    return row.specialist, row.reason


# ---------------------------------------------------------------------------------------------------------------- depth


@pytest.mark.parametrize("relative", [False, True])
def test_depth_answers_the_nearer_mark_and_follows_the_map(relative: bool) -> None:
    assert said(item(), depth_map(True, relative)) == ("A", "")
    assert said(item(), depth_map(False, relative)) == ("B", "")


def test_the_letter_is_the_options_and_the_question_may_ask_for_the_farther() -> None:
    swapped = item(choices=("B is closer", "A is closer"), answer="B")
    assert said(swapped, depth_map()) == ("B", "")
    farther = item(question="Which point is farther away?", choices=("A", "B"))
    assert said(farther, depth_map()) == ("B", "")
    assert said(item(question="Which point?", choices=("A", "B")), depth_map()) == (None, "question_unclear")
    assert said(item(choices=("yes", "no")), depth_map()) == (None, "choices_unclear")


def test_inside_the_margin_nothing_is_said() -> None:
    # ln(3 / 2) = 0.405
    assert said(item(), depth_map(), DepthRule(min_log_ratio=0.40)) == ("A", "")
    assert said(item(), depth_map(), DepthRule(min_log_ratio=0.41)) == (None, "inside_margin")
    relative = depth_map(relative=True)
    assert said(item(), relative, DepthRule(min_share=0.99)) == ("A", "")
    assert said(item(), relative, DepthRule(min_share=1.01)) == (None, "inside_margin")


def test_no_depth_is_said_so() -> None:
    assert said(item(), None) == (None, "no_depth")
    holes = depth_map()
    holes.valid[:, 100:] = False
    assert said(item(), holes) == (None, "no_depth")


def test_depth_is_the_median_of_a_disc_that_bears_outliers() -> None:
    depth = depth_map()
    assert isinstance(depth, MetricDepth)
    # At a shorter side of 100 px the disc is 5 px wide and holds 21 pixels: nine outliers do not move its median.
    depth.metres[59:62, 39:42] = 50.0
    plain = nearness(depth_map(), (A, B), DepthRule())
    assert nearness(depth, (A, B), DepthRule()) == plain
    depth.metres[58:63, 38:43] = 50.0
    assert nearness(depth, (A, B), DepthRule()) != plain


def test_the_clean_picture_is_looked_at_once() -> None:
    runner = Runner(depth_map())
    items = [item(k, images=(encode_png(textured(np.random.default_rng(k), 200, 100)),)) for k in range(3)]
    contrast(items, [outcome(i) for i in items], depth_specialist(runner, "d"), CLEAN)
    assert [frame.view.data for frame in runner.seen] == [CLEAN["room"]]


def test_foreign_marks_are_found_and_painted_over() -> None:
    places = {"A": (90, 80), "B": (400, 280)}
    metres = np.full((400, 520), 3.0, np.float32)
    metres[:, :200] = 1.5
    runner = Runner(MetricDepth(metres=metres, valid=np.ones(metres.shape, np.bool_), backend="made"))
    foreign = item(images=(encode_png(blink(photo(), places)),), marks=(), clean=())
    unmarked = item(1, images=(encode_png(photo()),), marks=(), clean=())
    outcomes = [outcome(foreign, False), outcome(unmarked)]
    (entry,) = contrast([foreign, unmarked], outcomes, depth_specialist(runner, "d"))
    assert (entry.n, entry.localised, entry.decided) == (2, 1, 1)
    assert entry.reasons == {"marks_not_found": 1} and entry.quadrants["trainable"] == 1
    (frame,) = runner.seen
    pure_red = (frame.rgb[..., 0] > 240) & (frame.rgb[..., 1] < 20) & (frame.rgb[..., 2] < 20)
    assert not pure_red.any()


# ------------------------------------------------------------------------------------------------------------ quadrants


def teller(letters: dict[str, str | None]) -> Specialist:
    def answer(sight: Sight) -> Said:
        letter = letters[sight.item.item_id]
        return Said(letter=letter, reason="" if letter else "inside_margin")

    return Specialist(name="t", skills=frozenset({Skill.RELATIVE_DEPTH}), labels=lambda i: (("A", "B"),), answer=answer)


def test_quadrants_intervals_and_reasons() -> None:
    items = [item(k) for k in range(10)]
    letters: dict[str, str | None] = dict.fromkeys((f"i{k}" for k in range(10)), "A") | {
        "i3": "B",
        "i4": "B",
        "i5": None,
    }
    model = [True, True, False, True, False, False, False, True, None, True]
    outcomes = [outcome(i, right) for i, right in zip(items, model, strict=True)]
    outcomes[9] = replace(outcomes[9], gold="B")
    outcomes.append(outcome(item(99)))
    (entry,) = contrast(items, outcomes, teller(letters), CLEAN)
    # Specialist right: 0, 1, 2, 6, 7; wrong: 3, 4. Undecided: 5; unscored: 8; other key: 9; no item: 99.
    assert entry.quadrants == {"trainable": 2, "solved": 3, "shortcut": 1, "ambiguous": 1}
    assert entry.reasons == {"inside_margin": 1, "key_differs": 1, "no_item": 1, "unscored": 1}
    assert entry.n == 11 == entry.decided + sum(entry.reasons.values())
    assert (entry.decided, entry.localised) == (7, 8)
    assert (entry.specialist_low, entry.specialist_high) == wilson(5, 7)
    assert entry.specialist_accuracy == 5 / 7 and entry.model_accuracy == 4 / 7 and entry.chance == 0.5
    assert [row.item_id for row in entry.items] == [f"i{k}" for k in range(8)]


def test_categories_apart_other_skills_left_out_and_the_last_outcome_counts() -> None:
    items = [item(0), item(1, category="mine"), item(2, skill=Skill.COUNTING)]
    outcomes = [outcome(items[0], False), *(outcome(i) for i in items)]
    entries = contrast(items, outcomes, teller({"i0": "A", "i1": "A"}), CLEAN)
    assert [(e.category, e.n, e.quadrants["solved"]) for e in entries] == [("Relative_Depth", 1, 1), ("mine", 1, 1)]


def test_mixed_models_and_foreign_outcomes_are_refused() -> None:
    mixed = [outcome(item()), outcome(item(), model="other")]
    with pytest.raises(S2PError, match="2 models"):
        contrast([item()], mixed, teller({}), CLEAN)
    with pytest.raises(S2PError, match="none of 1"):
        contrast([item()], [outcome(item(5))], teller({}), CLEAN)


def test_broken_and_missing_pictures_are_reasons() -> None:
    broken = item(0, images=(b"no picture",), clean=(), marks=())
    absent = item(1, images=(), clean=(), marks=())
    (entry,) = contrast([broken, absent], [outcome(broken), outcome(absent)], teller({}), {})
    assert entry.reasons == {"unknown_format": 1, "missing_image": 1} and entry.localised == 0


def test_json_and_terminal() -> None:
    items = [item(k) for k in range(40)]
    told = teller({f"i{k}": None if k == 39 else "A" for k in range(40)})
    entries = contrast(items, [outcome(i, k < 9) for k, i in enumerate(items)], told, CLEAN)
    (row,) = json.loads(json.dumps(to_json(entries)))
    assert row["quadrants"] == {"trainable": 30, "solved": 9, "shortcut": 0, "ambiguous": 0}
    assert row["items"][39] == {
        "item_id": "i39",
        "category": "Relative_Depth",
        "model_correct": False,
        "specialist": None,
        "reason": "inside_margin",
        "specialist_correct": None,
    }
    text = format_contrast(entries)
    assert "in the pixels of 30 of the model's 30 failures; undecided: 1 inside_margin" in text
    few = contrast(items[:3], [outcome(i) for i in items[:3]], told, CLEAN)
    assert "too few to tell" in format_contrast(few)


# ---------------------------------------------------------------------------------------------- correspondence and flow

H = np.array([[0.97, 0.08, 14.0], [-0.06, 1.02, 9.0], [0.0, 0.0, 1.0]])
REF = Mark(label="REF", x=210.5, y=170.5)


def matching_item(order: str, skill: Skill = Skill.VISUAL_CORRESPONDENCE) -> Item:
    """The second picture is the first one warped; the point named in `order` first is the right one."""
    rgb = photo(5)
    there, _ = warp(rgb, H, rgb.shape[1], rgb.shape[0])
    x, y = apply_homography(H, np.array([[REF.x, REF.y]]))[0]
    places = [(x, y), (x + 60, y - 35), (x - 75, y + 20), (x + 10, y + 80)]
    marks = tuple(Mark(label=label, x=px, y=py) for label, (px, py) in zip(order, places, strict=True))
    return item(
        category="corr",
        skill=skill,
        choices=("Point A", "Point B", "Point C", "Point D"),
        answer=order[0],
        images=(encode_png(rgb), encode_png(there)),
        marks=((REF,), marks),
        clean=("first", "second"),
    )


@pytest.mark.parametrize("order", ["ABCD", "CADB", "DCBA"])
def test_sift_finds_the_corresponding_point(order: str) -> None:
    asked = matching_item(order)
    clean = dict(zip(asked.clean, asked.images, strict=True))
    (entry,) = contrast([asked], [outcome(asked)], point_specialist(sift_features, "sift"), clean)
    assert entry.items[0].specialist == order[0]
    (entry,) = contrast([asked], [outcome(asked)], point_specialist(sift_features, "sift", min_lead=0.99), clean)
    assert entry.reasons == {"inside_margin": 1}


def test_patch_features_of_a_vision_transformer(tmp_path: Path) -> None:
    """A made DINOv2 of 4 x 4 patches: at a patch's centre the feature is that patch's own token."""
    import torch
    from transformers import BitImageProcessor, Dinov2Config, Dinov2Model

    torch.manual_seed(0)
    config = Dinov2Config(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, image_size=56, patch_size=14, mlp_ratio=2
    )
    model = Dinov2Model(config).eval()
    model.save_pretrained(tmp_path)
    processor = BitImageProcessor(size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56})
    processor.save_pretrained(tmp_path)
    rgb = textured(np.random.default_rng(2), 112, 56)
    features = patch_features(str(tmp_path), device="cpu")
    # Column 2 (of 4), row 1: the centre lies at (2.5 / 4 * 112, 1.5 / 4 * 56).
    found = features(rgb, np.array([[70.0, 21.0], [14.0, 49.0]]))
    assert found.shape == (2, 1, 32)
    inputs = processor(images=rgb, size={"height": 56, "width": 56}, do_center_crop=False, return_tensors="pt")
    with torch.inference_mode():
        tokens = model(**inputs).last_hidden_state[0, 1:].numpy()
    for vector, token in zip(found[:, 0], (tokens[1 * 4 + 2], tokens[3 * 4 + 0]), strict=True):
        assert np.allclose(vector, token / np.linalg.norm(token), atol=1e-4)
    with pytest.raises(BackendError):
        patch_features(str(tmp_path / "nowhere"))


def turned(shift: int, choices: tuple[str, ...] = ("left", "right")) -> Item:
    """The camera's two pictures: the second one shows the scene moved by `shift` pixels to the right."""
    scene = textured(np.random.default_rng(4), 400, 240)
    first, second = scene[:, 40:340], scene[:, 40 - shift : 340 - shift]
    images = (encode_png(first), encode_png(second))
    return item(skill=Skill.MULTI_VIEW, category="mv", choices=choices, images=images, marks=(), clean=())


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (turned(30), "A"),
        (turned(-30), "B"),
        (turned(-30, ("right", "left")), "A"),
        (turned(30, ("counter-clockwise", "clockwise")), "B"),
        (turned(0), "inside_margin"),
        (turned(30, ("yes", "no")), "choices_unclear"),
    ],
)
def test_the_picture_moves_against_the_camera(asked: Item, expected: str) -> None:
    (entry,) = contrast([asked], [outcome(asked)], view_specialist())
    (row,) = entry.items
    assert (row.specialist or row.reason) == expected


def test_a_flat_picture_has_too_few_matches() -> None:
    flat = encode_png(np.full((240, 300, 3), 90, np.uint8))
    asked = replace(turned(30), images=(flat, flat))
    (entry,) = contrast([asked], [outcome(asked)], view_specialist())
    assert entry.reasons == {"few_matches": 1} and entry.chance == 0.5


# ------------------------------------------------------------------------------------------------------ built-in rooms


def made_room(seed: int) -> RoomFrame:
    """A room without a renderer: a floor that runs away and three boxes."""
    rng = np.random.default_rng(seed)
    depth = np.repeat(np.linspace(6, 1.5, 128, dtype=np.float32)[:, None], 128, axis=1)
    ids = np.zeros((128, 128), np.int32)
    rgb = textured(rng, 128, 128)
    for k in range(1, 4):
        x, y = 12 + 36 * (k - 1), int(rng.integers(12, 80))
        depth[y : y + 26, x : x + 26] = rng.uniform(1.2, 5)
        ids[y : y + 26, x : x + 26] = k
    names, colours = ("floor", "ball", "box", "lamp"), ("", "red", "green", "blue")
    eye, zero = np.eye(3), np.zeros(3)
    return RoomFrame(
        seed=seed, view=0, rgb=rgb, depth=depth, ids=ids, names=names, colours=colours, K=eye, R=eye, t=zero
    )


@pytest.mark.parametrize("category", ["relative_depth", "left_right"])
def test_rooms_items_know_their_marks_and_their_clean_picture(category: str) -> None:
    frames = [made_room(seed) for seed in range(4)]
    made = rooms._fill(category, 8, frames, 0)
    assert len(made) == 8
    for one in made:
        seed = int(one.group.removeprefix("room-"))
        assert one.clean == (f"{one.group}-0",)
        (marks,) = one.marks
        assert [mark.label for mark in marks] == ["A", "B"]
        if category == "left_right":
            continue
        near = min(marks, key=lambda mark: float(frames[seed].depth[int(mark.y), int(mark.x)]))
        assert near.label == one.answer
        # The rings are where the marks say: outside the drawn boxes the picture is the clean one.
        changed = (rooms_pixels(one) != frames[seed].rgb).any(axis=2)
        for mark in marks:
            assert changed[int(mark.y) - 5 : int(mark.y) + 6, int(mark.x) - 5 : int(mark.x) + 6].sum() > 20
        for mark in marks:
            box = draw_marks(frames[seed].rgb, [mark]).boxes[0]
            reach = 2 * int(max(box[2] - box[0], box[3] - box[1]))
            top, left = max(0, int(mark.y) - reach), max(0, int(mark.x) - reach)
            changed[top : int(mark.y) + reach, left : int(mark.x) + reach] = False
        assert not changed.any()


def rooms_pixels(one: Item) -> np.ndarray:
    return decode(one.images[0])


def test_rooms_items_are_the_published_ones() -> None:
    """Ids, prompts and pixels of before the marks were told: results on the benchmark stay comparable."""
    digest = hashlib.sha256()
    for category in rooms.SKILLS:
        for one in rooms._fill(category, 6, [made_room(seed) for seed in range(4)], 0):
            digest.update("\x1f".join((one.item_id, one.prompt, one.answer or "")).encode())
            digest.update(rooms_pixels(one).tobytes())
    assert digest.hexdigest() == "c064d97d5b31182cde286c69da105f1aab1a3600f232a3acb0f1eca1350c53e9"
