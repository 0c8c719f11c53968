"""The guard fails closed: what was not read, not scanned, or cannot be checked never passes for clean."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from finetune.cli import main
from finetune.rows import require_certificate
from synth import images
from synth.certifying import certified_rows
from synth.contracts import BenchmarkData
from synth.errors import DatasetError, GuardError, RunError, S2PError
from synth.guard import expected, plant
from synth.guard.building import build_index
from synth.guard.cascade import Guard
from synth.guard.certificate import RunFacts, certify
from synth.guard.index import Expected, GuardIndex, load_index, save_index, sealed
from synth.guard.options import GuardOptions
from synth.guard.provenance import pools
from synth.guard.reading import read_benchmark
from synth.guard.scan import scan
from synth.guard.survey import survey
from synth.pipeline import generate
from synth.recipe import Recipe
from synth.types import Item, Skill, View
from tests.conftest import ROOT
from tests.scenes import benchmark_folder, folder_with_truth, picture_benchmark
from tests.test_guard_features import scene
from tests.test_pdq import structured


def png(seed: int) -> bytes:
    return images.encode_png(structured(seed, 96, 128))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("world")
    folder_with_truth(root / "photos", 8)
    (root / "photos" / "damaged.jpg").write_bytes((root / "photos" / "photo_000.jpg").read_bytes()[:900])
    benchmark_folder(root / "bench", 12)
    return root


def recipe(world: Path, **guard: object) -> Recipe:
    value = {
        "name": "closed",
        "source": {"name": "folder", "path": str(world / "photos")},
        "perception": {"depth": {"name": "truth"}, "cache": None},
        "tasks": {"relative_depth": {"n": 12}},
        "guard": {
            "benchmark": {"name": "jsonl", "path": str(world / "bench")},
            "options": {"planted": 10},
            **guard,
        },
        "output": {"images_per_shard": 2, "validation_share": 0.0, "evidence": 0},
    }
    return Recipe.model_validate(value)


@pytest.fixture(scope="module")
def finished(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run, whose index lies in a file of its own."""
    root = tmp_path_factory.mktemp("finished")
    save_index(build_index(read_jsonl(world)), root / "index.npz")
    generate(recipe(world, index=str(root / "index.npz")), root / "out")
    return root


def run(*args: object) -> int:
    return main([str(arg) for arg in args])


# ----------------------------------------------------------------------------------------------------------- the run

KILL = """
import os, signal, sys
from synth.guard.cascade import Guard
from synth.pipeline import generate
from synth.recipe import Recipe
seen, check = [], Guard.check
def killing(self, *args, **named):
    seen.append(1)
    if len(seen) == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return check(self, *args, **named)
Guard.check = killing
generate(Recipe.model_validate_json(sys.argv[1]), __import__("pathlib").Path(sys.argv[2]))
"""


def test_a_scan_that_was_killed_leaves_no_image_unscanned(world: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-c", KILL, recipe(world).model_dump_json(), str(out)]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -9
    half = sorted((out / ".work").glob("scan-*.json"))
    assert 0 < len(half) < 5 and not list((out / ".work").glob("shard-*"))
    generate(recipe(world), out)
    scans = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((out / ".work").glob("scan-*.json"))]
    seen = Counter(line["key"] for one in scans for line in one["found"])
    assert seen == Counter(f"photo_{n:03d}.jpg" for n in range(8))
    assert [key for one in scans for key in one["unreadable"]] == ["damaged.jpg"]
    certificate = json.loads((out / "certificate.json").read_text(encoding="utf-8"))
    assert certificate["verdict"] == "clean-under-stated-tests"
    assert next(c for c in certificate["checks"] if c["stage"] == "file_sha256")["sources"]["n_checked"] == 8


def test_a_scan_that_leaves_out_an_image_stops_the_run(world: Path, finished: Path, tmp_path: Path) -> None:
    out = shutil.copytree(finished / "out", tmp_path / "out")
    path = sorted((out / ".work").glob("scan-*.json"))[1]
    value = json.loads(path.read_text(encoding="utf-8"))
    value["found"].pop()
    path.write_text(json.dumps(value), encoding="utf-8")
    (out / "manifest.json").unlink()
    with pytest.raises(RunError, match="without the guard's verdict"):
        generate(recipe(world, index=str(finished / "index.npz")), out)


