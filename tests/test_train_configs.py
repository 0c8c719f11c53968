"""Ready configs: each loads, fits its family, and says what memory it needs; the estimate counts exactly."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from finetune.adapters import lora_targets
from finetune.cli import main
from finetune.estimate import TOKEN_TILE, Estimate, estimate, lora_parameters
from finetune.settings import TrainConfig
from finetune.skeleton import skeleton, unquantized_modules
from synth.config import load_config, validate
from tests.conftest import ROOT
from tests.small_vlms import colour_rows, small_config, small_qwen, write_rows

CONFIGS = sorted((ROOT / "configs" / "train").glob("*.yaml"))
FAMILIES = ("smolvlm", "qwen2_5_vl", "qwen3_vl", "internvl", "llava_onevision")
VISION = ("vision_tower", "vision_model", "visual")


def overrides(path: Path) -> list[str]:
    line = next(line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("# 80 GB:"))
    return re.findall(r"--set (\S+)", line)


def family(path: Path) -> str:
    known = [name for name in FAMILIES if path.stem.startswith(name)]
    return known[0] if known else "qwen2_5_vl"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("families")
    return {name: small_config(name, root / name) for name in FAMILIES}


def test_every_promised_family_and_size_is_there() -> None:
    assert {path.stem for path in CONFIGS} == {
        *("smolvlm2_500m", "smolvlm2_2b", "qwen2_5_vl_3b", "qwen2_5_vl_7b", "qwen3_vl_4b", "qwen3_vl_8b"),
        *("internvl3_2b", "internvl3_8b", "llava_onevision_0_5b", "llava_onevision_7b", "dpo", "grpo"),
    }


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_a_config_loads_for_both_gpus_and_its_targets_resolve(path: Path, folders: dict[str, Path]) -> None:
    small, large = load_config(path, TrainConfig), load_config(path, TrainConfig, overrides(path))
    assert small != large
    sizes = [c.batch_size * c.gradient_accumulation for c in (small, large)]
    assert sizes[1] >= sizes[0], "more memory is no reason for smaller steps"
    assert small.max_length is None and not small.allow_uncertified
    model = skeleton(str(folders[family(path)]))
    targets = lora_targets(model, small.lora_scope)
    assert targets.towers == {"language": 14, "projector": 0, "vision": 0}
    assert not any(part in name for name in targets.names for part in VISION)
    command = path.read_text(encoding="utf-8").splitlines()[1]
    assert command.startswith(f"# s2p train configs/train/{path.name}")


@pytest.mark.parametrize("name", FAMILIES)
def test_trainable_parameters_are_counted_as_peft_makes_them(name: str, folders: dict[str, Path]) -> None:
    """On the meta device, where nothing is allocated; with DoRA's magnitudes."""
    from peft import LoraConfig, get_peft_model

    for scope, dora in (("language", False), ("all", True)):
        model = skeleton(str(folders[name]))
        names = lora_targets(model, scope).names
        counted = lora_parameters(model, names, 8, dora)
        lora = LoraConfig(r=8, target_modules=list(names), task_type="CAUSAL_LM", use_dora=dora)
        adapted = get_peft_model(model, lora, low_cpu_mem_usage=True)
        assert counted == sum(p.numel() for p in adapted.parameters() if p.requires_grad)


def test_only_the_decoder_is_quantised(folders: dict[str, Path]) -> None:
    for name in FAMILIES:
        model = skeleton(str(folders[name]))
        kept = unquantized_modules(str(folders[name]))
        decoder = set(lora_targets(model, "language").names)
        assert not any(layer.startswith(f"{module}.") for layer in decoder for module in kept)
        others = set(lora_targets(model, "all").names) - decoder
        assert all(any(layer == m or layer.startswith(f"{m}.") for m in kept) for layer in others)
        assert "lm_head" in kept


