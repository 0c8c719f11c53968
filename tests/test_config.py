"""Settings: what is wrong is named, with its file, its dotted key and its neighbour."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

import pytest
from pydantic import Field

from synth.config import Config, PluginChoice, digest, load_config, parse_overrides, resolve
from synth.errors import ConfigError
from synth.findings import Plan, Quota
from synth.plugins import SOURCES, TASKS, load, names
from tests.conftest import ROOT


class Inner(Config):
    """A nested section."""

    path: str = "x"
    size: int = 3


class Outer(Config):
    """A tree."""

    name: str
    inner: Inner = Inner()
    many: dict[str, Inner] = Field(default_factory=dict)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_mistyped_key_names_file_key_and_neighbour(tmp_path: Path) -> None:
    path = write(tmp_path / "c.yaml", "name: a\ninner: {pth: y}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path, Outer)
    text = str(caught.value)
    assert str(path) in text and "inner.pth" in text and "'path'" in text


def test_all_mistakes_come_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "c.yaml", "inner: {size: many}\nnmae: b\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path, Outer)
    text = str(caught.value)
    assert "inner.size" in text and "nmae" in text and "'name'" in text and "missing key 'name'" in text


def test_overrides_are_yaml_and_nest(tmp_path: Path) -> None:
    path = write(tmp_path / "c.yaml", "name: a\n")
    config = load_config(path, Outer, ["inner.size=7", "inner.path=a/b", "many.k.size=1"])
    assert config.inner == Inner(path="a/b", size=7)
    assert config.many["k"].size == 1
    assert parse_overrides(["a.b=[1, 2]"]) == {"a": {"b": [1, 2]}}


@pytest.mark.parametrize("text", ["inner.size", "=3", "inner..size=3", "name.x=3"])
def test_a_wrong_override_is_refused(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "c.yaml", "name: a\n")
    with pytest.raises(ConfigError):
        load_config(path, Outer, [text])


@pytest.mark.parametrize(
    ("content", "word"), [("[1, 2]", "mapping"), ("a: [", "YAML"), ("a: !!python/object:os.system x", "YAML")]
)
def test_files_that_are_no_config(tmp_path: Path, content: str, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        load_config(write(tmp_path / "c.yaml", content), Outer)


def test_a_config_begins_from_another(tmp_path: Path) -> None:
    write(tmp_path / "base.yaml", "name: a\ninner: {path: b, size: 5}\nmany: {k: {size: 1}, l: {size: 2}}\n")
    (tmp_path / "sub").mkdir()
    path = write(
        tmp_path / "sub" / "top.yaml", "extends: ../base.yaml\nname: c\ninner: {size: 6}\nmany: {l: {path: z}}\n"
    )
    config = load_config(path, Outer, ["inner.path=set"])
    assert (config.name, config.inner) == ("c", Inner(path="set", size=6))
    assert config.many == {"k": Inner(size=1), "l": Inner(path="z", size=2)}


def test_options_of_another_plugin_are_not_inherited(tmp_path: Path) -> None:
    class Choosing(Config):
        """One plug-in."""

        source: PluginChoice

    write(tmp_path / "base.yaml", "source: {name: rooms, n_rooms: 4}\n")
    same = write(tmp_path / "same.yaml", "extends: base.yaml\nsource: {first_seed: 3}\n")
    other = write(tmp_path / "other.yaml", "extends: base.yaml\nsource: {name: folder, path: p}\n")
    assert load_config(same, Choosing).source.settings() == {"n_rooms": 4, "first_seed": 3}
    assert load_config(other, Choosing).source.settings() == {"path": "p"}


@pytest.mark.parametrize(
    ("content", "word"), [("extends: c.yaml", "leads back"), ("extends: [a]", "path"), ("extends: d.yaml", "no such")]
)
def test_a_wrong_beginning_is_refused(tmp_path: Path, content: str, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        load_config(write(tmp_path / "c.yaml", content), Outer)


def test_a_missing_file_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such config file"):
        load_config(tmp_path / "none.yaml", Outer)


def test_plugin_names_and_options_are_checked() -> None:
    with pytest.raises(ConfigError, match="did you mean 'folder'"):
        resolve(PluginChoice(name="foldr"), SOURCES, "source")
    with pytest.raises(ConfigError, match=r"unknown key 'pth': did you mean 'path'"):
        resolve(PluginChoice.model_validate({"name": "folder", "pth": "x"}), SOURCES, "source")


def test_listing_plugins_imports_none_and_loading_checks_the_name() -> None:
    assert "relative_depth" in names(TASKS)
    assert load(TASKS, "relative_depth").name == "relative_depth"


def test_the_digest_knows_no_key_order() -> None:
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1}) != digest({"a": 1, "b": [3]})


RECIPES = sorted(p for p in (ROOT / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_every_shipped_config_loads(path: Path) -> None:
    from finetune.rounds import LoopConfig
    from finetune.train import TrainConfig
    from synth.diagnosing import SpecialistConfig
    from synth.recipe import Recipe, quotas_of, resolve_recipe

    lines = path.read_text(encoding="utf-8").splitlines()
    head = " ".join(takewhile(lambda line: line.startswith("#"), lines))
    assert "s2p " in head, "the first lines say what it is and the command that runs it"
    if "s2p loop" in head:
        recipe = load_config(path, LoopConfig).generate
        quotas = [Quota(task=name, skill=load(TASKS, name).skills[0], n=1, why="") for name in recipe.tasks]
        resolve_recipe(recipe, quotas_of(recipe, Plan(quotas=tuple(quotas))))
    elif "s2p train" in head:
        load_config(path, TrainConfig)
    elif "s2p diagnose" in head:
        assert load_config(path, SpecialistConfig).depth is not None
    else:
        recipe = load_config(path, Recipe)
        resolve_recipe(recipe, quotas_of(recipe, None))
