"""Can it be answered without the picture? A blind solver on the words of the questions, in cross-validation.

The solver is a naive Bayes over what stands in the text: letter, wording of the option, place of a number among the
options, question together with option. Whatever it gets above chance, a model can learn without looking (test-set
stress-testing of arXiv 2511.04655, here on training pairs).
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence

from synth.types import LETTERS, QA

FOLDS = 5
MIN_PAIRS = 40
"""With fewer pairs a cross-validated accuracy says nothing."""


def blind_accuracy(pairs: Sequence[QA]) -> float | None:
    """Share of the pairs that the blind solver gets right, folds split by image; None for fewer than MIN_PAIRS."""
    if len(pairs) < MIN_PAIRS:
        return None
    folds = [_fold(qa.image_id) for qa in pairs]
    right = 0
    for fold in range(FOLDS):
        model = _Solver([qa for qa, f in zip(pairs, folds, strict=True) if f != fold])
        right += sum(model.answer(qa) == qa.answer for qa, f in zip(pairs, folds, strict=True) if f == fold)
    return round(right / len(pairs), 4)


class _Solver:
    """Counts how often each feature goes with a right and with a wrong option."""

    def __init__(self, pairs: Sequence[QA]) -> None:
        self._right: Counter[str] = Counter()
        self._wrong: Counter[str] = Counter()
        for qa in pairs:
            for i in range(len(qa.choices)):
                side = self._right if LETTERS[i] == qa.answer else self._wrong
                side.update(_features(qa, i))

    def answer(self, qa: QA) -> str:
        """The letter with the largest sum of log odds; the first of equals."""
        scores = [sum(self._odds(name) for name in _features(qa, i)) for i in range(len(qa.choices))]
        return LETTERS[scores.index(max(scores))]

    def _odds(self, name: str) -> float:
        return math.log((self._right[name] + 1) / (self._wrong[name] + 1))


def _features(qa: QA, i: int) -> list[str]:
    option = qa.provenance.options[i] if i < len(qa.provenance.options) else qa.choices[i]
    found = [f"letter {i}", f"option {option}", f"question {qa.question} option {option}"]
    numbers = sorted(int(text) for text in qa.provenance.options if text.isdigit())
    if option.isdigit() and len(numbers) == len(qa.choices):
        found += [f"rank {numbers.index(int(option))}", f"among {numbers} {option}"]
    return found


def _fold(image_id: str) -> int:
    return hashlib.blake2b(image_id.encode(), digest_size=4).digest()[0] % FOLDS
