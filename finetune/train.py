"""Supervised fine-tuning with LoRA: TRL's stock SFTTrainer and collator, guarded before, during and after.

Read `train` from top to bottom: rows, model and targets, trainer, preflight, training, save, reload check, record.
`max_length` is null because truncation cuts the answer off; pictures are bounded by `image_max_pixels` instead.
"""

from __future__ import annotations

import json
import logging
import math
import shutil
import time
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from finetune.adapters import LoraScope, Tower, adapted_towers, lora_targets
from finetune.checkpoints import (
    CHECKPOINTS,
    DONE,
    claim,
    files_digest,
    folder_digest,
    load_adapter_weights,
    newest_checkpoint,
)
from finetune.loading import Device, VisionLanguageModel, load_base, load_processor, pick_device, quiet, threads
from finetune.precision import Precision, float32_attention, use_bf16
from finetune.preflight import Preflight, preflight
from finetune.reload import ReloadCheck, probe, reload_check
from finetune.rows import certificate_verdict, read_rows, require_certificate, shards, shuffle_answers
from synth.config import Config, digest, dump
from synth.errors import DatasetError, RunError
from synth.files import write_json
from synth.types import Progress

if TYPE_CHECKING:
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

logger = logging.getLogger(__name__)

PACKAGES = ("torch", "transformers", "trl", "peft", "datasets", "accelerate")
NOT_IDENTITY = {"out", "dataset", "threads", "workers", "save_steps", "logging_steps", "allow_uncertified"}
"""Settings that do not change the result (the data and the base model count by their contents)."""


class TrainSettings(Config):
    """How to train, whatever the model and the data."""

    allow_uncertified: bool = False
    """Train although the contamination guard has not found the dataset clean."""
    lora_r: int = Field(16, ge=1)
    lora_alpha: int = Field(32, ge=1)
    lora_dropout: float = Field(0.05, ge=0, lt=1)
    lora_scope: LoraScope = "language"
    learning_rate: float = Field(1e-4, gt=0)
    epochs: float = Field(1.0, gt=0)
    max_steps: int | None = Field(None, ge=1)
    """Optimiser steps, instead of `epochs`."""
    batch_size: int = Field(8, ge=1)
    gradient_accumulation: int = Field(1, ge=1)
    warmup: float = Field(0.05, ge=0, lt=1)
    """Share of the steps."""
    scheduler: Literal["cosine", "linear", "constant", "constant_with_warmup"] = "cosine"
    weight_decay: float = Field(0.0, ge=0)
    max_grad_norm: float = Field(1.0, gt=0)
    precision: Precision = "auto"
    gradient_checkpointing: bool | None = None
    """Default: on a GPU only."""
    device: Device = "auto"
    threads: int | None = Field(None, ge=1)
    """CPU threads of torch; default: as many as it finds."""
    workers: int = Field(0, ge=0)
    """Processes that decode pictures; worth it beside a GPU."""
    image_max_pixels: int | None = Field(None, ge=1)
    """Most pixels of an image, saved with the processor, so that evaluation keeps to it too."""
    max_length: int | None = Field(None, ge=1)
    """Leave it out: it cuts rows from their end, which is the answer. The preflight refuses rows that it would cut."""
    save_steps: int = Field(200, ge=1)
    """A killed training goes on from its newest checkpoint."""
    logging_steps: int = Field(10, ge=1)


class TrainConfig(TrainSettings):
    """`s2p train`: one LoRA training."""

    model: str
    """Folder of the base model (or its name on a hub that can be reached)."""
    dataset: Path
    """Folder that `s2p generate` wrote."""
    out: Path
    split: str = "train"
    shuffle_answers: bool = False
    """The control arm: answers of the target rows permuted, so that the gain must be nil."""
    seed: int = Field(0, ge=0)


class TrainRecord(Config):
    """What a training did: train_record.json, written last."""

    model: str
    dataset: str
    out: str
    identity: str
    """Digest of settings, data and base model."""
    shuffled_answers: bool
    certificate: str
    """The guard's verdict on the dataset."""
    rows: int
    rows_by_skill: dict[str, int]
    steps: int
    resumed_at: int
    """Step of the checkpoint that the last part of the run began from; 0: not resumed."""
    seconds: float
    """Of the training loop, in the last part of the run."""
    cpu_seconds: float
    tokens: int
    """Tokens trained on, as last logged."""
    losses: tuple[tuple[int, float], ...]
    """(step, mean loss since the last entry)."""
    modules: int
    """Layers with an adapter."""
    adapted: dict[Tower, int]
    """The same by tower."""
    trainable_parameters: int
    bf16: bool
    device: str
    preflight: Preflight
    adapter_effect: float
    """Largest change of a next-token log-probability by the adapter on a few rows; 0: an adapter that does nothing."""
    reload_difference: float
    """Largest difference of those log-probabilities between the trained model and the saved folder loaded anew."""
    versions: dict[str, str]


