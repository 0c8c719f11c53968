"""The pages of a diagnosis: what they conclude, what they leave out, and how they look in a browser."""

import re
import shutil
import subprocess
from html import escape
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

from synth.contracts import BenchmarkData
from synth.diagnosis.profile import make_profile
from synth.findings import Cell, Contrast, Flip, Matrix, Plan, Quota, Snapshot, Suspect
from synth.images import encode_png
from synth.report.advice import ERRORS, FLAGS, gravity
from synth.report.charts import letter_bars, shade, stacked
from synth.report.diagnosis import write_diagnosis
from synth.report.examples import LONGEST_REPLY, examples_of
from synth.report.matrix import write_matrix
from synth.types import Item, Outcome, Skill
from tests.test_report import HOSTILE, Page, category, open_page, profile

CHROMIUM = shutil.which("chromium")
SECTIONS = [
    "gaps",
    "alarms",
    "changes",
    "errors",
    "letters",
    "contrast",
    "categories",
    "readings",
    "power",
    "routing",
    "plan",
    "skills",
    "examples",
]


def cell(delta, verdict="no evidence", p=0.2, **more):
    values = {"n": 120, "before": 0.5, "after": 0.5 + delta, "low": delta - 0.08, "high": delta + 0.08}
    values |= {"gained": 40, "lost": 10, "p": p, "p_holm": min(1.0, 3 * p)}
    values |= {"before_low": 0.41, "before_high": 0.59, "after_low": 0.4 + delta, "after_high": 0.6 + delta}
    return Cell(delta=delta, verdict=verdict, **{**values, **more})


def snapshot(**more):
    flips = [
        Flip(item_id=f"d{i}", category="Depth", kind=kind, before="A", after=after, gold="B")
        for i, (kind, after) in enumerate([("gained", "B"), ("gained", "B"), ("lost", None), ("still wrong", "C")])
    ]
    values = {
        "before": "old-model",
        "after": "new-model",
        "categories": {"Depth": cell(0.25, "improved", 1e-5), "Jigsaw": cell(-0.2, "regressed", 0.001)},
        "overall": cell(0.02),
        "macro_before": 0.5,
        "macro_after": 0.525,
        "macro_low": -0.01,
        "macro_high": 0.06,
        "flips": tuple(flips),
        "refused": {"Reflectance": "the key of 134 items changed between the runs"},
        "only_before": 3,
        "only_after": 0,
        "needed": {"Depth": 940},
        "gate_passed": False,
        "gate_reasons": ("Jigsaw: regressed by 20 points",),
        "warnings": ("prompts cannot be checked",),
    }
    return Snapshot(**{**values, **more})


def contrast(**more):
    values = {
        "category": "Depth",
        "specialist": "depth_net",
        "n": 124,
        "localised": 121,
        "decided": 120,
        "specialist_accuracy": 0.858,
        "specialist_low": 0.784,
        "specialist_high": 0.91,
        "model_accuracy": 0.575,
        "chance": 0.5,
        "quadrants": {"trainable": 41, "solved": 62, "shortcut": 7, "ambiguous": 10},
        "reasons": {"marks_not_found": 3, "inside_margin": 1},
        "items": (),
    }
    return Contrast(**{**values, **more})


def rich_profile():
    depth = category(
        "Depth",
        0.5,
        letters={"A": 30, "B": 90},
        gold={"A": 60, "B": 60},
        errors={"perception": 40, "suspect_label": 5, "refusal": 15},
        reasons={"refusal": 15},
        n_answered=105,
        answered=0.571,
        upper=0.625,
        harness=0.44,
        judged=0.55,
        needed={"+5": 626, "+10": 100},
        flags=("at_chance", "refuses"),
        constant=0.5,
    )
    jigsaw = category(
        "Jigsaw",
        0.42,
        conflict_letter=0.653,
        conflict_text=0.68,
        reasons={"conflict": 54},
        n_answered=66,
        answered=0.76,
        upper=0.87,
        errors={"unparsed": 54, "perception": 16},
        flags=("at_chance", "conflict"),
        needed={"+5": 900},
    )
    void = category("Reflectance", 0.2, flags=("old_key",), errors={"perception": 96})
    return profile(depth, jigsaw, void, routing=("Jigsaw",), key_hash="ab12" * 16, fold=2)


