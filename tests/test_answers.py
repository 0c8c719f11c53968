"""Reading replies: every case that evaluation tools got wrong in public threads, then the replies of eight models."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.benchmarks.blink import CHOICES, TASKS
from synth.diagnosis.answers import REASONS, read_answer
from synth.types import LETTERS

DEPTH = ("A is closer", "B is closer")
YES_NO = ("yes", "no")
IMAGES = ("the second image", "the third image")
TURN = ("clockwise", "counter-clockwise")
BUTTONS = ("3", "4", "5", "6")
POINTS = ("Point A", "Point B", "Point C", "Point D")
TURNED = ("Point B", "Point A")
OBJECTS = ("a red car", "a blue van", "a dog", "a cat")
SIDES = ("left", "right")
SAME = ("A is darker", "B is darker", "About the same")


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


# Made up in the manner of models whose replies were not at hand when the rules were written, with the right values.
STYLES = [
    # Qwen3-VL: long thoughts, short answers.
    (
        "<think>\nGot it, let's see. Point A is at the bottom of the image, so A is closer.\nWait, B is "
        "on the wall.\n</think>\n\nThe answer is (A).",
        DEPTH,
        "A",
    ),
    ("Got it, let's look. Point A is on the tap, B is behind. So A is closer.\n</think>\n\nA", DEPTH, "A"),
    ("<think>\nSo the user wants to know which point is nearer. The answer is A? Let me", DEPTH, "truncated"),
    (
        "To determine which point is closer to the camera, we analyze the image:\n\n- **Point A** is on "
        "the background wall.\n- **Point B** is on the foreground chair.\n\nSince foreground objects "
        "are closer, **B is closer**.\n\nAnswer: (B)",
        DEPTH,
        "B",
    ),
    ("(B) B is closer<|im_end|>", DEPTH, "B"),
    # GPT-5: markdown, terse.
    ("**(B)** B is closer — it sits lower in the frame and is larger.", DEPTH, "B"),
    ("B — the chair leg is in the foreground.", DEPTH, "B"),
    ("**Answer: A**\n\n*Reasoning:* the object at A occludes the one at B.", DEPTH, "A"),
    ("I’d choose **C**.", POINTS, "C"),
    ("It’s **D**.", POINTS, "D"),
    ("Final answer: **no**", YES_NO, "B"),
    ("**3**", BUTTONS, "A"),
    ("I count **five** cups, so the answer is **C**.", BUTTONS, "C"),
    # A bold line of its own, then the reason.
    (
        "Looking at the image, I can see two marked points.\n\n- Point A is on the fence in the "
        "distance\n- Point B is on the grass nearby\n\n**Answer: (B)**",
        DEPTH,
        "B",
    ),
    ("Looking at this image, point B appears to be closer to the camera than point A.\n\n(B) B is closer", DEPTH, "B"),
    ("# Answer\n\n**(C) Point C**\n\nThe handle is the part that one holds.", POINTS, "C"),
    (
        "I need to compare the two images. The edges in the third image continue the fence.\n\n**(B) the third image**",
        IMAGES,
        "B",
    ),
    ("I don't see any marked points in this image, so I can't determine which is closer.", DEPTH, "refusal"),
    ("Actually, looking more carefully, the answer is (B).", DEPTH, "B"),
    # InternVL, Phi, SmolVLM, PaliGemma.
    ("B", POINTS, "B"),
    ("B<|end|>", POINTS, "B"),
    ("Answer: B", POINTS, "B"),
    ("Answer:B", POINTS, "B"),
    ("Assistant: (D)", POINTS, "D"),
    ("no", YES_NO, "B"),
    ("No.<end_of_utterance>", YES_NO, "B"),
    ("<eos>", YES_NO, "empty"),
    ("The third image.", IMAGES, "B"),
    # DeepSeek, GLM, R1 and RL-trained models.
    ("First we compare sizes.\n\n$\\boxed{B}$", DEPTH, "B"),
    ("$$\\boxed{\\text{(B)}}$$", DEPTH, "B"),
    ("The final answer is $\\boxed{\\textbf{C}}$.", POINTS, "C"),
    ("\\[ \\boxed{\\text{\\textbf{(A)}}} \\]", POINTS, "A"),
    ("\\boxed{5}", BUTTONS, "C"),
    ("<|begin_of_box|>B<|end_of_box|>", DEPTH, "B"),
    ("<think>A seems near.</think><answer> B </answer>", DEPTH, "B"),
    ("<REASONING>The chair is near.</REASONING><CONCLUSION>B</CONCLUSION>", DEPTH, "B"),
    ("<|START_THINKING|>A or B?<|END_THINKING|><|START_RESPONSE|>B<|END_RESPONSE|>", DEPTH, "B"),
    ("[THINK]Perhaps A.[/THINK]The answer is B.", DEPTH, "B"),
    ("◁think▷Perhaps A.◁/think▷B", DEPTH, "B"),
    ("<unused94>thought\nPerhaps A.<unused95>B", DEPTH, "B"),
    ("<seed:think>Perhaps A.</seed:think>B", DEPTH, "B"),
    ("[THINK]Perhaps A", DEPTH, "truncated"),
    ("[Reasoning] A is far, B is near.\n[Answer] B", DEPTH, "B"),
    # Gemini: bullets, then a sentence.
    (
        "Here's how we can determine the answer:\n\n*   **Point A:** on the mountain.\n*   **Point B:** "
        "on the railing.\n\nTherefore, **B is closer**.",
        DEPTH,
        "B",
    ),
    ("*   **A:** far\n*   **B:** near\n\nThe correct option is **B**.", DEPTH, "B"),
    ("The person is to the left of the car.\n\nFinal Answer: The final answer is $\\boxed{A}$", SIDES, "A"),
    ("The correct answer is **(C) a dog**.", OBJECTS, "C"),
    # Structured replies.
    ('{"reasoning": "A looks near", "answer": "B"}', DEPTH, "B"),
    ('{"answer": "no"}', YES_NO, "B"),
    ("{'final_answer': '(C)'}", POINTS, "C"),
    ('```json\n{\n  "selected_option": "D"\n}\n```', POINTS, "D"),
    ("| Option | Verdict |\n|---|---|\n| A | far |\n| B | near |\n\nAnswer: B", DEPTH, "B"),
    ("| Option | Verdict |\n|---|---|\n| A | far |\n| B | near |", DEPTH, "ambiguous"),
    ("| **Answer** | C |", POINTS, "C"),
    ("<b>B</b>", DEPTH, "B"),
    # Other languages.
    ("根据图片，点B更靠近相机。因此，正确答案是（B）。", DEPTH, "B"),
    ("选项B是正确的。", DEPTH, "B"),
    ("应该选择 B", DEPTH, "B"),
    ("故选：C", POINTS, "C"),
    ("正確答案為 (D)", POINTS, "D"),
    ("正解は（Ｂ）です。", DEPTH, "B"),
    ("Bが正解です。", DEPTH, "B"),
    ("정답: B", DEPTH, "B"),
    ("정답은 (B)입니다.", DEPTH, "B"),
    ("B가 정답입니다.", DEPTH, "B"),
    ("La opción correcta es la B.", DEPTH, "B"),
    ("La B es la correcta.", DEPTH, "B"),
    ("La bonne réponse est B.", DEPTH, "B"),
    ("Die richtige Antwort ist (B).", DEPTH, "B"),
    ("A resposta correta é a opção B.", DEPTH, "B"),
    ("La risposta corretta è B.", DEPTH, "B"),
    ("Правильный ответ: B", DEPTH, "B"),
    ("Правильный ответ — B.", DEPTH, "B"),
    ("Відповідь: B", DEPTH, "B"),
    ("Prawidłowa odpowiedź to B.", DEPTH, "B"),
    ("Het juiste antwoord is B.", DEPTH, "B"),
    ("Rätt svar: B", DEPTH, "B"),
    ("Doğru cevap: B", DEPTH, "B"),
    ("الإجابة الصحيحة هي B", DEPTH, "B"),
    ("सही उत्तर B है", DEPTH, "B"),
    ("คำตอบคือ B", DEPTH, "B"),
    ("Đáp án đúng là B.", DEPTH, "B"),
    ("Jawaban yang benar adalah B.", DEPTH, "B"),
    ("是的。", ("是", "否"), "A"),
    ("这是一只猫。", ("是", "否"), "ambiguous"),
    ("Oui, il y a un chat.", ("oui", "non"), "A"),
    # Corrections of oneself.
    ("The answer is A. Wait, no, it's B.", DEPTH, "B"),
    ("B. Actually, A.", DEPTH, "A"),
    ("The answer is (A)... On second thought, the answer is (B).", DEPTH, "B"),
    ("(A)\n\nCorrection: (B)", DEPTH, "B"),
    ("The answer is A. Actually, B is in front of it.", DEPTH, "ambiguous"),
    ("The answer is B. Actually, the light helps to see that.", DEPTH, "B"),
    # Signs and places.
    ("Ⓑ", DEPTH, "B"),
    ("🅑", DEPTH, "B"),
    ("⒝", DEPTH, "B"),
    ("【B】", DEPTH, "B"),
    ("🅱️", DEPTH, "B"),
    ("🇧🇪 B", DEPTH, "B"),
    ("Option 2", OBJECTS, "B"),
    ("The answer is option 2.", OBJECTS, "B"),
    ("The answer is option 4.", BUTTONS, "ambiguous"),
    ("I would choose the second option.", OBJECTS, "B"),
    ("The correct choice is the last option.", OBJECTS, "D"),
    ("The answer is option 7.", OBJECTS, "ambiguous"),
    # Marks.
    ("The answer is Point B.", TURNED, "A"),
    ("The corresponding point on the second image is B.", POINTS, "B"),
    ("The point that corresponds to REF is Point C, as it is on the handle.", POINTS, "C"),
    ("The best match is labeled with D.", POINTS, "D"),
    ("The points are labeled A, B, C, and D. The closest match is Point C.", POINTS, "C"),
    # Claims.
    ("The camera is moving to the right. This is evident because more of the left side is seen.", SIDES, "B"),
    ("The lid moves to the edge. This indicates that the camera has moved right.", SIDES, "B"),
    (
        "(A) The second image is darker.\n(B) The third image is bright.\n\nThe third image (B) is most "
        "similar to the first one because it is bright, whereas the second image (A) is not.",
        IMAGES,
        "B",
    ),
    ("If I had to choose, I might lean towards the third image (B).", IMAGES, "B"),
    ("I would lean towards (A) the second image or (B) the third image.", IMAGES, "ambiguous"),
    ("If we choose (A), the edge is broken. Therefore (B).", IMAGES, "B"),
    # Seen only after the rules were written.
    ("The two points have about the same colour.", SAME, "C"),
    ("Both points look about the same. (C)", SAME, "C"),
    ("Looking closely, point A lies in shade, but its albedo is lower. So **A is darker**.", SAME, "A"),
    ("Based on the image, A is not darker than B; B is darker.", SAME, "B"),
    ("I'm unable to view images.", DEPTH, "refusal"),
    ("As a text-based AI, I can't see the image, but if I had to guess, I'd say B.", DEPTH, "B"),
    ("Let me think step by step.\n1. A is on the chair.\n2. B is on the wall.\nSo the answer: A", DEPTH, "A"),
    ("### Final Answer\n\n**(A) A is closer**", DEPTH, "A"),
    ("It isn't (B); it's (A).", DEPTH, "A"),
    ("The correct answer is not A but B.", DEPTH, "ambiguous"),
    ("A: yes\nB: no", YES_NO, "ambiguous"),
    ("(A) yes (B) no", YES_NO, "ambiguous"),
    ("A\nB", DEPTH, "ambiguous"),
    ('{"answer": ["A", "B"]}', DEPTH, "ambiguous"),
    ("\\boxed{A or B}", DEPTH, "ambiguous"),
    ("yes or no", YES_NO, "ambiguous"),
    ("There is 1 dog and 2 cats, so 3 animals.", ("1", "2", "3", "4"), "ambiguous"),
    ("There are 3 animals: 1 dog and 2 cats. The answer is 3.", ("1", "2", "3", "4"), "C"),
    ("Zero", ("0", "1", "2", "3"), "A"),
    ("Point A is on the wheel and point B on the seat. The corresponding point is therefore B.", POINTS, "B"),
    ("The answer is E.", POINTS, "out_of_range"),
    ("the car is to the left of the cat", SIDES, "A"),
    ("Option A is incorrect. Option B is correct.", DEPTH, "B"),
    ("Option (A) can be ruled out. Option (B) remains.", DEPTH, "ambiguous"),
    ("It shows a dog.", OBJECTS, "C"),
    ("It shows a dog and a cat.", OBJECTS, "ambiguous"),
    ("ANSWER: (B)\nCONFIDENCE: 0.7", DEPTH, "B"),
    ("Answer → B", DEPTH, "B"),
    ("I'd say it's A.", DEPTH, "A"),
    ("A is farther away than B, so B is closer.", DEPTH, "B"),
    ("Human: which?\nAssistant: B", DEPTH, "B"),
    ("B. A is closer", DEPTH, "conflict"),
    ("答案是A还是B？应该是B。", DEPTH, "B"),
    ("A。因为它更近。", DEPTH, "A"),
    ("我认为是B", DEPTH, "B"),
    ("Ich wähle B.", DEPTH, "B"),
    ("First I thought B, but the answer is A.", DEPTH, "A"),
    ("Is the answer A? No. The answer is B.", DEPTH, "B"),
]


@pytest.mark.parametrize(("text", "choices", "right"), STYLES)
def test_other_models(text: str, choices: tuple[str, ...], right: str) -> None:
    reading = read_answer(text, len(choices), choices)
    assert (reading.letter or reading.reason) == right


@pytest.mark.parametrize(
    ("text", "choices", "by_letter", "by_text"),
    [
        ("(A) B is closer", DEPTH, "A", "B"),
        ("The answer is (A) no.", YES_NO, "A", "B"),
        ("The second image (B) fits.", IMAGES, "B", "A"),
        ("The second image (B) fits best. The answer is (B).", IMAGES, "B", "A"),
        ("The second image (B) fits best. So the answer is the second image.", IMAGES, "B", "A"),
        ("The second image (B) fits best. So the answer is (A) the second image.", IMAGES, "A", "A"),
        ("A", ("B", "A"), "A", "B"),
    ],
)
def test_conflict_is_read_both_ways(text: str, choices: tuple[str, ...], by_letter: str, by_text: str) -> None:
    reading = read_answer(text, len(choices), choices)
    assert (reading.letter, reading.reason) == (None, "conflict")
    assert (reading.by_letter, reading.by_text) == (by_letter, by_text)


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


# ---------------------------------------------------------------------------------------------------------- properties

WORDS = [
    "A",
    "B",
    "(A)",
    "(C)",
    "yes",
    "no",
    "the answer is",
    "not",
    "or",
    "and",
    ".",
    ",",
    ":",
    "\n",
    "option",
    "wait",
]
REPLIES = [text for text, _, _ in STYLES]
anything = st.one_of(
    st.text(max_size=80),
    st.lists(st.sampled_from(REPLIES), min_size=1, max_size=2).map(" ".join),
    st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join),
)
choice_lists = st.sampled_from([(), DEPTH, YES_NO, IMAGES, POINTS, TURNED, OBJECTS, BUTTONS])


@settings(max_examples=150, deadline=None)
@given(text=anything, choices=choice_lists, n=st.integers(0, 5))
def test_a_letter_is_an_option(text: str, choices: tuple[str, ...], n: int) -> None:
    n_options = len(choices) or n
    reading = read_answer(text, n_options, choices)
    assert (reading.letter is None) != (reading.reason is None)
    if reading.letter is not None:
        assert reading.letter in LETTERS[: n_options or 10]
    assert reading.reason is None or reading.reason in REASONS
    assert (reading.by_text is not None) == (reading.reason == "conflict")


@settings(max_examples=120, deadline=None)
@given(case=st.sampled_from(STYLES), after=st.sampled_from([" ", "\n", " \n\n", "</s>", "<|im_end|>\n"]))
def test_what_follows_an_answer_does_not_change_it(case: tuple[str, tuple[str, ...], str], after: str) -> None:
    text, choices, _ = case
    assert read_answer(text + after, len(choices), choices) == read_answer(text, len(choices), choices)


@settings(max_examples=60, deadline=None)
@given(
    form=st.sampled_from(["{}", "({})", "The answer is {}.", "Answer: {}", "I choose option {}.", "So it's {}."]),
    letter=st.sampled_from("ABCD"),
    mark=st.sampled_from(["*", "**", "***", "__", "`"]),
)
def test_emphasis_does_not_change_an_answer(form: str, letter: str, mark: str) -> None:
    assert read_answer(form.format(f"{mark}{letter}{mark}"), 4, OBJECTS).letter == letter


@settings(max_examples=80, deadline=None)
@given(
    form=st.sampled_from(
        [
            "{} or {}",
            "{} and {}",
            "The answer is {} or {}.",
            "The answer is {} and {}.",
            "It could be {} or {}.",
            "I see {}. I see {}.",
        ]
    ),
    choices=st.sampled_from([YES_NO, IMAGES, POINTS, OBJECTS, BUTTONS, SIDES]),
    pair=st.sampled_from([(0, 1), (1, 0)]),
)
def test_two_options_named_alike_are_no_answer(form: str, choices: tuple[str, ...], pair: tuple[int, int]) -> None:
    assert read_answer(form.format(*(choices[i] for i in pair)), len(choices), choices).letter is None


@settings(max_examples=80, deadline=None)
@given(
    form=st.sampled_from(["{}", "{}.", "The answer is {}.", "I would choose {}.", "Final answer: **{}**"]),
    said=st.integers(0, 3),
    order=st.permutations(range(4)),
    choices=st.sampled_from([OBJECTS, BUTTONS, ("oak", "elm", "red oak", "ash")]),
)
def test_shuffling_options_moves_the_letter(form: str, said: int, order: list[int], choices: tuple[str, ...]) -> None:
    shuffled = [choices[i] for i in order]
    assert read_answer(form.format(choices[said]), 4, shuffled).letter == LETTERS[order.index(said)]


# ------------------------------------------------------------------------------------------------------ real replies


def test_released_replies(shared: Path) -> None:
    """Eight models, 30,456 replies: where we give a letter it is the one that the authors read out of the reply."""
    print()
    shares = []
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
        read = n - tally["none"]
        print(f"{folder.name:16s} letter given {read / n:.3f}, agrees {tally['agree'] / read:.4f}, {dict(tally)}")
        shares.append(tally["agree"] / read)
        assert shares[-1] >= 0.99
        assert tally["contradict"] <= 0.002 * n
        assert read >= 0.90 * n
    assert sum(shares) / len(shares) >= 0.995