@pytest.fixture(scope="module")
def trainable(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    root = tmp_path_factory.mktemp("estimate")
    rows = write_rows(root / "rows", colour_rows(12))
    return {"model": str(small_qwen(root / "qwen")), "dataset": str(rows), "out": str(root / "out")}


def of(trainable: dict[str, object], **changes: object) -> Estimate:
    return estimate(validate({**trainable, **changes}, TrainConfig, "test"))


def test_the_estimate_follows_its_formula(trainable: dict[str, object]) -> None:
    from finetune.loading import load_model

    plain = of(trainable, batch_size=2)
    model = load_model(str(trainable["model"])).model
    assert plain.parameters == sum(p.numel() for p in model.parameters()) == sum(plain.parameters_by_tower.values())
    assert plain.tokens > 40 and plain.tokens_from.startswith("row qa-")
    assert plain.bytes["weights"] == 2 * plain.parameters
    assert plain.bytes["optimiser"] == 8 * plain.lora_parameters == 2 * plain.bytes["gradients"]
    n, h, k, mlp, vocabulary = 2 * plain.tokens, 32, 32, 64, model.config.get_text_config().vocab_size
    layer = n * 2 * (10 * h + 2 * k + 4 * mlp)
    assert plain.bytes["activations"] == 2 * n * 2 * h + 2 * layer
    assert plain.bytes["logits"] == 2 * min(n, TOKEN_TILE) * vocabulary * 4
    assert plain.total == sum(plain.bytes.values())
    on_cpu = of(trainable, batch_size=2, device="cpu")
    assert on_cpu.bytes["weights"] == 4 * plain.parameters
    full = of(trainable, batch_size=2, gradient_checkpointing=False)
    assert full.bytes["activations"] == 2 * layer + layer


def test_methods_and_options_change_what_they_should(trainable: dict[str, object]) -> None:
    plain = of(trainable)
    assert of(trainable, method="dpo").rows == 2 * plain.rows
    grpo = of(trainable, method="grpo", grpo={"max_new_tokens": 5})
    assert grpo.tokens == plain.tokens + 5 and grpo.bytes["generation"] > 0
    four = of(trainable, quantization="4bit")
    assert four.bytes["weights"] < plain.bytes["weights"] and four.bytes["adapter"] == plain.bytes["adapter"] // 2
    assert of(trainable, lora_scope="all").bytes["activations"] > plain.bytes["activations"]
    assert of(trainable, lora_r=32).lora_parameters == 2 * plain.lora_parameters


def test_a_dry_run_prints_the_estimate_and_writes_nothing(
    trainable: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.yaml"
    path.write_text(yaml.safe_dump(trainable))
    assert main(["train", str(path), "--dry-run"]) == 0
    said = capsys.readouterr().out
    for word in ("weights", "adapter", "gradients", "optimiser", "activations", "logits", "together", "GiB"):
        assert word in said
    assert not Path(str(trainable["out"])).exists()


def test_a_dry_run_without_the_models_config_says_what_to_fetch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = ROOT / "configs" / "train" / "qwen3_vl_4b.yaml"
    assert main(["train", str(path), "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert "config.json of Qwen/Qwen3-VL-4B-Instruct" in said and "weights are not needed" in said
    # The config alone is enough: tokens are then assumed, and it says so.
    small_config("qwen3_vl", tmp_path / "qwen")
    assert main(["train", str(path), "--dry-run", "--set", f"model={tmp_path / 'qwen'}"]) == 0
    assert "assumed" in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "accelerate").glob("*.yaml")), ids=lambda p: p.stem)
def test_accelerate_files_are_what_accelerate_reads(path: Path) -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    found = load_config_from_file(str(path))
    kind = {"ddp": "MULTI_GPU", "zero2": "DEEPSPEED", "fsdp2": "FSDP"}[path.stem]
    assert str(found.distributed_type).rsplit(".", 1)[-1] == kind
    assert found.mixed_precision == "bf16" and found.num_machines == 1
    if kind == "FSDP":
        assert found.fsdp_config["fsdp_version"] == 2
    if kind == "DEEPSPEED":
        assert found.deepspeed_config["zero_stage"] == 2
    assert f"--config_file configs/accelerate/{path.name}" in path.read_text(encoding="utf-8").splitlines()[1]
