"""The run report on power, on looking, on all trainings side by side, on difficulty, and on several rounds."""

import re

import pytest

from synth.report import html, lines
from synth.report.bands import in_order
from synth.report.lines import Dot, Series
from synth.report.records import Cell
from synth.report.run import write_run_report
from synth.report.trainings import differences, pooled
from tests.test_report import HOSTILE, Page, cell, comparison, dump, full_round, open_page, section

POWER = {
    "alpha": 0.05,
    "power": 0.8,
    "discordance": 0.3,
    "comparisons": 6,
    "targets": ["relative_depth"],
    "skills": {
        "relative_depth": {"n": 600, "detectable": 0.071, "power_at": {"0.05": 0.41, "0.10": 0.93, "0.20": 1.0}}
    },
}
LOOK = {
    "region": "around_marks",
    "n": 200,
    "net_before": 0.0123,
    "net_after": 0.35,
    "net_delta": 0.3377,
    "low": 0.28,
    "high": 0.41,
    "p": 1e-4,
    "p_holm": 2e-4,
    "superiority_before": 0.52,
    "superiority_after": 0.80,
    "swap_n": 180,
    "swap_before": 0.20,
    "swap_after": 0.75,
    "swap_both_before": 0.11,
    "swap_both_after": 0.66,
    "swap_p": 1e-20,
    "swap_p_holm": 3e-20,
    "follows": "rose",
    "quadrants_before": {"grounded_right": 40, "blind_right": 60, "misreads": 20, "blind_wrong": 80},
    "quadrants_after": {"grounded_right": 120, "blind_right": 40, "misreads": 30, "blind_wrong": 10},
    "verdict": "rose",
}


def report_of(folder, tmp_path):
    write_run_report(folder.parent, tmp_path / "r.html")
    return open_page(tmp_path / "r.html")


@pytest.fixture
def folder(tmp_path):
    return full_round(tmp_path / "run" / "round-00")


# ------------------------------------------------------------------------------------------------ charts and bands


@pytest.mark.parametrize(
    ("values", "order"),
    [
        ({"over 1.7", "1.3-1.7", "1.15-1.3"}, ("1.15-1.3", "1.3-1.7", "over 1.7")),
        ({"2 nearer", "0 nearer", "10 nearer"}, ("0 nearer", "2 nearer", "10 nearer")),
        ({"10+", "under 5", "5 to 9"}, ("under 5", "5 to 9", "10+")),
        ({"hard", "easy", "medium"}, ("easy", "medium", "hard")),
        ({"lower", "higher"}, None),
        ({"1 left", "2 right"}, None),
        ({"1-2", "1..2"}, None),
        ({"3"}, None),
    ],
)
def test_bands_are_ordered_by_their_numbers_or_not_at_all(values, order):
    assert in_order(values) == order


def marks(chart, style):
    return [(float(a["cx"]), float(a["cy"])) for a in Page(chart.picture).all("circle", **{"class": f"mark {style}"})]


def test_shares_are_drawn_on_a_scale_of_0_to_100_with_their_intervals():
    before = Series(name="before", style="before", dots=(Dot(x=0, y=0.0), Dot(x=1, y=0.5, low=0.25, high=1.0)))
    after = Series(name="after", style="after", dots=(Dot(x=0, y=1.0), Dot(x=1, y=0.5)))
    chart = lines.shares("t", [before, after], ["easy", "hard"], chance=0.5)
    ticks = {round(float(a["y1"])) for a in Page(chart.picture).all("line", **{"class": "grid"})}
    (x0, zero), (x1, half) = marks(chart, "before")
    top, same = marks(chart, "after")
    assert half == same[1] == pytest.approx((zero + top[1]) / 2, abs=0.1)
    assert zero > half > top[1] == min(ticks)
    assert x0 != top[0] and x1 != same[0]  # side by side: neither interval hides the other
    (span,) = Page(chart.picture).all("line", **{"class": "iv before"})
    assert float(span["y1"]) == pytest.approx((zero + half) / 2, abs=0.1) and float(span["y2"]) == top[1]
    (guess,) = Page(chart.picture).all("line", **{"class": "chance"})
    assert float(guess["y1"]) == half


