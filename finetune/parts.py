"""What every method's trainer is made of: base model, processor, where LoRA goes, and the arguments they share."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from finetune.adapters import Tower, adapted_towers, lora_targets
from finetune.checkpoints import CHECKPOINTS
from finetune.loading import load_base, load_processor
from finetune.quantized import load_quantized
from finetune.settings import TrainConfig
from finetune.watching import ACCURACY, Watch
from synth.errors import BackendError, ConfigError

if TYPE_CHECKING:
    from datasets import Dataset
    from peft import LoraConfig, PeftModel
    from transformers import PreTrainedModel, ProcessorMixin

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A trainer's parts."""

    config: TrainConfig
    model: PreTrainedModel | PeftModel
    processor: ProcessorMixin
    lora: LoraConfig | None
    """None where the model brings its adapter."""
    towers: Mapping[Tower, int] | None
    """Layers by tower that are to get an adapter; None where the model brings its adapter."""
    rows: Dataset
    dev: Dataset | None
    bf16: bool
    watch: Watch


def load_parts(config: TrainConfig, rows: Dataset, dev: Dataset | None, bf16: bool, watch: Watch) -> Parts:
    """Base model (with the adapter to go on from), processor with the image budget, LoRA targets.

    Raises BackendError and ConfigError.
    """
    from peft import LoraConfig

    quantized = config.quantization is not None
    model = load_quantized(config.model) if quantized else load_base(config.model, watch.device)
    processor = load_processor(config.model, model.config.model_type, config.image_max_pixels)
    lora, towers = None, None
    if config.adapter is not None:
        model = _with_trainable_adapter(model, config)
    else:
        targets = lora_targets(model, config.lora_scope)
        towers = targets.towers
        lora = LoraConfig(
            r=config.lora_r,
            lora_alpha=config.lora_alpha,
            lora_dropout=config.lora_dropout,
            use_rslora=config.use_rslora,
            use_dora=config.use_dora,
            target_modules=list(targets.names),
            task_type="CAUSAL_LM",
        )
    return Parts(
        config=config,
        model=model,
        processor=processor,
        lora=lora,
        towers=towers,
        rows=rows,
        dev=dev,
        bf16=bf16,
        watch=watch,
    )


def shared_arguments(parts: Parts) -> dict[str, object]:
    """What the config classes of all three methods have in common."""
    config, device = parts.config, parts.watch.device
    checkpointing = device == "cuda" if config.gradient_checkpointing is None else config.gradient_checkpointing
    arguments: dict[str, object] = {
        "output_dir": str(config.out / CHECKPOINTS),
        "num_train_epochs": config.epochs,
        "max_steps": config.max_steps or -1,
        "per_device_train_batch_size": config.batch_size,
        "per_device_eval_batch_size": config.batch_size,
        "gradient_accumulation_steps": config.gradient_accumulation,
        "learning_rate": config.learning_rate,
        "lr_scheduler_type": config.scheduler,
        "warmup_steps": config.warmup,  # below 1 it is a share of the steps
        "weight_decay": config.weight_decay,
        "max_grad_norm": config.max_grad_norm,
        "bf16": parts.bf16,
        "use_cpu": device == "cpu",
        "activation_checkpointing": checkpointing,  # the old name alone, which TRL sets, makes transformers warn
        "gradient_checkpointing": checkpointing,
        "dataloader_num_workers": config.workers,
        "dataloader_pin_memory": device == "cuda",
        "seed": config.seed,
        "data_seed": config.seed,
        "train_sampling_strategy": "random" if config.curriculum == "none" else "sequential",
        "save_strategy": "steps",
        "save_steps": config.save_steps,
        "save_total_limit": 2,
        "logging_steps": config.logging_steps,
        "logging_first_step": True,  # so that a run that trains nothing stops at once
        "logging_nan_inf_filter": False,  # the filter would hide a NaN loss from the guard
        "report_to": "none",
        "disable_tqdm": True,
    }
    if config.dev is not None:
        arguments |= {
            "eval_strategy": "steps",
            "eval_steps": config.dev.every,
            "save_steps": config.dev.every,
            "load_best_model_at_end": True,
            "metric_for_best_model": ACCURACY,
            "greater_is_better": True,
            "restore_callback_states_from_checkpoint": True,  # or patience would begin anew after a resume
        }
    return arguments


def _with_trainable_adapter(model: PreTrainedModel, config: TrainConfig) -> PeftModel:
    from peft import PeftModel

    folder = config.adapter
    if folder is None or not (folder / "adapter_config.json").is_file():
        raise BackendError(
            "no adapter_config.json in this folder", where=f"adapter: {folder}", fix="give the `out` of `s2p train`"
        )
    try:
        adapted = PeftModel.from_pretrained(model, str(folder), is_trainable=True)
    except (RuntimeError, ValueError, KeyError) as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ConfigError(f"the adapter does not fit the model: {reason}", where=f"adapter: {folder}") from None
    logger.info("going on from the adapter of %s layers: %s", dict(adapted_towers(adapted)), folder)
    return adapted