def full_page(path, **more):
    plan = Plan(
        quotas=(Quota(task="relative_depth", skill=Skill.RELATIVE_DEPTH, n=1600, why="50 % against 99 %"),),
        unserved=("art_style: no task makes it",),
        notes=("the held-out fifth was not looked at",),
    )
    values = {"snapshot": snapshot(), "contrasts": [contrast()], "plan": plan, "examples": examples_of(*replies())}
    write_diagnosis(rich_profile(), path, **{**values, **more})
    return path


def part(page_text, title, end):
    body = page_text[page_text.rindex("In short") :]
    return body[body.index(title) : body.index(end)]


def replies(n=6):
    """Outcomes of three categories with 0, half and all answers wrong, and their benchmark."""
    outcomes, items = [], []
    for name, share in (("good", 0), ("half", 2), ("bad", 1)):
        for i in range(n):
            right = not share or i % share == 1
            item_id = f"{name}-{i}"
            values = {"item_id": item_id, "category": name, "skill": Skill.OTHER}
            outcomes.append(
                Outcome(
                    **values,
                    model="M",
                    text="I am sure that it is the left one. " * 20 + "Therefore (A).",
                    letter="A" if right else None,
                    reason=None if right else "refusal",
                    gold="A",
                    correct=right,
                    n_options=2,
                    n_images=1,
                )
            )
            picture = encode_png(np.full((40, 60, 3), 6 * i, np.uint8))
            items.append(
                Item(**values, question=f"Q {item_id}?", choices=("x", "y"), answer="A", prompt="", images=(picture,))
            )
    return outcomes, BenchmarkData(name="b", revision="r", items=tuple(items))


# ------------------------------------------------------------------------------------------------------- what it says


def test_every_section_is_there_and_none_without_content(tmp_path):
    page = open_page(full_page(tmp_path / "full.html"))
    found = [a["id"] for a in page.all("section")]
    # As many skills as categories: the table by skill would say the same again.
    assert found == [name for name in SECTIONS if name != "skills"]
    assert [a["href"] for a in page.all("a")] == [f"#{name}" for name in found]
    write_diagnosis(profile(category("Depth", 0.9)), tmp_path / "bare.html")
    bare = open_page(tmp_path / "bare.html")
    assert [a["id"] for a in bare.all("section")] == ["gaps", "categories"]


def test_an_old_key_enters_no_sentence_and_stands_last(tmp_path):
    text = open_page(full_page(tmp_path / "r.html")).text
    short = part(text, "In short", "Mean over categories")
    assert "a score that means nothing; these sentences leave it out: Reflectance (old key)" in short
    furthest = short[short.index("Furthest") : short.index("In 2 of 2 categories")]
    assert "Jigsaw (42.0% against 95.0%)" in furthest and "Reflectance" not in furthest
    gaps = part(text, "Where it falls short", "Alarms")
    assert gaps.index("Jigsaw") < gaps.index("Depth") < gaps.index("Reflectance Old key")


def test_a_score_at_chance_that_is_a_matter_of_reading_is_told_apart(tmp_path):
    short = part(open_page(full_page(tmp_path / "r.html")).text, "In short", "Mean over categories")
    assert "Above guessing after all on the replies that could be read: Jigsaw, 76.0% of 66." in short
    # 57.1 % of 105 with two options may still be guessing.
    assert "Depth, 57.1%" not in short


def test_errors_that_are_not_about_sight_are_counted_in_words(tmp_path):
    text = open_page(full_page(tmp_path / "r.html")).text
    # 60 of Depth and 70 of Jigsaw; the void category's errors are nobody's.
    assert "Of 130 wrong answers 74 say nothing about sight: 5 suspect label, 54 unparsed, 15 refusal." in text
    errors = part(text, "Why answers are wrong", "Letters it gives")
    assert "60 of 120" in errors and "40 perception, 5 suspect label, 15 refusal" in errors
    for kind in ("perception", "suspect_label", "unparsed", "refusal"):
        assert ERRORS[kind] in errors
    assert ERRORS["truncated"] not in errors


def test_every_way_to_count_is_printed(tmp_path):
    text = open_page(full_page(tmp_path / "r.html")).text
    readings = part(text, "Other ways to count", "What a claim needs")
    for number in ("57.1%", "105 of 120", "62.5%", "65.3%", "68.0%", "55.0%", "44.0%", "−6.0 points"):
        assert number in readings, number
    assert "Reflectance" not in readings  # all of it was read, and nobody else counted


