"""A model's reply as text → the letter it chose, or the reason why there is none.

The order of the rules is that of the safest evidence first: what was declared last, what stands alone, what was named
once. Reading abstains where two readings are possible: an item read wrongly is worse than one not read. Published
extractors, given the same replies of one model, differ by tens of points of accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter
from typing import Literal

from synth.diagnosis import declarations as declared
from synth.diagnosis import language as lang
from synth.diagnosis import phrases
from synth.diagnosis.claims import claimed
from synth.diagnosis.options import (
    Mention,
    Options,
    contradictions,
    is_negated,
    may_contradict,
    mentions,
    only,
    prepare,
    stands_for_option,
    text_at,
)
from synth.types import LETTERS

REASONS = ("refusal", "ambiguous", "empty", "truncated", "out_of_range", "conflict", "error")
"""Every reason of `read_answer`. `refusal` holds "none of the options" too, `error` a harness's own failure text."""
MARK_CONFLICT = "mark_conflict"
_Kind = Literal["words", "line", "crown"]
_SHORT = 160
"""Characters of a reply that is worth remembering."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reply says."""

    letter: str | None
    reason: str | None
    """Why there is no letter; None where there is one."""
    note: str = ""
    """`mark_conflict`: read by its text, and the text names a mark with another option's letter."""
    by_letter: str | None = None
    """Of a `conflict`: the option whose letter is said; None where no letter is said clearly."""
    by_text: str | None = None
    """Of a `conflict`: the option whose text is said."""


def read_answer(text: str | None, n_options: int, choices: Sequence[str] = ()) -> Reading:
    """The option that a reply names.

    Args:
        text: the raw reply.
        n_options: number of options; 0 where unknown (then `choices` tell it, else letters up to J are accepted).
        choices: option texts without letters, in order; empty where unknown.

    Returns:
        A letter with no reason, or no letter with one of `REASONS`.

    The order: special tokens and thinking traces are removed; a bare letter; the last declaration; a letter that leads
    or ends the reply; the only bracketed letter; the only option named by its text; then the reasons.
    """
    text = text or ""
    # Runs of short replies say the same few things again and again.
    return (_read_short if len(text) <= _SHORT else _read)(text, n_options, tuple(choices))


def _read(text: str, n_options: int, choices: tuple[str, ...]) -> Reading:
    raw = lang.without_thought(text)
    if raw is None:
        return Reading(None, "truncated")
    raw = lang.without_special(raw).strip()
    if not raw:
        return Reading(None, "empty")
    options = prepare(n_options, choices)
    plain = lang.plain(raw).strip()
    bare = phrases.BARE.fullmatch(plain)
    if bare is not None:
        return _bare(bare[1].upper(), options)
    if lang.HARNESS_FAILED.match(plain):
        return Reading(None, "error")
    given = declared.clues(plain)
    reading = _formal(raw, options) or _declared(given, options) or _placed(plain, options)
    instead = declared.correction(given)
    if instead is not None:
        reading = _corrected(plain[instead:], reading, options)
    if reading is None or reading.letter is None:
        return reading or _named(plain, options)
    # A reply that pairs letters and texts in two ways contradicts itself, however clear its last word.
    if may_contradict(plain, options):
        found = mentions(lang.words(plain), options)
        if contradictions(found, options):
            return _contradictory(found, options, reading.letter)
    return reading


_read_short = lru_cache(maxsize=65_536)(_read)


def _bare(letter: str, options: Options) -> Reading:
    if LETTERS.index(letter) >= options.count:
        return Reading(None, "out_of_range")
    other = options.swapped.get(letter)
    return _said(letter) if other is None else _conflict(letter, other)


_SAID = {letter: Reading(letter, None) for letter in LETTERS}


def _said(letter: str) -> Reading:
    return _SAID[letter]


def _conflict(letter: str | None, text: str) -> Reading:
    return Reading(None, "conflict", "", letter, text)


def _contradictory(found: Sequence[Mention], options: Options, said: str | None) -> Reading:
    """A reply that gives an option's text another option's letter: read by what it declares, else by its last pair."""
    pairs = contradictions(found, options)
    texts = dict(pairs)
    if said is None:
        return _conflict(*pairs[-1])
    if said in texts or any(m.letter == said and not m.by_text for m in found):
        return _conflict(said, texts.get(said, said))
    return _conflict({text: letter for letter, text in pairs}.get(said, said), said)


def _by_mark(mark: str, options: Options) -> Reading | None:
    letter = options.mark(mark)
    return None if letter is None else _by_text(letter, options)


def _by_text(letter: str, options: Options) -> Reading:
    return Reading(letter, None, MARK_CONFLICT if letter in options.noted else "")


# -------------------------------------------------------------------------------------------------------- declarations


