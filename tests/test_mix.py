"""Which rows are trained on: replay and dev set by source group, and the order of a curriculum."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset

from finetune.mix import mix_replay, ordered, split_dev, spread
from finetune.rows import read_rows
from finetune.settings import DevOptions, ReplayOptions
from synth.errors import DatasetError
from synth.geometry import generator
from tests.small_vlms import colour_rows, write_rows


def grouped(n: int, size: int, prefix: str = "photo") -> list[dict[str, object]]:
    rows = colour_rows(n)
    for i, row in enumerate(rows):
        row |= {"source_group": f"{prefix}-{i // size}", "qa_id": f"{prefix}-{i}", "difficulty": (i * 7 % n) / n}
    return rows


@pytest.fixture
def rows(tmp_path: Path):
    return read_rows(write_rows(tmp_path / "rows", grouped(60, 3)), cache=tmp_path / "cache")


def test_the_dev_set_holds_whole_source_groups(rows, tmp_path: Path) -> None:
    options = DevOptions(share=0.2, max_rows=100)
    train, dev = split_dev(rows, options, tmp_path / "rows", tmp_path / "cache", seed=1)
    assert len(train) + len(dev) == 60 and len(set(dev["source_group"])) == 4
    assert not set(train["source_group"]) & set(dev["source_group"])
    again = split_dev(rows, options, tmp_path / "rows", tmp_path / "cache", seed=1)[1]
    other = split_dev(rows, options, tmp_path / "rows", tmp_path / "cache", seed=2)[1]
    assert again["qa_id"] == dev["qa_id"] != other["qa_id"]


def test_a_split_that_shares_photos_is_no_dev_set(rows, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="20 source groups are in both splits"):
        split_dev(rows, DevOptions(split="train"), tmp_path / "rows", tmp_path / "cache", seed=0)


def test_replay_has_its_share_its_role_and_no_photo_of_the_dev_set(rows, tmp_path: Path) -> None:
    folder = write_rows(tmp_path / "old", [*grouped(30, 10, "old"), *grouped(3, 3)])
    options = ReplayOptions(path=folder, share=0.25)
    mixed, said = mix_replay(rows, options, "clean", tmp_path / "cache", 0, held=["photo-0"])
    assert len(mixed) == 80 and said.rows == 20 and said.share == 0.25 and said.held_out == 3
    replayed = [row for row in mixed.remove_columns("images") if row["qa_id"] not in set(rows["qa_id"])]
    assert {row["role"] for row in replayed} == {"replay"}
    assert Counter(row["source_group"] for row in replayed).keys() == {"old-0", "old-1", "old-2"}
    assert max(Counter(row["source_group"] for row in replayed).values()) == 7, "as evenly as 20 over 3 can be"
    assert mixed[75]["images"][0].size == (32, 32)


def test_replay_that_has_too_few_rows_says_so(rows, tmp_path: Path) -> None:
    options = ReplayOptions(path=write_rows(tmp_path / "old", grouped(10, 2, "old")), share=0.5)
    _, said = mix_replay(rows, options, "clean", tmp_path / "cache", 0)
    assert (said.rows, said.wanted_share, said.share) == (10, 0.5, round(10 / 70, 4))


def test_spread_gives_every_group_its_turn() -> None:
    groups = ["a"] * 50 + ["b"] * 2 + ["c"] * 2
    taken = Counter(groups[i] for i in spread(groups, 7, generator(0, "test")))
    assert taken == {"a": 3, "b": 2, "c": 2}


def test_every_stage_of_a_curriculum_holds_each_skill_in_its_share() -> None:
    """Replay whose difficulty is one number for all rows would else come all at once, and be forgotten again."""
    skills = ["left_right"] * 60 + ["colour_at_mark"] * 30
    difficulty = [i / 60 for i in range(60)] + [0.5] * 30
    table = Dataset.from_dict({"skill": skills, "difficulty": difficulty})
    staged = ordered(table, "staged", 0)
    for start in (0, 30, 60):
        assert Counter(staged["skill"][start : start + 30]) == {"left_right": 20, "colour_at_mark": 10}
    easy = [d for s, d in zip(staged["skill"][:30], staged["difficulty"][:30], strict=True) if s == "left_right"]
    assert max(easy) < 1 / 3


def test_easy_rows_come_first(rows) -> None:
    rows = rows.remove_columns("skill")
    sort = np.asarray(ordered(rows, "sorted", 0)["difficulty"])
    assert (np.diff(sort) >= 0).all()
    staged = np.asarray(ordered(rows, "staged", 0)["difficulty"])
    bands = np.array_split(staged, 3)
    assert bands[0].max() <= bands[1].min() and bands[1].max() <= bands[2].min()
    assert not (np.diff(staged) >= 0).all(), "shuffled within a band"
    assert ordered(rows, "staged", 0)["qa_id"] == ordered(rows, "staged", 0)["qa_id"]
    assert ordered(rows, "staged", 1)["qa_id"] != ordered(rows, "staged", 0)["qa_id"]
    assert ordered(rows, "none", 0) is rows
    with pytest.raises(DatasetError, match="difficulty"):
        ordered(rows.remove_columns("difficulty"), "sorted", 0)
