"""What `s2p train` can be told: one flat YAML for supervised fine-tuning, DPO and GRPO, strict about its keys."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self, TypeAlias

from pydantic import Field, model_validator

from finetune.adapters import LoraScope
from finetune.controls import ControlKind
from finetune.loading import Device
from finetune.precision import Precision
from synth.config import Config

Method: TypeAlias = Literal["sft", "dpo", "grpo"]
Curriculum: TypeAlias = Literal["none", "sorted", "staged"]

NOT_IDENTITY = {"out", "dataset", "threads", "workers", "save_steps", "logging_steps", "allow_uncertified", "benchmark"}
"""Settings that do not change the result (the data and the base model count by their contents)."""


class ReplayOptions(Config):
    """Rows of another dataset, such as an earlier round's, mixed in so that what was learned is not forgotten."""

    path: Path
    share: float = Field(gt=0, lt=1)
    """Of all rows trained on; fewer where the dataset has not so many."""
    split: str = "train"


class DevOptions(Config):
    """Questions held out of training, by source group: the step that answers most of them is kept."""

    split: str | None = None
    """A split of the dataset; default: `share` of the training split's source groups."""
    share: float = Field(0.05, gt=0, le=0.5)
    max_rows: int = Field(400, ge=1)
    """Most questions asked each time."""
    every: int = Field(200, ge=1)
    """Steps between two looks; checkpoints are written at these steps (`save_steps` is not used)."""
    patience: int | None = Field(None, ge=1)
    """Looks without a new best after which training stops; default: never."""


class DpoOptions(Config):
    """Direct preference optimisation (Rafailov et al., arXiv 2305.18290), as TRL has it."""

    beta: float = Field(0.1, gt=0)
    loss: Literal["sigmoid", "hinge", "ipo", "robust"] = "sigmoid"


class RewardWeights(Config):
    """Weights of the rewards of `finetune.rewards`; 0 leaves one out."""

    letter: float = Field(1.0, ge=0)
    format: float = Field(0.1, ge=0)
    graded: float = Field(0.0, ge=0)

    @model_validator(mode="after")
    def _one_at_least(self) -> Self:
        if not self.letter + self.graded:
            raise ValueError("letter or graded must be positive: format alone rewards any answer")
        return self


class GrpoOptions(Config):
    """Group relative policy optimisation (Shao et al., arXiv 2402.03300), as TRL has it."""

    num_generations: int = Field(8, ge=2)
    """Replies a question; `batch_size` counts replies, so it is a multiple of this."""
    max_new_tokens: int = Field(8, ge=1)
    """Longest reply: rows ask for a letter."""
    temperature: float = Field(1.0, gt=0)
    beta: float = Field(0.0, ge=0)
    """Weight of the KL divergence from the model at the start."""
    rewards: RewardWeights = RewardWeights()


class TrainSettings(Config):
    """How to train, whatever the model and the data."""

    method: Method = "sft"
    allow_uncertified: bool = False
    """Train although the contamination guard has not found the dataset clean."""
    adapter: Path | None = None
    """An adapter of the same base model to go on from; LoRA's rank, scope and variant are then its own."""
    lora_r: int = Field(16, ge=1)
    lora_alpha: int = Field(32, ge=1)
    lora_dropout: float = Field(0.05, ge=0, lt=1)
    lora_scope: LoraScope = "language"
    use_rslora: bool = False
    """Scale by alpha / sqrt(r) instead of alpha / r (Kalajdzievski, arXiv 2312.03732)."""
    use_dora: bool = False
    """Train magnitude and direction apart (Liu et al., arXiv 2402.09353); slower, no more memory at inference."""
    quantization: Literal["4bit"] | None = None
    """QLoRA (Dettmers et al., arXiv 2305.14314): the decoder in NF4, the vision tower and projector as they are."""
    learning_rate: float = Field(1e-4, gt=0)
    epochs: float = Field(1.0, gt=0)
    max_steps: int | None = Field(None, ge=1)
    """Optimiser steps, instead of `epochs`."""
    batch_size: int = Field(8, ge=1)
    """On each device: rows (SFT), pairs (DPO) or replies (GRPO)."""
    gradient_accumulation: int = Field(1, ge=1)
    warmup: float = Field(0.05, ge=0, lt=1)
    """Share of the steps."""
    scheduler: Literal["cosine", "linear", "constant", "constant_with_warmup"] = "cosine"
    weight_decay: float = Field(0.0, ge=0)
    max_grad_norm: float = Field(1.0, gt=0)
    curriculum: Curriculum = "none"
    """sorted: by difficulty within a skill, easy rows first; staged: three bands, easy first, each shuffled;
    the order is the same in every epoch. none: shuffled anew each epoch."""
    replay: ReplayOptions | None = None
    dev: DevOptions | None = None
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
    dpo: DpoOptions = DpoOptions()
    grpo: GrpoOptions = GrpoOptions()

    @model_validator(mode="after")
    def _of_its_method(self) -> Self:
        if self.method != "dpo" and self.dpo != DpoOptions():
            raise ValueError(f"dpo: these settings belong to method dpo, this is {self.method}")
        if self.method != "grpo" and self.grpo != GrpoOptions():
            raise ValueError(f"grpo: these settings belong to method grpo, this is {self.method}")
        if self.method == "grpo" and self.batch_size * self.gradient_accumulation % self.grpo.num_generations:
            raise ValueError(
                f"batch_size x gradient_accumulation ({self.batch_size} x {self.gradient_accumulation}) must be a "
                f"multiple of grpo.num_generations ({self.grpo.num_generations}): it counts replies"
            )
        if self.method != "sft" and self.max_length is not None:
            raise ValueError("max_length: for method sft only, and better left out there")
        return self


class TrainConfig(TrainSettings):
    """`s2p train`: one LoRA training."""

    model: str
    """Folder of the base model (or its name on a hub that can be reached)."""
    dataset: Path
    """Folder that `s2p generate` wrote."""
    out: Path
    benchmark: str = ""
    """Benchmark that the model will be judged on: the dataset's certificate must be for it."""
    split: str = "train"
    control: ControlKind | None = None
    """Train a control arm on rows changed so that they must not teach what was asked for; see finetune.controls."""
    seed: int = Field(0, ge=0)
