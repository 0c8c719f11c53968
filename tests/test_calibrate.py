"""Margins from truth: the smallest that is right often enough, per domain, or silence; and what a run makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from synth.audit.calibrate import MIN_GROUPS, calibrate_task
from synth.audit.run import calibrate
from synth.audit.truth import Graded
from synth.calibration import load_calibration
from synth.cli import load_recipe
from synth.dataset.shards import read_rows
from synth.errors import ConfigError
from synth.files import write_json
from synth.pipeline import generate
from synth.plugins import TASKS, load
from synth.types import QA, Panel, Provenance, Skill
from tests.test_pipeline import recipe
from tests.test_pipeline import world as world  # a fixture

TASK = load(TASKS, "relative_depth")


def graded(margin: float, right: bool, group: str, domain: str = "indoor", stratum: str = "lower") -> Graded:
    provenance = Provenance(
        task=TASK.name, version=1, wording=0, backends=(), options=("A", "B"), measures={"margin_metric": margin}
    )
    qa = QA(
        qa_id=f"{group}{margin}",
        task=TASK.name,
        skill=Skill.RELATIVE_DEPTH,
        image_id="i",
        question="?",
        choices=("A", "B"),
        answer="A",
        panels=(Panel(image="view"),),
        difficulty=0.5,
        stratum=stratum,
        provenance=provenance,
    )
    return Graded(qa=qa, image="i", domain=domain, grade="right" if right else "wrong", group=group)


def sample(n: int, wrong_below: float, groups: int, **fixed: str) -> list[Graded]:
    """Margins 0..1, evenly; wrong half of the time below a margin, always right above."""
    return [
        graded(float(m), bool(m > wrong_below or i % 2), f"g{i % groups}", **fixed)
        for i, m in enumerate(np.linspace(0.002, 1, n))
    ]


def test_the_smallest_margin_that_reaches_the_target_is_taken() -> None:
    curves = {c.domain: c for c in calibrate_task(TASK, sample(2000, 0.3, 8), 0.99)}
    point = curves["indoor"].chosen
    assert point is not None and point.low >= 0.99 and 0.25 < point.value < 0.31
    looser = [p for p in curves["indoor"].points if p.value < point.value]
    assert looser and all(p.low < 0.99 for p in looser)
    assert point.kept == pytest.approx(1 - point.value, abs=0.01)


def test_where_no_margin_will_do_the_task_is_off_and_says_why() -> None:
    noisy = [graded(m, i % 10 != 0, f"g{i % 8}") for i, m in enumerate(np.linspace(0.01, 1, 1000))]
    (curve, _) = calibrate_task(TASK, noisy, 0.99)
    assert curve.chosen is None and "no setting reaches 0.99" in curve.off


def test_few_scenes_are_no_evidence_however_many_candidates_they_give() -> None:
    (curve, _) = calibrate_task(TASK, sample(2000, 0.0, MIN_GROUPS - 1), 0.99)
    assert curve.chosen is None and "source groups" in curve.off


def test_each_stratum_and_domain_has_its_own_margin_and_all_domains_weigh_the_same() -> None:
    found = [
        *sample(1000, 0.2, 8, stratum="lower"),
        *sample(1000, 0.6, 8, stratum="higher"),
        *sample(4000, 0.4, 8, domain="street", stratum="lower"),
    ]
    values = {(c.domain, c.dial.option): c.chosen.value for c in calibrate_task(TASK, found, 0.97) if c.chosen}
    assert values["indoor", "margin_metric"] < 0.21 < 0.5 < values["indoor", "margin_metric_higher"] < 0.61
    assert 0.3 < values["street", "margin_metric"] < 0.41
    assert values["indoor", "margin_metric"] < values["", "margin_metric"] < values["street", "margin_metric"] + 0.02


def test_a_run_takes_the_margins_by_domain_and_is_silent_where_there_is_none(world: Path, tmp_path: Path) -> None:
    sure = calibrate(recipe(world), 0.6)
    path = tmp_path / "calibration.json"
    write_json(path, sure.content)
    content = json.loads(path.read_text(encoding="utf-8"))
    entries = content["tasks"]["relative_depth"]
    assert {"any"} < entries.keys() and entries["any"]["options"]["margin_metric"] >= 0.001
    known = next(name for name in entries if name != "any")
    entries[known]["options"] |= {"margin_metric": 0.5, "margin_metric_higher": 0.4}
    write_json(path, content)
    generate(recipe(world, calibration=str(path)), tmp_path / "out")
    rows = [r for r in read_rows(tmp_path / "out", ["task", "provenance"]) if r["task"] == "relative_depth"]
    measures = [json.loads(row["provenance"])["measures"] for row in rows]
    assert measures and min(m["margin_metric"] for m in measures) > 0.4
    del entries[known]  # a domain that the file does not know
    entries["any"] = {"off": "too weak", "options": {}, "evidence": {}}
    write_json(path, content)
    generate(recipe(world, calibration=str(path)), tmp_path / "silent")
    assert {row["task"] for row in read_rows(tmp_path / "silent", ["task"])} == {"visual_correspondence"}
    drops = json.loads((tmp_path / "silent" / "manifest.json").read_text(encoding="utf-8"))["drops"]
    assert any(drop["reason"] == "off_here" and "too weak" in drop["example"] for drop in drops)


def test_a_calibration_of_other_models_is_refused(world: Path, tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    content = dict(calibrate(recipe(world), 0.6).content)
    write_json(path, {**content, "backends": {"depth/plain": "another model"}})
    with pytest.raises(ConfigError, match="made for other models"):
        generate(recipe(world, calibration=str(path)), tmp_path / "out")
    write_json(path, {"calibration": 1})
    with pytest.raises(ConfigError, match="not a calibration file"):
        load_calibration(path)


def test_the_calibration_is_part_of_a_run_s_identity(world: Path, tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    content = dict(calibrate(recipe(world), 0.6).content)
    write_json(path, content)
    first = generate(recipe(world, calibration=str(path)), tmp_path / "a")["run"]
    write_json(tmp_path / "moved.json", content)
    assert generate(recipe(world, calibration=str(tmp_path / "moved.json")), tmp_path / "b")["run"] == first
    write_json(path, {**content, "target": 0.7})
    assert generate(recipe(world, calibration=str(path)), tmp_path / "c")["run"] != first


def test_the_shipped_calibration_config_loads() -> None:
    root = Path(__file__).resolve().parents[1]
    assert load_recipe(root / "configs" / "calibrate_photos_onnx.yaml", []).tasks["relative_depth"].options
