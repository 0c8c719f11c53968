"""The phrases of a reply: letters and what may follow them, fillers, doubts, refusals, ordinals."""

from __future__ import annotations

import re
from collections.abc import Iterator

from synth.diagnosis.language import holds, word_set

# ------------------------------------------------------------------------------------------------------------- letters

LETTER = re.compile(r"[(\[{【]\s*([A-Za-z])\s*[)\]}】]|([A-Z])(?![A-Za-z0-9À-ɏ'-])|([a-z])(?=\s*(?:[).:,;\]]|$))")
BARE = re.compile(
    r"[\W_]*(?:(?i:option|choice|answer|letter|probably|likely|definitely|clearly|assistant)\b[\W_]*)?([A-Za-z])[\W_]*"
)
REASONED = re.compile(
    r"[A-HJ-Z](?=\s*(?:,\s*)?(?:because|since)\b|\s*\n(?!\s*\(?[A-Z]\)?\W*(?:\n|$))|\s[-–—]\s)|[B-HJ-Z](?=\s\((?![A-Z]\)))"
)
"""A bare letter at the head of a reply, followed by its reason or by what it stands for."""
LINE_LETTER = re.compile(
    r"[ \t\-#>•]*(?:(?i:option|choice|point|image|picture|figure|box)\s)?"
    r"(?:\(([A-Za-z])\)|([A-Z])(?:[.):](?=\s|$)|。))"
)
"""A letter that begins a line."""
DELIMITER = re.compile(r"\s*(?:[).:,;\]\n。]|$|-\s|–|—)")
_AND = r"(?:and|or|und|oder|et|ou|y|o|e|和|或|及|还是|還是|それとも|아니면|または|또는|및)"
_LABEL = "(?:option|choice|point|image|picture|box)"
PICTURE = re.compile(r"(?:picture|image|point|figure|box|region|shape|object|circle|mark)\s+\(?([A-Z])(?![\w'-])", re.I)
MARKED = re.compile(r"\b(?:picture|point|figure|box|region|circle|mark|marker|labell?ed)\s$", re.I)
AND_ANOTHER = re.compile(
    rf"[\s,/&).]*(?:{_AND}\s+|[/&,]\s*|)(?:{_LABEL} )?\(([A-Z])\)"
    rf"|\s*(?:(?:,\s*)?{_AND}\s+|[/&,]\s*)(?:{_LABEL} )?([A-Z])(?![\w'-])"
)
NEXT_WORD = re.compile(r"\s+([a-z']+)")
AFTER_BARE_LETTER = word_set("because since as based with for due and or which in on at by given if from while but so")
VERBS = word_set(
    "is was are has had does do did can could may might would should cannot looks appears seems shows represents "
    "depicts"
)
"""What follows a letter that is the subject of a sentence, not an answer by itself."""
AFTER_SUBJECT = word_set("is was are has had does looks appears seems would")


def line_letters(text: str, start: int = 0, end: int | None = None) -> Iterator[str]:
    """Letters that begin a line of the text between two places, as capitals."""
    end = len(text) if end is None else min(end, len(text))
    place = start if not start or text[start - 1] == "\n" else text.find("\n", start, end) + 1
    while place < end and (place or not start):
        m = LINE_LETTER.match(text, place, end)
        if m is not None:
            yield (m[1] or m[2]).upper()
        place = text.find("\n", place, end) + 1
        if not place:
            return


# ------------------------------------------------------------------------------------------------- fillers and doubts

FILLER = re.compile(
    r"(?:[\s:;,>#_\-–—=]|(?i:\b(?:that|the|most|likely|probably|clearly|definitely|therefore|thus|simply|indeed|with|is|"
    r"be|option|choice|answer|letter|number|only|towards?|opci[oó]n|la|el|letra|die|der|das|l'option|choix|[ao] opção"
    r"|选项|選項|番)\b)(?=[\s(:]))*"
)
SECOND_COPULA = re.compile(r"[^.\n(]{0,60}?(?:\sis|:)(?=[\s(])")
_DOUBT = re.compile(r"\b(?:could|might|may|neither|nor|not|either|or)\b[^.\n]{0,20}$", re.I)
_DOUBTS = ("ould", "ight", "may", "or", "not", "ither")
_DOUBT_REACH = 28
_CONDITION = re.compile(
    r"\b(?:if(?! (?:(?:i|we|you|one) (?:must|had|have|were|was|am|are|need)|forced|pressed)\b)|whether|unless|suppose"
    r"|assuming)\b[^.\n]{0,100}$",
    re.I,
)
_CONDITIONS = ("if", "If", "hether", "nless", "uppose", "ssuming")
_CONDITION_REACH = 150


