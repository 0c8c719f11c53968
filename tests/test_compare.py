"""Before and after: pairing, verdicts, retention, control arms, gate, strata."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from finetune.compare import TOGETHER, GateOptions, Rerun, compare, comparison_to_json, format_comparison
from synth.diagnosis.paired import cell_of, judged
from synth.errors import S2PError
from synth.types import Outcome, Skill

DEPTH, COLOUR, LEFT = Skill.RELATIVE_DEPTH, Skill.COLOUR_AT_MARK, Skill.LEFT_RIGHT
Right = Callable[[int], bool]


def outcomes(
    skill: Skill,
    n: int,
    right: Right,
    *,
    n_options: int = 2,
    per_group: int = 1,
    tag: Callable[[int], str] | None = None,
) -> list[Outcome]:
    """`n` items of a skill, of which item i is answered rightly where `right(i)`."""
    found = []
    for i in range(n):
        gold = "AB"[i % 2]
        letter = gold if right(i) else "BA"[i % 2]
        found.append(
            Outcome(
                item_id=f"{skill}-{i}",
                category=str(skill),
                skill=skill,
                model="m",
                text=letter,
                letter=letter,
                reason=None,
                gold=gold,
                correct=letter == gold,
                n_options=n_options,
                n_images=1,
                group=f"{skill}-g{i // per_group}",
                tags={} if tag is None else {"lower_is_closer": tag(i)},
            )
        )
    return found


def share(p: float) -> Right:
    """Right on a share p of the items, spread evenly."""
    return lambda i: int((i + 1) * p) > int(i * p)


def test_a_gain_is_found_with_its_size_and_its_p() -> None:
    before = outcomes(DEPTH, 600, lambda i: i % 2 == 0)
    after = outcomes(DEPTH, 600, lambda i: i % 2 == 0 or i % 4 == 1)
    cell = compare(before, after, targets=[DEPTH]).per_skill[DEPTH]
    assert (cell.n, cell.before, cell.after, cell.delta) == (600, 0.5, 0.75, 0.25)
    assert (cell.gained, cell.lost) == (150, 0)
    assert cell.p == pytest.approx(2 * 0.5**150, rel=1e-6)
    assert 0.2 < cell.low < 0.25 < cell.high < 0.3
    assert cell.verdict == "improved"


def test_the_published_near_miss_is_no_evidence() -> None:
    """b = 22 gains, c = 10 losses: p = 0.0501, which must not be called a gain."""
    before = outcomes(DEPTH, 124, lambda i: i < 60)
    after = outcomes(DEPTH, 124, lambda i: 10 <= i < 82)
    comparison = compare(before, after, targets=[DEPTH])
    cell = comparison.per_skill[DEPTH]
    assert (cell.gained, cell.lost) == (22, 10)
    assert cell.p == pytest.approx(0.0501, abs=5e-5)
    assert cell.verdict == "no evidence"
    assert comparison.gate_reasons == ("no taught skill improved",)


def test_correction_takes_a_lone_small_p_away_among_many_skills() -> None:
    lucky = (lambda i: i < 60, lambda i: 6 <= i < 80)  # 20 gains, 6 losses: p = 0.009
    flat = lambda i: i % 2 == 0  # noqa: E731
    alone = compare(outcomes(DEPTH, 120, lucky[0]), outcomes(DEPTH, 120, lucky[1]))
    assert alone.per_skill[DEPTH].verdict == "improved"
    others = [skill for skill in Skill if skill != DEPTH][:8]
    rest = [o for skill in others for o in outcomes(skill, 40, flat)]
    many = compare(outcomes(DEPTH, 120, lucky[0]) + rest, outcomes(DEPTH, 120, lucky[1]) + rest)
    assert many.per_skill[DEPTH].p == alone.per_skill[DEPTH].p
    assert many.per_skill[DEPTH].p_holm == pytest.approx(9 * alone.per_skill[DEPTH].p)
    assert many.per_skill[DEPTH].verdict == "no evidence"


def test_items_of_one_picture_count_as_one_piece_of_evidence() -> None:
    """Ten groups of twelve items that change together are ten coin flips, whatever McNemar makes of 120 items."""
    gains, losses = set(range(7)), {7, 8, 9}
    before = outcomes(DEPTH, 120, lambda i: i // 12 in losses, per_group=12)
    after = outcomes(DEPTH, 120, lambda i: i // 12 in gains, per_group=12)
    clustered = compare(before, after).per_skill[DEPTH]
    assert clustered.p < 1e-4
    assert clustered.low < 0
    assert clustered.verdict == "no evidence"
    loose = compare([replace(o, group="") for o in before], [replace(o, group="") for o in after]).per_skill[DEPTH]
    assert loose.verdict == "improved"


def test_a_fall_is_a_regression_and_closes_the_gate() -> None:
    comparison = compare(
        outcomes(DEPTH, 300, share(0.8)), outcomes(DEPTH, 300, lambda i: share(0.8)(i) and i % 3 > 0), targets=[DEPTH]
    )
    assert comparison.per_skill[DEPTH].verdict == "regressed"
    assert not comparison.gate_passed
    assert any("got worse" in reason for reason in comparison.gate_reasons)


def gain(skill: Skill = DEPTH, n: int = 400) -> tuple[list[Outcome], list[Outcome]]:
    return outcomes(skill, n, lambda i: i % 2 == 0), outcomes(skill, n, lambda i: i % 5 > 0)


def test_retention_is_non_inferiority_not_mere_insignificance() -> None:
    """A loss of 3.3 points that is not significant still fails a margin of 3 points."""
    before, after = gain()
    old = outcomes(COLOUR, 300, lambda i: i >= 30, n_options=8)
    new = outcomes(COLOUR, 300, lambda i: i >= 50 or i < 10, n_options=8)
    comparison = compare(before + old, after + new, targets=[DEPTH])
    kept = comparison.retention[COLOUR]
    assert comparison.per_skill[COLOUR].verdict == "no evidence"
    assert kept.cell.delta == pytest.approx(-10 / 300)
    assert kept.verdict == "lost"
    assert not comparison.gate_passed
    wide = compare(
        before + old, after + new, targets=[DEPTH], gate=GateOptions(retention_margin=0.08, margin_together=0.08)
    )
    assert wide.gate_passed


def test_a_small_loss_within_the_margin_is_kept() -> None:
    before, after = gain()
    old = outcomes(COLOUR, 1000, lambda i: i >= 100, n_options=8)
    new = outcomes(COLOUR, 1000, lambda i: i >= 104, n_options=8)
    comparison = compare(before + old, after + new, targets=[DEPTH])
    assert comparison.retention[COLOUR].verdict == "kept"
    assert comparison.retention[TOGETHER].passed
    assert comparison.gate_passed


def test_strict_retention_asks_every_skill_for_its_interval() -> None:
    before, after = gain()
    old = outcomes(COLOUR, 100, lambda i: i >= 12, n_options=8)
    new = outcomes(COLOUR, 100, lambda i: i >= 16 or i < 3, n_options=8)
    big = outcomes(Skill.EXISTENCE, 2000, share(0.9))
    comparison = compare(before + old + big, after + new + big, targets=[DEPTH])
    assert comparison.retention[COLOUR].verdict == "undecided"
    assert comparison.gate_passed
    strict = compare(before + old + big, after + new + big, targets=[DEPTH], gate=GateOptions(strict_retention=True))
    assert not strict.gate_passed


def test_a_skill_at_chance_has_nothing_to_lose() -> None:
    before, after = gain()
    old = outcomes(LEFT, 300, share(0.50))
    new = outcomes(LEFT, 300, lambda i: share(0.50)(i) and i % 12 != 1)
    comparison = compare(before + old, after + new, targets=[DEPTH])
    assert comparison.retention[LEFT].cell.delta < -0.03
    assert comparison.retention[LEFT].verdict == "nothing to keep"
    assert TOGETHER not in comparison.retention
    assert comparison.gate_passed


def test_a_control_arm_that_gains_closes_the_gate() -> None:
    before, after = gain()
    flat = outcomes(DEPTH, 400, lambda i: i % 2 == 1)
    assert compare(before, after, targets=[DEPTH], controls={"shuffled": flat}).gate_passed
    caught = compare(before, after, targets=[DEPTH], controls={"shuffled": after})
    assert caught.controls["shuffled"][DEPTH].cell.verdict == "improved"
    assert any("improved too" in reason for reason in caught.gate_reasons)
    assert compare(
        before, after, targets=[DEPTH], controls={"shuffled": after}, gate=GateOptions(controls=False)
    ).gate_passed


def test_a_gain_no_larger_than_the_controls_does_not_count() -> None:
    """The arm's own gain is too small to be called one, and the real gain is hardly beyond it."""
    before = outcomes(DEPTH, 400, lambda i: i % 2 == 0)
    after = outcomes(DEPTH, 400, lambda i: i % 2 == 0 or i < 40)
    arm = outcomes(DEPTH, 400, lambda i: (i % 2 == 0 and i < 382) or i < 34)
    comparison = compare(before, after, targets=[DEPTH], controls={"shuffled": arm})
    assert comparison.per_skill[DEPTH].verdict == "improved"
    assert comparison.controls["shuffled"][DEPTH].cell.verdict == "no evidence"
    assert comparison.controls["shuffled"][DEPTH].advantage.delta == pytest.approx(12 / 400)
    assert comparison.controls["shuffled"][DEPTH].advantage.low > 0
    assert comparison.gate_passed
    # An arm that gains 16 other items and loses 8: no gain of its own, but the real one is not surely beyond it.
    arm = outcomes(DEPTH, 400, lambda i: (i % 2 == 0 and i >= 16) or (i % 2 == 1 and 200 <= i < 232))
    near = compare(before, after, targets=[DEPTH], controls={"shuffled": arm})
    assert near.controls["shuffled"][DEPTH].cell.verdict == "no evidence"
    assert near.gate_reasons == (f"{DEPTH}: not better than the control arm shuffled",)
    worse = outcomes(DEPTH, 400, lambda i: i % 2 == 0 or (i < 40 and i not in (1, 3, 5)))
    close = compare(before, after, targets=[DEPTH], controls={"shuffled": worse}, gate=GateOptions())
    assert f"{DEPTH}: the control arm shuffled improved too (+4.2 points)" in close.gate_reasons


