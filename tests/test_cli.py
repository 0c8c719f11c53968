"""The command line: a user's mistake is one message and exit 2, never a traceback, nothing half-written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from finetune.cli import main
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