def _corrected(rest: str, reading: Reading | None, options: Options) -> Reading | None:
    """What holds after "wait, …" or "actually, …"; what was said before only where nothing else is named there."""
    first = phrases.LETTER.match(rest)
    alone = first is not None and (first[1] is not None or phrases.DELIMITER.match(rest, first.end()) is not None)
    later = _declared(declared.clues(rest), options) or (
        _fragment(lang.head(rest, 0), options) if alone else _placed(rest, options)
    )
    if later is not None:
        return later
    if reading is None:
        return None
    words = lang.words(rest)
    named = {m.letter for m in mentions(words, options)}
    named |= {w for w, after in pairwise([*words, "."]) if w in LETTERS[: options.count] and after in lang.TO_BE}
    return Reading(None, "ambiguous") if named - {reading.letter} else reading


def _formal(raw: str, options: Options) -> Reading | None:
    for body in map(lang.plain, declared.formal(raw)):
        reading = _fragment(body, options) or _declared(declared.clues(body), options)
        if reading is not None:
            return reading
    return None


def _declared(given: declared.Clues, options: Options) -> Reading | None:
    """The last explicit declaration that can be read."""
    text = given.text
    found: list[tuple[int, int, _Kind, str]] = [
        (end, doubt, "words", "") for doubt, end in declared.declarations(given)
    ]
    found += [(m.end(), m.start(), "line", m[1]) for m in declared.own_lines(text)]
    found += [(end, start, "crown", letter) for letter, start, end in declared.crowned(given)]
    for place, doubt, kind, letter in sorted(found, key=itemgetter(0), reverse=True):
        if phrases.undecided(text, doubt):
            continue
        if kind == "words":
            reading = _after(text, place, options)
        elif kind == "line":
            reading = None if _begins_list(text, place, letter) else _on_line(text, doubt, options)
        else:
            reading = _crowned(text, doubt, letter, options)
        if reading is not None:
            return reading
    return None


def _on_line(text: str, colon: int, options: Options) -> Reading | None:
    return _fragment(lang.head(text, colon + 1), options)


def _crowned(text: str, start: int, letter: str, options: Options) -> Reading | None:
    if LETTERS.index(letter) >= options.count:
        return None
    marked = phrases.MARKED.search(text, max(0, start - 12), start) is not None
    return (_by_mark(letter, options) if marked else None) or _said(letter)


def _after(text: str, place: int, options: Options) -> Reading | None:
    """Read what is declared at a place of the text."""
    fragment = lang.head(text, place)
    filler = phrases.FILLER.match(fragment) if "\n" in fragment else None
    start = filler.end() if filler is not None else 0
    lead = phrases.LINE_LETTER.match(fragment, start) if "\n" in fragment[:start] else None
    if lead is not None and _begins_list(text, place + start, lead[1] or lead[2]):
        return None
    reading = _fragment(fragment, options)
    if reading is None:
        again = phrases.SECOND_COPULA.match(fragment)
        reading = _fragment(fragment[again.end() :], options, delimited=True) if again is not None else None
    return reading


def _begins_list(text: str, place: int, letter: str) -> bool:
    """True where other options follow, each on its own line: the options are listed, not chosen."""
    return any(other != letter.upper() for other in phrases.line_letters(text, place, place + 4000))


def _fragment(text: str, options: Options, *, delimited: bool = False) -> Reading | None:
    """Read what stands at the head of a text; None where it begins with no option.

    With `delimited` a bare letter must be set off ("B." or "B)"), as at the head of a whole reply.
    """
    filler = phrases.FILLER.match(text)
    start = filler.end() if filler is not None else 0
    ordinal = phrases.ordinal(text, start, options.count)
    if ordinal is not None:
        return _by_place(text, start, LETTERS[ordinal[0]], options)
    text = text[start:]
    picture = phrases.PICTURE.match(text)
    if picture is not None:
        words = _ahead(text.split("\n", 1)[0], options)
        if text_at(words, 0, options) is not None:
            return _text_first(words, options)
        other = phrases.AND_ANOTHER.match(text, picture.end())
        by_mark = _by_mark(picture[1], options)
        if by_mark is not None:
            return by_mark if other is None else Reading(None, "ambiguous")
        text = text[picture.start(1) - (text[picture.start(1) - 1] == "(") :]
    m = phrases.LETTER.match(text)
    if m is None:
        return None if delimited else _text_first(_ahead(text.split("\n", 1)[0], options), options)
    letter = (m[1] or m[2] or m[3]).upper()
    rest = text[m.end() :]
    if m[1] is None and not phrases.DELIMITER.match(rest):
        by_text = _text_first(_ahead(text.split("\n", 1)[0], options), options)
        if by_text is not None:
            return by_text
        following = phrases.NEXT_WORD.match(rest)
        next_word = following[1] if following is not None else "because"
        subject = next_word in phrases.AFTER_SUBJECT or (letter in "AI" and next_word not in phrases.AFTER_BARE_LETTER)
        if delimited or subject:
            return None
    elif delimited and m[1] is not None:
        following = phrases.NEXT_WORD.match(rest)
        if following is not None and following[1] in phrases.VERBS:
            return None
    other = phrases.AND_ANOTHER.match(rest)
    if other is not None and (other[1] or other[2]) != letter:
        return Reading(None, "ambiguous")
    if LETTERS.index(letter) >= options.count:
        return Reading(None, "out_of_range")
    return _checked(letter, rest, options)


