"""Foreign benchmarks: made-up copies of every shape, read in full or refused."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from synth.benchmarks import (
    blind_spots,
    blink,
    cv_bench,
    hallusion_bench,
    medblink,
    mmstar,
    mmvp,
    pope,
    realworldqa,
    vsi_bench,
)
from synth.benchmarks._choices import letter_of, split_options, without_letters
from synth.benchmarks._tables import Pictures, Row, TableOptions, files_of, locate, open_table, read_rows
from synth.contracts import BenchmarkData
from synth.errors import BenchmarkError
from synth.guard.reading import benchmark_images
from synth.types import Skill

Cells = Mapping[str, object]
HUB = [cv_bench, mmvp, pope, hallusion_bench, mmstar, realworldqa, blink]


def picture(name: object) -> bytes:
    """Bytes that stand for an encoded picture; longer than a reference to another row."""
    return f"picture {name} ".encode() * 10


def cell(name: object) -> dict[str, object]:
    return {"bytes": picture(name), "path": None}


def parquet(file: Path, *rows: Cells) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), file)
    return file


def table(file: Path, *rows: Cells, separator: str = "\t") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, list(rows[0]), delimiter=separator)
        writer.writeheader()
        writer.writerows(rows)
    return file


def lines(file: Path, *rows: Cells) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def base64_of(name: object) -> str:
    return base64.b64encode(picture(name)).decode()


def read(module: ModuleType, path: Path, **settings: object) -> BenchmarkData:
    record = module.BENCHMARK
    data = record.load(record.options.model_validate({"path": str(path), **settings}), None)
    assert isinstance(data, BenchmarkData) and data.name == record.name
    for item in data.items:
        assert item.group and item.images and item.answer in (None, *"ABCDEFGH"[: len(item.choices)])
        assert not record.skills or item.skill is record.skills.get(item.category)
        assert len(item.choices) == record.n_options.get(item.category, len(item.choices))
        assert item.choices == record.choices.get(item.category, item.choices)
    return data


# ------------------------------------------------------------------------------------------------------ shared: choices


@pytest.mark.parametrize(
    ("text", "question", "options"),
    [
        ("What?\nOptions: A: a cat., B: a dog., C: it is 3:30", "What?", ("a cat.", "a dog.", "it is 3:30")),
        ("Hint: letter.\nQuestion: How?\nChoices:\n(A) 4\n(B) 5\n", "Hint: letter.\nQuestion: How?", ("4", "5")),
        ("Where?\n\nA. Left\nB. On.\nC. Right\nAnswer with a letter.", "Where?", ("Left", "On.", "Right")),
        ("(a) Open (b) Closed", "", ("Open", "Closed")),
        ("Is (A) or (B) nearer? (A) the left (B) the right", "Is (A) or (B) nearer?", ("the left", "the right")),
    ],
)  # fmt: skip
def test_options_in_the_question(text: str, question: str, options: tuple[str, ...]) -> None:
    assert split_options(text) == (question, options)


@pytest.mark.parametrize("text", ["How many?", "Rich in vitamin A. Poor in B. Which?", "Only one: (A) x", "(A) (B) x"])
def test_no_options_are_made_up(text: str) -> None:
    assert split_options(text) is None


def test_letters_of_answers() -> None:
    choices = ("cat", "dog", "3", "B is nearer")
    given = {"(B)": "B", "b": "B", "C.": "C", "Dog": "B", "3": "C", " b is nearer ": "D"}
    assert {text: letter_of(text, choices, "here") for text in given} == given
    assert [letter_of(value, choices, "here") for value in (None, "", "hidden")] == [None] * 3
    assert [letter_of(number, choices, "here", base=1) for number in (1, "4")] == ["A", "D"]
    for wrong, base in (("E", None), ("2", None), (0, 1), (5, 1), ("cat", 0)):
        with pytest.raises(BenchmarkError, match="is none of 4 options"):
            letter_of(wrong, choices, "here", base)
    with pytest.raises(BenchmarkError, match="more than one"):
        letter_of("A", ("B", "A"), "here")


def test_lettered_option_texts_must_be_in_order() -> None:
    assert without_letters(["A. bed", "B. chair"], "here") == ("bed", "chair")
    with pytest.raises(BenchmarkError, match="expected an option such as 'B"):
        without_letters(["A. bed", "C. chair"], "here")


# ------------------------------------------------------------------------------------------------------- shared: tables


def test_pictures_of_every_kind_keep_their_order(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(picture("file"))
    cells = {
        "struct": cell(1),
        "named": {"bytes": None, "path": "a.png"},
        "none": None,
        "listed": [cell(2), cell(3)],
        "text": base64_of(4),
        "repr": str([base64_of(5), base64_of(6)]),
    }
    row = Row(cells=cells, file=tmp_path / "t.tsv", line=0, number=0)
    names = [1, "file", 2, 3, 4, 5, 6]
    assert Pictures((tmp_path,)).of(row, *cells) == tuple(picture(name) for name in names)


def test_pictures_stay_inside_the_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(b"secret")
    inside = tmp_path / "set"
    inside.mkdir()
    (inside / "link.png").symlink_to(tmp_path / "secret.png")
    for name in ("../secret.png", "link.png", str(tmp_path / "secret.png")):
        with pytest.raises(BenchmarkError, match="outside"):
            Pictures((inside,)).file(name, "here")
    with pytest.raises(BenchmarkError, match="no such file"):
        Pictures((inside,)).file("absent.png", "here")


def test_the_hubs_cache_links_out_of_its_snapshot(tmp_path: Path) -> None:
    snapshot = tmp_path / "datasets--a--b" / "snapshots" / "1234"
    blob = tmp_path / "datasets--a--b" / "blobs" / "abcd"
    for folder in (snapshot, blob.parent):
        folder.mkdir(parents=True)
    blob.write_bytes(b"picture")
    (snapshot / "a.png").symlink_to(blob)
    (tmp_path / "secret.png").write_bytes(b"secret")
    assert Pictures((snapshot,)).file("a.png", "here") == b"picture"
    with pytest.raises(BenchmarkError, match="outside"):
        Pictures((snapshot,)).file("../../../secret.png", "here")


def test_a_table_may_name_another_rows_picture(tmp_path: Path) -> None:
    rows = [{"index": "7", "image": base64_of(7)}, {"index": "8", "image": "7"}]
    file = table(tmp_path / "t.tsv", *rows)
    assert [Pictures(()).of(row, "image") for row in read_rows([file])] == [(picture(7),)] * 2
    for lost in ("9", "8"):
        with pytest.raises(BenchmarkError, match="which has none"):
            read_rows([table(tmp_path / "t.tsv", rows[0], {"index": "8", "image": lost})])


def test_cells_longer_than_the_csv_limit_are_read_and_the_limit_stays(tmp_path: Path) -> None:
    limit = csv.field_size_limit()
    file = table(tmp_path / "t.tsv", {"index": "1", "image": base64.b64encode(b"x" * 200_000).decode()})
    assert Pictures(()).of(read_rows([file])[0], "image") == (b"x" * 200_000,)
    assert csv.field_size_limit() == limit


def test_a_lost_shard_is_refused_and_hidden_folders_are_not_read(tmp_path: Path) -> None:
    parquet(tmp_path / ".cache" / "test-x.parquet", {"a": 1})
    with pytest.raises(BenchmarkError, match=r"no \*\*/\*.parquet"):
        files_of(tmp_path, ["**/*.parquet"])
    parquet(tmp_path / "data" / "test-00001-of-00002.parquet", {"a": 1})
    with pytest.raises(BenchmarkError, match=r"1 of 2 files test-\*"):
        files_of(tmp_path, ["**/*.parquet"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.json", b'[{"a": 1}', "not JSON"),
        ("t.jsonl", b'{"a": 1}\n[1]\n', "expected an object, found list"),
        ("t.jsonl", b"\xff\xfe", "cannot be read"),
        ("t.tsv", b'a\tb\n"x\ty', "not a table"),
        ("t.parquet", b"PAR1", "not a parquet file"),
        ("t.xlsx", b"PK", "not a table"),
    ],
)
def test_damaged_tables_are_refused_with_their_place(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BenchmarkError, match=message) as caught:
        read_rows([tmp_path / name])
    assert name in caught.value.where


def test_the_revision_follows_the_table_and_its_picture_files(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"one")
    lines(tmp_path / "t.jsonl", {"image": "a.png"})

    def digest() -> str:
        opened = open_table(TableOptions(path=str(tmp_path)), "t", ["*.jsonl"])
        assert [opened.pictures.of(row, "image") for row in opened.each(None)]
        return opened.digest()

    first = digest()
    assert digest() == first
    (tmp_path / "a.png").write_bytes(b"two")
    second = digest()
    lines(tmp_path / "t.jsonl", {"image": "a.png", "more": 1})
    assert len({first, second, digest()}) == 3


@pytest.mark.parametrize("module", HUB, ids=lambda module: module.BENCHMARK.name)
def test_what_is_not_here_says_how_to_fetch_it(module: ModuleType, tmp_path: Path) -> None:
    record, revision = module.BENCHMARK, "0123456789" * 4
    repo = record.options().repo
    assert record.skills and repo.count("/") == 1
    command = f"hf download {repo} --repo-type dataset --revision {revision} "
    for settings in ({"path": str(tmp_path / "absent")}, {}):  # the second asks the hub, which is switched off in tests
        with pytest.raises(BenchmarkError) as caught:
            record.load(record.options.model_validate(settings | {"revision": revision}), None)
        assert command in caught.value.fix and caught.value.where
    with pytest.raises(BenchmarkError, match="neither a path nor a revision"):
        record.load(record.options(), None)
    with pytest.raises(ValidationError):
        record.options(revision="main")
    with pytest.raises(BenchmarkError, match="no path is set"):
        locate(TableOptions(), "x")


# ----------------------------------------------------------------------------------------------------------- benchmarks


def cv_rows() -> list[Cells]:
    one = {"type": "2D", "source": "COCO", "prompt": "P (A) 1 (B) 2"}
    answers = {"Count": "(B)", "Relation": "(A)", "Depth": "(B)", "Distance": "(A)"}
    return [
        one
        | {
            "idx": i,
            "task": task,
            "question": f"{task}?",
            "choices": ["1", "2"],
            "answer": answer,
            "image": cell(i // 2),
        }
        for i, (task, answer) in enumerate(answers.items())
    ]


def test_cv_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet(tmp_path / "test_2d.parquet", *cv_rows()[:2])
    parquet(tmp_path / "test_3d.parquet", *cv_rows()[2:])
    with pytest.raises(BenchmarkError, match="4 of 2638 items"):
        read(cv_bench, tmp_path)
    part = read(cv_bench, tmp_path, allow_partial=True)
    monkeypatch.setattr(cv_bench, "N_ITEMS", 4)
    data = read(cv_bench, tmp_path)
    assert part.revision == f"{data.revision}-partial"
    assert [item.answer for item in data.items] == ["B", "A", "B", "A"]
    assert [item.skill for item in data.items] == [
        Skill.COUNTING, Skill.SPATIAL_RELATION, Skill.RELATIVE_DEPTH, Skill.OTHER,
    ]  # fmt: skip
    assert data.items[0].prompt == "P (A) 1 (B) 2" and data.items[2].images == (picture(1),)
    groups = [item.group for item in data.items]
    assert groups[0] == groups[1] != groups[2] == groups[3]
    assert data.items[0].tags == {"type": "2D", "source": "COCO"} and data.skipped == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "Taste"}, "'Taste' is new"),
        ({"answer": "(C)"}, "none of 2 options"),
        ({"choices": ["1"], "answer": "(A)"}, "1 pictures and 1 options"),
        ({"image": {"bytes": None, "path": None}}, "0 pictures"),
        ({"image": {"bytes": None, "path": "away.png"}}, "'away.png' cannot be read"),
        ({"question": ""}, "nothing in the column question"),
    ],
)
def test_one_wrong_row_is_one_refused_benchmark(tmp_path: Path, change: Cells, message: str) -> None:
    lines_ = [cv_rows()[0], {**cv_rows()[1], **change}]
    parquet(tmp_path / "test_2d.parquet", lines_[0])
    parquet(tmp_path / "test_3d.parquet", lines_[1])
    with pytest.raises(BenchmarkError, match=message):
        read(cv_bench, tmp_path, allow_partial=True)


def test_an_item_twice_is_refused(tmp_path: Path) -> None:
    for name in ("test_2d.parquet", "copy/test_2d.parquet"):
        parquet(tmp_path / name, *cv_rows())
    with pytest.raises(BenchmarkError, match="4 items come twice"):
        read(cv_bench, tmp_path, allow_partial=True)


def test_mmvp(tmp_path: Path) -> None:
    names = range(1, 301)
    for number in names:
        file = tmp_path / "MMVP Images" / f"{number}.jpg"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(picture(number))
    rows = [
        {
            "Index": i,
            "Question": "Which?",
            "Options": "(a) Open (b) Closed",
            "Correct Answer": "(b)" if i % 2 else "(a)",
        }
        for i in names
    ]
    table(tmp_path / "Questions.csv", *rows, separator=",")
    data = read(mmvp, tmp_path)
    assert [item.answer for item in data.items[:3]] == ["B", "A", "B"]
    assert data.items[9].images == (picture(10),), "by the file's name, not by the order of names"
    assert data.items[0].choices == ("Open", "Closed") and data.items[0].prompt == "Which?\n(A) Open\n(B) Closed"
    assert len({item.group for item in data.items}) == 150
    assert data.items[98].group == data.items[99].group != data.items[100].group
    assert {item.item_id for item in data.items if "suspect" in item.tags} == {"99", "100", "279", "280"}
    table(tmp_path / "Questions.csv", *rows[:-1], separator=",")
    with pytest.raises(BenchmarkError, match="299 of 300 items"):
        read(mmvp, tmp_path)


def test_pope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pope, "N_ITEMS", 6)
    rows = [
        {"question_id": str(i), "question": "Is there a cat?", "answer": answer, "category": kind, "image": cell(i)}
        for kind in pope.CATEGORIES
        for i, answer in enumerate(("yes", "no"))
    ]
    data = read(pope, parquet(tmp_path / "test-00000-of-00001.parquet", *rows))
    assert [item.answer for item in data.items] == ["A", "B"] * 3
    assert data.items[0].group == data.items[2].group != data.items[1].group
    assert data.items[5].item_id == "adversarial_1" and data.items[5].skill is Skill.EXISTENCE
    (tmp_path / "coco").mkdir()
    for i in range(2):
        (tmp_path / "coco" / f"{i}.jpg").write_bytes(picture(i))
    for kind in pope.CATEGORIES:
        texts = [{"question_id": i, "image": f"{i}.jpg", "text": "Cat?", "label": "no"} for i in range(2)]
        lines(tmp_path / "own" / f"coco_pope_{kind}.json", *texts)
    own = read(pope, tmp_path / "own", pictures=str(tmp_path / "coco"))
    assert {item.item_id for item in own.items} == {item.item_id for item in data.items}
    assert own.items[1].images == (picture(1),) and own.items[0].answer == "B"


def test_hallusion_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hallusion_bench, "N_ITEMS", 2)
    one = {"category": "VS", "subcategory": "chart", "set_id": "0", "question_id": "1", "question": "Is it?"}
    rows = [
        one | {"figure_id": "0", "visual_input": "0", "gt_answer": "1", "filename": None},
        one | {"figure_id": "1", "visual_input": "1", "gt_answer": "1", "filename": "./VS/chart/0_1.png"},
        one | {"figure_id": "2", "visual_input": "2", "gt_answer": "0", "filename": "./VS/chart/0_2.png"},
    ]
    for number in (1, 2):
        file = tmp_path / "VS" / "chart" / f"0_{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(picture(number))
    (tmp_path / "HallusionBench.json").write_text(json.dumps(rows), encoding="utf-8")
    data = read(hallusion_bench, tmp_path)
    assert data.skipped == {"no figure": 1}
    assert [(item.item_id, item.answer) for item in data.items] == [("VS_chart_0_1_1", "A"), ("VS_chart_0_2_1", "B")]
    assert [item.tags["visual_input"] for item in data.items] == ["original", "edited"]
    assert data.items[0].images == (picture(1),) and data.items[0].group == data.items[1].group == "VS_chart_0"
    other = {"category": "VS", "l2-category": "chart", "question": "Is it?", "answer": "No"}
    tsv = [other | {"index": f"0_{i}_1", "image": base64_of(i)} for i in (1, 2)]
    again = read(hallusion_bench, table(tmp_path / "other" / "HallusionBench.tsv", *tsv))
    assert [item.item_id for item in again.items] == [item.item_id for item in data.items]
    assert again.items[0].group == "VS_chart_0" and again.items[1].answer == "B"
    (tmp_path / "VS" / "chart" / "0_2.png").unlink()
    with pytest.raises(BenchmarkError, match=r"0_2\.png' cannot be read"):
        read(hallusion_bench, tmp_path)


def test_mmstar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mmstar, "N_PER_CATEGORY", 1)
    text = "What is it?\nOptions: A: a cat, B: a dog, C: a cow"
    rows = [
        {"index": i, "question": text, "image": cell(i), "answer": "C", "category": kind, "l2_category": "axis"}
        for i, kind in enumerate(mmstar.CATEGORIES)
    ]
    rows[1]["answer"] = "D"  # beyond what was read: then the options were read wrong
    data = read(mmstar, parquet(tmp_path / "mmstar.parquet", *rows))
    assert [item.item_id for item in data.items] == ["0", "2", "3", "4", "5"]
    first = data.items[0]
    assert (first.question, first.choices, first.answer) == ("What is it?", ("a cat", "a dog", "a cow"), "C")
    assert first.prompt == text and first.tags == {"axis": "axis"}
    assert data.skipped == {"options cannot be told apart": 1}
    assert set(dict(benchmark_images(data)).values()) == {picture(i) for i in range(6)}, "the guard knows all of them"
    tsv = [
        {"index": i, "image": base64_of(i), "question": "What?", "A": "x", "B": "y", "C": "", "D": "", "answer": "B",
         "category": kind}
        for i, kind in enumerate(mmstar.CATEGORIES)
    ]  # fmt: skip
    other = read(mmstar, table(tmp_path / "MMStar.tsv", *tsv))
    assert other.items[0].prompt == "What?\n(A) x\n(B) y" and other.items[0].answer == "B" and not other.skipped
    with pytest.raises(BenchmarkError, match="0 of 1 rows of math"):
        read(mmstar, parquet(tmp_path / "mmstar.parquet", *rows[:-1]))


def test_realworldqa(tmp_path: Path) -> None:
    ask = "Where?\n\nA. Left\nB. Right\nPlease answer directly with only the letter."
    rows = [
        {"question": ask, "answer": "B", "image": cell(0)},
        {"question": "How many? A single number.", "answer": "3", "image": cell(1)},
        {"question": "Which letter is on the sign?", "answer": "P", "image": cell(2)},
    ]
    file = parquet(tmp_path / "test-00000-of-00001.parquet", *rows)
    with pytest.raises(BenchmarkError, match="3 of 765 rows"):
        read(realworldqa, file)
    data = read(realworldqa, file, allow_partial=True)
    (item,) = data.items
    assert (item.item_id, item.choices, item.answer, item.prompt) == ("0", ("Left", "Right"), "B", ask)
    assert data.skipped == {"free answer": 1, "options cannot be told apart": 1}
    assert data.clean_images == {"1": picture(1), "2": picture(2)}


def test_vsi_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vsi_bench, "N_ROWS", 3)
    for scene, n in {"s1": 9, "s2": 1}.items():
        for number in range(n):
            file = tmp_path / "frames" / "scannet" / scene / f"{number:05d}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(picture(f"{scene} {number}"))
    one = {"dataset": "scannet", "scene_name": "s1", "question": "Where is the bed?"}
    rows: Sequence[Cells] = [
        one | {"id": 1, "question_type": "object_counting", "options": None, "ground_truth": "4"},
        one
        | {"id": 2, "question_type": "object_rel_direction_easy", "options": ["A. left", "B. right"],
           "ground_truth": "B", "pruned": True},
        one
        | {"id": 3, "question_type": "route_planning", "options": ["A. back", "B. on", "C. up"], "ground_truth": "A",
           "scene_name": "s2"},
    ]  # fmt: skip
    lines(tmp_path / "test.jsonl", *rows)
    data = read(vsi_bench, tmp_path, frames=str(tmp_path / "frames"), n_frames=3)
    first, second = data.items
    assert first.images == tuple(picture(f"s1 {number}") for number in (1, 4, 7))
    assert (first.choices, first.answer, first.group) == (("left", "right"), "B", "scannet/s1")
    assert first.skill is Skill.SPATIAL_RELATION and first.tags == {"pruned": "true"}
    assert second.images == (picture("s2 0"),) and second.group == "scannet/s2"
    assert data.skipped == {"numeric answer": 1} and len(data.clean_images) == 10
    assert data.revision != read(vsi_bench, tmp_path, frames=str(tmp_path / "frames"), n_frames=2).revision
    lines(tmp_path / "test.jsonl", *rows, {**rows[0], "scene_name": "s3"})
    with pytest.raises(BenchmarkError, match="no frames of this scene") as caught:
        read(vsi_bench, tmp_path, frames=str(tmp_path / "frames"))
    assert "ffmpeg -i scannet/s3.mp4" in caught.value.fix


def test_medblink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(medblink, "N_ITEMS", 4)
    rows = [
        {"q": "Which way up? (A) up (B) down", "key": "B", "kind": "orientation", "views": [cell(1), cell(2)]},
        {"q": "Contrast agent?", "key": "Yes", "kind": "contrast", "views": [cell(3)]},
        {"q": "Contrast agent?", "key": "no", "kind": "contrast", "views": [cell(4)]},
        {"q": "How old?", "key": "12", "kind": "age", "views": [cell(5)]},
    ]
    file = parquet(tmp_path / "val.parquet", *rows)
    columns = {"question": "q", "answer": "key", "images": ["views"], "category": "kind"}
    skills = {"orientation": "spatial_relation"}
    plain = read(medblink, file, columns=columns)
    assert plain.skipped == {"no options": 3} and len(plain.items) == 1
    data = read(medblink, file, columns=columns, answers_are_choices=True, skills=skills)
    assert [item.answer for item in data.items] == ["B", "B", "A"] and data.items[1].choices == ("no", "yes")
    assert data.items[0].images == (picture(1), picture(2)) and data.items[0].skill is Skill.SPATIAL_RELATION
    assert data.items[1].skill is Skill.OTHER and data.skipped == {"no options": 1}
    assert data.clean_images == {"3": picture(5)}
    with pytest.raises(BenchmarkError, match="no column question") as caught:
        read(medblink, file, columns=columns | {"question": "question"})
    assert "q, key, kind, views" in caught.value.fix
    listed = {"q": "Which?", "key": 2, "kind": "age", "views": [cell(5)], "texts": ["old", "young"]}
    numbered = read(
        medblink,
        parquet(tmp_path / "listed.parquet", listed),
        columns=columns | {"choices": "texts"},
        first_option=1,
        allow_partial=True,
    )
    assert numbered.items[0].answer == "B" and numbered.revision.endswith("-partial")


SPOT = {
    "id": "1", "task_type": "spatial reasoning", "input": "Which is left? (A) cup (B) jug", "images": ["a.png"],
    "reference": {"answer": "B", "must": [], "must_not": []}, "dims": ["correct"], "scorer": "rule", "holdout_fold": 3,
    "status": "active", "first_seen": "2026-07-01",
}  # fmt: skip


def test_blind_spots(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.png").write_bytes(picture(name))
    changes: list[dict[str, object]] = [
        {},
        {"task_type": "counting", "input": "How many?", "choices": ["2", "5"], "reference": {"answer": "5"}},
        {"status": "retired", "images": ["b.png"]},
        {"scorer": "judge"},
        {"reference": {"must": [{"attr": "length", "op": "=", "value": 5}]}},
        {"images": []},
        {"input": "How many?"},
    ]
    rows = [SPOT | change | {"id": str(number)} for number, change in enumerate(changes)]
    data = read(blind_spots, lines(tmp_path / "items.jsonl", *rows).parent)
    assert [item.answer for item in data.items] == ["B", "B"]
    assert [item.skill for item in data.items] == [Skill.SPATIAL_RELATION, Skill.COUNTING]
    assert data.items[0].tags == {"fold": "3", "first_seen": "2026-07-01"}
    reasons = ("retired", "needs a judge", "no reference answer", "no picture", "no options")
    assert data.skipped == dict.fromkeys(reasons, 1)
    assert data.clean_images["2"] == picture("b")
    for change, message in (
        ({"holdout_fold": 5}, "holdout_fold '5' is new"),
        ({"status": "resting"}, "status 'resting' is new"),
        ({"reference": "B"}, "expected an object under reference"),
    ):
        lines(tmp_path / "items.jsonl", SPOT | change)
        with pytest.raises(BenchmarkError, match=message):
            read(blind_spots, tmp_path)


def blink_rows() -> list[Cells]:
    """One row of every task, with as many pictures and options as the task has."""
    rows: list[Cells] = []
    for number, (name, task) in enumerate(blink.TASKS.items()):
        images = [base64_of(f"{name} {i}") for i in range(task.images)]
        options = {letter: f"option {letter}" if i < task.n_options else "" for i, letter in enumerate("ABCD")}
        image = images[0] if len(images) == 1 else str(images)
        answer = "AB"[number % 2]
        rows.append(
            {"index": number, "image": image, "question": "Which?", **options, "answer": answer, "category": name}
        )
    return rows


def test_blink_as_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = table(tmp_path / "BLINK.tsv", *blink_rows())
    with pytest.raises(BenchmarkError, match="val alone") as caught:
        read(blink, tmp_path)
    assert "hf download BLINK-Benchmark/BLINK" in caught.value.fix
    with pytest.raises(BenchmarkError, match="1 of 135 items of Visual_Similarity val"):
        read(blink, tmp_path, splits=["val"])
    options = blink.Options(path=str(file), splits=("val",), allow_partial=True)
    data = blink.load(options, None)
    jigsaw = next(item for item in data.items if item.category == "Jigsaw")
    assert jigsaw.images == tuple(picture(f"Jigsaw {i}") for i in range(3)) and jigsaw.answer == "B"
    assert jigsaw.prompt == "Which?\nSelect from the following choices.\n(A) option A\n(B) option B"
    assert {len(item.choices) == blink.TASKS[item.category].n_options for item in data.items} == {True}
    assert data.revision.endswith("-val-unknown_key-partial")
    monkeypatch.setattr(blink, "_TSV_NEW", hashlib.md5(file.read_bytes()).hexdigest())
    assert blink.load(options, None).revision == data.revision.replace("-unknown_key", "")


def test_blink_with_the_old_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = table(tmp_path / "BLINK.tsv", *blink_rows())
    monkeypatch.setattr(blink, "_TSV_OLD", hashlib.md5(file.read_bytes()).hexdigest())
    with pytest.raises(BenchmarkError, match="wrong answers of Relative_Reflectance") as caught:
        read(blink, tmp_path, splits=["val"], allow_partial=True)
    assert "d5e8af14" in caught.value.fix