def test_steps_share_one_axis_and_a_line_needs_two_values():
    long = Series(name="long", style="l0", dots=(Dot(x=0, y=1.2), Dot(x=100, y=0.6)))
    short = Series(name="short", style="l1", dots=(Dot(x=0, y=1.2), Dot(x=50, y=0.6)))
    one = Series(name="one", style="l2", dots=(Dot(x=10, y=9.0),))
    chart = lines.over_steps("loss", [long, short, one], y="loss")
    assert [name for name, _ in chart.keys] == ["long", "short"]
    ends = {}
    for line in Page(chart.picture).all("polyline"):
        first, last = ([float(v) for v in pair.split(",")] for pair in line["points"].split())
        ends[line["class"]] = (first, last)
    start, end = ends["line l0"]
    assert ends["line l1"][1] == [pytest.approx((start[0] + end[0]) / 2, abs=0.1), end[1]]
    texts = re.findall(r">([\d.]+)</text>", chart.picture)
    assert "0.6" in texts and "1.5" not in texts and "9" not in texts  # nor has the lone value a say in the scale
    assert start[1] == lines._TOP and end[1] == lines._TOP  # what begins above the scale runs along its upper edge
    assert lines.over_steps("loss", [one], y="loss") is None


@pytest.mark.parametrize("most", [0.003, 0.7, 1.0, 3.2, 99, 6240])
def test_ticks_are_round_and_reach_the_largest_value(most):
    ticks = lines._ticks(most)
    step = ticks[1] - ticks[0]
    assert 4 <= len(ticks) <= 7 and ticks[0] == 0 and ticks[-2] < most <= ticks[-1] * 1.001
    assert f"{step:e}".replace(".", "").startswith(("1", "2", "5"))


def test_nats_keep_two_digits_that_say_something():
    assert [html.nats(v) for v in (0.347, 0.0123, None)] == ["0.35", "0.012", "–"]
    assert [html.nats(v, sign=True) for v in (0.3377, -0.02, 0.0)] == ["+0.34", "−0.020", "0.000"]


# ------------------------------------------------------------------------------------------------------- sections


def test_power_is_one_sentence_a_skill_with_its_assumption(folder, tmp_path):
    dump(folder / "power.json", POWER)
    text = section(report_of(folder, tmp_path), "What this run could see", "Before and after, skill by skill")
    said = "7.1 points or more on relative depth (600 questions) would be seen in 80 of 100 such runs"
    assert f"A change of {said}; one of 5 points in 41." in text
    for fact in ("Written down before training", "from 7.1 points", "93 of 100", "30.0%", "0.05, divided by 6"):
        assert fact in text, fact


@pytest.mark.parametrize(("gained", "lost", "said"), [(250, 60, "51.7%"), (60, 20, "13.3%"), (100, 80, "")])
def test_power_is_held_against_what_happened(folder, tmp_path, gained, lost, said):
    dump(folder / "power.json", POWER)
    compared = comparison()
    compared["per_skill"]["relative_depth"] |= {"gained": gained, "lost": lost}
    dump(folder / "comparison.json", compared)
    text = section(report_of(folder, tmp_path), "What this run could see", "Before and after, skill by skill")
    more = {"51.7%": "more than assumed: only larger changes", "13.3%": "fewer than assumed: smaller changes"}
    assert (
        (f"In fact {said} of the answers changed, {more[said]} could be seen" in text)
        if said
        else ("In fact" not in text)
    )


def test_no_evidence_below_what_could_be_seen_is_no_proof_of_no_change(folder, tmp_path):
    dump(folder / "power.json", POWER)
    warning = "“no evidence” does not mean “no change”"
    assert warning not in report_of(folder, tmp_path).text
    compared = comparison()
    compared["per_skill"]["relative_depth"] = cell(600, 0.518, 0.53, 0.6, "no evidence", 1.0)
    dump(folder / "comparison.json", compared)
    assert f"The +1.2 points that were found are less: such a change may be real and missed, so {warning}" in (
        report_of(folder, tmp_path).text
    )


def test_too_few_questions_to_see_anything(folder, tmp_path):
    few = {"n": 12, "detectable": None, "power_at": {}}
    dump(folder / "power.json", POWER | {"skills": {"relative_depth": few}})
    text = section(report_of(folder, tmp_path), "What this run could see", "Before and after, skill by skill")
    assert "No change on relative depth (12 questions) would be seen in 80 of 100 such runs" in text


