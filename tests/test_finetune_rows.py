"""Rows for the trainer, the control arm's shuffle, and what the preflight refuses."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from finetune.controls import control_rows, shuffle_answers
from finetune.families import family_of
from finetune.loading import load_processor
from finetune.preflight import preflight
from finetune.rows import read_rows, require_certificate
from synth.dataset.prompt import completion_messages, item_prompt, prompt_messages
from synth.errors import ConfigError, DatasetError
from tests.small_vlms import colour_rows, png, small_llava, write_rows


@pytest.fixture(scope="module")
def processor(tmp_path_factory: pytest.TempPathFactory):
    return load_processor(str(small_llava(tmp_path_factory.mktemp("vlm") / "llava")), "llava")


def check(rows: list[dict[str, object]], folder: Path, processor, *, max_length: int | None = None, context: int = 512):
    from trl.trainer.sft_trainer import DataCollatorForVisionLanguageModeling

    collator = DataCollatorForVisionLanguageModeling(processor, max_length=max_length, completion_only_loss=True)
    dataset = read_rows(write_rows(folder / "dataset", rows), cache=folder / "cache")
    return preflight(dataset, processor, collator, context=context, batch_size=4)


def test_prompt_lists_options_by_letter() -> None:
    assert item_prompt("Which?", ["left", "right"]) == "Which?\n(A) left\n(B) right"
    content = prompt_messages("Which?", ["left", "right"], 2)[0]["content"]
    assert [block["type"] for block in content] == ["image", "image", "text"]


def test_rows_keep_what_names_them_and_hold_pictures(tmp_path: Path) -> None:
    source = colour_rows(7)
    rows = read_rows(write_rows(tmp_path / "d", source), cache=tmp_path / "cache")
    assert len(rows) == 7
    assert {"images", "prompt", "completion", "qa_id", "answer"} <= set(rows.column_names)
    assert "provenance" not in rows.column_names
    row = rows[2]
    assert [image.size for image in row["images"]] == [(32, 32), (32, 32)]
    assert row["completion"] == completion_messages(source[2]["answer"])
    assert row["prompt"][0]["content"][0] == {"type": "image", "text": None}


def test_foreign_parquet_is_refused_by_its_missing_columns(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "data" / "train-00000-of-00001.parquet")
    with pytest.raises(DatasetError, match="columns are missing: images, prompt"):
        read_rows(tmp_path, cache=tmp_path / "cache")
    with pytest.raises(DatasetError, match="no data/test-"):
        read_rows(tmp_path, "test")


def test_shuffle_keeps_letters_of_each_group_and_spares_replay(tmp_path: Path) -> None:
    source = colour_rows(120)
    rows = read_rows(write_rows(tmp_path / "d", source), cache=tmp_path / "cache")
    shuffled = shuffle_answers(rows, seed=3)
    old, new = rows["answer"], shuffled["answer"]
    target = [i for i, row in enumerate(source) if row["role"] == "target"]
    assert Counter(old[i] for i in target) == Counter(new[i] for i in target)
    assert sum(old[i] != new[i] for i in target) > len(target) / 4
    assert all(old[i] == new[i] for i, row in enumerate(source) if row["role"] == "replay")
    assert all(shuffled[i]["completion"] == completion_messages(new[i]) for i in range(0, 120, 11))
    assert list(shuffle_answers(rows, seed=3)["answer"]) == list(new)
    assert list(shuffle_answers(rows, seed=4)["answer"]) != list(new)
    assert shuffled.features == rows.features


def test_shuffled_answers_agree_with_the_truth_as_often_as_chance_exactly(tmp_path: Path) -> None:
    rows = read_rows(write_rows(tmp_path / "d", colour_rows(240)), cache=tmp_path / "cache")
    for seed in range(5):
        target = [i for i, role in enumerate(rows["role"]) if role == "target"]
        pairs = [(rows["answer"][i], letter) for i, letter in enumerate(shuffle_answers(rows, seed)["answer"])]
        table = Counter(pairs[i] for i in target)
        letters = Counter(rows["answer"][i] for i in target)
        for (old, new), n in table.items():
            assert abs(n - letters[old] * letters[new] / len(target)) <= 1, (old, new, n)


def test_shuffle_never_gives_a_letter_that_a_row_does_not_offer(tmp_path: Path) -> None:
    source = colour_rows(60)
    for i, row in enumerate(source):
        if i % 2:
            row.update(choices=["red", "blue", "green", "white"], answer="D", completion=completion_messages("D"))
    shuffled = shuffle_answers(read_rows(write_rows(tmp_path / "d", source), cache=tmp_path / "cache"), seed=0)
    assert all(row["answer"] in "ABCD"[: len(row["choices"])] for row in shuffled.select_columns(["answer", "choices"]))


def test_other_rows_are_as_many_and_none_of_them_is_of_the_target(tmp_path: Path) -> None:
    rows = read_rows(write_rows(tmp_path / "d", colour_rows(90)), cache=tmp_path / "cache")
    other = control_rows(rows, "other", 0, tmp_path)
    assert len(other) == 90 and set(other["role"]) == {"replay"}
    times = Counter(other["qa_id"])
    assert max(times.values()) - min(times.values()) <= 1 and set(times) == {
        name for name, role in zip(rows["qa_id"], rows["role"], strict=True) if role == "replay"
    }
    with pytest.raises(DatasetError, match="no"):
        control_rows(rows.filter(lambda row: row["role"] == "target"), "other", 0, tmp_path)


def test_grey_pictures_have_the_same_size_and_nothing_in_them(tmp_path: Path) -> None:
    rows = read_rows(write_rows(tmp_path / "d", colour_rows(30)), cache=tmp_path / "cache")
    grey = control_rows(rows, "grey", 0, tmp_path / "grey")
    assert grey["answer"] == rows["answer"] and grey.features == rows.features
    for old, new in zip(rows, grey, strict=True):
        for before, after in zip(old["images"], new["images"], strict=True):
            assert before.size == after.size
            assert (after.getextrema() == ((128, 128),) * 3) == (old["role"] == "target")


@pytest.mark.parametrize(("verdict", "said"), [(None, "no certificate"), ("unguarded", "unguarded")])
def test_only_a_clean_certificate_opens_the_training(tmp_path: Path, verdict: str | None, said: str) -> None:
    require_certificate(write_rows(tmp_path / "clean", colour_rows(4)))
    with pytest.raises(DatasetError, match=said):
        require_certificate(write_rows(tmp_path / "other", colour_rows(4), verdict))
    (tmp_path / "clean" / "certificate.json").write_text("{")
    with pytest.raises(DatasetError, match="not readable"):
        require_certificate(tmp_path / "clean")


def test_preflight_reports_what_is_trained(tmp_path: Path, processor) -> None:
    rows = colour_rows(20)
    rows[11]["images"] = [{"bytes": png((250, 10, 10), 90, 50), "path": None}] * len(rows[11]["images"])
    report = check(rows, tmp_path, processor)
    assert report.rows == 20
    assert report.supervised == (" A<end>\n", " B<end>\n")
    assert report.first_rows[0].startswith("User:<image>x16Which colour")
    assert report.longest_tokens > 16 * 2
    assert not report.warnings


def test_truncation_that_eats_the_answer_is_refused(tmp_path: Path, processor) -> None:
    with pytest.raises(DatasetError, match="no supervised token") as error:
        check(colour_rows(8), tmp_path, processor, max_length=30)
    assert "max_length" in error.value.fix
    assert error.value.where.startswith("row qa-")


def test_a_single_row_that_max_length_would_cut_is_found(tmp_path: Path, processor) -> None:
    rows = colour_rows(200)
    question = " ".join(["Which colour is the picture?"] * 12)
    rows[137].update(prompt=prompt_messages(question, ["red", "blue"], len(rows[137]["images"])))
    with pytest.raises(DatasetError, match="no supervised token") as error:
        check(rows, tmp_path, processor, max_length=100)
    assert error.value.where == "row qa-0137"


def test_a_row_beyond_the_context_is_refused(tmp_path: Path, processor) -> None:
    with pytest.raises(DatasetError, match="does not fit into the model's 40 positions"):
        check(colour_rows(8), tmp_path, processor, context=40)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"completion": completion_messages("")}, "completion is empty"),
        ({"completion": completion_messages("A "), "answer": "A"}, "the completion is 'A '"),
        ({"completion": completion_messages("D"), "answer": "D"}, "not one of 2 choices"),
        ({"images": []}, "1 image placeholders for 0 images"),
        ({"prompt": prompt_messages("Is <image> red?", ["yes", "no"], 1)}, "special token '<image>'"),
        ({"prompt": prompt_messages("Is it<end> red?", ["yes", "no"], 1)}, "special token '<end>'"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, processor, change: dict[str, object], said: str) -> None:
    rows = colour_rows(6)
    rows[4].update(change)
    with pytest.raises(DatasetError, match=said) as error:
        check(rows, tmp_path, processor)
    assert error.value.where == "row qa-0004"


def test_image_budget_by_family() -> None:
    qwen = family_of("qwen2_5_vl").image_budget
    assert qwen({"size": {"shortest_edge": 3136, "longest_edge": 1003520}}, 200_000) == {
        "size": {"shortest_edge": 3136, "longest_edge": 200_000}
    }
    other = family_of("smolvlm").image_budget
    assert other({"size": {"longest_edge": 1456}}, 512 * 512) == {"size": {"longest_edge": 512}}
    assert other({"size": {"longest_edge": 300}}, 512 * 512) == {"size": {"longest_edge": 300}}
    tiled = {"size": {"height": 448, "width": 448}, "crop_to_patches": True, "max_patches": 12}
    assert other(tiled, 3 * 448 * 448) == {"max_patches": 3}
    clip = {"size": {"shortest_edge": 336}, "do_center_crop": True, "crop_size": {"height": 336, "width": 336}}
    assert other(clip, 336 * 336) == {}
    with pytest.raises(ConfigError, match="336x336"):
        other(clip, 300 * 300)


def test_image_budget_is_saved_with_the_processor(tmp_path: Path) -> None:
    from tests.small_vlms import small_qwen

    folder = str(small_qwen(tmp_path / "qwen"))
    load_processor(folder, "qwen2_5_vl", 32 * 32).save_pretrained(tmp_path / "saved")
    saved = json.loads((tmp_path / "saved" / "processor_config.json").read_text())
    assert saved["image_processor"]["size"] == {"shortest_edge": 256, "longest_edge": 1024}
    from PIL import Image

    counts = {}
    for path in (folder, str(tmp_path / "saved")):
        loaded = load_processor(path, "qwen2_5_vl")
        text = loaded.apply_chat_template(prompt_messages("x", [], 1), tokenize=False)
        ids = loaded(images=[[Image.new("RGB", (200, 200))]], text=[text])["input_ids"][0]
        counts[path] = ids.count(loaded.tokenizer.convert_tokens_to_ids("<|image_pad|>"))
    assert list(counts.values()) == [16, 4]
