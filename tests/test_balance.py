"""Balance: equal letters and strata, whatever the order, and nothing lost without a word."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.balance import THIN, BalanceOptions, choose
from synth.geometry import generator


@dataclass(frozen=True)
class Light:
    qa_id: str
    skill: str
    stratum: str
    answer: str
    image_id: str


def rows(n: int, seed: int = 0, lower: float = 0.8, letters: str = "AB", images: int = 50) -> list[Light]:
    rng = generator(seed, "rows")
    return [
        Light(
            qa_id=f"q{k}",
            skill="relative_depth",
            stratum="lower" if rng.random() < lower else "higher",
            answer=letters[int(rng.integers(len(letters)))],
            image_id=f"i{int(rng.integers(images))}",
        )
        for k in range(n)
    ]


cells = st.lists(
    st.tuples(st.sampled_from(["lower", "higher"]), st.sampled_from("ABC"), st.integers(0, 9)), max_size=120
)
many = settings(max_examples=80, deadline=None)


def made(drawn: list[tuple[str, str, int]], skill: str = "x") -> list[Light]:
    return [
        Light(f"{skill}{k}", skill, stratum, letter, f"i{image}") for k, (stratum, letter, image) in enumerate(drawn)
    ]


def spread(counts: list[int]) -> int:
    return max(counts) - min(counts) if counts else 0


@many
@given(drawn=cells, quota=st.integers(0, 150), seed=st.integers(0, 5), cap=st.none() | st.integers(1, 6))
def test_counts_differ_by_one_at_most_and_nothing_vanishes(drawn, quota, seed, cap):
    candidates = made(drawn)
    chosen, drops = choose(candidates, quota, seed, BalanceOptions(per_image=cap))
    letters = sorted({row.answer for row in candidates})
    strata = sorted({row.stratum for row in candidates})
    assert len(chosen) <= quota and len(chosen) + sum(drop.count for drop in drops) == len(candidates)
    assert len({row.qa_id for row in chosen}) == len(chosen)
    assert spread([sum(row.stratum == s for row in chosen) for s in strata]) <= 1
    for stratum in strata:
        assert spread([sum((r.stratum, r.answer) == (stratum, x) for r in chosen) for x in letters]) <= 1
    if cap is not None:
        assert max(Counter(row.image_id for row in chosen).values(), default=0) <= cap
    assert all(drop.stage == "balance" and drop.task == "x" and drop.example for drop in drops)


@many
@given(drawn=cells, order=st.randoms(use_true_random=False), quota=st.integers(0, 60))
def test_the_order_of_the_candidates_does_not_matter(drawn, order, quota):
    candidates = made(drawn)
    shuffled = list(candidates)
    order.shuffle(shuffled)
    assert choose(candidates, quota, 3) == choose(shuffled, quota, 3)


def test_another_seed_is_another_choice():
    candidates = rows(400)
    assert {r.qa_id for r in choose(candidates, 50, 0)[0]} != {r.qa_id for r in choose(candidates, 50, 1)[0]}


def test_a_photo_like_skew_becomes_exactly_half():
    candidates = rows(2000)
    chosen, drops = choose(candidates, 10_000, 0)
    counts = Counter((row.stratum, row.answer) for row in chosen)
    least = min(Counter((row.stratum, row.answer) for row in candidates).values())
    assert len(counts) == 4 and spread(list(counts.values())) <= 1 and min(counts.values()) >= least
    assert {drop.reason for drop in drops} == {"stratum_balance", "letter_balance"}
    assert sum(drop.count for drop in drops if drop.reason == "stratum_balance") > 1000


def test_the_quota_is_met_exactly_where_it_can_be():
    candidates = rows(800, lower=0.5)
    for quota in (1, 7, 100, 101, 102, 103):
        chosen, drops = choose(candidates, quota, 0)
        assert len(chosen) == quota and {drop.reason for drop in drops} == {"over_quota"}


def test_four_letters_stay_even():
    chosen, _ = choose(rows(3000, letters="ABCD"), 401, 0)
    assert len(chosen) == 401 and spread(list(Counter(row.answer for row in chosen).values())) <= 2


def test_blocks_are_equal_inside_and_free_among_themselves():
    drawn = [("1-4/1", 400), ("1-4/2", 200), ("1-4/3", 90), ("1-4/4", 60), ("5-8/5", 30), ("5-8/6", 12)]
    candidates = [
        Light(f"{stratum}-{k}", "counting", stratum, "ABCD"[k % 4], f"i{k}") for stratum, n in drawn for k in range(n)
    ]
    counts = Counter(row.stratum for row in choose(candidates, 10_000, 0)[0])
    assert {counts[f"1-4/{n}"] for n in range(1, 5)} <= {60, 61}
    assert {counts["5-8/5"], counts["5-8/6"]} <= {12, 13}


def test_two_skills_share_a_quota_evenly():
    candidates = made([("any", "AB"[k % 2], k % 7) for k in range(300)], "big")
    candidates += made([("any", "AB"[k % 2], k % 7) for k in range(20)], "small")
    assert Counter(row.skill for row in choose(candidates, 100, 0)[0]) == {"big": 80, "small": 20}


def test_one_photo_cannot_fill_the_quota():
    candidates = rows(600, images=3, lower=0.5)
    chosen, drops = choose(candidates, 300, 0, BalanceOptions(per_image=10))
    assert len(chosen) <= 30 and max(Counter(row.image_id for row in chosen).values()) <= 10
    assert any(drop.reason == "image_cap" for drop in drops)


def test_thinning_loses_nothing_below_the_quota():
    candidates = made([("lower", "A", 0)] * 5 + [("higher", "B", 0)])
    assert len(choose(candidates, 4, 0, THIN)[0]) == 4
    everything, drops = choose(candidates, 10, 0, THIN)
    assert len(everything) == 6 and not drops
    assert {row.stratum for row in choose(candidates, 2, 0, THIN)[0]} == {"lower", "higher"}


def test_the_same_pair_twice_counts_once():
    candidates = rows(40)
    chosen, drops = choose([*candidates, *candidates[:7]], 1000, 0)
    assert chosen == choose(candidates, 1000, 0)[0]
    assert next(drop for drop in drops if drop.reason == "duplicate").count == 7


def test_nothing_from_nothing_and_no_negative_quota():
    assert choose([], 10, 0) == ([], [])
    with pytest.raises(ValueError, match="quota"):
        choose(rows(3), -1, 0)