def train(config: TrainConfig, progress: Progress | None = None) -> TrainRecord:
    """Train one adapter into `config.out`, or go on from the newest checkpoint of a killed run.

    A finished run is not trained again: its record is returned.

    Writes the adapter, the processor and `train_record.json` (last). Raises DatasetError when rows must not be trained
    on, ConfigError, BackendError, and RunError when the folder belongs to another run.
    """
    if not config.allow_uncertified:
        require_certificate(config.dataset)
    files = shards(config.dataset, config.split)
    settings = {key: value for key, value in dump(config).items() if key not in NOT_IDENTITY}
    identity = digest(settings, files_digest(files), folder_digest(Path(config.model)))
    claim(config.out, identity, dump(config))
    if (config.out / DONE).is_file():
        return read_record(config.out)
    device = pick_device(config.device)
    bf16 = use_bf16(config.precision, device)
    cache = config.out / "rows"
    with quiet(), threads(config.threads), float32_attention(bf16 and device == "cpu"):
        rows = read_rows(config.dataset, config.split, cache=cache)
        if config.shuffle_answers:
            rows = shuffle_answers(rows, config.seed)
        trainer = _trainer(config, rows, device, bf16, progress)
        checked = _preflight(config, rows, trainer)
        loop = _run(config, trainer)
        trainer.save_model(str(config.out))
        reloaded = _reload(config, rows, trainer, device)
    record = _record(config, rows, trainer, identity, checked, loop, reloaded)
    write_json(config.out / DONE, dump(record))
    # Only now: a run killed before the record was written still goes on from its checkpoint.
    for folder in (cache, config.out / CHECKPOINTS):
        shutil.rmtree(folder, ignore_errors=True)
    return record


def read_record(out: Path) -> TrainRecord:
    """The record of a finished training. Raises RunError when the folder has none."""
    path = out / DONE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError("this training is not finished", where=str(path), fix="run it again: it goes on") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise RunError("not a JSON file", where=str(path)) from None
    return TrainRecord.model_validate(data)


@dataclass(frozen=True, kw_only=True)
class _Loop:
    """How the training loop went."""

    resumed_at: int
    seconds: float
    cpu_seconds: float


def _trainer(config: TrainConfig, rows: Dataset, device: str, bf16: bool, progress: Progress | None) -> SFTTrainer:
    from peft import LoraConfig
    from transformers import PrinterCallback
    from trl import SFTTrainer

    class Watched(SFTTrainer):
        """The stock trainer, with an eye on what it logs."""

        def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
            if "loss" in logs:
                check_step(self.state.global_step, logs["loss"], logs["grad_norm"], config)
            super().log(logs, start_time)
            if progress is not None:
                progress(self.state.global_step, self.state.max_steps)

    model = load_base(config.model, device)
    processor = load_processor(config.model, model.config.model_type, config.image_max_pixels)
    targets = lora_targets(model, config.lora_scope)
    trainer = Watched(
        model=model,
        processing_class=processor,
        args=_arguments(config, device, bf16),
        train_dataset=rows,
        peft_config=LoraConfig(
            r=config.lora_r,
            lora_alpha=config.lora_alpha,
            lora_dropout=config.lora_dropout,
            target_modules=list(targets.names),
            task_type="CAUSAL_LM",
        ),
    )
    trainer.remove_callback(PrinterCallback)
    found = adapted_towers(trainer.model)
    if found != targets.towers:
        raise RuntimeError(f"PEFT adapted {dict(found)}, asked for {dict(targets.towers)}")
    return trainer


def _arguments(config: TrainConfig, device: str, bf16: bool) -> SFTConfig:
    from trl import SFTConfig

    checkpointing = device == "cuda" if config.gradient_checkpointing is None else config.gradient_checkpointing
    return SFTConfig(
        output_dir=str(config.out / CHECKPOINTS),
        num_train_epochs=config.epochs,
        max_steps=config.max_steps or -1,
        per_device_train_batch_size=config.batch_size,
        gradient_accumulation_steps=config.gradient_accumulation,
        learning_rate=config.learning_rate,
        lr_scheduler_type=config.scheduler,
        warmup_steps=config.warmup,  # below 1 it is a share of the steps
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        max_length=config.max_length,
        bf16=bf16,
        use_cpu=device == "cpu",
        activation_checkpointing=checkpointing,  # the old name alone, which TRL sets, makes transformers warn
        gradient_checkpointing=checkpointing,
        dataloader_num_workers=config.workers,
        dataloader_pin_memory=device == "cuda",
        seed=config.seed,
        data_seed=config.seed,
        save_strategy="steps",
        save_steps=config.save_steps,
        save_total_limit=2,
        logging_steps=config.logging_steps,
        logging_first_step=True,  # so that a run that trains nothing stops at once
        logging_nan_inf_filter=False,  # the filter would hide a NaN loss from the guard
        report_to="none",
        disable_tqdm=True,
    )


