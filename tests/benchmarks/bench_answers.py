"""Measures the reply reader on the released replies of eight models, beside two public parsers, and its speed.

    python tests/benchmarks/bench_answers.py

Replies, letters that the benchmark's authors read out of them, and keys: ../shared/data/blink_outputs. Agreement and
contradictions are counted over all replies of a model (val and test) for which the authors give a letter; accuracy is
that of val, on the eleven tasks whose option texts are known and whose every item brings them to all three parsers.
`first letter` and `can_infer` are re-implementations, from their descriptions, of the parsers of lmms-eval (as of
6 August 2026) and VLMEvalKit (`exact_matching`).
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from synth.benchmarks.blink import CHOICES, TASKS
from synth.diagnosis import answers
from synth.types import LETTERS

REPLIES = Path(__file__).resolve().parents[3] / "shared" / "data" / "blink_outputs"
COMPARED = sorted(CHOICES.keys() - {"Object_Localization"})
_FIRST = re.compile(r"[(\s]*([A-Z])[).\s]*", re.I)
_ANSWER_IS = re.compile(r"answer is ([A-D])\b", re.I)


def first_letter(text: str, choices: tuple[str, ...]) -> str | None:
    """lmms-eval, 6 August 2026: the first letter of the reply, whatever word it begins."""
    m = _FIRST.match(text)
    return m[1].upper() if m is not None else None


def can_infer(text: str, choices: tuple[str, ...]) -> str | None:
    """VLMEvalKit without a judge: the only option letter, near the end; "answer is X"; the only option text."""
    tokens = re.sub(r"[.()\[\],:;!*#{}]", " ", text).split()
    letters = [letter for letter in LETTERS[: len(choices)] if letter in tokens]
    if len(letters) == 1 and tokens.index(letters[0]) > len(tokens) - 5:
        return letters[0]
    m = _ANSWER_IS.search(text)
    if m is not None and m[1].upper() in LETTERS[: len(choices)]:
        return m[1].upper()
    if len(text) > 2 * sum(map(len, choices)):
        return None
    found = [letter for letter, choice in zip(LETTERS, choices, strict=False) if choice.lower() in text.lower()]
    return found[0] if len(found) == 1 else None


def load(folder: Path) -> list[tuple[str, str, dict[str, str]]]:
    """(category, split, row) of every reply of a model."""
    return [
        (file.stem.replace(" ", "_"), split, row)
        for file in sorted(folder.glob("*.json"))
        for split, rows in json.loads(file.read_text(encoding="utf-8")).items()
        for row in rows
    ]


def read(category: str, row: dict[str, str]) -> answers.Reading:
    return answers.read_answer(row["full_prediction"], TASKS[category].n_options, CHOICES.get(category, ()))


def line(model: str, rows: list[tuple[str, str, dict[str, str]]]) -> str:
    tally, reasons = Counter[str](), Counter[str]()
    for category, split, row in rows:
        reading, released = read(category, row), row["prediction"][1]
        if released != "Z":
            tally["read"] += reading.letter is not None
            tally["agree"] += reading.letter == released
            tally["given"] += 1
            reasons[reading.reason or ""] += reading.letter is None
        else:
            tally["none"] += 1
            tally["refusal"] += reading.letter is None
        if split == "val" and category in COMPARED:
            gold, text, choices = row["answer"][1], row["full_prediction"], CHOICES[category]
            tally["n"] += 1
            tally["ours"] += reading.letter == gold
            tally["by_letter"] += (reading.letter or reading.by_letter) == gold
            tally["official"] += released == gold
            tally["first"] += first_letter(text, choices) == gold
            tally["infer"] += can_infer(text, choices) == gold
    wrong = (tally["read"] - tally["agree"]) / len(rows)
    abstains = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common() if count)
    shares = "".join(
        f"{100 * tally[key] / tally['n']:11.1f}" for key in ("official", "ours", "by_letter", "first", "infer")
    )
    return (
        f"{model:16s}{100 * tally['agree'] / tally['read']:9.2f}{100 * wrong:9.2f}"
        f"{100 * tally['agree'] / tally['given']:9.1f}{tally['refusal']:5d}/{tally['none']:<4d}{shares}   {abstains}"
    )


def speed(rows: list[tuple[str, str, dict[str, str]]]) -> tuple[float, float]:
    """Replies a second of this process's processor time: as they come, and with no short reply remembered."""
    asked = [(row["full_prediction"], TASKS[c].n_options, CHOICES.get(c, ())) for c, _, row in rows]
    best = [0.0, 0.0]
    for _ in range(3):
        answers._read_short.cache_clear()
        for i, reader in enumerate((answers.read_answer, answers._read)):
            start = time.process_time()
            for text, n_options, choices in asked:
                reader(text, n_options, choices)
            best[i] = max(best[i], len(asked) / (time.process_time() - start))
    return best[0], best[1]


def main() -> None:
    if not REPLIES.is_dir():
        print("skipped: ../shared/data/blink_outputs is not here (replies are not part of the project)")
        return
    models = {folder.name: load(folder) for folder in sorted(REPLIES.iterdir()) if folder.is_dir()}
    print("per cent; agrees: of the letters that both give; wrong: of all replies; found: of the authors' letters;")
    print(
        "then accuracy by the authors' letters, by ours, by ours with conflicts read by their letter, by public parsers"
    )
    heads = ("official", "ours", "by letter", "1st letter", "can_infer")
    print(
        f"{'model':16s}{'agrees':>9s}{'wrong':>9s}{'found':>9s}{'none':>9s} ",
        *(f"{h:>10s}" for h in heads),
        "  not read",
    )
    for model, rows in models.items():
        print(line(model, rows))
    fast, plain = speed([row for rows in models.values() for row in rows])
    print(f"{fast:,.0f} replies a second; {plain:,.0f} without remembering short replies")


if __name__ == "__main__":
    main()
