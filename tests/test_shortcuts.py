"""Blind solvers: a planted leak of each kind is found, balanced pairs are not accused, thinning removes what leaks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from finetune.cli import main
from synth.audit.cues import CUES, NAMES, Asked, Shown
from synth.audit.leaks import check_shortcuts, format_shortcuts, not_tested, shortcuts_json, summary_line, with_allowed
from synth.audit.shortcuts import FOLDS, MIN_PAIRS, find_shortcuts, fold_of_each
from synth.audit.thinning import thin
from synth.dataset.shards import data_files
from synth.errors import GateFailed
from synth.geometry import generator
from synth.types import Mark
from tests.scenes import folder_with_truth

SIZES = ((640, 480), (480, 640), (128, 128))
PER_GROUP = 8
THINGS = ("sofa", "cup", "lamp", "bin", "globe", "vase", "table", "plant")
OF_WORDS = ("text", "class_prior", "image_size", "image_file")


def marked(k: int, rng: np.random.Generator, *, options: tuple[str, ...] = ("A", "B")) -> Asked:
    """A question about marks: everything about them is random, and so is the answer."""
    order = tuple(options[i] for i in rng.permutation(len(options)))
    marks = tuple(
        Mark(label=name, x=float(x), y=float(y))
        for name, (x, y) in zip(options, rng.uniform(8, 120, (len(options), 2)), strict=True)
    )
    drawn = tuple((m.x - 6, m.y - 6, m.x + 6 + float(rng.uniform(0, 5)), m.y + 6) for m in marks)
    first = Shown(width=128, height=128, size=9000, marks=(Mark(label="REF", x=60.0, y=50.0),))
    named = ("Of A and B, which?", "Which of B and A?")[int(rng.integers(2))]
    return Asked(
        qa_id=f"q{k}",
        task="marks",
        skill="relative_depth",
        group=f"g{k // PER_GROUP}",
        question=named,
        choices=order,
        options=order,
        answer=int(rng.integers(len(options))),
        pictures=(first, Shown(width=128, height=128, size=9000, marks=marks, drawn=drawn)),
    )


def worded(k: int, rng: np.random.Generator) -> Asked:
    """A question with yes or no about a thing, on photos of several sizes and qualities."""
    width, height = SIZES[int(rng.integers(len(SIZES)))]
    thing = ("cup", "lamp", "sofa")[int(rng.integers(3))]
    options = (("yes", "no"), ("no", "yes"))[int(rng.integers(2))]
    return Asked(
        qa_id=f"w{k}",
        task="words",
        skill="existence",
        group=f"g{k // PER_GROUP}",
        question=f"Is there a {thing}?",
        choices=options,
        options=options,
        answer=int(rng.integers(2)),
        subjects=(f"object {thing}",),
        pictures=(
            Shown(
                width=width, height=height, size=int(rng.integers(20_000, 90_000)), coarseness=float(rng.integers(1, 9))
            ),
        ),
    )


def numbered(k: int, rng: np.random.Generator) -> Asked:
    options = tuple(str(n) for n in rng.permutation([1, 2, 3, 4]))
    return replace(
        marked(k, rng),
        task="numbers",
        skill="counting",
        options=options,
        choices=options,
        answer=int(rng.integers(4)),
        pictures=(),
    )


def wanted(cue: str, pair: Asked) -> int | None:
    """The option that the cue points to; None where it points to none."""
    last = pair.pictures[-1] if pair.pictures else None
    if cue == "letter":
        return 0
    if cue == "mention":
        return min(range(2), key=lambda i: pair.question.index(pair.options[i]))
    if cue == "middle_option":
        return pair.options.index("2")
    if cue in ("text", "class_prior"):
        return pair.options.index("yes" if "lamp" in pair.question else "no")
    assert last is not None
    if cue == "image_size":
        return pair.options.index("yes" if last.width > last.height else "no")
    if cue == "image_file":
        return pair.options.index("yes" if last.coarseness > 4 else "no")
    marks = {mark.label: (mark, box) for mark, box in zip(last.marks, last.drawn, strict=True)}
    if cue == "mark_place":
        inside = [i for i, option in enumerate(pair.options) if marks[option][0].x < 64 < marks[option][0].y]
        return inside[0] if len(inside) == 1 else None
    measures = {
        "mark_height": lambda m, box: -m.y,
        "mark_centre": lambda m, box: np.hypot(m.x - 64, m.y - 64),
        "mark_left": lambda m, box: m.x,
        "mark_same_place": lambda m, box: np.hypot(m.x - 60, m.y - 50),
        "mark_size": lambda m, box: -(box[2] - box[0]) * (box[3] - box[1]),
        "mark_colour": lambda m, box: float(m.label != "B"),
    }
    return min(range(len(pair.options)), key=lambda i: measures[cue](*marks[pair.options[i]]))


def planted(cue: str, n: int, share: float = 0.6) -> list[Asked]:
    """Pairs where the cue's option is right in `share` of them."""
    rng = generator(0, "planted", cue)
    make = {
        "middle_option": numbered,
        "text": worded,
        "class_prior": worded,
        "image_size": worded,
        "image_file": worded,
    }
    pairs = [make.get(cue, marked)(k, rng) for k in range(n)]
    out = []
    for pair in pairs:
        told = wanted(cue, pair)
        if told is None:
            out.append(pair)
            continue
        others = [i for i in range(len(pair.options)) if i != told]
        answer = told if rng.random() < share else int(rng.choice(others))
        out.append(replace(pair, answer=answer))
    return out


