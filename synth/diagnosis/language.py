"""What replies look like as language: typography, words, and the phrases that declare, conclude, deny and refuse.

Tables, and the functions that clean a text and turn it into words. `answers.py` holds the rules that use them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# ---------------------------------------------------------------------------------------------------------- typography

_FINAL_CHANNEL = "<|channel|>final<|message|>"
_THOUGHT = r"[<◁](think(?:ing)?|thought|reasoning)[>▷]"
_THOUGHT_CLOSED = re.compile(_THOUGHT + r".*?[<◁]/\1[>▷]", re.S | re.I)
_THOUGHT_OPEN = re.compile(_THOUGHT + r"|<\|channel\|>analysis", re.I)
_THOUGHT_END = re.compile(r"[<◁]/(?:think(?:ing)?|thought|reasoning)[>▷]", re.I)
SPECIAL = re.compile(
    r"<\|[^|<>]{1,40}\|>|</?s>|<(?:pad|unk|bos|eos|image|end_of_utterance|start_of_turn|end_of_turn)>|\[/?INST\]", re.I
)
HARNESS_FAILED = re.compile(
    r"\W*failed\b.{0,20}\b(?:answer|api|query|prefetch|request)\b|\W*(?:api|http|request) error\b", re.I
)
_LATEX = re.compile(r"\\(?:text|textbf|mathrm|mathbf|textit)\s*\{([^{}]*)\}")
_DROPPED = str.maketrans({"*": None, "`": None, "“": None, "”": None, '"': None, "’": "'", "‘": "'", "\r": "\n"})


def without_thought(text: str) -> str | None:
    """The reply behind the thinking trace, or None where the trace never ends."""
    if _FINAL_CHANNEL in text:
        return text.rsplit(_FINAL_CHANNEL, 1)[1]
    if "<" not in text and "◁" not in text:
        return text
    if _THOUGHT_END.search(text):
        text = _THOUGHT_CLOSED.sub(" ", text)
        # A chat template may put the opening tag into the prompt, so the reply holds the closing one only.
        text = _THOUGHT_END.split(text)[-1]
    return None if _THOUGHT_OPEN.search(text) else text


def plain(text: str) -> str:
    """The text without typography that carries no meaning here: emphasis, quotes, full-width forms."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    if "\\" in text:
        text = _LATEX.sub(r"\1", text)
    return text.translate(_DROPPED)


def head(text: str, place: int) -> str:
    """A sentence's length of the text from a place on, in whole words: half a word may look like a letter."""
    found = text[place : place + 240]
    return found if len(text) <= place + 240 else found[: max(found.rfind(" "), found.rfind("\n"))]


# --------------------------------------------------------------------------------------------------------------- words

_WORD = re.compile(
    r"[(\[{【]\s*[A-Za-z]\s*[)\]}】]"  # a bracketed letter is one word
    r"|(?<![\w.])-?\d+(?:[.,:/]\d+)*"
    r"|[぀-ヿ㐀-鿿가-힯]"  # scripts that put no blanks between words
    r"|[^\W_]+(?:[-'][^\W_]+)*"  # a hyphen is a letter: clockwise is not counter-clockwise
    r"|[.!?;。！？\n]|,"
)
_LIST_NUMBER = re.compile(r"^\s*\d{1,2}[.)]\s", re.M)
BRACKETS = "([{【"
ENDS = frozenset(".!?;。！？\n")
"""Words that end a sentence."""
ARTICLES = _set("the a an")
TO_BE = _set("is are was were")
_NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen",
    "eighteen nineteen twenty",
)
_DIGITS = {word: str(value) for value, word in enumerate(" ".join(_NUMBERS).split())}
_DIGITS |= {"1st": "first", "2nd": "second", "3rd": "third", "4th": "fourth", "5th": "fifth"}
_ONE_IS_PRONOUN_AFTER = _set("the this that each every which no any another other first second third fourth last only")
_ONE_IS_PRONOUN_BEFORE = _set("of can could may might must would should side hand")


def words(text: str) -> list[str]:
    """Words of a plain text; single letters keep their case, all else is folded, number words become digits."""
    if "\n" in text:
        text = _LIST_NUMBER.sub("\n", text)
    found = [w if len(w) == 1 else w.casefold() for w in _WORD.findall(text)]
    if _DIGITS.keys().isdisjoint(found):
        return found
    for i, word in enumerate(found):
        if word in _DIGITS and not (word == "one" and _is_pronoun(found, i)):
            found[i] = _DIGITS[word]
    return found


