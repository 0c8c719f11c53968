"""Result files as the harnesses write them → outcomes: every shape, its odd cases, and the items behind the rows."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import openpyxl
import pytest

from synth.contracts import BenchmarkData
from synth.diagnosis.joining import fold, missing, unknown
from synth.diagnosis.profile import make_profile
from synth.diagnosis.reading import load_outcomes, read_results, read_runs, write_outcomes
from synth.errors import ResultsError
from synth.results._values import listed
from synth.types import Item, Outcome, Skill

Row = dict[str, object]


def xlsx(path: Path, table: Sequence[Mapping[str, object]]) -> Path:
    """A workbook as pandas writes it: None and NaN are empty cells."""
    path.parent.mkdir(parents=True, exist_ok=True)
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    head = list(dict.fromkeys(key for row in table for key in row))
    sheet.append(head)
    for row in table:
        sheet.append([row.get(key) for key in head])
    book.save(path)
    return path


def delimited(path: Path, table: Sequence[Mapping[str, object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, list(table[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writeheader()
        writer.writerows(table)
    return path


def lines(path: Path, table: Sequence[object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in table), encoding="utf-8")
    return path


def dumped(path: Path, value: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=4), encoding="utf-8")
    return path


def letters(outcomes: Sequence[Outcome]) -> list[str | None]:
    return [outcome.letter for outcome in outcomes]


def item(item_id: str, answer: str | None, category: str = "Relative_Depth", images: int = 1) -> Item:
    return Item(
        item_id=item_id,
        category=category,
        skill=Skill.RELATIVE_DEPTH if category == "Relative_Depth" else Skill.JIGSAW,
        question="Which point is closer?",
        choices=("A is closer", "B is closer"),
        answer=answer,
        prompt="Which point is closer?\n(A) A is closer\n(B) B is closer",
        images=tuple(f"{item_id}.{i}".encode() for i in range(images)),
        group=f"scene {item_id}",
    )


def data(*items: Item) -> BenchmarkData:
    return BenchmarkData(name="small", revision="1", items=items)


# --------------------------------------------------------------------------------------------------------- VLMEvalKit

DEPTH: Row = {
    "index": 812, "question": "Which point is closer?", "A": "A is closer", "B": "B is closer", "C": None, "D": None,
    "answer": "B", "category": "Relative_Depth", "prediction": "B. B is closer",
}  # fmt: skip


def test_vlmevalkit_rows(tmp_path: Path) -> None:
    table = [
        DEPTH,
        DEPTH | {"index": 813.0, "prediction": "The answer is (A)."},
        DEPTH | {"index": "814", "prediction": None},
        DEPTH | {"index": 815, "prediction": "Failed to obtain answer via API."},
        {"index": 816, "question": "How many?", "A": 0, "B": 3.0, "C": 2, "D": "1", "answer": "D",
         "category": "Counting", "prediction": 1.0},
        DEPTH | {"index": 817, "prediction": "=B"},
        DEPTH | {"index": 818, "prediction": "line one_x000D_\nThe answer is B"},
        DEPTH | {"index": 819, "prediction": "I think " * 4096},
        DEPTH | {"index": 820, "prediction": "", "thinking": "A looks near, but"},
        DEPTH | {"index": 821, "answer": None, "prediction": "A"},
    ]  # fmt: skip
    file = xlsx(tmp_path / "Qwen2-VL_7B_BLINK.xlsx", table)
    outcomes = read_results(file)
    assert len(outcomes) == len(table)
    assert letters(outcomes) == ["B", "A", None, None, "D", "B", "B", None, None, "A"]
    assert [o.reason for o in outcomes] == [
        None, None, "empty", "error", None, None, None, "truncated", "truncated", "unscored",
    ]  # fmt: skip
    assert (outcomes[0].item_id, outcomes[1].item_id) == ("BLINK:812", "BLINK:813")
    assert {o.model for o in outcomes} == {"Qwen2-VL_7B"}
    assert (outcomes[0].skill, outcomes[0].n_options, outcomes[4].n_options) == (Skill.RELATIVE_DEPTH, 2, 4)
    assert outcomes[4].text == "1" and outcomes[4].correct
    assert outcomes[9].correct is None
    found = read_runs(file)[0].benchmark
    assert found is not None and found.name == "blink"


@pytest.mark.parametrize("suffix", [".xlsx", ".tsv", ".json"])
def test_vlmevalkit_says_the_same_in_every_file_type(tmp_path: Path, suffix: str) -> None:
    table = [DEPTH | {"prediction": 'He said:\n"A\tis" … no, B'}, DEPTH | {"index": 813, "C": float("nan")}]
    file = tmp_path / f"m_BLINK{suffix}"
    if suffix == ".json":
        dumped(file, table)
    elif suffix == ".tsv":
        delimited(file, [row | {"C": ""} for row in table])
    else:
        xlsx(file, [row | {"C": None} for row in table])
    outcomes = read_results(file)
    assert [(o.item_id, o.text, o.n_options, o.gold) for o in outcomes] == [
        ("BLINK:812", 'He said:\n"A\tis" … no, B', 2, "B"),
        ("BLINK:813", "B. B is closer", 2, "B"),
    ]


def test_judged_file_beside_predictions_counts_no_row_twice(tmp_path: Path) -> None:
    """The judge's word goes to `harness_correct`; ours stays ours. Pickles and summaries are not looked at."""
    table = [DEPTH, DEPTH | {"index": 813, "prediction": "A"}, DEPTH | {"index": 814, "prediction": "Hard to say."}]
    xlsx(tmp_path / "m_BLINK.xlsx", table)
    log = "Failed in Prefetch, no GPT-based answer matching under `exact_matching` policy."
    xlsx(
        tmp_path / "m_BLINK_gpt-4o_result.xlsx",
        [row | {"hit": hit, "log": "Match Log: "} for row, hit in zip(table, (0, 0, 1), strict=True)],
    )
    xlsx(tmp_path / "m_BLINK_exact_matching_result.xlsx", [row | {"hit": 0, "log": log} for row in table])
    (tmp_path / "m_BLINK_gpt-4o_result.pkl").write_bytes(b"never opened, or this would raise")
    (tmp_path / "m_BLINK_acc.csv").write_text("split,Overall\nnone,0.5\n", encoding="utf-8")
    outcomes = read_results(tmp_path)
    assert [(o.letter, o.correct, o.harness_correct) for o in outcomes] == [
        ("B", True, False), ("A", False, False), (None, False, True),
    ]  # fmt: skip
    alone = read_results(tmp_path / "m_BLINK_exact_matching_result.xlsx")
    assert {o.model for o in alone} == {"m"}
    assert [o.tags.get("judge_failed") for o in alone] == ["yes"] * 3
    assert [o.harness_correct for o in alone] == [False] * 3
    assert letters(alone) == letters(outcomes)


