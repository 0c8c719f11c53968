"""The generate run: every image accounted for, the same bytes whatever happens, nothing written without a guard."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from synth.dataset.assemble import Light, band_of, choose_quota
from synth.dataset.shards import data_files, read_rows
from synth.errors import GateFailed, GuardError, RunError, S2PError, SourceError
from synth.findings import Quota
from synth.images import decode
from synth.pipeline import generate, preview
from synth.recipe import Recipe
from synth.types import Skill
from tests.conftest import ROOT
from tests.scenes import benchmark_folder, folder_with_truth

N_PHOTOS = 14


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos with truth, one damaged file, one benchmark image hidden among them (in a group of two)."""
    root = tmp_path_factory.mktemp("world")
    folder_with_truth(root / "photos", N_PHOTOS, group_of=2)
    (root / "photos" / "damaged.jpg").write_bytes((root / "photos" / "photo_000.jpg").read_bytes()[:900])
    bench = benchmark_folder(root / "bench", 14)
    stolen = (bench / "bench_3.jpg").read_bytes()
    (root / "photos" / "photo_005.jpg").write_bytes(stolen)  # shares group g2 with photo_004
    return root


def recipe(world: Path, **changes: object) -> Recipe:
    value: dict[str, object] = {
        "name": "test",
        "seed": 3,
        "source": {"name": "folder", "path": str(world / "photos")},
        "perception": {
            "depth": {"name": "truth"},
            "regions": {"name": "truth"},
            "matches": {"name": "homography"},
            "cache": None,
        },
        "tasks": {"relative_depth": {"n": 30}, "visual_correspondence": {"n": 12}},
        "guard": {"benchmark": {"name": "jsonl", "path": str(world / "bench")}},
        "output": {"images_per_shard": 4, "validation_share": 0.2, "evidence": 2},
    }
    return Recipe.model_validate({**value, **changes})


