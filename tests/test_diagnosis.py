"""From somebody's result files to outcomes and a profile: formats, scoring, flags, and the eight released models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from synth.benchmarks import blink
from synth.benchmarks import jsonl as jsonl_benchmark
from synth.diagnosis.profile import (
    format_table,
    key_hash,
    load_profile,
    make_profile,
    profile_from_json,
    profile_to_json,
)
from synth.diagnosis.reading import load_outcomes, read_results, read_runs, write_outcomes
from synth.errors import BenchmarkError, ConfigError, ResultsError
from synth.files import write_json
from synth.types import Outcome, Skill

PUBLISHED = {
    "GPT4V": 51.1, "GPT4o": 60.0, "GeminiProVision": 45.2, "llava-v1.6-34b": 46.8, "llava_v1.5_7b": 37.1,
    "instructblip_7b": 39.7, "Yi_VL_6B": 38.7, "cogvlm-chat": 41.5,
}  # fmt: skip
"""Means over the 14 tasks of val, from the README beside the replies."""


def outcome(i: int, gold: str | None, letter: str | None, reason: str | None = None, n_options: int = 2) -> Outcome:
    return Outcome(
        item_id=f"x{i}",
        category="Relative_Depth",
        skill=Skill.RELATIVE_DEPTH,
        model="m",
        text="",
        letter=letter,
        reason=reason,
        gold=gold,
        correct=None if gold is None else letter == gold,
        n_options=n_options,
        n_images=1,
    )


def flags(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    return make_profile(outcomes).categories[0].flags


def rows(path: Path, *lines: object) -> Path:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8")
    return path


# ----------------------------------------------------------------------------------------------- the released outputs


@pytest.fixture(scope="module")
def trusted(shared: Path) -> dict[str, list[Outcome]]:
    return {name: read_results(shared / "blink_outputs" / name, trust_released=True) for name in PUBLISHED}


def test_published_means_and_row_counts(trusted: dict[str, list[Outcome]]) -> None:
    for name, outcomes in trusted.items():
        profile = make_profile(outcomes, blink.BENCHMARK)
        assert len(outcomes) == 3807, name
        assert 100 * profile.macro == pytest.approx(PUBLISHED[name], abs=0.1), name
        assert 100 * profile.chance == pytest.approx(38.09, abs=0.01)
        assert sum(category.n for category in profile.categories) == 1901
        assert sum(category.n_unscored for category in profile.categories) == 1906
        assert profile.model == name


def test_reading_ourselves_keeps_every_row(shared: Path, trusted: dict[str, list[Outcome]]) -> None:
    """Both file-name styles; our letters leave a model's mean near the published one where replies are plain."""
    for name in ("GeminiProVision", "cogvlm-chat", "llava_v1.5_7b"):
        outcomes = read_results(shared / "blink_outputs" / name)
        assert [o.item_id for o in outcomes] == [o.item_id for o in trusted[name]]
        assert 100 * make_profile(outcomes).macro == pytest.approx(PUBLISHED[name], abs=0.5)


def test_refusals_of_gpt4v_are_not_blindness(trusted: dict[str, list[Outcome]]) -> None:
    profile = make_profile(trusted["GPT4V"], blink.BENCHMARK)
    forensic = next(c for c in profile.categories if c.name == "Forensic_Detection")
    assert (round(100 * forensic.accuracy, 1), forensic.n_answered) == (34.1, 67)
    assert round(100 * forensic.answered, 1) == 67.2
    assert forensic.reasons == {"refusal": 65}
    assert "refuses" in forensic.flags
    depth = next(c for c in profile.categories if c.name == "Relative_Depth")
    assert (round(100 * depth.low, 1), round(100 * depth.high, 1)) == (50.9, 67.9)
    assert round(100 * depth.answered, 1) == 67.9


