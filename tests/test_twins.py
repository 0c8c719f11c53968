"""Contrast pairs: same photo, same words, two pictures, opposite answers; both members in the dataset, or neither."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

import synth.drawing
import synth.work
from synth.audit.cues import Asked
from synth.audit.shortcuts import find_shortcuts
from synth.audit.thinning import thin
from synth.checks.recompute import stored
from synth.dataset.assemble import Light, choose_quota, pair_up, select
from synth.dataset.explain import explain
from synth.dataset.rows import draw
from synth.dataset.shards import read_rows
from synth.errors import ConfigError
from synth.findings import Plan, Quota
from synth.geometry import generator
from synth.pipeline import generate
from synth.plugins import CHECKS, TASKS, load, load_all
from synth.recipe import Recipe, TaskConfig, quotas_of, resolve_recipe, run_identity
from synth.twins import KEY, is_drawn, twin_key, twins_of
from synth.types import Drop, Skill, Verdict
from tests.scenes import folder_with_truth
from tests.test_shortcuts import leaky
from tests.toy import ask, room

ROOMS = [room(seed) for seed in range(4)]
TWINNED = {task.name: task for task in load_all(TASKS) if task.twins}


def asked(name: str) -> list:
    task = TWINNED[name]
    found = ((qa, scene) for scene in ROOMS for seed in range(3) for qa in ask(name, scene, seed)[0])
    return [(qa, scene) for qa, scene in found if qa.skill in task.twins]


def test_the_tasks_that_ask_about_two_letters_have_twins() -> None:
    assert {name: task.twins for name, task in TWINNED.items()} == {
        "left_right": (Skill.LEFT_RIGHT,),
        "recognition": (Skill.MARK_ON_OBJECT,),
        "relative_depth": (Skill.RELATIVE_DEPTH,),
    }


@pytest.mark.parametrize("name", TWINNED)
def test_a_twin_has_the_same_words_and_the_other_answer(name: str) -> None:
    task = TWINNED[name]
    for qa, scene in asked(name):
        pair = twins_of(qa, task)
        assert pair is not None
        first, second = pair
        for one in pair:
            assert task.recompute(stored(one.provenance)) == one.answer
            assert all(check.judge(one, scene, task) == Verdict(keep=True) for check in load_all(CHECKS))
            assert twin_key(one.provenance.measures) == qa.qa_id
        alike = ("task", "skill", "image_id", "question", "choices", "stratum", "difficulty")
        assert all(getattr(first, field) == getattr(second, field) for field in alike)
        assert {first.answer, second.answer} == {"A", "B"} and first.qa_id == qa.qa_id != second.qa_id
        here, there = ({mark.label: (mark.x, mark.y) for mark in one.panels[0].marks} for one in pair)
        assert here == {"A": there["B"], "B": there["A"]} and here["A"] != here["B"]
        back = twins_of(replace(second, provenance=_without_key(second)), task)
        assert back is not None and back[1].panels == qa.panels and back[1].qa_id == qa.qa_id


def _without_key(qa: object) -> object:
    measures = {name: value for name, value in qa.provenance.measures.items() if name != KEY}  # type: ignore[attr-defined]
    return replace(qa.provenance, measures=measures)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", TWINNED)
def test_the_numbers_go_with_the_marks(name: str) -> None:
    """What the twin's provenance says of A is what lies under A in its own picture."""
    for qa, _ in asked(name):
        first, second = twins_of(qa, TWINNED[name])
        for one in (first, second):
            marks = {mark.label: (mark.x, mark.y) for mark in one.panels[0].marks}
            measures = one.provenance.measures
            told = measures.get("points_px") or {
                label: (measures["x_px"][label], measures["y_px"][label]) for label in "AB"
            }
            assert {label: tuple(place) for label, place in told.items()} == marks
        if name == "relative_depth":
            for mine, other in zip(
                first.provenance.measures["members"], second.provenance.measures["members"], strict=True
            ):
                for kind, values in mine.items():
                    if isinstance(values, dict):
                        assert other[kind] == {"A": values["B"], "B": values["A"]}
        if name == "recognition":
            asked_for, label_at = second.provenance.measures["object"], second.provenance.measures["label_at"]
            assert label_at[second.provenance.options["AB".index(second.answer)]] == asked_for


