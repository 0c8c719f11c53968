"""What replies look like as language: typography and words, and the words that deny, compare, judge and conclude.

Tables, and the functions that clean a text and turn it into words. `phrases.py` holds whole phrases, `options.py` and
`answers.py` the rules that use them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence


def word_set(words: str) -> frozenset[str]:
    """The words of a line."""
    return frozenset(words.split())


def holds(text: str, parts: Sequence[str]) -> bool:
    """True where a text holds one of the parts."""
    # Half the time of any() with a generator, and this runs several times a reply.
    for part in parts:  # noqa: SIM110
        if part in text:
            return True
    return False


# ---------------------------------------------------------------------------------------------------------- typography

_FINAL_CHANNEL = "<|channel|>final<|message|>"
_THINKS = r"(?:seed:|longcat_)?(?:think(?:ing)?|thoughts?|reasoning|analysis|scratchpad|reflection)"
_OPEN, _CLOSED = rf"[<◁]({_THINKS})[>▷]", rf"[<◁]/{_THINKS}[>▷]"
# Mistral, Cohere and Gemma name the two ends otherwise.
_TOKENS = {
    "[THINK]": "<think>",
    "[/THINK]": "</think>",
    "<|START_THINKING|>": "<think>",
    "<|END_THINKING|>": "</think>",
    "<unused94>thought": "<think>",
    "<unused95>": "</think>",
    "<|channel>thought": "<think>",
    "<channel|>": "</think>",
}
_THOUGHT_CLOSED = re.compile(_OPEN + r".*?[<◁]/\1[>▷]", re.S | re.I)
_THOUGHT_OPEN = re.compile(_OPEN + r"|<\|channel\|>analysis", re.I)
_THOUGHT_END = re.compile(_CLOSED, re.I)
_THOUGHT_TAG = re.compile(rf"[<◁](?:/?{_THINKS}[>▷]|\|(?:channel|START_THI)|unused9|channel\|)|\[/?THINK\]", re.I)
_SPECIAL = re.compile(
    r"<\|[^|<>]{1,40}\|>|</?s>|<(?:pad|unk|bos|eos|image|end_of_utterance|start_of_turn|end_of_turn)>|\[/?INST\]", re.I
)
HARNESS_FAILED = re.compile(
    r"\W*failed\b.{0,20}\b(?:answer|api|query|prefetch|request)\b|\W*(?:api|http|request) error\b", re.I
)
_LATEX = re.compile(r"\\(?:text(?:bf|rm|sf|tt|it)?|math(?:rm|bf|sf|it|tt|bb|cal)|operatorname|bold|bm)\s*\{([^{}]*)\}")
_LATEX_FENCE = re.compile(r"\\[()\[\]]")
_UNDERSCORES = re.compile(r"(?<![^\W_])_{1,3}(?=[^\W_])|(?<=[^\W_])_{1,3}(?![^\W_])")
_HTML = re.compile(r"</?(?:b|i|u|em|p|strong|span|mark|big|br)\s*/?>", re.I)
# Unicode composes circled letters in circles only; the filled and the squared ones are signs of their own.
_SIGNS = {base + i: chr(ord("A") + i) for base in (0x1F150, 0x1F170) for i in range(26)}
_DROPPED = str.maketrans(dict.fromkeys('*`$“”"') | {"’": "'", "‘": "'", "\r": "\n"})
_DROPPED_ASCII = tuple('*`$"\r')


def without_thought(text: str) -> str | None:
    """The reply behind the thinking trace, or None where the trace never ends."""
    if _FINAL_CHANNEL in text:
        return text.rsplit(_FINAL_CHANNEL, 1)[1]
    if ("<" not in text and "[" not in text and "◁" not in text) or _THOUGHT_TAG.search(text) is None:
        return text
    for token, tag in _TOKENS.items():
        text = text.replace(token, tag)
    if _THOUGHT_END.search(text):
        text = _THOUGHT_CLOSED.sub(" ", text)
        # A chat template may put the opening tag into the prompt, so the reply holds the closing one only.
        text = _THOUGHT_END.split(text)[-1]
    return None if _THOUGHT_OPEN.search(text) else text


def without_special(text: str) -> str:
    """The text without a tokenizer's special tokens."""
    return _SPECIAL.sub(" ", text) if "<" in text or "[" in text else text


