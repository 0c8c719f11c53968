"""Who is asked: a model on this machine, or one behind a server. Evaluation does not care which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Protocol, TypeAlias

from pydantic import AfterValidator, Field

from finetune.checkpoints import folder_digest
from finetune.generate import generate
from finetune.loading import Device, VisionLanguageModel, load_model
from finetune.score import Question, iterate
from synth.config import Config
from synth.types import JsonValue

Mode: TypeAlias = Literal["choice", "generate"]


def _holds_the_prompt(value: str) -> str:
    if value.count("{prompt}") != 1:
        raise ValueError("must hold {prompt} once")
    return value


Template: TypeAlias = Annotated[str, AfterValidator(_holds_the_prompt)]
"""A text with {prompt} in it, the place of the question with its options."""


class EvaluateOptions(Config):
    """How to evaluate."""

    mode: Mode = "choice"
    """choice: the likeliest option letter of one forward pass; generate: a greedy reply, read by rules."""
    batch_size: int = Field(16, ge=1)
    image_max_pixels: int | None = Field(None, ge=1)
    """Most pixels of an image. An adapter's folder carries its own budget; give the base model the same one."""
    threads: int | None = Field(None, ge=1)
    device: Device = "auto"
    wording: Literal["rows", "benchmark"] = "rows"
    """rows: question and options as in training rows; benchmark: the prompt as the benchmark publishes it."""
    template: Template = "{prompt}"
    """What is put around the wording, e.g. an instruction on the line after it."""
    max_new_tokens: int = Field(64, ge=1)
    """Longest generated reply."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What was said to one question; a line of an evaluation's journal."""

    item_id: str
    text: str | None
    """The reply, or the likeliest letter; None where the server refuses this one question."""
    truncated: bool = False
    probabilities: Mapping[str, float] = field(default_factory=dict)
    """Of each letter in mode `choice`; empty for replies."""
    error: str = ""
    """Why there is no text."""


class Respondent(Protocol):
    """Somebody who can be asked."""

    @property
    def name(self) -> str:
        """The model's name in outcomes."""
        ...

    @property
    def identity(self) -> JsonValue:
        """What tells this model from every other one: an interrupted evaluation goes on with the same one only."""
        ...

    def answers(self, questions: Sequence[Question], options: EvaluateOptions) -> Iterator[Sequence[Answer]]:
        """Answers as they come, each question once, in any order."""
        ...


class LocalModel:
    """A model's folder (or hub id), with a LoRA adapter where one is given; loaded when it is first asked."""

    def __init__(self, path: str, adapter: Path | None = None, options: EvaluateOptions | None = None) -> None:
        self.name = path if adapter is None else f"{path}+{adapter}"
        self._path = path
        self._adapter = adapter
        self._options = options or EvaluateOptions()

    @cached_property
    def loaded(self) -> VisionLanguageModel:
        """The model itself. Raises BackendError."""
        options = self._options
        return load_model(self._path, self._adapter, image_max_pixels=options.image_max_pixels, device=options.device)

    @cached_property
    def identity(self) -> JsonValue:
        """Digests of the folders."""
        own = folder_digest(Path(self._path)) or self._path
        return [own, folder_digest(self._adapter) if self._adapter is not None else None]

    def answers(self, questions: Sequence[Question], options: EvaluateOptions) -> Iterator[Sequence[Answer]]:
        """Batch by batch. Raises BackendError and BenchmarkError."""
        size, n = options.batch_size, options.threads
        if options.mode == "choice":
            for _, scores in iterate(self.loaded, questions, batch_size=size, n_threads=n):
                yield [Answer(item_id=s.item_id, text=s.letter, probabilities=s.probabilities) for s in scores]
            return
        replies = generate(self.loaded, questions, max_new_tokens=options.max_new_tokens, batch_size=size, n_threads=n)
        for _, written in replies:
            yield [Answer(item_id=w.item_id, text=w.text, truncated=w.truncated) for w in written]