def test_power_tells_where_a_claim_is_possible(tmp_path):
    power = part(open_page(full_page(tmp_path / "r.html")).text, "What a claim needs", "What to send elsewhere")
    assert "No category has enough questions to show a change of five points." in power
    assert "626 506 more than here" in power and "100 enough here" in power
    able = category("Depth", 0.5, n=700, needed={"+5": 626})
    write_diagnosis(profile(able, category("Jigsaw", 0.5, needed={"+5": 626})), tmp_path / "able.html")
    assert "1 of 2 categories can show a change of five points: Depth." in open_page(tmp_path / "able.html").text


def test_contrast_is_told_in_words_over_the_items_that_were_decided(tmp_path):
    text = open_page(full_page(tmp_path / "r.html")).text
    told = part(text, "Is it in the picture?", "All numbers")
    assert "the picture holds the answer and the model misses it: 41 of 120" in told
    assert "found in 121 of 124 questions; the specialist spoke on 120" in told
    assert "1 inside margin, 3 marks not found" in told
    mute = contrast(quadrants={}, decided=0, localised=0)
    text = open_page(full_page(tmp_path / "mute.html", contrasts=[mute])).text
    assert "could not judge any of these questions" in text and "of 0" not in text


def test_before_and_after_gives_verdicts_refusals_flips_and_gate(tmp_path):
    text = open_page(full_page(tmp_path / "r.html")).text
    told = part(text, "Against the earlier run", "Why answers are wrong")
    assert "Of 2 compared categories 1 improved (Depth) and 1 got worse (Jigsaw)." in told
    assert "50.0% to 52.5%: +2.5 points (95% interval −1.0 to +6.0)" in told
    assert "Gate failed" in told and "Jigsaw: regressed by 20 points" in told
    assert told.index("+25.0") < told.index("−20.0") < told.index("All questions together")
    assert "the key of 134 items changed" in told and "3 questions that only the run before holds" in told
    assert "Depth: 2 gained, 1 lost, 1 wrong in another way" in told
    assert told.index("d2 A – B lost") < told.index("d0 A B B gained")
    assert "3 × 10⁻⁵ raw 1 × 10⁻⁵" in told and "940" in told


def test_nothing_comparable_is_said_plainly(tmp_path):
    nothing = snapshot(categories={}, overall=None, flips=(), gate_passed=True, gate_reasons=(), needed={}, warnings=())
    told = part(open_page(full_page(tmp_path / "r.html", snapshot=nothing)).text, "Against the", "Why answers")
    assert "No category may be compared." in told and "The mean over" not in told
    assert "Nothing that the gate watches got worse" in told


def test_alarms_come_gravest_first_each_with_what_to_do(tmp_path):
    flags = ("few_items", "entirely_new", "collapsed", "one_letter", "old_key")
    assert sorted(flags, key=gravity) == ["old_key", "collapsed", "one_letter", "few_items", "entirely_new"]
    write_diagnosis(profile(category("Depth", 0.5, flags=flags)), tmp_path / "r.html")
    alarms = part(open_page(tmp_path / "r.html").text, "Alarms", "All numbers")
    assert FLAGS["old_key"].todo in alarms and "no sentence for it" in alarms
    assert FLAGS["one_letter"].meaning not in alarms  # collapsed says it already


def test_pages_of_hostile_names_stay_pages(tmp_path):
    bad = category(HOSTILE, 0.4, letters={HOSTILE: 3}, gold={"A": 3}, errors={HOSTILE: 5}, needed={HOSTILE: 9})
    it = snapshot(categories={HOSTILE: cell(0.1)}, refused={HOSTILE: HOSTILE}, gate_reasons=(HOSTILE,))
    plan = Plan(quotas=(Quota(task=HOSTILE, skill=Skill.OTHER, n=1, why=HOSTILE),), unserved=(HOSTILE,))
    many = [contrast(category=HOSTILE, specialist=HOSTILE, reasons={HOSTILE: 1})]
    write_diagnosis(profile(bad, routing=(HOSTILE,)), tmp_path / "r.html", snapshot=it, plan=plan, contrasts=many)
    assert HOSTILE in open_page(tmp_path / "r.html").text
    write_matrix(matrix(names=(HOSTILE, "b")), tmp_path / "m.html")
    assert HOSTILE in open_page(tmp_path / "m.html").text


def test_the_page_does_not_depend_on_where_or_when(tmp_path):
    first, second = full_page(tmp_path / "a.html"), full_page(tmp_path / "b.html")
    assert first.read_bytes() == second.read_bytes()


# -------------------------------------------------------------------------------------------------------------- charts


