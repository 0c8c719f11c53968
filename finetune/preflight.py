"""The guards before step 1: what would train on nothing, or on something else than was meant, is refused here.

Every row is checked as text; the trainer's own collator is then run on the first batch and on rows of every kind
(longest text, largest and smallest pictures, each answer letter), and its labels are decoded. A row cut by `max_length`
loses its end, that is its answer: training would run through at loss 0 and save an adapter that does nothing.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from finetune.loading import option_ids
from synth.config import Config
from synth.dataset.prompt import Message
from synth.errors import DatasetError
from synth.types import LETTERS

if TYPE_CHECKING:
    import torch
    from datasets import Dataset
    from transformers import ProcessorMixin

    Collator: TypeAlias = Callable[[list[dict[str, object]]], Mapping[str, torch.Tensor]]

EXTREMES = 3
"""Rows taken from each end of the text lengths and picture sizes."""
LAYOUTS = 24
"""Most rows taken for distinct picture sizes; real photos differ in nearly every row."""
SHOWN = 4
"""Decoded rows kept for the record."""
IGNORED = -100
"""Label of a token without loss."""


class _Row(TypedDict):
    qa_id: str
    prompt: list[Message]
    completion: list[Message]
    answer: str
    choices: list[str]


class Preflight(Config):
    """What was looked at, and what the first batch teaches."""

    rows: int
    collated: int
    """Rows run through the trainer's collator."""
    longest_tokens: int
    """Longest collated row, image tokens included."""
    longest_row: str
    context: int | None
    """Positions that the decoder has, where its config says so."""
    supervised: tuple[str, ...]
    """Decoded supervised spans that occur, e.g. " A<end_of_utterance>\\n"."""
    first_rows: tuple[str, ...]
    """Decoded rows of the first batch, runs of image tokens folded."""
    warnings: tuple[str, ...]


def preflight(
    rows: Dataset, processor: ProcessorMixin, collator: Collator, *, context: int | None, batch_size: int
) -> Preflight:
    """Check rows before training on them. Raises DatasetError that names the row's qa_id."""
    lengths = _check_text(rows, _special_tokens(processor))
    chosen = _choose(rows, lengths, batch_size)
    letters = _scored_letters(rows, processor)
    image_token = str(getattr(processor, "image_token", "") or "")
    longest, longest_row = 0, ""
    spans: set[str] = set()
    decoded: list[str] = []
    for start in range(0, len(chosen), batch_size):
        part = chosen[start : start + batch_size]
        batch = _collate(rows, part, collator)
        for position, index in enumerate(part):
            row: _Row = rows_at(rows, index)
            used = batch["attention_mask"][position].bool()
            ids, labels = batch["input_ids"][position][used], batch["labels"][position][used]
            spans.add(_check_labels(row, labels, letters, processor))
            if len(ids) > longest:
                longest, longest_row = len(ids), row["qa_id"]
            if start == 0:
                decoded.append(_fold(processor.tokenizer.decode(ids), image_token))
    if context is not None and longest > context:
        raise DatasetError(
            f"a row of {longest} tokens does not fit into the model's {context} positions",
            where=f"row {longest_row}",
            fix="set image_max_pixels lower, or use a model with a longer context",
        )
    return Preflight(
        rows=len(rows),
        collated=len(chosen),
        longest_tokens=longest,
        longest_row=longest_row,
        context=context,
        supervised=tuple(sorted(spans)),
        first_rows=tuple(decoded[:SHOWN]),
        warnings=tuple(_without_end(spans)),
    )


def rows_at(rows: Dataset, index: int) -> _Row:
    """The text columns of one row; the pictures are not decoded."""
    row: _Row = rows.select_columns(["qa_id", "prompt", "completion", "answer", "choices"])[index]
    return row


def _special_tokens(processor: ProcessorMixin) -> Sequence[str]:
    tokenizer = processor.tokenizer
    special = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    special |= {
        str(getattr(processor, name)) for name in ("image_token", "video_token") if getattr(processor, name, None)
    }
    # A literal "<image>" is the placeholder of several families; on the others it is a sign of a foreign export.
    return sorted(special | {"<image>"}, key=len, reverse=True)


def _check_text(rows: Dataset, special: Sequence[str]) -> list[int]:
    """Check every row's messages. Returns the length of each row's text in characters."""
    columns = rows.select_columns(["qa_id", "prompt", "completion", "answer", "choices"])
    counts = [len(images) for images in _encoded(rows)]
    lengths: list[int] = []
    for row, n_images in zip(columns, counts, strict=True):
        where = f"row {row['qa_id']}"
        blocks = [block for message in row["prompt"] for block in message["content"]]
        placeholders = sum(block["type"] == "image" for block in blocks)
        if placeholders != n_images:
            raise DatasetError(f"{placeholders} image placeholders for {n_images} images", where=where)
        text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
        literal = next((token for token in special if token in text), None)
        if literal is not None:
            raise DatasetError(
                f"the question holds the special token {literal!r}", where=where, fix="reword the question"
            )
        answer = "".join(block.get("text") or "" for message in row["completion"] for block in message["content"])
        if not answer.strip():
            raise DatasetError("the completion is empty: nothing would be trained", where=where)
        if answer != row["answer"]:
            raise DatasetError(f"the completion is {answer!r}, the answer {row['answer']!r}", where=where)
        if row["answer"] not in LETTERS[: len(row["choices"])]:
            raise DatasetError(f"answer {row['answer']!r} is not one of {len(row['choices'])} choices", where=where)
        lengths.append(len(text))
    return lengths


