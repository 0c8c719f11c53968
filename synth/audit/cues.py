"""What a question gives away to someone who does not look: words, places and sizes of marks, sizes of files.

A cue gives every option of a question words (which a naive Bayes counts) or columns of numbers (which a conditional
logit weighs). None of it needs a pixel. Names of cues stand in manifests and in `output.allow_shortcuts`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from synth.twins import twin_key
from synth.types import LETTERS, QA, Box, JsonValue, Mark, Skill

Floats: TypeAlias = npt.NDArray[np.float64]
_SUBJECTS = ("label", "object", "colour", "a", "b", "relation", "axis", "side", "mark")
"""Measures that name what a question is about; the same words stand in the question."""
_GRID = 4
"""Cells a side of the grid on which a solver learns where right marks lie."""
_CONTENTS = 6
"""Options that are followed through the pictures' sizes: the commonest, such as yes and no or 1, 2, 3, 4."""
_WORDS = 32
"""Contents of options, alone or with a subject, that get a column."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One picture of a question, without its pixels."""

    width: int
    height: int
    size: int
    """Bytes of the encoded file."""
    coarseness: float = 0.0
    """Mean step of a JPEG file's first quantisation table: the lower the quality, the larger; 0 for lossless files."""
    marks: tuple[Mark, ...] = ()
    drawn: tuple[Box, ...] = ()
    """Where each mark was drawn, in the order of the marks; empty where it was not drawn yet."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A question with its answer, as far as it can be known without looking."""

    qa_id: str
    task: str
    skill: str
    group: str
    """Source group: scene, video or photo."""
    question: str
    choices: tuple[str, ...]
    options: tuple[str, ...]
    """What each choice stands for."""
    answer: int
    """Place of the right one."""
    subjects: tuple[str, ...] = ()
    pictures: tuple[Shown, ...] = ()
    twin: str = ""
    """What joins the members of a contrast pair; "" for a question that stands alone."""


@dataclass(frozen=True, kw_only=True)
class Cue:
    """One thing to go by. With both, a test counts the words and thinning weighs the columns."""

    name: str
    about: str
    words: Callable[[Asked, int], Sequence[str]] | None = None
    """Words that go with an option."""
    columns: Callable[[Sequence[Asked]], Floats | None] | None = None
    """(pairs, options, columns), zeros for options that a pair does not have; None where no pair has the cue."""
    is_the_question: frozenset[str] = frozenset()
    """Skills that ask for just this, so that it is no shortcut there."""


def asked_of(qa: QA, size: tuple[int, int], group: str, n_bytes: int = 0) -> Asked:
    """A candidate on a photo of this size (width, height); its marks are not drawn yet.

    `n_bytes` is the photo's own file where that is what is shown. A second picture has the size that the measures tell.
    """
    other = qa.provenance.measures.get("pair_size_px")
    second = (int(str(other[0])), int(str(other[1]))) if isinstance(other, Sequence) and len(other) == 2 else size
    pictures = []
    for panel in qa.panels:
        width, height = size if panel.image == "view" else second
        pictures.append(Shown(width=width, height=height, size=n_bytes, marks=panel.marks))
    return Asked(
        qa_id=qa.qa_id,
        task=qa.task,
        skill=str(qa.skill),
        group=group or qa.image_id,
        question=qa.question,
        choices=qa.choices,
        options=qa.provenance.options,
        answer=LETTERS.index(qa.answer),
        subjects=subjects_of(qa.provenance.measures),
        pictures=tuple(pictures),
        twin=twin_key(qa.provenance.measures),
    )


def subjects_of(measures: Mapping[str, JsonValue]) -> tuple[str, ...]:
    """What the question is about, from its stored measures."""
    return tuple(f"{name} {measures[name]}" for name in _SUBJECTS if isinstance(measures.get(name), str))


# ------------------------------------------------------------------------------------------------------------ words


def _text(pair: Asked, i: int) -> list[str]:
    option = pair.options[i] if i < len(pair.options) else pair.choices[i]
    found = [f"letter {i}", f"option {option}", f"question {pair.question} option {option}"]
    numbers = sorted(int(text) for text in pair.options if text.isdigit())
    if option.isdigit() and len(numbers) == len(pair.choices):
        found += [f"rank {numbers.index(int(option))}", f"among {numbers} {option}"]
    return found


def _prior(pair: Asked, i: int) -> list[str]:
    subjects = ("", *pair.subjects, " | ".join(pair.subjects))
    return [f"{subject} option {pair.options[i]}" for subject in subjects]


