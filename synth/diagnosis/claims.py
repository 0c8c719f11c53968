"""Which option a reply's sentences claim, where nothing is declared: conclusions, predicates, superlatives, evidence.

Each rule looks for one form of a claim and abstains where two sentences of that form name different options.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from synth.diagnosis import language as lang
from synth.diagnosis.options import Mention, Options, only
from synth.types import LETTERS

_Span = tuple[int, int]


def claimed(words: Sequence[str], found: Sequence[Mention], options: Options) -> str | None:
    """The letter that a reply's sentences claim, or None.

    In this order: the last sentence that concludes; "the closest point is B"; "B is the closest"; a sentence whose
    evidence follows ("this is evident because …"); what a last clause indicates; a first sentence that judges.
    """
    spans = _sentences(words)
    for start, end in reversed(spans):
        if words[start] in lang.CONCLUDES or tuple(words[start : start + 2]) in lang.CONCLUDING_PAIRS:
            inside = _within(found, start, end)
            if inside:
                return only(inside) or only(_within(found, start, _main_end(words, inside[0].end, end)))
    return (
        _same(_predicates(words, found, spans, options))
        or _same(_superlatives(words, found, spans))
        or _evident(words, found, spans)
        or _indicated(words, found, spans[-1])
        or _judged_first(words, found, spans[0])
    )


def _sentences(words: Sequence[str]) -> list[_Span]:
    bounds = [-1, *(i for i, w in enumerate(words) if w in lang.ENDS), len(words)]
    return [(a + 1, b) for a, b in pairwise(bounds) if b - a > 1]


def _within(found: Sequence[Mention], start: int, end: int) -> list[Mention]:
    return [m for m in found if start <= m.place < end]


def _main_end(words: Sequence[str], start: int, end: int) -> int:
    """Where the main clause that holds the word before `start` ends."""
    return next((i for i in range(start, end) if words[i] in lang.SUBORDINATORS), end)


def _same(letters: Iterator[str]) -> str | None:
    distinct = set(letters)
    return distinct.pop() if len(distinct) == 1 else None


def _doubted(words: Sequence[str]) -> bool:
    """Under a doubt or a condition; "if we must choose" is none."""
    for i, word in enumerate(words):
        forced = tuple(words[i + 1 : i + 3])
        if word in lang.DOUBTS or (word == "if" and not (len(forced) == 2 and forced[1] in lang.FORCES)):
            return True
    return False


def _predicates(
    words: Sequence[str], found: Sequence[Mention], spans: Sequence[_Span], options: Options
) -> Iterator[str]:
    """ "The corresponding point on the second image is B": a definite subject, a copula, an option."""
    by_place = {m.place: m for m in found}
    for start, end in spans:
        definite = False
        for i in range(start, end):
            definite = definite or words[i] in lang.DEFINITE or words[i] in lang.JUDGES
            if not definite or words[i] not in lang.COPULAS or _doubted(words[start:i]):
                continue
            place = i + 1
            while place < end and place not in by_place and words[place] in lang.BEFORE_PREDICATE:
                place += 1
            mention = by_place.get(place)
            if mention is not None and not mention.negated:
                yield mention.letter
            elif mention is None and place < end and (letter := _lone_mark(words, place, options)):
                yield letter


def _lone_mark(words: Sequence[str], i: int, options: Options) -> str | None:
    """The option that a bare capital letter stands for, as a mark where marks are asked for."""
    word = words[i]
    after = words[i + 1] if i + 1 < len(words) else "."
    if word not in LETTERS[: options.count] or not (after in lang.ENDS or after in lang.AFTER_LONE_LETTER):
        return None
    if after == "," and words[i + 2 : i + 3] and (words[i + 2] in LETTERS or words[i + 2] in ("or", "and")):
        return None
    return options.mark(word) or word


def _superlatives(words: Sequence[str], found: Sequence[Mention], spans: Sequence[_Span]) -> Iterator[str]:
    """ "The third image (B) is most similar to the first": an option as the subject of a superlative."""
    for start, end in spans:
        inside = [m for m in _within(found, start, end) if not _in_phrase(words, m.place)]
        if not inside or words[start][0] in lang.BRACKETS:
            continue
        stop = _main_end(words, inside[0].end, end)
        main = [m for m in inside if m.place < stop]
        verb = next((m.end for m in main if m.end < stop and words[m.end] in lang.JUDGED_BY), None)
        if (
            verb is not None
            and any(w in lang.SUPERLATIVES for w in words[verb : min(stop, verb + 8)])
            and not _doubted(words[start:stop])
            and (letter := only(main))
        ):
            yield letter


def _in_phrase(words: Sequence[str], place: int) -> bool:
    """Behind a preposition: "the largest cup in the second image" says nothing of that image."""
    i = place - 1
    while i >= 0 and (words[i] in lang.ARTICLES or words[i] in lang.MARK_WORDS):
        i -= 1
    return i >= 0 and words[i] in lang.PREPOSITIONS


def _evident(words: Sequence[str], found: Sequence[Mention], spans: Sequence[_Span]) -> str | None:
    for (start, end), (after, _) in pairwise(spans):
        explains = tuple(words[after : after + 2]) in lang.EVIDENT
        if explains and words[start][0] not in lang.BRACKETS and not lang.EVIDENCE.isdisjoint(words[after : after + 6]):
            inside = _within(found, start, end)
            if inside and not _doubted(words[start:end]):
                return only(inside)
    return None


def _indicated(words: Sequence[str], found: Sequence[Mention], last: _Span) -> str | None:
    """What the last sentence says that the evidence shows: "this indicates …", "…, indicating that …"."""
    start, end = last
    if words[start] == "this" and words[start + 1 : start + 2] and words[start + 1] in lang.THIS_SHOWS:
        return only(_within(found, start, end))
    places = [i for i in range(start, end) if words[i] in lang.SHOWING and words[i + 1 : i + 2] == ["that"]]
    return only(_within(found, places[-1], end)) if places else None


def _judged_first(words: Sequence[str], found: Sequence[Mention], first: _Span) -> str | None:
    start, end = first
    listed = words[start][0] in lang.BRACKETS
    judges = not listed and any(w in lang.JUDGES for w in words[start:end])
    return only(_within(found, start, end)) if judges else None