def test_yes_no_sets(tmp_path: Path) -> None:
    row = {"index": 1, "question": "Is there a cup?", "answer": "Yes", "category": "adversarial"}
    table = [
        row | {"prediction": "Yes, there is.", "extracted": "Yes", "score": True},
        row | {"index": 2, "answer": "No", "prediction": "Yes.", "extracted": "Yes", "score": False},
        row | {"index": 3, "answer": "No", "prediction": "Hard to tell.", "extracted": "Unknown", "score": False},
    ]
    outcomes = read_results(xlsx(tmp_path / "m_POPE_auxmatch.xlsx", table))
    assert [(o.letter, o.gold, o.correct, o.harness_correct) for o in outcomes] == [
        ("A", "A", True, True), ("A", "B", False, False), (None, "B", False, False),
    ]  # fmt: skip
    assert {(o.skill, o.n_options, o.item_id.partition(":")[0]) for o in outcomes} == {(Skill.EXISTENCE, 2, "POPE")}
    trusted = read_results(tmp_path / "m_POPE_auxmatch.xlsx", trust_released=True)
    assert letters(trusted) == ["A", "A", None]


def test_rotations_of_one_question_are_one_group(tmp_path: Path) -> None:
    """A set defined as circular: the harness's verdict is about all rotations, and says so."""
    table = [
        DEPTH | {"prediction": "B"},
        DEPTH | {"index": 1_000_812, "A": "B is closer", "B": "A is closer", "answer": "A", "prediction": "B"},
        DEPTH | {"index": 813},
    ]
    xlsx(tmp_path / "m_BLINK_circular.xlsx", table)
    xlsx(tmp_path / "m_BLINK_circular_gpt4_result.xlsx", [table[0] | {"hit": 0, "log": ""}, table[2] | {"hit": 1}])
    outcomes = read_results(tmp_path)
    assert [(o.group, o.tags["rotation"], o.tags.get("rotations_right")) for o in outcomes] == [
        ("BLINK_circular:812", "0", "no"), ("BLINK_circular:812", "1", "no"), ("BLINK_circular:813", "0", "yes"),
    ]  # fmt: skip
    assert [o.correct for o in outcomes] == [True, False, True]
    assert len({o.item_id for o in outcomes}) == 3
    assert all(o.harness_correct is None for o in outcomes)


