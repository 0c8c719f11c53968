"""Group relative policy optimisation with rewards that the row's own answer decides; see finetune.rewards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from finetune.parts import Parts, shared_arguments
from finetune.rewards import REWARDS, Reward
from finetune.watching import watched
from synth.errors import DatasetError

if TYPE_CHECKING:
    from datasets import Dataset
    from peft import PeftModel
    from transformers import PreTrainedModel, ProcessorMixin, Trainer

    BatchReward: TypeAlias = Callable[..., list[float | None]]

COLUMNS = ("images", "prompt", "answer", "choices")
ONE_IMAGE = ("llava_onevision",)
"""Model types whose crops of a second image TRL's GRPO trainer splits wrongly (trl 1.16: `split_with_sizes`)."""


def grpo_trainer(parts: Parts) -> Trainer:
    """TRL's GRPOTrainer; its own log says each step what share of the groups had no variance."""
    from trl import GRPOConfig, GRPOTrainer

    config, options = parts.config, parts.config.grpo
    require_supported(parts.rows, parts.model.config.model_type)
    # TRL pads prompts on the left and the token types beside them on the processor's own side: the two must agree.
    parts.processor.tokenizer.padding_side = "left"
    weights = {name: weight for name, weight in options.rewards if weight}
    arguments = GRPOConfig(
        **(shared_arguments(parts) | {"logging_steps": 1}),
        num_generations=options.num_generations,
        num_generations_eval=1,  # the dev set is asked by one forward pass
        max_completion_length=options.max_new_tokens,
        temperature=options.temperature,
        beta=options.beta,
        generation_kwargs={"suppress_tokens": silent_tokens(parts.processor, parts.model)},
        reward_weights=list(weights.values()),
        shuffle_dataset=config.curriculum == "none",
    )
    return watched(GRPOTrainer, parts.watch)(
        model=parts.model,
        reward_funcs=[batch_reward(name, REWARDS[name]) for name in weights],
        processing_class=parts.processor,
        args=arguments,
        train_dataset=parts.rows.select_columns(list(COLUMNS)),
        eval_dataset=None if parts.dev is None else parts.dev.select_columns(list(COLUMNS)),
        peft_config=parts.lora,
    )


def require_supported(rows: Dataset, model_type: str) -> None:
    """Raises DatasetError for rows that this family cannot be trained on by GRPO."""
    if model_type not in ONE_IMAGE:
        return
    several = [index for index, prompt in enumerate(rows["prompt"]) if _images(prompt) > 1]
    if several:
        raise DatasetError(
            f"GRPO cannot train {model_type} on {len(several)} rows with two or more images",
            where=f"row {rows[several[0]]['qa_id']}",
            fix="use method sft or dpo, another model, or a dataset of questions about one image",
        )


def silent_tokens(processor: ProcessorMixin, model: PreTrainedModel | PeftModel) -> list[int]:
    """Special tokens that no reply may hold: an image token in one would be taken for a picture that is not there."""
    tokenizer = processor.tokenizer
    ends = model.generation_config.eos_token_id
    ends = {tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])}
    special = {index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
    return sorted(special - ends)


def batch_reward(name: str, reward: Reward) -> BatchReward:
    """A reward in the form that TRL calls, one value a reply; its name is the one in TRL's log."""
    # TRL hands over every column and more by keyword.
    call = lambda completions, answer, choices, **_: [  # noqa: E731
        reward(reply_text(c), a, o) for c, a, o in zip(completions, answer, choices, strict=True)
    ]
    call.__name__ = name
    return call


def reply_text(completion: object) -> str:
    """The text of a reply: a string, or a list of messages whose content is a string or a list of blocks."""
    if isinstance(completion, str):
        return completion
    if isinstance(completion, list):
        return "".join(reply_text(part) for part in completion)
    if isinstance(completion, dict):
        return reply_text(completion.get("content") or completion.get("text") or "")
    return ""


def _images(prompt: Sequence[dict[str, Sequence[dict[str, str]]]]) -> int:
    return sum(block["type"] == "image" for message in prompt for block in message["content"])
