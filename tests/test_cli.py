"""The command line: a user's mistake is one message and exit 2, never a traceback, nothing half-written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from finetune.cli import main
from synth.images import encode_jpeg
from tests.conftest import ROOT
from tests.scenes import benchmark_folder, folder_with_truth


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("world")
    folder_with_truth(root / "photos", 6)
    benchmark_folder(root / "bench", 12)
    value = {
        "name": "cli",
        "source": {"name": "folder", "path": str(root / "photos")},
        "perception": {"depth": {"name": "truth"}, "cache": None},
        "tasks": {"relative_depth": {"n": 12}},
        "guard": {"benchmark": {"name": "jsonl", "path": str(root / "bench")}},
        "output": {"validation_share": 0.0, "images_per_shard": 3},
    }
    (root / "config.yaml").write_text(yaml.safe_dump(value), encoding="utf-8")
    return root


def run(*args: str) -> int:
    return main([str(arg) for arg in args])


def test_help_names_the_verbs() -> None:
    """Half a second is promised; what it rests on is tested in test_house (nothing heavy is imported)."""
    out = subprocess.run([sys.executable, "-m", "finetune.cli", "--help"], capture_output=True, text=True, cwd=ROOT)
    assert out.returncode == 0
    for verb in ("diagnose", "plan", "generate", "audit", "guard", "view", "explain", "export", "train", "loop"):
        assert verb in out.stdout


def test_generate_view_explain_export_verify(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "dataset"
    assert run("generate", world / "config.yaml", "--out", out) == 0
    printed = capsys.readouterr().out
    assert "relative_depth" in printed and "planted" in printed
    assert run("view", out, "--limit", "5", "--out", tmp_path / "view") == 0
    assert (tmp_path / "view" / "index.html").stat().st_size > 2000
    import pyarrow.parquet as pq

    qa_id = pq.read_table(sorted((out / "data").glob("*.parquet"))[0], columns=["qa_id"])["qa_id"][0].as_py()
    capsys.readouterr()
    assert run("explain", out, qa_id) == 0
    assert "recomputed answer" in capsys.readouterr().out
    assert run("explain", out, "nope") == 2
    assert run("export", out, "--to", "llava", "--out", tmp_path / "llava") == 0
    assert run("guard", "verify", out) == 0


def test_guard_index_and_check(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = tmp_path / "index.npz"
    assert run("guard", "index", "jsonl", "--set", f"path={world / 'bench'}", "--out", index) == 0
    (tmp_path / "photos").mkdir()
    for photo in (world / "photos").glob("*.jpg"):
        (tmp_path / "photos" / photo.name).write_bytes(photo.read_bytes())
    assert run("guard", "check", tmp_path / "photos", "--index", index, "--out", tmp_path / "clean") == 0
    assert run("guard", "check", world / "bench", "--index", index, "--out", tmp_path / "hits") == 1
    lines = (tmp_path / "hits" / "verdicts.jsonl").read_text(encoding="utf-8").splitlines()
    verdicts = [json.loads(line) for line in lines]
    assert len(verdicts) == 12 and {v["verdict"] for v in verdicts} == {"copy"}
    assert {"image", "verdict", "match", "stage", "evidence"} <= set(verdicts[0])
    for name, n in (("clean", 6), ("hits", 12)):
        certificate = json.loads((tmp_path / name / "certificate.json").read_text(encoding="utf-8"))
        assert certificate["verdict"] == "not_established", "nothing was planted, so nothing is established"
        assert sum(certificate["images_by_verdict"].values()) == n


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["generate", "{world}/none.yaml"], "no such config file"),
        (["generate", "{world}/config.yaml", "--set", "sorce.path=x"], "'source'"),
        (["generate", "{world}/config.yaml", "--set", "tasks.relative_dept.n=3"], "did you mean 'relative_depth'"),
        (["generate", "{world}/config.yaml", "--set", "source.path={world}/none"], "none"),
        (["generate", "{world}/config.yaml", "--set", "guard.benchmark.path={world}/none"], "none"),
        (["generate", "{world}/config.yaml", "--set", "guard.unguarded=true"], "--unguarded"),
        (["diagnose", "{world}/config.yaml", "--out", "{world}/d"], "config.yaml"),
        (["view", "{world}", "--out", "{world}/v"], "parquet"),
        (["compare", "{world}/none", "{world}/none", "--out", "{world}/c"], "none"),
        (["plan", "--profile", "{world}/none.json", "--budget", "5", "--out", "{world}/p.json"], "none.json"),
        (["loop", "{world}/config.yaml"], "config.yaml"),
        (["evaluate", "--model", "{world}/nomodel", "--benchmark", "nobench", "--out", "{world}/e"], "nobench"),
    ],
)
def test_a_users_mistake_is_one_message(
    world: Path, tmp_path: Path, args: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [arg.format(world=world) for arg in args]
    if filled[0] == "generate":
        filled += ["--out", str(tmp_path / "out")]
    assert main(filled) in (1, 2)
    printed = capsys.readouterr()
    assert message in printed.err and "Traceback" not in printed.err
    assert not (tmp_path / "out" / "data").exists()


def test_dry_run_prints_and_writes_nothing(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("generate", world / "config.yaml", "--dry-run", "--out", tmp_path / "dry") == 0
    assert '"relative_depth"' in capsys.readouterr().out
    assert not (tmp_path / "dry").exists()


def test_audit_prints_precision(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("audit", world / "config.yaml", "--out", tmp_path / "audit") == 0
    task = json.loads((tmp_path / "audit" / "audit.json").read_text(encoding="utf-8"))["tasks"]["relative_depth"]
    assert task["precision"] == 1.0 and task["right"] == task["n"] > 5
    assert "relative_depth" in capsys.readouterr().out


def test_compare_writes_json_and_page_and_obeys_the_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from synth.diagnosis.reading import write_outcomes
    from synth.types import Outcome, Skill

    def outcomes(right: int, model: str) -> list[Outcome]:
        return [
            Outcome(
                item_id=f"i{i}",
                category="Relative_Depth",
                skill=Skill.RELATIVE_DEPTH,
                model=model,
                text="A",
                letter="A" if i < right else "B",
                reason=None,
                gold="A",
                correct=i < right,
                n_options=2,
                n_images=1,
                group=f"g{i}",
            )
            for i in range(80)
        ]

    write_outcomes(tmp_path / "before" / "outcomes.jsonl", outcomes(40, "base"))
    write_outcomes(tmp_path / "after" / "outcomes.jsonl", outcomes(70, "tuned"))
    arguments = ("--target", "relative_depth", "--gate", "--out")
    assert run("compare", tmp_path / "before", tmp_path / "after", *arguments, tmp_path / "up") == 0
    comparison = json.loads((tmp_path / "up" / "comparison.json").read_text(encoding="utf-8"))
    assert comparison["per_skill"]["relative_depth"]["delta"] == pytest.approx(30 / 80)
    assert comparison["gate"]["passed"] and "improved" in capsys.readouterr().out
    assert "37.5" in (tmp_path / "up" / "report.html").read_text(encoding="utf-8")
    assert run("compare", tmp_path / "after", tmp_path / "before", *arguments, tmp_path / "down") == 1
    assert run("compare", tmp_path / "after", tmp_path / "before", "--target", "depth", "--out", tmp_path / "x") == 2


# ---------------------------------------------------------------------------------------------------------- diagnose


def results(path: Path, right: int, model: str = "m", category: str = "Relative_Depth", n: int = 80) -> Path:
    """A result file in the general form: the first `right` replies are right; the key goes round."""
    rows = [
        {
            "item_id": f"{category}-{i}",
            "category": category,
            "model": model,
            "text": "AB"[(i + (i >= right)) % 2],
            "gold": "AB"[i % 2],
            "n_options": 2,
        }
        for i in range(n)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    return path


def read_json(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def test_diagnose_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = results(tmp_path / "run.jsonl", 70)
    assert run("diagnose", file, "--out", tmp_path / "d") == 0
    assert {path.name for path in (tmp_path / "d").iterdir()} == {"outcomes.jsonl", "profile.json", "report.html"}
    profile = read_json(tmp_path / "d" / "profile.json")
    assert profile["categories"]["Relative_Depth"]["accuracy"] == 70 / 80
    assert "Relative_Depth" in capsys.readouterr().out
    assert run("diagnose", tmp_path / "d", "--round", 1, "--routing", 0.9, "--out", tmp_path / "fold") == 0
    fold = read_json(tmp_path / "fold" / "profile.json")
    assert (fold["fold"], fold["categories"]["Relative_Depth"]["n"]) == (1, 64)
    assert fold["routing"] == ["Relative_Depth"] and profile["routing"] == []


def test_diagnose_against_a_baseline_obeys_the_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    low, high = results(tmp_path / "low.jsonl", 40), results(tmp_path / "high.jsonl", 70)
    verdicts = {}
    for before, after, gated, expected in (
        (low, high, True, 0), (high, low, True, 1), (high, low, False, 0), (low, low, True, 0),
    ):  # fmt: skip
        flags = ["--gate"] if gated else []
        assert run("diagnose", after, "--baseline", before, *flags, "--out", tmp_path / "d") == expected
        snapshot = read_json(tmp_path / "d" / "snapshot.json")
        verdicts[before.stem, after.stem] = snapshot["categories"]["Relative_Depth"]["verdict"]
        assert snapshot["gate"]["passed"] is ((before, after) != (high, low))
    assert verdicts == {
        ("low", "high"): "improved", ("high", "low"): "regressed", ("low", "low"): "no evidence",
    }  # fmt: skip
    assert "gate: Relative_Depth: regressed by 37.5 points" in capsys.readouterr().out
    assert run("diagnose", low, "--out", tmp_path / "d") == 0
    assert not (tmp_path / "d" / "snapshot.json").exists(), "of an earlier comparison, not of this run"


def test_gate_fails_on_what_cannot_be_compared(tmp_path: Path) -> None:
    before = results(tmp_path / "before.jsonl", 60)
    after = results(tmp_path / "after.jsonl", 60)
    after.write_text(after.read_text(encoding="utf-8").replace('"n_options": 2', '"n_options": 3'), encoding="utf-8")
    arguments = ("diagnose", after, "--baseline", before, "--gate", "--out", tmp_path / "d")
    assert run(*arguments) == 1
    assert "2 before, 3 after" in read_json(tmp_path / "d" / "snapshot.json")["refused"]["Relative_Depth"]
    assert run(*arguments, "--allow-refused", "Relative_Depth") == 1, "then nothing is left to pass"
    for file in (before, after):
        beside = results(tmp_path / "x.jsonl", 60, category="Counting").read_text(encoding="utf-8")
        file.write_text(file.read_text(encoding="utf-8") + beside, encoding="utf-8")
    assert run(*arguments) == 1
    assert run(*arguments, "--allow-refused", "Relative_Depth") == 0
    slightly = results(tmp_path / "slightly.jsonl", 57)
    margin = ("diagnose", slightly, "--baseline", results(tmp_path / "b.jsonl", 60), "--gate", "--out", tmp_path / "m")
    assert (run(*margin), run(*margin, "--gate-margin", 3), run(*margin, "--gate-margin", 20)) == (0, 1, 0)


def test_diagnose_several_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder each, a matrix of all; names with slashes and two runs of one model stay apart."""
    files = [
        results(tmp_path / "one.jsonl", 70, "org/big"),
        results(tmp_path / "two.jsonl", 45, "small"),
        results(tmp_path / "three.jsonl", 50, "small"),
    ]
    assert run("diagnose", *files, "--baseline", files[0], "--gate", "--out", tmp_path / "d") == 1
    assert {path.name for path in (tmp_path / "d").iterdir()} == {
        "org_big", "small_(two)", "small_(three)", "matrix.json", "matrix.html",
    }  # fmt: skip
    matrix = read_json(tmp_path / "d" / "matrix.json")
    assert dict(zip(matrix["models"], matrix["accuracy"], strict=True)) == {
        "org/big": [70 / 80], "small (two)": [45 / 80], "small (three)": [50 / 80],
    }  # fmt: skip
    assert read_json(tmp_path / "d" / "small_(two)" / "profile.json")["macro"] == 45 / 80
    passed = [
        read_json(tmp_path / "d" / name / "snapshot.json")["gate"]["passed"] for name in ("org_big", "small_(two)")
    ]
    assert passed == [True, False]
    assert "matrix.json" in capsys.readouterr().out