@pytest.fixture(scope="module")
def finished(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out") / "dataset"
    generate(recipe(world), out)
    return out


def digest(dataset: Path) -> dict[str, str]:
    files = [*data_files(dataset), dataset / "drops.parquet", dataset / "README.md"]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def manifest(dataset: Path) -> dict:
    return json.loads((dataset / "manifest.json").read_text(encoding="utf-8"))


def test_rows_are_whole_and_their_answers_recompute(finished: Path) -> None:
    from synth.dataset.explain import explain

    rows = list(read_rows(finished))
    assert len(rows) == manifest(finished)["pairs"]["kept"] > 20
    for row in rows:
        assert row["answer"] in "ABCD"[: len(row["choices"])]
        assert row["completion"][0]["content"][0]["text"] == row["answer"]
        blocks = row["prompt"][0]["content"]
        assert [b["type"] for b in blocks] == ["image"] * len(row["images"]) + ["text"]
        assert row["question"] in blocks[-1]["text"] and all(c in blocks[-1]["text"] for c in row["choices"])
        for image in row["images"]:
            assert decode(image["bytes"]).ndim == 3
        assert row["license"] == "CC0-1.0" and row["guarded"]
        assert explain(finished, row["qa_id"]).agrees


def test_the_benchmark_image_and_its_group_are_thrown_out_and_the_damaged_file_has_its_reason(finished: Path) -> None:
    drops = pq.read_table(finished / "drops.parquet").to_pylist()
    whole = {d["image"].split("/")[-1].removesuffix(".jpg"): d["reason"] for d in drops if not d["task"]}
    assert whole == {
        "photo_005": "benchmark_copy",
        "photo_004": "benchmark_group",
        "damaged": "truncated",
    }
    groups = {row["source_group"] for row in read_rows(finished, ["source_group"])}
    assert "g2" not in groups and len(groups) >= 4
    guard = manifest(finished)["guard"]
    assert guard["planted"] == guard["found"] >= 10
    assert guard["removed"] == {"benchmark_copy": 1, "benchmark_group": 1}


def test_every_planned_image_is_accounted_for_once(finished: Path) -> None:
    images = manifest(finished)["images"]
    assert images == {"listed": N_PHOTOS + 1, "used": N_PHOTOS - 2, "dropped": 3}


def test_splits_never_share_a_source_group(finished: Path) -> None:
    by_split: dict[str, set[str]] = {}
    for path in data_files(finished):
        split = path.name.split("-")[0]
        by_split.setdefault(split, set()).update(
            pq.read_table(path, columns=["source_group"])["source_group"].to_pylist()
        )
    assert set(by_split) == {"train", "validation"}
    assert not by_split["train"] & by_split["validation"]


def test_letters_and_strata_are_balanced(finished: Path) -> None:
    pairs = manifest(finished)["pairs"]
    letters = pairs["letters"]["relative_depth"]
    assert abs(letters["A"] - letters["B"]) <= 2
    strata = pairs["strata"]["relative_depth"]
    assert abs(strata["lower"] - strata["higher"]) <= 2


def test_the_same_bytes_with_two_workers(world: Path, finished: Path, tmp_path: Path) -> None:
    generate(recipe(world, engine={"workers": 2}), tmp_path / "two")
    assert digest(tmp_path / "two") == digest(finished)


def test_shares_of_difficulty_are_kept_and_a_lacking_band_is_filled_up() -> None:
    def rows(n: int, difficulty: float) -> list[Light]:
        return [
            Light(f"{difficulty}-{i}", "t", "counting", "s", "AB"[i % 2], f"i{i}", f"g{i}", difficulty)
            for i in range(n)
        ]

    quota = Quota(task="t", skill=Skill.COUNTING, n=24, why="", difficulty={"easy": 0.25, "medium": 0.25, "hard": 0.5})
    kept, lost = choose_quota([*rows(30, 0.1), *rows(30, 0.5), *rows(30, 0.9)], quota, 0)
    assert Counter(band_of(row.difficulty) for row in kept) == {"easy": 6, "medium": 6, "hard": 12}
    assert sum(drop.count for drop in lost) == 90 - 24
    kept, _ = choose_quota([*rows(30, 0.1), *rows(4, 0.9)], quota, 0)
    assert Counter(band_of(row.difficulty) for row in kept) == {"easy": 20, "hard": 4}
    assert Counter(row.answer for row in kept) == {"A": 12, "B": 12}


def test_a_wish_for_difficulty_reaches_the_manifest_and_the_run_s_identity(world: Path, tmp_path: Path) -> None:
    quota = {"task": "relative_depth", "skill": "relative_depth", "n": 24, "why": "a test", "role": "target"}
    runs = []
    for name, shares in (("any", {}), ("hard", {"hard": 1.0})):
        plan = tmp_path / f"{name}.json"
        plan.write_text(json.dumps({"quotas": [{**quota, "difficulty": shares}], "unserved": []}), encoding="utf-8")
        runs.append(generate(recipe(world, plan=str(plan)), tmp_path / name))
        assert len(list(read_rows(tmp_path / name, ["difficulty"]))) == 24
    assert runs[0]["run"] != runs[1]["run"]
    assert manifest(tmp_path / "hard")["quotas"][0]["difficulty"] == {"hard": 1.0}


def test_the_same_bytes_on_ray(world: Path, finished: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    config = tmp_path / "c.yaml"
    config.write_text(yaml.safe_dump(recipe(world).model_dump(mode="json")), encoding="utf-8")
    out = tmp_path / "ray"
    command = [sys.executable, "-m", "finetune.cli", "generate", str(config), "--engine", "ray", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert digest(out) == digest(finished)


def test_an_error_of_ours_comes_through_ray_unwrapped(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    code = (
        "from synth.engines.ray import run\nfrom synth.images import decode\nfrom synth.errors import ImageError\n"
        "try: list(run(decode, [b'no image'], 1))\nexcept ImageError as error: print('ours:', error.reason)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.stdout.startswith("ours:"), done.stdout + done.stderr


def test_a_finished_folder_is_left_alone_and_another_plan_is_refused(world: Path, finished: Path) -> None:
    before = (finished / "manifest.json").stat().st_mtime_ns
    assert generate(recipe(world), finished)["run"] == manifest(finished)["run"]
    assert (finished / "manifest.json").stat().st_mtime_ns == before
    with pytest.raises(RunError, match="another plan"):
        generate(recipe(world, seed=4), finished)


def test_killed_again_and_again_it_ends_with_the_same_bytes(world: Path, finished: Path, tmp_path: Path) -> None:
    """SIGKILL at random moments, then run on: no row lost, none twice, the same files."""
    config = tmp_path / "c.yaml"
    config.write_text(yaml.safe_dump(recipe(world).model_dump(mode="json")), encoding="utf-8")
    out = tmp_path / "killed"
    command = [sys.executable, "-m", "finetune.cli", "generate", str(config), "--out", str(out)]
    rng = random.Random(5)
    kills = 0
    for _ in range(8):
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait = rng.uniform(0.5, 4.0)
        end = time.monotonic() + wait
        while process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        if process.poll() is not None:
            break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
    assert kills >= 2, "the run was over before it could be killed"
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert digest(out) == digest(finished)
    assert not list(out.rglob("*.tmp"))


def test_a_damaged_shard_is_named_and_not_swallowed(world: Path, tmp_path: Path) -> None:
    out = tmp_path / "damaged"
    generate(recipe(world), out)
    shard = sorted((out / ".work").glob("shard-*.parquet"))[0]
    shard.write_bytes(shard.read_bytes()[:-100])
    (out / "manifest.json").unlink()
    with pytest.raises(RunError, match="damaged shard") as caught:
        generate(recipe(world), out)
    assert shard.name in str(caught.value)


def test_no_guard_no_dataset(world: Path, tmp_path: Path) -> None:
    with pytest.raises(GuardError, match="no benchmark to guard against"):
        generate(recipe(world, guard={}), tmp_path / "x")
    assert not (tmp_path / "x").exists()
    empty = tmp_path / "empty-bench"
    empty.mkdir()
    with pytest.raises(S2PError):
        generate(recipe(world, guard={"benchmark": {"name": "jsonl", "path": str(empty)}}), tmp_path / "y")
    assert not (tmp_path / "y" / "data").exists()


def test_a_guard_that_misses_a_planted_copy_writes_nothing(world: Path, tmp_path: Path) -> None:
    """With 0 bits and more inliers than key points nothing altered is found: not established, whatever the reason."""
    guard = {
        "benchmark": {"name": "jsonl", "path": str(world / "bench")},
        "options": {"threshold_photograph": 0, "threshold_rendered": 0, "inliers": 1000},
    }
    with pytest.raises(GateFailed, match="not established"):
        generate(recipe(world, guard=guard), tmp_path / "blind")
    assert not (tmp_path / "blind" / "data").exists() and not (tmp_path / "blind" / "manifest.json").exists()
    assert not list((tmp_path / "blind" / ".work").glob("shard-*"))


def test_a_looser_threshold_is_allowed_and_voids_the_certificate(world: Path, tmp_path: Path) -> None:
    """A copy may then lie 60 bits away and pass: the shipped threshold rejects it, this one does not."""
    from finetune.rows import require_certificate
    from synth.errors import DatasetError

    guard = {
        "benchmark": {"name": "jsonl", "path": str(world / "bench")},
        "options": {"threshold_photograph": 59},
    }
    assert generate(recipe(world, guard=guard), tmp_path / "loose")["guard"]["verdict"] == "not_established"
    with pytest.raises(DatasetError, match="not_established"):
        require_certificate(tmp_path / "loose")


def test_unguarded_stamps_every_row_and_the_card(world: Path, tmp_path: Path) -> None:
    out = tmp_path / "unguarded"
    generate(recipe(world, guard={"unguarded": True}), out)
    assert not any(row["guarded"] for row in read_rows(out, ["guarded"]))
    assert "--unguarded" in (out / "README.md").read_text(encoding="utf-8")
    certificate = json.loads((out / "certificate.json").read_text(encoding="utf-8"))
    assert certificate["verdict"] not in ("clean-under-stated-tests",)


def test_sources_with_nothing_to_read(world: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError):
        generate(recipe(world, source={"name": "folder", "path": str(tmp_path / "none")}), tmp_path / "x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError):
        generate(recipe(world, source={"name": "folder", "path": str(tmp_path / "empty")}), tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_zero_yield_explains_itself(world: Path, tmp_path: Path) -> None:
    tasks = {"relative_depth": {"n": 5, "options": {"margin_metric": 5.0}}}
    with pytest.raises(RunError, match="not one pair"):
        generate(recipe(world, tasks=tasks), tmp_path / "none")
    assert not (tmp_path / "none" / "data").exists() or not (tmp_path / "none" / "manifest.json").exists()


def test_preview_counts_without_work(world: Path) -> None:
    plan = preview(recipe(world))
    assert plan.images == N_PHOTOS + 1 and plan.shards == 4
    assert {q["task"] for q in plan.quotas} == {"relative_depth", "visual_correspondence"}


def test_load_dataset_takes_the_folder_as_it_is(finished: Path, tmp_path: Path) -> None:
    from datasets import load_dataset

    dataset = load_dataset(str(finished), cache_dir=str(tmp_path / "cache"))
    assert set(dataset) == {"train", "validation"}
    row = dataset["train"][0]
    assert row["images"][0].mode == "RGB"
    assert row["prompt"][0]["role"] == "user"


def test_export_to_llava_round_trips(finished: Path, tmp_path: Path) -> None:
    from synth.dataset.exports.llava import write

    n = write(finished, tmp_path / "llava")
    records = json.loads((tmp_path / "llava" / "data.json").read_text(encoding="utf-8"))
    rows = {row["qa_id"]: row for row in read_rows(finished)}
    assert n == len(records) == len(rows)
    for record in records:
        row = rows[record["id"]]
        names = [record["image"]] if isinstance(record["image"], str) else record["image"]
        assert [(tmp_path / "llava" / name).read_bytes() for name in names] == [i["bytes"] for i in row["images"]]
        assert record["conversations"][1]["value"] == row["answer"]
        assert record["conversations"][0]["value"].count("<image>") == len(names)
