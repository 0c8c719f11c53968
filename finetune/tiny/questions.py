"""Semantic questions about a marked room picture: what pretraining asks, and nothing else.

Five skills: object at a mark, colour at a mark, which mark is on something, colour of a named object, is there such an
object. Answers come from the renderer's instance ids. Never asked: depth, left and right, counting, correspondence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from finetune.tiny import wordings as w
from finetune.tiny.frames import Picture, Placed
from synth.types import LETTERS, Skill

SEMANTIC: tuple[Skill, ...] = (
    Skill.OBJECT_AT_MARK,
    Skill.COLOUR_AT_MARK,
    Skill.MARK_ON_OBJECT,
    Skill.OBJECT_COLOUR,
    Skill.EXISTENCE,
)
TRAIN_AREA = 100
"""Smallest visible area (px of a 128 px picture) of an object that pretraining asks about."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A word of the question that stands for something in the picture."""

    at: int
    """Index of its first character in the text."""
    mark: str = ""
    name: str = ""
    colour: str = ""
    """Of a named object: its colour, where exactly one object bears the name. Alone: the word is a colour."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """Where an option's letter and its telling word begin in the text."""

    letter_at: int
    word_at: int


@dataclass(frozen=True, kw_only=True)
class Sought:
    """What an existence question asks for."""

    at: int
    """First character of the noun."""
    name: str
    colour: str
    """ "" where any colour will do."""
    there: bool


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question with its answer; the spans are for the auxiliary losses only."""

    skill: Skill
    text: str
    answer: str
    """A letter where the text has options, else a word."""
    references: tuple[Reference, ...] = ()
    options: tuple[Option, ...] = ()
    sought: Sought | None = None


@dataclass(frozen=True, kw_only=True)
class Style:
    """How questions are put."""

    lettered: float = 1.0
    """Share with lettered options instead of a one-word answer."""
    instructed: float = 0.0
    """Share of the lettered ones that end in an instruction such as "Answer with the option letter."."""
    area: int = TRAIN_AREA
    nouns: float = 0.0
    """Share of the existence questions without a colour ("Is there a chair?")."""


def ask(
    skill: Skill, picture: Picture, placed: Mapping[str, Placed], style: Style, rng: np.random.Generator
) -> Question | None:
    """One question of a skill, or None where the picture decides none. Raises KeyError for a skill not in SEMANTIC."""
    return _ASKERS[skill](picture, placed, style, rng)


def _object_at_mark(
    picture: Picture, placed: Mapping[str, Placed], style: Style, rng: np.random.Generator
) -> Question | None:
    if not placed:
        return None
    mark = _pick(sorted(placed), rng)
    text, at = _fill(_pick(w.OBJECT_AT_MARK, rng), mark)
    answer = picture.names[placed[mark].instance]
    draft = Question(skill=Skill.OBJECT_AT_MARK, text=text, answer=answer, references=(Reference(at=at, mark=mark),))
    return _with_options(draft, w.NAMES, style, rng)


def _colour_at_mark(
    picture: Picture, placed: Mapping[str, Placed], style: Style, rng: np.random.Generator
) -> Question | None:
    coloured = [mark for mark, spot in sorted(placed.items()) if picture.colours[spot.instance]]
    if not coloured:
        return None
    mark = _pick(coloured, rng)
    text, at = _fill(_pick(w.COLOUR_AT_MARK, rng), mark)
    answer = picture.colours[placed[mark].instance]
    draft = Question(skill=Skill.COLOUR_AT_MARK, text=text, answer=answer, references=(Reference(at=at, mark=mark),))
    return _with_options(draft, w.COLOURS, style, rng)


def _mark_on_object(
    picture: Picture, placed: Mapping[str, Placed], style: Style, rng: np.random.Generator
) -> Question | None:
    if len(placed) < 2 or list(placed) != list(LETTERS[: len(placed)]):
        return None
    names = {mark: picture.names[spot.instance] for mark, spot in placed.items()}
    colours = {mark: picture.colours[spot.instance] for mark, spot in placed.items()}
    by_name, by_colour = _unique(names), [mark for mark in _unique(colours) if colours[mark]]
    if not by_name and not by_colour:
        return None
    references: list[Reference] = []
    if by_colour and (not by_name or rng.random() < 0.4):
        answer = _pick(by_colour, rng)
        text, at = _fill(_pick(w.MARK_ON_COLOUR, rng), colours[answer])
        references.append(Reference(at=at, colour=colours[answer]))
    else:
        answer = _pick(by_name, rng)
        text, at = _fill(_pick(w.MARK_ON_NAME, rng), names[answer])
        references.append(Reference(at=at, name=names[answer]))
    form = _pick(w.MARK_OPTIONS, rng)
    options: list[Option] = []
    for mark in placed:
        line, word = _fill(f"\n({mark}) {form}", mark)
        options.append(Option(letter_at=len(text) + 2, word_at=len(text) + word))
        references.append(Reference(at=len(text) + word, mark=mark))
        text += line
    return Question(
        skill=Skill.MARK_ON_OBJECT,
        text=text + _instruction(style, rng),
        answer=answer,
        references=tuple(references),
        options=tuple(options),
    )


def _object_colour(
    picture: Picture, placed: Mapping[str, Placed], style: Style, rng: np.random.Generator
) -> Question | None:
    seen = [picture.names[i] for i in picture.objects(0)]
    single = [i for i in picture.objects(style.area) if seen.count(picture.names[i]) == 1]
    if not single:
        return None
    instance = int(rng.choice(single))
    name, colour = picture.names[instance], picture.colours[instance]
    text, at = _fill(_pick(w.OBJECT_COLOUR, rng), name)
    reference = Reference(at=at, name=name, colour=colour)
    draft = Question(skill=Skill.OBJECT_COLOUR, text=text, answer=colour, references=(reference,))
    return _with_options(draft, w.COLOURS, style, rng)


def _existence(
    picture: Picture, placed: Mapping[str, Placed], style: Style, rng: np.random.Generator
) -> Question | None:
    """Half of the answers are no. A no differs from a visible object in its colour or in its name; an object of which a
    few pixels show is neither there nor not there, and never asked about."""
    visible = picture.objects(style.area)
    if not visible:
        return None
    any_colour = rng.random() < style.nouns
    there = rng.random() < 0.5
    instance = int(rng.choice(visible))
    name, colour = picture.names[instance], "" if any_colour else picture.colours[instance]
    if not there:
        traces = picture.objects(0)
        absent = [
            (n, c)
            for n, c in _near_misses(name, colour)
            if not any(picture.names[i] == n and c in ("", picture.colours[i]) for i in traces)
        ]
        if not absent:
            return None
        recoloured = [pair for pair in absent if pair[0] == name]
        renamed = [pair for pair in absent if pair[0] != name]
        change_colour = recoloured and (not renamed or rng.random() < 0.5)
        pairs = recoloured if change_colour else renamed
        name, colour = pairs[int(rng.integers(len(pairs)))]
    words = w.phrase(colour, name)
    text, start = _fill(_pick(w.EXISTENCE, rng), words)
    at = start + words.index(name, len(words) - len(name))
    draft = Question(
        skill=Skill.EXISTENCE,
        text=text,
        answer="yes" if there else "no",
        references=(Reference(at=at, name=name),),
        sought=Sought(at=at, name=name, colour=colour, there=there),
    )
    return _with_options(draft, ("yes", "no"), style, rng)


_ASKERS = {
    Skill.OBJECT_AT_MARK: _object_at_mark,
    Skill.COLOUR_AT_MARK: _colour_at_mark,
    Skill.MARK_ON_OBJECT: _mark_on_object,
    Skill.OBJECT_COLOUR: _object_colour,
    Skill.EXISTENCE: _existence,
}


# ---------------------------------------------------------------------------------------------------------------- parts


def _near_misses(name: str, colour: str) -> list[tuple[str, str]]:
    renamed = [(other, colour) for other in w.OBJECTS if other != name]
    return renamed + [(name, other) for other in w.COLOURS if colour and other != colour]


def _unique(values: Mapping[str, str]) -> list[str]:
    """Keys whose value no other key has."""
    return [key for key, value in values.items() if list(values.values()).count(value) == 1]


def _pick(values: Sequence[str], rng: np.random.Generator) -> str:
    return values[int(rng.integers(len(values)))]


def _fill(template: str, words: str) -> tuple[str, int]:
    """The text, and where the words begin in it."""
    return template.replace("{}", words), template.index("{}")


def _instruction(style: Style, rng: np.random.Generator) -> str:
    return "\n" + _pick(w.INSTRUCTIONS, rng) if rng.random() < style.instructed else ""


def _with_options(draft: Question, pool: Sequence[str], style: Style, rng: np.random.Generator) -> Question:
    """Add up to four shuffled options, the answer and others of the pool; or leave the one-word answer."""
    if rng.random() >= style.lettered:
        return draft
    others = [word for word in pool if word != draft.answer]
    words = [draft.answer, *(others[i] for i in rng.permutation(len(others))[:3])]
    words = [words[i] for i in rng.permutation(len(words))]
    text, options = draft.text, []
    for letter, word in zip(LETTERS, words, strict=False):
        options.append(Option(letter_at=len(text) + 2, word_at=len(text) + 5))
        text += f"\n({letter}) {word}"
    return replace(
        draft,
        text=text + _instruction(style, rng),
        answer=LETTERS[words.index(draft.answer)],
        options=tuple(options),
    )
