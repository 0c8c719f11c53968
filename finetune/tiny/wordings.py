"""The words of the built-in VLM: what pretraining asks, and what its tokenizer must know besides.

`PERCEPTION` is read by the tokenizer's corpus alone. No question of it is asked in pretraining: a model that has been
asked which point is closer could not stand for one that sees and does not perceive.
"""

from __future__ import annotations

from collections.abc import Iterator

from synth.rooms.compose import STRUCTURE
from synth.rooms.objects import COLOURS as PAINTS
from synth.rooms.objects import KINDS

NAMES: tuple[str, ...] = (*STRUCTURE, *KINDS)
"""Everything that a mark can lie on."""
OBJECTS: tuple[str, ...] = tuple(KINDS)
COLOURS: tuple[str, ...] = tuple(PAINTS)
MARKS: tuple[str, ...] = ("A", "B", "C", "D", "REF")

# Semantic questions, by synth.types.Skill. {} is a mark's letter, a name, a colour, or "a red chair".
OBJECT_AT_MARK = (
    "What is at mark {}?",
    "Which object is marked {}?",
    "What does point {} lie on?",
    "Name the object at mark {}.",
    "What is at the point marked {}?",
)
COLOUR_AT_MARK = (
    "What colour is the object at mark {}?",
    "Which colour does the object at point {} have?",
    "Name the colour of the object at mark {}.",
    "What is the colour of the object marked {}?",
)
MARK_ON_NAME = (
    "Which mark is on the {}?",
    "Which of the marks lies on the {}?",
    "Which point is on the {}?",
    "Name the mark on the {}.",
)
MARK_ON_COLOUR = (
    "Which mark is on a {} object?",
    "Which of the marks lies on a {} object?",
    "Which point is on a {} object?",
    "Name the mark on the {} object.",
)
OBJECT_COLOUR = (
    "What colour is the {}?",
    "Which colour does the {} have?",
    "Name the colour of the {}.",
    "What is the colour of the {}?",
)
EXISTENCE = (
    "Is there {} in the image?",
    "Can you see {}?",
    "Does the image show {}?",
    "Is {} visible in the picture?",
)
MARK_OPTIONS = ("mark {}", "point {}", "{}")
INSTRUCTIONS = (
    "Answer with the option letter.",
    "Answer with the option's letter from the given choices directly.",
    "Answer with the letter of the right option only.",
    "Select from the following choices.",
    "Answer:",
)

PERCEPTION = (
    "Which point is closer to the camera?\n(A) A is closer\n(B) B is closer",
    "Which of the two marked points is nearer to the camera?\n(A) point A\n(B) point B",
    "Points A and B are marked. Which one is closest to the viewer?\n(A) A\n(B) B",
    "Two points are circled on the image, labeled by A and B beside each circle. Which point is closer to the camera?",
    "Which mark lies at the smaller distance from the camera?\n(A) mark A is nearer\n(B) mark B is nearer",
    "The photo shows two marks. Which is in front of the other, seen from the camera?\n(A) A is in "
    "front\n(B) B is in front",
    "Which point is farther away, further from the camera, farthest or deepest? The one behind, at the "
    "larger distance.",
    "Which mark is further to the left in the image?\n(A) A is further left\n(B) mark B is further to the left",
    "Which of the two marked points lies more to the right in the picture? the leftmost, rightmost, left of, right of",
    "Which of the two marks is on the left side of the photo, and which on the right side?",
    "Is point A to the left or to the right of point B?\n(A) left\n(B) right",
    "Which mark is higher up, lower down, above, below, over, under, at the top, at the bottom, between, "
    "next to, beside?",
    "How many {plural} are there?\n(A) 0\n(B) 1\n(C) 2\n(D) 3",
    "Count the {plural}: how many are visible in the picture?\n(A) 4\n(B) 5\n(C) 6\n(D) 7 8 9 10 none zero",
    "How many {plural} can you see in the image? How many {plural} does the photo show? What is the "
    "number of {plural}?",
    "A point is marked REF in the first image. Which point of the second image shows the same "
    "place?\n(A) A\n(B) B\n(C) C\n(D) D",
    "Which point in the second image corresponds to the reference point marked REF in the first "
    "image?\n(A) point A\n(B) Point B",
    "The two images show the same scene from different views. Which of the marks A, B, C and D is at the "
    "same spot as REF?",
    "A point is circled on the first image, labeled with REF. Which point on the second image matches, "
    "is the corresponding point?",
)
EXTRA = (
    "User: Assistant: System: . , ! ? : ; yes no Yes No it is an A B C D E F mark marks marked point "
    "points region box boxes",
    "red box green box or bigger smaller taller larger inside outside near far up down facing direction "
    "distance metres depth",
    "object objects room scene view views viewer camera position photo picture image images first second "
    "both different there",
    "Select the following options from the choices given. The answer is the letter of the right option. "
    "Which option is correct?",
)


def plural(name: str) -> str:
    """English plural of an object's name."""
    return name + "es" if name.endswith(("x", "s", "ch")) else name + "s"


def phrase(colour: str, name: str) -> str:
    """ "a red chair", "an orange ball", or "a chair" where colour is ""."""
    words = f"{colour} {name}".strip()
    return f"an {words}" if words[0] in "aeiou" else f"a {words}"


def corpus() -> Iterator[str]:
    """Text that the tokenizer is trained on: every wording with every word that can fill it, and the EXTRA words."""
    options = "\n".join(f"({letter}) {form.format(letter)}" for letter in MARKS for form in MARK_OPTIONS)
    for name in NAMES:
        for template in MARK_ON_NAME + OBJECT_COLOUR:
            yield f"{template.format(name)}\n{options}"
        for template in PERCEPTION:
            yield template.format(plural=plural(name))
        for colour in COLOURS:
            for template in EXISTENCE:
                yield f"{template.format(phrase(colour, name))}\n(A) yes\n(B) no\n(C) {name}\n(D) {colour}"
    for colour in COLOURS:
        for template in MARK_ON_COLOUR:
            yield f"{template.format(colour)}\n{options}"
    for mark in MARKS:
        for template in OBJECT_AT_MARK + COLOUR_AT_MARK:
            yield template.format(mark)
    yield from (*INSTRUCTIONS, *EXTRA) * 40