def test_strata_show_a_shortcut() -> None:
    side = lambda i: "yes" if i % 2 else "no"  # noqa: E731
    before = outcomes(DEPTH, 400, lambda i: i % 4 < 2, tag=side)
    after = outcomes(DEPTH, 400, lambda i: i % 2 == 1 or i % 20 == 0, tag=side)
    comparison = compare(before, after, targets=[DEPTH])
    cells = comparison.strata[DEPTH]["lower_is_closer"]
    assert (cells["yes"].before, cells["yes"].after) == (0.5, 1.0)
    assert (cells["no"].before, cells["no"].after) == (0.5, 0.1)
    assert comparison.per_skill[DEPTH].delta == pytest.approx(0.05)
    after_all = outcomes(DEPTH, 400, lambda i: i % 2 == 1 or i % 8 == 0, tag=side)
    told = compare(before, after_all, targets=[DEPTH])
    assert told.per_skill[DEPTH].verdict == "improved"
    assert any("shortcut" in warning for warning in told.warnings)
    # The same of a skill that was not taught: another question may have taken its place.
    kept = compare(before, after_all, targets=[])
    assert kept.warnings == (
        f"{DEPTH}: better where lower_is_closer is yes, worse where it is no: its answers may follow that now",
    )


def test_a_tag_that_is_a_measurement_is_no_stratum() -> None:
    before = outcomes(DEPTH, 300, share(0.5), tag=lambda i: f"{i / 7:.2f}")
    assert compare(before, before).strata == {}


