"""Training end to end on small models of stock classes: guards, resume, reload, merge; and that it teaches."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from finetune.adapters import lora_targets
from finetune.checkpoints import CHECKPOINTS, DONE, newest_checkpoint
from finetune.loading import load_model
from finetune.merging import merge_adapter
from finetune.precision import float32_attention, use_bf16
from finetune.score import score
from finetune.train import TrainConfig, check_step, read_record, train
from synth.config import validate
from synth.errors import BackendError, ConfigError, DatasetError, RunError
from synth.guard.certificate import CLEAN
from tests.small_vlms import colour_rows, questions, small_llava, small_qwen, write_rows

VISION = ("vision_tower", "visual")


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_llava(tmp_path_factory.mktemp("llava") / "base")


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_qwen(tmp_path_factory.mktemp("qwen") / "base")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("rows") / "dataset", colour_rows(96))


def config(model: Path, dataset: Path, out: Path, **changes: object) -> TrainConfig:
    settings = {
        "lora_r": 8,
        "lora_alpha": 16,
        "learning_rate": 0.02,
        "batch_size": 8,
        "max_steps": 24,
        "logging_steps": 4,
        "threads": 1,
    }
    return validate(
        {**settings, "model": str(model), "dataset": str(dataset), "out": str(out), **changes}, TrainConfig, "test"
    )


def accuracy(model: Path, adapter: Path | None) -> float:
    rows = colour_rows(60, seed=5)
    scores = score(load_model(str(model), adapter), questions(rows), n_threads=1)
    return sum(s.letter == row["answer"] for s, row in zip(scores, rows, strict=True)) / len(rows)


@pytest.fixture(scope="module")
def trained(llava: Path, dataset: Path, tmp_path_factory: pytest.TempPathFactory):
    out = tmp_path_factory.mktemp("trained") / "run"
    steps: list[tuple[int, int]] = []
    record = train(config(llava, dataset, out), lambda done, total: steps.append((done, total)))
    return out, record, steps


def test_training_teaches_what_held_out_questions_ask(llava: Path, trained) -> None:
    out, record, _ = trained
    assert accuracy(llava, None) < 0.7
    assert accuracy(llava, out) > 0.9
    assert record.losses[-1][1] < record.losses[0][1] / 2


def test_the_record_says_what_was_done(llava: Path, dataset: Path, trained) -> None:
    out, record, steps = trained
    assert record == read_record(out)
    assert (record.steps, record.rows, record.resumed_at) == (24, 96, 0)
    assert record.rows_by_skill == {"colour_at_mark": 72, "object_colour": 24}
    assert record.adapted == {"language": 14, "projector": 0, "vision": 0}
    assert record.modules == 14
    assert record.certificate == CLEAN
    assert record.preflight.supervised == (" A<end>\n", " B<end>\n")
    assert record.adapter_effect > 0
    assert record.reload_difference < 1e-4
    assert record.tokens > 24 * 8 * 40
    assert steps[-1] == (24, 24)
    assert {"adapter_model.safetensors", "processor_config.json", DONE} <= {path.name for path in out.iterdir()}
    assert not (out / CHECKPOINTS).exists()


def test_a_finished_training_is_not_run_again(llava: Path, dataset: Path, trained) -> None:
    out, record, _ = trained
    calls: list[int] = []
    assert train(config(llava, dataset, out), lambda done, total: calls.append(done)) == record
    assert calls == []


def test_a_folder_of_other_settings_or_files_is_refused(llava: Path, dataset: Path, trained, tmp_path: Path) -> None:
    out, _, _ = trained
    with pytest.raises(RunError, match="other settings"):
        train(config(llava, dataset, out, learning_rate=0.01))
    with pytest.raises(RunError, match="other settings, another model or other data"):
        train(config(llava, write_rows(tmp_path / "other", colour_rows(20)), out))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("keep me")
    with pytest.raises(RunError, match="not empty"):
        train(config(llava, dataset, tmp_path / "mine"))


def test_a_killed_training_ends_in_the_same_weights(llava: Path, dataset: Path, trained, tmp_path: Path) -> None:
    """Bit for bit, with dropout on and a half-written checkpoint in the way."""
    from safetensors.torch import load_file

    whole, _, _ = trained

    def killed(done: int, total: int) -> None:
        if done >= 20:
            raise KeyboardInterrupt

    run = config(llava, dataset, tmp_path / "run", save_steps=8)
    with pytest.raises(KeyboardInterrupt):
        train(run, killed)
    assert not (run.out / DONE).exists()
    checkpoints = run.out / CHECKPOINTS
    shutil.copytree(checkpoints / "checkpoint-16", checkpoints / "checkpoint-19")
    torn = checkpoints / "checkpoint-19" / "optimizer.pt"
    torn.write_bytes(torn.read_bytes()[:-500])
    record = train(run)
    assert (record.resumed_at, record.steps) == (16, 24)
    assert not (checkpoints / "checkpoint-19").exists()
    a, b = (load_file(folder / "adapter_model.safetensors") for folder in (whole, run.out))
    assert a.keys() == b.keys()
    assert all((a[name] == b[name]).all() for name in a)
    assert [step for step, _ in record.losses] == [1, 4, 8, 12, 16, 20, 24]


def test_a_training_killed_after_its_last_step_takes_no_other(
    llava: Path, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schedule ends inside an epoch here: left to itself, the trainer would then take an eleventh step."""
    import finetune.train as module

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    run = config(llava, dataset, tmp_path / "run", max_steps=10, scheduler="constant")
    with monkeypatch.context() as patch:
        patch.setattr(module, "reload_check", killed)
        with pytest.raises(KeyboardInterrupt):
            train(run)
    weights = (run.out / "adapter_model.safetensors").read_bytes()
    record = train(run)
    assert (record.steps, record.resumed_at) == (10, 10)
    assert (run.out / "adapter_model.safetensors").read_bytes() == weights