def test_a_picture_exchanged_after_the_scan_is_not_used(world: Path, tmp_path: Path) -> None:
    """The run was killed between scan and work, and somebody replaced a photo; its fingerprint may be a date."""
    from synth.work import ShardSpec, load_seen

    spec = ShardSpec(
        recipe=recipe(world),
        plan=None,  # type: ignore[arg-type]  # not looked at
        run="r",
        number=0,
        items=(),
        n_images=1,
        folder=tmp_path,
        index=tmp_path / "index.npz",
        scanned={"a": images.image_id(png(1))},
    )
    view = View(image_id="", data=png(1), width=1, height=1, name="a", source="s", group="g")

    class Stages:
        source_options = None

        class source:
            now = replace(view, image_id=images.image_id(png(1)))

            @staticmethod
            def load(item: object, options: object) -> View:
                return Stages.source.now

    item = type("Item", (), {"key": "a"})
    assert load_seen(spec, Stages, item).name == "a"  # type: ignore[arg-type]
    Stages.source.now = replace(view, data=png(2), image_id=images.image_id(png(2)))
    with pytest.raises(S2PError, match="unscanned"):
        load_seen(spec, Stages, item)  # type: ignore[arg-type]


def test_a_resumed_run_with_another_index_is_refused(world: Path, finished: Path) -> None:
    path, again = finished / "index.npz", recipe(world, index=str(finished / "index.npz"))
    whole = path.read_bytes()
    assert generate(again, finished / "out")["guard"]["verdict"] == "clean-under-stated-tests"
    try:
        save_index(replace(load_index(path), sha256="", revision="another"), path)
        with pytest.raises(GuardError, match="not an intact guard index"):
            generate(again, finished / "out")
        save_index(sealed(replace(load_index_of(whole, path), revision="another")), path)
        with pytest.raises(RunError, match="another plan"):
            generate(again, finished / "out")
        path.write_bytes(whole[:-7])
        with pytest.raises(GuardError, match="not an intact guard index"):
            generate(again, finished / "out")
    finally:
        path.write_bytes(whole)


def load_index_of(data: bytes, path: Path) -> GuardIndex:
    path.write_bytes(data)
    return load_index(path)


def read_jsonl(world: Path) -> BenchmarkData:
    from synth.config import resolve_named
    from synth.plugins import BENCHMARKS

    record, options = resolve_named("jsonl", [f"path={world / 'bench'}"], BENCHMARKS, "benchmark")
    return record.load(options, None)


def test_a_benchmark_of_another_size_than_stated_stops_the_run(world: Path, tmp_path: Path) -> None:
    with pytest.raises(GuardError, match="12 items were read, 13 are expected"):
        generate(recipe(world, expect_items=13), tmp_path / "out")
    with pytest.raises(GuardError, match="12 images were read, 99 are expected"):
        build_index(read_jsonl(world), local=False).check_counts(Expected(images=99))


# --------------------------------------------------------------------------------------------- groups, reading, routes


def view(data: bytes, name: str, group: str, domain: str = "indoor") -> View:
    return View(
        image_id=images.image_id(data),
        data=data,
        width=1,
        height=1,
        name=name,
        source="s",
        group=group,
        domain=domain,
    )


def test_an_unknown_group_is_no_group_and_the_certificate_says_so() -> None:
    guard = Guard(build_index(picture_benchmark({f"p{n}": png(n) for n in range(3)})))
    views = [view(png(1), "copy", ""), view(png(50), "stranger", ""), view(png(51), "other", "g")]
    found = scan(guard, views)
    assert [found.reason(one) for one in views] == ["guard_copy", None, None]
    assert (found.rejected_groups, found.n_without_group) == ({}, 2)
    facts = RunFacts(dataset="d", dataset_revision="", generator="g", version="", git="", config_sha256="", seeds="")
    nothing = plant.Proof(n=0, found=0, by_transform={}, missed=())
    certificate = certify(facts, guard, found, nothing, survey([], guard.index))
    assert certificate["groups_unknown"] == 2
    assert any("2 images without a known group" in limit for limit in certificate["limits"])


