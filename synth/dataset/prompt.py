"""How a question is put to a model: the one place where a row's wording is made.

Training rows and evaluation both call these functions, so a model is asked in the words that it was trained in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NotRequired, TypedDict

from synth.types import LETTERS


class Block(TypedDict):
    """One piece of a message; an image block is a bare placeholder, the pixels travel beside the messages."""

    type: Literal["image", "text"]
    text: NotRequired[str]


class Message(TypedDict):
    """One turn of a conversation."""

    role: Literal["user", "assistant"]
    content: list[Block]


def item_prompt(question: str, choices: Sequence[str]) -> str:
    """The question, then one line an option: `(A) first`, `(B) second` …; without options, the question alone."""
    lines = [f"({letter}) {choice}" for letter, choice in zip(LETTERS, choices, strict=False)]
    return "\n".join([question, *lines])


def user_messages(text: str, n_images: int) -> list[Message]:
    """One user turn: the images first, in order, then the text."""
    images: list[Block] = [{"type": "image"} for _ in range(n_images)]
    return [{"role": "user", "content": [*images, {"type": "text", "text": text}]}]


def prompt_messages(question: str, choices: Sequence[str], n_images: int) -> list[Message]:
    """The `prompt` of a training row (TRL's conversational prompt-completion format)."""
    return user_messages(item_prompt(question, choices), n_images)


def completion_messages(letter: str) -> list[Message]:
    """The `completion` of a training row: the letter alone, so that all of the loss is on the answer."""
    return [{"role": "assistant", "content": [{"type": "text", "text": letter}]}]