@pytest.mark.parametrize(
    ("file", "model", "prefix"),
    [
        ("a/m_BLINK_x_MMStar.tsv", "m_BLINK_x", "MMStar:"),
        ("a/llava_v1.5_CV-Bench-3D.tsv", "llava_v1.5", "CV-Bench-3D:"),
        ("my_model/my_model_AI2D_TEST.tsv", "my_model", "AI2D_TEST:"),
        ("my_model/T20260101/my_model_AI2D_TEST_exact_matching_result.tsv", "my_model", "AI2D_TEST:"),
        ("a/m_Strange.tsv", "m", "Strange:"),
    ],
)
def test_model_and_set_from_the_file_name(tmp_path: Path, file: str, model: str, prefix: str) -> None:
    (outcome,) = read_results(delimited(tmp_path / file, [DEPTH | {"category": "things"}]))
    assert (outcome.model, outcome.item_id) == (model, prefix + "812")
    assert (outcome.category, outcome.skill) == ("things", Skill.OTHER)


def test_a_link_to_the_newest_run_is_no_second_run(tmp_path: Path) -> None:
    real = delimited(tmp_path / "m" / "T1" / "m_BLINK.tsv", [DEPTH])
    (tmp_path / "m" / "m_BLINK.tsv").symlink_to(real)
    (tmp_path / "m" / "again_m_BLINK.tsv").symlink_to(real)
    assert len(read_results(tmp_path / "m")) == 1
    delimited(tmp_path / "m" / "T1" / "m_BLINK.tsv", [DEPTH])
    dumped(tmp_path / "m" / "T1" / "m_BLINK.json", [DEPTH])
    with pytest.raises(ResultsError, match="m on BLINK comes twice"):
        read_results(tmp_path / "m" / "T1")


# ----------------------------------------------------------------------------------------------------------- lmms-eval

INPUT = "Note: You only need to respond with A, B without any more.\nWhich?\n(A) A is closer\n(B) B is closer"
SAMPLE: Row = {
    "doc_id": 7, "target": "(B)", "filtered_resps": "The answer is (B).", "doc_hash": "9c1f", "input": INPUT,
    "blink_acc": {
        "id": "val_Relative_Depth_8", "gt_content": "B", "pred_parsed": "T", "pred": "The answer is (B).",
        "sub_task": "Relative Depth", "is_correct": False,
    },
}  # fmt: skip


def test_lmms_eval_rows(tmp_path: Path) -> None:
    other = SAMPLE | {"doc_id": 8, "blink_acc": {"id": "val_Relative_Depth_9", "is_correct": True}}
    table = [
        SAMPLE,
        other | {"resps": [["On second thought, the answer is A."]], "filtered_resps": ["B"]},
        other | {"doc_id": 9, "blink_acc": 1.0, "filtered_resps": ["b)"]},
        SAMPLE,
    ]
    file = lines(tmp_path / "org__model" / "20260806_101112_samples_blink_relative_depth.jsonl", table)
    outcomes = read_results(file)
    assert [o.item_id for o in outcomes] == [
        "val_Relative_Depth_8", "val_Relative_Depth_9", "blink_relative_depth:9", "val_Relative_Depth_8",
    ]  # fmt: skip
    assert {o.category for o in outcomes} == {"Relative_Depth"}
    assert {o.model for o in outcomes} == {"org__model"}
    # A right reply that the harness scored wrong by its first letter.
    assert (outcomes[0].letter, outcomes[0].harness_correct, outcomes[0].tags["released"]) == ("B", False, "Z")
    assert [(o.letter, o.harness_correct) for o in outcomes[1:3]] == [("A", True), ("B", True)]
    assert outcomes[0].prompt_hash == hashlib.sha256(INPUT.encode()).hexdigest()[:16]
    profile = make_profile(outcomes)
    assert profile.categories[0].n == 3
    assert any("twice" in warning for warning in profile.warnings)


def test_lmms_eval_model_is_the_runs_own_name(tmp_path: Path) -> None:
    lines(tmp_path / "x" / "20260806_samples_blink_jigsaw.jsonl", [SAMPLE])
    dumped(tmp_path / "x" / "20260806_results.json", {"results": {}, "model_name": "org/model"})
    assert read_results(tmp_path / "x")[0].model == "org/model"
    lines(tmp_path / "x" / "20260807_samples_blink_jigsaw.jsonl", [SAMPLE])
    with pytest.raises(ResultsError, match="two runs of one task"):
        read_results(tmp_path / "x")


