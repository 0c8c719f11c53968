"""The options of an item as they appear in a text: letters, option texts, marks, and what a sentence does with them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from synth.diagnosis import language as lang
from synth.types import LETTERS

_BRACKETED = re.compile(r"[(\[{【]\s*([A-Za-z])\s*[)\]}】]")
_TAIL = 80
"""Characters before a bracketed letter that hold the last words of any option text."""
_AROUND = 24
"""Characters of brackets, articles and denials around an option's text."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of an item, prepared for matching."""

    count: int
    starts: dict[str, tuple[tuple[tuple[str, ...], str], ...]]
    """First word → (words, letter), longest first."""
    marks: dict[str, str]
    """Mark → letter, where the texts are bare marks ("Point A")."""
    subjects: dict[str, tuple[str, str]]
    """Mark → (predicate, letter), where the texts speak of marks ("A is closer")."""
    noted: frozenset[str]
    """Letters whose text names a mark that is another option's letter."""
    swapped: dict[str, str]
    """Letter that is the whole text of another option → that option."""
    telling: frozenset[str]
    """Words at which a mention can begin, beside bracketed letters."""
    tails: dict[tuple[str, ...], str]
    """Last two words of a text (last one where it has one) → letters of the options that end so."""
    own: dict[str, str]
    """Letter → its text in small letters, where no other text begins like it and no particle may be meant otherwise."""
    lasts: frozenset[str]
    """Last words of the texts, numbers in digits and in letters."""
    reach: int
    """Characters that hold any option's text with what may stand around it."""
    countable: bool
    """No text holds a number or an ordinal, so that "option 2" and "the second option" are the places of options."""

    def mark(self, mark: str) -> str | None:
        """The option whose text is about a mark; None where the texts are not about marks."""
        subject = self.subjects.get(mark)
        return self.marks.get(mark) or (subject[1] if subject is not None else None)


@lru_cache(maxsize=4096)
def prepare(n_options: int, choices: tuple[str, ...]) -> Options:
    """The options of an item; without a number or texts, ten of them."""
    count = n_options or len(choices) or 10
    texts: dict[tuple[str, ...], list[str]] = {}
    marks: dict[str, str] = {}
    subjects: dict[str, tuple[str, str]] = {}
    noted: set[str] = set()
    swapped: dict[str, str] = {}
    for letter, choice in zip(LETTERS[:count], choices, strict=False):
        words = [w for w in lang.words(lang.plain(choice)) if w not in lang.ENDS]
        named = [w for w in words if len(w) == 1 and w in LETTERS]
        if named and letter not in named and named[0] in LETTERS[:count]:
            noted.add(letter)
            if len(words) == 1:
                swapped[named[0]] = letter
        if len(named) == 1 and len(words) <= 2 and words[-1] == named[0]:
            marks[named[0]] = letter
        elif len(named) == 1 and words[0] == named[0] and words[-1] not in lang.TO_BE:
            subjects[named[0]] = (words[-1], letter)
        if len(words) > 1 and words[0] in lang.ARTICLES:
            words = words[1:]
        texts.setdefault(tuple(w.casefold() for w in words), []).append(letter)
    starts: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    tails: dict[tuple[str, ...], str] = {}
    for key, letters in sorted(texts.items(), key=lambda pair: -len(pair[0])):
        if key and len(letters) == 1:
            starts.setdefault(key[0], []).append((key, letters[0]))
            tails[key[-2:]] = tails.get(key[-2:], "") + letters[0]
    for word, letter in [*marks.items(), *subjects.values()]:
        tails[(word.casefold(),)] = tails.get((word.casefold(),), "") + letter
    prepared = {first: tuple(found) for first, found in starts.items()}
    return Options(
        count, prepared, marks, subjects, frozenset(noted), swapped, frozenset(LETTERS) | prepared.keys(), tails,
        _own(choices[:count]), lang.spelled(key[-1] for key in tails), max(map(len, choices), default=0) + _AROUND,
        all(w not in lang.ORDINALS and not w[0].isdigit() for key in texts for w in key),
    )  # fmt: skip


def _own(choices: Sequence[str]) -> dict[str, str]:
    texts = [lang.plain(choice).strip(" .").casefold().removeprefix("the ") for choice in choices]
    return {
        letter: text
        for letter, text in zip(LETTERS, texts, strict=False)
        if text and sum(other.startswith(text) for other in texts) == 1
    }


def text_at(words: Sequence[str], i: int, options: Options) -> tuple[int, str] | None:
    """(length, letter) of the longest option text that begins at word i."""
    for key, letter in options.starts.get(words[i].casefold(), ()):
        if len(key) == 1 or tuple([w.casefold() for w in words[i : i + len(key)]]) == key:
            return len(key), letter
    return None


# ------------------------------------------------------------------------------------------------------------ mentions


class Mention(NamedTuple):
    """An option named in a text."""

    letter: str
    place: int
    """Index of its first word."""
    end: int
    by_text: bool
    negated: bool


def mentions(words: Sequence[str], options: Options) -> list[Mention]:
    """Options named in a text: bracketed letters, "option B", option texts as whole words, and marks."""
    found: list[Mention] = []
    end = 0
    telling, brackets = options.telling, lang.BRACKETS
    for i in [i for i, w in enumerate(words) if w in telling or w[0] in brackets]:
        if i < end:
            continue
        letter, end, by_text = _mention_at(words, i, options)
        if letter and not _is_compared(words, i):
            found.append(Mention(letter, i, end, by_text, is_negated(words, i, end)))
    return found


