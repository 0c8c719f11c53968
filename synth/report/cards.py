"""A question as a card: its pictures, its lettered choices, which one is right, and what a model chose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from synth.errors import ImageError
from synth.images import decode, encode_jpeg, inspect, resize
from synth.report.html import data_uri
from synth.types import LETTERS

LONGEST_SIDE = 720
"""Pixels."""
LARGEST_FILE = 120_000
"""Bytes. A picture above either limit is shown reduced or re-encoded, so that a page of 50 stays a few megabytes."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """A question as a model saw it, with the letters that it gave."""

    images: tuple[bytes, ...]
    """Encoded pictures."""
    question: str
    choices: tuple[str, ...]
    answer: str | None
    """Right letter, None where it is hidden."""
    skill: str
    replies: Mapping[str, str | None] = field(default_factory=dict)
    """Who answered ("before", "after", a model's name) -> letter, or None where no letter could be read."""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A picture ready for a page."""

    uri: str
    """"" where the picture cannot be shown."""
    width: int
    height: int
    alt: str
    note: str = ""
    """What a reader must know: shown reduced, cannot be shown."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One line of a question's options."""

    letter: str
    text: str
    right: bool
    chosen_by: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Card:
    """What the card template prints."""

    skill: str
    question: str
    pictures: tuple[Picture, ...]
    choices: tuple[Choice, ...]
    silent: tuple[str, ...]
    """Who gave no readable letter."""
    note: str


def card(example: Example) -> Card:
    """The example, ready to print."""
    texts = list(example.choices)
    named = {letter for letter in [example.answer, *example.replies.values()] if letter}
    last = max((LETTERS.index(letter) for letter in named if letter in LETTERS), default=-1)
    # A letter beyond the options is shown as an empty line rather than lost.
    texts += [""] * (last + 1 - len(texts))
    return Card(
        skill=example.skill,
        question=example.question,
        pictures=pictures(example.images),
        choices=tuple(
            Choice(
                letter=letter,
                text=text,
                right=letter == example.answer,
                chosen_by=tuple(who for who, said in example.replies.items() if said == letter),
            )
            for letter, text in zip(LETTERS, texts, strict=False)
        ),
        silent=tuple(who for who, said in example.replies.items() if said is None or said not in LETTERS),
        note=example.note,
    )


def pictures(files: Sequence[bytes], alt: str = "picture") -> tuple[Picture, ...]:
    """Encoded images for a page, numbered when there are several."""
    many = len(files) > 1
    return tuple(picture(data, f"{alt} {index}" if many else alt) for index, data in enumerate(files, start=1))


def picture(data: bytes, alt: str) -> Picture:
    """One encoded image for a page; unreadable bytes give a picture that says so instead of an error."""
    try:
        info = inspect(data, min_side=1)
        scale = min(1.0, LONGEST_SIDE / max(info.width, info.height))
        if scale == 1 and len(data) <= LARGEST_FILE:
            return Picture(uri=data_uri(data), width=info.width, height=info.height, alt=alt)
        width, height = max(1, round(info.width * scale)), max(1, round(info.height * scale))
        shown = encode_jpeg(resize(decode(data, min_side=1), width, height), quality=85)
    except ImageError as error:
        return Picture(uri="", width=0, height=0, alt=alt, note=f"cannot be shown ({error.reason})")
    note = f"shown at {width} × {height} of {info.width} × {info.height} px" if scale < 1 else ""
    return Picture(uri=data_uri(shown), width=width, height=height, alt=alt, note=note)
