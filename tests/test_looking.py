"""Sensitivity before and after, what a run can see, and which trainings a round has."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from finetune import arms
from finetune.arms import ArmConfig, ControlConfig, Measures, Trainings
from finetune.evaluate import EvaluateOptions
from finetune.grounding import Effect, Seen, row_of
from finetune.looking import errors_of, load_seen, looking_json, looking_of, sign_flip_test
from finetune.power import detectable, power_json
from finetune.sensitivity import SensitivityOptions
from finetune.train import TrainSettings
from synth.config import PluginChoice
from synth.diagnosis.reading import write_outcomes
from synth.diagnosis.statistics import holm, mcnemar_power
from synth.errors import RunError
from synth.types import Skill
from tests.test_sensitivity import seen

FLIPPED = Effect(kl=1, kl_options=1, js=0.1, delta_gold=-1, letter="B")
KEPT = replace(FLIPPED, letter="A")


def measured(kl: float, swap: Effect, n: int = 24, scatter: float = 0.001) -> list[Seen]:
    """Items whose region matters by `kl` nats, a little more from one to the next, and 0.1 elsewhere."""
    return [seen(i, kl + i * scatter, 0.1, correct=i % 2 == 0, swap=swap) for i in range(n)]


def test_a_model_that_began_to_look_is_told_from_one_that_did_not() -> None:
    (line,) = looking_of(measured(0.1, KEPT), measured(0.9, FLIPPED, scatter=0.002), 0.05, 0)
    assert line.verdict == "rose" and line.net_delta == pytest.approx(0.8, abs=0.02)
    assert line.low < line.net_delta < line.high and line.p < line.p_holm < 0.001
    assert line.before.sensitive == 13 / 24 and line.after.sensitive == 1
    assert line.sensitive_p == pytest.approx(2 * 0.5**11), "eleven items became sensitive, none ceased to be"
    assert line.before.swap.both_right == 0 and line.after.swap.both_right == 0.5
    assert line.swap_p == pytest.approx(2 * 0.5**12), "twelve items became right both ways, none fell"
    assert line.follows == "rose" and (line.p_holm, line.swap_p_holm) == tuple(holm([line.p, line.swap_p])), (
        "both measures are one family"
    )
    (same,) = looking_of(measured(0.4, FLIPPED), measured(0.4, FLIPPED), 0.05, 0)
    assert same.verdict == "no evidence" and same.net_delta == 0 and same.p == 1 and same.swap_p == 1
    (lost,) = looking_of(measured(0.9, FLIPPED), measured(0.1, KEPT), 0.05, 0)
    assert lost.verdict == "fell" and lost.follows == "fell"
    (alone,) = looking_of(measured(0.4, KEPT), measured(0.4, FLIPPED), 0.05, 0)
    assert (alone.verdict, alone.follows) == ("no evidence", "rose"), "more right both ways without a larger divergence"


def test_a_blur_that_hurts_everywhere_alike_is_no_look() -> None:
    """A more decided model loses more by any blur; what counts is what the region loses beyond other places."""
    before = [seen(i, 0.1, 0.1, True, controls=(kept_at(0.1),)) for i in range(20)]
    after = [seen(i, 2.0, 2.0, True, controls=(kept_at(2.0),)) for i in range(20)]
    (line,) = looking_of(before, after, 0.05, 0)
    assert line.verdict == "no evidence" and line.net_delta == pytest.approx(0)


def kept_at(kl: float) -> Effect:
    return replace(KEPT, kl=kl)


def test_one_room_is_one_piece_of_evidence() -> None:
    rng = np.random.default_rng(0)
    apart = sign_flip_test([0.5] * 20, [str(i) for i in range(20)], rng)
    together = sign_flip_test([0.5] * 20, ["room"] * 20, rng)
    assert apart < 0.001 and together == 1


def test_other_items_are_refused() -> None:
    with pytest.raises(RunError, match="same items"):
        looking_of(measured(0.1, KEPT), measured(0.1, KEPT)[1:], 0.05, 0)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    looks = [*measured(0.3, FLIPPED, 5), seen(9, 0.2, 0, None, region="whole_image", controls=())]
    write_outcomes(tmp_path / "outcomes.jsonl", [it.outcome for it in looks])
    lines = [json.dumps(row_of(it)) for it in looks]
    (tmp_path / "sensitivity.jsonl").write_text("\n".join(lines) + "\n")
    assert load_seen(tmp_path) == looks
    (tmp_path / "sensitivity.jsonl").write_text(lines[0][:40])
    with pytest.raises(RunError, match="cannot be read"):
        load_seen(tmp_path)


def test_the_file_of_a_round_takes_the_kind_of_region_with_most_items() -> None:
    whole = [seen(90 + i, 0.2, 0, True, region="whole_image", controls=()) for i in range(3)]
    rows = looking_json(
        looking_of([*measured(0.1, KEPT), *whole], [*measured(0.9, FLIPPED), *whole], 0.05, 0),
    )
    assert rows["relative_depth"]["region"] == "around_marks" and rows["relative_depth"]["verdict"] == "rose"
    assert sum(rows["relative_depth"]["quadrants_after"].values()) == 24
    json.dumps(rows)


# -------------------------------------------------------------------------------------------------------------- power


def test_power_is_stated_for_the_worst_case() -> None:
    outcomes = [seen(i, 1, 0.1, True).outcome for i in range(200)]
    other = [replace(seen(500 + i, 1, 0.1, True).outcome, skill=Skill.LEFT_RIGHT) for i in range(50)]
    told = power_json([*outcomes, *other], [Skill.RELATIVE_DEPTH], 0.05)
    assert told["comparisons"] == 2 and list(told["skills"]) == ["relative_depth"]
    row = told["skills"]["relative_depth"]
    assert row["n"] == 200 and row["discordance"] == 0.5, "two guessers of two options differ on half of the items"
    assert mcnemar_power(200, row["detectable"], 0.5, 0.025) == pytest.approx(0.8, abs=0.01)
    assert row["power_at"]["0.20"] > row["power_at"]["0.10"] > row["power_at"]["0.05"]


def test_too_few_items_see_nothing() -> None:
    assert detectable(0, 0.5, 0.05) is None and detectable(4, 0.5, 0.05) is None


# --------------------------------------------------------------------------------------------------------------- arms


def trainings(folder: Path) -> Trainings:
    measures = Measures(
        benchmark=PluginChoice(name="rooms"), evaluate=EvaluateOptions(), sensitivity=SensitivityOptions()
    )
    return Trainings(
        folder=folder,
        model="model",
        benchmark="rooms",
        seed=7,
        train=TrainSettings(learning_rate=1e-3, batch_size=32),
        changes={"lora_scope": "all"},
        arms={
            "tuned": ArmConfig(continues=True, train={"method": "grpo", "batch_size": 64}),
            "seed_1": ArmConfig(seed=1),
        },
        controls={"grey": ControlConfig(kind="grey")},
        measures=measures,
    )


def test_the_trainings_of_a_round(tmp_path: Path) -> None:
    real, tuned, other, grey = trainings(tmp_path).all()
    assert (real.train.seed, other.train.seed, grey.train.control) == (7, 1, "grey")
    assert {one.train.lora_scope for one in (real, tuned, other, grey)} == {"all"}, "the round's own change"
    assert tuned.train.adapter == tmp_path / "train" == real.train.out and tuned.train.method == "grpo"
    assert [one.measures.sensitivity is None for one in (real, tuned, other, grey)] == [False, True, True, True]


def test_a_second_stage_waits_for_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waves: list[list[str]] = []

    def run_local(work, todo, workers):
        waves.append([str(arm.train.out.relative_to(tmp_path)) for arm in todo])
        return iter([None] * len(todo))

    monkeypatch.setattr(arms, "run_local", run_local)
    seen_progress: list[tuple[int, int]] = []
    all_of_them = trainings(tmp_path).all()
    arms.run_arms(all_of_them, 2, lambda done, total: seen_progress.append((done, total)))
    assert waves == [["train", "arms/seed_1/train", "controls/grey/train"], ["arms/tuned/train"]]
    assert seen_progress[0] == (0, 4) and seen_progress[-1] == (4, 4)
    outcomes = tmp_path / "arms" / "seed_1" / "after" / "outcomes.jsonl"
    outcomes.parent.mkdir(parents=True)
    outcomes.write_text("")
    (tmp_path / "after").mkdir()
    (tmp_path / "after" / "outcomes.jsonl").write_text("")
    waves.clear()
    arms.run_arms(all_of_them, 2, lambda done, total: None)
    assert waves[0] == ["train", "controls/grey/train"], "evaluated, but whether it looks is not known yet"


def test_a_plan_reads_errors_outside_the_held_out_fold_only() -> None:
    looks = [*measured(0.9, FLIPPED), seen(90, 0.2, 0, False, region="whole_image", controls=())]
    told = errors_of(looks[:10] + looks[-1:], SensitivityOptions(), "toys", 3)
    assert (told.model, told.benchmark, told.fold) == ("m", "toys", 3)
    assert told.errors()[Skill.RELATIVE_DEPTH].n == 5, "five of ten are wrong; blurs of whole pictures do not count"