def test_diagnose_with_the_benchmarks_items(world: Path, tmp_path: Path) -> None:
    """The key and the pictures come from the benchmark; the file knows only ids and replies."""
    rows = [{"item_id": f"b{i}", "reply": "A"} for i in range(11)]
    file = tmp_path / "run.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    arguments = (
        "--benchmark",
        "jsonl",
        "--set",
        f"path={world / 'bench'}",
        "--map",
        "text=reply",
        "--out",
        tmp_path / "d",
    )
    assert run("diagnose", file, *arguments) == 0
    profile = read_json(tmp_path / "d" / "profile.json")
    assert profile["categories"]["Relative_Depth"]["gold"] == {"A": 6, "B": 5}
    assert any("missing" in warning and "b11" in warning for warning in profile["warnings"])
    assert "data:image/" in (tmp_path / "d" / "report.html").read_text(encoding="utf-8")


def test_diagnose_beside_a_specialist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The benchmark's pictures bear no marks, and the specialist must say so rather than guess."""
    pytest.importorskip("cv2")
    (tmp_path / "grey.jpg").write_bytes(encode_jpeg(np.full((60, 80, 3), 128, np.uint8)))
    item = {
        "item_id": "p0",
        "category": "Points",
        "skill": "visual_correspondence",
        "question": "Which point corresponds to REF?",
        "choices": ["Point A", "Point B"],
        "answer": "B",
        "images": ["grey.jpg", "grey.jpg"],
    }
    (tmp_path / "items.jsonl").write_text(json.dumps(item), encoding="utf-8")
    reply = {"item_id": "p0", "category": "Points", "model": "m", "text": "A", "gold": "B"}
    (tmp_path / "run.jsonl").write_text(json.dumps(reply), encoding="utf-8")
    (tmp_path / "specialist.yaml").write_text("points: sift\n", encoding="utf-8")
    chosen = ("--benchmark", "jsonl", "--set", f"path={tmp_path / 'items.jsonl'}")
    specialist = ("--specialist", tmp_path / "specialist.yaml")
    assert run("diagnose", tmp_path / "run.jsonl", *chosen, *specialist, "--out", tmp_path / "d") == 0
    (contrast,) = json.loads((tmp_path / "d" / "contrast.json").read_text(encoding="utf-8"))
    assert (contrast["specialist"], contrast["n"], contrast["decided"]) == ("sift", 1, 0)
    assert contrast["reasons"] == {"marks_not_found": 1}
    assert "marks_not_found" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--gate"], "--baseline"),
        (["--allow-refused", "Counting"], "--baseline"),
        (["--baseline", "{run}", "--gate-margin", "0"], "--gate-margin"),
        (["--baseline", "{run}", "--allow-refused", "Countin"], "no such category: Countin"),
        (["--baseline", "{run}.none"], "no such file"),
        (["--map", "text"], "field=column"),
        (["--set", "path=x"], "--benchmark"),
        (["--benchmark", "nobench"], "nobench"),
        (["--specialist", "{run}"], "--benchmark"),
        (["--round", "-1"], "--round"),
        (["--format", "noformat"], "noformat"),
        (["--trust-extracted"], "--trust-extracted"),
    ],
)
def test_a_diagnosis_that_makes_no_sense_is_one_message(
    tmp_path: Path, args: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = results(tmp_path / "run.jsonl", 40)
    assert run("diagnose", file, *(arg.format(run=file) for arg in args), "--out", tmp_path / "d") == 2
    printed = capsys.readouterr().err
    assert message in printed and "Traceback" not in printed
    assert not (tmp_path / "d").exists()