@pytest.mark.parametrize("cue", [cue.name for cue in CUES])
def test_a_planted_leak_is_found_by_its_own_cue(cue: str) -> None:
    # Three in eight pairs have one mark in the quarter in question; the rest of them say nothing.
    found = find_shortcuts(planted(cue, 1600, share=0.77 if cue == "mark_place" else 0.6))
    test = next(test for test in found.tests if test.cue == cue)
    assert test.leaks and cue in {leak.cue for leak in found.leaks}
    assert abs(test.accuracy - 0.6) < 0.06 and test.low < test.accuracy < test.high
    assert test.least < 0.6 and test.p_holm >= test.p
    qa_id, told = test.example.split(": ", 1)
    assert qa_id.startswith(("q", "w")) and "?" in told


def test_what_is_balanced_is_not_accused() -> None:
    """All cues on random answers; 5 % of such datasets may be accused of anything."""
    accused = 0
    rng = generator(0, "fair")
    pairs = [make(k, rng) for make in (marked, worded, numbered) for k in range(120)]
    for _ in range(10):
        fresh = [replace(pair, answer=int(rng.integers(len(pair.options)))) for pair in pairs]
        accused += bool(find_shortcuts(fresh).leaks)
    assert accused <= 2


def test_pairs_of_one_photo_are_not_independent() -> None:
    """In each photo the lower mark is always right or always wrong, by the toss of a coin: no cue but high variance."""
    accused = 0
    rng = generator(0, "clustered")
    pairs = [replace(marked(k, rng), group=f"g{k // 30}") for k in range(360)]
    lower = [wanted("mark_height", pair) for pair in pairs]
    for _ in range(10):
        coin = {f"g{group}": int(rng.integers(2)) for group in range(12)}
        fresh = [replace(p, answer=abs(low - coin[p.group])) for p, low in zip(pairs, lower, strict=True)]
        accused += any(test.cue == "mark_height" for test in find_shortcuts(fresh).leaks)
    assert accused <= 2


def test_groups_stay_in_one_fold_and_all_cues_have_a_name() -> None:
    pairs = planted("letter", 400)
    folds = fold_of_each(pairs)
    assert len({(pair.group, fold) for pair, fold in zip(pairs, folds, strict=True)}) == 50
    assert set(folds) == set(range(FOLDS)) and len(set(NAMES)) == len(CUES) + 1


def test_a_question_about_the_left_has_the_left_for_its_answer() -> None:
    pairs = [replace(pair, skill="left_right") for pair in planted("mark_left", 400, share=1.0)]
    assert {"mark_left", "mark_place"}.isdisjoint(test.cue for test in find_shortcuts(pairs).tests)