def test_looking_before_and_after(folder, tmp_path):
    looks = {"relative_depth": LOOK, "left_right": LOOK | {"verdict": "no evidence", "net_after": 0.02}}
    dump(folder / "sensitivity.json", {"options": {}, "skills": looks})
    page = report_of(folder, tmp_path)
    text = section(page, "Does it look?", "The control arm: was it the data?")
    assert (
        "depend more on the places that matter than before training, from 0.012 to 0.35 nats "
        "(+0.34, 95% interval +0.28 to +0.41, p = 2 × 10⁻⁴)" in text
    )
    assert "the answer followed in 75.0% of 180 questions (20.0% before). It was right both times more often" in text
    assert "than before training: in 66.0% of them (11.0% before, p = 3 × 10⁻²⁰)" in text
    assert text.index("Relative depth") < text.index("All skills in numbers") < text.index("Left or right")
    assert page.all("svg", **{"class": "chart quadrants"})[0]["aria-label"].count("looks, right") == 2


def test_quadrants_are_to_scale_and_complete(folder, tmp_path):
    dump(folder / "sensitivity.json", {"skills": {"relative_depth": LOOK}})
    page = report_of(folder, tmp_path)
    pieces = [(a["class"], float(a["y"]), float(a["width"]) + 1.5) for a in page.all("rect") if "q q-" in a["class"]]
    upper = min(y for _, y, _ in pieces)
    wide = {name.removeprefix("q q-"): width for name, y, width in pieces if y == upper}
    assert list(wide) == ["grounded_right", "blind_right", "misreads", "blind_wrong"]
    for name, n in LOOK["quadrants_before"].items():
        assert wide[name] == pytest.approx(sum(wide.values()) * n / 200, abs=0.3)


@pytest.mark.parametrize("verdict", ["fell", "no evidence", "not tested"])
def test_looking_says_what_was_found_and_no_more(folder, tmp_path, verdict):
    nothing = dict.fromkeys(LOOK) | {"quadrants_before": LOOK["quadrants_before"]}
    nothing |= {"quadrants_after": LOOK["quadrants_after"]}
    changed = (
        LOOK | {"verdict": verdict}
        if verdict != "not tested"
        else nothing | {"verdict": verdict, "follows": verdict, "region": ""}
    )
    dump(folder / "sensitivity.json", {"skills": {"relative_depth": changed}})
    page = report_of(folder, tmp_path)
    text = section(page, "Does it look?", "The control arm: was it the data?")
    assert bool(page.all("svg", **{"class": "chart quadrants"})) == (verdict != "not tested")
    said = {
        "fell": "depend less on the places",
        "no evidence": "There is no evidence that the answers depend more, or less",
        "not tested": "Not tested: no part of the picture is known",
    }
    assert said[verdict] in text and "depend more on the places that matter than" not in text


def test_sections_without_their_file_say_not_run(folder, tmp_path):
    page = report_of(folder, tmp_path)
    assert "Not run." in section(page, "What this run could see", "Before and after, skill by skill")
    assert "Not run." in section(page, "Does it look?", "The control arm: was it the data?")


# ------------------------------------------------------------------------------------------------------ trainings


def training(folder, settings=None, **more):
    facts = {"seconds": 90.0, "rows": 6240, "steps": 30, "losses": [[10, 1.2], [20, 0.8], [30, 0.4]], **more}
    dump(folder / "train" / "train_record.json", facts)
    main = {
        "method": "sft",
        "adapter": None,
        "seed": 0,
        "lora_r": 16,
        "out": str(folder / "train"),
        "grpo": {"beta": 0},
    }
    dump(folder / "train" / "train_run.json", {"identity": folder.name, "settings": main | (settings or {})})


