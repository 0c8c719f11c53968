"""The pages of an audit and of a calibration: every number where it belongs, every wrong label with its picture."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from finetune.cli import main
from synth.audit.calibrate import Curve, Point
from synth.audit.finished import audit_dataset
from synth.audit.run import AuditResult
from synth.audit.truth import Graded, summarise
from synth.audit.wrong import truth_facts, wrong_label
from synth.contracts import Dial
from synth.images import decode
from synth.report.audit import SHOWN_WRONG, write_audit_page, write_calibration_page
from synth.report.precision import precision_curve
from synth.types import Drop, Scene
from tests.scenes import folder_with_truth
from tests.toy import ask, room


def truth_of(scene: Scene) -> Scene:
    """The truth beside the photo, nothing perceived."""
    truth = scene.view.truth
    assert truth is not None and truth.depth is not None and truth.regions is not None
    return replace(scene, depths=(truth.depth,), regions=(truth.regions,), pair=None)


def result(n_rooms: int = 6, wrong_in: int = 3) -> AuditResult:
    """An audit in which every third label is wrong, in two domains."""
    graded, wrong = [], []
    for seed in range(n_rooms):
        scene = room(seed)
        for k, qa in enumerate(ask("relative_depth", scene)[0]):
            verdict = "wrong" if k % wrong_in == 0 else "right"
            domain = "indoor" if seed % 2 else "street"
            one = Graded(qa=qa, image=scene.view.name, domain=domain, grade=verdict, group=f"g{seed}")
            graded.append(one)
            if verdict == "wrong":
                wrong.append(wrong_label(one, scene, truth_of(scene)))
    inside = Drop(stage="task", task="relative_depth", image="", reason="inside_margin")
    drops = [
        replace(inside, image="a.png", count=40, example="A 2 m, B 2.1 m"),
        replace(inside, image="b.png", count=2),
        Drop(stage="source", task="", image="odd<b>.png", reason="truncated", example="half a file"),
    ]
    summary = summarise(graded, ["relative_depth"], n_rooms)
    return AuditResult(graded=tuple(graded), drops=tuple(drops), n_images=n_rooms, summary=summary, wrong=tuple(wrong))


def test_the_page_shows_what_was_counted(tmp_path: Path) -> None:
    found = result()
    write_audit_page(tmp_path / "report.html", found, "configs/some.yaml")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    n, wrong = len(found.graded), len(found.wrong)
    assert f"{n} labels of 6 photos" in page and f"{wrong} are wrong" in page
    assert page.count("data:image/") == wrong, "a picture a wrong label"
    assert all(f'id="{w.graded.qa.qa_id}"' in page for w in found.wrong)
    assert page.count("our label") >= wrong and "depth at A" in page and " m</td>" in page
    assert all(domain in page for domain in ("all domains", "indoor", "street"))
    assert "42" in page and "A 2 m, B 2.1 m" in page, "counts are added, the first example stays"
    assert "odd&lt;b&gt;.png" in page and "odd<b>" not in page
    assert 'class="chart yield"' in page and "<script" not in page and 'src="http' not in page


def test_pictures_end_somewhere_and_ids_do_not(tmp_path: Path) -> None:
    found = result(2)
    many = (*[found.wrong[0]] * SHOWN_WRONG, found.wrong[-1])
    write_audit_page(tmp_path / "r.html", replace(found, wrong=many), "x")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert page.count("<article") == SHOWN_WRONG and "1 more, without their pictures" in page
    assert f"{found.wrong[-1].graded.qa.qa_id} on" in page


def test_truth_is_told_at_the_marks() -> None:
    scene = room(3)
    qa = ask("relative_depth", scene)[0][0]
    facts = dict(truth_facts(qa, truth_of(scene)))
    truth = scene.view.truth
    assert truth is not None and truth.depth is not None
    for mark in qa.panels[0].marks:
        metres = float(truth.depth.metres[int(mark.y), int(mark.x)])
        assert facts[f"depth at {mark.label}"] == f"{metres:.3g} m"
        assert facts[f"object at {mark.label}"] != "nothing listed"
    counted = ask("counting", scene)[0][0]
    label = str(counted.provenance.measures["label"])
    (value,) = (v for k, v in truth_facts(counted, truth_of(scene)) if k == label)
    listed = sum(region.label == label for region in scene.regions[0].items)
    assert value.startswith(f"{listed} in the truth (every one is listed)")


# ------------------------------------------------------------------------------------------------------------- curves


def curve(*shares: tuple[float, float, float]) -> Curve:
    """(kept, precision, low) a point."""
    points = []
    for k, (kept, share, low) in enumerate(shares):
        n, right = round(400 * kept), round(400 * kept * share)
        points.append(Point(value=k / 10, n=n, right=right, precision=share, low=low, kept=kept, groups=5, without=low))
    dial = Dial(option="margin_metric", measure="margin_metric", loose=0.0)
    chosen = next((point for point in points if point.low >= 0.95), None)
    off = "" if chosen else "weak"
    return Curve(task="relative_depth", domain="indoor", dial=dial, points=tuple(points), chosen=chosen, off=off)


def test_a_curve_is_drawn_to_scale() -> None:
    svg = str(precision_curve(curve((1.0, 0.9, 0.86), (0.5, 0.98, 0.96)), 0.95))
    spots = [(float(x), float(y)) for x, y in re.findall(r'class="spot" cx="([\d.]+)" cy="([\d.]+)"', svg)]
    (full, half) = spots
    left, right = 40.0, 310.0
    assert full[0] == right and half[0] == pytest.approx((left + right) / 2)
    assert half[1] < full[1], "more precise is higher"
    target = float(re.findall(r'class="chance"[^>]*y1="([\d.]+)"', svg)[0])
    assert half[1] < target < full[1]
    dot = re.findall(r'class="dot after" cx="([\d.]+)"', svg)
    assert dot == [f"{half[0]:.1f}"] and ">80<" in svg, "the scale begins below the lowest bound"
    assert "too few" in str(precision_curve(curve((0.01, 1.0, 0.5)), 0.95))


def test_a_calibration_has_its_page(tmp_path: Path) -> None:
    curves = (curve((1.0, 0.9, 0.86), (0.5, 0.98, 0.96)), curve((1.0, 0.7, 0.6)))
    write_calibration_page(tmp_path / "c.html", curves, 0.95, "lab")
    page = (tmp_path / "c.html").read_text(encoding="utf-8")
    assert "Above 0.1: 196 of 200 right, at least 96.0%, keeps 50%" in page and "Off: weak" in page
    assert page.count("<svg") >= 2 + 4 and "95.0%" in page


# --------------------------------------------------------------------------------------------------- finished datasets


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished dataset of six photos that bring their truth."""
    root = tmp_path_factory.mktemp("audit")
    folder_with_truth(root / "photos", 6)
    value = {
        "name": "audited",
        "source": {"name": "folder", "path": str(root / "photos")},
        "perception": {"depth": {"name": "truth"}, "cache": None},
        "tasks": {"relative_depth": {"n": 24}},
        "output": {"validation_share": 0.0, "images_per_shard": 3},
    }
    (root / "config.yaml").write_text(yaml.safe_dump(value), encoding="utf-8")
    assert main(["generate", str(root / "config.yaml"), "--unguarded", "--out", str(root / "dataset")]) == 0
    return root