def test_the_two_pictures_differ_at_the_marks_alone() -> None:
    qa, scene = asked("relative_depth")[0]
    one, other = (draw(member, scene, "png")[0] for member in twins_of(qa, TWINNED["relative_depth"]))
    changed = (one.rgb != other.rgb).any(axis=2)
    outside = np.ones_like(changed)
    for x1, y1, x2, y2 in (*one.drawn, *other.drawn):
        outside[max(0, int(y1) - 1) : int(y2) + 2, max(0, int(x1) - 1) : int(x2) + 2] = False
    assert changed.sum() > 20 and not changed[outside].any()


def test_other_questions_have_no_twin() -> None:
    recognition = load(TASKS, "recognition")
    others = [qa for scene in ROOMS for qa in ask("recognition", scene)[0] if qa.skill is not Skill.MARK_ON_OBJECT]
    assert others and all(twins_of(qa, recognition) is None for qa in others)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 1.0])
def test_so_many_questions_get_a_twin_that_the_share_of_pairs_comes_out(share: float) -> None:
    drawn = sum(is_drawn(f"q{k}", share, 0) for k in range(20_000))
    assert abs(2 * drawn / (20_000 + drawn) - share) < 0.015


# ------------------------------------------------------------------------------------------------------------ choosing


def lights(n: int, twins: int, lower: float = 0.7) -> list[Light]:
    """n questions that stand alone, and so many contrast pairs; strata and difficulty at random."""
    rng = generator(3, "lights")
    out = []
    for k in range(n + twins):
        stratum = "lower" if rng.random() < lower else "higher"
        letter = "AB"[int(rng.integers(2))]
        one = Light(
            f"q{k}", "relative_depth", "relative_depth", stratum, letter, f"i{k // 3}", "g", float(rng.random())
        )
        if k < n:
            out.append(one)
        else:
            out += [
                replace(one, twin=f"q{k}"),
                replace(one, twin=f"q{k}", qa_id=f"t{k}", answer="BA"["AB".index(letter)]),
            ]
    return out


def quota(n: int, contrast: float, **more: object) -> Quota:
    return Quota(task="relative_depth", skill=Skill.RELATIVE_DEPTH, n=n, why="", contrast=contrast, **more)


def whole(kept: list[Light]) -> bool:
    """No member of a contrast pair without the other."""
    return set(Counter(row.twin for row in kept if row.twin).values()) <= {2}


@pytest.mark.parametrize("difficulty", [{}, {"easy": 0.5, "medium": 0.3, "hard": 0.2}])
@pytest.mark.parametrize("contrast", [0.1, 0.5, 0.77, 1.0])
def test_the_share_is_kept_and_letters_and_strata_stay_even(contrast: float, difficulty: dict[str, float]) -> None:
    candidates = lights(2000, 2000)
    kept, drops = choose_quota(candidates, quota(301, contrast, difficulty=difficulty), 0, ("lower", "higher"))
    assert 300 <= len(kept) <= 301 and len({row.qa_id for row in kept}) == len(kept)
    assert abs(sum(bool(row.twin) for row in kept) - 301 * contrast) <= 1 and whole(kept)
    letters, strata = Counter(row.answer for row in kept), Counter(row.stratum for row in kept)
    slack = 3 if not difficulty else 12  # each band is even by itself, and there are three, and the rest
    assert abs(letters["A"] - letters["B"]) <= slack and abs(strata["lower"] - strata["higher"]) <= slack
    assert sum(drop.count for drop in drops) == len(candidates) - len(kept)
    assert (
        choose_quota(candidates[::-1], quota(301, contrast, difficulty=difficulty), 0, ("lower", "higher"))[0] == kept
    )


def test_what_one_kind_lacks_comes_from_the_other() -> None:
    few_twins, _ = choose_quota(lights(1000, 12), quota(200, 0.5), 0)
    assert len(few_twins) == 200 and 0 < sum(bool(row.twin) for row in few_twins) <= 24 and whole(few_twins)
    few_alone, _ = choose_quota(lights(12, 1000), quota(200, 0.5), 0)
    assert len(few_alone) == 200 and sum(bool(row.twin) for row in few_alone) >= 188 and whole(few_alone)


def test_a_quota_without_contrast_pairs_is_chosen_as_ever() -> None:
    from synth.balance import choose

    candidates = lights(500, 0)
    assert choose_quota(candidates, quota(100, 0.5), 0) == choose(candidates, 100, 0)