@pytest.mark.parametrize(
    ("task", "change", "expected"),
    [
        ("cv_bench_3d", {"target": "(A)", "cv_bench_acc": {"id": 3, "task": "Depth", "pred_parsed": "A",
         "is_correct": True}, "filtered_resps": ["A"]}, ("cv_bench_3d:7", "Depth", "A", True)),
        ("pope", {"target": "yes", "input": "Is there a cup?", "filtered_resps": "No.", "pope_accuracy":
         {"question_id": 3, "score": 0.0, "prediction": "no", "ground_truth": "yes"}, "pope_recall":
         {"question_id": 3, "score": 0.0, "prediction": "no", "ground_truth": "yes"}}, ("pope:7", "pope", "B", False)),
        ("sat", {"input": "Where?\nA. left\nB. right\n", "target": "right", "filtered_resps": [["right"]],
         "exact_match": 1.0}, ("sat:7", "sat", "B", True)),
    ],
)  # fmt: skip
def test_lmms_eval_metrics_of_other_tasks(
    tmp_path: Path, task: str, change: Row, expected: tuple[str, str, str, bool]
) -> None:
    row = {key: cell for key, cell in SAMPLE.items() if key != "blink_acc"} | change
    (o,) = read_results(lines(tmp_path / "m" / f"1_samples_{task}.jsonl", [row]))
    assert (o.item_id, o.category, o.letter, o.harness_correct) == expected
    assert o.correct is expected[3] and "released" not in o.tags


@pytest.mark.parametrize(
    ("prompt", "target", "expected"),
    [
        ("Which of (A) and (B)?\n(A) red (B) blue\nAnswer (A) or (B).", "(B)", ("red", "blue")),
        ("A. one\nB. two\n\nA. left\nB. right\nC. both", "B", ("left", "right", "both")),
        ("(A) one\n(B) two", "(D)", ()),
        ("Say (A) or (B).", "(A)", ()),
        ("How many?\n(A) 0\n(B) 3", "(B)", ("0", "3")),
    ],
)
def test_options_listed_in_a_prompt(prompt: str, target: str, expected: tuple[str, ...]) -> None:
    assert listed(prompt, target) == expected


def test_lmms_eval_log_likelihoods_are_no_replies(tmp_path: Path) -> None:
    row = {"doc_id": 0, "target": "(A)", "input": INPUT, "filtered_resps": [["-1.25", "False"], ["-0.5", "True"]]}
    with pytest.raises(ResultsError, match="log-likelihoods"):
        read_results(lines(tmp_path / "1_samples_t.jsonl", [row]))


# ----------------------------------------------------------------------------------------------------------- inspect-ai


def image(name: str) -> Row:
    return {"type": "image", "image": name}


def sample(i: int, said: str, *, sent: Sequence[str] = ("a.png",), stop: str = "stop", epoch: int = 1) -> Row:
    question = {"type": "text", "text": "Which point is closer?"}
    asked = {"type": "text", "text": "attachment://f00d"}
    return {
        "id": i,
        "epoch": epoch,
        "input": [{"role": "user", "content": [question, image("a.png"), image("b.png")]}],
        "choices": ["A is closer", "B is closer"],
        "target": "B",
        "messages": [
            {"role": "user", "content": [*map(image, sent), asked]},
            {"role": "assistant", "content": said},
        ],
        "attachments": {"f00d": f"Answer. {INPUT}"},
        "output": {
            "model": "gpt-4o",
            "choices": [
                {
                    "message": {"role": "assistant", "content": [{"type": "reasoning", "reasoning": "A"},
                                                                  {"type": "text", "text": said}]},
                    "stop_reason": stop,
                }
            ],
            "completion": "",
        },
        "scores": {"choice": {"value": "C" if "B" in said else "I", "answer": "B" if "B" in said else ""}},
        "metadata": {"category": "Relative_Depth"},
    }  # fmt: skip


def log(samples: Sequence[Row], status: str = "success", **eval: str) -> Row:
    about = {"task": "examples/depth", "model": "openai/gpt-4o", "dataset": {"name": "d"}} | eval
    return {"version": 2, "status": status, "eval": about, "samples": list(samples)}


def test_inspect_ai_samples(tmp_path: Path) -> None:
    both = ("a.png", "b.png")
    failed = dict(sample(4, "")) | {"error": {"message": "timeout"}}
    samples = [
        sample(1, "ANSWER: B", sent=both),
        sample(2, "The left one seems", stop="max_tokens", sent=both),
        sample(3, "ANSWER: B"),
        failed,
        sample(5, "ANSWER: B", sent=both[::-1]),
    ]
    outcomes = read_results(dumped(tmp_path / "log.json", log(samples)))
    assert len(outcomes) == 5
    assert [(o.letter, o.reason, o.harness_correct) for o in outcomes[:4]] == [
        ("B", None, True), (None, "truncated", False), ("B", None, True), (None, "error", False),
    ]  # fmt: skip
    assert {o.model for o in outcomes} == {"openai/gpt-4o"}
    assert (outcomes[0].item_id, outcomes[0].category, outcomes[0].n_options) == ("depth:1", "Relative_Depth", 2)
    assert "images" not in outcomes[0].tags
    assert (outcomes[2].tags["images"], outcomes[2].n_images) == ("sent 1 of 2", 1)
    assert outcomes[2].tags["n_images_mismatch"] == "yes"
    # The same two pictures the other way round are another question.
    assert outcomes[0].tags["image_order"] != outcomes[4].tags["image_order"]
    assert outcomes[0].prompt_hash == hashlib.sha256(f"Answer. {INPUT}".encode()).hexdigest()[:16]