def test_a_photograph_against_an_index_without_local_features_is_not_clean(tmp_path: Path) -> None:
    pictures = {f"p{n}": images.encode_png(scene(n)) for n in range(3)}
    lean = build_index(picture_benchmark(pictures), local=False)
    assert len(lean.bank.descriptors) == 0
    save_index(lean, tmp_path / "lean.npz")
    guard = Guard(load_index(tmp_path / "lean.npz"))
    crop = images.encode_png(np.ascontiguousarray(scene(1)[60:270, 80:340]))
    full = Guard(build_index(picture_benchmark(pictures)))
    assert full.check_file(crop).is_hit
    for data in (crop, images.encode_png(scene(77))):
        found = guard.check_file(data)
        assert (found.verdict, found.evidence["reason"]) == ("unverifiable", "no_local_features")
    assert guard.check_file(images.encode_png(scene(77)), content="rendered").verdict == "clean"
    # What the hash or a digest finds is still named.
    assert guard.check_file(images.encode_jpeg(scene(1), 60)).match == "p1"
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(images.encode_png(scene(77)))
    assert run("guard", "check", tmp_path / "photos", "--index", tmp_path / "lean.npz", "--out", tmp_path / "o") == 1


def test_of_two_frames_of_a_film_either_names_the_picture_and_a_stranger_does_not() -> None:
    """The second frame is moved by a seventh: its hash is far away, its pixels are the same ones."""
    wide = images.resize(scene(5), 560, 420)
    frames = {"f1": wide[:, :480], "f2": wide[:, 80:]}
    pictures = {name: images.encode_png(np.ascontiguousarray(rgb)) for name, rgb in frames.items()}
    guard = Guard(build_index(picture_benchmark({**pictures, "other": images.encode_png(scene(9))})))
    assert not guard.index.alike("f1", "f2")
    assert guard.resembles(pictures["f1"], "f2") and guard.resembles(pictures["f2"], "f1")
    assert not guard.resembles(pictures["f1"], "other")
    copy = plant.Planted(data=pictures["f2"], truth="f1", original=pictures["f1"], transform="crop90")
    proof = plant.prove(guard, [copy])
    assert (proof.n, proof.found) == (1, 1)
    wrong = replace(copy, truth="other", original=images.encode_png(scene(9)))
    assert plant.prove(guard, [wrong]).found == 0


# ----------------------------------------------------------------------------------------------- reading raw benchmarks


def table(rows: list[dict[str, object]]) -> pa.Table:
    picture = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    fields = [("idx", pa.string()), ("question", pa.string()), ("choices", pa.list_(pa.string()))]
    schema = pa.schema([*fields, ("image_1", picture), ("image_2", picture)])
    return pa.Table.from_pylist(rows, schema=schema)


def row(name: str, *pictures: bytes) -> dict[str, object]:
    cells = {f"image_{n}": {"bytes": data, "path": None} for n, data in enumerate(pictures, 1)}
    return {"idx": name, "question": "How many?", "choices": ["1", "2"], **cells}


def test_parquet_is_read_with_every_picture(tmp_path: Path) -> None:
    (tmp_path / "Counting").mkdir()
    pq.write_table(table([row("a", png(1)), row("b", png(2), png(3))]), tmp_path / "Counting" / "val.parquet")
    (tmp_path / "loose.png").write_bytes(png(4))
    data = read_benchmark(tmp_path)
    assert isinstance(data, BenchmarkData)
    assert [(i.item_id, i.category, len(i.images)) for i in data.items] == [("a", "Counting", 1), ("b", "Counting", 2)]
    index = build_index(data)
    assert index.names.tolist() == ["a", "b#1", "b#2", "clean/loose.png"]
    assert Guard(index).check_file(png(3)).match == "b#2"
    pq.write_table(table([row("a", png(1)), row("b")]), tmp_path / "Counting" / "val.parquet")
    with pytest.raises(GuardError, match="without a picture"):
        read_benchmark(tmp_path)
    (tmp_path / "Counting" / "val.parquet").write_bytes(b"PAR1 nothing")
    assert run("guard", "index", tmp_path, "--out", tmp_path / "i.npz") == 2
    assert not (tmp_path / "i.npz").exists()