def test_collapse_of_gpt4o_and_gemini(trusted: dict[str, list[Outcome]]) -> None:
    view = next(c for c in make_profile(trusted["GPT4o"]).categories if c.name == "Multi-view_Reasoning")
    assert view.majority_letter == "B"
    assert round(view.majority_share * view.n_answered) == 128
    assert "collapsed" in view.flags
    assert view.balanced == pytest.approx(0.542, abs=0.001)
    gemini = next(c for c in make_profile(trusted["GeminiProVision"]).categories if c.name == "Multi-view_Reasoning")
    assert (round(100 * gemini.accuracy, 2), gemini.majority_share, gemini.balanced) == (44.36, 1.0, 0.5)


def test_hidden_answers_are_unscored(trusted: dict[str, list[Outcome]]) -> None:
    hidden = [o for o in trusted["GPT4V"] if o.item_id.startswith("test_")]
    assert len(hidden) == 1906
    assert all(o.gold is None and o.correct is None and o.reason == "unscored" for o in hidden)
    assert sum(o.letter is not None for o in hidden) > 1700
    assert any(o.tags.get("reading") == "refusal" for o in hidden)
    profile = make_profile(hidden, blink.BENCHMARK)
    assert "nothing scored" in format_table(profile)
    assert all("unscored" in category.flags for category in profile.categories)
    assert "1906 items are unscored" in profile.warnings[0]


def test_old_reflectance_key_is_recognised(trusted: dict[str, list[Outcome]]) -> None:
    profile = make_profile(trusted["llava-v1.6-34b"], blink.BENCHMARK)
    flagged = [category.name for category in profile.categories if "old_key" in category.flags]
    assert flagged == ["Relative_Reflectance"]
    assert any("September 2025" in warning for warning in profile.warnings)
    items = [o for o in trusted["llava-v1.6-34b"] if o.category == "Relative_Reflectance"]
    assert key_hash(items) == key_hash(items[::-1])
    mended = [replace(o, gold="A") if o.item_id == "val_Relative_Reflectance_1" and o.gold != "A" else o for o in items]
    mended = [
        replace(o, gold="B") if o.item_id == "val_Relative_Reflectance_2" and o.gold != "B" else o for o in mended
    ]
    assert "old_key" not in make_profile(mended).categories[0].flags


def test_single_file_and_files_of_another_shape(shared: Path, tmp_path: Path) -> None:
    file = shared / "blink_outputs" / "GPT4V" / "Relative Depth.json"
    assert {o.category for o in read_results(file)} == {"Relative_Depth"}
    data = json.loads(file.read_text(encoding="utf-8"))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "Relative_Depth.json").write_text(json.dumps({"val": data["val"]}), encoding="utf-8")
    (folder / "notes.json").write_text('{"temperature": 0}', encoding="utf-8")
    (folder / "broken.json").write_text("{", encoding="utf-8")
    (folder / "README.md").write_text("idx full_prediction answer", encoding="utf-8")
    assert len(read_results(folder)) == 124


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"idx": "seven"}, "expected an idx"),
        ({"answer": "maybe"}, "expected an answer"),
        ({"full_prediction": 3}, "expected text under 'full_prediction'"),
    ],
)
def test_damaged_released_rows(tmp_path: Path, change: dict[str, object], message: str) -> None:
    good = {"idx": "val_Counting_1", "answer": "(A)", "full_prediction": "(A) 3", "prediction": "(A)"}
    file = tmp_path / "Counting.json"
    file.write_text(json.dumps({"val": [good, good | change]}), encoding="utf-8")
    with pytest.raises(ResultsError, match=message) as caught:
        read_results(file)
    assert caught.value.where == f"{file}: val[1]"


def test_cut_off_file(tmp_path: Path) -> None:
    file = tmp_path / "Counting.json"
    file.write_text('{"val": [{"idx": "val_Counting_1", "answer": "(A)",\n "full_prediction": "(A', encoding="utf-8")
    with pytest.raises(ResultsError, match="not JSON") as caught:
        read_results(file)
    assert str(file) in caught.value.where