def test_a_member_without_its_twin_is_left_out_and_counted() -> None:
    candidates = [row for row in lights(40, 40, lower=0.5) if row.qa_id not in ("q41", "t42")]
    chosen = select(candidates, Plan(quotas=(quota(200, 0.5),)), 0)
    assert not {"t41", "q42"} & {row.qa_id for row in chosen.kept} and whole(list(chosen.kept))
    (lost,) = [drop for drop in chosen.drops if drop.reason == "twin_lost"]
    assert lost.count == 2 and lost.example in ("t41", "q42") and lost.stage == "balance"
    assert len(chosen.kept) + sum(drop.count for drop in chosen.drops) == len(candidates)
    alone, joined = pair_up(candidates)
    assert len(alone) == 40 and len(joined.units) == 38


def test_thinning_takes_both_or_neither() -> None:
    pairs: list[Asked] = []
    for pair in leaky(1600):
        shown = pair.pictures[-1]
        places = {mark.label: (mark.x, mark.y) for mark in shown.marks}
        there = {"A": places["B"], "B": places["A"]}
        marks = tuple(replace(mark, x=there[mark.label][0], y=there[mark.label][1]) for mark in shown.marks)
        second = replace(shown, marks=marks, drawn=tuple(reversed(shown.drawn)))
        pairs += [
            replace(pair, twin=pair.qa_id),
            replace(
                pair,
                twin=pair.qa_id,
                qa_id=f"t{pair.qa_id}",
                answer=1 - pair.answer,
                pictures=(pair.pictures[0], second),
            ),
        ]
    lost = thin(pairs, seed=0).left_out
    assert 300 < len(lost) < 2800 and all((f"t{qa_id}" in lost) for qa_id in lost if qa_id.startswith("q"))
    assert sum(qa_id.startswith("q") for qa_id in lost) == len(lost) / 2
    found = find_shortcuts([pair for pair in pairs if pair.qa_id not in lost])
    assert not found.leaks, "where marks lie gives twins away as it does any pair, so they are thinned as well"


# ------------------------------------------------------------------------------------------------------------- the run


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("twins")
    folder_with_truth(root / "photos", 12, group_of=2)
    return root


def recipe(world: Path) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "twins",
            "source": {"name": "folder", "path": str(world / "photos")},
            "perception": {"depth": {"name": "truth"}, "regions": {"name": "truth"}, "cache": None},
            "tasks": {"relative_depth": {"n": 24, "contrast": 0.5}, "left_right": {"n": 8}},
            "guard": {"unguarded": True},
            "output": {"validation_share": 0.3, "evidence": 0},
        }
    )


def by_key(dataset: Path) -> dict[str, list[dict]]:
    found: dict[str, list[dict]] = {}
    for row in read_rows(dataset):
        key = twin_key(json.loads(row["provenance"])["measures"])
        if key:
            found.setdefault(key, []).append(row)
    return found


def ledger(dataset: Path) -> Counter[str]:
    drops: Counter[str] = Counter()
    for drop in pq.read_table(dataset / "drops.parquet").to_pylist():
        drops[drop["reason"]] += drop["count"]
    return drops