def check_step(step: int, loss: float, grad_norm: float, config: TrainConfig) -> None:
    """Raises DatasetError when the logged loss or gradient norm is exactly 0 or not finite."""
    where = f"step {step}"
    if not (math.isfinite(loss) and math.isfinite(grad_norm)):
        raise DatasetError(
            f"the loss is {loss}, the gradient norm {grad_norm}",
            where=where,
            fix=f"lower learning_rate (now {config.learning_rate:g}), or set precision: fp32",
        )
    if loss == 0 or grad_norm == 0:
        raise DatasetError(
            f"the loss is {loss:g} and the gradient norm {grad_norm:g}: nothing is being trained",
            where=where,
            fix="no token carries a loss (look at max_length and the preflight's decoded rows), or the model already "
            "answers with certainty, or the adapted layers take no part in the answer (look at lora_scope)",
        )


def _preflight(config: TrainConfig, rows: Dataset, trainer: SFTTrainer) -> Preflight:
    text = trainer.model.config.get_text_config()
    context = getattr(text, "max_position_embeddings", None)
    checked = preflight(
        rows, trainer.processing_class, trainer.data_collator, context=context, batch_size=config.batch_size
    )
    for warning in checked.warnings:
        logger.warning("%s", warning)
    logger.info("first row of the first batch: %r", checked.first_rows[0])
    logger.info("loss on %s; longest row %d tokens", list(checked.supervised), checked.longest_tokens)
    return checked


def _run(config: TrainConfig, trainer: SFTTrainer) -> _Loop:
    from transformers import TrainerState

    checkpoint = newest_checkpoint(config.out)
    start, cpu_start = time.monotonic(), time.process_time()
    if checkpoint is None:
        trainer.train()
        resumed_at = 0
    else:
        logger.info("going on from %s", checkpoint)
        state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        resumed_at = state.global_step
        if state.global_step < state.max_steps:
            trainer.train(resume_from_checkpoint=str(checkpoint))
        else:
            # The run died after its last step. Trainer looks for the end only behind a step, so it would take one more.
            load_adapter_weights(trainer.model, checkpoint)
            trainer.state = state
    return _Loop(resumed_at=resumed_at, seconds=time.monotonic() - start, cpu_seconds=time.process_time() - cpu_start)


def _reload(config: TrainConfig, rows: Dataset, trainer: SFTTrainer, device: str) -> ReloadCheck:
    # Accelerate has wrapped the forward pass in autocast; the comparison is made without it.
    model = trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False).eval()
    trained = VisionLanguageModel(name="trained", model=model, processor=trainer.processing_class, device=device)
    return reload_check(config.model, config.out, rows, probe(trained, rows), config.device)


def _record(
    config: TrainConfig,
    rows: Dataset,
    trainer: SFTTrainer,
    identity: str,
    checked: Preflight,
    loop: _Loop,
    reloaded: ReloadCheck,
) -> TrainRecord:
    history = trainer.state.log_history
    towers = adapted_towers(trainer.model)
    return TrainRecord(
        model=config.model,
        dataset=str(config.dataset),
        out=str(config.out),
        identity=identity,
        shuffled_answers=config.shuffle_answers,
        certificate=certificate_verdict(config.dataset),
        rows=len(rows),
        rows_by_skill=dict(sorted(Counter(rows["skill"]).items())) if "skill" in rows.column_names else {},
        steps=trainer.state.global_step,
        resumed_at=loop.resumed_at,
        seconds=round(loop.seconds, 2),
        cpu_seconds=round(loop.cpu_seconds, 2),
        tokens=_tokens([int(entry["num_tokens"]) for entry in history if "num_tokens" in entry]),
        losses=tuple((int(entry["step"]), float(entry["loss"])) for entry in history if "loss" in entry),
        modules=sum(towers.values()),
        adapted=dict(towers),
        trainable_parameters=sum(p.numel() for p in trainer.model.parameters() if p.requires_grad),
        bf16=bool(trainer.args.bf16),
        device=str(trainer.args.device),
        preflight=checked,
        adapter_effect=reloaded.adapter_effect,
        reload_difference=reloaded.reload_difference,
        versions={name: version(name) for name in PACKAGES},
    )


def _tokens(counts: list[int]) -> int:
    """Tokens seen in all parts of a run: the trainer's counter begins at 0 again when a run is resumed."""
    total, previous = 0, 0
    for count in counts:
        if count < previous:
            total += previous
        previous = count
    return total + previous
