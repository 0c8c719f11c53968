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

from synth.diagnosis import language as lang
from synth.types import LETTERS

REASONS = ("refusal", "ambiguous", "empty", "truncated", "out_of_range", "conflict", "error")
"""Every reason of `read_answer`. `refusal` holds "none of the options" too, `error` a harness's own failure text."""
MARK_CONFLICT = "mark_conflict"


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reply says."""

    letter: str | None
    reason: str | None
    """Why there is no letter; None where there is one."""
    note: str = ""
    """`mark_conflict`: read by its text, and the text names a mark with another option's letter."""


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
    raw = lang.without_thought(text or "")
    if raw is None:
        return Reading(None, "truncated")
    raw = lang.SPECIAL.sub(" ", raw).strip()
    if not raw:
        return Reading(None, "empty")
    options = _options(n_options, tuple(choices))
    plain = lang.plain(raw).strip()
    bare = lang.BARE.fullmatch(plain)
    if bare is not None:
        return _bare(bare[1].upper(), options)
    if lang.HARNESS_FAILED.match(plain):
        return Reading(None, "error")
    reading = _declared(raw, plain, options) or _placed(plain, options)
    if reading is None or reading.letter is None:
        return reading or _named(plain, options)
    # A reply that pairs letters and texts in two ways contradicts itself, however clear its last word.
    clashes = bool(options.starts) and _clash(_mentions(lang.words(plain), options), options)
    return Reading(None, "conflict") if clashes else reading


# ------------------------------------------------------------------------------------------------------------- options


@dataclass(frozen=True, slots=True)
class _Options:
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
    swapped: frozenset[str]
    """Letters that are the whole text of another option."""
    telling: frozenset[str]
    """Words at which a mention can begin, beside bracketed letters."""


@lru_cache(maxsize=4096)
def _options(n_options: int, choices: tuple[str, ...]) -> _Options:
    count = n_options or len(choices) or 10
    texts: dict[tuple[str, ...], list[str]] = {}
    marks: dict[str, str] = {}
    subjects: dict[str, tuple[str, str]] = {}
    noted: set[str] = set()
    swapped: set[str] = set()
    for letter, choice in zip(LETTERS[:count], choices, strict=False):
        words = [w for w in lang.words(lang.plain(choice)) if w not in lang.ENDS]
        named = [w for w in words if len(w) == 1 and w in LETTERS]
        if named and letter not in named and named[0] in LETTERS[:count]:
            noted.add(letter)
            swapped |= set(named) if len(words) == 1 else set()
        if len(named) == 1 and len(words) <= 2 and words[-1] == named[0]:
            marks[named[0]] = letter
        elif len(named) == 1 and words[0] == named[0] and words[-1] not in lang.TO_BE:
            subjects[named[0]] = (words[-1], letter)
        if len(words) > 1 and words[0] in lang.ARTICLES:
            words = words[1:]
        texts.setdefault(tuple(w.casefold() for w in words), []).append(letter)
    starts: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for key, letters in sorted(texts.items(), key=lambda pair: -len(pair[0])):
        if key and len(letters) == 1:
            starts.setdefault(key[0], []).append((key, letters[0]))
    prepared = {first: tuple(found) for first, found in starts.items()}
    telling = frozenset(LETTERS) | prepared.keys()
    return _Options(count, prepared, marks, subjects, frozenset(noted), frozenset(swapped), telling)


def _text_at(words: Sequence[str], i: int, options: _Options) -> tuple[int, str] | None:
    """(length, letter) of the longest option text that begins at word i."""
    for key, letter in options.starts.get(words[i].casefold(), ()):
        if len(key) == 1 or tuple(w.casefold() for w in words[i : i + len(key)]) == key:
            return len(key), letter
    return None


def _bare(letter: str, options: _Options) -> Reading:
    if LETTERS.index(letter) >= options.count:
        return Reading(None, "out_of_range")
    return Reading(None, "conflict") if letter in options.swapped else Reading(letter, None)


def _by_text(letter: str, options: _Options) -> Reading:
    return Reading(letter, None, MARK_CONFLICT if letter in options.noted else "")


# ------------------------------------------------------------------------------------------------------------ mentions


@dataclass(frozen=True, slots=True)
class _Mention:
    letter: str
    place: int
    end: int
    by_text: bool
    negated: bool


def _mentions(words: Sequence[str], options: _Options) -> list[_Mention]:
    """Options named in a text: bracketed letters, "option B", option texts as whole words, and marks."""
    found: list[_Mention] = []
    end = 0
    for i in [i for i, w in enumerate(words) if w in options.telling or w[0] in lang.BRACKETS]:
        if i < end:
            continue
        letter, end, by_text = _mention_at(words, i, options)
        if letter and not _is_compared(words, i):
            found.append(_Mention(letter, i, end, by_text, _is_negated(words, i, end)))
    return found