# ---------------------------------------------------------------------------------------------- one number an option


def _mention(pair: Asked) -> list[float] | None:
    said = " ".join(["", *re.findall(r"\w+", pair.question), ""])
    places = [said.find(f" {option} ") for option in pair.options]
    return [float(place if place >= 0 else len(said)) for place in places] if max(places) >= 0 else None


def _number(pair: Asked) -> list[float] | None:
    return [float(option) for option in pair.options] if all(option.isdigit() for option in pair.options) else None


def _marked(pair: Asked) -> tuple[Shown, list[int]] | None:
    """The picture whose marks are the options, and which mark each option is."""
    for picture in reversed(pair.pictures):
        index = {mark.label: k for k, mark in enumerate(picture.marks)}
        if all(option in index for option in pair.options):
            return picture, [index[option] for option in pair.options]
    return None


def _places(pair: Asked) -> list[tuple[float, float]] | None:
    """Places of the options' marks as shares of the picture's sides."""
    found = _marked(pair)
    if found is None:
        return None
    picture, index = found
    return [(picture.marks[k].x / picture.width, picture.marks[k].y / picture.height) for k in index]


def _height(pair: Asked) -> list[float] | None:
    places = _places(pair)
    return None if places is None else [y for _, y in places]


def _left(pair: Asked) -> list[float] | None:
    places = _places(pair)
    return None if places is None else [x for x, _ in places]


def _centre(pair: Asked) -> list[float] | None:
    places = _places(pair)
    return None if places is None else [float(np.hypot(x - 0.5, y - 0.5)) for x, y in places]


def _same_place(pair: Asked) -> list[float] | None:
    """Distance to where the first picture's lone mark stands in its own frame."""
    places = _places(pair)
    first = pair.pictures[0] if pair.pictures else None
    if places is None or first is None or len(pair.pictures) < 2 or len(first.marks) != 1:
        return None
    x, y = first.marks[0].x / first.width, first.marks[0].y / first.height
    return [float(np.hypot(a - x, b - y)) for a, b in places]


def _mark_size(pair: Asked) -> list[float] | None:
    found = _marked(pair)
    if found is None or len(found[0].drawn) != len(found[0].marks):
        return None
    picture, index = found
    boxes = [picture.drawn[k] for k in index]
    return [(x2 - x1) * (y2 - y1) / (picture.width * picture.height) for x1, y1, x2, y2 in boxes]


def _ranked(measure: Callable[[Asked], Sequence[float] | None]) -> Callable[[Sequence[Asked]], Floats | None]:
    """Columns of a measure: its rank among the options, one column a rank but the last, and the value itself."""

    def columns(pairs: Sequence[Asked]) -> Floats | None:
        found = [measure(pair) for pair in pairs]
        if all(values is None for values in found):
            return None
        most = max(len(pair.options) for pair in pairs)
        values = np.full((len(pairs), most), np.nan)
        for row, one in zip(values, found, strict=True):
            if one is not None:
                row[: len(one)] = one
        known = np.isfinite(values)
        ranks = (values[:, None, :] < values[:, :, None]).sum(axis=2)
        out = np.zeros((*values.shape, most))
        out[..., :-1] = (ranks[..., None] == np.arange(most - 1)) & known[..., None]
        spread = float(np.nanstd(values)) or 1.0
        out[..., -1] = np.where(known, (values - np.nanmean(values)) / spread, 0.0)
        return out

    return columns


# --------------------------------------------------------------------------------------------- columns of other kinds


def _one_hot(codes: Sequence[Sequence[int]], n: int) -> Floats:
    """(pairs, options, n) from one code an option; a code outside 0 … n - 1 gives zeros."""
    out = np.zeros((len(codes), max(map(len, codes)), n))
    for row, one in zip(out, codes, strict=True):
        for i, code in enumerate(one):
            if 0 <= code < n:
                row[i, code] = 1.0
    return out


def _letter(pairs: Sequence[Asked]) -> Floats:
    return _one_hot([range(len(pair.options)) for pair in pairs], max(len(pair.options) for pair in pairs))


def _mark_place(pairs: Sequence[Asked]) -> Floats | None:
    """Which cell of a grid over the picture each option's mark lies in."""
    codes = []
    for pair in pairs:
        places = _places(pair) or [(-1.0, -1.0)] * len(pair.options)
        codes.append([_cell(x) + _GRID * _cell(y) if x >= 0 else -1 for x, y in places])
    return _one_hot(codes, _GRID**2) if any(code >= 0 for one in codes for code in one) else None


