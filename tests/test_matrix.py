"""Many runs: the order of models and categories, what all miss, suspect keys, and what must not enter a column."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from synth.benchmarks import blink
from synth.diagnosis.matrix import NOT_TRUTH, format_matrix, make_matrix, matrix_to_json
from synth.diagnosis.reading import read_results
from synth.errors import ResultsError
from synth.types import Outcome, Skill


def run(letters: Mapping[str, str], model: str = "m", n_options: int = 4, gold: str = "ABCD") -> list[Outcome]:
    """Category → the model's letters, "-" for none; the right letters go round in `gold`."""
    return [
        Outcome(
            item_id=f"{category}-{i:03}",
            category=category,
            skill=Skill.OTHER,
            model=model,
            text="",
            letter=None if letter == "-" else letter,
            reason="refusal" if letter == "-" else None,
            gold=gold[i % len(gold)],
            correct=letter == gold[i % len(gold)],
            n_options=n_options,
            n_images=1,
        )
        for category, said in letters.items()
        for i, letter in enumerate(said)
    ]


def scoring(shares: Mapping[str, float], seed: int, model: str = "m", n: int = 120) -> list[Outcome]:
    """A model with so many right answers a category; its wrong ones are spread at random."""
    rng = np.random.default_rng(seed)
    said = {}
    for category, share in shares.items():
        right = rng.permutation(n) < round(share * n)
        said[category] = "".join("ABCD"[(i + (0 if right[i] else rng.integers(1, 4))) % 4] for i in range(n))
    return run(said, model)


# ------------------------------------------------------------------------------------------------- like beside like


def test_categories_that_models_fail_alike_stand_together() -> None:
    """Three models that see, three that read: the two kinds of category form two clusters, whatever the order given."""
    seen, read = ("Depth", "Matching", "Reflectance"), ("Counting", "Text")
    kinds = [(0.9, 0.3), (0.85, 0.35), (0.95, 0.3), (0.3, 0.9), (0.35, 0.85), (0.3, 0.95)]
    runs = {
        f"m{k}": scoring({**dict.fromkeys(seen, high), **dict.fromkeys(read, low)}, seed=k)
        for k, (high, low) in enumerate(kinds)
    }
    matrix = make_matrix(runs)
    clusters = dict(zip(matrix.categories, matrix.clusters, strict=True))
    assert len({clusters[name] for name in seen}) == len({clusters[name] for name in read}) == 1
    assert set(matrix.clusters) == {0, 1} and list(matrix.clusters) == sorted(matrix.clusters)
    assert {frozenset(matrix.models[:3]), frozenset(matrix.models[3:])} == {
        frozenset({"m0", "m1", "m2"}), frozenset({"m3", "m4", "m5"}),
    }  # fmt: skip
    mixed = {name: runs[name][::-1] for name in ("m4", "m1", "m5", "m0", "m3", "m2")}
    assert make_matrix(mixed) == matrix


def test_cells_are_where_their_names_say() -> None:
    shares = {"a": {"X": 0.5, "Y": 1.0}, "b": {"X": 0.25, "Y": 0.75}, "c": {"Y": 0.5}}
    matrix = make_matrix({name: scoring(row, 7, name) for name, row in shares.items()})
    for name, row, above, macro in zip(matrix.models, matrix.accuracy, matrix.above_chance, matrix.macro, strict=True):
        assert dict(zip(matrix.categories, row, strict=True)) == {"X": shares[name].get("X"), "Y": shares[name]["Y"]}
        assert dict(zip(matrix.categories, above, strict=True))["Y"] == pytest.approx((shares[name]["Y"] - 0.25) / 0.75)
        assert macro == pytest.approx(sum(shares[name].values()) / len(shares[name]))
    assert matrix.n == (120, 120) and matrix.chance == (0.25, 0.25)
    line = next(line for line in format_matrix(matrix).splitlines() if line.startswith("X "))
    assert sorted(line.split()[4:7]) == ["-", "25.0", "50.0"]