def _mention_at(words: Sequence[str], i: int, options: _Options) -> tuple[str, int, bool]:
    """(letter or "", index behind it, read by text) of what stands at word i."""
    word = words[i]
    if word[0] in lang.BRACKETS:
        return word[1:-1].strip().upper(), i + 1, False
    capital = len(word) == 1 and word in LETTERS
    if capital and i and words[i - 1] in lang.LABEL_WORDS:
        return word, i + 1, False
    hit = _text_at(words, i, options)
    if hit is not None:
        return (hit[1] if _stands_for_option(words, i, hit[0]) else ""), i + hit[0], True
    if capital and word in options.marks and i and words[i - 1] in lang.MARK_WORDS:
        return options.marks[word], i + 1, True
    if capital and word in options.subjects:
        return _subject(words, i, options)
    return "", i + 1, True


def _subject(words: Sequence[str], i: int, options: _Options) -> tuple[str, int, bool]:
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


def _stands_for_option(words: Sequence[str], i: int, length: int) -> bool:
    """Yes and no are answers at the head of a clause, "no" is a determiner elsewhere; "right" may mean correct."""
    if length > 1:
        return True
    before = words[i - 1] if i else "."
    after = words[i + 1] if i + length < len(words) else "."
    word = words[i].casefold()
    if word in lang.PARTICLES:
        heads = before in lang.ENDS or before == ","
        return heads and (after in lang.ENDS or after == "," or after in lang.AFTER_PARTICLE)
    return not (word == "right" and after in lang.RIGHT_MEANS_CORRECT)


def _is_negated(words: Sequence[str], start: int, end: int) -> bool:
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


def _only(mentions: Sequence[_Mention]) -> str | None:
    """The one letter that is named, and nowhere denied."""
    letters = {m.letter for m in mentions}
    return letters.pop() if len(letters) == 1 and not any(m.negated for m in mentions) else None


def _clash(mentions: Sequence[_Mention], options: _Options) -> bool:
    """A letter stands next to another option's text: "the second image (B)" where it is A.

    A letter that no option has ("the third image (C)" of two) numbers the pictures and takes no option's name away.
    """
    return any(
        a.letter != b.letter and a.by_text and not b.by_text and b.place == a.end and not b.negated
        and LETTERS.index(b.letter) < options.count
        for a, b in pairwise(mentions)
    )  # fmt: skip


# -------------------------------------------------------------------------------------------------------- declarations


def _declared(raw: str, text: str, options: _Options) -> Reading | None:
    """The last explicit declaration that can be read."""
    if "<" in raw or "\\" in raw or ":" in raw:
        for m in reversed(list(lang.FORMAL.finditer(raw))):
            body = lang.plain(next((g for g in m.groups() if g is not None), ""))
            reading = _fragment(body, options) or _declared("", body, options)
            if reading is not None:
                return reading
    found: list[tuple[int, Reading | None]] = []
    for m in lang.declarations(text):
        if not lang.UNDECIDED.search(text, max(0, m.start() - 110), m.end()):
            found.append((m.end(), _after(text, m.end(), options)))
    for m in lang.OWN_LINE.finditer(text):
        undecided = lang.UNDECIDED.search(text, max(0, m.start() - 110), m.start())
        if not undecided and not _begins_list(text, m.end(), m[1]):
            found.append((m.end(), _fragment(lang.head(text, m.start(1) - 1), options)))
    for m in lang.CROWNED.finditer(text):
        letter = m[1] or m[2]
        undecided = lang.UNDECIDED.search(text, max(0, m.start() - 110), m.start())
        if LETTERS.index(letter) < options.count and not undecided:
            found.append((m.end(), Reading(letter, None)))
    readable = [(place, reading) for place, reading in found if reading is not None]
    return max(readable, key=lambda pair: pair[0])[1] if readable else None


def _after(text: str, place: int, options: _Options) -> Reading | None:
    """Read what is declared at a place of the text."""
    fragment = lang.head(text, place)
    filler = lang.FILLER.match(fragment)
    start = filler.end() if filler is not None else 0
    lead = lang.LINE_LETTER.match(fragment[start:]) if "\n" in fragment[:start] else None
    if lead is not None and _begins_list(text, place + start, lead[1] or lead[2]):
        return None
    reading = _fragment(fragment, options)
    if reading is None:
        again = lang.SECOND_COPULA.match(fragment)
        reading = _fragment(fragment[again.end() :], options, delimited=True) if again is not None else None
    return reading


def _begins_list(text: str, place: int, letter: str) -> bool:
    """True where other options follow, each on its own line: the options are listed, not chosen."""
    found = lang.LINE_LETTER.finditer(text, place, place + 4000)
    return any((m[1] or m[2]).upper() != letter.upper() for m in found)