def test_inspect_ai_epochs_and_unfinished_runs(tmp_path: Path) -> None:
    samples = [sample(1, "ANSWER: B"), sample(1, "ANSWER: A", epoch=2)]
    outcomes = read_results(dumped(tmp_path / "log.json", log(samples, "cancelled")))
    assert [(o.letter, o.tags["epoch"], o.group, o.tags["run_status"]) for o in outcomes] == [
        ("B", "1", "depth:1", "cancelled"), ("A", "2", "depth:1", "cancelled"),
    ]  # fmt: skip
    broken = dict(log([], "error")) | {"error": {"message": "no such model"}}
    with pytest.raises(ResultsError, match="status is error: no such model"):
        read_results(dumped(tmp_path / "log.json", broken))


def test_inspect_ai_folders(tmp_path: Path) -> None:
    dumped(tmp_path / "1.json", log([sample(1, "B")]))
    dumped(tmp_path / "2.json", log([sample(1, "A")], model="other"))
    assert [(run.model, letters(run.outcomes)) for run in read_runs(tmp_path)] == [
        ("openai/gpt-4o", ["B"]), ("other", ["A"]),
    ]  # fmt: skip
    dumped(tmp_path / "3.json", log([sample(1, "A")]))
    with pytest.raises(ResultsError, match=r"two logs of depth by openai/gpt-4o: 1\.json and 3\.json"):
        read_results(tmp_path)


# ----------------------------------------------------------------------------------------- BLINK's own, other shapes


def test_flat_predictions_have_no_key_of_their_own(tmp_path: Path) -> None:
    said = {"val_Relative_Depth_1": "(A)", "val_Relative_Depth_2": "(B)", "val_Relative_Depth_3": None}
    file = dumped(tmp_path / "llava-v1.6-34b.json", said)
    outcomes = read_results(file)
    assert [(o.letter, o.correct, o.reason) for o in outcomes] == [
        ("A", None, "unscored"), ("B", None, "unscored"), (None, None, "unscored"),
    ]  # fmt: skip
    assert {o.model for o in outcomes} == {"llava-v1.6-34b"}
    items = data(*(item(f"val_Relative_Depth_{i}", "A") for i in range(1, 5)))
    scored = read_results(file, items=items)
    assert [o.correct for o in scored] == [True, False, False]
    assert missing(scored, items) == {"Relative_Depth": ("val_Relative_Depth_4",)}


def test_glued_images_are_another_condition(tmp_path: Path) -> None:
    row = {"idx": "val_Jigsaw_1", "answer": "(A)", "full_prediction": "(A)", "prediction": "(A)"}
    dumped(tmp_path / "GPT4V" / "Jigsaw.json", {"val": [row]})
    dumped(tmp_path / "GPT4V* concatenate images" / "Jigsaw_concat.json", {"val": [row | {"full_prediction": "(B)"}]})
    apart = {run.model: run.outcomes for run in read_runs(tmp_path)}
    assert {name: (found[0].tags, found[0].n_images) for name, found in apart.items()} == {
        "GPT4V": ({}, 3),
        "GPT4V (concat)": ({"layout": "concat", "released": "A"}, 1),
    }
    dumped(tmp_path / "GPT4V" / "Jigsaw_concat.json", {"val": [row]})
    with pytest.raises(ResultsError, match=r"2 models: GPT4V, GPT4V \(concat\)"):
        make_profile(read_results(tmp_path / "GPT4V"))


def test_special_tokens_are_no_reply(tmp_path: Path) -> None:
    row = {"idx": "val_Relative_Depth_1", "answer": "(B)", "full_prediction": "<s> (B) B is closer", "prediction": "Z"}
    thinking = row | {"idx": "val_Relative_Depth_2", "full_prediction": "<think>Option (A) looks near, but"}
    outcomes = read_results(dumped(tmp_path / "m" / "Relative_Depth.json", {"val": [row, thinking]}))
    assert [(o.letter, o.reason) for o in outcomes] == [("B", None), (None, "truncated")]


