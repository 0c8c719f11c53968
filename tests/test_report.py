"""The HTML pages: what they say, what they escape, what they load (nothing), and what they say of what is missing."""

import base64
import io
import json
import re
from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from finetune.compare import Rerun, compare, comparison_to_json
from synth.contracts import Task
from synth.diagnosis.profile import make_profile, profile_to_json
from synth.errors import DatasetError, ImageError, RunError
from synth.findings import CategoryProfile, Profile
from synth.images import encode_jpeg, encode_png
from synth.plan import PlanOptions, make_plan, plan_to_json
from synth.report import html
from synth.report.advice import FLAGS
from synth.report.cards import LONGEST_SIDE, Example, card, picture
from synth.report.changes import tone_of
from synth.report.diagnosis import write_diagnosis
from synth.report.html import Estimate
from synth.report.run import write_run_report
from synth.report.view import PAGE, choose, write_view
from synth.types import Outcome, PluginOptions, Skill

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7 * 7 }}"


def png(value=90, size=(48, 40)):
    return encode_png(np.full((size[1], size[0], 3), value, np.uint8))


class Page(HTMLParser):
    """Tags with their attributes, and the text between them with blanks squeezed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.pieces = [], []
        self.feed(text)
        self.close()
        self.text = " ".join(" ".join(self.pieces).split())

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if not self.tags or self.tags[-1][0] != "style":
            self.pieces.append(data)

    def all(self, tag, **wanted):
        return [a for t, a in self.tags if t == tag and all(a.get(k) == v for k, v in wanted.items())]


def open_page(path):
    """Parse a page and hold it to the rules that every page obeys."""
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    policy = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert [a["content"] for a in policy] == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"]
    assert not page.all("script") and not page.all("iframe") and not page.all("object")
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        for name in ("src", "srcset", "href", "data", "action"):
            address = attributes.get(name, "data:")
            assert address.startswith(("data:", "#")) or re.fullmatch(r"(index|page-\d{3})\.html", address), address
    assert "http" not in text.replace("http-equiv", "")
    assert "url(" not in text and "@import" not in text
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    for link in page.all("a"):
        assert not link["href"].startswith("#") or link["href"][1:] in ids
    return page


# ------------------------------------------------------------------------------------------------- html


def circles(svg):
    return [float(a["cx"]) for a in Page(svg).all("circle")]


def test_bar_places_value_interval_and_ticks_on_one_scale():
    svg = html.interval_bar(Estimate(value=0.5, low=0.25, high=1.0), chance=0.5, human=1.0, label="depth")
    page = Page(svg)
    middle, end = 150.0, 291.0
    assert circles(svg) == [middle]
    assert [(float(a["x1"]), float(a["x2"])) for a in page.all("line", **{"class": "chance"})] == [(middle, middle)]
    spans = [(float(a["x1"]), float(a["x2"])) for a in page.all("line", **{"class": "iv after"})]
    assert (79.5, end) in spans
    assert page.all("path", **{"class": "human"})[0]["d"].startswith(f"M{end}")
    assert page.all("svg")[0]["aria-label"] == "depth: 50.0% (25.0% to 100.0%); chance 50.0%; human 100.0%"


def test_bar_without_references_or_interval_draws_none():
    page = Page(html.interval_bar(Estimate(value=0.5)))
    assert not page.all("line", **{"class": "chance"}) and not page.all("path")
    assert not page.all("line", **{"class": "iv after"})
    assert "no value" in html.interval_bar(Estimate(value=float("nan")))


def test_dumbbell_keeps_before_and_after_in_order_and_inside_the_picture():
    svg = html.dumbbell(Estimate(value=0.2), Estimate(value=1.7), tone="up")
    before, after = circles(svg)
    assert before < after <= 300
    assert Page(svg).all("circle", **{"class": "dot after up"})


def test_histogram_counts_every_value_once_and_the_edges_in_the_outermost_bins():
    svg = html.histogram([0.0, 0.05, 0.95, 1.0, 7.0, float("nan")], bins=10)
    titles = re.findall(r"<title>(\d) of (\d)</title>", svg)
    assert [int(n) for n, _ in titles] == [2, 0, 0, 0, 0, 0, 0, 0, 0, 3]
    assert {total for _, total in titles} == {"5"}
    assert "no values" in html.histogram([])


def test_share_bar_is_proportional():
    widths = [float(a["width"]) for a in Page(html.share_bar({"A": 30, "B": 10})).all("rect")]
    assert widths[0] + 1 == pytest.approx(3 * (widths[1] + 1), abs=0.3)


def test_labels_of_charts_are_escaped():
    for svg in (
        html.interval_bar(Estimate(value=0.5), label=HOSTILE),
        html.share_bar({HOSTILE: 3}, label=HOSTILE),
        html.histogram([0.5], label=HOSTILE),
    ):
        assert "<script" not in svg and "<img" not in svg


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0123, "0.012"), (0.35, "0.35"), (2e-28, "2 × 10⁻²⁸"), (0.0, "below 10⁻³⁰⁰"), (None, "–"), (1.0, "1.00")],
)
def test_p_values_in_words(value, text):
    assert html.p_value(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.2869, "+28.7"), (-0.024, "−2.4"), (0.0, "±0.0"), (-0.00001, "±0.0"), (None, "–")]
)
def test_points_carry_their_sign(value, text):
    assert html.points(value) == text


def test_data_uri_takes_pictures_only():
    data = png()
    assert base64.b64decode(html.data_uri(data).removeprefix("data:image/png;base64,")) == data
    assert html.data_uri(encode_jpeg(np.zeros((40, 40, 3), np.uint8))).startswith("data:image/jpeg;")
    for other in (b"<svg onload='alert(1)'/>", b"GIF89a", b""):
        with pytest.raises(ImageError):
            html.data_uri(other)


# ------------------------------------------------------------------------------------------------ cards


def test_large_picture_is_reduced_and_says_so():
    shown = picture(png(size=(1600, 400)), "picture")
    assert (shown.width, shown.height) == (LONGEST_SIDE, LONGEST_SIDE // 4)
    assert "1600 × 400" in shown.note
    raw = base64.b64decode(shown.uri.partition(",")[2])
    assert Image.open(io.BytesIO(raw)).size == (shown.width, shown.height)


def test_broken_picture_gives_a_card_that_says_so():
    shown = picture(b"not a picture", "picture")
    assert shown.uri == "" and "unknown_format" in shown.note


def test_card_marks_the_right_choice_and_who_chose_what():
    example = Example(
        images=(),
        question="q",
        choices=("x", "y"),
        answer="B",
        skill="counting",
        replies={"before": "A", "after": None},
    )
    made = card(example)
    assert [(c.letter, c.right, c.chosen_by) for c in made.choices] == [("A", False, ("before",)), ("B", True, ())]
    assert made.silent == ("after",)


def test_card_keeps_a_letter_beyond_the_options():
    made = card(Example(images=(), question="q", choices=("x",), answer="A", skill="s", replies={"m": "C"}))
    assert [c.letter for c in made.choices] == ["A", "B", "C"]
    assert made.choices[2].chosen_by == ("m",)


# -------------------------------------------------------------------------------------------- diagnosis


def category(name, accuracy, human=0.95, **more):
    values = {
        "skill": Skill.OTHER,
        "n": 120,
        "low": accuracy - 0.08,
        "high": accuracy + 0.08,
        "chance": 0.5,
        "balanced": None,
        "answered": accuracy,
        "n_answered": 120,
        "n_unscored": 0,
        "majority_share": 0.55,
        "majority_letter": "B",
        "reasons": {},
        "flags": (),
    }
    return CategoryProfile(name=name, accuracy=accuracy, human=human, **{**values, **more})


def profile(*categories, **more):
    values = {"benchmark": "BLINK", "model": "M1", "macro": 0.6004, "micro": 0.5952, "chance": 0.3809, "human": 0.957}
    return Profile(categories=categories, skills=categories, **{**values, **more})


def test_diagnosis_says_the_headline_and_sorts_by_the_gap_to_people(tmp_path):
    close, far = category("Near_Human", 0.9), category("Far_Off", 0.4)
    write_diagnosis(profile(close, far), tmp_path / "r.html")
    text = open_page(tmp_path / "r.html").text
    for number in ("60.0%", "59.5%", "38.1%", "95.7%", "+22.0 points"):
        assert number in text
    table = text[text.rindex("Where it falls short") :]
    assert table.index("Far Off") < table.index("Near Human")
    assert "55.0" in table  # the gap of Far_Off in points


def test_diagnosis_counts_replies_without_a_letter(tmp_path):
    silent = category("Jigsaw", 0.5, reasons={"refusal": 9, "ambiguous": 3}, answered=0.555, n_answered=108)
    write_diagnosis(profile(silent), tmp_path / "r.html")
    text = open_page(tmp_path / "r.html").text
    assert "3 ambiguous, 9 refusal" in text
    assert "55.5% right of the 108 answered" in text


def test_diagnosis_explains_every_flag_known_or_not(tmp_path):
    flags = (*FLAGS, "old_key: key of 2024", "entirely_new")
    write_diagnosis(profile(category("Depth", 0.5, flags=flags)), tmp_path / "r.html")
    text = open_page(tmp_path / "r.html").text
    for advice in (advice for flag, advice in FLAGS.items() if flag != "one_letter"):  # part of `collapsed`
        assert advice.meaning in text and advice.todo in text
    assert "key of 2024" in text
    assert "Entirely new" in text and "no sentence for it" in text


def test_flags_of_a_real_profile_all_have_a_sentence(tmp_path):
    values = {"skill": Skill.OTHER, "model": "M1", "n_options": 4, "n_images": 1}
    outcomes = [
        Outcome(item_id=f"a{i}", category="same", text="A", letter="A", reason=None, gold="B", correct=False, **values)
        for i in range(40)
    ] + [
        Outcome(item_id=f"b{i}", category="silent", text="", letter=None, reason=why, gold="B", correct=False, **values)
        for i, why in enumerate(["refusal", "truncated", "ambiguous"] * 3)
    ]
    hidden = {"reason": "unscored", "gold": None, "correct": None}
    outcomes.append(Outcome(item_id="c", category="hidden", text="A", letter="A", **hidden, **values))
    seen = make_profile(outcomes)
    assert {flag for c in seen.categories for flag in c.flags} >= {"collapsed", "refuses", "truncated", "unscored"}
    write_diagnosis(seen, tmp_path / "r.html")
    text = open_page(tmp_path / "r.html").text
    assert "no sentence for it" not in text
    assert "not scored" in text
    table = text[text.rindex("All numbers") :]
    assert table.index("Silent") < table.index("Hidden")


def test_diagnosis_of_nothing_scored_says_so(tmp_path):
    empty = category("Test_Split", 0.0, n=0, low=0.0, high=1.0, n_answered=0, n_unscored=9, flags=("unscored",))
    write_diagnosis(profile(empty, macro=0.0, micro=0.0), tmp_path / "r.html")
    text = open_page(tmp_path / "r.html").text
    assert "Nothing could be scored" in text and " 0.0%" not in text


def test_diagnosis_without_human_scores_does_not_invent_them(tmp_path):
    write_diagnosis(profile(category("Depth", 0.5, human=None), human=None), tmp_path / "r.html")
    text = open_page(tmp_path / "r.html").text
    assert "people reach" not in text and "No human score is published" in text


def test_diagnosis_escapes_and_warns(tmp_path):
    example = Example(
        images=(png(), b"broken"),
        question=HOSTILE,
        choices=(HOSTILE, "b"),
        answer="A",
        skill="counting",
        replies={HOSTILE: "B"},
        note=HOSTILE,
    )
    bad = category(HOSTILE, 0.4, flags=(HOSTILE,), reasons={HOSTILE: 2}, majority_letter=HOSTILE)
    write_diagnosis(
        profile(bad, model=HOSTILE, warnings=(HOSTILE, "old answer key")), tmp_path / "r.html", examples=[example]
    )
    page = open_page(tmp_path / "r.html")
    assert HOSTILE in page.text
    assert "2 warnings" in page.text and "old answer key" in page.text
    assert len(page.all("img")) == 1


# ------------------------------------------------------------------------------------------------- view


def make_row(i, skill="relative_depth", **more):
    measures = {
        "skill": skill,
        "members": [
            {"backend": "net", "depths_m": {"A": 1.50123, "B": 2.1}},
            {"backend": "flip", "depths_m": {"A": 1.6}},
        ],
        "gap_px": 41,
        "sure": True,
        "many": list(range(50)),
    }
    provenance = {
        "task": "t",
        "version": 3,
        "wording": 1,
        "backends": ["net@1"],
        "options": ["A", "B"],
        "measures": measures,
        "panels": [{"image": "view", "marks": [{"label": "A", "x": 10.5, "y": 20.25}]}],
    }
    return {
        "qa_id": f"{skill}-{i:04d}",
        "images": [{"bytes": png(i % 200), "path": None}],
        "question": f"Question {i}?",
        "choices": ["first", "second"],
        "answer": "AB"[i % 2],
        "task": "t",
        "skill": skill,
        "role": "target",
        "difficulty": (i % 10) / 10,
        "stratum": "lower" if i % 2 else "higher",
        "source": "folder",
        "license": "CC-BY-4.0",
        "image_ids": ["ab12"],
        "source_group": f"g{i}",
        "provenance": json.dumps(provenance),
        **more,
    }


def write_dataset(folder, rows):
    (folder / "data").mkdir(parents=True)
    image = pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    half = (len(rows) + 1) // 2
    for number, part in enumerate((rows[:half], rows[half:])):
        table = pa.Table.from_pylist(part) if part else None
        if table is not None:
            place = table.schema.get_field_index("images")
            table = table.set_column(place, "images", pa.array([row["images"] for row in part], image))
            pq.write_table(table, folder / "data" / f"train-{number:05d}-of-00002.parquet")
    return folder


def test_view_shows_question_choices_answer_and_the_numbers_behind_it(tmp_path):
    dataset = write_dataset(tmp_path / "ds", [make_row(1)])
    (dataset / "evidence").mkdir()
    (dataset / "evidence" / "ab12.jpg").write_bytes(encode_jpeg(np.zeros((40, 48, 3), np.uint8)))
    assert write_view(dataset, tmp_path / "out", 10) == 1
    page = open_page(tmp_path / "out" / "index.html")
    for fact in (
        "Question 1?",
        "B second ✓",
        "A first",
        "member 1 · depths A = 1.501 m · B = 2.1 m",
        "member 2 · depths A = 1.6 m",
        "gap 41 px",
        "sure yes",
        "42 more",
        "mark A (10.5, 20.25) px",
        "net@1",
        "CC-BY-4.0",
        "difficulty 0.10",
    ):
        assert fact in page.text, fact
    assert len(page.all("li", **{"class": "right"})) == 1
    assert [a["alt"] for a in page.all("img")] == ["picture", "depth overlay"]


def test_view_pages_by_fifty_in_a_stable_order_and_removes_stale_pages(tmp_path):
    dataset = write_dataset(tmp_path / "ds", [make_row(i) for i in range(2 * PAGE + 3)])
    out = tmp_path / "out"
    assert write_view(dataset, out, 0) == 2 * PAGE + 3
    names = ["index.html", "page-002.html", "page-003.html"]
    assert sorted(p.name for p in out.iterdir()) == names
    ids = [a["id"] for name in names for a in open_page(out / name).all("article")]
    assert sorted(ids) == [f"relative_depth-{i:04d}" for i in range(2 * PAGE + 3)]
    first = (out / "index.html").read_bytes()
    write_view(dataset, out, 0)
    assert (out / "index.html").read_bytes() == first
    write_view(dataset, out, 5)
    assert [p.name for p in out.iterdir()] == ["index.html"]
    assert "5 of 103 questions" in open_page(out / "index.html").text


def test_limited_view_is_balanced_over_skills(tmp_path):
    rows = [make_row(i) for i in range(30)] + [make_row(i, "counting") for i in range(30)] + [make_row(0, "jigsaw")]
    dataset = write_dataset(tmp_path / "ds", rows)
    chosen, total = choose(dataset, 11)
    assert total == 61
    skills = [rows[i]["skill"] for i in chosen]
    assert {s: skills.count(s) for s in set(skills)} == {"relative_depth": 5, "counting": 5, "jigsaw": 1}
    assert choose(dataset, 11) == (chosen, total)


def test_view_escapes_and_never_leaves_the_evidence_folder(tmp_path):
    (tmp_path / "secret.jpg").write_bytes(encode_jpeg(np.zeros((40, 48, 3), np.uint8)))
    row = make_row(
        0,
        HOSTILE,
        question=HOSTILE,
        choices=[HOSTILE, "b"],
        license=HOSTILE,
        image_ids=["../../secret"],
        provenance=json.dumps({"measures": {HOSTILE: HOSTILE}}),
        stratum=HOSTILE,
    )
    dataset = write_dataset(tmp_path / "ds", [row, make_row(1, provenance="{not json", images=[])])
    (dataset / "evidence").mkdir()
    write_view(dataset, tmp_path / "out", 0)
    page = open_page(tmp_path / "out" / "index.html")
    assert HOSTILE in page.text
    assert len(page.all("img")) == 1
    assert "not valid JSON" in page.text and "no picture is stored" in page.text


def test_view_refuses_what_is_no_dataset(tmp_path):
    with pytest.raises(DatasetError):
        write_view(tmp_path, tmp_path / "out", 5)
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "data" / "x.parquet")
    with pytest.raises(DatasetError, match="qa_id"):
        write_view(tmp_path, tmp_path / "out", 5)
    assert not (tmp_path / "out").exists()


# -------------------------------------------------------------------------------------------------- run


def cell(n, before, after, p, verdict, p_holm=None):
    return {
        "n": n,
        "before": before,
        "after": after,
        "delta": after - before,
        "low": after - before - 0.04,
        "high": after - before + 0.04,
        "p": p,
        "p_holm": p_holm,
        "verdict": verdict,
        "before_low": before - 0.03,
        "before_high": before + 0.03,
        "after_low": after - 0.03,
        "after_high": after + 0.03,
    }


def comparison():
    return {
        "per_skill": {
            "relative_depth": cell(600, 0.518, 0.805, 2e-28, "improved", 4e-28),
            "object_at_mark": cell(300, 0.833, 0.83, 0.9, "no evidence", 1.0),
            "left_right": cell(600, 0.492, 0.468, 0.33, "no evidence", 0.66),
        },
        "overall": {
            **cell(1500, 0.571, 0.675, 1e-9, "improved"),
            "macro_before": 0.614,
            "macro_after": 0.701,
            "macro_delta": 0.087,
        },
        "targets": ["relative_depth"],
        "warnings": ["2 items have no public answer"],
        "retention": {
            "margin": 0.03,
            "passed": True,
            "object_at_mark": {**cell(300, 0.833, 0.83, 0.9, "no evidence", 1.0), "kept": "kept", "passed": True},
            "all_kept_skills": {**cell(300, 0.833, 0.83, 0.9, "no evidence"), "kept": "kept", "passed": True},
        },
        "controls": {
            "shuffled": {
                "relative_depth": {
                    **cell(600, 0.518, 0.492, 0.35, "no evidence"),
                    "advantage": cell(600, 0.492, 0.805, 1e-9, "improved"),
                }
            }
        },
        "gate": {"passed": True, "reasons": []},
        "strata": {
            "relative_depth": {
                "nearer_point": {
                    "higher": {"n": 301, "before": 0.447, "after": 0.793},
                    "lower": {"n": 300, "before": 0.587, "after": 0.817},
                }
            }
        },
    }


def dump(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def bare_round(folder, compared=None):
    levels = {"relative_depth": {"n": 600, "accuracy": 0.518, "chance": 0.5, "human": 0.99}}
    dump(
        folder / "before" / "profile.json",
        {
            "macro": 0.6,
            "micro": 0.6,
            "chance": 0.4,
            "human": None,
            "benchmark": "rooms",
            "model": "tiny",
            "categories": {},
            "skills": levels,
            "warnings": ["rooms look alike"],
        },
    )
    dump(folder / "comparison.json", compared or comparison())
    return folder


QUOTAS = [
    {
        "task": "relative_depth",
        "skill": "relative_depth",
        "n": 4800,
        "why": "not above guessing",
        "role": "target",
        "made": 4790,
    },
    {"task": "object_at_mark", "skill": "object_at_mark", "n": 720, "why": "rehearsal", "role": "replay", "made": 720},
]


def full_round(folder):
    bare_round(folder)
    dump(folder / "plan.json", {"quotas": QUOTAS, "unserved": ["existence"]})
    for name, letters in (("before", "BBBB"), ("after", "ABAA")):
        lines = [
            {"item_id": f"q{i}", "skill": "relative_depth", "letter": letter, "gold": gold, "correct": letter == gold}
            for i, (letter, gold) in enumerate(zip(letters, "ABAB", strict=True))
        ]
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "outcomes.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    write_dataset(folder / "dataset", [make_row(i) for i in range(4)])
    dump(
        folder / "dataset" / "manifest.json",
        {
            "schema": "s2p-manifest/1",
            "run": "r",
            "code_version": "9.8.7",
            "config": {"name": "demo", "seed": 5},
            "images": {"listed": 512, "used": 500, "dropped": 12},
            "seconds": 43.2,
            "pairs": {
                "candidates": 15233,
                "kept": 5510,
                "by_skill": {"relative_depth": 4790},
                "by_split": {"train": 5234},
                "letters": {"relative_depth": {"A": 2395, "B": 2395}},
                "strata": {"relative_depth": {"lower": 2395}},
            },
            "quotas": QUOTAS,
            "perception": {"passes": 3.0},
            "drops": [
                {"stage": "guard", "task": "", "reason": "benchmark_crop", "count": 12, "example": "a.png"},
                {
                    "stage": "task",
                    "task": "relative_depth",
                    "reason": "inside_margin",
                    "count": 5123,
                    "example": "2.31 m and 2.44 m",
                },
            ],
            "guard": {
                "verdict": "clean-under-stated-tests",
                "planted": 12,
                "found": 12,
                "removed": {"benchmark_crop": 12},
            },
            "files": [
                {"file": "data/train-00000-of-00001.parquet", "rows": 5234, "bytes": 52_300_000, "sha256": "ab" * 32}
            ],
        },
    )
    dump(
        folder / "dataset" / "certificate.json",
        {
            "verdict": "clean-under-stated-tests",
            "limits": ["crop below half a side"],
            "benchmarks": [
                {"name": "rooms", "revision": "r1", "splits": ["test"], "expected_items": 3300, "read_items": 3300}
            ],
            "checks": [{"stage": "pdq_panels", "ran_on": "both", "n_checked": 512, "n_hits": 12, "status": "pass"}],
            "calibration": {"planted": {"n": 12, "found": 12}},
            "removed": {"crop": 12},
        },
    )
    dump(
        folder / "train" / "train_record.json",
        {
            "seconds": 100.4,
            "steps": 195,
            "rows": 6240,
            "losses": [[1, 1.2], [2, 0.8], [3, 0.4]],
            "modules": 28,
            "adapted": {"language": 28},
            "trainable_parameters": 379_000,
        },
    )
    dump(folder / "controls" / "shuffled" / "train" / "train_record.json", {"seconds": 98.7})
    dump(folder / "notes.json", ["A small model made for this demonstration."])
    shown = base64.b64encode(png()).decode()
    dump(
        folder / "examples.json",
        [
            {
                "images_b64": [shown],
                "question": "Kept wrong?",
                "choices": ["x", "y"],
                "answer": "A",
                "before": "B",
                "after": "B",
            },
            {
                "image_b64": shown,
                "question": "Now right?",
                "choices": ["x", "y"],
                "answer": "A",
                "before": "B",
                "after": "A",
            },
            {
                "images_b64": [shown],
                "question": "Now wrong?",
                "choices": ["x", "y"],
                "answer": "A",
                "before": "A",
                "after": None,
                "skill": "relative_depth",
                "tags": {"nearer_point": "higher"},
            },
        ],
    )
    return folder


def section(page, start, end):
    """Text between two headings, the table of contents left out."""
    body = page.text[page.text.index("Verdict Gate") :] if "Verdict Gate" in page.text else page.text
    return body[body.index(start) : body.index(end)]


@pytest.fixture
def report(tmp_path):
    full_round(tmp_path / "run" / "round-00")
    dump(tmp_path / "run" / "loop.json", {"identity": "x", "config": {"name": "demo", "train": {"r": 32}}})
    write_run_report(tmp_path / "run", tmp_path / "run" / "report.html")
    return open_page(tmp_path / "run" / "report.html")


def test_run_verdict_is_one_sentence_with_its_numbers(report):
    sentence = (
        "Relative depth rose from 51.8% to 80.5% on 600 held-out questions: +28.7 points "
        "(95% interval +24.7 to +32.7, p = 4 × 10⁻²⁸ after correction for the number of skills)."
    )
    assert sentence in report.text
    assert "Gate passed" in report.text
    assert (
        "before, it still can: −0.3 points together (95% interval −4.3 to +3.7; a loss of 3 points is allowed)"
        in report.text
    )
    assert "Control arm shuffled: Relative depth −2.6 points, p = 0.35" in report.text


def test_run_tables_group_skills_by_what_was_done_to_them(report):
    table = section(report, "Before and after, skill by skill", "Which letters")
    order = [
        table.index(word)
        for word in ("Taught", "Relative depth", "Rehearsed", "Object at mark", "Not trained", "Left or right")
    ]
    assert order == sorted(order)
    assert "77.5% – 83.5%" in table  # interval after training
    assert "2 / 1" in table  # gained and lost, counted from the outcomes
    assert table.index("Together") < table.index("All kept skills") < table.index("Mean over the skills")
    for number in ("67.5%", "70.1%", "+8.7", "Kept"):
        assert number in table


def test_run_shows_shortcut_split_and_control_arm(report):
    split = section(report, "Skill or shortcut?", "The control arm: was it the data?")
    for number in ("58.7%", "81.7%", "+23.0", "44.7%", "79.3%", "+34.6", "301"):
        assert number in split
    assert "learnt only this rule" in split and "lower point is nearer" in split
    assert split.index("lower point is nearer") < split.index("higher point is nearer")
    control = section(report, "The control arm: was it the data?", "All trainings side by side")
    for number in ("49.2%", "−2.6", "0.35", "+31.3"):
        assert number in control
    assert "taught skills shuffled" in control


def test_run_sorts_examples_by_what_happened(report):
    text = section(report, "Questions, and what the model said", "What was generated")
    order = [text.index(word) for word in ("Gained", "Now right?", "Lost", "Now wrong?", "Still wrong", "Kept wrong?")]
    assert order == sorted(order)
    assert "No readable letter: after" in text and "nearer point: higher" in text


def test_run_tells_what_was_made_dropped_and_guarded(report):
    made = section(report, "What was generated", "What was dropped, and why")
    for fact in (
        "512 pictures listed",
        "15,233 candidate",
        "5,510 pairs kept",
        "10 short",
        "not above guessing",
        "6,240 training rows",
        "1 min 40 s",
        "28 layers adapted",
        "379,000 trained parameters",
        "language 28",
        "Question 1?",
    ):
        assert fact in made, fact
    dropped = section(report, "What was dropped, and why", "The guard: is the benchmark")
    assert dropped.index("Inside margin") < dropped.index("Benchmark crop")
    assert "5,123" in dropped and "2.31 m and 2.44 m" in dropped
    guard = section(report, "The guard: is the benchmark", "How to repeat it")
    for fact in (
        "Clean under stated tests",
        "12 of 12 planted copies were found",
        "12 crop",
        "3300",
        "512",
        "crop below half a side",
    ):
        assert fact in guard, fact


def test_run_can_be_repeated_from_its_report(report):
    text = report.text[report.text.rindex("How to repeat it") :]
    for fact in (
        "s2p loop loop.yaml",
        "name: demo",
        "r: 32",
        "43.2 s",
        "1 further training: 1 min 39 s",
        "9.8.7",
        "52.3 MB",
        "ab" * 32,
    ):
        assert fact in text, fact
    for note in (
        "A small model made",
        "rooms look alike",
        "Left out of the plan: existence",
        "2 items have no public answer",
    ):
        assert note in text


def test_run_without_optional_files_says_so(tmp_path):
    bare = comparison()
    for key in ("controls", "strata", "gate", "targets", "overall", "retention"):
        del bare[key]
    bare_round(tmp_path / "run" / "round-00", bare)
    write_run_report(tmp_path / "run", tmp_path / "r.html")
    page = open_page(tmp_path / "r.html")
    assert page.text.count("Not run.") >= 7
    assert "not to be trusted" in page.text  # no guard
    assert "No gate on record" in page.text and "Gate passed" not in page.text
    assert "no plan is on record" in page.text
    assert "80.5%" in page.text
    assert "no evidence of a loss" not in page.text  # without a plan nobody knows which skills were not taught


def test_failed_gate_loss_and_unfound_plants_are_said_plainly(tmp_path):
    folder = full_round(tmp_path / "run" / "round-00")
    changed = comparison()
    changed["per_skill"]["relative_depth"] = cell(600, 0.518, 0.53, 0.6, "no evidence", 1.0)
    changed["per_skill"]["left_right"] = cell(600, 0.492, 0.4, 1e-4, "worse", 3e-4)
    changed["gate"] = {"passed": False, "reasons": ["left_right fell by 9.2 points"]}
    dump(folder / "comparison.json", changed)
    certificate = json.loads((folder / "dataset" / "certificate.json").read_text())
    certificate["calibration"]["planted"]["found"] = 11
    certificate["verdict"] = "not_established"
    dump(folder / "dataset" / "certificate.json", certificate)
    write_run_report(tmp_path / "run", tmp_path / "r.html")
    page = open_page(tmp_path / "r.html")
    assert "There is no evidence that relative depth changed: 51.8% before, 53.0% after" in page.text
    assert "Gate failed" in page.text and "left_right fell by 9.2 points" in page.text
    assert "Got worse: Left or right −9.2 points" in page.text
    assert "11 of 12 planted copies were found: the guard did not find" in page.text
    assert not page.all("div", **{"class": "note good"})


def test_rounds_are_listed_and_an_unfinished_one_is_named(tmp_path):
    for number in (0, 1):
        full_round(tmp_path / "run" / f"round-{number:02d}")
    (tmp_path / "run" / "round-02").mkdir()
    write_run_report(tmp_path / "run", tmp_path / "r.html")
    text = open_page(tmp_path / "r.html").text
    assert "2 rounds" in text and "Round by round" in text
    assert "Round 02 has not come to its end" in text


def test_a_round_with_nothing_to_teach_is_reported(tmp_path):
    folder = bare_round(tmp_path / "run" / "round-00")
    (folder / "comparison.json").unlink()
    dump(folder / "plan.json", {"quotas": [], "unserved": []})
    write_run_report(tmp_path / "run", tmp_path / "r.html")
    assert "Nothing was trained" in open_page(tmp_path / "r.html").text


def test_run_escapes_everything(tmp_path):
    folder = full_round(tmp_path / "run" / "round-00")
    nasty = comparison()
    nasty["per_skill"][HOSTILE] = cell(10, 0.5, 0.6, 0.5, HOSTILE)
    nasty["controls"][HOSTILE] = {HOSTILE: cell(10, 0.5, 0.6, 0.5, HOSTILE)}
    nasty["strata"][HOSTILE] = {HOSTILE: {HOSTILE: {"n": 1, "before": 0.0, "after": 1.0}}}
    nasty["gate"] = {"passed": False, "reasons": [HOSTILE]}
    dump(folder / "comparison.json", nasty)
    manifest = json.loads((folder / "dataset" / "manifest.json").read_text())
    manifest["config"] = {HOSTILE: HOSTILE}
    manifest["drops"][0] |= {"example": HOSTILE, "reason": HOSTILE}
    manifest["guard"]["verdict"] = HOSTILE
    manifest["pairs"]["letters"]["relative_depth"] = {HOSTILE: 3}
    dump(folder / "dataset" / "manifest.json", manifest)
    dump(folder / "notes.json", [HOSTILE, "\ud800 lone surrogate"])
    write_run_report(tmp_path / "run", tmp_path / "r.html")
    assert HOSTILE in open_page(tmp_path / "r.html").text


TASKS = [
    Task(
        name="relative_depth",
        version=1,
        skills=(Skill.RELATIVE_DEPTH,),
        needs=(),
        options=PluginOptions,
        generate=lambda scene, options, rng: iter(()),
        recompute=lambda provenance: "A",
    )
]


def test_a_real_comparison_is_read_as_it_is_written(tmp_path):
    def outcomes(model, right):
        values = {
            "category": "c",
            "model": model,
            "text": "",
            "reason": None,
            "n_options": 2,
            "n_images": 1,
            "gold": "A",
        }
        made = []
        for skill in (Skill.RELATIVE_DEPTH, Skill.COUNTING):
            for i in range(60):
                good = i < right[skill]
                tags = {"nearer_point": "lower" if i % 2 else "higher"} if skill is Skill.RELATIVE_DEPTH else {}
                values |= {"letter": "A" if good else "B", "correct": good, "tags": tags, "skill": skill}
                made.append(Outcome(item_id=f"{skill}-{i}", **values))
        return made

    before = outcomes("old", {Skill.RELATIVE_DEPTH: 20, Skill.COUNTING: 45})
    after = outcomes("new", {Skill.RELATIVE_DEPTH: 50, Skill.COUNTING: 45})
    other = outcomes("new", {Skill.RELATIVE_DEPTH: 44, Skill.COUNTING: 45})
    compared = compare(
        before,
        after,
        targets=[Skill.RELATIVE_DEPTH],
        controls={"shuffled": before},
        arms={"seed_1": Rerun(outcomes=other, by_seed=True)},
    )
    folder = bare_round(tmp_path / "run" / "round-00", comparison_to_json(compared))
    seen = make_profile(before)
    dump(folder / "before" / "profile.json", profile_to_json(seen))
    dump(folder / "plan.json", plan_to_json(make_plan(seen, PlanOptions(controls=(Skill.COUNTING,)), TASKS)))
    write_run_report(tmp_path / "run", tmp_path / "r.html")
    page = open_page(tmp_path / "r.html")
    assert "Relative depth rose from 33.3% to 83.3% on 60 held-out questions: +50.0 points" in page.text
    assert "30 / 0" in section(page, "Before and after, skill by skill", "Skill or shortcut?")
    assert "+50.0" in section(page, "The control arm: was it the data?", "Questions, and what")
    seeds = section(page, "All trainings side by side", "Questions, and what")
    assert "Relative depth over 2 seeds: +45.0 points on average, from +40.0 to +50.0" in seeds
    assert "improved after 2 of them" in seeds and "Seed 1" in seeds and "Counting" not in seeds
    assert "higher point is nearer 30 questions" in section(page, "Skill or shortcut?", "The control arm")
    assert "Gate passed" in page.text and "All kept skills" in page.text
    assert "a loss of more than 3 points is ruled out" in page.text
    assert "relative_depth is weak: 33.3 % of 60" in page.text and "kept as a control" in page.text


def test_damaged_or_unfinished_runs_are_the_users_to_mend(tmp_path):
    with pytest.raises(RunError, match=r"comparison\.json"):
        write_run_report(tmp_path, tmp_path / "r.html")
    folder = bare_round(tmp_path / "run" / "round-00")
    (folder / "plan.json").write_text("{", encoding="utf-8")
    with pytest.raises(RunError) as error:
        write_run_report(tmp_path / "run", tmp_path / "r.html")
    assert error.value.where.endswith("plan.json")
    dump(folder / "plan.json", {"quotas": [{"task": "t", "skill": "s"}]})
    with pytest.raises(RunError, match=r"quotas\.0\.n"):
        write_run_report(tmp_path / "run", tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize(
    ("verdict", "tone"),
    [
        ("improved", "up"),
        ("worse", "down"),
        ("regressed", "down"),
        ("no evidence", "flat"),
        ("not worse", "flat"),
        ("unchanged", "flat"),
        ("", "flat"),
    ],
)
def test_verdicts_have_a_tone(verdict, tone):
    assert tone_of(verdict) == tone


def test_image_stages_add_up_sources_and_finished_pictures() -> None:
    from synth.report.certificate import GuardCheck

    part = {"n_checked": 7, "n_hits": 1, "n_review": 0, "n_skipped": 2}
    check = GuardCheck.model_validate({"stage": "pdq_panels", "sources": part, "outputs": part, "status": "pass"})
    assert (check.n_checked, check.n_hits, check.n_skipped) == (14, 2, 4)
    assert GuardCheck.model_validate({"stage": "sscd", "status": "not_run"}).n_checked is None
