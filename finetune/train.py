"""LoRA fine-tuning with TRL's stock trainers (SFT, DPO, GRPO), guarded before, during and after.

Read `train` from top to bottom: rows, model and targets, trainer, preflight, training, save, reload check, record.
`max_length` is null because truncation cuts the answer off; pictures are bounded by `image_max_pixels` instead.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from finetune.adapters import adapted_towers
from finetune.card import write_adapter_card
from finetune.checkpoints import (
    CHECKPOINTS,
    DONE,
    claim,
    files_digest,
    folder_digest,
    load_adapter_weights,
    newest_checkpoint,
)
from finetune.controls import control_rows
from finetune.dpo import dpo_trainer
from finetune.grpo import grpo_trainer
from finetune.loading import VisionLanguageModel, pick_device, quiet, threads
from finetune.mix import Replayed, mix_replay, ordered, split_dev
from finetune.parts import Parts, load_parts, shared_arguments
from finetune.precision import float32_attention, use_bf16
from finetune.preflight import Preflight, preflight
from finetune.quantized import require_quantization
from finetune.record import PACKAGES, DevResult, TrainRecord, read_record
from finetune.reload import ReloadCheck, probe, reload_check
from finetune.rows import certificate_verdict, read_rows, require_certificate, shards
from finetune.settings import NOT_IDENTITY, TrainConfig, TrainSettings
from finetune.watching import ACCURACY, ZERO_VARIANCE, Watch, check_step, dev_set, last_look, metric_history, watched
from synth.config import digest, dump
from synth.files import write_json
from synth.types import Progress

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import Trainer

__all__ = ["TrainConfig", "TrainRecord", "TrainSettings", "check_step", "read_record", "train"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """What is trained on, and what is asked on the way."""

    train: Dataset
    dev: Dataset | None
    replay: Replayed | None


@dataclass(frozen=True, kw_only=True)
class _Loop:
    """How the training loop went."""

    resumed_at: int
    seconds: float
    cpu_seconds: float
    trainable: int
    stopped_early: bool


def train(config: TrainConfig, progress: Progress | None = None) -> TrainRecord:
    """Train one adapter into `config.out`, or go on from the newest checkpoint of a killed run.

    A finished run is not trained again: its record is returned.

    Writes the adapter, the processor, its card and `train_record.json` (last). Raises DatasetError when rows must not
    be trained on, ConfigError, BackendError, and RunError when the folder belongs to another run.
    """
    from accelerate import PartialState

    if not config.allow_uncertified:
        for folder in (config.dataset, *([config.replay.path] if config.replay else [])):
            require_certificate(folder, config.benchmark)
    if config.quantization is not None:
        require_quantization()
    identity = _identity(config)
    device = pick_device(config.device)
    ranks = PartialState(cpu=device == "cpu")  # one process, unless `accelerate launch` has started several
    with ranks.main_process_first():
        claim(config.out, identity, dump(config))
    if (config.out / DONE).is_file():
        return read_record(config.out)
    bf16 = use_bf16(config.precision, device)
    cache = config.out / "rows"
    with quiet(), threads(config.threads), float32_attention(bf16 and device == "cpu"):
        rows = _rows(config, cache)
        dev = dev_set(rows.dev) if rows.dev is not None else None
        watch = Watch(config=config, device=device, dev=dev, progress=progress)
        trainer = make_trainer(load_parts(config, rows.train, rows.dev, bf16, watch))
        checked = _preflight(config, rows.train, trainer)
        loop = _run(config, trainer)
        _save(config, trainer)
        reloaded = _reload(config, rows.train, trainer, device)
    if reloaded is None:
        ranks.wait_for_everyone()
        return read_record(config.out)
    record = _record(config, rows, trainer, identity, checked, loop, reloaded)
    if record.zero_variance == 1:
        logger.warning("in every group all replies earned the same: no reward has trained anything")
    write_adapter_card(config.out, record, dump(config))
    write_json(config.out / DONE, dump(record))
    ranks.wait_for_everyone()
    # Only now: a run killed before the record was written still goes on from its checkpoint.
    for folder in (cache, config.out / CHECKPOINTS):
        shutil.rmtree(folder, ignore_errors=True)
    return record


def make_trainer(parts: Parts) -> Trainer:
    """The trainer of the configured method, with what PEFT adapted checked against what was asked for."""
    from transformers import EarlyStoppingCallback, PrinterCallback

    config = parts.config
    trainer = {"sft": sft_trainer, "dpo": dpo_trainer, "grpo": grpo_trainer}[config.method](parts)
    trainer.remove_callback(PrinterCallback)
    if config.dev is not None:
        trainer.add_callback(last_look())
        if config.dev.patience is not None:
            trainer.add_callback(EarlyStoppingCallback(config.dev.patience))
    found = adapted_towers(trainer.model)
    if parts.towers is not None and found != parts.towers:
        raise RuntimeError(f"PEFT adapted {dict(found)}, asked for {dict(parts.towers)}")
    return trainer


def sft_trainer(parts: Parts) -> Trainer:
    """TRL's stock SFTTrainer and collator: the loss falls on the completion alone."""
    from trl import SFTConfig, SFTTrainer

    return watched(SFTTrainer, parts.watch)(
        model=parts.model,
        processing_class=parts.processor,
        args=SFTConfig(**shared_arguments(parts), max_length=parts.config.max_length),
        train_dataset=parts.rows,
        eval_dataset=parts.dev,
        peft_config=parts.lora,
    )


