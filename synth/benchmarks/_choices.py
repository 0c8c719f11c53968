"""Options and right letters in the many ways in which benchmarks write them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from synth.errors import BenchmarkError
from synth.types import LETTERS

YES_NO = ("yes", "no")
_MARKERS = (
    re.compile(r"(?:^|(?<=[\s,;]))\(([A-Za-z])\)"),
    re.compile(r"(?:^|(?<=[\s,;]))([A-Z]):(?=\s)"),
    # A letter with a full stop may end a sentence; only at the start of a line is it surely an option's.
    re.compile(r"^[ \t]*([A-Z])[.)](?=\s)", re.MULTILINE),
)
_HEADER = re.compile(r"(?:options|choices)\s*:?\s*$", re.IGNORECASE)
_LETTER = re.compile(r"\(?([A-Za-z])[).:]?")
_PREFIX = re.compile(r"\s*\(?([A-Z])[).:]\s+")


def split_options(text: str) -> tuple[str, tuple[str, ...]] | None:
    """Question and option texts of "… Options: A: x, B: y", "(a) x (b) y" or lines "A. x"; None where there are none.

    What stands on the lines after the last option (an instruction) is left away.
    """
    for marker in _MARKERS:
        marks = [(m[1].upper(), m.start(), m.end()) for m in marker.finditer(text)]
        for first in reversed([i for i, mark in enumerate(marks) if mark[0] == "A"]):
            run = [marks[first]]
            for mark in marks[first + 1 :]:
                if mark[0] == LETTERS[len(run) % len(LETTERS)]:
                    run.append(mark)
            ends = [start for _, start, _ in run[1:]] + [len(text)]
            options = [text[mark[2] : end].strip() for mark, end in zip(run, ends, strict=True)]
            options[-1] = options[-1].split("\n")[0]
            options = [option.rstrip(",; ").strip() for option in options]
            if len(options) >= 2 and all(options):
                return _HEADER.sub("", text[: run[0][1]].rstrip()).rstrip(), tuple(options)
    return None


def glued_options(text: str, letter: str) -> tuple[str, tuple[str, ...]] | None:
    """As `split_options`, but None too where the right letter is not among what was found: then it was read wrong."""
    found = split_options(text)
    bare = _LETTER.fullmatch(letter)
    if found is None or bare is None or bare[1].upper() not in LETTERS[: len(found[1])]:
        return None
    return found


def is_letter(text: str) -> bool:
    """True for "B", "(b)" and "B."."""
    return _LETTER.fullmatch(text) is not None


def without_letters(options: Sequence[str], where: str) -> tuple[str, ...]:
    """Option texts of ["A. bed", "B. chair"]. Raises BenchmarkError where the letters are not A, B, C … in order."""
    texts: list[str] = []
    for letter, option in zip(LETTERS, options, strict=False):
        prefix = _PREFIX.match(option)
        if prefix is None or prefix[1] != letter:
            raise BenchmarkError(f"expected an option such as '{letter}. text', found {option!r}", where=where)
        texts.append(option[prefix.end() :].strip())
    return tuple(texts)


def letter_of(value: object, choices: Sequence[str], where: str, base: int | None = None) -> str | None:
    """The letter of a right answer; None where it is hidden (empty, null or "hidden").

    Args:
        value: "(B)", "B", "b.", the text of an option, or its number.
        choices: option texts without letters.
        where: file and row, for the message.
        base: number of the first option (0 or 1) where answers are numbers; None where a number is an option's text.

    Raises BenchmarkError where the answer fits no option, or more than one.
    """
    text = "" if value is None else str(value).strip()
    if text in ("", "hidden"):
        return None
    letters = LETTERS[: len(choices)]
    if base is not None:
        number = int(text) - base if text.isdecimal() else -1
        found = {letters[number]} if 0 <= number < len(letters) else set[str]()
    else:
        found = {letters[i] for i, choice in enumerate(choices) if choice.strip().casefold() == text.casefold()}
        bare = _LETTER.fullmatch(text)
        if bare is not None and bare[1].upper() in letters:
            found.add(bare[1].upper())
    if len(found) == 1:
        return found.pop()
    fits = "fits more than one" if found else "is none"
    raise BenchmarkError(f"the answer {value!r} {fits} of {len(choices)} options", where=where)
