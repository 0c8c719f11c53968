"""From a profile to quotas: what is weak, what is kept, what is left out, and a reason for every pair."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from pydantic import ValidationError

from finetune.grounding import GroundingCell, Swapped
from finetune.perturb import RegionKind
from synth.contracts import Task
from synth.diagnosis.blindness import Cell, SensitivityFile, load_sensitivity
from synth.diagnosis.contrast import to_json
from synth.diagnosis.folds import held_out
from synth.diagnosis.profile import make_profile
from synth.diagnosis.profile_json import profile_to_json
from synth.diagnosis.statistics import wilson
from synth.errors import ConfigError
from synth.files import write_json
from synth.findings import CategoryProfile, Contrast, ContrastItem, Profile, Quota
from synth.plan import (
    PlanOptions,
    format_plan,
    load_contrasts,
    load_plan,
    make_plan,
    plan_from_json,
    plan_to_json,
    save_plan,
)
from synth.types import QA, Drop, JsonValue, Outcome, PluginOptions, Provenance, Scene, Skill


def generate(scene: Scene, options: PluginOptions, rng: np.random.Generator) -> Iterator[QA | Drop]:
    raise AssertionError("planning asks nothing")


def recompute(provenance: Provenance) -> str:
    raise AssertionError("planning asks nothing")


def task(name: str, *skills: Skill) -> Task:
    return Task(
        name=name, version=1, skills=skills, needs=(), options=PluginOptions, generate=generate, recompute=recompute
    )


def refused(read: Callable[[Path], object], path: Path, text: str, message: str) -> None:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message) as caught:
        read(path)
    assert caught.value.where == str(path)


def skill(
    which: Skill,
    right: int,
    n: int = 200,
    human: float | None = None,
    chance: float = 0.5,
    answered: int | None = None,
    flags: tuple[str, ...] = (),
) -> CategoryProfile:
    low, high = wilson(right, n)
    spoken = n if answered is None else answered
    return CategoryProfile(
        name=str(which),
        skill=which,
        n=n,
        accuracy=right / n,
        low=low,
        high=high,
        chance=chance,
        human=human,
        balanced=None,
        answered=right / spoken,
        n_answered=spoken,
        n_unscored=0,
        majority_share=0.5,
        majority_letter="A",
        reasons={"refusal": n - spoken} if spoken < n else {},
        flags=flags,
    )


def profile(*skills: CategoryProfile) -> Profile:
    return Profile(
        benchmark="b", model="m", macro=0.5, micro=0.5, chance=0.5, human=None, categories=skills, skills=skills
    )


TASKS = [
    task("depth", Skill.RELATIVE_DEPTH),
    task("count", Skill.COUNTING),
    task("marks", Skill.OBJECT_AT_MARK, Skill.MARK_ON_OBJECT),
    task("marks_too", Skill.OBJECT_AT_MARK),
]


def by_skill(quotas: tuple[Quota, ...]) -> dict[Skill, int]:
    totals: dict[Skill, int] = {}
    for quota in quotas:
        totals[quota.skill] = totals.get(quota.skill, 0) + quota.n
    return totals


def test_budget_follows_the_gap_from_chance() -> None:
    """At chance the whole way is missing; half the way to people is half the quota, whatever chance is."""
    it = profile(
        skill(Skill.RELATIVE_DEPTH, 100, human=1.0),
        skill(Skill.COUNTING, 125, human=1.0, chance=0.25),
        skill(Skill.OBJECT_AT_MARK, 190, chance=0.25),
    )
    plan = make_plan(it, PlanOptions(budget=1000, replay_share=0.1), TASKS)
    totals = by_skill(plan.quotas)
    assert totals == {Skill.RELATIVE_DEPTH: 600, Skill.COUNTING: 300, Skill.OBJECT_AT_MARK: 100}
    assert [(q.task, q.n, q.role) for q in plan.quotas if q.skill is Skill.OBJECT_AT_MARK] == [
        ("marks", 50, "replay"),
        ("marks_too", 50, "replay"),
    ]
    assert plan.quotas[0].skill is Skill.RELATIVE_DEPTH
    assert plan.unserved == ()


def test_replay_goes_by_the_weights_that_are_given() -> None:
    seen = [skill(it, 190) for it in (Skill.MARK_ON_OBJECT, Skill.COLOUR_AT_MARK, Skill.OBJECT_AT_MARK)]
    tasks = [*TASKS, task("colours", Skill.COLOUR_AT_MARK)]
    options = PlanOptions(budget=1000, replay_share=0.4, max_accuracy=0.7, replay_weights={Skill.MARK_ON_OBJECT: 2.0})
    plan = make_plan(profile(skill(Skill.RELATIVE_DEPTH, 100), *seen), options, tasks)
    kept = Counter[Skill]()
    for quota in plan.quotas:
        kept[quota.skill] += quota.n if quota.role == "replay" else 0
    assert +kept == {Skill.MARK_ON_OBJECT: 200, Skill.COLOUR_AT_MARK: 100, Skill.OBJECT_AT_MARK: 100}
    with pytest.raises(ValidationError):
        PlanOptions(replay_weights={Skill.MARK_ON_OBJECT: 0})


@pytest.mark.parametrize("budget", [1, 7, 100, 999, 2000])
@pytest.mark.parametrize("replay_share", [0.0, 0.2, 0.33])
def test_the_whole_budget_is_spent(budget: int, replay_share: float) -> None:
    it = profile(
        skill(Skill.RELATIVE_DEPTH, 103), skill(Skill.COUNTING, 77, chance=0.25), skill(Skill.OBJECT_AT_MARK, 195)
    )
    plan = make_plan(it, PlanOptions(budget=budget, replay_share=replay_share), TASKS)
    assert sum(quota.n for quota in plan.quotas) == budget
    assert all(quota.n > 0 for quota in plan.quotas)
    kept = sum(quota.n for quota in plan.quotas if quota.role == "replay")
    assert kept == round(budget * replay_share)


def test_every_quota_says_why_with_its_numbers() -> None:
    it = profile(skill(Skill.RELATIVE_DEPTH, 120, human=0.99), skill(Skill.COUNTING, 192, human=0.97))
    target, replay = make_plan(it, PlanOptions(budget=100), TASKS).quotas
    for part in ("60.0 %", "of 200", "[53.1, 66.5]", "chance 50.0", "human 99.0", "80 % of the way"):
        assert part in target.why
    assert replay.role == "replay"
    assert "96.0 %" in replay.why


def test_a_gap_must_be_proven() -> None:
    """Sixty of a hundred against 0.7: too few items to say so; the same share of ten thousand says it."""
    options = PlanOptions(budget=100, margin=0.0)
    assert make_plan(profile(skill(Skill.RELATIVE_DEPTH, 60, 100, human=0.69)), options, TASKS).quotas == ()
    assert make_plan(profile(skill(Skill.RELATIVE_DEPTH, 6000, 10000, human=0.69)), options, TASKS).quotas
    assert make_plan(profile(skill(Skill.RELATIVE_DEPTH, 9600, 10000)), options, TASKS).quotas == ()


def test_what_is_left_out_is_named() -> None:
    it = profile(
        skill(Skill.RELATIVE_DEPTH, 100),
        skill(Skill.JIGSAW, 100),
        skill(Skill.COUNTING, 5, n=10),
        skill(Skill.OBJECT_AT_MARK, 100),
        skill(Skill.MARK_ON_OBJECT, 100),
    )
    options = PlanOptions(
        budget=50, skills=(Skill.RELATIVE_DEPTH, Skill.OBJECT_AT_MARK), controls=(Skill.OBJECT_AT_MARK,)
    )
    plan = make_plan(it, options, TASKS)
    assert set(by_skill(plan.quotas)) == {Skill.RELATIVE_DEPTH}
    reasons = dict(text.split(": ", 1) for text in plan.unserved)
    assert reasons["jigsaw"].endswith("no task serves it")
    assert "fewer than 30" in reasons["counting"]
    assert reasons["object_at_mark"].endswith("kept as a control")
    assert "may target" in reasons["mark_on_object"]


def test_controls_are_not_replayed() -> None:
    it = profile(skill(Skill.RELATIVE_DEPTH, 100), skill(Skill.COUNTING, 195))
    plan = make_plan(it, PlanOptions(budget=50, controls=(Skill.COUNTING,)), TASKS)
    assert by_skill(plan.quotas) == {Skill.RELATIVE_DEPTH: 50}


def test_refusal_is_not_a_failure_of_sight() -> None:
    """34 % with half of it refused: the answered half decides, and it says that the skill is there."""
    seen = skill(Skill.RELATIVE_DEPTH, 98, n=200, answered=100, flags=("refuses",))
    weak = skill(Skill.COUNTING, 20, chance=0.25)
    plan = make_plan(profile(seen, weak), PlanOptions(budget=100, replay_share=0.5), TASKS)
    assert {q.skill: q.role for q in plan.quotas} == {Skill.COUNTING: "target", Skill.RELATIVE_DEPTH: "replay"}
    assert "100 answered of 200" in plan.quotas[1].why
    (note,) = [note for note in plan.notes if "prompt" in note]
    assert note.startswith(
        "relative_depth: 100 of 200 without a letter (100 refusal); 98.0 % of the answered are right"
    )


def test_void_keys_and_suspect_keys() -> None:
    void = skill(Skill.RELATIVE_DEPTH, 60, flags=("old_key",))
    suspect = skill(Skill.COUNTING, 10, chance=0.25, flags=("below_chance",))
    plan = make_plan(profile(void, suspect), PlanOptions(budget=10), TASKS)
    assert set(by_skill(plan.quotas)) == {Skill.COUNTING}
    assert "look at the key" in plan.quotas[0].why
    assert "known to be wrong" in plan.unserved[0]


def contrast(which: Skill, trainable: int, ambiguous: int, specialist: str = "depth", chance: float = 0.5) -> Contrast:
    n = trainable + ambiguous
    return Contrast(
        category=str(which),
        specialist=specialist,
        n=n,
        localised=n,
        decided=n,
        specialist_accuracy=trainable / n,
        specialist_low=0.0,
        specialist_high=1.0,
        model_accuracy=0.0,
        chance=chance,
        quadrants={"trainable": trainable, "ambiguous": ambiguous},
        reasons={},
        items=(),
    )


def test_what_a_specialist_misses_too_asks_for_nothing() -> None:
    """Equal gaps; of one skill's errors the specialist mends nine in ten, of the other's six in ten."""
    it = profile(skill(Skill.RELATIVE_DEPTH, 100), skill(Skill.COUNTING, 50, chance=0.25))
    options = PlanOptions(budget=300)
    even = make_plan(it, options, TASKS)
    assert by_skill(even.quotas) == {Skill.RELATIVE_DEPTH: 150, Skill.COUNTING: 150}
    assert any("counting, relative_depth: counted as wholly teachable" in note for note in even.notes)
    contrasts = [contrast(Skill.RELATIVE_DEPTH, 90, 10), contrast(Skill.COUNTING, 60, 40, chance=0.25)]
    plan = make_plan(it, options, TASKS, contrasts)
    assert by_skill(plan.quotas) == {Skill.RELATIVE_DEPTH: 180, Skill.COUNTING: 120}
    assert "a specialist is right on 90 of 100 errors [83, 94 %]" in plan.quotas[0].why
    assert not any("teachable" in note for note in plan.notes)
    best = make_plan(it, options, TASKS, [*contrasts, contrast(Skill.RELATIVE_DEPTH, 20, 80, "worse")])
    assert best.quotas == plan.quotas


def test_a_specialist_that_guesses_teaches_nothing() -> None:
    it = profile(skill(Skill.RELATIVE_DEPTH, 100), skill(Skill.COUNTING, 50, chance=0.25))
    plan = make_plan(it, PlanOptions(budget=300), TASKS, [contrast(Skill.RELATIVE_DEPTH, 55, 45)])
    assert by_skill(plan.quotas) == {Skill.COUNTING: 300}
    assert "right on 55 of 100 errors [45, 64 %], no better than guessing" in plan.unserved[0]
    few = make_plan(it, PlanOptions(budget=300), TASKS, [contrast(Skill.RELATIVE_DEPTH, 5, 4)])
    assert Skill.RELATIVE_DEPTH in by_skill(few.quotas)
    assert any("no specialist judged enough errors" in note for note in few.notes)


def test_contrasts_are_read_as_the_diagnosis_writes_them(tmp_path: Path) -> None:
    items = (
        ContrastItem(
            item_id="1",
            category="relative_depth",
            model_correct=False,
            specialist="A",
            reason="",
            specialist_correct=True,
        ),
    )
    made = (replace(contrast(Skill.RELATIVE_DEPTH, 90, 10), items=items), contrast(Skill.COUNTING, 60, 40))
    path = tmp_path / "contrast.json"
    write_json(path, to_json(made))
    assert load_contrasts(path) == made
    path.write_text('[{"category": "counting"}]', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"0\.specialist") as caught:
        load_contrasts(path)
    assert caught.value.where == str(path)


@pytest.mark.parametrize("budget", [7, 100, 999])
@pytest.mark.parametrize("max_share", [0.1, 0.4, 0.6, 1.0])
def test_no_skill_takes_it_all(budget: int, max_share: float) -> None:
    gaps = ((Skill.RELATIVE_DEPTH, 40), (Skill.COUNTING, 160), (Skill.OBJECT_AT_MARK, 170), (Skill.MARK_ON_OBJECT, 175))
    it = profile(*(skill(which, right, chance=0.05) for which, right in gaps))
    options = PlanOptions(budget=budget, max_share=max_share, replay_share=0)
    totals = by_skill(make_plan(it, options, TASKS).quotas)
    assert sum(totals.values()) == budget
    assert max(totals.values()) <= max(round(max_share * budget), -(-budget // 4))
    if max_share == 0.4 and budget == 999:
        first = make_plan(it, options, TASKS).quotas[0]
        assert (first.n, "held at the cap" in first.why) == (400, True)
        free = make_plan(it, options.model_copy(update={"max_share": 1.0}), TASKS).quotas[0]
        assert free.n > 400 and "held at the cap" not in free.why


def outcomes() -> list[Outcome]:
    return [
        Outcome(
            item_id=f"secret-item-{i}",
            category="secret category",
            skill=Skill.RELATIVE_DEPTH,
            model="m",
            text="secret reply",
            letter="A" if i % 9 else None,
            reason=None if i % 9 else "refusal",
            gold="AB"[i % 2],
            correct=i % 2 == 0 and i % 9 != 0,
            n_options=2,
            n_images=1,
            group=f"secret-group-{i}",
            tags={"secret-tag": "secret"},
        )
        for i in range(200)
    ]


def test_a_plan_holds_nothing_of_the_benchmark(tmp_path: Path) -> None:
    """Neither ids nor categories, replies, groups or tags pass into what generation reads."""
    made = make_profile(outcomes(), round_number=1)
    plan = make_plan(made, PlanOptions(budget=50), TASKS, [contrast(Skill.RELATIVE_DEPTH, 50, 5)])
    assert plan.quotas
    save_plan(tmp_path / "plan.json", plan)
    assert "secret" not in (tmp_path / "plan.json").read_text(encoding="utf-8")


def test_the_held_out_fold_does_not_move_the_plan() -> None:
    run = outcomes()
    hidden = {outcome.item_id for outcome in held_out(run, 2)}
    changed = [replace(o, letter=o.gold, correct=True, reason=None) if o.item_id in hidden else o for o in run]
    plans = [make_plan(make_profile(it, round_number=2), PlanOptions(), TASKS) for it in (run, changed)]
    assert plans[0] == plans[1]
    assert plans[0].fold == 2
    assert "without the fold 2" in plans[0].notes[0]
    seen = make_plan(make_profile(changed), PlanOptions(), TASKS)
    assert seen.fold is None
    assert "no fold is held out" in seen.notes[0]
    assert plan_from_json(plan_to_json(plans[0])) == plans[0]


def test_nothing_weak_plans_nothing() -> None:
    plan = make_plan(profile(skill(Skill.RELATIVE_DEPTH, 199), skill(Skill.COUNTING, 198)), PlanOptions(), TASKS)
    assert plan.quotas == ()
    assert "no quotas" in format_plan(plan)


def test_round_trip(tmp_path: Path) -> None:
    it = profile(skill(Skill.RELATIVE_DEPTH, 100), skill(Skill.COUNTING, 195), skill(Skill.JIGSAW, 90))
    plan = make_plan(it, PlanOptions(budget=300), TASKS)
    assert plan_from_json(plan_to_json(plan)) == plan
    save_plan(tmp_path / "plan.json", plan)
    assert load_plan(tmp_path / "plan.json") == plan
    table = format_plan(plan)
    assert "300  pairs in all" in table
    assert "unserved: jigsaw" in table


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "expected an object"),
        ("{}", "no key quotas"),
        ('{"quotas": [], "budget": 3}', "unknown key budget"),
        ('{"quotas": [{"task": "depth", "skill": "flying", "n": 3, "why": ""}]}', "skill"),
        ('{"quotas": [{"task": "depth", "skill": "counting", "n": 0, "why": ""}]}', "below 1"),
        ('{"quotas": [{"task": "depth", "skill": "counting", "n": 9, "why": "", "contrast": 2}]}', "share from 0 to 1"),
    ],
)
def test_wrong_plans_are_refused(tmp_path: Path, text: str, message: str) -> None:
    refused(load_plan, tmp_path / "plan.json", text, message)


def test_options_are_strict() -> None:
    with pytest.raises(ValidationError, match="replay"):
        PlanOptions.model_validate({"replay": 0.2})
    with pytest.raises(ValidationError):
        PlanOptions(budget=0)


def test_difficulty_is_asked_of_targets_only_and_survives_the_file(tmp_path: Path) -> None:
    it = profile(skill(Skill.RELATIVE_DEPTH, 100), skill(Skill.OBJECT_AT_MARK, 190, chance=0.25))
    plan = make_plan(it, PlanOptions(budget=100, difficulty={"easy": 0.5, "hard": 0.25}), TASKS)
    asked = {(quota.role, str(quota.difficulty)) for quota in plan.quotas}
    assert asked == {("target", "{'easy': 0.5, 'hard': 0.25}"), ("replay", "{}")}
    save_plan(tmp_path / "plan.json", plan)
    assert load_plan(tmp_path / "plan.json") == plan
    with pytest.raises(ValidationError):
        PlanOptions.model_validate({"difficulty": {"easy": 2}})


# ------------------------------------------------------------------------------------------------- blind or misread


def cell(
    which: Skill, blind: int, misreads: int, *, region: str = "around_marks", calibrated: bool = True
) -> JsonValue:
    """A cell as `s2p sensitivity` writes it."""
    swap = Swapped(n=10, follows=0.5, low=0.2, high=0.8, both_right=0.1)
    written = GroundingCell(
        skill=which,
        region=region,  # type: ignore[arg-type]
        n=100,
        n_controlled=100,
        median_kl=0.1,
        median_js=0.1,
        median_delta_gold=None,
        median_fill=0.1,
        median_control=0.1,
        net=0.0,
        net_low=0.0,
        net_high=0.0,
        superiority=0.5,
        p=0.5,
        p_holm=0.5,
        verdict="no evidence",
        threshold=0.1,
        calibrated=calibrated,
        sensitive=0.1,
        sensitive_low=0.1,
        sensitive_high=0.1,
        sensitive_fixed=0.1,
        ladder={"2": 0.1},
        changed={"2": 0.1},
        quadrants={"grounded_right": 20, "blind_right": 10, "misreads": misreads, "blind_wrong": blind},
        misreads=0.1,
        blind_wrong=0.1,
        confident_blind_wrong=1,
        swap=swap,
    )
    return json.loads(json.dumps(asdict(written)))


def looked(tmp_path: Path, *cells: JsonValue, model: str = "m", benchmark: str = "b") -> SensitivityFile:
    path = tmp_path / "sensitivity.json"
    write_json(path, {"model": model, "benchmark": benchmark, "options": {}, "cells": list(cells), "left_out": {}})
    return load_sensitivity(path)


TWO = profile(skill(Skill.RELATIVE_DEPTH, 110), skill(Skill.COUNTING, 110))
TWINNED = [replace(TASKS[0], twins=(Skill.RELATIVE_DEPTH,)), *TASKS[1:]]
EVEN = PlanOptions(budget=1000, replay_share=0.0)


def test_a_blind_skill_is_taught_by_contrast_pairs(tmp_path: Path) -> None:
    plan = make_plan(TWO, EVEN, TWINNED, sensitivity=looked(tmp_path, cell(Skill.RELATIVE_DEPTH, 30, 6)))
    depth, count = sorted(plan.quotas, key=lambda quota: quota.task, reverse=True)
    assert (depth.contrast, count.contrast) == (0.5, 0.0) and depth.n == count.n == 500
    low, high = wilson(30, 36)
    assert f"30 of 36 wrong answers are blind [{100 * low:.0f}, {100 * high:.0f} %]" in depth.why
    assert depth.why.endswith("50 % as contrast pairs") and "contrast" not in count.why
    assert any(note.startswith("counting: no calibrated sensitivity") for note in plan.notes)
    save_plan(tmp_path / "plan.json", plan)
    assert load_plan(tmp_path / "plan.json") == plan
    other = make_plan(
        TWO,
        replace_options(EVEN, twin_share=0.8),
        TWINNED,
        sensitivity=looked(tmp_path, cell(Skill.RELATIVE_DEPTH, 30, 6)),
    )
    assert {quota.contrast for quota in other.quotas} == {0.8, 0.0}


def replace_options(options: PlanOptions, **changes: object) -> PlanOptions:
    return PlanOptions.model_validate({**options.model_dump(), **changes})


def test_a_blind_skill_without_contrast_pairs_is_named(tmp_path: Path) -> None:
    plan = make_plan(TWO, EVEN, TWINNED, sensitivity=looked(tmp_path, cell(Skill.COUNTING, 40, 2)))
    assert all(quota.contrast == 0 for quota in plan.quotas)
    assert any(note.startswith("counting: 40 of 42") and "no task makes contrast pairs" in note for note in plan.notes)


def test_a_misread_skill_gets_more_pairs_and_not_the_hard_ones(tmp_path: Path) -> None:
    seen = looked(tmp_path, cell(Skill.RELATIVE_DEPTH, 6, 30))
    options = replace_options(EVEN, difficulty={"easy": 0.2, "hard": 0.8})
    depth, count = sorted(make_plan(TWO, options, TWINNED, sensitivity=seen).quotas, key=lambda q: q.task, reverse=True)
    assert (depth.n, count.n) == (556, 444), "1.25 to 1"
    assert depth.contrast == 0 and "30 of 36 wrong answers are misread" in depth.why and "1.25 times" in depth.why
    assert count.difficulty == {"easy": 0.2, "hard": 0.8}
    assert depth.difficulty == {
        "easy": pytest.approx(2 / 3, abs=1e-3),
        "medium": 0,
        "hard": pytest.approx(1 / 3, abs=1e-3),
    }
    mild = replace_options(EVEN, difficulty={"easy": 0.7, "hard": 0.3})
    assert all(
        q.difficulty == {"easy": 0.7, "hard": 0.3} for q in make_plan(TWO, mild, TWINNED, sensitivity=seen).quotas
    )
    capped = replace_options(EVEN, max_share=0.52)
    assert max(quota.n for quota in make_plan(TWO, capped, TWINNED, sensitivity=seen).quotas) == 520


@pytest.mark.parametrize(
    "cells",
    [
        [cell(Skill.RELATIVE_DEPTH, 40, 2, region="whole_image")],
        [cell(Skill.RELATIVE_DEPTH, 40, 2, calibrated=False)],
        [cell(Skill.RELATIVE_DEPTH, 18, 14)],
        [cell(Skill.RELATIVE_DEPTH, 9, 0)],
        [cell(Skill.RELATIVE_DEPTH, 20, 2), cell(Skill.RELATIVE_DEPTH, 2, 20, region="boxes")],
        [],
    ],
    ids=["whole image", "uncalibrated", "half and half", "few", "regions differ", "nothing"],
)
def test_what_proves_nothing_changes_nothing(tmp_path: Path, cells: list[JsonValue]) -> None:
    plan, without = make_plan(TWO, EVEN, TWINNED, sensitivity=looked(tmp_path, *cells)), make_plan(TWO, EVEN, TWINNED)
    assert plan.quotas == without.quotas
    (note,) = [note for note in plan.notes if note.startswith("relative_depth:")]
    assert "too little" in note or "no calibrated sensitivity" in note


def test_cells_of_known_regions_are_added_up_and_others_do_not_count(tmp_path: Path) -> None:
    seen = looked(
        tmp_path,
        cell(Skill.RELATIVE_DEPTH, 8, 1),
        cell(Skill.RELATIVE_DEPTH, 7, 2, region="boxes"),
        cell(Skill.RELATIVE_DEPTH, 0, 90, region="whole_image"),
        cell(Skill.RELATIVE_DEPTH, 0, 90, region="with_marks", calibrated=False),
    )
    (depth,) = [q for q in make_plan(TWO, EVEN, TWINNED, sensitivity=seen).quotas if q.task == "depth"]
    assert depth.contrast == 0.5 and "15 of 18 wrong answers are blind" in depth.why


def test_a_sensitivity_file_of_another_benchmark_is_refused_and_of_another_name_told(tmp_path: Path) -> None:
    seen = looked(tmp_path, cell(Skill.COUNTING, 9, 9), benchmark="other")
    with pytest.raises(ConfigError, match="'other', the profile is of"):
        make_plan(TWO, EVEN, TWINNED, sensitivity=seen)
    make_plan(replace(TWO, benchmark=""), EVEN, TWINNED, sensitivity=seen)
    named = looked(tmp_path, cell(Skill.COUNTING, 9, 9), model="org/other")
    assert any("'org/other'" in note for note in make_plan(TWO, EVEN, TWINNED, sensitivity=named).notes)
    nameless = make_plan(replace(TWO, model=""), EVEN, TWINNED, sensitivity=named)
    assert not any("'org/other'" in note for note in nameless.notes)


def test_a_held_out_fold_is_told_apart_from_what_was_looked_at(tmp_path: Path) -> None:
    seen = looked(tmp_path, cell(Skill.RELATIVE_DEPTH, 30, 6))
    assert not any("fold out" in note for note in make_plan(TWO, EVEN, TWINNED, sensitivity=seen).notes)
    assert any("fold out" in note for note in make_plan(replace(TWO, fold=2), EVEN, TWINNED, sensitivity=seen).notes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "JSON"),
        ('{"model": "m", "benchmark": "b"}', "cells"),
        ('{"model": "m", "benchmark": "b", "cells": [{"skill": "flying"}]}', "cells.0.skill"),
        (
            '{"model": "m", "benchmark": "b", "cells": [{"skill": "counting", "region": "boxes", "calibrated": 1, '
            '"quadrants": {"misreads": 1, "blind_wrong": 2}}]}',
            "calibrated",
        ),
        (
            '{"model": "m", "benchmark": "b", "cells": [{"skill": "counting", "region": "boxes", "calibrated": true, '
            '"quadrants": {"misreads": 0.1, "blind_wrong": 2}}]}',
            "misreads",
        ),
    ],
)
def test_wrong_sensitivity_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    refused(load_sensitivity, tmp_path / "sensitivity.json", text, message)


def test_the_kinds_of_region_are_those_of_the_measurement() -> None:
    assert get_args(Cell.model_fields["region"].annotation) == get_args(RegionKind)


def test_the_command_line_takes_the_file(tmp_path: Path) -> None:
    from finetune.cli import main

    write_json(tmp_path / "profile.json", profile_to_json(TWO))
    looked(tmp_path, cell(Skill.RELATIVE_DEPTH, 30, 6))
    given = [
        "plan",
        "--profile",
        str(tmp_path / "profile.json"),
        "--budget",
        "100",
        "--out",
        str(tmp_path / "plan.json"),
    ]
    assert main([*given, "--sensitivity", str(tmp_path / "sensitivity.json")]) == 0
    shares = {quota.task: quota.contrast for quota in load_plan(tmp_path / "plan.json").quotas}
    assert shares == {"relative_depth": 0.5, "counting": 0.0}
    assert main([*given, "--sensitivity", str(tmp_path / "none.json")]) == 2
