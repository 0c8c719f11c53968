"""What is true of one run: every field of a profile, its alarms, its keys and its held-out fold."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from synth.benchmarks import blink
from synth.diagnosis import keys
from synth.diagnosis.folds import FOLDS, fold_for_round, folds_of, held_out, planning
from synth.diagnosis.profile import (
    Beside,
    format_table,
    key_hash,
    make_profile,
    profile_from_json,
    profile_to_json,
)
from synth.diagnosis.reading import read_results
from synth.findings import CategoryProfile, Profile, Suspect
from synth.types import Outcome
from tests.test_diagnosis import outcome

MODELS = (
    "GPT4V", "GPT4o", "GeminiProVision", "llava-v1.6-34b", "llava_v1.5_7b", "instructblip_7b", "Yi_VL_6B",
    "cogvlm-chat",
)  # fmt: skip


def only(outcomes: Sequence[Outcome], beside: Beside | None = None) -> CategoryProfile:
    profile = make_profile(outcomes) if beside is None else make_profile(outcomes, beside=beside)
    return profile.categories[0]


@pytest.fixture(scope="module")
def trusted(shared: Path) -> dict[str, list[Outcome]]:
    return {name: read_results(shared / "blink_outputs" / name, trust_released=True) for name in MODELS}


@pytest.fixture(scope="module")
def profiles(trusted: dict[str, list[Outcome]]) -> dict[str, Profile]:
    return {name: make_profile(outcomes, blink.BENCHMARK) for name, outcomes in trusted.items()}


# -------------------------------------------------------------------------------------------------- the eight models


def test_errors_of_real_runs_add_up_to_what_is_wrong(profiles: dict[str, Profile]) -> None:
    for profile in profiles.values():
        for it in (*profile.categories, *profile.skills):
            wrong = it.n - round(it.accuracy * it.n)
            assert sum(it.errors.values()) == wrong
            assert it.errors.get("refusal", 0) == it.reasons.get("refusal", 0)
            assert it.upper == pytest.approx(it.accuracy + (it.n - it.n_answered) / it.n)
            assert sum(it.gold.values()) == it.n
            assert sum(it.letters.values()) == it.n_answered


def test_known_cells(profiles: dict[str, Profile]) -> None:
    """Figures of the published outputs: letters of the collapsed cells, refusals, best constant answers."""
    cells = {name: {it.name: it for it in profile.categories} for name, profile in profiles.items()}
    view = cells["GPT4o"]["Multi-view_Reasoning"]
    assert (view.letters, view.gold) == ({"A": 5, "B": 128}, {"A": 59, "B": 74})
    assert round(100 * view.constant, 1) == 55.6
    assert view.errors == {"letter_bias": 54}
    forensic = cells["GPT4V"]["Forensic_Detection"]
    assert forensic.errors["refusal"] == 65
    assert round(100 * forensic.upper, 1) == 83.3
    assert round(100 * cells["GPT4V"]["IQ_Test"].constant, 1) == 26.7
    assert cells["GPT4o"]["Visual_Correspondence"].p_chance < 1e-30
    assert cells["GPT4V"]["IQ_Test"].p_chance > 0.5
    assert view.needed == {"+5": 626, "+10": 155}


def test_the_table_fits_a_terminal(profiles: dict[str, Profile]) -> None:
    for profile in profiles.values():
        assert max(map(len, format_table(profile).splitlines())) <= 120


def test_routing_is_about_the_way_from_chance(profiles: dict[str, Profile]) -> None:
    """74 % where guessing gives 50 and people 99 is not yet half the way; 80 % where guessing gives 25 is far more."""
    routing = profiles["GPT4o"].routing
    assert "Relative_Depth" in routing
    assert "Forensic_Detection" not in routing
    everything = make_profile(
        [outcome(i, "AB"[i % 2], "AB"[i % 2] if i % 4 else "A") for i in range(100)], routing=0.51
    )
    assert everything.routing == ()
    assert make_profile([outcome(i, "A", "AB"[i % 2]) for i in range(40)], routing=0.01).routing == ("Relative_Depth",)


# ------------------------------------------------------------------------------------------------------ error taxonomy


def test_each_wrong_item_has_one_kind() -> None:
    made = [
        *(outcome(i, "A", "A") for i in range(6)),
        outcome(10, "A", None, "refusal"),
        outcome(11, "A", None, "truncated"),
        outcome(12, "A", None, "ambiguous"),
        outcome(13, "A", None, "conflict"),
        outcome(14, "B", "A"),
        outcome(15, "A", "B"),
    ]
    suspect = Suspect(item_id="x14", category="Relative_Depth", gold="B", said="A", agree=5, answered=5)
    it = only(made, Beside(suspects=[suspect]))
    assert it.errors == {"refusal": 1, "truncated": 1, "unparsed": 2, "suspect_label": 1, "perception": 1}
    assert "suspect_labels" in it.flags
    # Another wrong letter than the one that the other models agree on is no sign of a wrong key.
    other = only(made, Beside(suspects=[replace(suspect, said="C")]))
    assert other.errors["perception"] == 2


def test_letter_bias_needs_a_collapse() -> None:
    collapsed = [outcome(i, "AB"[i % 2], "B" if i == 2 else "A") for i in range(40)]
    assert only(collapsed).errors == {"letter_bias": 20, "perception": 1}
    spread = [outcome(i, "AB"[i % 2], "AABBBAAB"[i % 8]) for i in range(40)]
    assert set(only(spread).errors) == {"perception"}


def test_conflicts_are_scored_both_ways() -> None:
    made = [outcome(i, "A", "A") for i in range(5)]
    for i, (by_letter, by_text) in enumerate([("A", "B"), ("A", "B"), ("B", "A")]):
        tags = {"conflict_letter": by_letter, "conflict_text": by_text}
        made.append(replace(outcome(10 + i, "A", None, "conflict"), tags=tags))
    made += [outcome(20, "A", None, "refusal"), outcome(21, "A", "B")]
    it = only(made)
    assert (it.accuracy, it.conflict_letter, it.conflict_text, it.upper) == (0.5, 0.7, 0.6, 0.9)
    told = (
        "3 replies name a letter and another option's text; counted as wrong here (50.0 %), it is 70.0 % by the letter"
    )
    assert any(told in w and "60.0 % by the text" in w for w in make_profile(made).warnings)
    assert only([outcome(0, "A", None, "refusal")]).conflict_letter is None


def test_judge_and_harness_are_kept_apart() -> None:
    made = [
        outcome(0, "A", "A"),
        replace(outcome(1, "A", None, "ambiguous"), judge="A"),
        replace(outcome(2, "A", None, "ambiguous"), judge="Z"),
        outcome(3, "A", "B"),
    ]
    it = only(made)
    assert (it.accuracy, it.judged) == (0.25, 0.5)
    assert only(made[:1]).judged is None
    verdicts = [replace(row, harness_correct=word) for row, word in zip(made, (True, True, False, False), strict=True)]
    assert only(verdicts).harness == 0.5
    assert only([*verdicts[:3], made[3]]).harness is None


def test_harness_differences_come_first() -> None:
    """Story 1: `T` for "The correct answer is (B)"; the harness calls a right reply wrong."""
    made = [replace(outcome(i, "B", "B"), harness_correct=i > 2) for i in range(40)]
    made += [replace(outcome(40, "B", "A"), harness_correct=True), *made[:1]]
    profile = make_profile(made)
    assert profile.warnings[0].startswith(
        "the harness's own verdict differs from ours on 4 of 41 items: 3 are right for us"
    )
    assert "1 for it alone (e.g. x0: right for us)" in profile.warnings[0]
    assert profile.warnings[1].startswith("1 items come twice")
    assert "harness_differs" in profile.categories[0].flags


# ------------------------------------------------------------------------------------------------------------- alarms


def test_unparsed_replies_void_a_score() -> None:
    """Story 5: no judge key, so that 62 % of the replies are never matched."""
    made = [outcome(i, "A", *(("A", None) if i >= 62 else (None, "ambiguous"))) for i in range(100)]
    assert any("62 % of the replies are unparsed: the score is not valid" in w for w in make_profile(made).warnings)
    few = [outcome(i, "A", *(("A", None) if i >= 4 else (None, "ambiguous"))) for i in range(100)]
    assert not any("unparsed" in w for w in make_profile(few).warnings)
    refused = [outcome(i, "A", *(("A", None) if i >= 62 else (None, "refusal"))) for i in range(100)]
    assert not any("not valid" in w for w in make_profile(refused).warnings)


def test_images_that_did_not_arrive_and_mixed_layouts() -> None:
    """Stories 9 and 10."""
    made = [outcome(i, "A", "A") for i in range(40)]
    lost = [replace(row, tags={"images": "sent 1 of 2", "n_images_mismatch": "yes"}) for row in made]
    profile = make_profile(lost)
    assert any("mismatch on 40 of 40 items (e.g. x0: sent 1 of 2)" in w for w in profile.warnings)
    assert "image_count" in profile.categories[0].flags
    mixed = [replace(row, tags={"layout": "concat"}) if i < 15 else row for i, row in enumerate(made)]
    assert any("25 separate, 15 concat" in w for w in make_profile(mixed).warnings)
    assert not any("layout" in w for w in make_profile(made).warnings)


def test_what_is_missing_is_told() -> None:
    made = [outcome(i, "A", "A") for i in range(40)]
    told = make_profile(made, beside=Beside(missing={"Counting": ("c1", "c2")})).warnings
    assert any("2 of Counting (e.g. c1)" in w for w in told)
    foreign = [replace(made[0], tags={"item": "unknown"}), replace(made[1], tags={"file_gold": "B"}), *made[2:]]
    told = make_profile(foreign).warnings
    assert any("1 of 40 rows are about no item" in w for w in told)
    assert any("key differs from the benchmark's, which counts, on 1 of 40" in w for w in told)


def test_circular_sets_count_whole_questions() -> None:
    """Story 22: four rotations of each question; a constant letter is right once in each and knows nothing."""
    golds = "ABCD"
    made = [
        replace(outcome(4 * q + r, golds[(q + r) % 4], "A", n_options=4), group=f"q{q}", tags={"rotation": str(r)})
        for q in range(10)
        for r in range(4)
    ]
    it = only(made)
    assert (it.accuracy, it.n_groups, it.group_accuracy, it.group_chance) == (0.25, 10, 0.0, 0.25**4)
    right = [replace(row, letter=row.gold, correct=True) if row.group in ("q1", "q2") else row for row in made]
    assert only(right).group_accuracy == 0.2
    harness = [replace(row, tags={**row.tags, "rotations_right": "yes"}) if row.group == "q3" else row for row in right]
    warnings = make_profile(harness).warnings
    assert warnings[0].startswith("the harness's own verdict differs from ours on 1 of 1 items")
    assert any("all rotations right: 20.0 % (chance 0.4)" in w for w in warnings)
    assert only([outcome(0, "A", "A")]).group_accuracy is None


def test_needed_items_follow_the_measured_discordance() -> None:
    before = [outcome(i, "AB"[i % 2], "A") for i in range(100)]
    after = [replace(row, letter="B", correct=row.gold == "B") if i < 30 else row for i, row in enumerate(before)]
    assert only(before).needed == {"+5": 626, "+10": 155}
    assert only(after, Beside(baseline=before)).needed == {"+5": 940, "+10": 234}
    # Where nothing changed, the least discordance that such a change can have.
    assert only(before, Beside(baseline=before)).needed["+5"] < 200
    assert only(after, Beside(baseline=before[:20])).needed["+5"] == 626
    assert only([outcome(i, "A", "A") for i in range(40)]).needed == {}


def test_hashes_of_key_and_prompts() -> None:
    made = [replace(outcome(i, "A", "A"), prompt_hash=f"{i:016x}") for i in range(40)]
    profile = make_profile(made)
    assert profile.key_hash == key_hash(made[::-1])
    assert profile.prompt_hash and profile.prompt_hash == make_profile(made[::-1]).prompt_hash
    assert make_profile([replace(made[0], prompt_hash="f" * 16), *made[1:]]).prompt_hash != profile.prompt_hash
    assert make_profile([outcome(0, "A", "A")]).prompt_hash == ""
    assert make_profile([outcome(0, None, "A", "unscored")]).key_hash == ""


def test_json_holds_the_gaps_and_old_files_load(profiles: dict[str, Profile]) -> None:
    profile = profiles["GPT4o"]
    data = json.loads(json.dumps(profile_to_json(profile)))
    assert profile_from_json(data) == profile
    depth = data["categories"]["Relative_Depth"]
    assert depth["above_chance"] == pytest.approx(0.7419 - 0.5, abs=1e-4)
    assert depth["above_chance_normalised"] == pytest.approx(0.4839, abs=1e-4)
    assert depth["to_human"] == pytest.approx(0.9919 - 0.7419, abs=1e-4)
    assert depth["to_human_normalised"] == pytest.approx(0.25 / 0.4919, abs=1e-3)
    for key in ("letters", "gold", "constant", "p_chance", "errors", "upper", "needed", "judged", "harness"):
        del depth[key]
    for key in ("key_hash", "prompt_hash", "routing", "fold"):
        del data[key]
    assert profile_from_json(data).routing == ()


# --------------------------------------------------------------------------------------------------------------- keys


@pytest.fixture(scope="module")
def old(trusted: dict[str, list[Outcome]]) -> list[Outcome]:
    return [o for o in trusted["GPT4o"] if o.category == keys.CATEGORY and o.gold is not None]


def renamed(rows: Sequence[Outcome], shift: int) -> list[Outcome]:
    return [replace(row, item_id=f"BLINK:{int(row.item_id.rsplit('_', 1)[1]) + shift}") for row in rows]


def mended(rows: Sequence[Outcome], seed: int, share: float = 0.9) -> list[Outcome]:
    """A key in which so many letters are others, with the letters' counts as they were as far as may be."""
    rng = random.Random(seed)
    made = []
    for row in rows:
        letter = rng.choice([x for x in "ABC" if x != row.gold]) if rng.random() < share else row.gold
        made.append(replace(row, gold=letter))
    return made


