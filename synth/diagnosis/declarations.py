"""Where a reply declares its answer: "the answer is", "I choose", "(B) is correct", tags and boxes, in many languages.

Searching for these patterns at every character takes ten times as long as looking for their words first: `clues` does
that once, and each search starts from the words that occur.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import NamedTuple

from synth.diagnosis.language import holds, word_set

# ------------------------------------------------------------------------------------------------- tags, boxes and keys

_FORMAL = re.compile(
    r"<(?:final_)?(?:answer|conclusion|response|output|result)>(.*?)(?:</|$)"
    r"|<\|begin_of_box\|>(.*?)(?:<\|end_of_box\|>|$)"
    r"|\\f?box(?:ed)?\s*\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"
    r"|[\"'](?:final|correct|selected|chosen|best)?[_ ]?(?:answer|choice|option|letter|prediction)(?:_letter)?[\"']\s*:"
    r"\s*[\"']?([^\"'},\n]*)",
    re.S | re.I,
)
_KEY_ENDS = ('":', "':", '" :', "' :")


def formal(raw: str) -> list[str]:
    """What stands in answer tags, boxes and under JSON keys of a raw reply, the last first."""
    if "\\" not in raw and "<" not in raw and not holds(raw, _KEY_ENDS):
        return []
    return [next((g for g in m.groups() if g is not None), "") for m in _FORMAL.finditer(raw)][::-1]


# --------------------------------------------------------------------------------------------------------------- words

_NOUNS = (
    "assistant|answer|choice|option|selection|solution|conclusion|prediction|guess|verdict|pick|respuesta|opci[oó]n|r[ée]ponse|"
    "choix|antwort|lösung|resposta|opç[aã]o|risposta|opzione|antwoord|jawaban(?:nya)?|jawapan|svar(?:et)?|vastaus|sagot|"
    "cevap|yanıt|răspunsul?|odpowiedź|odpověď|válasz|đáp án|ответ|відповідь|απάντηση|ה?תשובה|उत्तर|উত্তর|الإجابة|الجواب|"
    "جواب|پاسخ"
)
_COPULAS = (
    "is|are|was|would be|should be|will be|must be|would then be|es|ser[ií]a|est|serait|ist|lautet|wäre|é|è|är|er|on|"
    "este|ay|je|jest|là|adalah|это|είναι|היא|هي|هو|است|है"
)
_EAST = (
    "(?:正?[确確]?答案|正确选项|正確選項|应该?选择?|應該?選擇?|故选|我选|我(?:认为|觉得)(?:是|选)?"
    "|(?:应该|應該|应当)是(?=\\s*\\(?[A-Z])|选择?(?![项項])|選擇?(?![项項択])|答え|正解|解答|回答|選択肢"
    "|정답|답안?|답변|odpowiedź to|คําตอบ(?:ที่ถูกต้อง)?)"
    "(?:应该|應該|应当|应)?(?:是|为|為|選|は|が|은|는|이|คือ)?"
)
_NOUN = re.compile(rf"\b(?:{_NOUNS})\b")
_NOUN_WORDS = word_set(
    "assistant answer choice option selection solution conclusion prediction guess verdict pick respuesta opcion "
    "opción reponse réponse choix antwort lösung resposta opç risposta opzione antwoord jawaban "
    "jawabannya jawapan svar svaret vastaus sagot cevap yanıt răspuns odpowiedź odpověď válasz đáp ответ "
    "відповідь απάντηση תשובה उत्तर উত্তর الإجابة الجواب جواب پاسخ"
)
_EAST_WORDS = word_set("答 选 选择 正 应 應 故 我 解 回 選 정 답 odpowiedź คําตอบ")
_LETTER_NEXT = re.compile(r"[ \t]*\(?[A-Z]\b")
_LINE_ENDS = re.compile(r"\s*\n")
# Every branch begins with a literal, which lets the engine skip to the next of these characters.
_LINK = re.compile(rf"\.|\n|\(|\)|(?P<link>:|=|→|—|\|| (?:{_COPULAS})\b| [-–]\s)")
_LINK_REACH = 80
"""Characters between "the answer" and "is"."""
_BY_EAST = re.compile(rf"{_EAST}\s*:?")
_SPEAKER_WORDS = word_set("i we let ich je elijo elegiría escojo escolho scelgo")
_BY_SPEAKER = re.compile(
    r"\b(?:i|we|i'd|i'll|let's)\s(?:(?:would|will|must|have to|therefore|thus|then|had to|'d|can|also|still"
    r"|might(?=\slean))\s)*"
    r"(?:choose|select|pick|go with|go for|opt for|answer|conclude|lean towards?"
    r"|say(?! (?:that )?it)|(?:think|believe|guess|say)(?: that)? (?:it's|it is|the answer is))\b"
    r"|\b(?:i'm|i am|we're|we are) (?:going with|going for|leaning towards?|choosing|picking)\b"
    r"|\b(?:ich (?:wähle|nehme)|je choisis|elijo|elegiría|escojo|escolho|scelgo)\b"
)
_CROWN_WORDS = word_set("correct right best appropriate suitable likely answer")
_CORRECTION_WORDS = word_set("wait hold actually thought thoughts correction scratch oops mistake wrong")
_ABROAD_WORDS = word_set(
    "es est ist é è 正 对的 最合适 정답 맞 입니다 उत्तर cevap svaret antwort respuesta réponse resposta risposta "
    "ответ jawaban"
)
_PRONOUNS = word_set("it that")
_ALL_WORDS = _NOUN_WORDS | _EAST_WORDS | _SPEAKER_WORDS | _CROWN_WORDS | _CORRECTION_WORDS | _ABROAD_WORDS | _PRONOUNS
_BLANKS = str.maketrans(dict.fromkeys(string.punctuation, " "))


class Clues(NamedTuple):
    """A text with the words in it that may begin or crown a declaration."""

    text: str
    lower: str
    """Of the same length."""
    words: frozenset[str]


def clues(text: str) -> Clues:
    """Look for the words of all rules at once."""
    lower = text.lower()
    if text.isascii():
        return Clues(text, lower, _ALL_WORDS.intersection(lower.translate(_BLANKS).split()))
    if len(lower) != len(text):  # "İ" grows by a character and would shift all places behind it
        lower = "".join(c.lower() if len(c.lower()) == 1 else c for c in text)
    return Clues(text, lower, frozenset(word for word in _ALL_WORDS if word in lower))


def _places(text: str, part: str) -> Iterator[int]:
    place = text.find(part)
    while place >= 0:
        yield place
        place = text.find(part, place + 1)


# -------------------------------------------------------------------------------------------------------- declarations

_Rule = Callable[[Clues, int], int]
_first = itemgetter(0)


def declarations(given: Clues) -> list[tuple[int, int]]:
    """(where the search for a doubt ends, where what is declared begins), in order."""
    starts: list[tuple[int, _Rule]] = []
    rules: tuple[tuple[frozenset[str], _Rule], ...] = (
        (_NOUN_WORDS, _by_noun), (_SPEAKER_WORDS, _by_speaker), (_EAST_WORDS, _by_east)
    )  # fmt: skip
    for words, rule in rules:
        for word in given.words & words:
            starts += [(place, rule) for place in _places(given.lower, word)]
    starts.sort(key=_first)
    end = 0
    found = []
    for start, rule in starts:
        place = rule(given, start) if start >= end else 0
        if place:
            end = place
            # "I might lean towards B" is a choice, "the answer might be B" is none.
            found.append((start if rule is _by_speaker else end, end))
    return found


def _by_noun(given: Clues, start: int) -> int:
    noun = _NOUN.match(given.lower, start)
    if noun is None:
        return 0
    end = noun.end()
    line = _LINE_ENDS.match(given.text, end)
    if line is not None:
        return line.end()
    if _LETTER_NEXT.match(given.text, end):
        return 0
    link = _LINK.search(given.lower, end, end + _LINK_REACH)
    return link.end() if link is not None and link["link"] else 0


def _by_speaker(given: Clues, start: int) -> int:
    m = _BY_SPEAKER.match(given.lower, start)
    return m.end() if m is not None else 0


def _by_east(given: Clues, start: int) -> int:
    m = _BY_EAST.match(given.text, start)
    return m.end() if m is not None else 0


_OWN_LINE = re.compile(r":\s*\n[ \t\-#>]*\(([A-Za-z])\)[^\n]*")


def own_lines(text: str) -> list[re.Match[str]]:
    """A bracketed letter, group 1, on the line behind a colon."""
    return list(_OWN_LINE.finditer(text)) if "\n" in text and ":" in text else []


# ------------------------------------------------------------------------------------------------------------- crowned

_CROWNED = re.compile(
    r"([A-Z])(?=[)\s])(?:(?<=\([A-Z])\)|(?<![\w'-][A-Z]))(?:\s[^.\n()]{0,25}?|\s\([^()\n]{0,25}\))?\s"
    r"(?:is|would be|seems to be|appears to be)\s"
    r"(?:(?:therefore|thus|likely|probably|indeed|clearly|the|most|only|best|more)\s){0,4}"
    r"(?:(?:correct|right|best|appropriate|suitable|likely)\s(?:answer|choice|option|match|one|fit)\b"
    r"|correct(?=\s*(?:[.,;\n]|$))|the answer\b)"
)
_CROWN_REACH = (100, 24)
"""Characters of the pattern before and behind its crown."""
_CROWNED_ABROAD = re.compile(
    r"(?:选项|選項|選択肢)?\s*\(?([A-Z])\)?\s*(?:是|为|為)?(?:正确|正確|对的|最合适)"
    r"|\(?([A-Z])\)?\s?(?:が|は)正解|\(?([A-Z])\)?번?(?:(?:이|가)\s?(?:정답|맞)|입니다)"
    r"|(?<![\w'-])\(?([A-Z])\)?\s(?:es|est|ist|é|è)\s(?:(?:la|le|die|das|a|l[ao])\s)?"
    r"(?:(?:opci[oó]n|respuesta|option|réponse|opção|resposta|risposta)\s)?"
    r"(?:correct[ao]?|bonne|richtige?|correcte|corretta|certa)\b"
    r"|(?:उत्तर|\b(?i:cevap|svaret|antwort|respuesta|réponse|resposta|risposta|ответ|jawaban))\s\(?([A-Z])\)?"
    r"(?=\s*(?:[.,;!\n']|$)|\sहै)"
)
_THAT_IS = ("t's ", "t is ", "t must be ", "t would be ")
_IT_IS = re.compile(
    r"(?:definitely |clearly |probably |likely |most likely |option |choice )*"
    r"(?:\(([A-Z])\)|([A-Z])(?=\s*(?:[.,;!\n]|$)|\s(?:because|since|as|for)\b))"
)
_BEFORE_IT = re.compile(r"(?:^|[.!?,;\n]\s*|\b(?:so|thus|hence|therefore|then)\s)(?:i|tha)$", re.I)


def crowned(given: Clues) -> list[tuple[str, int, int]]:
    """(letter, start, end) of "(B) is the correct answer" and "so it's B"."""
    text, found = given.text, []
    for word in given.words & _CROWN_WORDS:
        for place in _places(given.lower, word):
            start = max(0, place - _CROWN_REACH[0])
            if text.find(" is ", start, place) < 0 and text.find(" be ", start, place) < 0:
                continue
            for m in _CROWNED.finditer(text, start, place + _CROWN_REACH[1]):
                found.append((m[1], m.start() - (text[m.start() - 1 : m.start()] == "("), m.end()))
    if given.words & _ABROAD_WORDS:
        for m in _CROWNED_ABROAD.finditer(text):
            found.append((next(g for g in m.groups() if g), m.start(), m.end()))
    for stem in _THAT_IS if given.words & _PRONOUNS else ():
        for place in _places(text, stem):
            it = _IT_IS.match(text, place + len(stem))
            if it is not None and _BEFORE_IT.search(text, max(0, place - 16), place):
                found.append((it[1] or it[2], place, it.end()))
    return found


# --------------------------------------------------------------------------------------------------------- corrections

_CORRECTS = re.compile(
    r"(?:^|[.!?;\n…—–(]|\s-|,)\s*(?:(?:oh|hmm|but|no|and),?\s)?"
    r"(?:wait|hold on|actually|on second thoughts?|correction|scratch that|oops|my mistake|i was wrong|let me "
    r"(?:correct|reconsider|rethink|re-?check|double-?check|re-?examine|revise))\b",
    re.I,
)
_INSTEAD = re.compile(
    r"[\s,:;.!—–-]*(?:(?:no|sorry|wait)[\s,.—–-]+)*(?:i (?:think|believe|mean)\s)?"
    r"(?:it's|it is|it should be|it must be|it would be|that's|that is|should be|make that|rather)?\s*",
    re.I,
)


def correction(given: Clues) -> int | None:
    """Where that begins which holds after the last correction of oneself: "B. Wait, it's A"."""
    if not given.words & _CORRECTION_WORDS and "let me " not in given.lower:
        return None
    last = None
    for m in _CORRECTS.finditer(given.text):
        last = m
    if last is None or not last.start():
        return None
    instead = _INSTEAD.match(given.text, last.end())
    return instead.end() if instead is not None else last.end()