def test_a_vlmevalkit_table_is_read_and_one_lost_picture_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "Mine.tsv"

    def write(*pictures: str) -> None:
        buffer = io.StringIO()
        lines = csv.writer(buffer, delimiter="\t")
        lines.writerow(["index", "image", "question", "A", "B", "answer", "category"])
        for n, text in enumerate(pictures):
            lines.writerow([n, text, "Which?", "left", "right", "A", "Depth"])
        file.write_text(buffer.getvalue(), encoding="utf-8")

    encoded = [base64.b64encode(png(n)).decode() for n in (1, 2)]
    write(encoded[0], encoded[1], "0")
    for place in (file, tmp_path):
        data = read_benchmark(place)
        assert isinstance(data, BenchmarkData)
        assert [item.images for item in data.items] == [(png(1),), (png(2),), (png(1),)]
        assert data.items[0].choices == ("left", "right") and data.revision.startswith("md5-")
    assert run("guard", "index", file, "--expect-items", 3, "--expect-images", 3, "--out", tmp_path / "i.npz") == 0
    assert run("guard", "index", file, "--expect-items", 4, "--out", tmp_path / "j.npz") == 2
    assert not (tmp_path / "j.npz").exists()
    write(encoded[0], "")
    with pytest.raises(GuardError, match="without a picture"):
        read_benchmark(file)
    write(encoded[0], encoded[1][:-40])
    with pytest.raises(S2PError):
        build_index(read_benchmark(file))


def test_pictures_in_a_text_file_beside_images_are_not_overlooked(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(1))
    (tmp_path / "notes.csv").write_text("id,label\n1,x\n", encoding="utf-8")
    assert build_index(tmp_path).n_images == 1
    (tmp_path / "more.csv").write_text(f"id,image\n1,{'A' * 30000}\n", encoding="utf-8")
    with pytest.raises(GuardError, match="may hold benchmark images"):
        build_index(tmp_path)


def blink(splits: tuple[str, ...], leave_out: str = "", less: int = 0) -> BenchmarkData:
    """Items as many as BLINK has, all of one picture's bytes; only counted."""
    known = next(one for one in expected.table() if one.name == "blink")
    items = [
        Item(
            item_id=f"{split}_{name}_{n}",
            category=name.replace("_", " "),
            skill=Skill.OTHER,
            question="q",
            choices=(),
            answer=None,
            prompt="q",
            images=(b"x",) * known.pictures.get(name, 1),
        )
        for split in splits
        for name, count in known.rows[split].items()
        if name != leave_out
        for n in range(count)
    ]
    return BenchmarkData(name="my copy", revision="", items=tuple(items[less:]))


def test_the_shipped_table_knows_a_whole_benchmark_from_a_part() -> None:
    row_of = expected.known(blink(("val",)))
    assert row_of is not None and row_of.name == "blink"
    whole = blink(("test", "val"))
    assert (len(blink(("val",)).items), len(whole.items)) == (1901, 3807)
    assert sum(len(item.images) for item in blink(("val",)).items) == 3675
    assert expected.check_known(whole, row_of) == ()
    assert expected.check_known(blink(("val",)), row_of) == ("test",)
    for broken in (blink(("val",), "Jigsaw"), blink(("val",), less=1), blink(("test", "val"), "IQ_Test")):
        with pytest.raises(GuardError, match="not the whole of"):
            expected.check_known(broken, row_of)
    lost = replace(whole, items=(replace(whole.items[0], images=(b"x",)), *whole.items[1:]))
    with pytest.raises(GuardError, match="1 of 3 pictures"):
        expected.check_known(lost, row_of)
    assert expected.known(replace(whole, name="x", items=())) is None
    old = replace(whole, revision="md5-3b6649b6a662184ea046908e5506260e")
    with pytest.raises(GuardError, match="Relative_Reflectance"):
        expected.check_revision(old, row_of)


