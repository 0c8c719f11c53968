"""The cells of result files → texts, letters, option texts and verdicts."""

from __future__ import annotations

import ast
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence

from synth.errors import ResultsError
from synth.types import LETTERS

YES_NO = ("yes", "no")
_LETTER = re.compile(r"\s*(?:\(\s*([A-Za-z])\s*\)\s*(?:\S.*)?|([A-Za-z])\s*[).:]?\s*)", re.S)
_BRACKETED = re.compile(r"\(([A-Z])\)[ \t]*([^\n]*?)[ \t]*(?=\([A-Z]\)|\n|$)")
_DOTTED = re.compile(r"^[ \t]*([A-Z])[.):][ \t]*(\S[^\n]*?)[ \t]*$", re.M)
_RIGHT, _WRONG = ("1", "true", "yes", "correct", "c"), ("0", "false", "no", "incorrect", "i")


def plain(cell: object) -> str | None:
    """A cell as text; None where it is empty (null, NaN, ""). Spreadsheets turn "1" into 1.0: both are "1"."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return None
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    # A lone surrogate (half an emoji) is legal in JSON and cannot be written as UTF-8 again.
    return str(cell).encode("utf-8", "replace").decode("utf-8") or None


def letter(text: str | None) -> str | None:
    """ "(C)", "(C) Point C", "C." and "c" → C; None for anything else."""
    m = _LETTER.fullmatch(text) if text is not None else None
    return (m[1] or m[2]).upper() if m is not None else None


def gold_letter(cell: object, choices: Sequence[str], where: str) -> str | None:
    """The right letter, given as a letter or as an option's text; None where the answer is hidden.

    Raises ResultsError for what is neither.
    """
    text = plain(cell)
    if text is None or text.strip().casefold() == "hidden":
        return None
    named = [LETTERS[i] for i, choice in enumerate(choices) if choice and _folded(choice) == _folded(text)]
    found = letter(text) or (named[0] if len(named) == 1 else None)
    if found is None:
        told = f"none of {', '.join(map(repr, choices))}" if choices else "no letter, and the row tells no options"
        raise ResultsError(f"the right answer {text!r} is {told}", where=where, fix="give letters or option texts")
    if choices and LETTERS.index(found) >= len(choices):
        raise ResultsError(f"the right letter {found} is none of {len(choices)} options", where=where)
    return found


def _folded(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".")


def is_yes_no(cell: object) -> bool:
    """True for an answer "Yes" or "no."."""
    return _folded(plain(cell) or "") in YES_NO


def listed(text: str, gold: object = None) -> tuple[str, ...]:
    """The option texts of the last list in a prompt: "(A) yes (B) no", or "A. yes" on lines of their own.

    Empty where there is none, and where the right letter, if given, is not among them: then it is no list of options.
    """
    found = _last_list(text)
    right = letter(plain(gold))
    return found if right is None or right in LETTERS[: len(found)] else ()


def _last_list(text: str) -> tuple[str, ...]:
    for pattern in (_BRACKETED, _DOTTED):
        last: list[str] = []
        run: list[str] = []
        for m in pattern.finditer(text):
            if m[1] == "A":
                run = []
            if m[1] == LETTERS[len(run) % len(LETTERS)]:
                run.append(m[2].strip())
            # "Answer (A) or (B)." lists nothing.
            if len(run) > 1 and all(re.search(r"\w", option) and option not in ("or", "and") for option in run):
                last = run
        if last:
            return tuple(last)
    return ()


def options(cell: object, where: str) -> tuple[str, ...]:
    """Option texts given as a list, as an object of letters, as either of these in JSON or Python, or as a text list.

    Raises ResultsError where there are none to be found in a cell that is not empty.
    """
    if isinstance(cell, str):
        cell = _literal(cell)
    if isinstance(cell, Mapping):
        cell = [cell.get(key) for key in LETTERS[: len(cell)]]
    if isinstance(cell, list | tuple) and all(isinstance(choice, str | int | float) for choice in cell):
        texts = tuple(plain(choice) or "" for choice in cell)
        marks = [letter(text[:3]) for text in texts]
        lettered = marks == list(LETTERS[: len(texts)]) and all(text[:1] == "(" for text in texts)
        return tuple(text[3:].strip() for text in texts) if lettered else texts
    text = plain(cell)
    if text is None:
        return ()
    found = listed(text)
    if not found:
        raise ResultsError(f"no list of options: {text[:80]!r}", where=where, fix='give ["first", "second"]')
    return found


def _literal(text: str) -> object:
    if text.lstrip()[:1] not in ("[", "{", "("):
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        pass
    try:
        value: object = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return text
    return value if isinstance(value, list | tuple | dict) else text


def verdict(cell: object) -> bool | None:
    """A harness's own word on a row: 1, 1.0, True, "Yes", "C" … and their opposites; None for anything else."""
    text = (plain(cell) or "").strip().casefold()
    return True if text in _RIGHT else False if text in _WRONG else None


def order_hash(images: Sequence[str]) -> str:
    """Identity of the images of one question in their order (first 16 hex digits of a sha256)."""
    return hashlib.sha256("\n".join(images).encode("utf-8", "replace")).hexdigest()[:16]