def test_one_model_and_no_model() -> None:
    matrix = make_matrix({"m": scoring({"X": 0.5}, 0)})
    assert (matrix.models, matrix.categories, matrix.missed_items, matrix.suspects) == (("m",), ("X",), {}, ())
    with pytest.raises(ResultsError, match="no scored items"):
        make_matrix({})
    hidden = [replace(o, gold=None, correct=None) for o in scoring({"X": 0.5}, 0)]
    with pytest.raises(ResultsError, match="no scored items"):
        make_matrix({"m": hidden})
    both = make_matrix({"m": scoring({"X": 0.5}, 0), "h": hidden})
    assert both.models == ("m",) and "h: nothing to score, left out" in both.warnings


# --------------------------------------------------------------------------------------------------- what all miss


def test_missed_by_all_is_one_family_of_tests() -> None:
    """38 of 120 at chance 1/4 is p = .06, 41 is .015: alone that is above chance, among ten cells it is not."""
    blind = {"Blind": 0.25}
    assert make_matrix({"a": scoring({"Blind": 41 / 120}, 0)}).missed_by_all == ()
    runs = {f"m{k}": scoring({"Blind": 41 / 120 if k == 0 else 0.25, "Seen": 0.9}, k) for k in range(5)}
    assert make_matrix(runs).missed_by_all == ("Blind",)
    assert make_matrix({**runs, "sees": scoring({"Blind": 0.6, "Seen": 0.9}, 9)}).missed_by_all == ()
    assert make_matrix({"a": scoring(blind, 0), "b": scoring(blind, 1)}).missed_by_all == ("Blind",)


def test_missed_items_need_two_models() -> None:
    a, b = run({"X": "AACD" * 5}), run({"X": "AACA" * 5})
    assert make_matrix({"a": a, "b": b}).missed_items == {"X": tuple(f"X-{i:03}" for i in range(1, 20, 4))}
    assert make_matrix({"a": a}).missed_items == {}


# ---------------------------------------------------------------------------------------------------- suspect keys


def said_of_first(*letters: str) -> dict[str, list[Outcome]]:
    """Models that are right about all of twenty items but the first, of which each says its letter (the key: A)."""
    return {f"m{k}": run({"X": letter + "BCD" + "ABCD" * 4}, f"m{k}") for k, letter in enumerate(letters)}


@pytest.mark.parametrize(
    ("letters", "votes"),
    [
        ("BBBB", (4, 4)),
        ("BBBBA", (4, 5)),
        ("BBBA", None),
        ("BBBCA", None),
        ("BBB", None),
        ("BBB-", None),
        ("BBBB--", (4, 4)),
        ("AAAA", None),
    ],
)
def test_suspects_are_wrong_letters_on_which_most_answering_models_agree(
    letters: str, votes: tuple[int, int] | None
) -> None:
    matrix = make_matrix(said_of_first(*letters))
    found = [(s.item_id, s.gold, s.said, s.agree, s.answered) for s in matrix.suspects]
    assert found == ([("X-000", "A", "B", *votes)] if votes else [])
    assert any(NOT_TRUTH in text for text in matrix.warnings) is bool(votes)


def test_a_model_of_one_letter_has_no_vote() -> None:
    """Four say B of an item with the key A; one of them says B of everything."""
    runs = said_of_first("B", "B", "B")
    collapsed = make_matrix({**runs, "same": run({"X": "B" * 20}, "same")})
    assert dict(zip(collapsed.models, collapsed.collapsed, strict=True))["same"] == (True,)
    assert collapsed.suspects == () and "25.0=" in format_matrix(collapsed)
    assert len(make_matrix({**runs, "m3": said_of_first("B")["m0"]}).suspects) == 1


def test_suspects_by_chance_are_what_independent_models_give() -> None:
    """Six models, independent, 55 to 70 % of 1,200 two-way items: the stated number must be what is found."""
    rng = np.random.default_rng(3)
    runs = {}
    for k, share in enumerate((0.55, 0.6, 0.65, 0.7, 0.6, 0.55)):
        right = rng.random(1200) < share
        runs[f"m{k}"] = run({"X": "".join("AB"[(i + (not right[i])) % 2] for i in range(1200))}, gold="AB", n_options=2)
    matrix = make_matrix(runs)
    text = next(text for text in matrix.warnings if "keys are suspect" in text)
    stated = int(text.split("; ")[1].split()[0])
    assert stated > 30 and abs(len(matrix.suspects) - stated) < 4 * stated**0.5