def test_a_dataset_is_recomputed_and_graded_where_its_photos_bring_truth(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset, out = world / "dataset", tmp_path / "out"
    assert main(["audit", str(dataset), "--truth", str(world / "photos"), "--out", str(out)]) == 0
    audit = json.loads((out / "audit.json").read_text(encoding="utf-8"))
    row = audit["tasks"]["relative_depth"]
    n = audit["recomputed"]["n"]
    assert audit["recomputed"] == {"n": n, "agree": n, "differ": []} and n > 10
    assert row["n"] + row["undecidable"] == n and row["right"] == row["n"] > 5
    promised = "n right precision low high candidates yield blind_accuracy chance off"
    assert set(row) >= set(promised.split())
    assert audit["shortcuts"]["verdict"] == "not_tested"
    assert "answering without looking" in capsys.readouterr().out
    page = (out / "report.html").read_text(encoding="utf-8")
    assert f"{n} of {n} answers follow" in page and "None was found." in page
    blind = audit_dataset(dataset)
    assert not blind.graded and {drop.reason for drop in blind.drops} == {"no_truth"} and len(blind.drops) == n


def test_a_row_whose_numbers_say_otherwise_fails_the_audit(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pyarrow.parquet as pq

    from synth.dataset.shards import data_files

    (tmp_path / "data").mkdir()
    (file,) = data_files(world / "dataset")
    table = pq.read_table(file)
    first, *rest = table["answer"].to_pylist()
    flipped = ["B" if first == "A" else "A", *rest]
    place = table.schema.get_field_index("answer")
    pq.write_table(table.set_column(place, "answer", [flipped]), tmp_path / "data" / file.name)
    arguments = ["audit", str(tmp_path), "--truth", str(world / "photos"), "--out", str(tmp_path / "out")]
    assert main(arguments) == 1
    assert table["qa_id"][0].as_py() in capsys.readouterr().err
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/") == 1, "the truth contradicts it, and its stored picture is shown"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{world}/config.yaml", "--truth", "{world}/photos"], "--truth belongs to a dataset"),
        (["{world}/dataset", "--limit", "3"], "belong to a config"),
        (["{world}/photos"], "parquet"),
        (["{world}/dataset", "--truth", "{world}/none"], "none"),
    ],
)
def test_flags_that_do_not_belong(
    world: Path, tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [argument.format(world=world) for argument in arguments]
    assert main(["audit", *filled, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err


def test_explain_draws_what_it_says(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import pyarrow.parquet as pq

    from synth.dataset.shards import data_files

    row = pq.read_table(data_files(world / "dataset")[0]).slice(0, 1).to_pylist()[0]
    assert main(["explain", str(world / "dataset"), row["qa_id"], "--out", str(tmp_path)]) == 0
    text = (tmp_path / f"{row['qa_id']}.txt").read_text(encoding="utf-8")
    assert text.strip() in capsys.readouterr().out and "recomputed answer" in text
    drawn = decode((tmp_path / f"{row['qa_id']}.png").read_bytes())
    shown = decode(row["images"][0]["bytes"])
    scale = drawn.shape[1] / shown.shape[1]
    assert drawn.shape[0] > round(scale * shown.shape[0]) + 100, "the words stand below the picture"
    # The numbers are written below each mark: there the figure differs from the enlarged picture.
    for mark in json.loads(row["provenance"])["panels"][0]["marks"]:
        x, y = round(mark["x"] * scale), round(mark["y"] * scale + 14 + 4.5 * scale)
        patch = drawn[y : y + 40, max(0, x - 20) : x + 80].astype(int)
        assert (patch.min(axis=2) > 240).sum() > 20 and np.ptp(patch) > 200
