"""What every plug-in of every folder must keep. A new file is tested the moment it exists."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import json
import typing
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from synth.contracts import DepthBackend, Need, RegionBackend
from synth.errors import ConfigError, S2PError
from synth.geometry import apply_homography, generator, warp
from synth.plugins import (
    ALL,
    BENCHMARKS,
    CHECKS,
    DEPTH,
    EXPORTS,
    MATCHES,
    REGIONS,
    RESULTS,
    SOURCES,
    TASKS,
    Folder,
    Named,
    load,
    load_all,
    names,
)
from synth.types import QA, Drop, Frame, PluginOptions, Scene, Skill, Verdict
from tests.conftest import ROOT
from tests.toy import ask, reasons, room, scene_of, texture, view_of

PLUGINS = [(folder, name) for folder in ALL for name in names(folder)]
ROOMS = [room(seed, *size) for seed, size in enumerate([(128, 128), (160, 120), (300, 200)])]


def plugin_id(value: object) -> str:
    return value.package.removeprefix("synth.") if isinstance(value, Folder) else str(value)


def default_options(record: object) -> PluginOptions | None:
    """The options with nothing said, or None where the plug-in cannot do without a setting."""
    try:
        return typing.cast(type[PluginOptions], getattr(record, "options", PluginOptions))()
    except ValidationError:
        return None


# --------------------------------------------------------------------------------------------------------- any plug-in


def test_every_folder_of_the_design_holds_plugins():
    assert all(names(folder) for folder in ALL)
    assert not {name for _, name in PLUGINS if name.startswith("_")}


@pytest.mark.parametrize(("folder", "name"), PLUGINS, ids=plugin_id)
def test_the_record_is_named_like_its_file_and_frozen(folder: Folder[Named], name: str):
    record = load(folder, name)
    assert record.name == name and isinstance(record.version, int) and record.version >= 1
    assert dataclasses.is_dataclass(record)
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.name = "other"  # type: ignore[misc]
    with pytest.raises(ConfigError, match=r"no .* plug-in named"):
        load(folder, f"{name}x")


@pytest.mark.parametrize(("folder", "name"), PLUGINS, ids=plugin_id)
def test_one_file_has_one_record_and_says_what_it_is(folder: Folder[Named], name: str):
    module = importlib.import_module(f"{folder.package}.{name}")
    records = [key for key, value in vars(module).items() if isinstance(value, folder.record) and key[0] != "_"]
    assert records == [folder.constant]
    assert (module.__doc__ or "").strip()
    assert len(inspect.getsource(module).splitlines()) <= 400


@pytest.mark.parametrize(("folder", "name"), PLUGINS, ids=plugin_id)
def test_importing_does_nothing(folder: Folder[Named], name: str):
    """Only definitions stand at the top level: no loops, no calls for their effect, no open files."""
    path = ROOT / Path(*folder.package.split(".")) / f"{name}.py"
    plain = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        assert isinstance(node, plain) or text or typing_only, f"line {node.lineno}: {ast.unparse(node)[:80]}"


@pytest.mark.parametrize(("folder", "name"), PLUGINS, ids=plugin_id)
def test_options_are_frozen_strict_and_plain(folder: Folder[Named], name: str):
    record = load(folder, name)
    kind = getattr(record, "options", PluginOptions)
    assert issubclass(kind, PluginOptions)
    assert kind.model_config.get("frozen") and kind.model_config.get("extra") == "forbid"
    with pytest.raises(ValidationError):
        kind.model_validate({"no_such_key": 1})
    options = default_options(record)
    if options is not None:
        assert kind.model_validate(json.loads(options.model_dump_json())) == options
        hash(options.model_dump_json())


@pytest.mark.parametrize(("folder", "name"), PLUGINS, ids=plugin_id)
def test_functions_say_what_they_take_and_give(folder: Folder[Named], name: str):
    record = load(folder, name)
    for field in dataclasses.fields(typing.cast(typing.Any, record)):
        value = getattr(record, field.name)
        if inspect.isfunction(value):
            given = inspect.signature(value)
            assert given.return_annotation is not inspect.Signature.empty, f"{field.name} says not what it gives"
            assert all(p.annotation is not inspect.Parameter.empty for p in given.parameters.values()), field.name
            assert all(p.kind is not inspect.Parameter.VAR_KEYWORD for p in given.parameters.values()), field.name


# -------------------------------------------------------------------------------------------------------------- tasks


@pytest.mark.parametrize("name", names(TASKS))
def test_a_task_is_deterministic_and_touches_nothing(name: str):
    scene = ROOMS[0]
    before = scene.rgb.tobytes(), scene.depths[0].valid.tobytes()
    np.random.seed(1)  # noqa: NPY002  a task that used the global generator would change with this
    first = ask(name, scene, 5)
    np.random.seed(2)  # noqa: NPY002
    assert ask(name, scene, 5) == first
    assert (scene.rgb.tobytes(), scene.depths[0].valid.tobytes()) == before
    others = [qa.qa_id for seed in range(6, 10) for qa in ask(name, scene, seed)[0]]
    assert set(others) - {qa.qa_id for qa in first[0]}


@pytest.mark.parametrize("name", names(TASKS))
def test_what_a_task_asks_is_whole_and_its_numbers_give_its_answer(name: str):
    task = load(TASKS, name)
    found = [(qa, scene) for seed in range(4) for scene in ROOMS for qa in ask(name, scene, seed)[0]]
    assert found
    for qa, scene in found:
        assert (qa.task, qa.provenance.task, qa.provenance.version) == (name, name, task.version)
        assert qa.skill in task.skills and qa.image_id == scene.view.image_id
        assert len(set(qa.choices)) == len(qa.choices) >= 2 and len(qa.provenance.options) == len(qa.choices)
        assert qa.answer in "ABCDEFGH"[: len(qa.choices)] and task.recompute(qa.provenance) == qa.answer
        assert 0 <= qa.difficulty <= 1 and qa.stratum and qa.panels
        assert not any("None" in text or "{" in text for text in (qa.question, *qa.choices))
        json.dumps(dataclasses.asdict(qa), allow_nan=False)
        for check in load_all(CHECKS):
            assert check.judge(qa, scene, task) == Verdict(keep=True)


@pytest.mark.parametrize("name", names(TASKS))
def test_ids_are_unique_and_follow_the_content(name: str):
    found = [qa for seed in range(6) for scene in ROOMS for qa in ask(name, scene, seed)[0]]
    contents: dict[str, tuple[object, ...]] = {}
    for qa in found:
        content = (qa.image_id, qa.question, qa.choices, qa.panels)
        assert contents.setdefault(qa.qa_id, content) == content
    assert len(set(contents.values())) == len(contents)


@pytest.mark.parametrize("name", names(TASKS))
def test_a_task_without_what_it_needs_says_so_and_guesses_nothing(name: str):
    task = load(TASKS, name)
    bare = Scene(view=ROOMS[0].view, rgb=ROOMS[0].rgb)
    found, drops = ask(name, bare)
    if task.needs:
        assert not found and drops and all(drop.reason and drop.example for drop in drops)
    lacks = {Need.DEPTH: "depths", Need.METRIC_DEPTH: "depths", Need.REGIONS: "regions", Need.PAIR: "pair"}
    needed = {lacks[need] for need in task.needs}
    needless = {field: None if field == "pair" else () for field in set(lacks.values()) - needed}
    enough = dataclasses.replace(ROOMS[0], **needless)
    assert ask(name, enough)[0], f"{name} does not declare all its needs"


@pytest.mark.parametrize("name", names(TASKS))
def test_strange_pictures_yield_drops_and_no_errors(name: str):
    grey = np.full((96, 128, 3), 128, dtype=np.uint8)
    thin = texture(0, 33, 400)
    for rgb in (grey, thin, texture(1, 400, 33), texture(2, 32, 32)):
        for scene in (scene_of(rgb), dataclasses.replace(room(0, rgb.shape[1], rgb.shape[0]), rgb=rgb)):
            found, drops = ask(name, scene)
            assert all(isinstance(qa, QA) for qa in found) and all(isinstance(drop, Drop) for drop in drops)
            assert found or drops


def test_every_skill_has_one_task_at_most():
    skills = [skill for task in load_all(TASKS) for skill in task.skills]
    assert len(set(skills)) == len(skills)


# ------------------------------------------------------------------------------------------------------------- checks


@pytest.mark.parametrize("name", names(CHECKS))
def test_a_check_gives_a_verdict_with_a_reason(name: str):
    check = load(CHECKS, name)
    kept, dropped = 0, 0
    for task_name in names(TASKS):
        task = load(TASKS, task_name)
        for qa in ask(task_name, ROOMS[0])[0]:
            kept += check.judge(qa, ROOMS[0], task).keep
            broken = dataclasses.replace(qa, question="{None", answer="Z", panels=qa.panels[:1] * 9)
            verdict = check.judge(broken, dataclasses.replace(ROOMS[0], rgb=ROOMS[0].rgb[:40, :40]), task)
            dropped += not verdict.keep
            assert verdict.keep != bool(verdict.reason)
    assert kept and dropped


# ----------------------------------------------------------------------------------------------------------- backends


def backends() -> list[tuple[Folder[Named], str]]:
    return [(folder, name) for folder in (DEPTH, REGIONS) for name in names(folder)]


@pytest.mark.parametrize(("folder", "name"), backends(), ids=plugin_id)
def test_a_backend_has_an_identity_or_says_what_is_missing(folder: Folder[Named], name: str):
    backend = typing.cast(DepthBackend | RegionBackend, load(folder, name))
    options = default_options(backend)
    if options is None:
        return  # it cannot be chosen without settings, so there is nothing to identify yet
    try:
        first = backend.identity(options)
    except S2PError as error:
        assert error.fix and error.where
        return
    assert first and backend.identity(options) == first


@pytest.mark.parametrize(("folder", "name"), backends(), ids=plugin_id)
def test_truth_speaks_only_where_there_is_truth(folder: Folder[Named], name: str):
    backend = typing.cast(DepthBackend | RegionBackend, load(folder, name))
    if not backend.exact:
        assert name != "truth"
        return
    run = typing.cast(Callable[[list[Frame]], list[object]], backend.load(backend.options()))
    known = Frame(view=ROOMS[0].view, rgb=ROOMS[0].rgb)
    unknown = Frame(view=view_of(ROOMS[1].rgb), rgb=ROOMS[1].rgb)
    told = run([unknown, known, unknown])
    truth = ROOMS[0].view.truth
    assert truth is not None and told[0] is None and told[2] is None
    assert told[1] in (truth.depth, truth.regions)


@pytest.mark.parametrize("name", names(MATCHES))
def test_a_match_backend_makes_a_picture_or_matches_two(name: str):
    backend = load(MATCHES, name)
    assert (backend.pair is None) != (backend.load is None) and (backend.load is None) == (backend.identity is None)
    options = default_options(backend)
    if backend.load is None or backend.identity is None or options is None:
        return
    try:
        identity, run = backend.identity(options), backend.load(options)
    except S2PError as error:
        assert error.fix and error.where
        return
    assert identity and backend.identity(options) == identity
    found = run(
        Frame(view=view_of(ROOMS[1].rgb), rgb=ROOMS[1].rgb), Frame(view=view_of(ROOMS[2].rgb), rgb=ROOMS[2].rgb)
    )
    assert (found is None) == backend.exact  # nothing in common is a finding; only truth is silent


@pytest.mark.parametrize("name", [backend.name for backend in load_all(MATCHES) if backend.pair is not None])
def test_a_second_picture_follows_its_homography(name: str):
    backend = load(MATCHES, name)
    options = default_options(backend)
    assert options is not None
    frame = Frame(view=ROOMS[2].view, rgb=ROOMS[2].rgb)
    assert backend.pair is not None
    pair = backend.pair(frame, options, generator(3, name))
    again = backend.pair(frame, options, generator(3, name))
    assert (pair.rgb == again.rgb).all() and (pair.homography == again.homography).all()
    assert pair.rgb.dtype == np.uint8 and pair.covered.shape == pair.rgb.shape[:2]
    assert pair.covered.mean() > 0.3 and pair.homography.shape == (3, 3)
    height, width = pair.rgb.shape[:2]
    expected, inside = warp(frame.rgb, pair.homography, width, height)
    both = inside & pair.covered
    # Other light, the same structure: the pictures correlate where they show the first one.
    a, b = (picture[both].astype(np.float64).mean(axis=1) for picture in (expected, pair.rgb))
    assert both.mean() > 0.9 * pair.covered.mean() and np.corrcoef(a, b)[0, 1] > 0.8
    centre = apply_homography(pair.homography, np.array([[frame.rgb.shape[1] / 2, frame.rgb.shape[0] / 2]]))[0]
    assert 0 < centre[0] < width and 0 < centre[1] < height


# ------------------------------------------------------------------------------------------ sources, benchmarks, files


@pytest.mark.parametrize("name", names(SOURCES))
def test_a_source_lists_the_same_items_again(name: str):
    source = load(SOURCES, name)
    options = default_options(source)
    if options is None:
        return  # it needs a place to read from; its own tests give it one
    items = list(source.list(options))
    assert items == list(source.list(options)) and len({item.key for item in items}) == len(items)
    assert all(item.key and item.fingerprint and item.group for item in items)


@pytest.mark.parametrize("name", names(BENCHMARKS))
def test_a_benchmark_maps_its_categories(name: str):
    benchmark = load(BENCHMARKS, name)
    assert benchmark.licence
    assert all(isinstance(skill, Skill) for skill in benchmark.skills.values())
    assert all(0 < share <= 1 for share in benchmark.human.values())
    assert all(2 <= n <= 26 for n in benchmark.n_options.values())
    for table in (benchmark.human, benchmark.n_options, benchmark.choices):
        assert set(table) <= set(benchmark.skills)
    for category, choices in benchmark.choices.items():
        assert len(choices) == benchmark.n_options.get(category, len(choices)) == len(set(choices))


@pytest.mark.parametrize("name", names(BENCHMARKS))
def test_no_task_uses_the_options_of_a_benchmark(name: str):
    """The fixed option texts of depth and left/right benchmarks would teach their format, not perception."""
    perceptive = {Skill.RELATIVE_DEPTH, Skill.LEFT_RIGHT, Skill.VISUAL_CORRESPONDENCE}
    benchmark = load(BENCHMARKS, name)
    fixed = {
        tuple(text.lower() for text in choices)
        for category, choices in benchmark.choices.items()
        if benchmark.skills[category] in perceptive
    }
    for task in load_all(TASKS):
        if set(task.skills) & perceptive:
            seen = [qa for seed in range(8) for qa in ask(task.name, ROOMS[0], seed)[0]]
            assert not fixed & {tuple(choice.lower() for choice in qa.choices) for qa in seen}


@pytest.mark.parametrize("name", names(RESULTS))
def test_a_results_reader_never_raises_for_a_foreign_file(name: str, tmp_path: Path):
    results = load(RESULTS, name)
    assert results.benchmark in ("", *names(BENCHMARKS))
    foreign = {
        "a.json": b'{"a": [1, 2]}',
        "b.jsonl": b"\x00\xff\n",
        "c.txt": b"",
        "d.xlsx": b"PK\x03\x04",
        "e.json": b"[]",
    }
    for file, data in foreign.items():
        (tmp_path / file).write_bytes(data)
        assert results.sniff(tmp_path / file) is False
    (tmp_path / "empty").mkdir()
    assert results.sniff(tmp_path / "empty") is False and results.sniff(tmp_path / "absent") is False


@pytest.mark.parametrize("name", names(EXPORTS))
def test_an_export_refuses_what_is_no_dataset(name: str, tmp_path: Path):
    with pytest.raises(S2PError):
        load(EXPORTS, name).write(tmp_path / "nothing", tmp_path / "out")


def test_the_toy_rooms_are_what_the_contracts_take_them_for():
    assert reasons(ask("counting", ROOMS[0])[1]) == {}
    assert all(scene.pair is not None and scene.regions[0].complete for scene in ROOMS)