def _mention_at(words: Sequence[str], i: int, options: Options) -> tuple[str, int, bool]:
    """(letter or "", index behind it, read by text) of what stands at word i."""
    word = words[i]
    if word[0] in lang.BRACKETS:
        return word[1:-1].strip().upper(), i + 1, False
    capital = len(word) == 1 and word in LETTERS
    if capital and i and words[i - 1] in lang.LABEL_WORDS:
        return ("" if _enumerated(words, i) else word), i + 1, False
    hit = text_at(words, i, options)
    if hit is not None:
        return (hit[1] if stands_for_option(words, i, hit[0]) else ""), i + hit[0], True
    labelled = i > 1 and words[i - 1] in ("with", "as", "by") and words[i - 2] in lang.LABELLED
    if capital and word in options.marks and i and (labelled or words[i - 1] in lang.MARK_WORDS):
        return ("" if _enumerated(words, i) else options.marks[word]), i + 1, True
    if capital and word in options.subjects:
        return _subject(words, i, options)
    return "", i + 1, True


def _enumerated(words: Sequence[str], i: int) -> bool:
    """The first of a list, "labeled A, B, C and D", names no option."""
    ahead = [*words[i + 1 : i + 4], ".", ".", "."]
    return ahead[0] == "," and ahead[1] in LETTERS and (ahead[2] in lang.ENDS or ahead[2] in (",", "and", "or"))


def _subject(words: Sequence[str], i: int, options: Options) -> tuple[str, int, bool]:
    """ "A, which is on the car, seems to be closer" says the option "A is closer"."""
    predicate, letter = options.subjects[words[i]]
    before = next((w for w in words[max(0, i - 3) : i][::-1] if w not in lang.MARK_WORDS | lang.ARTICLES), "")
    if before in lang.PREPOSITIONS:
        return "", i + 1, True
    for j in range(i + 1, min(len(words), i + 26)):
        if words[j] in lang.ENDS or words[j] in options.subjects:
            break
        if words[j] == predicate:
            denied = any(w in lang.NEGATIONS for w in words[i + 1 : j])
            return ("" if denied else letter), j + 1, True
    return "", i + 1, True


def stands_for_option(words: Sequence[str], i: int, length: int) -> bool:
    """Yes and no are answers at the head of a clause, "no" is a determiner elsewhere; "right" may mean correct."""
    if length > 1:
        return True
    word = words[i].casefold()
    if word in lang.PARTICLES:
        before = words[i - 1] if i else "."
        after = words[i + 1] if i + length < len(words) else "."
        heads = before in lang.ENDS or before == ","
        return heads and (after in lang.ENDS or after == "," or after in lang.AFTER_PARTICLE)
    return not (word == "right" and i + 1 < len(words) and words[i + 1] in lang.RIGHT_MEANS_CORRECT)


def is_negated(words: Sequence[str], start: int, end: int) -> bool:
    """Denied, or one of several ("the second or third image")."""
    nearest = start - 2 if start and words[start - 1] in lang.ARTICLES else start - 1
    if (nearest >= 0 and words[nearest] in ("or", "nor")) or words[end : end + 1] in (["or"], ["nor"]):
        return True
    for back in range(start - 1, max(-1, start - 6), -1):
        if words[back] in lang.ENDS or words[back] == ",":
            break
        if words[back] in lang.NEGATIONS:
            return True
    behind = words[end : end + 2]
    return bool(behind) and (behind[0] in lang.NEGATIONS or tuple(behind) in lang.NEGATED_BEHIND)


def _is_compared(words: Sequence[str], start: int) -> bool:
    """The second term of a comparison ("nearer than B") is not what the sentence asserts."""
    for back in range(start - 1, max(-1, start - 5), -1):
        if words[back] in lang.ENDS or words[back] == ",":
            return False
        if words[back] in lang.COMPARED or (back and (words[back - 1], words[back]) in lang.COMPARED_PAIRS):
            return True
    return False


def only(found: Sequence[Mention]) -> str | None:
    """The one letter that is named, and nowhere denied."""
    letters = {m.letter for m in found}
    return letters.pop() if len(letters) == 1 and not any(m.negated for m in found) else None


# ------------------------------------------------------------------------------------------------------- contradictions


def may_contradict(plain: str, options: Options) -> bool:
    """False where `contradictions` of the text is certainly empty; spares turning a long reply into words."""
    if not options.starts:
        return False
    for m in _BRACKETED.finditer(plain):
        letter = m[1].upper()
        if LETTERS.index(letter) >= options.count:
            continue
        before = plain[max(0, m.start() - _TAIL) : m.start()].rstrip(" ")
        if not before or before[-1] in ".!?;\n,":
            continue
        if before[before.rfind(" ") + 1 :].casefold().strip("\"':-–—") not in options.lasts:
            continue
        last = tuple([w.casefold() for w in lang.words(before)[-2:]])
        if any(said != letter for said in options.tails.get(last, "") + options.tails.get(last[-1:], "")):
            return True
    return False


def contradictions(found: Sequence[Mention], options: Options) -> list[tuple[str, str]]:
    """(letter, letter of the text) where a letter stands next to another option's text: "the second image (B)".

    A letter that no option has ("the third image (C)" of two) numbers the pictures and takes no option's name away.
    """
    return [
        (b.letter, a.letter)
        for a, b in pairwise(found)
        if a.letter != b.letter and a.by_text and not b.by_text and b.place == a.end and not b.negated
        and LETTERS.index(b.letter) < options.count
    ]  # fmt: skip
