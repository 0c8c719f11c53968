"""The house: layers, sizes, what loads on import, what the README promises."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

MODULES = sorted([*ROOT.glob("synth/**/*.py"), *ROOT.glob("finetune/**/*.py")])

# (pattern of the module's dotted name, layer); the first match counts. An import may only point to a lower layer, and
# within one layer only inside the same folder ("helpers of its own folder").
LAYERS: list[tuple[str, float]] = [
    (r"synth$", 0),
    (r"synth\.(types|contracts|errors)$", 0),
    (r"synth\.findings$", 0.2),
    (r"synth\.(files|completions)$", 0.5),
    (r"synth\.(plugins|geometry|images|rooms|progress)(\.|$)", 1),
    (r"synth\.(marks|config)$", 1.2),
    (r"synth\.diagnosis\.(answers|claims|declarations|options|phrases|language|statistics)$", 1),
    (r"synth\.dataset\.prompt$", 1),
    (r"synth\.dataset\.exports\.\w+$", 3.6),
    (r"synth\.(benchmarks|results|sources|tasks|checks)(\.|$)", 2),
    (r"synth\.perception\._\w+$", 1.5),
    (r"synth\.perception\.(depth|regions|masks|matches)(\.|$)", 2),
    (r"synth\.perception(\.|$)", 3),
    (r"synth\.twins$", 2.5),
    (r"synth\.balance$", 3),
    (r"synth\.guard(\.|$)", 3.3),
    (r"synth\.dataset(\.|$)", 3.5),
    (r"synth\.audit\.run$", 4),
    (r"synth\.audit\.finished$", 4.1),
    (r"synth\.(audit|diagnosis)(\.|$)", 3),
    (r"synth\.plan$", 3.2),
    (r"synth\.calibration$", 1.5),
    (r"synth\.recipe$", 3.7),
    (r"synth\.(manifest|certifying)$", 3.9),
    (r"synth\.report\.audit$", 4.2),
    (r"synth\.report(\.|$)", 4),
    (r"synth\.engines(\.|$)", 4),
    (r"synth\.diagnosing$", 4.4),
    (r"synth\.work$", 4.2),
    (r"synth\.drawing$", 4.25),
    (r"synth\.pipeline$", 4.5),
    (r"synth\.cli$", 5),
    (r"finetune$", 0),
    (r"finetune\.(families|checkpoints|rows|controls|precision|journal)$", 6),
    (r"finetune\.models(\.|$)", 6.1),
    (r"finetune\.loading$", 6.2),
    (r"finetune\.(adapters|preflight|score|generate|conditions|perturb|grounding|selective|power)$", 6.5),
    (r"finetune\.(server|respondents)$", 6.7),
    (r"finetune\.rewards$", 6),
    (r"finetune\.(settings|pairs)$", 6.6),
    (r"finetune\.(skeleton|mix)$", 6.7),
    (r"finetune\.(quantized|record|watching)$", 6.8),
    (r"finetune\.(reload|parts|card|estimate|merging)$", 6.9),
    (r"finetune\.(dpo|grpo)$", 6.95),
    (r"finetune\.tiny(\.|$)", 7.5),
    (r"finetune\.(train|evaluate|sensitivity|compare)(\.|$)", 7),
    (r"finetune\.(suite|looking)$", 7.2),
    (r"finetune\.arms$", 7.5),
    (r"finetune\.rounds$", 8),
    (r"finetune\.cli$", 9),
]
PLUGIN_FOLDERS = (
    "synth/benchmarks",
    "synth/results",
    "synth/sources",
    "synth/tasks",
    "synth/checks",
    "synth/perception/depth",
    "synth/perception/regions",
    "synth/perception/masks",
    "synth/perception/matches",
    "synth/dataset/exports",
)
HEAVY = ("torch", "transformers", "mitsuba", "ray", "trl", "peft", "datasets", "cv2", "onnxruntime", "open_clip")


def dotted(path: Path) -> str:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


def layer(name: str) -> float:
    for pattern, level in LAYERS:
        if re.match(pattern, name):
            return level
    raise AssertionError(f"{name} has no layer: give it one in tests/test_house.py")


def imports(path: Path) -> set[str]:
    """Every module of ours that a file imports, inside functions too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                is_module = (ROOT / Path(*whole.split("."))).with_suffix(".py").exists()
                found.add(whole if is_module or (ROOT / Path(*whole.split("."))).is_dir() else node.module)
    return {name for name in found if name.split(".")[0] in ("synth", "finetune")}


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_imports_point_down(path: Path) -> None:
    me = dotted(path)
    for other in sorted(imports(path)):
        if me.startswith("synth") and other.startswith("finetune"):
            raise AssertionError(f"{me} imports {other}: synth never imports finetune")
        same_folder = me.rsplit(".", 1)[0] == other.rsplit(".", 1)[0] or other == me.rsplit(".", 1)[0]
        allowed = layer(other) < layer(me) or (same_folder and layer(other) <= layer(me))
        assert allowed, f"{me} (layer {layer(me)}) imports {other} (layer {layer(other)})"


@pytest.mark.parametrize("folder", PLUGIN_FOLDERS)
def test_plugins_never_import_siblings(folder: str) -> None:
    for path in (ROOT / folder).glob("*.py"):
        for other in imports(path):
            if other.startswith(folder.replace("/", ".") + "."):
                assert other.rsplit(".", 1)[1].startswith("_"), f"{dotted(path)} imports its sibling {other}"


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_sizes(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert source.count("\n") <= 600, f"{dotted(path)} has more than 600 lines"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= 100, f"{dotted(path)}:{node.name} has {length} lines"
            assert node.args.kwarg is None, f"{dotted(path)}:{node.name} takes a suitcase of keywords"


def test_median_module_is_small() -> None:
    lengths = sorted(path.read_text(encoding="utf-8").count("\n") for path in MODULES if path.name != "__init__.py")
    assert lengths[len(lengths) // 2] < 200


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_every_module_and_public_name_is_documented(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), f"{dotted(path)} says not what it is for"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{dotted(path)}.{node.name} has no docstring"


def test_import_loads_nothing_heavy() -> None:
    code = (
        "import sys, synth, synth.types, synth.plugins, synth.config, synth.cli, finetune.cli\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"


def test_help_needs_neither_numpy_nor_pydantic() -> None:
    """What keeps `s2p --help` under half a second."""
    code = "import sys, finetune.cli\nprint([m for m in ('numpy', 'pydantic', 'yaml', 'PIL') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"


def test_every_plugin_loads_light() -> None:
    """Importing every plug-in must not pull in a framework: their weight belongs inside functions."""
    code = (
        "import sys\nfrom synth.plugins import ALL, load_all\n[load_all(f) for f in ALL]\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"


def test_help_names_every_verb_of_the_readme() -> None:
    out = subprocess.run(
        [sys.executable, "-m", "finetune.cli", "--help"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for verb in set(re.findall(r"s2p ([a-z]+)", readme)):
        assert verb in out.stdout, f"the README uses `s2p {verb}`, which does not exist"


def test_readme_paths_exist() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for path in set(re.findall(r"(?:configs|synth|finetune|tests)/[\w./-]+\w", readme)):
        assert (ROOT / path).exists(), f"the README names {path}, which does not exist"


def test_no_broad_except_and_no_shadowed_checks() -> None:
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ExceptHandler):
                name = getattr(node.type, "id", None)
                assert node.type is not None, f"{dotted(path)}:{node.lineno} bare except"
                assert name not in ("Exception", "BaseException"), f"{dotted(path)}:{node.lineno} broad except"