def _cell(share: float) -> int:
    return min(_GRID - 1, int(_GRID * share))


def _mark_colour(pairs: Sequence[Asked]) -> Floats | None:
    """Marks have a colour a label; where the choices stand in another order, that is not the letter."""
    codes = [
        [LETTERS.find(option) if found else -1 for option in pair.options]
        for pair, found in ((pair, _marked(pair)) for pair in pairs)
    ]
    return _one_hot(codes, 8) if any(code >= 0 for one in codes for code in one) else None


def _by_content(facts: Callable[[Shown], tuple[float, float]]) -> Callable[[Sequence[Asked]], Floats | None]:
    """What the options say, together with two numbers of the first picture and their squares."""

    def columns(pairs: Sequence[Asked]) -> Floats | None:
        if not all(pair.pictures for pair in pairs):
            return None
        numbers = np.array([facts(pair.pictures[0]) for pair in pairs])
        spread = numbers.std(axis=0)
        if not (spread > 1e-9).any():
            return None
        numbers = (numbers - numbers.mean(axis=0)) / np.where(spread > 1e-9, spread, 1.0)
        known = np.concatenate([np.ones((len(pairs), 1)), numbers, numbers**2], axis=1)
        commonest = Counter(option for pair in pairs for option in pair.options).most_common(_CONTENTS)
        place = {option: k for k, (option, _) in enumerate(commonest)}
        contents = _one_hot([[place.get(option, -1) for option in pair.options] for pair in pairs], len(place))
        out = contents[..., :, None] * known[:, None, None, :]
        return np.asarray(out.reshape(*contents.shape[:2], -1))

    return columns


def _contents(pairs: Sequence[Asked]) -> Floats | None:
    """The words of `_prior`, one column for each of the commonest; None where the options are marks."""
    if any(_marked(pair) for pair in pairs):
        return None
    words = [[_prior(pair, i) for i in range(len(pair.options))] for pair in pairs]
    common = Counter(word for options in words for found in options for word in set(found)).most_common(_WORDS)
    place = {word: k for k, (word, _) in enumerate(common)}
    out = np.zeros((len(pairs), max(map(len, words)), len(place)))
    for row, options in zip(out, words, strict=True):
        for column, found in zip(row, options, strict=False):  # a pair may have fewer options than another
            column[[place[word] for word in found if word in place]] = 1.0
    return out


def _area_and_aspect(picture: Shown) -> tuple[float, float]:
    return float(np.log(picture.width * picture.height)), float(np.log(picture.width / picture.height))


def _quality_and_size(picture: Shown) -> tuple[float, float]:
    return picture.coarseness, float(np.log(max(1, picture.size) / (picture.width * picture.height)))


# ----------------------------------------------------------------------------------------------------------- the list

_LEFT_RIGHT = frozenset({str(Skill.LEFT_RIGHT)})
CUES: tuple[Cue, ...] = (
    Cue(name="text", about="the words of question and options alone", words=_text),
    Cue(name="class_prior", about="what is usually right for this kind of thing", words=_prior, columns=_contents),
    Cue(name="letter", about="the place of the option among the options", columns=_letter),
    Cue(name="mention", about="the order in which the question names the options", columns=_ranked(_mention)),
    Cue(name="middle_option", about="the rank of a number among the options", columns=_ranked(_number)),
    Cue(name="mark_height", about="which mark is lower in the picture", columns=_ranked(_height)),
    Cue(name="mark_centre", about="which mark is nearer to the picture's centre", columns=_ranked(_centre)),
    Cue(
        name="mark_place",
        about="the part of the picture in which right marks mostly lie",
        columns=_mark_place,
        is_the_question=_LEFT_RIGHT,
    ),
    Cue(
        name="mark_left",
        about="which mark is further left",
        columns=_ranked(_left),
        is_the_question=_LEFT_RIGHT,
    ),
    Cue(name="mark_same_place", about="which mark stands where REF stands", columns=_ranked(_same_place)),
    Cue(name="mark_size", about="which mark is drawn larger", columns=_ranked(_mark_size)),
    Cue(name="mark_colour", about="the colour of the mark", columns=_mark_colour),
    Cue(name="image_size", about="size and shape of the picture", columns=_by_content(_area_and_aspect)),
    Cue(name="image_file", about="JPEG quality and bytes a pixel", columns=_by_content(_quality_and_size)),
)
TOGETHER = "together"
"""All cues with columns at once."""
NAMES: tuple[str, ...] = (*(cue.name for cue in CUES), TOGETHER)