# -------------------------------------------------------------------------------------------------------------- tables


def test_tables_of_other_peoples_columns(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"question_id": 1, "response": "Left.", "options": '["left", "right"]', "ground_truth": "left"},
        {"question_id": 2, "response": "(B)", "options": "['left', 'right']", "ground_truth": "B"},
        {"question_id": 3, "response": "", "options": "(A) left (B) right", "ground_truth": ""},
    ]
    files = [
        delimited(tmp_path / "csv" / "run.csv", rows),
        delimited(tmp_path / "tsv" / "run.tsv", rows),
        dumped(tmp_path / "json" / "run.json", rows),
        lines(tmp_path / "jsonl" / "run.jsonl", rows),
        xlsx(tmp_path / "xlsx" / "run.xlsx", rows),
    ]
    for file in files:
        outcomes = read_results(file)
        assert [(o.item_id, o.letter, o.gold, o.correct) for o in outcomes] == [
            ("1", "A", "A", True), ("2", "B", "B", True), ("3", None, None, None),
        ], file  # fmt: skip
        assert {(o.model, o.category, o.n_options) for o in outcomes} == {("run", "run", 2)}


def test_two_columns_for_one_field_are_never_guessed(tmp_path: Path) -> None:
    rows = [{"id": "x", "prediction": "A", "raw": "It is (B).", "answer": "A", "label": "B", "A": "near", "B": "far"}]
    file = delimited(tmp_path / "run.csv", rows)
    with pytest.raises(ResultsError, match=r"gold could be answer or label; the columns are id, prediction, raw"):
        read_results(file)
    with pytest.raises(ResultsError, match="--map gold=COLUMN"):
        read_results(file)
    (o,) = read_results(file, columns={"gold": "label", "text": "raw", "released": "prediction"})
    assert (o.letter, o.gold, o.correct, o.tags["released"]) == ("B", "B", True, "A")
    with pytest.raises(ResultsError, match="no column 'lable'"):
        read_results(file, columns={"gold": "lable"})
    with pytest.raises(ResultsError, match="no such field: 'golden'"):
        read_results(file, columns={"golden": "label"})
    with pytest.raises(ResultsError, match="vlmevalkit takes no column mapping"):
        read_results(file, "vlmevalkit", columns={"gold": "label"})
    strange = delimited(tmp_path / "strange.csv", [{"nr": 1, "said": "A", "key": "A", "of": 2}])
    mapping = {"item_id": "nr", "text": "said", "gold": "key", "n_options": "of"}
    assert read_results(strange, columns=mapping)[0].correct
    with pytest.raises(ResultsError, match="no column for text"):
        read_results(strange, columns={"item_id": "nr"})


def test_a_question_column_is_not_taken_for_the_reply(tmp_path: Path) -> None:
    row = {"id": 1, "text": "Is (A) near?", "prediction": "B", "gold": "B", "n_options": 2}
    with pytest.raises(ResultsError, match="text could be text or prediction"):
        read_results(lines(tmp_path / "r.jsonl", [row]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gold": "middle"}, "the right answer 'middle' is none of 'left', 'right'"),
        ({"gold": "C"}, "the right letter C is none of 2 options"),
        ({"id": ""}, "no id"),
        ({"choices": "left or right"}, "no list of options"),
        ({"n_options": "two"}, "expected a count"),
    ],
)
def test_wrong_cells_are_named(tmp_path: Path, change: Row, message: str) -> None:
    good = {"id": "1", "response": "A", "gold": "A", "choices": '["left", "right"]', "n_options": "2"}
    file = delimited(tmp_path / "r.csv", [good, good | change])
    with pytest.raises(ResultsError, match=message) as caught:
        read_results(file)
    assert caught.value.where == f"{file}:3"


def test_a_ragged_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("id,response,gold\n1,A,B,C\n", encoding="utf-8")
    with pytest.raises(ResultsError, match="4 cells where the head has 3"):
        read_results(tmp_path / "r.csv")
    (tmp_path / "r.csv").write_text("id,response,id\n1,A,B\n", encoding="utf-8")
    with pytest.raises(ResultsError, match="'id' comes twice"):
        read_results(tmp_path / "r.csv", "table")


def test_what_fits_nothing_is_told_what_was_looked_for(tmp_path: Path) -> None:
    file = delimited(tmp_path / "prices.csv", [{"cup": 3, "table": 40}])
    with pytest.raises(ResultsError) as caught:
        read_results(file)
    looked = caught.value.message.splitlines()[1:]
    assert [line.split(":")[0].strip() for line in looked] == [
        "blink_outputs", "inspect_ai", "jsonl", "lmms_eval", "table", "vlmevalkit",
    ]  # fmt: skip
    assert all(len(line) > 40 for line in looked)