def _encoded(rows: Dataset) -> Iterator[list[Mapping[str, object]]]:
    """The encoded images of each row; read as Arrow, because a cast would copy the whole dataset."""
    for batch in rows.select_columns(["images"]).with_format("arrow").iter(256):
        for images in batch["images"].to_pylist():
            yield images or []


def _choose(rows: Dataset, lengths: Sequence[int], batch_size: int) -> list[int]:
    """Rows for the collator: the first batch, both ends of text and picture size, each layout and letter once."""
    from PIL import Image

    layouts: dict[tuple[tuple[int, int], ...], int] = {}
    areas: list[int] = []
    for index, images in enumerate(_encoded(rows)):
        sizes: list[tuple[int, int]] = []
        for image in images:
            data = image["bytes"]
            if not isinstance(data, bytes):
                raise DatasetError(
                    "an image without bytes: rows must carry their pictures", where=f"row number {index}"
                )
            with Image.open(io.BytesIO(data)) as opened:  # the header only
                sizes.append(opened.size)
        areas.append(sum(width * height for width, height in sizes))
        layouts.setdefault(tuple(sizes), index)
    letters: dict[str, int] = {}
    for index, letter in enumerate(rows["answer"]):
        letters.setdefault(letter, index)
    by_length = sorted(range(len(rows)), key=lambda i: (lengths[i], i))
    by_area = sorted(range(len(rows)), key=lambda i: (areas[i], i))
    wanted = [
        *range(min(batch_size, len(rows))),
        *(index for order in (by_length, by_area) for index in (*order[:EXTREMES], *order[-EXTREMES:])),
        *list(layouts.values())[:LAYOUTS],
        *letters.values(),
    ]
    return list(dict.fromkeys(wanted))


def _scored_letters(rows: Dataset, processor: ProcessorMixin) -> Mapping[str, int]:
    return option_ids(processor, max(len(choices) for choices in rows["choices"]))


def _collate(rows: Dataset, part: Sequence[int], collator: Collator) -> Mapping[str, torch.Tensor]:
    examples = [rows.select_columns(["images", "prompt", "completion"])[index] for index in part]
    try:
        return collator(examples)
    except (ValueError, KeyError, TypeError, OSError) as error:
        where = f"rows {rows_at(rows, part[0])['qa_id']} … {rows_at(rows, part[-1])['qa_id']}"
        raise DatasetError(
            f"the trainer's collator refuses them: {' '.join(str(error).split())}", where=where
        ) from error


def _check_labels(row: _Row, labels: torch.Tensor, letters: Mapping[str, int], processor: ProcessorMixin) -> str:
    where = f"row {row['qa_id']}"
    supervised = labels[labels != IGNORED]
    if not len(supervised):
        raise DatasetError(
            "no supervised token: the answer is cut off, so the loss would be exactly 0",
            where=where,
            fix="leave max_length out (null) and bound the pictures with image_max_pixels instead",
        )
    tokenizer = processor.tokenizer
    answer = tokenizer.decode(supervised, skip_special_tokens=True).strip()
    span: str = tokenizer.decode(supervised)
    if answer != row["answer"]:
        raise DatasetError(f"the loss is on {span!r}, expected the answer {row['answer']!r}", where=where)
    if int(supervised[0]) != letters[row["answer"]]:
        raise DatasetError(
            f"training teaches token {int(supervised[0])} for {row['answer']!r}, "
            f"scoring reads {letters[row['answer']]}",
            where=where,
            fix="the chat template renders training rows and prompts differently; use a template that does not",
        )
    return span


def _without_end(spans: set[str]) -> list[str]:
    bare = sorted(span for span in spans if len(span.strip()) == 1)
    return [f"no end-of-turn token is trained after {span!r}: the model may not learn to stop" for span in bare]


def _fold(text: str, image_token: str) -> str:
    """Runs of image tokens shortened to one and their number."""
    if not image_token or image_token not in text:
        return text
    head, *rest = text.split(image_token)
    folded, run = head, 0
    for piece in rest:
        run += 1
        if piece:
            folded += f"{image_token}x{run}{piece}"
            run = 0
    return folded + (f"{image_token}x{run}" if run else "")