def with_arms(folder):
    compared = comparison()
    skills = {
        "object_at_mark": cell(300, 0.833, 0.813, 0.5, "no evidence"),
        "left_right": cell(600, 0.492, 0.6, 0.001, "improved"),
    }
    compared["arms"] = {
        "seed_1": {"relative_depth": cell(600, 0.518, 0.785, 1e-20, "improved"), **skills},
        "rank_8": {"relative_depth": cell(600, 0.518, 0.755, 1e-20, "improved")},
        "second": {"relative_depth": cell(600, 0.518, 0.835, 1e-20, "improved")},
    }
    dump(folder / "comparison.json", compared)
    dev = {"questions": 40, "accuracy": [[10, 0.6], [20, 0.8], [30, 0.7]], "best_step": 20}
    training(folder, seconds=100.4)
    training(folder / "arms" / "seed_1", {"seed": 1}, seconds=101.0, dev=dev)
    training(folder / "arms" / "rank_8", {"lora_r": 8, "threads": 4})
    second = {"method": "grpo", "adapter": str(folder / "train"), "grpo": {"beta": 0.02}}
    training(folder / "arms" / "second", second, method="grpo", rewards=[[10, 0.5], [20, 0.9]], losses=[[1, 0], [2, 0]])
    training(folder / "controls" / "shuffled", control="shuffled", seconds=98.7)


def test_all_trainings_stand_in_one_table_with_what_differs(folder, tmp_path):
    with_arms(folder)
    text = section(report_of(folder, tmp_path), "All trainings side by side", "Questions, and what the model said")
    order = ["First training", "Seed 1", "Rank 8", "Second", "Controls", "Shuffled"]
    assert [text.index(name) for name in order] == sorted(text.index(name) for name in order)
    seed, rank, second, control = (
        text[text.index(name) : text.index(after)]
        for name, after in (("Seed 1", "Rank 8"), ("Rank 8", "Second"), ("Second", "Controls"), ("Shuffled", "How the"))
    )
    assert "seed 1 instead of 0" in seed and "6,240 rows, 1 min 41 s" in seed
    assert "51.8% 78.5% +26.7 +22.7 to +30.7" in seed
    assert "−2.0" in seed and "+10.8" not in seed  # pooled: only what the model had
    assert "lora_r 8 instead of 16" in rank and "threads" not in rank and "seed" not in rank
    assert "goes on from the first training" in second and "method grpo" in second and "beta" not in second
    assert "answers of the taught skills shuffled" in control and "−2.6" in control and "1 min 39 s" in control


def test_curves_of_all_trainings_share_a_chart_and_rewards_have_their_own(folder, tmp_path):
    with_arms(folder)
    page = report_of(folder, tmp_path)
    charts = [a["aria-label"] for a in page.all("svg", **{"class": "chart lines"})]
    assert len(charts) == 3
    loss, reward, dev = charts
    assert loss.startswith("Training loss: First training from 1.2 to 0.4; Seed 1")
    assert "Shuffled" in loss and "Second" not in loss
    assert reward == "Reward of the replies (GRPO): Second from 0.5 to 0.9"
    assert dev == "Questions kept out of the training: Seed 1 from 0.6 to 0.7"
    assert "Weights kept, chosen on these questions: Seed 1: step 20." in page.text


def test_what_was_not_kept_is_said_to_be_unknown(folder, tmp_path):
    compared = comparison()
    compared["arms"] = {"lost": {"relative_depth": cell(600, 0.518, 0.785, 1e-20, "improved")}}
    dump(folder / "comparison.json", compared)
    text = section(report_of(folder, tmp_path), "All trainings side by side", "Questions, and what the model said")
    lost = text[text.index("Lost") : text.index("Controls")]
    assert "not on record" in lost and "78.5%" in lost and "rows" not in lost


def test_settings_that_only_say_where_are_no_difference():
    main = {"out": "a", "threads": 1, "seed": 0, "method": "sft", "grpo": {"beta": 0.0}, "adapter": None}
    assert differences({**main, "out": "b", "threads": 8}, main) == []
    assert differences({**main, "adapter": "elsewhere"}, main) == ["goes on from the adapter elsewhere"]
    assert differences({**main, "grpo": {"beta": 0.1}}, main) == ["grpo.beta 0.1 instead of 0"]
    assert differences({**main, "use_dora": True}, main) == ["use_dora yes instead of –"]