def test_unpaired_items_are_refused() -> None:
    before, after = gain()
    with pytest.raises(S2PError, match="1 only before"):
        compare(before, after[1:])
    with pytest.raises(S2PError, match="the key of item"):
        compare(before, [replace(after[0], gold="B" if after[0].gold == "A" else "A"), *after[1:]])
    with pytest.raises(S2PError, match="two outcomes"):
        compare(before, [*after, after[0]])
    with pytest.raises(S2PError, match="not the same items"):
        compare(before, after, controls={"arm": before[1:]})
    with pytest.raises(S2PError, match="no scored item of the taught skill"):
        compare(before, after, targets=[COLOUR])


def test_items_with_a_hidden_key_are_left_out_and_counted() -> None:
    before, after = gain()
    hide = lambda o: replace(o, item_id="h" + o.item_id, gold=None, correct=None)  # noqa: E731
    comparison = compare(before + [hide(o) for o in before[:7]], after + [hide(o) for o in after[:7]])
    assert comparison.per_skill[DEPTH].n == 400
    assert comparison.unscored == 7


def test_an_item_without_a_letter_counts_as_wrong() -> None:
    before, after = gain()
    dumb = [replace(o, letter=None, correct=False, reason="refusal") for o in after]
    assert compare(before, dumb).per_skill[DEPTH].after == 0


