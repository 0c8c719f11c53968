"""Multiple choice by one forward pass: the probability of each option letter as the next token.

Letters are looked up where they stand in an answer, with their other spellings of one token ("A" beside " A"), prompts
are padded on the left, and the last position alone is projected to the vocabulary. One pass tells more than a generated
letter: the probabilities of all options, and the option mass (their sum), which says whether the model was going to
answer with a letter at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from finetune.loading import VisionLanguageModel, encode, last_logprobs, option_ids, render, threads
from synth.errors import BackendError, BenchmarkError, ImageError
from synth.images import decode
from synth.types import LETTERS, Progress

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image
    from transformers import ProcessorMixin

Group = tuple[int, ...]


class NoPicture(BackendError):
    """The model takes no question without an image."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a model is asked."""

    item_id: str
    text: str
    """The question with its options, as shown."""
    images: tuple[bytes, ...]
    """Encoded images, in order."""
    n_options: int


@dataclass(frozen=True, kw_only=True)
class Score:
    """What it says."""

    item_id: str
    letter: str
    """The likeliest option."""
    probabilities: Mapping[str, float]
    """Of each option letter, over the whole vocabulary: their sum is the option mass."""

    @property
    def mass(self) -> float:
        """Sum of the option probabilities; near 0 the letter means little."""
        return sum(self.probabilities.values())

    @property
    def margin(self) -> float:
        """Probability of the likeliest option minus that of the next."""
        first, second = sorted(self.probabilities.values(), reverse=True)[:2]
        return first - second


def score(
    loaded: VisionLanguageModel,
    questions: Sequence[Question],
    *,
    batch_size: int = 16,
    n_threads: int | None = None,
    progress: Progress | None = None,
) -> list[Score]:
    """One score a question, in the order given. The result does not depend on `batch_size` (tested to 1e-5).

    Raises BenchmarkError for a question with fewer than two options or an image that cannot be decoded.
    """
    results: dict[int, Score] = {}
    for indices, scores in iterate(loaded, questions, batch_size=batch_size, n_threads=n_threads):
        results.update(zip(indices, scores, strict=True))
        if progress is not None:
            progress(len(results), len(questions))
    return [results[index] for index in range(len(questions))]


def iterate(
    loaded: VisionLanguageModel, questions: Sequence[Question], *, batch_size: int = 16, n_threads: int | None = None
) -> Iterator[tuple[Group, list[Score]]]:
    """As `score`, batch by batch: (indices of the questions, their scores). Similar questions come together."""
    for question in questions:
        if not 2 <= question.n_options <= len(LETTERS):
            raise BenchmarkError(f"{question.n_options} options", where=f"item {question.item_id}")
    if not questions:
        return
    ids = option_spellings(loaded.processor, max(question.n_options for question in questions))
    for indices in batches(questions, batch_size):
        part = [questions[index] for index in indices]
        with threads(n_threads):
            logprobs = last_logprobs(loaded, batch_of(loaded, part)).cpu()
        yield indices, [read(question, row, ids) for question, row in zip(part, logprobs, strict=True)]


def option_spellings(processor: ProcessorMixin, n_options: int) -> Mapping[str, tuple[int, ...]]:
    """The tokens that begin an answer with each letter: the one of the chat template first, then "A" or " A" where
    that is another single token. Raises S2PError as `option_ids` does.
    """
    tokenizer = processor.tokenizer
    found = {}
    for letter, first in option_ids(processor, n_options).items():
        spelt = [tokenizer(text, add_special_tokens=False).input_ids for text in (letter, f" {letter}")]
        alone = [ids[0] for ids in spelt if len(ids) == 1 and tokenizer.decode(ids).strip() == letter]
        found[letter] = tuple(dict.fromkeys((first, *alone)))
    return found


def batch_of(loaded: VisionLanguageModel, questions: Sequence[Question]) -> Mapping[str, torch.Tensor]:
    """Questions with the same number of images as one left-padded batch; `last_logprobs` takes it.

    Raises BackendError where the chat template does not show every image, NoPicture where the family takes no question
    without images.
    """
    prompts = [render(loaded.processor, question.text, len(question.images)) for question in questions]
    # Gemma's template writes the token that begins an image, and the processor puts the image token behind it.
    marks = [mark for name in ("image_token", "boi_token") if (mark := getattr(loaded.processor, name, None))]
    for question, prompt in zip(questions, prompts, strict=True):
        shown = [prompt.count(mark) - question.text.count(mark) for mark in marks]
        if marks and len(question.images) not in shown:
            raise BackendError(
                f"the chat template shows {max(shown)} of {len(question.images)} images",
                where=f"item {question.item_id}",
                fix="use a template that writes one image token for each image of a message",
            )
    try:
        return encode(loaded.processor, prompts, [_decoded(question) for question in questions])
    except (ValueError, TypeError) as error:
        if questions[0].images:
            raise
        raise NoPicture(f"this model takes no question without an image: {error}", where=loaded.name) from None


def batches(questions: Sequence[Question], batch_size: int) -> list[Group]:
    """Indices of the questions, by number of images and then by length, so that little is padded."""
    order = sorted(
        range(len(questions)),
        key=lambda i: (len(questions[i].images), len(questions[i].text), i),
    )
    batches: list[list[int]] = []
    for index in order:
        n_images = len(questions[index].images)
        if not batches or len(batches[-1]) == batch_size or len(questions[batches[-1][0]].images) != n_images:
            batches.append([])
        batches[-1].append(index)
    return [tuple(batch) for batch in batches]


def _decoded(question: Question) -> list[Image]:
    from PIL import Image

    try:
        return [Image.fromarray(decode(data, min_side=1)) for data in question.images]
    except ImageError as error:
        raise BenchmarkError(f"an image cannot be used: {error.message}", where=f"item {question.item_id}") from None


def read(question: Question, logprobs: torch.Tensor, ids: Mapping[str, tuple[int, ...]]) -> Score:
    """One row of the vocabulary (log-probabilities) as a score; `ids` are those of `option_spellings`."""
    letters = LETTERS[: question.n_options]
    logs = {letter: float(logprobs[list(ids[letter])].logsumexp(0)) for letter in letters}
    # Compared as log-probabilities: small probabilities round to the same number, and then the first letter would win.
    best = max(letters, key=lambda letter: logs[letter])
    probabilities = {letter: math.exp(value) for letter, value in logs.items()}
    return Score(item_id=question.item_id, letter=best, probabilities=probabilities)