def _is_pronoun(found: Sequence[str], i: int) -> bool:
    before = found[i - 1] if i else ""
    after = found[i + 1] if i + 1 < len(found) else ""
    return before in _ONE_IS_PRONOUN_AFTER or after in _ONE_IS_PRONOUN_BEFORE


PARTICLES = _set("yes no true false none")
AFTER_PARTICLE = _set("the it there this that they he she i in based because since as")
RIGHT_MEANS_CORRECT = _set("answer choice option one away now response")
LABEL_WORDS = _set("option choice answer letter 选项")
MARK_WORDS = _set("point box circle mark marker region picture label labeled labelled marked")
PREPOSITIONS = _set("near at to of than from on with by around for under above behind beside below in")
NEGATIONS = _set(
    "not cannot can't isn't doesn't don't didn't won't wouldn't aren't wasn't neither nor never without excluding "
    "eliminate eliminates unlikely less"
)
NEGATED_BEHIND = frozenset(
    [(verb, "not") for verb in _set("is does do did was would could can may might should")]
    + [("is", word) for word in _set("incorrect wrong unlikely less")]
)
COMPARED = _set("than unlike versus vs")
COMPARED_PAIRS = frozenset(
    {("compared", "to"), ("compared", "with"), ("relative", "to"), ("opposed", "to"), ("instead", "of")}
)
CONCLUDES = _set("therefore thus hence so consequently overall accordingly conclusion given considering")
CONCLUDING_PAIRS = frozenset(
    {("based", "on"), ("in", "conclusion"), ("in", "summary"), ("as", "a"), ("因", "此"), ("所", "以"), ("따", "라")}
)
JUDGES = _set(
    "more most closer closest nearer nearest darker darkest lighter lightest better best same similar corresponds "
    "correspond matches match fits larger largest smaller smallest taller tallest higher lower"
)

# ------------------------------------------------------------------------------------------------------------- letters

LETTER = re.compile(r"[(\[{【]\s*([A-Za-z])\s*[)\]}】]|([A-Z])(?![A-Za-z0-9À-ɏ'-])|([a-z])(?=\s*(?:[).:,;\]]|$))")
BARE = re.compile(r"[\W_]*(?:(?i:option|choice|answer|letter)\b[\W_]*)?([A-Za-z])[\W_]*")
REASONED = re.compile(r"[A-HJ-Z](?=\s*(?:,\s*)?(?:because|since)\b|\s*\n)")
"""A bare letter at the head of a reply, followed by its reason."""
LINE_LETTER = re.compile(r"^[ \t\-#>]*(?:\(([A-Za-z])\)|([A-Z])[.):](?=\s|$))", re.M)
DELIMITER = re.compile(r"\s*(?:[).:,;\]\n]|$|-\s|–|—)")
_AND = r"(?:and|or|und|oder|et|ou|y|o|e|和|或|及|または|또는|및)"
AND_ANOTHER = re.compile(
    rf"[\s,/&).]*(?:{_AND}\s+|[/&,]\s*|)(?:option |choice )?\(([A-Z])\)"
    rf"|\s*(?:(?:,\s*)?{_AND}\s+|[/&,]\s*)(?:option |choice )?([A-Z])(?![\w'-])"
)
NEXT_WORD = re.compile(r"\s+([a-z']+)")
AFTER_BARE_LETTER = _set("because since as based with for due and or which in on at by given if from while but so")
AFTER_SUBJECT = _set("is was are has had does looks appears seems would")

# -------------------------------------------------------------------------------------------------------- declarations

_NOUNS = (
    "answer|choice|option|selection|solution|conclusion|prediction|respuesta|opci[oó]n|r[ée]ponse|choix|antwort|lösung|"
    "resposta|opç[aã]o|risposta|opzione|antwoord|jawaban(?:nya)?|ответ|đáp án|odpowiedź|cevap|उत्तर|الإجابة|الجواب"
)
_COPULAS = (
    "is|are|was|would be|should be|will be|must be|would then be|es|ser[ií]a|est|serait|ist|lautet|wäre|é|è|adalah|"
    "это|là|jest|هي|هو|है"
)
_EAST = (
    "(?:答案|正确选项|正确答案|应选|故选|我选|选择?|答え|正解|解答|回答|選択肢|정답|답안?|답변)"
    "(?:应该|应当|应)?(?:是|为|選|は|が|은|는|이)?"
)
FORMAL = re.compile(
    r"<answer>(.*?)(?:</answer>|$)"
    r"|\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}"
    r"|[\"'](?:final_?|correct_?)?(?:answer|choice|option|letter|prediction)[\"']\s*:\s*[\"']?([^\"'},\n]*)",
    re.S | re.I,
)
_DECLARED = re.compile(
    rf"(?i:\b(?:{_NOUNS})\b)(?![ \t]*\(?[A-Z]\b)(?i:[^.\n:=()]{{0,70}}?(?:\s(?:{_COPULAS})\b|\s?[:=→—])|\s*\n)"
    rf"|(?i:{_EAST})\s*:?"
    r"|(?i:\b(?:i|we|i'd|i'll|let's)\s(?:(?:would|will|must|have to|therefore|thus|then|had to|'d|can)\s)*"
    r"(?:choose|select|pick|go with|go for|opt for|answer|say|conclude|lean towards?)\b)"
)
# Searching for the whole pattern at every character takes ten times as long as looking for these words first.
_STEMS = _set(
    "answer choice option selection solution conclusion prediction respuesta opci réponse reponse choix antwort lösung "
    "resposta opç risposta opzione antwoord jawaban ответ đáp odpowiedź cevap उत्तर الإجابة الجواب "
    "答 选 正 应 故 我 解 回 選 정 답 choose select pick go opt say conclude lean"
)
_SPEAKER = re.compile(r"\b(?:i|we|i'd|i'll|let's)\s", re.I)