def test_a_run_writes_whole_contrast_pairs_and_says_how_many(world: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    manifest = generate(recipe(world), out)
    pairs = by_key(out)
    assert manifest["pairs"]["by_skill"]["relative_depth"] == 24
    assert manifest["pairs"]["twins"] == {"relative_depth": 2 * len(pairs)} == {"relative_depth": 12}
    asked_for = {row["task"]: row for row in manifest["quotas"]}
    assert asked_for["relative_depth"]["contrast"] == 0.5 and "contrast" not in asked_for["left_right"]
    files = {
        row["qa_id"]: path
        for path in (out / "data").iterdir()
        for row in pq.read_table(path, columns=["qa_id"]).to_pylist()
    }
    for key, members in pairs.items():
        first, second = members
        assert first["question"] == second["question"] and first["choices"] == second["choices"]
        assert {first["answer"], second["answer"]} == {"A", "B"}
        assert first["images"][0]["bytes"] != second["images"][0]["bytes"]
        assert first["image_ids"] == second["image_ids"] and key in (first["qa_id"], second["qa_id"])
        assert files[first["qa_id"]] == files[second["qa_id"]], "one split"
        assert all(explain(out, row["qa_id"]).agrees for row in members)
    assert "relative_depth 12 come as contrast pairs" in (out / "README.md").read_text(encoding="utf-8")
    assert "twin_lost" not in ledger(out)


def test_what_the_guard_throws_out_takes_its_twin_along(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One member of each of two contrast pairs is thrown out after it was drawn; others take their places."""
    look = synth.drawing._row
    thrown: list[str] = []

    def row(kit, candidate, scene, shard):  # type: ignore[no-untyped-def]
        if len(thrown) < 2 and twin_key(candidate.qa.provenance.measures) not in ("", candidate.qa.qa_id):
            thrown.append(candidate.qa.qa_id)
            return None, [{"verdict": "scene", "match": "bench_1", "stage": "local"}]
        return look(kit, candidate, scene, shard)

    monkeypatch.setattr(synth.drawing, "_row", row)
    manifest = generate(recipe(world), tmp_path / "out")
    pairs = by_key(tmp_path / "out")
    assert len(thrown) == 2 and not set(thrown) & {row["qa_id"] for row in read_rows(tmp_path / "out", ["qa_id"])}
    assert all(len(members) == 2 for members in pairs.values())
    assert manifest["pairs"]["twins"]["relative_depth"] == 12, "two more pairs were drawn for the two that fell"
    assert ledger(tmp_path / "out")["twin_lost"] == ledger(tmp_path / "out")["output_scene"] == 2


def test_what_a_check_throws_out_takes_its_twin_along(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = synth.work._judged
    thrown: list[str] = []

    def judged(qa, scene, task, checks):  # type: ignore[no-untyped-def]
        if len(thrown) < 3 and twin_key(qa.provenance.measures):
            thrown.append(twin_key(qa.provenance.measures))
            return Drop(stage="check", task=qa.task, image=scene.view.name, reason="marks:off")
        return judge(qa, scene, task, checks)

    monkeypatch.setattr(synth.work, "_judged", judged)
    generate(recipe(world), tmp_path / "out")
    kept = {row["qa_id"] for row in read_rows(tmp_path / "out", ["qa_id"])}
    assert len(thrown) == 3 and not set(thrown) & kept
    assert ledger(tmp_path / "out")["twin_lost"] == ledger(tmp_path / "out")["marks:off"] == 3
    assert all(len(members) == 2 for members in by_key(tmp_path / "out").values())


def test_contrast_pairs_are_asked_only_of_tasks_that_make_them() -> None:
    base = {"name": "x", "source": {"name": "folder", "path": "."}}
    both = Recipe.model_validate({**base, "tasks": {"recognition": {"n": 10, "contrast": 0.5}}})
    shares = {quota.skill: quota.contrast for quota in quotas_of(both, None).quotas}
    assert shares.pop(Skill.MARK_ON_OBJECT) == 0.5 and set(shares.values()) == {0.0}
    never = Recipe.model_validate({**base, "tasks": {"counting": {"n": 10, "contrast": 0.5}}})
    with pytest.raises(ConfigError, match="no contrast pairs") as caught:
        quotas_of(never, None)
    assert caught.value.where == "tasks.counting.contrast"
    with pytest.raises(ValidationError):
        TaskConfig(n=3, contrast=1.2)


def test_the_recipes_share_is_the_least_that_a_plans_targets_get() -> None:
    recipe = Recipe.model_validate(
        {
            "name": "x",
            "source": {"name": "folder", "path": "."},
            "plan": "plan.json",
            "tasks": {"relative_depth": {"contrast": 0.5}, "recognition": {"contrast": 0.5}},
        }
    )
    quotas = [
        quota(9, 0.2),
        quota(9, 0.8),
        quota(9, 0.0, role="replay"),
        Quota(task="recognition", skill=Skill.COLOUR_AT_MARK, n=4, why=""),
        Quota(task="left_right", skill=Skill.LEFT_RIGHT, n=4, why=""),
    ]
    found = quotas_of(recipe, Plan(quotas=tuple(quotas), fold=2))
    assert [it.contrast for it in found.quotas] == [0.5, 0.8, 0.0, 0.0, 0.0] and found.fold == 2


def test_a_plan_that_asks_for_contrast_pairs_of_another_skill_is_refused_and_the_share_is_part_of_the_run() -> None:
    it = Recipe.model_validate({"name": "x", "source": {"name": "folder", "path": "."}, "plan": "plan.json"})
    colour = Quota(task="recognition", skill=Skill.COLOUR_AT_MARK, n=4, why="", contrast=0.5)
    with pytest.raises(ConfigError, match="recognition makes no contrast pairs of colour_at_mark") as caught:
        resolve_recipe(it, Plan(quotas=(colour,)))
    assert caught.value.where == "plan.json"
    runs = {run_identity(it, Plan(quotas=(quota(9, share),)), (), "", "1") for share in (0.0, 0.5, 0.6)}
    assert len(runs) == 3