# -------------------------------------------------------------------------------------------------------- JSON lines

ROW = {"item_id": "1", "category": "near", "model": "m", "text": "The answer is (B).", "gold": "B", "n_options": 2}


def test_jsonl_rows(tmp_path: Path) -> None:
    file = rows(
        tmp_path / "r.jsonl",
        ROW,
        "",
        ROW | {"item_id": "2", "text": "Point B", "choices": ["Point B", "Point A"], "gold": "(A)"},
        ROW | {"item_id": "3", "gold": None, "category": "Relative Depth"},
        ROW | {"item_id": "4", "text": None, "released": "A"},
        ROW | {"item_id": "5", "text": "half an emoji \ud83d B", "released": "Z", "category": "Multi-view_Reasoning"},
    )
    found = read_results(file)
    assert [o.letter for o in found] == ["B", "A", "B", "A", None]
    assert [o.correct for o in found] == [True, True, None, False, False]
    assert [o.skill for o in found] == [Skill.OTHER, Skill.OTHER, Skill.RELATIVE_DEPTH, Skill.OTHER, Skill.MULTI_VIEW]
    assert found[1].tags == {"reading": "mark_conflict"}
    assert found[2].reason == "unscored"
    assert [o.letter for o in read_results(rows(file, ROW | {"released": "Z"}), trust_released=True)] == [None]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ([1], "expected an object"),
        ({"item_id": "1", "text": "A"}, "no key category, model, gold"),
        (ROW | {"gold": "yes"}, "expected a letter or null under 'gold'"),
        (ROW | {"gold": "C"}, "none of 2 options"),
        (ROW | {"choices": "A B"}, "expected a list"),
        (ROW | {"n_options": True}, "expected a count"),
        (ROW | {"model": None}, "expected text under 'model'"),
    ],
)
def test_wrong_lines_are_named(tmp_path: Path, line: object, message: str) -> None:
    file = rows(tmp_path / "r.jsonl", ROW, line)
    with pytest.raises(ResultsError, match=message) as caught:
        read_results(file)
    assert caught.value.where == f"{file}:2"


def test_options_must_be_known(tmp_path: Path) -> None:
    row = {key: value for key, value in ROW.items() if key != "n_options"}
    with pytest.raises(ResultsError, match="chance is unknown"):
        read_results(rows(tmp_path / "r.jsonl", row))