def undecided(text: str, end: int) -> bool:
    """True where what begins at a place stands under a condition, a doubt or a choice of two."""
    edge = end - 1 if text[end - 1 : end] == "\n" else end
    place = max(end - _CONDITION_REACH, text.rfind(".", 0, edge) + 1, text.rfind("\n", 0, edge) + 1, 0)
    near = max(place, edge - _DOUBT_REACH)
    return (holds(text[near:edge], _DOUBTS) and _DOUBT.search(text, near, edge) is not None) or (
        holds(text[place:edge], _CONDITIONS) and _CONDITION.search(text, place, edge) is not None
    )


# ------------------------------------------------------------------------------------------------------------- refusal

_CANNOT = (
    "(?:cannot|can't|can not|could not|couldn't|am unable to|am not able to|'m unable to|'m not able to|do not|don't"
    "|won't)"
)
OPENS_REFUSAL = re.compile(
    r"\W*(?:(?:i'm|i am|we're) (?:very |really )?(?:sorry|afraid)|sorry\b|(?:my )?apologies|i apologi[sz]e"
    rf"|unfortunately,? i |i {_CANNOT} (?:assist|help|provide|comply|fulfil|engage|answer|identify)"
    r"|抱歉|对不起|很遗憾|죄송|申し訳|すみません|lo siento|d[ée]sol[ée]|es tut mir leid|leider|desculpe|mi dispiace"
    r"|извините|к сожалению)",
    re.I,
)
_REFUSALS = (
    # Words of which one must occur, and the phrase (of the lower-case text).
    (
        ("not", "n't", "unable"),
        rf"i(?<!\wi)(?: {_CANNOT}|'m unable to) (?:\w+ )?(?:assist|help|provide|determine|answer|identify|comply|see"
        r"|view|confirm|tell|say|make|give|offer|select|choose|conclude|judge|accurately|definitively|conclusively"
        r"|confidently)",
    ),
    (("as an ai",), r"as an ai\b"),
    (("unable to",), r"unable to (?:\w+ )?(?:determine|assist|provide|answer|identify|view|see|process)"),
    (
        ("possible", "difficult", "challenging", "not be", "n't be", "feasible"),
        r"\b(?:not possible|impossible|difficult|challenging|cannot be|can't be|not feasible)\b[^.\n]{0,30}"
        r"(?:determin|tell|say|answer|identif|discern)",
    ),
    (
        ("enough", "sufficient", "lack"),
        r"\b(?:not (?:provide )?(?:enough|sufficient)|insufficient|lacks? (?:the |enough )?)\s*"
        r"(?:information|detail|context|data)",
    ),
    (("none", "neither"), r"\b(?:none|neither) of (?:the|these|them)\b"),
    (("no correct", "no right", "no valid"), r"\bno (?:correct|right|valid) (?:answer|option|choice)"),
    (
        ("puedo", "ne peux", "ich kann", "posso", "не могу"),
        r"\bno puedo\b|\bje ne peux pas\b|\bich kann (?:das |es )?nicht\b|\bnão posso\b|\bnon posso\b|\bне могу\b",
    ),
    (
        ("无法", "不能", "以上都不", "수 없", "わかりません", "できま", "できない"),
        r"无法|不能(?:确定|判断|回答)|以上都不|알 수 없|할 수 없|わかりません|できません|判断できない",
    ),
)
_REFUSING = tuple((words, re.compile(pattern)) for words, pattern in _REFUSALS)


def refuses(text: str) -> bool:
    """True where the text says anywhere that it cannot tell or that no option is right."""
    lower = text.lower()
    return any(pattern.search(lower) for words, pattern in _REFUSING if holds(lower, words))


# ------------------------------------------------------------------------------------------------------------ ordinals

_ORDINALS = {word: i for i, word in enumerate(("first", "second", "third", "fourth", "fifth", "sixth"))}
_ORDINAL = re.compile(r"(first|second|third|fourth|fifth|sixth|last) (?:option|choice|answer)\b", re.I)
_LONGEST_ORDINAL = 30
_NUMBER = re.compile(r"(\d)(?![\d.,]\d|\d)")
_NUMBERED = re.compile(r"\b(?:option|choice)\s(?:number\s)?#?$", re.I)


def ordinal(text: str, place: int, count: int) -> tuple[int, int] | None:
    """(index, end) of the option that "the second option" or "option 2" names at a place of a text."""
    index = -1
    if text[place : place + 1].isdigit():
        m = _NUMBER.match(text, place) if _NUMBERED.search(text, 0, place) is not None else None
        index = int(m[1]) - 1 if m is not None else -1
    else:
        m = _ORDINAL.match(text, place)
        if m is not None:
            index = count - 1 if m[1].lower() == "last" else _ORDINALS[m[1].lower()]
    return (index, m.end()) if m is not None and 0 <= index < count else None


def whole_ordinal(text: str, count: int) -> int | None:
    """Index of the option where a whole reply is "Option 2" or "The second option."."""
    if len(text) > _LONGEST_ORDINAL:
        return None
    filler = FILLER.match(text)
    found = ordinal(text, filler.end() if filler is not None else 0, count)
    return found[0] if found is not None and not text[found[1] :].strip(" .!") else None