def test_too_few_pairs_are_said_to_be_too_few() -> None:
    found = find_shortcuts(planted("letter", MIN_PAIRS - 1))
    assert not found.tests and f"{MIN_PAIRS - 1} pairs" in found.untested[0].reason
    assert shortcuts_json(found)["verdict"] == "not_tested"
    one_photo = [replace(pair, group="g") for pair in planted("letter", 200)]
    assert "1 source groups" in find_shortcuts(one_photo).untested[0].reason


def test_the_gate_obeys_what_is_allowed() -> None:
    section = json.loads(json.dumps(shortcuts_json(find_shortcuts(planted("mark_height", 1600, share=0.7)))))
    assert section["verdict"] == "leaks" and "marks/relative_depth/mark_height" in section["leaks"]
    with pytest.raises(GateFailed, match="mark_height") as raised:
        check_shortcuts({"shortcuts": section}, Path("out"))
    assert "output.allow_shortcuts" in raised.value.fix
    names = [name.rpartition("/")[2] for name in section["leaks"]]
    part = with_allowed(section, [f"marks/{names[0]}", "text"])
    assert part["verdict"] == ("leaks" if len(names) > 1 else "allowed_leaks") and len(part["allowed"]) == 1
    full = with_allowed(part, names)
    assert full["verdict"] == "allowed_leaks" and "allowed by the config" in summary_line(full)
    check_shortcuts({"shortcuts": full}, Path("out"))
    check_shortcuts({"shortcuts": not_tested("few")}, Path("out"))
    assert with_allowed(full, ())["leaks"] == section["leaks"], "what was allowed once can be forbidden again"
    line = next(line for line in format_shortcuts(section).splitlines() if "mark_height" in line and "e.g." in line)
    assert "% of 1600 pairs" in line and "chance 5" in line


# ----------------------------------------------------------------------------------------------------------- thinning


def leaky(n: int, letters: str = "AB") -> list[Asked]:
    """Nearer is what lies lower, or by the border: 75 to 80 % for who adds the two, and less for each alone."""
    rng = generator(1, "leaky")
    out = []
    for k in range(n):
        pair = marked(k, rng, options=tuple(letters))
        marks = {mark.label: mark for mark in pair.pictures[-1].marks}
        push = np.array(
            [(marks[o].y - 64) / 25 + np.hypot(marks[o].x - 64, marks[o].y - 64) / 30 for o in pair.options]
        )
        out.append(replace(pair, answer=int((push + rng.gumbel(size=len(push))).argmax())))
    return out


@pytest.mark.parametrize("letters", ["AB", "ABC"])
def test_thinning_leaves_nothing_to_guess(letters: str) -> None:
    pairs = leaky(1600, letters)
    before = {test.cue: test.accuracy for test in find_shortcuts(pairs).tests}
    assert min(before["together"], before["mark_height"]) > 1 / len(letters) + 0.1
    thinned = thin(pairs, seed=0)
    kept = [pair for pair in pairs if pair.qa_id not in thinned.left_out]
    found = find_shortcuts(kept)
    assert not found.leaks and max(test.accuracy - test.chance for test in found.tests) < 0.04
    assert len(kept) > 0.2 * len(pairs)
    (drop,) = thinned.drops
    assert drop.reason == "guessable" and drop.count == len(pairs) - len(kept) and drop.example
    assert thin(pairs[::-1], seed=0).left_out == thinned.left_out != thin(pairs, seed=1).left_out


def named(k: int, rng: np.random.Generator) -> Asked:
    """What is it? The sofa, the largest thing, is right twice as often as any other and offered as often as others."""
    others = [thing for thing in THINGS if thing != "sofa"]
    right = "sofa" if rng.uniform() < 0.25 else others[int(rng.integers(len(others)))]
    wrong = [thing for thing in THINGS if thing != right]
    options = tuple(
        np.array([right, *(wrong[i] for i in rng.permutation(len(wrong))[:3])])[rng.permutation(4)].tolist()
    )
    pair = replace(
        worded(k, rng), skill="object_at_mark", choices=options, options=options, answer=options.index(right)
    )
    return replace(pair, subjects=(), pictures=(Shown(width=128, height=128, size=9000),))