def test_cut_checkpoints_of_every_kind_are_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / CHECKPOINTS / "checkpoint-5"
    folder.mkdir(parents=True)
    assert newest_checkpoint(tmp_path) is None
    assert not folder.exists()


def test_qwen_trains_without_any_special_case(qwen: Path, dataset: Path, tmp_path: Path) -> None:
    record = train(config(qwen, dataset, tmp_path / "run", lora_scope="language+projector", image_max_pixels=1024))
    assert record.preflight.supervised == ("A<|im_end|>\n", "B<|im_end|>\n")
    assert record.adapted == {"language": 14, "projector": 2, "vision": 0}
    assert accuracy(qwen, tmp_path / "run") > 0.9
    assert load_model(str(qwen), tmp_path / "run").processor.image_processor.size["longest_edge"] == 1024


@pytest.mark.parametrize("name", ["llava", "qwen"])
def test_language_scope_never_touches_the_vision_tower(name: str, request: pytest.FixtureRequest) -> None:
    import torch

    model = load_model(str(request.getfixturevalue(name))).model
    language = lora_targets(model, "language")
    assert language.names
    assert not any(part in target for target in language.names for part in VISION)
    everything = lora_targets(model, "all")
    assert everything.towers["vision"] > 0
    assert set(language.names) < set(lora_targets(model, "language+projector").names) < set(everything.names)
    linears = [n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)]
    assert set(linears) - set(everything.names) == {"lm_head"}


def test_a_model_without_linear_layers_in_scope_is_refused(llava: Path) -> None:
    import torch

    model = load_model(str(llava)).model
    for layer in model.get_decoder().layers:
        for block in (layer.self_attn, layer.mlp):
            for name, child in list(block.named_children()):
                if isinstance(child, torch.nn.Linear):
                    setattr(block, name, torch.nn.Identity())
    with pytest.raises(ConfigError, match="finds no linear layer"):
        lora_targets(model, "language")


def test_merging_gives_a_model_folder_that_answers_alike(llava: Path, trained, tmp_path: Path) -> None:
    out, _, _ = trained
    merged = merge_adapter(str(llava), out, tmp_path / "merged")
    assert accuracy(merged, None) == accuracy(llava, out)
    assert merge_adapter(str(llava), out, tmp_path / "merged") == merged