def test_a_part_of_a_known_benchmark_is_indexed_only_where_its_size_is_stated() -> None:
    part = BenchmarkData(name="BLINK", revision="", items=(replace(blink(("val",)).items[0], images=(png(1),) * 3),))
    with pytest.raises(GuardError, match="not the whole of"):
        build_index(part)
    index = build_index(part, Expected(items=1))
    assert index.notes == ("only 1 items of blink, as its user stated",)


def test_copies_of_known_benchmarks_are_refused_by_name() -> None:
    found = {pool.data_set.name: pool for pool in pools(["pool/JaBLINK", "data/BLINK.tsv", "my/BLINK_circular"])}
    assert {"JaBLINK", "BLINK.tsv", "BLINK_circular"} <= set(found)
    assert all(pool.data_set.action == "refuse" for pool in found.values())
    assert found["JaBLINK"].json("done")["copy_of"] == "BLINK (translated)"


# ---------------------------------------------------------------------------------------------- afterwards, the verbs


def test_verify_from_the_benchmark_itself_and_training_on_the_right_one(
    world: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = finished / "out"
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    assert set(manifest["guard"]["wording"]) == {"relative_depth"}
    assert "Pairs in the wording of the benchmark" in (out / "README.md").read_text(encoding="utf-8")
    bench = ("--benchmark", "jsonl", "--set", f"path={world / 'bench'}")
    assert run("guard", "verify", out, *bench) == 0
    assert "went through the guard again" in capsys.readouterr().out
    other = benchmark_folder(tmp_path / "bench", 12, seed=5)
    assert run("guard", "verify", out, "--benchmark", "jsonl", "--set", f"path={other}") in (1, 2)
    name = json.loads((out / "certificate.json").read_text(encoding="utf-8"))["benchmarks"][0]["name"]
    require_certificate(out, name)
    with pytest.raises(DatasetError, match="judged on blink"):
        require_certificate(out, "blink")


def test_the_guards_verbs_run_in_one_thread(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "a.png").write_bytes(images.encode_png(scene(1)))
    script = (
        "import os, sys; from finetune.cli import main; code = main(sys.argv[1:]); import numpy as np; "
        "np.ones((500, 500)) @ np.ones((500, 500)); print(code, len(os.listdir('/proc/self/task')))"
    )
    if not Path("/proc/self/task").is_dir():
        pytest.skip("threads are counted in /proc")
    command = [sys.executable, "-c", script, "guard", "index", str(tmp_path / "b"), "--out", str(tmp_path / "i.npz")]
    threads = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    free = {name: value for name, value in os.environ.items() if name not in threads}
    out = subprocess.run(command, cwd=ROOT, env=free, capture_output=True, text=True, check=True)
    assert out.stdout.split()[-2:] == ["0", "1"]


# ----------------------------------------------------------------------------------------------------- own wording


def test_rows_in_the_benchmarks_wording_can_be_dropped(world: Path, finished: Path, tmp_path: Path) -> None:
    from synth.dataset.shards import read_rows

    words = Counter(str(line["question"]) for line in read_rows(finished / "out", ["question"]))
    asked = words.most_common(1)[0][0]
    bench = benchmark_folder(tmp_path / "bench", 12)
    path = next(bench.glob("*.jsonl"))
    lines = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    path.write_text("\n".join(json.dumps({**line, "question": asked}) for line in lines) + "\n", encoding="utf-8")
    own = {"benchmark": {"name": "jsonl", "path": str(bench)}}
    index = build_index(read_jsonl(tmp_path))
    shared = survey(certified_rows(finished / "out"), index)
    assert shared.overlap["relative_depth"][1] > 0 and not shared.text_hits
    dropped = generate(recipe(world, **own, options={"own_wording": True, "planted": 10}), tmp_path / "own")
    assert dropped["guard"]["wording"]["relative_depth"]["identical_prompt_share"] == 0
    certificate = json.loads((tmp_path / "own" / "certificate.json").read_text(encoding="utf-8"))
    assert certificate["removed"]["text"] > 0


# -------------------------------------------------------------------------------------------------- optional networks


def test_sscd_proposes_and_geometry_decides(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Tiny(torch.nn.Module):
        """Mean colours of a 4 x 4 grid: everything of like colours is proposed."""

        def forward(self, x):  # type: ignore[no-untyped-def]
            return torch.nn.functional.adaptive_avg_pool2d(x, 4).flatten(1)

    weights = tmp_path / "sscd.pt"
    torch.jit.script(Tiny()).save(str(weights))
    options = GuardOptions(sscd_weights=str(weights), sscd_similarity=-1.0)
    pictures = {f"p{n}": images.encode_png(scene(n)) for n in range(3)}
    from synth.guard.embeddings import load_networks

    index = build_index(picture_benchmark(pictures), networks=load_networks(options))
    save_index(index, tmp_path / "i.npz")
    guard = Guard(load_index(tmp_path / "i.npz"), options)
    stranger = guard.check_file(images.encode_png(scene(77)))
    assert (stranger.verdict, stranger.near_miss) == ("clean", True)
    assert sorted(stranger.evidence["proposed"]) == ["p0", "p1", "p2"]
    crop = guard.check_file(images.encode_png(np.ascontiguousarray(scene(1)[60:270, 80:340])))
    assert (crop.is_hit, crop.match) == (True, "p1")
    assert "sscd" in [stage.name for stage in guard.stages] and "clip" not in [stage.name for stage in guard.stages]
    # Geometry finds what the votes miss, because the network proposed it.
    guard._search.candidates = lambda both: []  # type: ignore[method-assign]
    again = guard.check_file(images.encode_jpeg(np.ascontiguousarray(scene(1)[61:270, 80:340]), 95))
    assert (again.is_hit, again.match) == (True, "p1")
    with pytest.raises(GuardError, match="no descriptors"):
        Guard(build_index(picture_benchmark(pictures)), options)
    other = Tiny()
    other.register_buffer("more", torch.zeros(1))
    torch.jit.script(other).save(str(weights))
    with pytest.raises(GuardError, match="these weights are"):
        Guard(index, options)
    weights.write_bytes(b"nothing")
    with pytest.raises(GuardError, match="TorchScript"):
        load_networks(options)


def test_open_clip_weights_are_read_from_a_local_file(tmp_path: Path) -> None:
    open_clip = pytest.importorskip("open_clip")
    import torch

    from synth.guard.embeddings import load_networks

    tiny = {
        "embed_dim": 16,
        "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 16},
        "text_cfg": {"context_length": 8, "vocab_size": 64, "width": 16, "heads": 2, "layers": 1},
    }
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "tiny-test.json").write_text(json.dumps(tiny), encoding="utf-8")
    open_clip.add_model_config(tmp_path / "models")
    torch.manual_seed(0)
    torch.save(open_clip.create_model("tiny-test").state_dict(), tmp_path / "clip.pt")
    options = GuardOptions(clip_weights=str(tmp_path / "clip.pt"), clip_model="tiny-test", clip_similarity=-1.0)
    (network,) = load_networks(options)
    assert network.identity.startswith("clip/tiny-test/")
    index = build_index(picture_benchmark({"p": images.encode_png(scene(1))}), networks=(network,))
    assert index.embedded["clip"].vectors.shape == (1, 16)
    found = Guard(index, options).check_file(images.encode_png(scene(50)))
    assert (found.verdict, found.near_miss, found.evidence["proposed"]) == ("clean", True, ["p"])
    with pytest.raises(GuardError, match="no architecture"):
        load_networks(options.model_copy(update={"clip_model": "none"}))
    with pytest.raises(GuardError, match="needs both"):
        load_networks(GuardOptions(clip_model="tiny-test"))