def hinted(k: int, rng: np.random.Generator) -> Asked:
    """Yes or no, right half of the time each: cups are mostly there and lamps mostly not."""
    pair = worded(k, rng)
    likely = {"object cup": 0.8, "object lamp": 0.2, "object sofa": 0.5}[pair.subjects[0]]
    return replace(pair, answer=pair.options.index("yes" if rng.uniform() < likely else "no"))


@pytest.mark.parametrize("ask", [named, hinted])
def test_thinning_leaves_no_class_prior(ask: Callable[[int, np.random.Generator], Asked]) -> None:
    rng = generator(5, ask.__name__)
    pairs = [ask(k, rng) for k in range(3200)]
    assert {"class_prior", "text"} <= {leak.cue for leak in find_shortcuts(pairs).leaks}
    left_out = thin(pairs, seed=0).left_out
    kept = [pair for pair in pairs if pair.qa_id not in left_out]
    found = find_shortcuts(kept)
    assert not found.leaks and max(test.accuracy - test.chance for test in found.tests) < 0.03
    assert len(kept) > 0.3 * len(pairs)


def test_a_skill_can_be_exempt_from_thinning() -> None:
    pairs = [*leaky(600), *(replace(pair, qa_id=f"x{pair.qa_id}", skill="other") for pair in leaky(600))]
    thinned = thin(pairs, seed=0)
    assert {drop.task for drop in thinned.drops} == set(thinned.left_out.values()) == {"relative_depth", "other"}
    part = thinned.without({"other"})
    assert {drop.task for drop in part.drops} == set(part.left_out.values()) == {"relative_depth"}


def test_thinning_takes_nothing_from_what_cannot_be_guessed() -> None:
    rng = generator(2, "fair")
    assert not thin([marked(k, rng) for k in range(2400)], seed=0).left_out
    assert not thin([worded(k, rng) for k in range(2400)], seed=0).left_out
    assert not thin(leaky(60), seed=0).left_out, "too few to know"


# ------------------------------------------------------------------------------------------------------------ the run


def test_a_run_that_leaks_is_written_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Crates stand in the upper half of these photos and nearer than the ground: places give depth away."""
    monkeypatch.setattr("synth.pipeline.TESTED_FROM", 100)
    folder_with_truth(tmp_path / "photos", 20)
    config = {
        "name": "leaky",
        "source": {"name": "folder", "path": str(tmp_path / "photos")},
        "perception": {"depth": {"name": "truth"}, "cache": None},
        "tasks": {"relative_depth": {"n": 200, "options": {"per_image": 24, "margin_metric": 0.02, "place_uses": 8}}},
        "output": {"validation_share": 0.0, "per_image": 24, "thin": False},
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    command = ["generate", str(tmp_path / "c.yaml"), "--unguarded"]
    leaky = [*command, "--out", str(tmp_path / "leaky")]
    assert main(leaky) == 1
    printed = capsys.readouterr()
    assert "output.allow_shortcuts" in printed.err and "relative_depth/mark_place" in printed.err
    section = json.loads((tmp_path / "leaky" / "manifest.json").read_text(encoding="utf-8"))["shortcuts"]
    assert section["verdict"] == "leaks" and "**Leaks: " in (tmp_path / "leaky" / "README.md").read_text("utf-8")
    data = [path.read_bytes() for path in data_files(tmp_path / "leaky")]
    names = ",".join({str(name).rpartition("/")[2] for name in section["leaks"]})
    assert main([*leaky, "--set", f"output.allow_shortcuts=[{names}]"]) == 0, "said of the same folder, not made again"
    assert "allowed by the config" in (tmp_path / "leaky" / "README.md").read_text("utf-8")
    assert data == [path.read_bytes() for path in data_files(tmp_path / "leaky")]
    assert main([*command, "--set", "output.allow_shortcuts=[mark_hight]", "--out", str(tmp_path / "x")]) == 2
    assert "mark_height" in capsys.readouterr().err
    assert main([*command, "--set", "output.thin=true", "--out", str(tmp_path / "thin")]) == 0
    manifest = json.loads((tmp_path / "thin" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["shortcuts"]["verdict"] == "none_found" and manifest["pairs"]["kept"] > 100
    assert any(drop["reason"] == "guessable" and drop["count"] > 20 for drop in manifest["drops"])