def declarations(text: str) -> Iterator[re.Match[str]]:
    """Matches that end where what is declared begins, in order of their beginnings."""
    lower = text.lower()
    if not any(stem in lower for stem in _STEMS):
        return
    starts = {m.start() for m in _SPEAKER.finditer(text)}
    for stem in _STEMS:
        place = lower.find(stem)
        while place >= 0:
            starts.add(place)
            place = lower.find(stem, place + 1)
    end = 0
    for start in sorted(starts):
        m = _DECLARED.match(text, start) if start >= end else None
        if m is not None:
            end = m.end()
            yield m


OWN_LINE = re.compile(r":\s*\n[ \t\-#>]*\(([A-Za-z])\)[^\n]*")
CROWNED = re.compile(
    r"(?:\(([A-Z])\)|(?<![\w'-])([A-Z]))(?:\s[^.\n()]{0,25}?|\s\([^()\n]{0,25}\))?\s"
    r"(?:is|would be|seems to be|appears to be)\s"
    r"(?:(?:therefore|thus|likely|probably|indeed|clearly|the|most|only|best|more)\s){0,4}"
    r"(?:(?:correct|right|best|appropriate|suitable|likely)\s(?:answer|choice|option|match|one|fit)\b"
    r"|correct(?=\s*(?:[.,;\n]|$))|the answer\b)"
)
""""(B) is the correct answer"."""
FILLER = re.compile(
    r"(?:[\s:;,>#_\-–—=]|(?i:\b(?:that|the|most|likely|probably|clearly|definitely|therefore|thus|simply|indeed|with|is|"
    r"be|option|choice|answer|letter|number|opci[oó]n|la|el|die|der|das|l'option|choix|选项|番|only)\b)(?=[\s:(]))*"
)
SECOND_COPULA = re.compile(r"[^.\n(]{0,60}?(?:\sis|:)(?=[\s(])")
UNDECIDED = re.compile(
    r"\b(?:could|might|may|neither|nor|not|either|or)\b[^.\n]{0,20}$"
    r"|\b(?:if(?! (?:i|we|you|one|forced|pressed)\b)|whether|unless|suppose|assuming)\b[^.\n]{0,100}$",
    re.I,
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
REFUSAL = re.compile(
    rf"\bi(?: {_CANNOT}|'m unable to) (?:\w+ )?(?:assist|help|provide|determine|answer|identify|comply|see|view|confirm"
    r"|tell|say|make|give|offer|select|choose|conclude|judge|accurately|definitively|conclusively|confidently)"
    r"|\bas an ai\b|\bunable to (?:\w+ )?(?:determine|assist|provide|answer|identify|view|see|process)"
    r"|\b(?:not possible|impossible|difficult|challenging|cannot be|can't be|not feasible)\b[^.\n]{0,30}"
    r"(?:determin|tell|say|answer|identif|discern)"
    r"|\b(?:not (?:provide )?(?:enough|sufficient)|insufficient|lacks? (?:the |enough )?)\s*"
    r"(?:information|detail|context|data)"
    r"|\b(?:none|neither) of (?:the|these|them)\b|\bno (?:correct|right|valid) (?:answer|option|choice)"
    r"|无法|不能(?:确定|判断|回答)|以上都不|알 수 없|할 수 없|わかりません|できません|判断できない"
    r"|\bno puedo\b|\bje ne peux pas\b|\bich kann (?:das |es )?nicht\b|\bnão posso\b|\bnon posso\b|\bне могу\b",
    re.I,
)