def plain(text: str) -> str:
    """The text without typography that carries no meaning here: emphasis, quotes, full-width forms."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text.translate(_SIGNS))
    if "\\" in text:
        text = _LATEX_FENCE.sub(" ", _LATEX.sub(r"\1", _LATEX.sub(r"\1", text)))
    if "_" in text:
        text = _UNDERSCORES.sub("", text)
    if "<" in text:
        text = _HTML.sub(" ", text)
    return text.translate(_DROPPED) if not text.isascii() or holds(text, _DROPPED_ASCII) else text


def head(text: str, place: int, length: int = 240) -> str:
    """So many characters of the text from a place on, in whole words: half a word may look like a letter."""
    found = text[place : place + length]
    return found if len(text) <= place + length else found[: max(found.rfind(" "), found.rfind("\n"))]


# --------------------------------------------------------------------------------------------------------------- words

# The commonest kinds come first. A hyphen is a letter: clockwise is not counter-clockwise.
_ASCII_WORD = re.compile(
    r"[A-Za-z][A-Za-z0-9]*(?:[-'][A-Za-z0-9]+)*"
    r"|[.!?;\n,]"
    r"|[(\[{]\s*[A-Za-z]\s*[)\]}]"  # a bracketed letter is one word
    r"|(?<![\w.])-?\d+(?:[.,:/]\d+)*"
    r"|[A-Za-z0-9]+(?:[-'][A-Za-z0-9]+)*"
)
_WORD = re.compile(
    r"[A-Za-z][^\W_]*(?:[-'][^\W_]+)*"
    r"|[.!?;。！？\n,]"
    r"|[(\[{【]\s*[A-Za-z]\s*[)\]}】]"
    r"|(?<![\w.])-?\d+(?:[.,:/]\d+)*"
    r"|[぀-ヿ㐀-鿿가-힯]"  # scripts that put no blanks between words
    r"|[^\W_]+(?:[-'][^\W_]+)*"
)
_LIST_NUMBER = re.compile(r"\n\s*\d{1,2}[.)]\s")
_FIRST_NUMBER = re.compile(r"\s*\d{1,2}[.)]\s")
BRACKETS = "([{【"
ENDS = frozenset(".!?;。！？\n")
"""Words that end a sentence."""
ARTICLES = word_set("the a an")
TO_BE = word_set("is are was were")
_NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen",
    "eighteen nineteen twenty",
)
_DIGITS = {word: str(value) for value, word in enumerate(" ".join(_NUMBERS).split())}
_DIGITS |= {"1st": "first", "2nd": "second", "3rd": "third", "4th": "fourth", "5th": "fifth"}
_ONE_IS_PRONOUN_AFTER = word_set(
    "the this that each every which no any another other first second third fourth last only"
)
_ONE_IS_PRONOUN_BEFORE = word_set("of can could may might must would should side hand")


def words(text: str) -> list[str]:
    """Words of a plain text; single letters keep their case, all else is folded, number words become digits."""
    if "\n" in text:
        text = _LIST_NUMBER.sub("\n", text)
        first = _FIRST_NUMBER.match(text)
        text = text[first.end() :] if first is not None else text
    found: list[str] = (_ASCII_WORD if text.isascii() else _WORD).findall(text)
    found = [w if w.islower() or len(w) == 1 else w.casefold() for w in found]
    if _DIGITS.keys().isdisjoint(found):
        return found
    for i, word in enumerate(found):
        if word in _DIGITS and not (word == "one" and _is_pronoun(found, i)):
            found[i] = _DIGITS[word]
    return found


def spelled(found: Iterable[str]) -> frozenset[str]:
    """The words, and the number words that `words` turns into one of them."""
    known = frozenset(found)
    return known | {word for word, digits in _DIGITS.items() if digits in known}


def _is_pronoun(found: Sequence[str], i: int) -> bool:
    before = found[i - 1] if i else ""
    after = found[i + 1] if i + 1 < len(found) else ""
    return before in _ONE_IS_PRONOUN_AFTER or after in _ONE_IS_PRONOUN_BEFORE


PARTICLES = word_set("yes no true false none oui non sí si ja nein sim não да нет 是 否 对 不")
AFTER_PARTICLE = word_set("the it there this that they he she i in based because since as 的")
RIGHT_MEANS_CORRECT = word_set("answer choice option one away now response")
LABEL_WORDS = word_set("option choice answer letter 选项")
MARK_WORDS = word_set("point box circle mark marker region picture label labeled labelled marked")
PREPOSITIONS = word_set("near at to of than from on with by around for under above behind beside below in")
NEGATIONS = word_set(
    "not cannot can't isn't doesn't don't didn't won't wouldn't aren't wasn't neither nor never without excluding "
    "eliminate eliminates unlikely less"
)
LABELLED = word_set("labeled labelled marked")
NEGATED_BEHIND = frozenset(
    [(verb, "not") for verb in word_set("is does do did was would could can may might should")]
    + [("is", word) for word in word_set("incorrect wrong unlikely less")]
)
COMPARED = word_set("than unlike versus vs")
COMPARED_PAIRS = frozenset(
    {("compared", "to"), ("compared", "with"), ("relative", "to"), ("opposed", "to"), ("instead", "of")}
)
CONCLUDES = word_set("therefore thus hence so consequently overall accordingly conclusion given considering")
CONCLUDING_PAIRS = frozenset(
    {("based", "on"), ("in", "conclusion"), ("in", "summary"), ("as", "a"), ("因", "此"), ("所", "以"), ("따", "라")}
    | {("in", "short"), ("to", "conclude"), ("all", "in"), ("taken", "together")}
)
THIS_SHOWS = word_set("indicates suggests means shows implies confirms")
"""What a last sentence says of the evidence: "this indicates that …"."""
EVIDENT = frozenset(
    [
        ("this", "is"),
        ("this", "can"),
        ("you", "can"),
        ("we", "can"),
        ("one", "can"),
        ("it", "is"),
        ("this", "conclusion"),
    ]
)
EVIDENCE = word_set("evident clear apparent because determined seen inferred observed concluded deduced tell indicated")
"""A sentence that begins "this is evident from …" gives the reason of the one before it."""
SUBORDINATORS = word_set("because since whereas while although though but however which who whose so")
COPULAS = word_set("is are was be")
DEFINITE = word_set(
    "corresponding corresponds correspond matching matches match correct right appropriate suitable likely fits"
)
"""Beside `JUDGES`: what makes the subject of "the … is B" the thing that was asked for."""
JUDGES = word_set(
    "more most closer closest nearer nearest darker darkest lighter lightest better best same similar corresponds "
    "correspond matches match fits larger largest smaller smallest taller tallest higher lower"
)
SUPERLATIVES = word_set(
    "most best closest nearest darkest lightest brightest largest smallest tallest highest corresponds matches fits"
)
JUDGED_BY = word_set("is seems appears looks would best most more closely corresponds matches fits")
"""What may follow an option that is judged."""
DOUBTS = word_set("could may might whether unless neither nor either")
FORCES = word_set("must had have were was am are need to")
BEFORE_PREDICATE = word_set(
    "the a an option point likely probably therefore thus indeed one be labeled labelled marked with as"
)
AFTER_LONE_LETTER = word_set(", because since as in on at which and for")
SHOWING = word_set("indicating suggesting showing confirming meaning implying")
ORDINALS = word_set("first second third fourth fifth sixth last")