def test_swapped_keys_come_first_among_suspects() -> None:
    """Models of 90 % on 200 items, two of which have each other's answer in the key."""
    runs = {f"m{k}": scoring({"Pairs": 0.9}, k, n=200) for k in range(6)}
    swap = {"Pairs-010": "B", "Pairs-009": "C"}
    for name, outcomes in runs.items():
        runs[name] = [
            replace(o, letter=o.gold, gold=swap[o.item_id], correct=False) if o.item_id in swap else o for o in outcomes
        ]
    suspects = make_matrix(runs).suspects
    assert {s.item_id for s in suspects[:2]} == set(swap)
    assert all(s.agree == s.answered == 6 for s in suspects[:2])


# --------------------------------------------------------------------------------------------- what is left out


def test_a_run_with_another_key_has_no_value_there() -> None:
    runs = {f"m{k}": scoring({"X": 0.5, "Y": 0.6}, k) for k in range(3)}
    runs["odd"] = [
        replace(o, gold="D", correct=o.letter == "D") if o.item_id == "X-004" else o
        for o in scoring({"X": 0.5, "Y": 0.6}, 8)
    ]
    matrix = make_matrix(runs)
    odd = dict(zip(matrix.categories, matrix.accuracy[matrix.models.index("odd")], strict=True))
    assert odd == {"X": None, "Y": 0.6}
    assert any("X: left out for odd: 1 right answers differ" in text and "X-004" in text for text in matrix.warnings)


def test_other_items_and_other_prompts_are_told() -> None:
    runs = {"a": scoring({"X": 0.5, "Y": 0.5}, 0), "b": scoring({"X": 0.5, "Y": 0.5}, 1)}
    assert make_matrix(runs).warnings == ()
    runs = {
        "a": [replace(o, prompt_hash="1") for o in runs["a"] if o.item_id != "X-000"],
        "b": [replace(o, prompt_hash="2" if o.category == "Y" else "1") for o in runs["b"]],
    }
    items, prompts = make_matrix(runs).warnings
    assert "different items in X:" in items and "different prompts in Y:" in prompts


# ------------------------------------------------------------------------------------------------ eight real models


@pytest.fixture(scope="module")
def released(shared: Path) -> dict[str, Sequence[Outcome]]:
    folders = [path for path in sorted((shared / "blink_outputs").iterdir()) if path.is_dir()]
    return {path.name: read_results(path, "blink_outputs", trust_released=True) for path in folders}


def test_eight_released_models(released: dict[str, Sequence[Outcome]]) -> None:
    matrix = make_matrix(released, blink.BENCHMARK)
    assert set(matrix.models) == set(released) and len(matrix.categories) == 13
    assert "Relative_Reflectance" not in matrix.categories
    assert any("Relative_Reflectance: left out for" in text for text in matrix.warnings)
    assert set(matrix.missed_by_all) == {"IQ_Test", "Multi-view_Reasoning", "Object_Localization"}
    assert matrix.models[0] == "GPT4o" and "GPT4V" in matrix.models[:2]
    at = {name: i for i, name in enumerate(matrix.categories)}
    assert matrix.collapsed[0][at["Multi-view_Reasoning"]]
    assert matrix.human[at["Counting"]] == 0.9375
    clusters = dict(zip(matrix.categories, matrix.clusters, strict=True))
    assert clusters["Multi-view_Reasoning"] == clusters["IQ_Test"] == clusters["Object_Localization"]
    assert clusters["Counting"] == clusters["Spatial_Relation"] != clusters["IQ_Test"]
    assert all(s.answered >= 4 and s.agree >= 0.8 * s.answered and s.said != s.gold for s in matrix.suspects)
    lines = format_matrix(matrix).splitlines()
    assert max(map(len, lines)) <= 120
    assert sum(line.endswith("all at chance") for line in lines) == 3
    table = json.loads(json.dumps(matrix_to_json(matrix), allow_nan=False))
    assert table["accuracy"][0][at["Counting"]] == pytest.approx(0.4917, abs=1e-4)
    assert len(table["accuracy"]) == 8 and table["suspects"][0].keys() >= {"item_id", "said", "agree", "answered"}
