"""Which questions of a dataset are a benchmark's own, and which are merely worded as it words them.

Benchmarks put most of their questions in a few templates, and whoever trains the same skill asks alike: any overlap of
words would flag everything. So what a benchmark repeats is taken away first, as boilerplate (the rule of NeMo Curator's
decontamination: an n-gram seen ten times says nothing), and only what is left of a question is compared: its slots,
its choices and whatever else is its own. The index keeps keyed hashes of that, not the text.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from synth.types import Item

REPEATED = 10
"""Items that share an n-gram from which on it is boilerplate; a tenth of the items where there are fewer than a
hundred, but never one alone."""
GRAM = 13
"""Words in a row that two questions do not share by chance (Brown et al. 2020, appendix C)."""
CONTENT = 8
"""Words, common ones apart, that a residual must have to be compared."""

WINDOW = 3
"""Words in a row that make boilerplate; shorter ones would take away what stands between two slots."""
_COMMON = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be by can do does for from has have how in into is it its of on or that the their there "
        "these this those to was were what when where which who with you your",
    )
)
_START, _END = "\x02", "\x03"

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, kw_only=True)
class TextFinding:
    """What a question has in common with a benchmark."""

    hit: Literal["question", "residual", "13-gram"] | None
    """Its own: the whole question, all that is left without boilerplate, or 13 words in a row of that."""
    same_wording: bool
    """The question or the prompt is, letter for letter but for case and punctuation, one of the benchmark's."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TextIndex:
    """The questions of a benchmark as sorted hashes under `salt`."""

    salt: npt.NDArray[np.uint8]
    """(16,) made from the benchmark's images: equal questions of two benchmarks have other hashes."""
    questions: Hashes
    """(P,) normalised questions and prompts."""
    own: npt.NDArray[np.uint8]
    """(P,) 1 where most of the words are no boilerplate, so that an equal question is the benchmark's."""
    boilerplate: Hashes
    residuals: Hashes
    grams: Hashes

    @cached_property
    def _hasher(self) -> _Hasher:
        return _Hasher(self.salt.tobytes())

    def look(self, question: str, choices: Sequence[str] = (), prompt: str = "") -> TextFinding:
        """Compare one question. `prompt`: the full text shown, where it is more than the question."""
        places = [place for text in (question, prompt) if (place := self._place(text)) is not None]
        same = bool(places)
        if any(self.own[place] for place in places):
            return TextFinding(hit="question", same_wording=same)
        left = self._residual(_segments(question, choices))
        if _content(left) < CONTENT:
            return TextFinding(hit=None, same_wording=same)
        if _find(self.residuals, self._hasher.words(left)) is not None:
            return TextFinding(hit="residual", same_wording=same)
        shared = any(_find(self.grams, self._hasher.words(gram)) is not None for gram in _windows(left, GRAM))
        return TextFinding(hit="13-gram" if shared else None, same_wording=same)

    def _place(self, text: str) -> int | None:
        words = tokens(text)
        return _find(self.questions, self._hasher.words(words)) if words else None

    def _residual(self, segments: Sequence[Sequence[str]]) -> list[str]:
        return _without(segments, lambda gram: _find(self.boilerplate, self._hasher.words(gram)) is not None)


def build_text(items: Sequence[Item], salt: bytes) -> TextIndex:
    """The text index of a benchmark; empty for no items."""
    hasher = _Hasher(salt)
    # The prompt is asked about beside the question: a training set may take either over.
    texts = [(_segments(item.question, item.choices), _segments(item.prompt, ())) for item in items]
    seen: Counter[int] = Counter()
    for both in texts:
        seen.update({hasher.words(gram) for segments in both for gram in _bounded_grams(segments)})
    least = max(2, min(REPEATED, len(items) // 10))
    boilerplate = {gram for gram, n in seen.items() if n >= least}
    own: dict[int, int] = {}
    residuals: set[int] = set()
    grams: set[int] = set()
    for both in texts:
        # A template with options that another question has by chance too is a template still.
        question = both[0][0] or both[1][0]
        alone = _without([question], lambda gram: hasher.words(gram) in boilerplate)
        for segments in both:
            left = _without(segments, lambda gram: hasher.words(gram) in boilerplate)
            if segments[0]:
                own[hasher.words(segments[0])] = int(2 * len(alone) > len(question))
            if _content(left) >= CONTENT:
                residuals.add(hasher.words(left))
                grams.update(hasher.words(gram) for gram in _windows(left, GRAM))
    questions = sorted(own)
    return TextIndex(
        salt=np.frombuffer(salt, dtype=np.uint8),
        questions=np.array(questions, dtype=np.uint64),
        own=np.array([own[question] for question in questions], dtype=np.uint8),
        boilerplate=np.array(sorted(boilerplate), dtype=np.uint64),
        residuals=np.array(sorted(residuals), dtype=np.uint64),
        grams=np.array(sorted(grams), dtype=np.uint64),
    )


def normalise_question(text: str) -> str:
    """NFKC, casefolded, option letters and punctuation removed, single spaces."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    plain = re.sub(r"\([a-z]\)|^\s*[a-z][.):]\s", " ", plain, flags=re.MULTILINE)
    return " ".join(re.sub(r"[^\w\s]|_", " ", plain).split())


def tokens(text: str) -> list[str]:
    """The words of the normalised text."""
    return normalise_question(text).split()


class _Hasher:
    """Keyed 64-bit hashes of word sequences, each computed once."""

    def __init__(self, salt: bytes) -> None:
        self._salt = salt
        self._known: dict[tuple[str, ...], int] = {}

    def words(self, words: Sequence[str]) -> int:
        key = tuple(words)
        if key not in self._known:
            digest = hashlib.blake2b(" ".join(key).encode(), digest_size=8, key=self._salt).digest()
            self._known[key] = int.from_bytes(digest, "big")
        return self._known[key]


def _segments(question: str, choices: Sequence[str]) -> list[list[str]]:
    """The words of the question, then those of each choice; in which order the choices stand says nothing."""
    return [tokens(question), *sorted(tokens(choice) for choice in choices)]


def _bounded_grams(segments: Sequence[Sequence[str]]) -> Iterator[tuple[str, ...]]:
    for segment in segments:
        yield from _windows([_START, *segment, _END], WINDOW)


def _windows(words: Sequence[str], n: int) -> Iterator[tuple[str, ...]]:
    return (tuple(words[start : start + n]) for start in range(len(words) - n + 1))


def _without(segments: Sequence[Sequence[str]], is_boilerplate: Callable[[tuple[str, ...]], bool]) -> list[str]:
    """The words that stand in no boilerplate."""
    left: list[str] = []
    for segment in segments:
        bounded = [_START, *segment, _END]
        covered = [False] * len(bounded)
        for start, gram in enumerate(_windows(bounded, WINDOW)):
            if is_boilerplate(gram):
                covered[start : start + WINDOW] = [True] * WINDOW
        left += [word for word, gone in zip(segment, covered[1:-1], strict=True) if not gone]
    return left


def _content(words: Sequence[str]) -> int:
    return sum(word not in _COMMON for word in words)


def _find(known: Hashes, value: int) -> int | None:
    """Place of a value in a sorted array."""
    place = int(np.searchsorted(known, np.uint64(value)))
    return place if place < len(known) and int(known[place]) == value else None