def test_the_old_key_is_known_in_part_and_under_other_ids(old: list[Outcome]) -> None:
    assert keys.key_note(old).superseded is True
    assert keys.key_note(old[40:70]).superseded is True
    assert keys.key_note(renamed(old, 1204)).superseded is True
    assert keys.key_note(renamed(old, -1)[20:90]).superseded is True
    assert keys.key_note(old[:10]).superseded is None
    assert "too few" in keys.key_note(old[:10]).text
    from_zero = [replace(row, item_id=f"{row.item_id.rsplit('_', 1)[0]}_{i}") for i, row in enumerate(old)]
    assert keys.key_note(from_zero).superseded is True
    assert "old_key" in make_profile(renamed(old[:90], 500)).categories[0].flags


def test_rotations_do_not_hide_the_old_key(old: list[Outcome]) -> None:
    rows = [replace(row, tags={"rotation": "0"}) for row in renamed(old, 1204)]
    for k in (1, 2):
        for row in renamed(old, 1204 + k * 10**6):
            rows.append(replace(row, gold="ABC"[("ABC".index(str(row.gold)) + k) % 3], tags={"rotation": str(k)}))
    assert keys.key_note(rows).superseded is True


def test_other_keys_are_not_taken_for_the_old_one(old: list[Outcome]) -> None:
    """Keys of which a tenth or half of the letters stayed, and the old letters in another order; whole and in part."""
    for seed in range(8):
        golds = [row.gold for row in old]
        random.Random(seed).shuffle(golds)
        shuffled = [replace(row, gold=gold) for row, gold in zip(old, golds, strict=True)]
        for new in (mended(old, seed, 0.9), mended(old, seed, 0.5), shuffled):
            assert keys.key_note(new).superseded is False
            assert keys.key_note(new[:60]).superseded is False
            assert keys.key_note(renamed(new, 1204)).superseded is not True
            assert keys.key_note(renamed(new, 1204)[30:100]).superseded is not True
        # The same letters under ids that are not the authors' might be the old key in another order.
        assert keys.key_note(renamed(shuffled, 7)).superseded is None


