"""The text of a QA must be a question with one right option, and none of a benchmark's own words."""

from __future__ import annotations

import re

from synth.contracts import Check, Task
from synth.types import LETTERS, QA, Scene, Verdict

BENCHMARK_WORDING = re.compile(
    r"which point is closer to the camera\?$"
    r"|^how many [\w -]+ are there\?$"
    r"|which point on the second image corresponds to the point in the first image"
    r"|which point is corresponding to the reference point"
    r"|which point has darker surface color"
    r"|which bounding box more accurately localizes"
    r"|which marked point is nearer to the camera\?$"
    r"|which mark is further to the left in the image\?$"
    r"|which of these images shares the same style"
    r"|which one of the second image or the third image is the missing part"
    r"|is the camera moving clockwise or counter-clockwise",
    re.IGNORECASE,
)
"""Questions in the very words of BLINK (Fu et al. 2024) or of the built-in rooms benchmark: a model tuned on them would
learn the benchmark's format, and its gain there would not be perception."""

BENCHMARK_ID = re.compile(
    r"\b(val|test|dev)_[A-Za-z][A-Za-z-]*(_[A-Za-z-]+)*_\d+\b"
    r"|\brooms_[a-z_]+_\d{4}\b"
    r"|canary|benchmark data should never appear"
    r"|\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b",
    re.IGNORECASE,
)
"""An item's name in a benchmark, or the canary text that benchmarks carry."""

_FREE_LENGTH = 400


def judge(qa: QA, scene: Scene, task: Task) -> Verdict:
    """Keeps a QA whose texts are whole."""
    for fault, detail in _faults(qa, task):
        return Verdict(keep=False, reason=fault, detail=detail)
    return Verdict(keep=True)


def _faults(qa: QA, task: Task) -> list[tuple[str, str]]:
    texts = (qa.question, *qa.choices)
    plain = [" ".join(choice.lower().split()) for choice in qa.choices]
    letters = LETTERS[: len(qa.choices)]
    rules = (
        ("skill", qa.skill not in task.skills or qa.task != task.name, f"{qa.task}/{qa.skill}"),
        ("choices", len(plain) < 2 or len(set(plain)) < len(plain) or not all(plain), str(qa.choices)),
        ("answer", len(qa.answer) != 1 or qa.answer not in letters, f"{qa.answer!r} of {letters}"),
        ("question", not qa.question.endswith("?") or len(qa.question) > _FREE_LENGTH, qa.question),
        ("blanks", any(text != " ".join(text.split()) for text in texts), repr(texts)),
        ("slot", any(mark in text for text in texts for mark in "{}") or "None" in qa.question.split(), repr(texts)),
        ("first_word", not qa.question[:1].isupper() and not qa.question[:1].isdigit(), qa.question),
        ("benchmark_id", any(BENCHMARK_ID.search(text) for text in texts), repr(texts)),
        ("benchmark_wording", bool(BENCHMARK_WORDING.search(qa.question)), qa.question),
        ("difficulty", not 0 <= qa.difficulty <= 1, str(qa.difficulty)),
        ("panels", not 1 <= len(qa.panels) <= 8, str(len(qa.panels))),
    )
    return [(reason, detail) for reason, broken, detail in rules if broken]


CHECK = Check(name="wellformed", version=1, judge=judge)