def _identity(config: TrainConfig) -> str:
    settings = {key: value for key, value in dump(config).items() if key not in NOT_IDENTITY}
    data = [files_digest(shards(config.dataset, config.split))]
    if config.replay is not None:
        data.append(files_digest(shards(config.replay.path, config.replay.split)))
    if config.adapter is not None:
        data.append(folder_digest(config.adapter))
    return digest(settings, [*data, folder_digest(Path(config.model))])


def _rows(config: TrainConfig, cache: Path) -> _Rows:
    also = ("provenance",) if config.method == "dpo" else ()
    rows = read_rows(config.dataset, config.split, cache=cache, also=also)
    dev, replayed = None, None
    if config.dev is not None:
        rows, dev = split_dev(rows, config.dev, config.dataset, cache, config.seed)
    if config.replay is not None:
        held = () if dev is None else tuple(dev["source_group"])
        verdict = certificate_verdict(config.replay.path)
        rows, replayed = mix_replay(rows, config.replay, verdict, cache, config.seed, held)
    if config.control is not None:
        rows = control_rows(rows, config.control, config.seed, cache)
    return _Rows(train=ordered(rows, config.curriculum, config.seed), dev=dev, replay=replayed)


def _preflight(config: TrainConfig, rows: Dataset, trainer: Trainer) -> Preflight:
    from trl.trainer.sft_trainer import DataCollatorForVisionLanguageModeling

    text = trainer.model.config.get_text_config()
    context = getattr(text, "max_position_embeddings", None)
    processor = trainer.processing_class
    # Whatever the method, a row's prompt and answer must render as supervised training would see them.
    collator = (
        trainer.data_collator
        if config.method == "sft"
        else DataCollatorForVisionLanguageModeling(processor, max_length=None, completion_only_loss=True)
    )
    checked = preflight(rows, processor, collator, context=context, batch_size=config.batch_size)
    for warning in checked.warnings:
        logger.warning("%s", warning)
    logger.info("first row of the first batch: %r", checked.first_rows[0])
    logger.info("loss on %s; longest row %d tokens", list(checked.supervised), checked.longest_tokens)
    return checked


def _run(config: TrainConfig, trainer: Trainer) -> _Loop:
    from transformers import TrainerState

    trainable = sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
    with trainer.args.main_process_first(desc="checkpoints"):
        checkpoint = newest_checkpoint(config.out)
    start, cpu_start = time.monotonic(), time.process_time()
    resumed_at = 0
    if checkpoint is None:
        trainer.train()
    else:
        logger.info("going on from %s", checkpoint)
        state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        resumed_at = state.global_step
        stopped = state.stateful_callbacks.get("TrainerControl", {}).get("args", {}).get("should_training_stop", False)
        if state.global_step < state.max_steps and not stopped:
            trainer.train(resume_from_checkpoint=str(checkpoint))
        else:
            # The run died after its last step. Trainer looks for the end only behind a step, so it would take one more.
            best = state.best_model_checkpoint if config.dev is not None else None
            load_adapter_weights(trainer.model, Path(best) if best else checkpoint)
            trainer.state = state
    return _Loop(
        resumed_at=resumed_at,
        seconds=time.monotonic() - start,
        cpu_seconds=time.process_time() - cpu_start,
        trainable=trainable,
        stopped_early=trainer.state.global_step < trainer.state.max_steps,
    )