def test_unknown_shapes_and_formats(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello", encoding="utf-8")
    with pytest.raises(ResultsError, match=r"(?s)looked for:.*blink_outputs.*jsonl"):
        read_results(tmp_path)
    with pytest.raises(ResultsError, match="no such file"):
        read_results(tmp_path / "absent")
    with pytest.raises(ConfigError, match="jsonl"):
        read_results(tmp_path, format="jsnl")
    with pytest.raises(ResultsError, match="no letters of its own"):
        read_results(rows(tmp_path / "r.jsonl", ROW), trust_released=True)
    with pytest.raises(ResultsError, match="no rows"):
        read_results(rows(tmp_path / "empty.jsonl", ""), format="jsonl")


def test_outcomes_round_trip(tmp_path: Path) -> None:
    made = [
        replace(outcome(0, "A", "A"), text="naïve 漢字\u2028line", group="g", tags={"band": "wide"}),
        replace(outcome(1, None, None, "unscored"), probabilities={"A": 0.25, "B": 0.5}),
        replace(outcome(2, "B", None, "refusal"), text=None),
    ]
    path = tmp_path / "deep" / "outcomes.jsonl"
    write_outcomes(path, made)
    assert load_outcomes(path) == made
    assert load_outcomes(path.parent) == made
    assert read_results(path) == made
    assert [p.name for p in path.parent.iterdir()] == ["outcomes.jsonl"]
    first = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    assert list(first)[:4] == ["item_id", "category", "skill", "model"]


@pytest.mark.parametrize(
    ("change", "message"),
    [({"skill": "flying"}, "no such skill"), ({"correct": 1}, "expected bool"), ({"n_options": None}, "found null")],
)
def test_wrong_outcomes_are_named(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = tmp_path / "outcomes.jsonl"
    write_outcomes(path, [outcome(0, "A", "A")])
    row = json.loads(path.read_text(encoding="utf-8"))
    rows(path, row, row | change)
    with pytest.raises(ResultsError, match=message) as caught:
        load_outcomes(path)
    assert caught.value.where == f"{path}:2"


def test_benchmark_of(shared: Path, tmp_path: Path) -> None:
    found = read_runs(shared / "blink_outputs" / "GPT4V")[0].benchmark
    assert found is not None and found.name == "blink"
    assert read_runs(rows(tmp_path / "r.jsonl", ROW))[0].benchmark is None
    path = tmp_path / "outcomes.jsonl"
    write_outcomes(path, [outcome(0, "A", "A")])
    found = read_runs(path)[0].benchmark
    assert found is not None and found.name == "blink"


# ----------------------------------------------------------------------------------------------------------- profile


def test_flag_collapse_and_its_balance() -> None:
    made = [outcome(i, "A" if i < 59 else "B", "A") for i in range(133)]
    category = make_profile(made).categories[0]
    assert {"collapsed", "one_letter", "at_chance"} <= set(category.flags)
    assert (category.balanced, round(category.accuracy, 4)) == (0.5, 0.4436)
    assert "collapsed(A)" in format_table(make_profile(made))


def test_right_about_a_skewed_key_is_no_collapse() -> None:
    assert flags([outcome(i, "A", "A") for i in range(191)]) == ("gold_skew",)


def test_flag_one_letter() -> None:
    made = [outcome(i, "AB"[i % 2], "A" if i % 5 else "B") for i in range(100)]
    assert "one_letter" in flags(made)
    assert "collapsed" not in flags(made)


def test_flags_of_silence() -> None:
    spoken = [outcome(i, "AB"[i % 2], "AB"[i % 2]) for i in range(90)]
    refused = [outcome(100 + i, "A", None, "refusal") for i in range(10)]
    unread = [outcome(200 + i, "A", None, "truncated") for i in range(10)]
    assert flags(spoken + refused) == ("refuses",)
    assert flags(spoken + refused[:9]) == ()
    assert set(flags(spoken + unread)) == {"unparsed", "truncated"}


def test_below_chance_is_about_answered_items() -> None:
    """Six of a hundred points at a wrong key; a model that mostly refuses does not."""
    assert "below_chance" in flags([outcome(i, "AB"[i % 2], "AB"[(i + (i > 5)) % 2]) for i in range(100)])
    silent = [outcome(i, "AB"[i % 2], "AB"[i % 2] if i < 6 else None, None if i < 6 else "refusal") for i in range(100)]
    assert "below_chance" not in flags(silent)


def test_chance_follows_the_options_of_each_item() -> None:
    made = [outcome(i, "A", "A", n_options=2) for i in range(50)]
    made += [outcome(50 + i, "A", "A", n_options=4) for i in range(50)]
    assert make_profile(made).chance == 0.375


def test_items_that_come_twice_count_once() -> None:
    made = [outcome(i, "A", "B") for i in range(40)] + [outcome(i, "A", "A") for i in range(40)]
    profile = make_profile(made)
    assert (profile.categories[0].n, profile.macro) == (40, 1.0)
    assert profile.warnings[0].startswith("40 items come twice")


def test_macro_and_micro_differ_and_skills_pool() -> None:
    made = [outcome(i, "A", "A") for i in range(30)]
    made += [replace(outcome(100 + i, "A", "B"), category="far") for i in range(10)]
    profile = make_profile(made, blink.BENCHMARK)
    assert (profile.macro, profile.micro) == (0.5, 0.75)
    assert [(skill.name, skill.n) for skill in profile.skills] == [("relative_depth", 40)]
    assert profile.human is None
    assert any("nothing scored of Art_Style" in warning for warning in profile.warnings)


def test_models_are_not_mixed() -> None:
    mixed = [outcome(0, "A", "A"), replace(outcome(1, "A", "A"), model="other")]
    with pytest.raises(ResultsError, match="2 models: m, other"):
        make_profile(mixed)
    assert make_profile(mixed, model="other").categories[0].n == 1
    with pytest.raises(ResultsError, match="no outcomes"):
        make_profile([])


def test_disagreement_with_the_file_is_told(tmp_path: Path) -> None:
    profile = make_profile(read_results(rows(tmp_path / "r.jsonl", ROW | {"released": "A"})))
    assert any("differ from ours on 1 of 1 items: 1 read otherwise" in warning for warning in profile.warnings)


def test_profile_json_round_trip(trusted: dict[str, list[Outcome]], tmp_path: Path) -> None:
    profile = make_profile(trusted["Yi_VL_6B"], blink.BENCHMARK)
    data = json.loads(json.dumps(profile_to_json(profile)))
    assert profile_from_json(data) == profile
    assert {"macro", "micro", "chance", "categories"} <= data.keys()
    assert {
        "skill", "n", "accuracy", "low", "high", "chance", "human", "balanced", "answered", "n_answered",
        "majority_share", "flags",
    } <= data["categories"]["Relative_Depth"].keys()  # fmt: skip
    path = tmp_path / "profile.json"
    write_json(path, profile_to_json(profile))
    assert load_profile(path) == profile
    del data["categories"]["Counting"]["low"]
    write_json(path, data)
    with pytest.raises(ResultsError, match=r"low") as caught:
        load_profile(path)
    assert caught.value.where == str(path)


# -------------------------------------------------------------------------------------------------------- benchmarks


def write_blink(folder: Path, splits: Sequence[str] = ("val", "test")) -> Path:
    """A BLINK of the right shape with made-up questions and pictures."""
    for name, task in blink.TASKS.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for split in splits:
            lines = [
                {
                    "idx": f"{split}_{name}_{i}",
                    "question": "which?",
                    "sub_task": name.replace("_", " "),
                    "choices": [f"choice {j}" for j in range(task.n_options)],
                    "answer": "hidden" if split == "test" else f"({'ABCD'[i % task.n_options]})",
                    "prompt": "which? …",
                    "explanation": "",
                }
                | {
                    f"image_{j}": {"bytes": f"{name}{split}{i // 2}.{j}".encode(), "path": ""}
                    if j <= task.images
                    else None
                    for j in range(1, 5)
                }
                for i in range(1, task.n[split] + 1)
            ]
            image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
            text = [(key, pa.string()) for key in ("idx", "question", "sub_task", "answer", "prompt", "explanation")]
            schema = pa.schema(
                [*text, ("choices", pa.list_(pa.string())), *((f"image_{j}", image) for j in range(1, 5))]
            )
            pq.write_table(pa.Table.from_pylist(lines, schema), folder / name / f"{split}-00000-of-00001.parquet")
    return folder


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_blink(tmp_path_factory.mktemp("blink"))


def test_blink_loads_in_full(copy: Path) -> None:
    seen = []
    data = blink.load(blink.Options(path=str(copy)), lambda done, total: seen.append((done, total)))
    assert len(data.items) == 1901 + 1906
    assert seen[-1] == (14, 14)
    val = [item for item in data.items if item.item_id.startswith("val_")]
    assert sum(len(item.images) for item in val) == 3675
    assert all(item.answer is None for item in data.items if item.item_id.startswith("test_"))
    depth = [item for item in val if item.category == "Relative_Depth"]
    assert depth[0].answer == "B" and depth[0].skill is Skill.RELATIVE_DEPTH
    assert depth[1].group == depth[2].group != depth[3].group
    assert blink.load(blink.Options(path=str(copy), splits=("val",)), None).revision != data.revision


def test_blink_fails_closed(copy: Path, tmp_path: Path) -> None:
    options = blink.Options(path=str(tmp_path / "part"), splits=("val",))
    with pytest.raises(BenchmarkError, match="no such folder"):
        blink.load(options, None)
    part = write_blink(tmp_path / "part", ["val"])
    file = part / "Counting" / "val-00000-of-00001.parquet"
    whole = pq.read_table(file)
    pq.write_table(whole.slice(0, 119), file)
    with pytest.raises(BenchmarkError, match="119 of 120 items of Counting val"):
        blink.load(options, None)
    pq.write_table(whole.drop_columns(["prompt"]), file)
    with pytest.raises(BenchmarkError, match="no column prompt"):
        blink.load(options, None)
    file.write_bytes(file.read_bytes()[:500])
    with pytest.raises(BenchmarkError, match="not a parquet file"):
        blink.load(options, None)
    pq.write_table(whole, file.with_name("val-00000-of-00002.parquet"))
    file.unlink()
    with pytest.raises(BenchmarkError, match="1 of 2 files"):
        blink.load(options, None)
    with pytest.raises(BenchmarkError, match=r"no test-\*\.parquet"):
        blink.load(blink.Options(path=str(part), splits=("test",)), None)


ITEM = {
    "item_id": "1", "category": "relative_depth", "question": "Which is nearer?", "choices": ["left", "right"],
    "answer": "B", "images": ["a.png"],
}  # fmt: skip


def test_jsonl_benchmark(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"picture")
    (tmp_path / "clean.png").write_bytes(b"clean")
    full = {"item_id": "2", "skill": "counting", "answer": None, "group": "g", "tags": {"k": "v"}, "prompt": "Say."}
    rows(tmp_path / "items.jsonl", ITEM, ITEM | full | {"clean_images": ["clean.png"]})
    data = jsonl_benchmark.load(jsonl_benchmark.Options(path=str(tmp_path)), None)
    first, second = data.items
    assert (first.skill, first.answer, first.images) == (Skill.RELATIVE_DEPTH, "B", (b"picture",))
    assert first.prompt == "Which is nearer?\n(A) left\n(B) right"
    assert (second.skill, second.answer, second.group, second.prompt) == (Skill.COUNTING, None, "g", "Say.")
    assert data.clean_images == {"clean.png": b"clean"}
    (tmp_path / "a.png").write_bytes(b"another picture")
    assert jsonl_benchmark.load(jsonl_benchmark.Options(path=str(tmp_path)), None).revision != data.revision


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": ["../secret.png"]}, "outside"),
        ({"images": ["link.png"]}, "outside"),
        ({"images": ["absent.png"]}, "cannot be read"),
        ({"images": []}, "0 images"),
        ({"answer": "C"}, "none of 2 letters"),
        ({"answer": ""}, "none of 2 letters"),
        ({"choices": ["one"]}, "1 choices"),
        ({"skill": "flying"}, "no such skill"),
        ({"item_id": "1"}, "comes twice"),
    ],
)
def test_jsonl_benchmark_fails_closed(tmp_path: Path, change: dict[str, object], message: str) -> None:
    folder = tmp_path / "bench"
    folder.mkdir()
    (tmp_path / "secret.png").write_bytes(b"secret")
    (folder / "a.png").write_bytes(b"picture")
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    file = rows(folder / "items.jsonl", ITEM, ITEM | {"item_id": "2"} | change)
    with pytest.raises(BenchmarkError, match=message) as caught:
        jsonl_benchmark.load(jsonl_benchmark.Options(path=str(file)), None)
    assert caught.value.where == f"{file}:2"


def test_blink_table_is_the_papers() -> None:
    assert sum(task.n["val"] for task in blink.TASKS.values()) == 1901
    assert sum(task.n["test"] for task in blink.TASKS.values()) == 1906
    assert all(len(texts) == blink.TASKS[name].n_options for name, texts in blink.CHOICES.items())