def test_stacked_bar_is_proportional_to_all_items_and_keeps_kinds_apart():
    page = Page(stacked({"perception": 30, "refusal": 10, "truncated": 0}, 80))
    pieces = {a["class"]: float(a["width"]) for a in page.all("rect")}
    assert pieces.keys() == {"rest", "seg k-perception", "seg k-refusal"}
    assert pieces["seg k-perception"] + 1 == pytest.approx(pieces["rest"] * 30 / 80, abs=0.1)
    assert page.all("svg")[0]["aria-label"] == "perception 30, refusal 10 of 80"
    assert "<svg" not in stacked({}, 0)


def test_letter_bars_compare_shares_not_counts():
    page = Page(letter_bars({"B": 20}, {"A": 100, "B": 300}))
    tall = {(a["class"], i // 2): float(a["height"]) for i, a in enumerate(page.all("rect"))}
    assert tall["letter said", 0] == 0 and tall["letter key", 1] == pytest.approx(0.75 * tall["letter said", 1])
    assert "<svg" not in letter_bars({}, {"A": 1})


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_heat_darkens_away_from_chance_and_its_numbers_can_be_read():
    above = [luminance(shade(k / 20).paper) for k in range(21)]
    assert all(a > b for a, b in pairwise(above))
    assert luminance(shade(-0.4).paper) < luminance(shade(-0.1).paper) < luminance(shade(0).paper)
    # Orange and blue differ in the channel that red-green blindness keeps.
    below, over = shade(-0.4).paper, shade(0.5).paper
    assert int(over[5:], 16) - int(below[5:], 16) > 100
    for k in range(-40, 101):
        tint = shade(k / 100)
        low, high = sorted((luminance(tint.paper), luminance(tint.ink)))
        assert (high + 0.05) / (low + 0.05) > 3.9, k
    assert shade(-3).paper == shade(-0.4).paper and shade(2).paper == shade(1).paper


# ------------------------------------------------------------------------------------------------------------ examples


def test_examples_take_turns_from_the_worst_category():
    outcomes, data = replies()
    chosen = examples_of(outcomes, data, n=5)
    assert [example.skill for example in chosen] == ["bad", "half", "bad", "half", "bad"]
    assert all(example.answer == "A" and example.replies == {"M": None} for example in chosen)
    assert len({example.question for example in chosen}) == 5
    assert len(examples_of(outcomes, data, n=100)) == 9  # all wrong ones, and no right one
    note = chosen[0].note
    assert (
        "No letter: refusal." in note
        and "“I am sure" in note
        and "Therefore (A).”" in note
        and len(note) < LONGEST_REPLY + 60
    )


def test_examples_are_the_same_in_any_order_and_others_with_another_seed():
    outcomes, data = replies(30)
    first = examples_of(outcomes, data, seed=1)
    assert [e.question for e in examples_of(outcomes[::-1], data, seed=1)] == [e.question for e in first]
    assert [e.question for e in examples_of(outcomes, data, seed=2)] != [e.question for e in first]


def test_examples_need_the_item():
    outcomes, data = replies()
    fewer = BenchmarkData(name="b", revision="r", items=tuple(i for i in data.items if i.category != "bad"))
    assert {example.skill for example in examples_of(outcomes, fewer)} == {"half"}


# -------------------------------------------------------------------------------------------------------------- matrix


def matrix(names=("big", "small"), **more):
    values = {
        "categories": ("Depth", "Jigsaw", "IQ_Test"),
        "accuracy": ((0.9, 0.47, 0.25), (0.5, None, 0.2)),
        "above_chance": ((0.8, -0.06, 0.0), (0.0, None, -0.07)),
        "collapsed": ((False, True, False), (False, False, False)),
        "macro": (0.54, 0.35),
        "n": (120, 150, 100),
        "chance": (0.5, 0.5, 0.25),
        "human": (0.99, 0.99, None),
        "clusters": (0, 1, 1),
        "missed_by_all": ("Jigsaw", "IQ_Test"),
        "missed_items": {"IQ_Test": tuple(f"q{i}" for i in range(230)), "Depth": ()},
        "suspects": (Suspect(item_id="d7", category="Depth", gold="A", said="B", agree=7, answered=8),),
    }
    return Matrix(models=names, **{**values, **more})


def test_matrix_prints_each_cell_once_with_its_colour(tmp_path):
    write_matrix(matrix(), tmp_path / "m.html")
    page = open_page(tmp_path / "m.html")
    cells = {a["title"]: a for a in page.all("td") if "title" in a}
    assert len(cells) == 6
    deep = cells["big, Depth: 90.0%, 80% of the way from guessing to all right"]
    assert shade(0.8).paper in deep["style"] and "one" not in deep["class"]
    flat = cells["big, Jigsaw: 47.0%, -6% of the way from guessing to all right, nearly always the same letter"]
    assert flat["class"] == "one"
    assert shade(None).paper in cells["small, Jigsaw: no scored item"]["style"]
    heat = page.text[page.text.index("one letter nearly always") :]
    assert "Depth 120 questions 90 50 50 99 Jigsaw 150 questions · missed by all 47 – 50 99" in heat
    assert "Mean over the categories 54 35" in heat
    assert len([a for a in page.all("tr") if a.get("class") == "gap"]) == 1  # between the two clusters


def test_matrix_says_what_all_miss_and_which_labels_to_doubt(tmp_path):
    write_matrix(matrix(warnings=("Agreement is not truth",)), tmp_path / "m.html")
    text = open_page(tmp_path / "m.html").text
    assert "In 2 of 3 categories none of 2 models is above guessing: Jigsaw, IQ Test." in text
    assert "1 of 5 squares are one letter" in text and "Best of 2: big, 54.0%" in text
    assert "IQ Test: 230 of 100" in text and "q199 and 30 more" in text and "Depth: 0" not in text
    assert "d7 Depth A B 7 of 8" in text and "Agreement is not truth" in text
    plain = matrix(missed_by_all=(), missed_items={}, suspects=(), collapsed=((False,) * 3,) * 2)
    write_matrix(plain, tmp_path / "p.html")
    page = open_page(tmp_path / "p.html")
    assert "Each of 3 categories is above guessing for at least one of 2 models." in page.text
    assert [a["id"] for a in page.all("section")] == ["matrix"]


# ----------------------------------------------------------------------------------------------------- the real thing


def test_the_released_replies_of_a_model_make_a_page(shared, tmp_path):
    from synth.diagnosis.reading import read_results, read_runs

    folder = shared / "blink_outputs" / "llava_v1.5_7b"
    outcomes = [o for o in read_results(folder, "auto") if o.gold is not None]
    write_diagnosis(make_profile(outcomes, read_runs(folder)[0].benchmark), tmp_path / "r.html")
    page = open_page(tmp_path / "r.html")
    assert "no sentence for it" not in page.text
    assert {"gaps", "alarms", "errors", "letters", "categories"} <= {a["id"] for a in page.all("section")}
    charts = [a["aria-label"] for a in page.all("svg") if a["class"] == "chart letters"]
    assert len(charts) == 14


FLAGS_OF_BROWSER = """--headless=new --no-sandbox --disable-gpu --disable-background-networking --disable-sync
    --disable-component-update --no-first-run --hide-scrollbars --enable-logging=stderr --window-size=1280,2400"""
MEASURE = """onload = () => document.title = [...document.querySelectorAll(".narrow")]
    .map(frame => frame.contentDocument.documentElement.scrollWidth - frame.clientWidth).join()"""


def framed(page, width):
    text = escape(page.read_text(encoding="utf-8"))
    return f'<iframe class="narrow" width="{width}" height="600" srcdoc="{text}"></iframe>'


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_pages_render_in_a_browser_without_errors_and_fit_a_phone(tmp_path):
    diagnosis, many = full_page(tmp_path / "r.html"), tmp_path / "m.html"
    write_matrix(matrix(names=("a-model-with-a-rather-long-name-that-goes-on", "b")), many)
    # The page as it is, and below it both pages as wide as a phone and as paper: the outer page measures those.
    wide = f'<iframe src="{diagnosis.name}" width="1280" height="2400" style="border: 0"></iframe>'
    narrow = "".join(framed(page, width) for page in (diagnosis, many) for width in (400, 700))
    outer, shot = tmp_path / "outer.html", tmp_path / "shot.png"
    outer.write_text(f'<body style="margin: 0"><title>-</title>{wide}{narrow}<script>{MEASURE}</script>', "utf-8")
    command = [CHROMIUM, *FLAGS_OF_BROWSER.split(), f"--user-data-dir={tmp_path / 'browser'}"]
    command += ["--dump-dom", f"--screenshot={shot}", outer.as_uri()]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    assert "CONSOLE" not in ran.stderr, ran.stderr
    assert re.findall(r"<title>([^<]*)</title>", ran.stdout)[0] == "0,0,0,0"
    pixels = np.asarray(Image.open(shot).convert("RGB"), float)
    assert pixels.shape == (2400, 1280, 3)
    # Text and charts all the way down, not a blank page.
    assert (pixels.reshape(8, 300, 1280, 3).std(axis=(1, 2, 3)) > 8).all()
