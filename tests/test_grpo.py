"""GRPO: rewards give the numbers that they promise, and a step of training follows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from finetune.grpo import batch_reward, reply_text, require_supported
from finetune.rewards import REWARDS, nearness
from finetune.rows import read_rows
from finetune.settings import TrainConfig
from finetune.train import train
from synth.config import validate
from synth.errors import ConfigError, DatasetError
from tests.small_vlms import colour_rows, small_qwen, small_smolvlm, write_rows

POINTS = ("point A", "point B")
COUNTS = ("2", "3", "5", "10")


@pytest.mark.parametrize(
    ("name", "reply", "answer", "choices", "expected"),
    [
        ("letter", "B", "B", POINTS, 1.0),
        ("letter", "The answer is (B).", "B", POINTS, 1.0),
        ("letter", "A", "B", POINTS, 0.0),
        ("letter", "A or B", "B", POINTS, 0.0),
        ("letter", "", "B", POINTS, 0.0),
        ("letter", "5", "C", COUNTS, 1.0),
        ("format", " B\n", "A", POINTS, 1.0),
        ("format", "The answer is B", "B", POINTS, 0.0),
        ("format", "C", "A", POINTS, 0.0),
        ("format", "", "A", POINTS, 0.0),
        ("graded", "C", "C", COUNTS, 1.0),
        ("graded", "B", "C", COUNTS, 1 - 2 / 8),
        ("graded", "D", "C", COUNTS, 1 - 5 / 8),
        ("graded", "no idea", "C", COUNTS, 0.0),
        ("graded", "A", "A", POINTS, None),
        ("graded", "A", "B", ("mark 1", "mark 2"), None),
        ("graded", "B", "A", ("A, B, C", "B, A, C", "C, B, A"), 2 / 3),
        ("graded", "C", "A", ("A, B, C", "B, A, C", "C, B, A"), 0.0),
    ],
)
def test_rewards(name: str, reply: str, answer: str, choices, expected: float | None) -> None:
    assert REWARDS[name](reply, answer, choices) == (None if expected is None else pytest.approx(expected))


def test_numbers_with_a_unit_lie_on_a_scale_and_names_do_not() -> None:
    assert nearness(("1 chair", "3 chairs"), "A") == {"A": 1.0, "B": 0.0}
    assert nearness(("3", "3.0"), "A") is None
    assert nearness(("red", "blue", "green"), "A") is None


def test_a_reward_is_called_as_trl_calls_it() -> None:
    call = batch_reward("letter", REWARDS["letter"])
    completions = [
        [{"role": "assistant", "content": "A"}],
        [{"role": "assistant", "content": [{"type": "text", "text": "B"}]}],
    ]
    columns = {"qa_id": ["x", "y"], "images": [None, None], "trainer_state": None, "log_metric": print}
    found = call(
        prompts=[], completions=completions, completion_ids=[], answer=["A", "A"], choices=[POINTS] * 2, **columns
    )
    assert found == [1.0, 0.0]
    assert call.__name__ == "letter"
    assert reply_text(None) == ""


def settings(model: Path, rows: Path, out: Path, **changes: object) -> TrainConfig:
    plain = {
        "lora_r": 8,
        "lora_alpha": 16,
        "learning_rate": 0.02,
        "batch_size": 8,
        "max_steps": 8,
        "logging_steps": 1,
        "threads": 1,
    }
    return validate({**plain, "model": str(model), "dataset": str(rows), "out": str(out), **changes}, TrainConfig, "t")


GRPO = {"num_generations": 4, "max_new_tokens": 3, "beta": 0.02}


@pytest.mark.parametrize("family", ["smolvlm", "qwen"])
def test_grpo_goes_on_from_an_adapter(family: str, tmp_path: Path) -> None:
    """One and two pictures a row in one batch, a KL term against the adapter it began from, odd padding side saved."""
    from safetensors.torch import load_file

    model = {"smolvlm": small_smolvlm, "qwen": small_qwen}[family](tmp_path / "base")
    rows = write_rows(tmp_path / "rows", colour_rows(48))
    # A few steps teach the format and not yet the answer: replies of a group then differ in what they earn.
    train(settings(model, rows, tmp_path / "sft", max_steps=9))
    run = settings(model, rows, tmp_path / "grpo", method="grpo", adapter=str(tmp_path / "sft"), max_steps=3, grpo=GRPO)
    record = train(run)
    before, after = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("sft", "grpo"))
    assert before.keys() == after.keys()
    assert any((before[name] != after[name]).any() for name in before)
    assert len(record.rewards) == record.steps == 3
    assert all(0 <= reward <= 1.1 for _, reward in record.rewards)
    assert record.zero_variance is not None and 0 <= record.zero_variance < 1
    assert record.adapter == str(tmp_path / "sft")
    assert record.reload_difference < 1e-4
    assert not (tmp_path / "grpo" / "ref").exists()
    assert "| lora_r | 8 |" in (tmp_path / "grpo" / "README.md").read_text(encoding="utf-8")


def test_llava_onevision_with_two_pictures_a_row_is_refused(tmp_path: Path) -> None:
    rows = read_rows(write_rows(tmp_path / "rows", colour_rows(6)), cache=tmp_path / "cache")
    with pytest.raises(DatasetError, match="2 rows with two or more images") as error:
        require_supported(rows, "llava_onevision")
    assert error.value.where == "row qa-0002"
    require_supported(rows, "qwen2_5_vl")
    require_supported(rows.select([0, 1, 3]), "llava_onevision")


def test_settings_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"multiple of grpo\.num_generations"):
        settings(tmp_path, tmp_path, tmp_path / "o", method="grpo", batch_size=6, grpo={"num_generations": 4})
    with pytest.raises(ConfigError, match="format alone"):
        settings(tmp_path, tmp_path, tmp_path / "o", method="grpo", grpo={"rewards": {"letter": 0}})
    with pytest.raises(ConfigError, match="belong to method grpo, this is sft"):
        settings(tmp_path, tmp_path, tmp_path / "o", grpo={"temperature": 0.5})
    with pytest.raises(ConfigError, match="did you mean 'num_generations'"):
        settings(tmp_path, tmp_path, tmp_path / "o", method="grpo", grpo={"num_generation": 4})