def test_two_harnesses_in_one_folder_are_not_guessed(tmp_path: Path) -> None:
    delimited(tmp_path / "m_BLINK.tsv", [DEPTH])
    lines(tmp_path / "1_samples_blink_jigsaw.jsonl", [SAMPLE])
    with pytest.raises(ResultsError, match="could be any of lmms_eval, vlmevalkit"):
        read_results(tmp_path)
    assert len(read_results(tmp_path, "vlmevalkit")) == 1


def test_many_models_at_once(tmp_path: Path) -> None:
    for model in ("one", "two"):
        lines(tmp_path / "runs" / model / "1_samples_blink_jigsaw.jsonl", [SAMPLE, SAMPLE])
    assert [(run.model, len(run.outcomes)) for run in read_runs(tmp_path / "runs")] == [("one", 2), ("two", 2)]
    delimited(tmp_path / "flat" / "one_BLINK.tsv", [DEPTH])
    delimited(tmp_path / "flat" / "two_BLINK.tsv", [DEPTH])
    assert [run.model for run in read_runs(tmp_path / "flat")] == ["one", "two"]
    write_outcomes(tmp_path / "mixed" / "a" / "outcomes.jsonl", read_results(tmp_path / "runs" / "one"))
    write_outcomes(tmp_path / "mixed" / "b" / "outcomes.jsonl", read_results(tmp_path / "runs" / "one"))
    with pytest.raises(ResultsError, match="one comes twice: a and b"):
        read_runs(tmp_path / "mixed")


# ------------------------------------------------------------------------------------------------- items of a benchmark


def test_items_give_what_the_file_does_not(tmp_path: Path) -> None:
    """Story 9: the model was sent one image of two. Story 6: the file's key is an old one."""
    row = {"item_id": "j1", "category": "jigsaw?", "model": "m", "text": "B is closer", "gold": "A"}
    file = lines(tmp_path / "r.jsonl", [row | {"n_images": 1}, row | {"item_id": "j2"}, row | {"item_id": "j9"}])
    with pytest.raises(ResultsError, match="chance is unknown"):
        read_results(file)
    items = data(item("j1", "B", "Jigsaw", 2), item("j2", None, "Jigsaw", 2), item("j3", "A", "Jigsaw", 2))
    with pytest.raises(ResultsError, match="j9: nobody says"):
        read_results(file, items=items)
    lines(file, [row | {"n_images": 1}, row | {"item_id": "j2"}, row | {"item_id": "j9", "n_options": 2}])
    first, second, third = read_results(file, items=items)
    assert (first.category, first.skill, first.gold, first.correct) == ("Jigsaw", Skill.JIGSAW, "B", True)
    assert (first.letter, first.group, first.n_options) == ("B", "scene j1", 2)
    assert (first.tags["images"], first.n_images) == ("sent 1 of 2", 1)
    assert first.tags["file_gold"] == "A"
    assert (second.gold, second.n_images, "images" in second.tags) == ("A", 2, False)
    assert (third.tags["item"], third.category) == ("unknown", "jigsaw?")
    assert unknown([first, second, third]) == {"jigsaw?": 1}
    assert missing([first, second, third], items) == {"Jigsaw": ("j3",)}
    with pytest.raises(ResultsError, match="none of 3 rows is about an item of small"):
        read_results(file, items=data(item("k1", "A")))


def test_row_numbers_find_items_only_where_the_key_agrees(tmp_path: Path) -> None:
    """Index → nth item with a key; hidden items do not count. Another order of the same set is refused."""
    answers = "ABBABAAB"
    items = data(item("t0", None), *(item(f"v{i}x", answer) for i, answer in enumerate(answers)))
    table = [DEPTH | {"index": i, "answer": answer, "prediction": answer} for i, answer in enumerate(answers)]
    file = delimited(tmp_path / "m_BLINK.tsv", table)
    outcomes = read_results(file, items=items)
    assert [o.item_id for o in outcomes] == [f"v{i}x" for i in range(8)]
    assert all(o.correct for o in outcomes)
    delimited(file, [row | {"index": 7 - i} for i, row in enumerate(table)])
    with pytest.raises(ResultsError, match="on only 0 of 8 rows: its row numbers follow another order"):
        read_results(file, items=items)


