"""Margins from truth: the smallest that is right often enough, per domain, or silence; and what a run makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from synth.audit.calibrate import MIN_GROUPS, Curve, calibrate_task, calibration_json
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
CALIBRATED = ("calibrate_photos_onnx", "audit_photos_onnx", "photos_onnx")


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


def curves_of(found: list[Graded], target: float = 0.99) -> dict[str, Curve]:
    """Domain -> the curve of the lower stratum, the only one that most samples have."""
    return {c.domain: c for c in calibrate_task(TASK, found, target) if c.dial.option == "margin_metric"}


def test_the_smallest_margin_that_reaches_the_target_is_taken() -> None:
    curve = curves_of(sample(2000, 0.3, 8))["indoor"]
    point = curve.chosen
    assert point is not None and point.low >= 0.99 and 0.25 < point.value < 0.31
    looser = [p for p in curve.points if p.value < point.value]
    assert looser and all(min(p.low, p.without) < 0.99 for p in looser)
    assert point.kept == pytest.approx(1 - point.value, abs=0.01)


def test_where_no_margin_will_do_the_task_is_off_and_says_why() -> None:
    noisy = [graded(m, i % 10 != 0, f"g{i % 8}") for i, m in enumerate(np.linspace(0.01, 1, 1000))]
    curve = curves_of(noisy)["indoor"]
    assert curve.chosen is None and "no setting reaches 0.99" in curve.off


def test_few_scenes_are_no_evidence_however_many_candidates_they_give() -> None:
    curve = curves_of(sample(2000, 0.0, MIN_GROUPS - 1))["indoor"]
    assert curve.chosen is None and "source groups" in curve.off


def test_a_setting_may_not_lean_on_one_scene() -> None:
    """One scene of very many right candidates must not carry others that err."""
    good = [graded(float(m), True, "large") for m in np.linspace(0.01, 1, 4000)]
    bad = [graded(float(m), i % 20 != 0, f"g{i % 4}") for i, m in enumerate(np.linspace(0.01, 0.8, 400))]
    open_end = curves_of([*good, *bad])["indoor"].points[0]
    assert open_end.low >= 0.99 > open_end.without
    chosen = curves_of([*good, *bad])["indoor"].chosen
    assert chosen is None or min(chosen.low, chosen.without) >= 0.99


def test_a_stratum_that_no_margin_serves_is_closed_alone() -> None:
    wrong = [graded(float(m), i % 3 != 0, f"g{i % 8}", stratum="higher") for i, m in enumerate(np.linspace(0, 1, 900))]
    curves = calibrate_task(TASK, [*sample(2000, 0.3, 8), *wrong], 0.99)
    entry = calibration_json(curves, 0.99, {}, "", 1)["tasks"]["relative_depth"]["indoor"]
    assert entry["off"] is None and 0.25 < entry["options"]["margin_metric"] < 0.31
    assert entry["options"]["margin_metric_higher"] == 100.0
    assert "no setting reaches" in entry["closed"]["margin_metric_higher"]
    unseen = calibration_json(calibrate_task(TASK, sample(2000, 0.3, 8), 0.99), 0.99, {}, "", 1)
    entry = unseen["tasks"]["relative_depth"]["indoor"]  # what was never seen there is not let through
    assert entry["closed"] == {"margin_metric_higher": "no candidate that the truth decides"}
    entry = calibration_json(calibrate_task(TASK, wrong, 0.99), 0.99, {}, "", 1)["tasks"]["relative_depth"]["indoor"]
    assert "higher: no setting reaches" in entry["off"] and not entry["options"]


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


def test_the_shipped_calibration_is_of_the_members_that_its_configs_run() -> None:
    """A consensus that the margins were not measured with would be refused at the first photo."""
    root = Path(__file__).resolve().parents[1]
    found = load_calibration(root / "configs" / "calibration" / "fastdepth_yolox_nano.json")
    made_with = {name: load_recipe(root / "configs" / f"{name}.yaml", []) for name in CALIBRATED}
    for config in made_with.values():
        options = config.perception.consensus
        depth = {"plain", *(["flip"] if options.flip else []), *(f"zoom-{z:g}" for z in options.depth_zooms)}
        assert {n.split("/")[1] for n in found.backends if n.startswith("depth/")} == depth
        assert config.tasks["relative_depth"].options["flat_metric"] == 1.25
    unknown = found.options_for("relative_depth", TASK.options(), "")
    assert not isinstance(unknown, str) and unknown.margin_metric_higher == 100.0
    assert isinstance(found.options_for("counting", load(TASKS, "counting").options(), "general"), str)