def test_an_edited_copy_is_told_and_not_flagged(old: list[Outcome]) -> None:
    edited = [replace(row, gold="B" if row.gold == "A" else "A") if i < 3 else row for i, row in enumerate(old)]
    note = keys.key_note(edited)
    assert note.superseded is None
    assert "edited copy" in note.text


def test_other_categories_have_no_note() -> None:
    assert keys.key_note([outcome(i, "A", "A") for i in range(134)]) == keys.KeyNote(False, "")
    assert keys.key_note([]).superseded is False


def test_the_bits_do_not_give_the_key_away(old: list[Outcome]) -> None:
    """Were each item's letter fixed by what is shipped, a copy of the key would be shipped."""
    open_letters = [
        sum(keys.key_bit(n, letter) == keys.key_bit(n, str(row.gold)) for letter in "ABC")
        for row in old
        for n in [int(row.item_id.rsplit("_", 1)[1])]
    ]
    assert sum(open_letters) / len(open_letters) > 1.8
    source = Path(keys.__file__).read_text(encoding="utf-8")
    assert not re.search(r"[ABC]{8,}", source)


# -------------------------------------------------------------------------------------------------------------- folds


def test_folds_are_fifths_and_rotate() -> None:
    made = [outcome(i, "A", "A") for i in range(124)]
    made += [replace(outcome(1000 + i, "A", "A"), category="far") for i in range(30)]
    folds = folds_of(made)
    assert folds == folds_of(made[::-1])
    assert sorted(Counter(folds[o.item_id] for o in made[:124]).values()) == [24, 25, 25, 25, 25]
    assert Counter(folds[o.item_id] for o in made[124:]) == dict.fromkeys(range(FOLDS), 6)
    seen: list[str] = []
    for number in range(FOLDS):
        out = held_out(made, number)
        assert {o.item_id for o in out} | {o.item_id for o in planning(made, number)} == set(folds)
        assert not {o.item_id for o in out} & {o.item_id for o in planning(made, number)}
        seen += [o.item_id for o in out]
    assert sorted(seen) == sorted(folds)
    assert fold_for_round(7) == fold_for_round(2) == 2
    assert [folds[f"x{i}"] for i in range(10)] != sorted(folds[f"x{i}"] for i in range(10))