def _by_place(text: str, start: int, letter: str, options: Options) -> Reading:
    """ "Option 2", which may be the second option or the one that says 2."""
    said = None if options.countable else _text_first(_ahead(text[start:], options), options)
    return Reading(letter, None) if said is None or said.letter == letter else Reading(None, "ambiguous")


def _checked(letter: str, rest: str, options: Options) -> Reading:
    """The letter, unless the option text behind it is another one's."""
    if not options.starts and letter not in options.swapped:
        return _said(letter)
    own = options.own.get(letter)
    if own is not None:
        said_now = rest.lstrip(" ).:,-–—").casefold().removeprefix("the ")
        behind = said_now[len(own) : len(own) + 5]
        whole = said_now.startswith(own) and not behind[:1].isalnum()
        if whole and not behind.lstrip(" ,;.").startswith(("or", "and", "-", "'", "(")):
            return _said(letter)
    words = _ahead(rest, options)
    while words and (words[0] in lang.ENDS or words[0] == "," or words[0] in lang.ARTICLES):
        del words[0]
    if not words:
        return _bare(letter, options)
    said = text_at(words, 0, options)
    if said is not None and said[1] != letter and stands_for_option(words, 0, said[0]):
        return _conflict(letter, said[1])
    if said is not None and _another(words[said[0] :], letter, options):
        return Reading(None, "ambiguous")
    return _said(letter)


def _another(words: list[str], letter: str, options: Options) -> bool:
    """ "… or (D) the fourth image", and the next entry of a list, "(A) yes (B) no"."""
    listed = words[1:] if words[:1] and (words[0] in lang.ENDS or words[0] == ",") else words
    if len(listed) > 1 and listed[0][0] in lang.BRACKETS:
        entry = text_at(listed, 1, options)
        return entry is not None and entry[1] == listed[0][1:-1].upper() != letter
    while len(words) > 1 and (words[0] in ("or", "and", "option") or words[0] in lang.ARTICLES):
        words = words[1:]
        said = text_at(words, 0, options)
        other = words[0][1:-1].upper() if words[0][0] in lang.BRACKETS else said[1] if said is not None else letter
        if other != letter:
            return True
    return False


def _ahead(text: str, options: Options) -> list[str]:
    """The words that can hold an option's text and its denial."""
    return lang.words(lang.head(text, 0, options.reach))


def _text_first(words: list[str], options: Options) -> Reading | None:
    """The option whose text begins the words."""
    hit = text_at(words, 0, options) if words else None
    if hit is None and len(words) > 1 and words[0] in lang.ARTICLES:
        words = words[1:]
        hit = text_at(words, 0, options)
    if hit is None or is_negated(words, 0, hit[0]):
        return None
    if _another(words[hit[0] :], hit[1], options):
        return Reading(None, "ambiguous")
    return _by_text(hit[1], options)


# ------------------------------------------------------------------------------------------------- undeclared answers


def _placed(text: str, options: Options) -> Reading | None:
    """A letter that leads the reply, or begins its last line, where the reply does not list the options."""
    if len(set(phrases.line_letters(text))) > 1:
        return None
    whole = phrases.whole_ordinal(text, options.count)
    if whole is not None and options.countable:
        return Reading(LETTERS[whole], None)
    if phrases.REASONED.match(text):
        return _fragment(lang.head(text, 0), options)
    last = text.rfind("\n") + 1
    for place in (0, last) if last else (0,):
        lead = phrases.LINE_LETTER.match(text, place)
        reading = _fragment(lang.head(text, place), options, delimited=True) if lead is not None else None
        if reading is not None:
            return reading
    return None


def _named(text: str, options: Options) -> Reading:
    """Read a reply that declares nothing, by the options that it names."""
    words = lang.words(text)
    if not any(w not in lang.ENDS and w != "," for w in words):
        return Reading(None, "empty")
    found = mentions(words, options)
    if contradictions(found, options):
        return _contradictory(found, options, None)
    refuses = phrases.refuses(text)
    lettered = [m for m in found if not m.by_text]
    strange = [m for m in lettered if LETTERS.index(m.letter) >= options.count]
    if not strange and only(lettered) and not (refuses and lettered[-1].place < len(words) // 2):
        return Reading(only(lettered), None)
    if refuses or phrases.OPENS_REFUSAL.match(text):
        return Reading(None, "refusal")
    if strange:
        return Reading(None, "out_of_range" if len(strange) == len(lettered) else "ambiguous")
    letter = claimed(words, found, options) or (None if lettered else only(found))
    return _by_text(letter, options) if letter is not None else Reading(None, "ambiguous")
