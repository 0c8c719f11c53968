"""What every task needs to put a question into words: wordings, letters, ids, the ledger of drops, stored numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from synth.config import digest
from synth.types import LETTERS, QA, Drop, JsonValue, Panel, Provenance, Skill, View


@dataclass(frozen=True, kw_only=True)
class Wording:
    """One way to ask: templates for the question and for each choice."""

    question: str
    """Slots in braces are filled from `Draft.words`."""
    choice: str = "{}"
    """The slot takes what the choice stands for: a mark's label, a number, a name."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A question whose answer is decided, not yet in words."""

    skill: Skill
    options: tuple[str, ...]
    """What each choice stands for, in the order shown."""
    right: str
    """The one of `options` that is right."""
    panels: tuple[Panel, ...]
    backends: tuple[str, ...]
    measures: Mapping[str, JsonValue]
    difficulty: float
    stratum: str
    words: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Asker:
    """Puts drafts about one image into words, in the name of one task."""

    task: str
    version: int
    view: View
    rng: np.random.Generator

    def ask(self, draft: Draft, wordings: Sequence[Wording]) -> QA:
        """The question in a wording drawn at random. Raises ValueError unless exactly one option is right."""
        index = int(self.rng.integers(len(wordings)))
        wording = wordings[index]
        question = wording.question.format(**draft.words)
        choices = tuple(wording.choice.format(option) for option in draft.options)
        answer = letter(draft.options, draft.right)
        if not answer:
            raise ValueError(f"{self.task}: {draft.right!r} must be exactly one of the options {draft.options}")
        return QA(
            qa_id=qa_id_of((self.task, self.version), self.view.image_id, question, choices, draft.panels),
            task=self.task,
            skill=draft.skill,
            image_id=self.view.image_id,
            question=question,
            choices=choices,
            answer=answer,
            panels=draft.panels,
            difficulty=round(min(1.0, max(0.0, draft.difficulty)), 4),
            stratum=draft.stratum,
            provenance=Provenance(
                task=self.task,
                version=self.version,
                wording=index,
                backends=draft.backends,
                options=draft.options,
                measures={"skill": draft.skill.value, **draft.measures},
            ),
        )


def qa_id_of(
    task: tuple[str, int], image_id: str, question: str, choices: tuple[str, ...], panels: Sequence[Panel]
) -> str:
    """Identity of a question: its task (name, version), photo, words and marks."""
    places: list[JsonValue] = [[p.image, m.label, m.x, m.y] for p in panels for m in p.marks]
    return f"{task[0]}-{digest(*task, image_id, question, choices, places)}"


class Ledger:
    """Counts why candidates of one image fell; one Drop a reason, with the first case as example."""

    def __init__(self, task: str, view: View) -> None:
        self._task, self._image = task, view.name
        self._found: dict[str, tuple[int, str]] = {}

    def add(self, reason: str, example: str = "", count: int = 1) -> None:
        """Count `count` more candidates that fell for this reason."""
        if count > 0:
            before, first = self._found.get(reason, (0, example))
            self._found[reason] = (before + count, first)

    def drops(self) -> Iterator[Drop]:
        """One Drop a reason, in the order in which the reasons came up."""
        for reason, (count, example) in self._found.items():
            yield Drop(stage="task", task=self._task, image=self._image, reason=reason, count=count, example=example)


def letter(options: Sequence[str], right: str) -> str:
    """Letter of the one option that equals `right`; "" where none or several do."""
    found = [LETTERS[i] for i, option in enumerate(options) if option == right]
    return found[0] if len(found) == 1 else ""


def alternate(first: str, second: str, n: int, rng: np.random.Generator) -> list[str]:
    """n values, half of each kind (the odd one falls to either), in random order."""
    start = int(rng.integers(2))
    values = [(first, second)[(start + i) % 2] for i in range(n)]
    return [values[i] for i in rng.permutation(n)]


def shuffled(options: Sequence[str], rng: np.random.Generator) -> tuple[str, ...]:
    """The options in random order."""
    return tuple(options[i] for i in rng.permutation(len(options)))


def is_truth(backend: str) -> bool:
    """True for the backend that reads what a source knows for certain."""
    return backend.startswith("truth")


def mapping(value: JsonValue) -> Mapping[str, JsonValue]:
    """The value as a mapping. Raises TypeError."""
    if not isinstance(value, Mapping):
        raise TypeError(f"expected a mapping, found {value!r}")
    return value


def rows(value: JsonValue) -> Sequence[JsonValue]:
    """The value as a list. Raises TypeError."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TypeError(f"expected a list, found {value!r}")
    return value


def number(value: JsonValue) -> float:
    """The value as a number. Raises TypeError."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"expected a number, found {value!r}")
    return float(value)


def text(value: JsonValue) -> str:
    """The value as text. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"expected text, found {value!r}")
    return value


def numbers(value: JsonValue) -> dict[str, float]:
    """A mapping of names to numbers. Raises TypeError."""
    return {name: number(item) for name, item in mapping(value).items()}


def point(value: JsonValue) -> tuple[float, float]:
    """A pair of numbers (x, y). Raises TypeError."""
    pair = rows(value)
    if len(pair) != 2:
        raise TypeError(f"expected (x, y), found {value!r}")
    return number(pair[0]), number(pair[1])
