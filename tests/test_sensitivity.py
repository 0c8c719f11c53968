"""Visual sensitivity: what is taken away, what stays, the divergences, the tests, and a model that looks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import finetune.sensitivity as module
from finetune import perturb
from finetune.grounding import Effect, Seen, cells_of, format_cells, permutation_test
from finetune.respondents import LocalModel
from finetune.score import Score
from finetune.sensitivity import SensitivityOptions, divergences, sensitivity
from synth.benchmarks import rooms
from synth.contracts import BenchmarkData
from synth.diagnosis.reading import load_outcomes
from synth.errors import BenchmarkError
from synth.geometry import generator
from synth.images import decode, encode_png
from synth.marks import draw_marks
from synth.types import Item, Mark, Outcome, Skill
from tests.conftest import ROOT
from tests.small_vlms import small_qwen
from tests.toy import texture

SIDE = 96


def depth_item(number: int, answer: str = "A", **changes: object) -> tuple[Item, bytes]:
    """Two marks on a picture of random squares, and the picture without them."""
    clean = texture(number, SIDE, SIDE)
    marks = (Mark(label="A", x=20, y=30 + number % 30), Mark(label="B", x=70, y=60))
    fields = {
        "item_id": f"i{number}", "category": "Depth", "skill": Skill.RELATIVE_DEPTH, "question": "Which is nearer?",
        "choices": ("A is nearer", "B is nearer"), "answer": answer, "prompt": "", "group": f"g{number // 2}",
        "images": (encode_png(draw_marks(clean, marks).rgb),), "marks": (marks,), "clean": (f"c{number}",),
    }  # fmt: skip
    return Item(**{**fields, **changes}), encode_png(clean)


def depth_data(n: int) -> BenchmarkData:
    made = [depth_item(i, "AB"[i % 2]) for i in range(n)]
    clean = {item.clean[0]: image for item, image in made}
    return BenchmarkData(name="toys", revision="1", items=tuple(item for item, _ in made), clean_images=clean)


def subject(number: int = 0, clean: bool = True, **changes: object) -> perturb.Subject:
    item, image = depth_item(number, **changes)
    return perturb.subject_of(item, {item.clean[0]: image} if clean else {})


def area(patches: tuple[perturb.Patch, ...]) -> int:
    return sum(int(patch.mask.sum()) for patch in patches)


def covered(patches: tuple[perturb.Patch, ...], shape: tuple[int, int] = (SIDE, SIDE)) -> np.ndarray:
    count = np.zeros(shape, int)
    for patch in patches:
        height, width = patch.mask.shape
        count[patch.row : patch.row + height, patch.column : patch.column + width] += patch.mask
    return count


# ---------------------------------------------------------------------------------------------------------- regions


def test_discs_lie_around_the_marks_and_blur_keeps_the_marks() -> None:
    it = subject()
    assert it.kind == "around_marks"
    y, x = np.mgrid[:SIDE, :SIDE] + 0.5
    discs = ((x - 20) ** 2 + (y - 30) ** 2 <= 9.6**2) | ((x - 70) ** 2 + (y - 60) ** 2 <= 9.6**2)
    assert np.array_equal(covered(it.patches) == 1, discs) and covered(it.patches).max() == 1
    blurred = decode(perturb.blurred(it, it.patches, 40)[0])
    changed = (blurred != it.pictures[0]).any(axis=2)
    assert not changed[~discs].any(), "nothing outside the region changes"
    drawn = (it.pictures[0] != it.sources[0]).any(axis=2)
    assert drawn[discs].sum() > 50 and not changed[drawn].any(), "the marks stay as they are"
    assert changed[discs & ~drawn].mean() > 0.9


def test_a_stronger_blur_takes_more() -> None:
    it = subject()
    far = [
        np.abs(decode(perturb.blurred(it, it.patches, s)[0]).astype(int) - it.pictures[0]).sum() for s in (2, 10, 40)
    ]
    assert 0 < far[0] < far[1] < far[2]


def test_a_flat_fill_has_one_colour() -> None:
    it = subject()
    filled = decode(perturb.filled(it, it.patches)[0])
    where = (covered(it.patches) == 1) & ~it.kept[0]
    assert len(np.unique(filled[where], axis=0)) == 1
    assert np.abs(filled[where][0] - it.sources[0][covered(it.patches) == 1].mean(axis=0)).max() <= 0.5


def test_without_the_clean_picture_it_is_another_kind() -> None:
    it = subject(clean=False)
    assert it.kind == "with_marks" and not it.kept[0].any()


def test_boxes_and_whole_pictures() -> None:
    boxed = subject(marks=((),), boxes=(((10.0, 20.0, 30.0, 50.0),),))
    assert boxed.kind == "boxes" and area(boxed.patches) == 20 * 30
    alone = subject(marks=())
    assert alone.kind == "whole_image" and area(alone.patches) == SIDE * SIDE
    assert perturb.elsewhere(alone, generator(0)) is None, "there is no elsewhere"


@pytest.mark.parametrize("x", [2.0, 48.0, 66.0])
def test_irrelevant_places_have_the_same_area_and_touch_nothing(x: float) -> None:
    """At the border a disc is cut, and near another mark it overlaps: its counterpart is as large all the same."""
    item, clean = depth_item(0)
    marks = (Mark(label="A", x=x, y=60), Mark(label="B", x=70, y=60))
    it = perturb.subject_of(replace(item, marks=(marks,)), {item.clean[0]: clean})
    places = [perturb.elsewhere(it, generator(seed)) for seed in range(5)]
    assert len({tuple((p.row, p.column) for p in place) for place in places}) > 1
    for place in places:
        assert area(place) == area(it.patches)
        assert (covered(place) + covered(it.patches)).max() == 1


# ------------------------------------------------------------------------------------------------------ divergences


def test_divergences_are_those_of_scipy() -> None:
    from scipy.spatial.distance import jensenshannon
    from scipy.stats import entropy

    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(30), 2)
    a = Score(item_id="x", letter="A", probabilities={"A": p[3], "B": p[4]})
    b = Score(item_id="x", letter="B", probabilities={"A": q[3], "B": q[4]})
    found = divergences(np.log(p), np.log(q), a, b, "B")
    assert found.kl == pytest.approx(entropy(p, q))
    bins = [np.array([r[3], r[4], 1 - r[3] - r[4]]) for r in (p, q)]
    assert found.kl_options == pytest.approx(entropy(*bins), rel=1e-3)
    assert found.js == pytest.approx(jensenshannon(*bins) ** 2, rel=1e-3)
    assert found.delta_gold == pytest.approx(np.log(q[4] / p[4])) and found.letter == "B"
    assert found.kl_options <= found.kl + 1e-6, "merging tokens loses information"
    same = divergences(np.log(p), np.log(p), a, a, None)
    assert (same.kl, same.kl_options, same.js, same.delta_gold) == (0, 0, 0, None)
    sure = replace(a, probabilities={"A": 1.0, "B": 0.0})
    lost = divergences(np.log(p), np.log(q), sure, replace(a, probabilities={"A": 0.0, "B": 1.0}), "A")
    assert np.isfinite([lost.kl_options, lost.delta_gold]).all() and lost.js == pytest.approx(np.log(2), abs=1e-4)


# ------------------------------------------------------------------------------------------------------- statistics


def test_the_permutation_test_holds_its_level_and_finds_what_is_there() -> None:
    rng = np.random.default_rng(3)
    ps = []
    for _ in range(60):
        places = rng.lognormal(size=(20, 5))
        ps.append(permutation_test(places[:, 0], places[:, 1:], [str(i) for i in range(20)], rng)[1])
    assert 0.35 < np.mean(ps) < 0.65 and np.mean(np.array(ps) < 0.05) < 0.15
    places = rng.lognormal(size=(20, 5))
    strong, p = permutation_test(places[:, 0] * 50, places[:, 1:], [str(i) for i in range(20)], rng)
    assert strong > 0.9 and p < 0.001
    _, one = permutation_test(places[:, 0] * 50, places[:, 1:], ["the same room"] * 20, rng)
    assert one > 0.15, "twenty questions about one picture are one piece of evidence (five places)"


def seen(number: int, kl: float, control: float, correct: bool | None, **changes: object) -> Seen:
    gold = None if correct is None else "A" if correct else "B"
    outcome = Outcome(
        item_id=f"i{number}", category="c", skill=Skill.RELATIVE_DEPTH, model="m", text="A", letter="A", reason=None,
        gold=gold, correct=correct, n_options=2, n_images=1, group=f"g{number}", probabilities={"A": 0.8, "B": 0.05},
    )  # fmt: skip

    def effect(value: float, letter: str = "A") -> Effect:
        return Effect(kl=value, kl_options=value, js=value, delta_gold=-value, letter=letter)

    fields = {
        "outcome": outcome, "region": "around_marks", "blurs": {"2": effect(kl / 9), "20": effect(kl, "B")},
        "fill": effect(kl), "controls": (effect(control), effect(control * 1.1)), "swap": None,
    }  # fmt: skip
    return Seen(**{**fields, **changes})


def test_cells_quadrants_and_thresholds() -> None:
    looks = [seen(i, 1.0, 0.1 + i / 1000, correct=i < 6) for i in range(10)]
    blind = [seen(10 + i, 0.01, 0.1, correct=i < 2) for i in range(6)]
    hidden = [seen(20, 1.0, 0.1, correct=None)]
    whole = [seen(30, 0.06, 0, correct=True, region="whole_image", controls=())]
    marks, image = cells_of([*looks, *blind, *hidden, *whole], 0.05, 0)
    assert (marks.region, marks.n, image.region, image.n) == ("around_marks", 17, "whole_image", 1)
    assert marks.quadrants == {"grounded_right": 6, "blind_right": 2, "misreads": 4, "blind_wrong": 4}
    assert marks.misreads == marks.blind_wrong == 0.25 and marks.confident_blind_wrong == 4
    assert 0.1 < marks.threshold < 0.13 and marks.calibrated and marks.sensitive == pytest.approx(11 / 17)
    assert marks.superiority == pytest.approx(11 / 17) and marks.p_holm == marks.p, "one test alone is not corrected"
    assert marks.changed == {"2": 0, "20": 1} and list(marks.ladder) == ["2", "20"]
    assert (image.p, image.verdict, image.calibrated, image.threshold) == (None, "not tested", False, 0.05)
    table = format_cells([marks, image])
    assert "region: whole image" in table and "* by the fixed threshold" in table


def test_an_exchange_of_letters_is_followed_or_not() -> None:
    follows = Effect(kl=1, kl_options=1, js=0.1, delta_gold=-1, letter="B")
    stays = replace(follows, letter="A")
    rows = [
        seen(0, 1, 0.1, True, swap=follows),
        seen(1, 1, 0.1, False, swap=follows),
        seen(2, 1, 0.1, True, swap=stays),
    ]
    (cell,) = cells_of(rows, 0.05, 0)
    assert (cell.swap.n, cell.swap.follows, cell.swap.both_right) == (3, pytest.approx(2 / 3), pytest.approx(1 / 3))


# -------------------------------------------------------------------------------------------------------- the whole


class Named:
    """A model that is never loaded."""

    name = identity = "named"


def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, look, n: int = 16):
    """Sensitivity of a model that is a function of the pixels: rgb -> probability of A."""

    def distributions(model, question, shown, batch_size):
        share = np.clip([look(decode(images[0]).astype(float) / 255) for images in shown], 0.01, 0.99).tolist()
        scores = [
            Score(item_id=question.item_id, letter="A" if a > 0.5 else "B", probabilities={"A": a, "B": 1 - a})
            for a in share
        ]
        return scores, [np.log([a, 1 - a]) for a in share]

    monkeypatch.setattr(module, "_distributions", distributions)
    return sensitivity(Named(), depth_data(n), tmp_path, SensitivityOptions(per_skill=None, ladder=(40,)))


def test_who_looks_at_the_region_is_told_from_who_looks_anywhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def contrast(rgb: np.ndarray) -> float:
        return 0.5 + 2 * (rgb.std() - 0.25)

    local = run(monkeypatch, tmp_path / "a", lambda rgb: contrast(rgb[52:68, 62:78])).cells[0]
    assert local.verdict == "depends on the region" and local.superiority > 0.9 and local.median_kl > 0
    anywhere = run(monkeypatch, tmp_path / "b", contrast).cells[0]
    assert anywhere.verdict == "no evidence" and anywhere.median_kl > 0, "blur is seen, but no more here than elsewhere"
    blind = run(monkeypatch, tmp_path / "c", lambda rgb: 0.8).cells[0]
    assert blind.verdict == "no evidence" and blind.sensitive == 0
    assert blind.quadrants == {"grounded_right": 0, "blind_right": 8, "misreads": 0, "blind_wrong": 8}
    assert blind.swap.n == 16 and blind.swap.follows == 0


def test_a_killed_run_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Killer:
        def stage(self, name: str, done: int, total: int) -> None:
            if done == 3:
                raise KeyboardInterrupt

    def once(model, question, shown, batch_size):
        asked.append(question.item_id)
        score = Score(item_id=question.item_id, letter="A", probabilities={"A": 0.6, "B": 0.4})
        return [score] * len(shown), [np.log([0.6, 0.4])] * len(shown)

    asked: list[str] = []
    monkeypatch.setattr(module, "_distributions", once)
    with pytest.raises(KeyboardInterrupt):
        sensitivity(Named(), depth_data(6), tmp_path, reporter=Killer())
    assert not (tmp_path / "sensitivity.json").exists()
    found = sensitivity(Named(), depth_data(6), tmp_path)
    assert asked == [f"i{i}" for i in range(6)], "each item once"
    assert len(found.seen) == 6
    assert sorted(p.name for p in tmp_path.iterdir()) == ["outcomes.jsonl", "sensitivity.json", "sensitivity.jsonl"]


def test_what_is_left_out_is_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = depth_data(6)
    blind = replace(data.items[0], item_id="blind", images=(), marks=(), clean=())
    kept, left_out = module._chosen(replace(data, items=(*data.items, blind)), 2)
    assert [item.item_id for item in kept] == ["i0", "i3"], "spread over the skill"
    assert left_out == {"no picture": 1, "beyond per_skill": 4}
    with pytest.raises(BenchmarkError, match="no item to look at"):
        module._chosen(replace(data, items=(blind,)), None)


def test_a_stock_model_end_to_end(tmp_path: Path) -> None:
    model = LocalModel(str(small_qwen(tmp_path / "qwen")))
    found = sensitivity(model, depth_data(3), tmp_path / "out", SensitivityOptions(controls=2))
    rows = [json.loads(line) for line in (tmp_path / "out" / "sensitivity.jsonl").read_text().splitlines()]
    assert [len(row["controls"]) for row in rows] == [2, 2, 2] and list(rows[0]["blurs"]) == ["2", "5", "10", "20"]
    assert all(row["blurs"]["20"]["kl"] > 0 and row["swap"]["kl"] > 0 for row in rows)
    assert [o.letter for o in load_outcomes(tmp_path / "out")] == [row["letter"] for row in rows]
    written = json.loads((tmp_path / "out" / "sensitivity.json").read_text())
    assert written["cells"][0]["n"] == 3 and written["options"]["controls"] == 2
    assert set(written["confidence"]["signals"]) == {"max_probability", "margin", "option_mass", "sensitivity"}
    assert found.confidence.rough


def test_the_built_in_model_looks_at_the_mark_it_is_asked_about(rooms_cache: Path, tmp_path: Path) -> None:
    options = rooms.Options(cache=str(rooms_cache), n_rooms=8, n_depth=2, n_left_right=2, n_semantic=12, workers=1)
    data = rooms.load(options, None)
    asked = tuple(item for item in data.items if item.category in ("colour_at_mark", "mark_on_object"))
    boxed = next(item for item in data.items if item.category == "object_colour")
    assert perturb.subject_of(boxed, data.clean_images).kind == "boxes"
    model = LocalModel(str(ROOT / "finetune" / "tiny" / "base"))
    found = sensitivity(model, replace(data, items=asked), tmp_path, SensitivityOptions(ladder=(20,), controls=3))
    cells = {cell.skill: cell for cell in found.cells}
    colour = cells[Skill.COLOUR_AT_MARK]
    assert colour.verdict == "depends on the region" and colour.superiority > 0.8 and colour.swap is None
    assert cells[Skill.MARK_ON_OBJECT].swap.both_right > 0.5, "one letter, or one cue, would give 0"
