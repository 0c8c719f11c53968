"""Reading replies: every case that evaluation tools got wrong in public threads, then the replies of eight models."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from synth.benchmarks.blink import CHOICES, TASKS
from synth.diagnosis.answers import REASONS, read_answer

DEPTH = ("A is closer", "B is closer")
YES_NO = ("yes", "no")
IMAGES = ("the second image", "the third image")
TURN = ("clockwise", "counter-clockwise")
BUTTONS = ("3", "4", "5", "6")


@pytest.mark.parametrize(
    ("text", "choices", "letter"),
    [
        # Threads in which a tool took the wrong letter (first letter, substring, earlier declaration, BOS token …).
        ("The correct answer is (B).", DEPTH, "B"),
        ("The correct answer is **B**. Here's why: A is behind the wall, B is in front of it.", DEPTH, "B"),
        ("Yes, the stone bears a death notice.", YES_NO, "A"),
        ("ANSWER: A … actually, ANSWER: B", DEPTH, "B"),
        ("<s> (B) B is closer", DEPTH, "B"),
        ("Point B", ("Point B", "Point A"), "A"),
        # Forms of an answer.
        ("b)", DEPTH, "B"),
        ("**B**", DEPTH, "B"),
        ("Ｂ", DEPTH, "B"),
        ("（Ｂ）", DEPTH, "B"),
        ("B.", DEPTH, "B"),
        ("(b)", DEPTH, "B"),
        ("option b", DEPTH, "B"),
        ("B, because A is far", DEPTH, "B"),
        ("B. B is closer", DEPTH, "B"),
        ("<answer>B</answer>", DEPTH, "B"),
        ("<answer>The answer is (B)</answer>", DEPTH, "B"),
        ("\\boxed{B}", DEPTH, "B"),
        ("\\boxed{\\text{(B) no}}", YES_NO, "B"),
        ('```json\n{"answer": "B", "why": "it is lower"}\n```', DEPTH, "B"),
        ("Answer:\n\nB", DEPTH, "B"),
        ("# Answer\nB", DEPTH, "B"),
        ("I would choose option B, not A.", DEPTH, "B"),
        ("(B) is correct.", DEPTH, "B"),
        ("So the point is:\n\n(B) B is closer\n\nIt lies lower, below (A).", DEPTH, "B"),
        # Other languages.
        ("正确答案是B", DEPTH, "B"),
        ("答案:B", DEPTH, "B"),
        ("답은 B입니다", DEPTH, "B"),
        ("答えはBです。", DEPTH, "B"),
        ("La respuesta correcta es la opción B.", DEPTH, "B"),
        ("La réponse est (B).", DEPTH, "B"),
        ("Die Antwort lautet B.", DEPTH, "B"),
        ("Ответ: B", DEPTH, "B"),
        # By the option's text.
        ("There are three buttons.", BUTTONS, "A"),
        ("Final Answer: \\boxed{4}", BUTTONS, "B"),
        ("The camera moves counter-clockwise.", TURN, "B"),
        ("clockwise", TURN, "A"),
        ("dark red", ("red", "dark red"), "B"),
        ("20", ("2", "20", "200", "0"), "B"),
        ("The answer is A dog", ("A cat", "A dog"), "B"),
        ("The right answer is left.", ("left", "right"), "A"),
        ("No, there is no cat.", YES_NO, "B"),
        ("Point A, which is on the car, seems to be closer than point B.", DEPTH, "A"),
        ("Box B fits more closely. Box A, on the other hand, is too large.", ("Box A", "Box B"), "B"),
        # Denials and thoughts are not answers.
        ("It cannot be (A), so the answer is (B)", DEPTH, "B"),
        ("<think>A? No, B.</think>\nB", DEPTH, "B"),
        ("first A, then … </think> The answer is B", DEPTH, "B"),
        ("<|channel|>analysis<|message|>A?<|end|><|channel|>final<|message|>B", DEPTH, "B"),
        ("Sorry, but the answer is B.", DEPTH, "B"),
    ],
)
def test_letter(text: str, choices: tuple[str, ...], letter: str) -> None:
    reading = read_answer(text, len(choices), choices)
    assert (reading.letter, reading.reason) == (letter, None)


@pytest.mark.parametrize(
    ("text", "choices", "reason"),
    [
        ("<think>Option (A) looks near, but", DEPTH, "truncated"),
        ("", DEPTH, "empty"),
        (None, DEPTH, "empty"),
        (" </s> ", DEPTH, "empty"),
        ("<think>hm</think>", DEPTH, "empty"),
        ("I'm sorry, I can't assist with that.", DEPTH, "refusal"),
        ("It is not possible to determine which of the second or third image fits.", IMAGES, "refusal"),
        ("None of the options are right.", DEPTH, "refusal"),
        ("抱歉，我无法回答这个问题。", DEPTH, "refusal"),
        ("Failed to obtain answer via API.", DEPTH, "error"),
        ("C", DEPTH, "out_of_range"),
        ("The answer is C.", DEPTH, "out_of_range"),
        ("(A) B is closer", DEPTH, "conflict"),
        ("The answer is (A) no.", YES_NO, "conflict"),
        ("The second image (B) fits.", IMAGES, "conflict"),
        ("The second image (B) fits best. So the answer is (A) the second image.", IMAGES, "conflict"),
        ("A", ("B", "A"), "conflict"),
        ("12", ("2", "3", "4", "5"), "ambiguous"),
        ("ANSWER: AB", DEPTH, "ambiguous"),
        ("answer: A or B", DEPTH, "ambiguous"),
        ("The answer could be A or B.", DEPTH, "ambiguous"),
        ("(A) or (B)", DEPTH, "ambiguous"),
        ("unknown", YES_NO, "ambiguous"),
        ("cannot", YES_NO, "ambiguous"),
        ("Nothing", YES_NO, "ambiguous"),
        ("There is no cat.", YES_NO, "ambiguous"),
        ("The second image does not fit, the third image does.", IMAGES, "ambiguous"),
        ("B is not the correct answer.", DEPTH, "ambiguous"),
        ("Select from the following choices.\n(A) A is closer\n(B) B is closer", DEPTH, "ambiguous"),
        ("I would say that:\n\n(A) A is in front\n(B) B is behind it", DEPTH, "ambiguous"),
    ],
)
def test_no_letter(text: str | None, choices: tuple[str, ...], reason: str) -> None:
    reading = read_answer(text, len(choices), choices)
    assert (reading.letter, reading.reason) == (None, reason)
    assert reading.reason in REASONS


def test_never_the_far_point() -> None:
    """A is nearer: reading it as B would be lucky credit, whatever else is done."""
    assert read_answer("Based on the shadows, A is nearer.", 2, DEPTH).letter in (None, "A")


def test_mark_and_letter_may_differ() -> None:
    assert read_answer("Point B", 2, ("Point B", "Point A")).note == "mark_conflict"
    assert read_answer("Point B", 2, ("Point A", "Point B")).note == ""


def test_options_unknown() -> None:
    assert read_answer("The answer is D.", 0).letter == "D"
    assert read_answer("I think so.", 0).letter is None
    assert read_answer("C", 0, YES_NO).reason == "out_of_range"


def test_shuffling_moves_the_letter_not_the_content() -> None:
    for text in ("yes", "Yes, it is.", "The answer is yes."):
        assert read_answer(text, 2, YES_NO).letter == "A"
        assert read_answer(text, 2, YES_NO[::-1]).letter == "B"


def test_released_replies(shared: Path) -> None:
    """Eight models, 30,456 replies: where we give a letter it is the one that the authors read out of the reply."""
    print()
    for folder in sorted(path for path in (shared / "blink_outputs").iterdir() if path.is_dir()):
        tally = Counter[str]()
        for file in folder.glob("*.json"):
            category = file.stem.replace(" ", "_")
            for rows in json.loads(file.read_text(encoding="utf-8")).values():
                for row in rows:
                    reading = read_answer(row["full_prediction"], TASKS[category].n_options, CHOICES.get(category, ()))
                    released = row["prediction"][1]
                    if reading.letter is None:
                        tally["none"] += 1
                    elif reading.letter == released:
                        tally["agree"] += 1
                    else:
                        tally["none_released" if released == "Z" else "contradict"] += 1
        n = tally.total()
        given = n - tally["none"]
        print(f"{folder.name:16s} letter given {given / n:.3f}, agrees {tally['agree'] / given:.4f}, {dict(tally)}")
        assert tally["agree"] >= 0.97 * given
        assert tally["contradict"] <= 0.005 * n
        assert given >= 0.85 * n
