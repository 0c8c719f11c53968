"""Several questions about one picture in one sequence, equal to as many single-turn prompts.

The image and what stands before the question are encoded once. Every question sees this prefix and itself (a
block-diagonal mask), and its positions go on from the prefix, so that its logits are those of the prompt alone. One
vision pass then serves eight questions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from finetune.tiny.build import GRID, IMAGE
from finetune.tiny.frames import IGNORED, PATCHES, PatchLabels
from finetune.tiny.questions import Question, Reference, Sought
from finetune.tiny.wordings import COLOURS, MARKS, NAMES
from synth.types import Rgb, Skill

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import LlavaProcessor

Bools: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """A drawn picture with its questions and its truth."""

    rgb: Rgb
    questions: tuple[Question, ...]
    labels: PatchLabels


@dataclass(frozen=True, kw_only=True, eq=False)
class Pointer:
    """Where some tokens should look: in `heads` of decoder layer `layer`, from each query to any of its targets."""

    layer: int
    heads: tuple[int, ...]
    rows: Tensor
    """(n,) index of the sequence in the batch."""
    slots: Tensor
    """(n,) number of the query within its sequence."""
    queries: Tensor
    """(n,) token position."""
    targets: Tensor
    """(n, T) bool."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Meaning:
    """What the decoder should know at a token of the question."""

    rows: Tensor
    queries: Tensor
    names: Tensor
    """(n,) index into NAMES or IGNORED."""
    colours: Tensor
    """(n,) 0 for no colour, else 1 + index into COLOURS, or IGNORED."""
    there: Tensor
    """(n,) 1 the sought object is there, 0 it is not, IGNORED where nothing is sought."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Packed:
    """A batch of packed sequences, (B, T)."""

    input_ids: Tensor
    position_ids: Tensor
    visible: Tensor
    """(B, T, T) bool: may the token of the row see the token of the column."""
    labels: Tensor
    """IGNORED but at the tokens of the answers."""
    pointers: tuple[Pointer, ...]
    meaning: Meaning


@dataclass(frozen=True)
class _Kind:
    """A pointer loss: its name, and where it acts."""

    name: str
    layer: int
    heads: tuple[int, ...]


# A word finds its place in the picture in layer 0; the prompt's end finds the word in layer 1, the option in layer 2.
# An existence question takes one hop more: "chair" must know "red" (layer 0) before it looks for a red chair (layer 1).
_MARK = _Kind("mark", 0, (0, 1))
_NAME = _Kind("name", 0, (2, 3))
_RECALL = _Kind("recall", 1, (0, 1))
_LETTER = _Kind("letter", 1, (2,))
_SOUGHT = _Kind("sought", 1, (3,))
_CHOOSE = _Kind("choose", 2, (0, 1))
_VERDICT = _Kind("verdict", 2, (2, 3))
_CHOOSE_LATE = _Kind("choose late", 3, (0, 1))


class Packer:
    """Turns samples into packed batches with the processor's tokenizer and chat template."""

    def __init__(self, processor: LlavaProcessor) -> None:
        self._tokenizer = processor.tokenizer
        user = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "QUESTION"}]}
        reply = {"role": "assistant", "content": [{"type": "text", "text": "REPLY"}]}
        before, rest = processor.apply_chat_template([user, reply], tokenize=False).split("QUESTION")
        self._between, self._after = rest.split("REPLY")
        self.prefix: list[int] = self._encode(before.replace(IMAGE, IMAGE * GRID * GRID))[0]
        self.first_image_token: int = self.prefix.index(self._tokenizer.convert_tokens_to_ids(IMAGE))

    def pack(self, samples: Sequence[Sample]) -> Packed:
        """One sequence a sample, padded on the right to the longest."""
        rows = [_Row(self, index, sample) for index, sample in enumerate(samples)]
        return _stack(rows, self._tokenizer.pad_token_id)

    def encode(self, question: Question) -> tuple[list[int], int, npt.NDArray[np.int64]]:
        """Token ids of question and answer, the number of those before the answer, and the first character of each."""
        prompt = question.text + self._between.removesuffix(" ")
        ids, starts = self._encode(
            prompt + self._between[len(prompt) - len(question.text) :] + question.answer + self._after
        )
        length = int(np.searchsorted(starts, len(prompt)))
        end = ids.index(self._tokenizer.eos_token_id, length) + 1
        return ids[:end], length, starts[:end]

    def _encode(self, text: str) -> tuple[list[int], npt.NDArray[np.int64]]:
        encoded = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        return list(encoded["input_ids"]), np.array([start for start, _ in encoded["offset_mapping"]])


