"""Merging an adapter into its base, from the command line; and the adapter's card."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import finetune.merging as merging
from finetune.cli import main
from finetune.loading import load_model
from finetune.settings import TrainConfig
from finetune.train import train
from synth.config import validate
from synth.errors import RunError
from tests.small_vlms import colour_rows, small_qwen, write_rows


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("merge")
    rows = write_rows(root / "rows", colour_rows(16))
    (rows / "manifest.json").write_text("{}")
    settings = {
        "model": str(small_qwen(root / "base")),
        "dataset": str(rows),
        "out": str(root / "adapter"),
        "lora_scope": "all",
        "learning_rate": 0.01,
        "max_steps": 2,
        "batch_size": 4,
        "image_max_pixels": 1024,
        "threads": 1,
    }
    train(validate(settings, TrainConfig, "test"))
    return root / "adapter"


def test_merge_writes_a_model_folder_with_its_image_budget(
    adapter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["merge", str(adapter), "--out", str(tmp_path / "merged")]) == 0
    assert "loaded anew" in capsys.readouterr().out
    merged = load_model(str(tmp_path / "merged"))
    assert merged.processor.image_processor.size["longest_edge"] == 1024
    assert not [name for name, _ in merged.model.named_modules() if "lora" in name]
    assert main(["merge", str(adapter), "--out", str(tmp_path / "merged")]) == 2, "nothing is written over"


def test_a_merge_that_changes_answers_leaves_no_folder(
    adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is loaded anew before it appears: here it is what was loaded that differs."""
    calls = []

    def damaged(path: str, *rest: object, **options: object):
        loaded = load_model(path, *rest, **options)
        calls.append(path)
        if len(calls) == 2:
            loaded.model.get_output_embeddings().weight.data[:10] *= 3
        return loaded

    monkeypatch.setattr(merging, "load_model", damaged)
    with pytest.raises(RunError, match="differs from the adapter"):
        merging.merge(merging.base_of(adapter), adapter, tmp_path / "merged")
    assert list(tmp_path.iterdir()) == []


def test_the_card_takes_its_numbers_from_the_records(adapter: Path, tmp_path: Path) -> None:
    cell = {"before": 0.5, "after": 0.71, "delta": 0.21, "low": 0.1, "high": 0.32, "verdict": "improved"}
    comparison = tmp_path / "comparison.json"
    comparison.write_text(json.dumps({"per_skill": {"relative_depth": cell}, "gate": {"passed": True}}))
    plain = (adapter / "README.md").read_text(encoding="utf-8")
    assert main(["card", str(adapter), "--comparison", str(comparison)]) == 0
    card = (adapter / "README.md").read_text(encoding="utf-8")
    assert "| relative_depth | 50.0 | 71.0 | 21.0 | 10.0 | 32.0 | improved |" in card and "Gate: passed." in card
    assert card.replace(card[card.index("## Results") : card.index("## Versions")], "") == plain
    assert "base_model: base" in card and "clean-under-stated-tests" in card
    assert "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a" in card, "sha256 of the manifest"
    assert str(adapter.parent) not in card, "no path of this machine"
    record = json.loads((adapter / "train_record.json").read_text())
    assert f"{record['trainable_parameters']} trainable parameters" in card
    assert main(["card", str(adapter), "--comparison", str(tmp_path / "none.json")]) == 2