def test_results_do_not_depend_on_order_and_repeat_with_the_seed() -> None:
    before, after = gain()
    other = outcomes(COLOUR, 50, share(0.7))
    once = compare(before + other, after + other, targets=[DEPTH], seed=3)
    mixed = [(before + other)[i] for i in np.random.default_rng(0).permutation(450)]
    again = compare(mixed, list(reversed(after + other)), targets=[DEPTH], seed=3)
    assert comparison_to_json(once) == comparison_to_json(again)


def test_no_change_at_all_is_no_evidence() -> None:
    before, _ = gain()
    comparison = compare(before, before, targets=[DEPTH], controls={"arm": before})
    assert comparison.per_skill[DEPTH].p == 1
    assert comparison.overall.verdict == "no evidence"
    assert (comparison.per_skill[DEPTH].low, comparison.per_skill[DEPTH].high) == (0, 0)


def test_false_alarms_are_as_rare_as_promised() -> None:
    """100 comparisons of a model with itself under noise: verdicts other than "no evidence" on fewer than 5 %."""
    rng = np.random.default_rng(1)
    alarms = 0
    for i in range(100):
        a, b = rng.random((2, 80)) < 0.6
        pairs = list(
            zip(outcomes(DEPTH, 80, lambda i, a=a: a[i]), outcomes(DEPTH, 80, lambda i, b=b: b[i]), strict=True)
        )
        alarms += judged({"": cell_of(pairs, i, "noise")}, 0.05)[""].verdict != "no evidence"
    assert alarms <= 10  # 5 % of 100 is 5; more than 10 has a probability of 1 %


def test_the_spread_of_a_gain_is_taken_over_seeds_alone() -> None:
    before, after = gain()
    more = outcomes(DEPTH, 400, share(0.9))
    arms = {"seed_1": Rerun(outcomes=more, by_seed=True), "rank_8": Rerun(outcomes=before, by_seed=False)}
    found = compare(before, after, targets=[DEPTH], arms=arms)
    assert found.arms["rank_8"][DEPTH].delta == 0 and found.repeats == ("seed_1",)
    told = comparison_to_json(found)["spread"][DEPTH]
    deltas = [found.per_skill[DEPTH].delta, found.arms["seed_1"][DEPTH].delta]
    assert (told["n"], told["improved"]) == (2, 2) and told["mean"] == pytest.approx(sum(deltas) / 2)
    alone = compare(before, after, targets=[DEPTH], arms={"rank_8": arms["rank_8"]})
    assert comparison_to_json(alone)["spread"] == {}, "one seed has no spread"


def test_json_has_the_promised_shape() -> None:
    before, after = gain()
    side = lambda i: "yes" if i % 2 else "no"  # noqa: E731
    tagged = [replace(o, tags={"lower_is_closer": side(i)}) for i, o in enumerate(before)]
    other = outcomes(COLOUR, 100, share(0.9))
    comparison = compare(tagged + other, after + other, targets=[DEPTH], controls={"shuffled": before + other})
    data = json.loads(json.dumps(comparison_to_json(comparison), allow_nan=False))
    cell = {"n", "before", "after", "delta", "low", "high", "p", "p_holm", "verdict"}
    assert cell <= data["per_skill"]["relative_depth"].keys()
    assert cell <= data["overall"].keys()
    assert cell <= data["retention"]["colour_at_mark"].keys()
    assert cell <= data["controls"]["shuffled"]["relative_depth"].keys()
    assert cell <= data["strata"]["relative_depth"]["lower_is_closer"]["yes"].keys()
    assert data["gate"] == {"passed": True, "reasons": [], "options": GateOptions().model_dump()}
    assert data["overall"]["macro_after"] == pytest.approx((0.8 + 0.9) / 2)
    text = format_comparison(comparison)
    assert "*relative_depth" in text
    assert "gate: passed" in text
