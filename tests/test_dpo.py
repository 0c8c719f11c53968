"""DPO: which wrong answer is rejected, and that the right one gains on it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from finetune.pairs import rejected
from finetune.settings import TrainConfig
from finetune.train import train
from synth.config import validate
from tests.small_vlms import colour_rows, small_qwen, write_rows


@pytest.mark.parametrize(
    ("choices", "answer", "expected", "kind"),
    [
        (("point A", "point B"), "B", "A", "only"),
        (("6", "2", "4", "9"), "A", "C", "scale"),
        (("0", "1", "7", "9"), "D", "C", "scale"),
        (("A, B, C", "C, B, A", "A, C, B"), "A", "C", "scale"),
    ],
)
def test_the_rejected_answer_is_the_nearest_wrong_one(choices, answer: str, expected: str, kind: str) -> None:
    found = rejected("qa", choices, answer, "", seed=0)
    assert (found.letter, found.kind) == (expected, kind)


def test_of_equally_near_numbers_the_seed_chooses() -> None:
    found = {rejected("qa", ("3", "4", "5"), "B", "", seed).letter for seed in range(20)}
    assert found == {"A", "C"}


def test_among_marks_the_nearest_mark_is_rejected() -> None:
    """The provenance knows where each mark stands; the choices name them in their own order."""
    marks = [("A", 10, 10), ("B", 100, 90), ("C", 14, 30), ("D", 60, 10)]
    panels = [
        {"marks": [{"label": "REF", "x": 1, "y": 1}]},
        {"marks": [{"label": label, "x": x, "y": y} for label, x, y in marks]},
    ]
    provenance = json.dumps({"panels": panels})
    choices = ("mark D", "mark A", "mark B", "mark C")
    found = rejected("qa", choices, "B", provenance, seed=0)
    assert (found.letter, found.kind) == ("D", "mark")
    # Without the places, any wrong option is drawn, the same one each time.
    drawn = {rejected("qa", choices, "B", "", seed).letter for seed in range(30)}
    assert drawn == {"A", "C", "D"}
    assert rejected("qa", choices, "B", "", 4) == rejected("qa", choices, "B", "", 4)


def test_the_chosen_answer_gains_on_the_rejected_one(tmp_path: Path) -> None:
    model = small_qwen(tmp_path / "base")
    rows = write_rows(tmp_path / "rows", colour_rows(32))
    settings = {
        "method": "dpo",
        "model": str(model),
        "dataset": str(rows),
        "out": str(tmp_path / "run"),
        "lora_r": 8,
        "lora_dropout": 0.0,
        "learning_rate": 0.01,
        "max_steps": 8,
        "batch_size": 4,
        "logging_steps": 1,
        "threads": 1,
        "warmup": 0.0,
    }
    record = train(validate(settings, TrainConfig, "test"))
    margins = [margin for _, margin in record.margins]
    assert margins[0] == pytest.approx(0, abs=1e-6), "at the start the model is its own reference"
    assert min(margins[-3:]) > 0.1
    assert record.losses[0][1] == pytest.approx(0.6931, abs=1e-3), "log 2 at a margin of 0"
    assert record.reload_difference < 1e-4
    assert record.adapted == {"language": 14, "projector": 0, "vision": 0}
    assert not (tmp_path / "run" / "ref").exists()
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert "| dpo.beta | 0.1 |" in card and f"{margins[-1]:.4f}" in card