def test_a_pool_weighs_by_questions_and_needs_every_skill():
    cells = {"a": Cell(n=300, delta=0.03), "b": Cell(n=100, delta=-0.05), "c": Cell(n=10)}
    both = pooled(cells, ["a", "b"])
    assert both is not None and both.n == 400 and both.delta == pytest.approx(0.01)
    assert pooled(cells, ["a", "c"]) is None and pooled(cells, ["a", "d"]) is None and pooled(cells, []) is None


# ------------------------------------------------------------------------------------------- difficulty and rounds


def test_difficulty_is_drawn_from_easy_to_hard_beside_its_table(folder, tmp_path):
    compared = comparison()
    bands = {"over 1.7": (0.69, 0.84), "1.15-1.3": (0.43, 0.69), "1.3-1.7": (0.53, 0.72)}
    compared["strata"]["relative_depth"]["depth_ratio"] = {
        name: cell(200, before, after, 1e-6, "improved") for name, (before, after) in bands.items()
    }
    dump(folder / "comparison.json", compared)
    page = report_of(folder, tmp_path)
    split = section(page, "How far apart are the two depths?", "Does it look?")
    assert split.index("1.15-1.3") < split.index("1.3-1.7") < split.index("Over 1.7")
    charts = [a["aria-label"] for a in page.all("svg", **{"class": "chart lines"}) if "ratio" in a["aria-label"]]
    assert charts == ["Relative depth: Depth ratio: before from 0.43 to 0.69; after from 0.69 to 0.84"]


def test_rounds_show_each_taught_skill_over_time(tmp_path):
    for number in (0, 1):
        folder = full_round(tmp_path / "run" / f"round-{number:02d}")
        compared = comparison()
        if number:
            compared["per_skill"] |= {
                "relative_depth": cell(600, 0.805, 0.84, 0.1, "no evidence"),
                "left_right": cell(600, 0.468, 0.71, 1e-9, "improved"),
            }
            compared["targets"] = ["left_right"]
            dump(folder / "dataset" / "manifest.json", {})
            dump(folder / "plan.json", {"quotas": []})
        dump(folder / "comparison.json", compared)
    page = report_of(folder, tmp_path)
    start = page.text.index("taught skill before after round 00 after round 01")
    table = page.text[start : page.text.index("Verdict Gate", start)]
    assert "Relative depth 51.8% 47.2 below people 80.5% 18.5 below people 84.0% 15.0 below people" in table
    assert "Left or right 49.2% 46.8% 71.0%" in table and "Object at mark" not in table
    (label,) = [a["aria-label"] for a in page.all("svg") if "over the rounds" in a.get("aria-label", "")]
    assert "Relative depth from 0.518 to 0.84; Left or right from 0.492 to 0.71" in label


def test_one_round_has_no_overview(folder, tmp_path):
    assert "after round 00" not in report_of(folder, tmp_path).text


def test_new_sections_escape_everything(folder, tmp_path):
    dump(folder / "power.json", POWER | {"skills": {HOSTILE: POWER["skills"]["relative_depth"]}})
    dump(folder / "sensitivity.json", {"skills": {HOSTILE: LOOK | {"region": HOSTILE, "verdict": HOSTILE}}})
    with_arms(folder)
    compared = comparison()
    compared["arms"] = {HOSTILE: compared["per_skill"]}
    bands = {f"{i} {HOSTILE}": cell(200, 0.4, 0.7, 1e-6, HOSTILE) for i in range(3)}
    compared["strata"]["relative_depth"][HOSTILE] = bands
    dump(folder / "comparison.json", compared)
    training(folder / "arms" / "seed_1", {HOSTILE: HOSTILE}, control=HOSTILE)
    assert HOSTILE in report_of(folder, tmp_path).text


def test_the_headline_holds_the_gain_against_the_control_that_gained_most(folder, tmp_path):
    data = comparison()
    beyond = {"advantage": cell(600, 0.55, 0.805, 1e-9, "improved")}
    gains = {"shuffled": 0.51, "grey": 0.55, "other": 0.52}
    data["controls"] = {
        name: {"relative_depth": cell(600, 0.518, after, 0.2, "no evidence") | beyond} for name, after in gains.items()
    }
    dump(folder / "comparison.json", data)
    text = section(report_of(folder, tmp_path), "Verdict", "What this run could see")
    assert "Control arm: grey" in text and "55.0%" in text
    assert "Control arm: shuffled" not in text and "Control arm: other" not in text
