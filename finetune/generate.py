"""Free replies, greedily generated: what a user of the model reads, and what most harnesses score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from finetune.loading import VisionLanguageModel, placed, threads
from finetune.score import Group, Question, batch_of, batches


@dataclass(frozen=True, kw_only=True)
class Written:
    """One reply."""

    item_id: str
    text: str
    """Without special tokens."""
    truncated: bool
    """It reached the limit before the model had ended it."""


def generate(
    loaded: VisionLanguageModel,
    questions: Sequence[Question],
    *,
    max_new_tokens: int,
    batch_size: int = 16,
    n_threads: int | None = None,
) -> Iterator[tuple[Group, list[Written]]]:
    """Batch by batch: (indices of the questions, their replies). Greedy, whatever the model's own settings say.

    Raises BenchmarkError and BackendError as `batch_of` does.
    """
    import torch
    from transformers import GenerationConfig

    tokenizer, own = loaded.processor.tokenizer, loaded.model.generation_config
    ends = own.eos_token_id if own.eos_token_id is not None else tokenizer.eos_token_id
    stops = set(ends if isinstance(ends, list) else [ends])
    settings = GenerationConfig(
        max_new_tokens=max_new_tokens,
        do_sample=False,
        num_beams=1,
        eos_token_id=ends,
        pad_token_id=tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id,
    )
    for indices in batches(questions, batch_size):
        part = [questions[index] for index in indices]
        batch = placed(loaded, batch_of(loaded, part))
        with threads(n_threads), torch.inference_mode():
            made = loaded.model.generate(**batch, generation_config=settings)
        new = made[:, batch["input_ids"].shape[1] :].cpu()
        texts = tokenizer.batch_decode(new, skip_special_tokens=True)
        yield (
            indices,
            [
                Written(item_id=question.item_id, text=text, truncated=stops.isdisjoint(ids.tolist()))
                for question, text, ids in zip(part, texts, new, strict=True)
            ],
        )