class _Row:
    """One sequence under construction."""

    def __init__(self, packer: Packer, index: int, sample: Sample) -> None:
        self.index = index
        self.labels_of = sample.labels
        self.image_at = packer.first_image_token
        self.ids = list(packer.prefix)
        self.positions = list(range(len(self.ids)))
        self.segments = [0] * len(self.ids)
        self.labels = [IGNORED] * len(self.ids)
        self.pointers: dict[_Kind, list[tuple[int, int, list[int]]]] = defaultdict(list)
        self.meanings: list[tuple[int, int, int, int, int]] = []
        for number, question in enumerate(sample.questions):
            self._add(packer, number + 1, question)

    def _add(self, packer: Packer, number: int, question: Question) -> None:
        ids, length, starts = packer.encode(question)
        offset = len(self.ids)
        tokens: list[int] = (offset - 1 + np.searchsorted(starts, np.arange(len(question.text)), side="right")).tolist()
        self.ids += ids
        self.positions += range(len(packer.prefix), len(packer.prefix) + len(ids))
        self.segments += [number] * len(ids)
        self.labels += [IGNORED] * length + ids[length:]
        last = offset + length - 1
        asked = question.options[0].letter_at if question.options else len(question.text)
        shown = [reference.at for reference in question.references if self._refer(reference, tokens[reference.at])]
        found = [tokens[at] for at in shown if at < asked]
        if question.sought is not None:
            self._seek(question.sought, tokens[question.sought.at], last)
        elif found:
            self._point(_RECALL, last, found)
        for option in question.options:
            self._point(_LETTER, tokens[option.word_at], [tokens[option.letter_at]])
        if question.options:
            letters = [question.text[option.letter_at] for option in question.options]
            right = question.options[letters.index(question.answer)]
            late = question.skill is Skill.EXISTENCE
            self._point(_CHOOSE_LATE if late else _CHOOSE, last, [tokens[right.word_at]])

    def _refer(self, reference: Reference, token: int) -> bool:
        """Record where a word points; False where nothing is there to point at. A colour alone points nowhere."""
        truth = self.labels_of
        if reference.mark:
            patches = truth.mark == 1 + MARKS.index(reference.mark)
            name, colour = (
                int(under[patches].max(initial=IGNORED)) for under in (truth.name_under, truth.colour_under)
            )
        elif not reference.name:
            return True
        else:
            patches = truth.name == NAMES.index(reference.name)
            name = IGNORED
            colour = 1 + COLOURS.index(reference.colour) if reference.colour else IGNORED
        if not patches.any():
            return False
        self._point(_MARK if reference.mark else _NAME, token, self._cells(patches))
        if name != IGNORED or colour != IGNORED:
            self.meanings.append((self.index, token, name, colour, IGNORED))
        return True

    def _seek(self, sought: Sought, token: int, last: int) -> None:
        """The noun looks at the sought object, or at the first token where there is none; the end reads the noun."""
        truth = self.labels_of
        patches = truth.name == NAMES.index(sought.name)
        if sought.colour:
            patches &= truth.colour == 1 + COLOURS.index(sought.colour)
        if sought.there == bool(patches.any()):
            self._point(_SOUGHT, token, self._cells(patches) if sought.there else [0])
        self._point(_VERDICT, last, [token])
        self.meanings.append((self.index, token, IGNORED, IGNORED, int(sought.there)))

    def _cells(self, patches: Bools) -> list[int]:
        fold = PATCHES // GRID
        cells = patches.reshape(GRID, fold, GRID, fold).any((1, 3)).ravel()
        return [self.image_at + int(cell) for cell in np.flatnonzero(cells)]

    def _point(self, kind: _Kind, query: int, targets: list[int]) -> None:
        self.pointers[kind].append((self.index, query, targets))


def _stack(rows: Sequence[_Row], pad: int) -> Packed:
    import torch

    length = max(len(row.ids) for row in rows)

    def padded(lists: Sequence[Sequence[int]], fill: int) -> Tensor:
        return torch.tensor([[*values, *[fill] * (length - len(values))] for values in lists])

    segments = padded([row.segments for row in rows], -1)
    same = segments[:, :, None] == segments[:, None, :]
    visible = (same | (segments[:, None, :] == 0)) & torch.ones(length, length, dtype=torch.bool).tril()
    gathered: dict[_Kind, list[tuple[int, int, list[int]]]] = defaultdict(list)
    for row in rows:
        for kind, entries in row.pointers.items():
            gathered[kind] += entries
    meanings = torch.tensor([m for row in rows for m in row.meanings], dtype=torch.long).reshape(-1, 5)
    return Packed(
        input_ids=padded([row.ids for row in rows], pad),
        position_ids=padded([row.positions for row in rows], 0),
        visible=visible,
        labels=padded([row.labels for row in rows], IGNORED),
        pointers=tuple(_pointer(kind, gathered[kind], length) for kind in sorted(gathered, key=lambda k: k.name)),
        meaning=Meaning(
            rows=meanings[:, 0],
            queries=meanings[:, 1],
            names=meanings[:, 2],
            colours=meanings[:, 3],
            there=meanings[:, 4],
        ),
    )


def _pointer(kind: _Kind, entries: Sequence[tuple[int, int, list[int]]], length: int) -> Pointer:
    import torch

    targets = torch.zeros(len(entries), length, dtype=torch.bool)
    used: dict[int, int] = defaultdict(int)
    slots: list[int] = []
    for number, (row, _, places) in enumerate(entries):
        targets[number, places] = True
        slots.append(used[row])
        used[row] += 1
    return Pointer(
        layer=kind.layer,
        heads=kind.heads,
        rows=torch.tensor([row for row, _, _ in entries]),
        slots=torch.tensor(slots),
        queries=torch.tensor([query for _, query, _ in entries]),
        targets=targets,
    )