def test_rotated_options_move_the_right_letter(tmp_path: Path) -> None:
    items = data(item("v0x", "B"), replace(item("v1x", "A"), question="Which point is farther?"))
    swapped = DEPTH | {"A": "B is closer", "B": "A is closer", "answer": "A", "prediction": "B is closer"}
    table = [DEPTH | {"index": 0}, swapped | {"index": 1_000_000}]
    first, second = read_results(delimited(tmp_path / "m_BLINK_circular.tsv", table), items=items)
    assert (first.gold, first.letter, first.item_id) == ("B", "B", "v0x")
    assert (second.gold, second.letter, second.item_id) == ("A", "A", "v0x:rotation_1")
    assert first.group == second.group == "v0x"
    # The question and its options tell the item, whatever the row's number.
    farther = DEPTH | {"index": 55, "question": "Which point is farther?", "answer": "A", "prediction": "A"}
    (found,) = read_results(delimited(tmp_path / "m_BLINK.tsv", [farther]), items=items)
    assert (found.item_id, found.correct) == ("v1x", True)


def test_names_differ_in_spelling_only(tmp_path: Path) -> None:
    """Folding keeps what tells options of any language apart."""
    assert fold("Multi-view Reasoning") == fold("Multi-view_Reasoning") == "multiviewreasoning"
    assert len({fold(text) for text in ("3个", "3只", "左", "右", "!", "?")}) == 6
    rows = [DEPTH | {"category": name} for name in ("Relative Depth", "relative_depth", "Nearness")]
    outcomes = read_results(delimited(tmp_path / "m_BLINK.tsv", rows))
    assert [o.category for o in outcomes] == ["Relative_Depth", "Relative_Depth", "Nearness"]


def test_category_and_number_name_an_item(tmp_path: Path) -> None:
    """CV-Bench and POPE number their items; ours are called after category and number."""
    items = data(item("Depth_17", "A", "Depth"), item("Depth_18", "B", "Depth"))
    table = [DEPTH | {"index": 18, "category": "Depth"}, DEPTH | {"index": 17, "category": "Depth", "answer": "A"}]
    outcomes = read_results(delimited(tmp_path / "m_CV-Bench-3D.tsv", table), items=items)
    assert [o.item_id for o in outcomes] == ["Depth_18", "Depth_17"]
    assert {o.skill for o in read_results(tmp_path / "m_CV-Bench-3D.tsv")} == {Skill.RELATIVE_DEPTH}


# ------------------------------------------------------------------------------------------------------------ outcomes


def test_letter_against_text_is_told_both_ways(tmp_path: Path) -> None:
    row = {
        "item_id": "1",
        "category": "c",
        "model": "m",
        "gold": "A",
        "choices": ["the second image", "the third image"],
    }
    (o,) = read_results(lines(tmp_path / "r.jsonl", [row | {"text": "The answer is the second image (B)."}]))
    assert (o.letter, o.reason) == (None, "conflict")
    assert (o.tags["conflict_letter"], o.tags["conflict_text"]) == ("B", "A")


def test_jsonl_keys_that_may_be_there(tmp_path: Path) -> None:
    row = {"item_id": "1", "category": "c", "model": "m", "text": "It seems", "gold": "A", "n_options": 2}
    more = {
        "prompt": "Which?", "group": "g", "truncated": True, "harness_correct": False, "tags": {"band": 3},
        "images": ["1.png", "3.png", "2.png"], "n_images": 3,
    }  # fmt: skip
    plain, full = read_results(lines(tmp_path / "r.jsonl", [row, row | more]))
    assert (plain.reason, plain.prompt_hash, plain.tags) == ("ambiguous", "", {})
    assert (full.reason, full.group, full.harness_correct) == ("truncated", "g", False)
    assert full.prompt_hash == hashlib.sha256(b"Which?").hexdigest()[:16]
    assert set(full.tags) == {"band", "image_order"}
    (fewer,) = read_results(lines(tmp_path / "r.jsonl", [row | more | {"images": ["1.png"]}]))
    assert fewer.tags["images"] == "sent 1 of 3"
    with pytest.raises(ResultsError, match="expected true, false or null under 'truncated'"):
        read_results(lines(tmp_path / "r.jsonl", [row | {"truncated": 1}]))


def test_outcomes_keep_the_new_fields(tmp_path: Path) -> None:
    (made,) = read_results(lines(tmp_path / "1_samples_blink_jigsaw.jsonl", [SAMPLE]))
    made = replace(made, judge="Z")
    bare = replace(made, judge=None, harness_correct=None, prompt_hash="", tags={}, group="")
    write_outcomes(tmp_path / "outcomes.jsonl", [made, bare])
    assert load_outcomes(tmp_path / "outcomes.jsonl") == [made, bare]
    first, second = map(json.loads, (tmp_path / "outcomes.jsonl").read_text(encoding="utf-8").splitlines())
    assert first["harness_correct"] is False
    assert not {"judge", "harness_correct", "prompt_hash"} & second.keys()