def test_uncertified_data_is_refused_unless_asked_for(llava: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows", colour_rows(16), verdict=None)
    with pytest.raises(DatasetError, match=r"no certificate\.json"):
        train(config(llava, rows, tmp_path / "run", max_steps=2))
    record = train(config(llava, rows, tmp_path / "run", max_steps=2, allow_uncertified=True, control="shuffled"))
    assert record.certificate == "no certificate.json"
    assert record.control == "shuffled"


def test_a_max_length_that_cuts_answers_is_refused_before_step_one(llava: Path, dataset: Path, tmp_path: Path) -> None:
    seen: list[int] = []
    with pytest.raises(DatasetError, match="no supervised token"):
        train(config(llava, dataset, tmp_path / "run", max_length=30), lambda done, total: seen.append(done))
    assert seen == []
    assert not (tmp_path / "run" / "adapter_model.safetensors").exists()


def test_a_loss_of_exactly_zero_or_nan_stops_the_run(llava: Path, dataset: Path, tmp_path: Path) -> None:
    settings = config(llava, dataset, tmp_path)
    check_step(4, 0.3, 1.2, settings)
    for loss, norm, said in (
        (0.0, 0.0, "nothing is being"),
        (0.7, 0.0, "nothing is being"),
        (float("nan"), 1.0, "nan"),
    ):
        with pytest.raises(DatasetError, match=said) as error:
            check_step(4, loss, norm, settings)
        assert error.value.where == "step 4"
        assert error.value.fix


def test_stock_trl_takes_the_folder_as_it_is(llava: Path, dataset: Path, tmp_path: Path) -> None:
    """What `trl sft` does with `dataset_name: folder`: no code of ours between the files and the trainer."""
    from datasets import load_dataset
    from peft import LoraConfig
    from trl import SFTConfig, SFTTrainer

    rows = load_dataset(str(dataset), split="train", cache_dir=str(tmp_path / "cache"))
    assert len(rows) == 96
    trainer = SFTTrainer(
        model=str(llava),
        args=SFTConfig(
            output_dir=str(tmp_path / "out"),
            max_length=None,
            max_steps=2,
            per_device_train_batch_size=4,
            use_cpu=True,
            bf16=False,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
        ),
        train_dataset=rows,
        peft_config=LoraConfig(target_modules=r".*language_model.*(q_proj|v_proj)", task_type="CAUSAL_LM"),
    )
    assert trainer.train().training_loss > 0


def test_attention_runs_in_float32_under_autocast_and_is_restored() -> None:
    import torch
    from torch.nn import functional

    original = functional.scaled_dot_product_attention
    q, k, v = torch.randn(3, 1, 2, 8, 16).to(torch.bfloat16)
    mask = torch.zeros(1, 1, 8, 8, dtype=torch.bfloat16)
    with float32_attention(True), torch.autocast("cpu", torch.bfloat16):
        assert functional.scaled_dot_product_attention is not original
        ours = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    exact = original(q.float(), k.float(), v.float())
    assert ours.dtype == torch.bfloat16
    assert torch.equal(ours, exact.to(torch.bfloat16))
    assert functional.scaled_dot_product_attention is original
    with float32_attention(False):
        assert functional.scaled_dot_product_attention is original
    assert use_bf16("bf16", "cpu")
    assert not use_bf16("fp32", "cuda")


# ------------------------------------------------------------------------------------ what is trained on, and how long


def test_the_best_step_on_the_dev_set_is_kept_and_patience_ends_the_run(
    llava: Path, dataset: Path, tmp_path: Path
) -> None:
    """A rate that ruins the model after it has learned: the kept weights are those of the best look, not the last."""
    dev = {"share": 0.25, "every": 4, "patience": 3}
    record = train(config(llava, dataset, tmp_path / "run", max_steps=60, dev=dev, scheduler="constant"))
    assert record.dev is not None and record.dev.best_step is not None
    looks = dict(record.dev.accuracy)
    assert looks[record.dev.best_step] == max(looks.values())
    assert record.dev.stopped_early and record.steps == record.dev.best_step + 3 * 4
    assert record.dev.questions == 24 and record.rows == 72
    assert accuracy(llava, tmp_path / "run") > 0.8


def test_a_killed_run_with_a_dev_set_ends_in_the_same_weights(llava: Path, dataset: Path, tmp_path: Path) -> None:
    """Looks, patience, curriculum and replay go on where they were."""
    from safetensors.torch import load_file

    settings = {
        "max_steps": 10,
        "dev": {"share": 0.2, "every": 3, "patience": 9},
        "replay": {"path": str(dataset), "share": 0.25},
        "curriculum": "staged",
    }
    whole = train(config(llava, dataset, tmp_path / "whole", **settings))

    def killed(done: int, total: int) -> None:
        if done >= 8:
            raise KeyboardInterrupt

    run = config(llava, dataset, tmp_path / "run", **settings)
    with pytest.raises(KeyboardInterrupt):
        train(run, killed)
    record = train(run)
    assert record.resumed_at == 6
    assert record.dev == whole.dev
    assert [step for step, _ in whole.dev.accuracy] == [3, 6, 9, 10], "the last step is looked at as well"
    a, b = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("whole", "run"))
    assert all((a[name] == b[name]).all() for name in a)


def test_variants_and_another_adapter_to_go_on_from(qwen: Path, dataset: Path, tmp_path: Path) -> None:
    import json

    first = train(config(qwen, dataset, tmp_path / "dora", max_steps=2, use_dora=True, use_rslora=True))
    saved = json.loads((tmp_path / "dora" / "adapter_config.json").read_text())
    assert saved["use_dora"] and saved["use_rslora"]
    second = train(config(qwen, dataset, tmp_path / "next", max_steps=2, adapter=str(tmp_path / "dora"), lora_r=4))
    assert second.trainable_parameters == first.trainable_parameters
    assert json.loads((tmp_path / "next" / "adapter_config.json").read_text())["r"] == 8
    with pytest.raises(BackendError, match="no adapter_config"):
        train(config(qwen, dataset, tmp_path / "none", max_steps=2, adapter=str(tmp_path)))


def test_four_bit_weights_without_a_gpu_are_refused_before_anything_is_written(
    llava: Path, dataset: Path, tmp_path: Path
) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(BackendError, match="need a GPU"):
        train(config(llava, dataset, tmp_path / "run", quantization="4bit"))
    assert not (tmp_path / "run").exists()
