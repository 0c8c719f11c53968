"""One whole round on the built-in model, small: every stage, resume, refusal, the gate; and TRL's own command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from finetune import rounds
from finetune.rounds import LaterRound, LoopConfig, change_of, loop
from synth.config import load_config
from synth.diagnosis.reading import load_outcomes
from synth.errors import RunError
from synth.plan import PlanOptions
from tests.conftest import ROOT
from tests.scenes import benchmark_folder, folder_with_truth

SMALL = [
    "name=small",
    "benchmark.n_rooms=8",
    "benchmark.n_depth=40",
    "benchmark.n_left_right=30",
    "benchmark.n_semantic=30",
    "plan.budget=96",
    "plan.max_accuracy=0.75",
    "generate.source={name: rooms, first_seed: 2000000, n_rooms: 6, seeds: [1000000]}",
    "generate.output.images_per_shard=6",
    "train.max_steps=3",
    "gate.improve=none",
    "gate.retention_margin=0.9",
    "gate.margin_together=0.9",
]


@pytest.fixture(scope="module")
def config(rooms_cache: Path) -> LoopConfig:
    cache = f"cache={rooms_cache}"
    return load_config(
        ROOT / "configs" / "demo.yaml", LoopConfig, [*SMALL, f"benchmark.{cache}", f"generate.source.{cache}"]
    )


@pytest.fixture(scope="module")
def run(config: LoopConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The loop, run once in this process's folder of the checkout (the model's path is relative to it)."""
    out = tmp_path_factory.mktemp("loop") / "run"
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        loop(config, out)
    finally:
        os.chdir(before)
    return out


def test_every_stage_left_its_file(run: Path) -> None:
    folder = run / "round-00"
    for name in (
        "before/outcomes.jsonl",
        "before/profile.json",
        "plan.json",
        "dataset/manifest.json",
        "dataset/certificate.json",
        "train/train_record.json",
        "train/adapter_model.safetensors",
        "after/outcomes.jsonl",
        "controls/shuffled/after/outcomes.jsonl",
        "comparison.json",
        "examples.json",
    ):
        assert (folder / name).exists(), name
    html = (run / "report.html").read_text(encoding="utf-8")
    assert "depth signal which the decoder did not use" in html and "shuffled" in html.lower()


def test_the_arms_answer_the_same_items(run: Path) -> None:
    folder = run / "round-00"
    paths = ("before/outcomes.jsonl", "after/outcomes.jsonl", "controls/shuffled/after/outcomes.jsonl")
    keys = [[(o.item_id, o.gold) for o in load_outcomes(folder / path)] for path in paths]
    assert keys[0] == keys[1] == keys[2] and len(keys[0]) == 40 + 30 + 4 * 30
    assert all(sum(o.probabilities.values()) > 0.8 for o in load_outcomes(folder / paths[0])), "the format is known"


def test_benchmark_rooms_in_the_pool_are_thrown_out(run: Path) -> None:
    manifest = json.loads((run / "round-00" / "dataset" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["guard"]["removed"] == {"benchmark_copy": 2}
    assert manifest["guard"]["found"] == manifest["guard"]["planted"] >= 10
    assert manifest["images"] == {"listed": 14, "used": 12, "dropped": 2}


def test_the_plan_teaches_what_is_weak_and_leaves_the_control_alone(run: Path) -> None:
    plan = json.loads((run / "round-00" / "plan.json").read_text(encoding="utf-8"))
    targets = {quota["skill"] for quota in plan["quotas"] if quota["role"] == "target"}
    assert "relative_depth" in targets
    assert "left_right" not in {quota["skill"] for quota in plan["quotas"]}
    assert all(quota["why"] for quota in plan["quotas"])


def test_run_again_it_does_nothing_twice(config: LoopConfig, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    adapter = run / "round-00" / "train" / "adapter_model.safetensors"
    before = adapter.stat().st_mtime_ns
    loop(config, run)
    assert adapter.stat().st_mtime_ns == before


def test_other_settings_in_the_same_folder_are_refused(config: LoopConfig, run: Path) -> None:
    with pytest.raises(RunError, match="other settings"):
        loop(config.model_copy(update={"seed": 9}), run)


def test_a_finished_loop_takes_a_further_round(config: LoopConfig, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many rounds there are, and how many arms train at a time, changes nothing of the rounds that are there."""
    monkeypatch.chdir(ROOT)
    settled = (run / "round-00" / "train" / "train_record.json").stat().st_mtime_ns
    longer = config.model_copy(update={"rounds": 2, "workers": 1})
    monkeypatch.setattr(rounds, "merge_adapter", lambda *_: (_ for _ in ()).throw(RunError("a second round begins")))
    with pytest.raises(RunError, match="a second round begins"):
        loop(longer, run)
    assert (run / "round-00" / "train" / "train_record.json").stat().st_mtime_ns == settled


def test_a_gate_that_says_no_stops_the_loop(config: LoopConfig, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps teach nothing; a gate that wants an improvement must say so."""
    monkeypatch.chdir(ROOT)
    strict = config.model_copy(update={"gate": config.gate.model_copy(update={"improve": "all"})})
    (run / "loop.json").unlink()
    last = loop(strict, run)[-1]
    assert not last.gate_passed and any("no evidence that it improved" in reason for reason in last.gate_reasons)
    comparison = json.loads((run / "round-00" / "comparison.json").read_text(encoding="utf-8"))
    assert comparison["gate"]["passed"] is False


def test_later_rounds_may_differ_and_the_last_word_stays(config: LoopConfig) -> None:
    second, third = LaterRound(train={"lora_scope": "all"}, arms={}), LaterRound(plan=PlanOptions(budget=9))
    several = config.model_copy(update={"rounds": 5, "later": (second, third)})
    assert [change_of(several, number) for number in range(5)] == [LaterRound(), second, third, third, third]
    assert change_of(config, 3) == LaterRound()


def test_trl_trains_on_the_folder_as_it_is(tmp_path: Path) -> None:
    """`trl sft` with none of our code in between: one and two pictures a row."""
    folder_with_truth(tmp_path / "photos", 6)
    bench = benchmark_folder(tmp_path / "bench", 12)
    recipe = {
        "name": "native",
        "source": {"name": "folder", "path": str(tmp_path / "photos")},
        "perception": {"depth": {"name": "truth"}, "matches": {"name": "homography"}, "cache": None},
        "tasks": {"relative_depth": {"n": 8}, "visual_correspondence": {"n": 8}},
        "guard": {"benchmark": {"name": "jsonl", "path": str(bench)}},
        "output": {"validation_share": 0.0},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    s2p = [sys.executable, "-m", "finetune.cli", "generate", str(tmp_path / "recipe.yaml")]
    subprocess.run([*s2p, "--out", str(tmp_path / "dataset")], check=True, cwd=ROOT, capture_output=True)
    settings = {
        "model_name_or_path": str(ROOT / "finetune" / "tiny" / "base"),
        "dataset_name": str(tmp_path / "dataset"),
        "output_dir": str(tmp_path / "adapter"),
        "max_length": None,
        "use_cpu": True,
        "bf16": False,
        "use_peft": True,
        "lora_target_modules": ".*language_model.*(q_proj|v_proj)",
        "max_steps": 2,
        "per_device_train_batch_size": 4,
        "report_to": "none",
        "save_strategy": "no",
    }
    (tmp_path / "sft.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    trl = [str(Path(sys.executable).with_name("trl")), "sft", "--config", str(tmp_path / "sft.yaml")]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(trl, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "adapter" / "adapter_model.safetensors").exists()