def _fragment(text: str, options: _Options, *, delimited: bool = False) -> Reading | None:
    """Read what stands at the head of a text; None where it begins with no option.

    With `delimited` a bare letter must be set off ("B." or "B)"), as at the head of a whole reply.
    """
    filler = lang.FILLER.match(text)
    text = text[filler.end() if filler is not None else 0 :]
    m = lang.LETTER.match(text)
    if m is None:
        return None if delimited else _text_first(lang.words(text.split("\n", 1)[0]), options)
    letter = (m[1] or m[2] or m[3]).upper()
    rest = text[m.end() :]
    if m[1] is None and not lang.DELIMITER.match(rest):
        by_text = _text_first(lang.words(text.split("\n", 1)[0]), options)
        if by_text is not None:
            return by_text
        following = lang.NEXT_WORD.match(rest)
        next_word = following[1] if following is not None else "because"
        subject = next_word in lang.AFTER_SUBJECT or (letter in "AI" and next_word not in lang.AFTER_BARE_LETTER)
        if delimited or subject:
            return None
    other = lang.AND_ANOTHER.match(rest)
    if other is not None and (other[1] or other[2]) != letter:
        return Reading(None, "ambiguous")
    if LETTERS.index(letter) >= options.count:
        return Reading(None, "out_of_range")
    return _checked(letter, rest, options)


def _checked(letter: str, rest: str, options: _Options) -> Reading:
    """The letter, unless the option text behind it is another one's."""
    words = lang.words(rest)
    while words and (words[0] in lang.ENDS or words[0] == "," or words[0] in lang.ARTICLES):
        del words[0]
    if not words:
        return Reading(None, "conflict") if letter in options.swapped else Reading(letter, None)
    said = _text_at(words, 0, options)
    if said is not None and said[1] != letter and _stands_for_option(words, 0, said[0]):
        return Reading(None, "conflict")
    return Reading(letter, None)


def _text_first(words: list[str], options: _Options) -> Reading | None:
    """The option whose text begins the words."""
    hit = _text_at(words, 0, options) if words else None
    if hit is None and len(words) > 1 and words[0] in lang.ARTICLES:
        words = words[1:]
        hit = _text_at(words, 0, options)
    if hit is None or _is_negated(words, 0, hit[0]):
        return None
    return _by_text(hit[1], options)


# ------------------------------------------------------------------------------------------------- undeclared answers


def _placed(text: str, options: _Options) -> Reading | None:
    """A letter that leads the reply, or begins its last line, where the reply does not list the options."""
    if len({(m[1] or m[2]).upper() for m in lang.LINE_LETTER.finditer(text)}) > 1:
        return None
    if lang.REASONED.match(text):
        return _fragment(lang.head(text, 0), options)
    for line in (lang.head(text, 0), lang.head(text, text.rfind("\n") + 1)):
        reading = _fragment(line, options, delimited=True) if lang.LINE_LETTER.match(line) else None
        if reading is not None:
            return reading
    return None


def _named(text: str, options: _Options) -> Reading:
    """Read a reply that declares nothing, by the options that it names."""
    words = lang.words(text)
    if not any(w not in lang.ENDS and w != "," for w in words):
        return Reading(None, "empty")
    mentions = _mentions(words, options)
    if _clash(mentions, options):
        return Reading(None, "conflict")
    refuses = lang.REFUSAL.search(text) is not None
    lettered = [m for m in mentions if not m.by_text]
    strange = [m for m in lettered if LETTERS.index(m.letter) >= options.count]
    if not strange and _only(lettered) and not (refuses and lettered[-1].place < len(words) // 2):
        return Reading(_only(lettered), None)
    if refuses or lang.OPENS_REFUSAL.match(text):
        return Reading(None, "refusal")
    if strange:
        return Reading(None, "out_of_range" if len(strange) == len(lettered) else "ambiguous")
    letter = _by_sentence(words, mentions) or (None if lettered else _only(mentions))
    return _by_text(letter, options) if letter is not None else Reading(None, "ambiguous")


def _by_sentence(words: Sequence[str], mentions: Sequence[_Mention]) -> str | None:
    """The only option of the last sentence that concludes, or else of a first sentence that judges."""
    bounds = [-1, *(i for i, w in enumerate(words) if w in lang.ENDS), len(words)]
    spans = [(a + 1, b) for a, b in pairwise(bounds) if b - a > 1]
    for start, end in reversed(spans):
        head = tuple(words[start : start + 2])
        if head[0] in lang.CONCLUDES or head in lang.CONCLUDING_PAIRS:
            inside = [m for m in mentions if start <= m.place < end]
            if inside:
                return _only(inside)
    start, end = spans[0]
    inside = [m for m in mentions if start <= m.place < end]
    listed = words[start][0] in lang.BRACKETS
    return _only(inside) if not listed and any(w in lang.JUDGES for w in words[start:end]) else None