def _save(config: TrainConfig, trainer: Trainer) -> None:
    trainer.save_model(str(config.out))
    # DPO and GRPO with KL keep the adapter that they began from as "ref"; PEFT saves it in a folder of that name.
    shutil.rmtree(config.out / "ref", ignore_errors=True)


def _reload(config: TrainConfig, rows: Dataset, trainer: Trainer, device: str) -> ReloadCheck | None:
    """The check in the main process; None in the others."""
    import torch

    # Accelerate has wrapped the forward pass in autocast; the comparison is made without it.
    model = trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False).eval()
    trained = VisionLanguageModel(name="trained", model=model, processor=trainer.processing_class, device=device)
    quantized = config.quantization is not None
    said = probe(trained, rows)  # by all processes: each may hold a part of the weights
    if not trainer.is_world_process_zero():
        return None
    if device == "cuda" and not quantized:
        model.to("cpu")  # the base is loaded a second time, and two do not fit where one did
        torch.cuda.empty_cache()
    return reload_check(config.model, config.out, rows, said, config.device, quantized=quantized)


def _record(
    config: TrainConfig,
    rows: _Rows,
    trainer: Trainer,
    identity: str,
    checked: Preflight,
    loop: _Loop,
    reloaded: ReloadCheck,
) -> TrainRecord:
    history = trainer.state.log_history
    towers = adapted_towers(trainer.model)
    varied = metric_history(history, ZERO_VARIANCE)
    return TrainRecord(
        method=config.method,
        model=config.model,
        dataset=str(config.dataset),
        out=str(config.out),
        identity=identity,
        adapter=None if config.adapter is None else str(config.adapter),
        control=config.control,
        certificate=certificate_verdict(config.dataset),
        rows=len(rows.train),
        rows_by_skill=_by_skill(rows.train),
        replay=rows.replay,
        dev=_dev(rows, trainer, loop),
        steps=trainer.state.global_step,
        resumed_at=loop.resumed_at,
        seconds=round(loop.seconds, 2),
        cpu_seconds=round(loop.cpu_seconds, 2),
        tokens=_tokens([int(entry["num_tokens"]) for entry in history if "num_tokens" in entry]),
        losses=tuple(metric_history(history, "loss")),
        margins=tuple(metric_history(history, "rewards/margins")),
        rewards=tuple(metric_history(history, "reward")),
        zero_variance=round(sum(share for _, share in varied) / len(varied), 4) if varied else None,
        modules=sum(towers.values()),
        adapted=dict(towers),
        trainable_parameters=loop.trainable,
        bf16=bool(trainer.args.bf16),
        device=str(trainer.args.device),
        preflight=checked,
        adapter_effect=reloaded.adapter_effect,
        reload_difference=reloaded.reload_difference,
        versions={name: version(name) for name in PACKAGES},
    )


def _by_skill(rows: Dataset) -> dict[str, int]:
    return dict(sorted(Counter(rows["skill"]).items())) if "skill" in rows.column_names else {}


def _dev(rows: _Rows, trainer: Trainer, loop: _Loop) -> DevResult | None:
    if rows.dev is None:
        return None
    best = trainer.state.best_model_checkpoint
    return DevResult(
        questions=len(rows.dev),
        source_groups=len(set(rows.dev["source_group"])),
        accuracy=tuple(metric_history(trainer.state.log_history, ACCURACY)),
        best_step=int(Path(best).name.rsplit("-", 1)[1]) if best else None,
        stopped_early=loop.stopped_early,
    )


def _tokens(counts: Sequence[int]) -> int:
    """Tokens seen in all parts of a run: the trainer's counter begins at 0 again when a run is resumed."""
    total, previous = 0, 0
    for count in counts:
        if count < previous:
            total += previous
        previous = count
    return total + previous
