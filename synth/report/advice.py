"""What the words of a diagnosis mean for someone without training in statistics, and what to do about each."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Advice:
    """A flag in plain words."""

    meaning: str
    todo: str


FLAGS: dict[str, Advice] = {
    "old_key": Advice(
        meaning="These answers were scored with a key that the benchmark's authors have since replaced.",
        todo="Do not use this score. Score the replies again with the present key.",
    ),
    "suspect_labels": Advice(
        meaning="On some questions several models agree on another answer than the key: the key may be wrong there.",
        todo="Look at these questions. Until the key is checked, do not count them for or against a model.",
    ),
    "below_chance": Advice(
        meaning="Of the answered questions fewer are right than guessing would give; blindness alone does not do that.",
        todo="Look at a few replies before anything else: a wrong answer key, swapped options or a reply that was "
        "misread are likelier than a model that knows the answer and says the opposite.",
    ),
    "unscored": Advice(
        meaning="Nothing could be scored since the right answers are not published.",
        todo="Submit the replies to the benchmark's own server; no number here counts them.",
    ),
    "image_count": Advice(
        meaning="The model was sent another number of pictures than the question has.",
        todo="Do not use this score. Check how the harness passes several pictures, then run the benchmark again.",
    ),
    "collapsed": Advice(
        meaning="The model gives nearly always the same letter, whatever the picture shows. Its score is the share of "
        "questions for which that letter happens to be right.",
        todo="Read the balanced accuracy instead. Training pairs for this skill must have evenly spread letters.",
    ),
    "one_letter": Advice(
        meaning="The model prefers one letter clearly more often than the key does.",
        todo="Read the balanced accuracy beside the score; keep the letters of the training pairs evenly spread.",
    ),
    "gold_skew": Advice(
        meaning="One letter is right so often that always giving it would beat guessing.",
        todo="Read the balanced accuracy: the score says little about sight.",
    ),
    "refuses": Advice(
        meaning="The model declined to answer many questions. A refusal counts as wrong, and says nothing about sight.",
        todo="Read the accuracy over the answered questions; change the prompt rather than train on pictures.",
    ),
    "unparsed": Advice(
        meaning="Many replies hold no letter that can be read with certainty.",
        todo="Ask the model for the letter alone or allow longer replies, then run the benchmark again.",
    ),
    "truncated": Advice(
        meaning="Many replies end before they give an answer.",
        todo="Raise the limit on the length of a reply and run the benchmark again.",
    ),
    "conflict": Advice(
        meaning="Many replies name one option by its letter and another by its words. They are counted as wrong; the "
        "score is also given with either reading.",
        todo="Ask for the letter alone, and see whether the options repeat letters or numbers of the question.",
    ),
    "harness_differs": Advice(
        meaning="The program that ran the benchmark counted these replies differently.",
        todo="Compare a few of the replies by eye. Published scores depend on how replies are read.",
    ),
    "at_chance": Advice(
        meaning="The score cannot be told from guessing: the interval contains chance.",
        todo="Treat the skill as missing. It is a good target for generated training data.",
    ),
    "few_items": Advice(
        meaning="There are so few questions that the interval is wide.",
        todo="Do not read a change of a few points as progress; add questions before judging.",
    ),
}
"""Sentences by flag, the gravest first; a flag may carry more after a colon, which is printed as it is."""

_UNKNOWN = Advice(meaning="", todo="Look at the replies of this category before relying on its score.")

ERRORS: dict[str, str] = {
    "perception": "A clear answer, and wrong: nothing but sight or reasoning explains it.",
    "letter_bias": "The wrong answer is the letter that the model gives nearly always; it may not have looked at all.",
    "suspect_label": "Several models agree on another answer than the key: the key may be wrong.",
    "truncated": "The reply was cut off before it gave an answer.",
    "unparsed": "The reply holds no answer that can be read with certainty.",
    "refusal": "The model declined to answer.",
}
"""Kinds of wrong answers, what sight may explain first."""

SEEN = ("perception", "letter_bias")
"""Errors in which the model answered and the key is not in doubt."""

QUADRANTS: dict[str, str] = {
    "trainable": "the picture holds the answer and the model misses it",
    "ambiguous": "both are wrong, so nothing is known; these never feed the training plan",
    "shortcut": "the model is right where the specialist is wrong: luck, a shortcut, or more than the specialist knows",
    "solved": "both are right",
}
"""What each quadrant of the comparison with a specialist says."""


def advice_for(flag: str) -> Advice:
    """The sentences for a flag; a flag that this page does not know is named and answered with a general one."""
    return FLAGS.get(code(flag), _UNKNOWN)


def gravity(flag: str) -> tuple[int, str]:
    """Sort key: the gravest flag first, unknown ones last."""
    known = list(FLAGS)
    return (known.index(code(flag)) if code(flag) in FLAGS else len(known), flag)


def code(name: str) -> str:
    """A flag or name as a code: what stands before a colon, in lower case and joined by underscores."""
    return re.sub(r"[^a-z]+", "_", name.split(":", 1)[0].strip().lower()).strip("_")