def test_a_group_is_not_torn() -> None:
    made = [replace(outcome(i, "A", "A"), group=f"g{i // 4}") for i in range(200)]
    folds = folds_of(made)
    for start in range(0, 200, 4):
        assert len({folds[f"x{i}"] for i in range(start, start + 4)}) == 1
    assert Counter(folds.values()) == dict.fromkeys(range(FOLDS), 40)


def test_hidden_items_do_not_thin_the_folds() -> None:
    made = [outcome(i, "A" if i < 50 else None, "A") for i in range(150)]
    folds = folds_of(made)
    assert Counter(folds[f"x{i}"] for i in range(50)) == dict.fromkeys(range(FOLDS), 10)


def test_a_profile_for_planning_has_not_seen_the_fold(trusted: dict[str, list[Outcome]]) -> None:
    """Whatever the model said on the held-out items, the profile is the same."""
    run = [o for o in trusted["GPT4o"] if o.correct is not None]
    hidden = {o.item_id for o in held_out(run, 3)}
    changed = [replace(o, letter=o.gold, correct=True) if o.item_id in hidden else o for o in run]
    profile = make_profile(run, blink.BENCHMARK, round_number=3)
    assert profile == make_profile(changed, blink.BENCHMARK, round_number=3)
    assert profile != make_profile(run, blink.BENCHMARK, round_number=4)
    assert (profile.fold, make_profile(run).fold) == (3, None)
    assert sum(it.n for it in profile.categories) == len(run) - len(hidden)
    assert "without the fold 3" in format_table(profile)
