"""Evaluation beyond one letter: replies, servers, rotations, instructions, baselines, and abstention."""

from __future__ import annotations

import base64
import json
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from finetune import conditions
from finetune.evaluate import evaluate_with, journal_of, question_of
from finetune.generate import generate
from finetune.loading import load_model
from finetune.respondents import Answer, EvaluateOptions, LocalModel
from finetune.score import NoPicture, Question
from finetune.selective import auroc, risks, selective
from finetune.server import ServedModel, ServerOptions, request
from finetune.suite import SuiteOptions, format_suite, run_suite
from synth.config import validate
from synth.contracts import BenchmarkData
from synth.diagnosis.alarms import rotations_of
from synth.diagnosis.reading import load_outcomes
from synth.errors import BackendError, BenchmarkError, ConfigError
from synth.images import decode, encode_png
from synth.marks import draw_marks
from synth.types import Item, Mark, Outcome, Skill
from tests.small_vlms import colour_rows, png, questions, small_llava, small_qwen
from tests.toy import texture

GENERATE = EvaluateOptions(mode="generate", max_new_tokens=6, batch_size=4)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("vlms")
    return {"llava": small_llava(root / "llava"), "qwen": small_qwen(root / "qwen")}


def item(number: int, **changes: object) -> Item:
    """A question of four options about a picture of its own; every third one belongs to the group before."""
    fields = {
        "item_id": f"i{number}", "category": "Colour", "skill": Skill.OBJECT_COLOUR, "question": f"Colour {number}?",
        "choices": ("red", "green", "blue", "grey"), "answer": "ABCD"[number % 4], "prompt": "as published",
        "images": (png((10 * number, 9, 9)),), "group": f"g{number - (number % 3 == 2)}",
    }  # fmt: skip
    return Item(**{**fields, **changes})


def data_of(items: Sequence[Item], **changes: object) -> BenchmarkData:
    return BenchmarkData(name="colours", revision="1", items=tuple(items), **changes)


def marked(answer: str = "A", where: tuple[int, int] = (20, 50)) -> tuple[Item, BenchmarkData]:
    """A depth question about two marks, with the picture behind them."""
    clean = texture(1, 128, 96)
    marks = (Mark(label="A", x=where[0], y=30), Mark(label="B", x=where[1] + 40, y=60))
    made = item(
        0,
        choices=("A is nearer", "B is nearer"),
        answer=answer,
        images=(encode_png(draw_marks(clean, marks).rgb),),
        marks=(marks,),
        clean=("room",),
        skill=Skill.RELATIVE_DEPTH,
    )
    return made, data_of([made], clean_images={"room": encode_png(clean)})


class Scripted:
    """Answers by a rule; what it was asked is kept."""

    name = "scripted"
    identity = "scripted"

    def __init__(self, rule) -> None:
        self.rule = rule
        self.asked: list[Question] = []

    def answers(self, asked: Sequence[Question], options: EvaluateOptions) -> Iterator[list[Answer]]:
        for question in asked:
            self.asked.append(question)
            letter = self.rule(question)
            if options.mode == "generate":
                yield [Answer(item_id=question.item_id, text=f"The answer is {letter}.")]
                continue
            share = {name: 0.7 if name == letter else 0.1 for name in "ABCD"[: question.n_options]}
            yield [Answer(item_id=question.item_id, text=letter, probabilities=share)]


# ---------------------------------------------------------------------------------------------------------- replies


@pytest.mark.parametrize("name", ["llava", "qwen"])
def test_generation_is_greedy_and_does_not_depend_on_the_batch(folders, name: str) -> None:
    import torch

    loaded = load_model(str(folders[name]))
    asked = questions(colour_rows(5))
    loaded.model.generation_config.do_sample = True  # what many checkpoints are saved with
    together = {w.item_id: w for _, part in generate(loaded, asked, max_new_tokens=5, batch_size=4) for w in part}
    alone = {w.item_id: w for _, part in generate(loaded, asked, max_new_tokens=5, batch_size=1) for w in part}
    assert together == alone and len(alone) == 5
    from finetune.score import batch_of

    batch = batch_of(loaded, asked[:1])
    ids = batch["input_ids"]
    with torch.no_grad():
        first = loaded.model(**batch).logits[0, -1].argmax()
        made = loaded.model.generate(**batch, do_sample=False, max_new_tokens=5)[0, ids.shape[1] :]
    assert int(first) == int(made[0])
    assert alone["qa-0000"].text == loaded.processor.tokenizer.decode(made, skip_special_tokens=True)


def test_a_reply_that_was_cut_says_so(folders) -> None:
    loaded = load_model(str(folders["llava"]))
    asked = questions(colour_rows(1))
    _, (cut,) = next(generate(loaded, asked, max_new_tokens=2))
    assert cut.truncated
    token = loaded.processor.tokenizer(cut.text, add_special_tokens=False).input_ids
    loaded.model.generation_config.eos_token_id = [token[-1]]  # as if the model had ended there
    _, (ended,) = next(generate(loaded, asked, max_new_tokens=8))
    assert not ended.truncated


def test_replies_are_read_by_rules(tmp_path: Path) -> None:
    said = {"i0": "The answer is (A).", "i1": "It is blue.", "i2": "I cannot tell", "i3": "The colour of the pic"}

    class Talker(Scripted):
        def answers(self, asked, options):
            yield [Answer(item_id=q.item_id, text=said[q.item_id], truncated=q.item_id == "i3") for q in asked]

    items = [item(i, answer=None if i == 2 else "ABCD"[i]) for i in range(4)]
    outcomes = evaluate_with(Talker(None), data_of(items), tmp_path / "outcomes.jsonl", GENERATE)
    assert [(o.letter, o.reason, o.correct) for o in outcomes] == [
        ("A", None, True),
        ("C", None, False),
        (None, "unscored", None),
        (None, "truncated", False),
    ]
    assert [o.text for o in outcomes] == list(said.values()), "the reply is kept"
    assert outcomes[0].option_mass is None and load_outcomes(tmp_path) == outcomes


def test_both_modes_are_compared(tmp_path: Path) -> None:
    class Torn(Scripted):
        def answers(self, asked, options):
            for (answer,) in super().answers(asked, options):
                if options.mode == "generate" and answer.item_id in ("i1", "i2"):
                    answer = replace(answer, text={"i1": "No idea.", "i2": "The answer is D."}[answer.item_id])
                yield [answer]

    suite = run_suite(Torn(lambda q: "A"), data_of([item(i) for i in range(4)]), tmp_path, SuiteOptions(both=True))
    it = suite.agreement
    assert (it.n, it.agree, it.unread) == (4, 0.5, 1)
    assert [c["item_id"] for c in it.contradictions] == ["i2"] and it.contradictions[0]["generate"] == "D"
    assert it.choice.accuracy == it.generate.accuracy == 0.25
    assert "letters agree on 50.0 % of 4 items" in format_suite(suite)
    assert json.loads((tmp_path / "evaluation.json").read_text())["agreement"]["unread"] == 1
    assert not list(tmp_path.rglob(".*.part"))


def test_a_real_model_is_asked_both_ways(folders, tmp_path: Path) -> None:
    options = SuiteOptions(both=True, baselines=True, evaluate=EvaluateOptions(max_new_tokens=4))
    data = data_of([item(i) for i in range(6)])
    suite = run_suite(LocalModel(str(folders["qwen"])), data, tmp_path, options)
    assert suite.agreement.n == 6 and suite.option_mass > 0
    assert set(suite.baselines.rows) == {
        "right image", "text only", "grey image", "wrong image", "most frequent letter",
    }  # fmt: skip
    assert len(load_outcomes(tmp_path / "generated")) == 6
    assert load_outcomes(tmp_path / "baselines" / "text_only")[0].n_images == 0


# ------------------------------------------------------------------------------------------------------- conditions


def test_rotations_move_the_letter_and_not_the_content() -> None:
    turned = conditions.rotations(data_of([item(0), item(1)])).data.items
    assert [it.item_id for it in turned] == ["i0@1", "i0@2", "i0@3", "i1@1", "i1@2", "i1@3"]
    for it in turned:
        original = item(int(it.item_id[1]))
        assert it.choices["ABCD".index(it.answer)] == original.choices["ABCD".index(original.answer)]
    assert {it.choices.index("red") for it in turned[:3]} == {1, 2, 3}, "every option stands in every place"


def test_marks_change_their_letters_where_the_options_name_them() -> None:
    original, data = marked()
    (turned,) = conditions.rotations(data).data.items
    assert turned.choices == original.choices and turned.answer == "B"
    assert [(m.label, m.x) for m in turned.marks[0]] == [("B", 20), ("A", 90)]
    clean = decode(data.clean_images["room"])
    assert np.array_equal(decode(turned.images[0]), draw_marks(clean, turned.marks[0]).rgb)
    unknown = conditions.rotations(replace(data, clean_images={}))
    assert not unknown.data.items and sum(unknown.left_out.values()) == 1


def test_a_constant_letter_is_right_in_no_circle(tmp_path: Path) -> None:
    data = data_of([item(i) for i in range(8)])
    constant = run_suite(Scripted(lambda q: "A"), data, tmp_path / "a", SuiteOptions(circular=True))
    assert constant.plain.accuracy == 0.25 and constant.circular["Colour"].all_right.accuracy == 0
    assert constant.circular["Colour"].chance == pytest.approx(1 / 256)
    truth = {item(i).question: item(i).choices[i % 4] for i in range(8)}

    def reads(question: Question) -> str:
        first, *options = question.text.split("\n")
        return next(option[1] for option in options if option[4:] == truth[first])

    knowing = run_suite(Scripted(reads), data, tmp_path / "b", SuiteOptions(circular=True))
    assert knowing.circular["Colour"].all_right.accuracy == 1
    outcomes = load_outcomes(tmp_path / "b" / "rotations")
    sets = rotations_of(outcomes)
    assert len(sets) == 8 and all(len(rows) == 4 for _, rows in sets), "groups of pictures are not rotations"


def test_rotations_need_our_wording(tmp_path: Path) -> None:
    options = SuiteOptions(circular=True, evaluate=EvaluateOptions(wording="benchmark"))
    with pytest.raises(ConfigError, match="one order only"):
        run_suite(Scripted(lambda q: "A"), data_of([item(0)]), tmp_path, options)


def test_the_wrong_picture_is_of_another_group_and_used_once() -> None:
    items = [item(i) for i in range(9)] + [
        item(9, category="Other", group="g0"),
        item(10, category="Other", group="g0"),
    ]
    shown = conditions.wrong_image(data_of(items), 0)
    owner = {it.images: it for it in items}
    for it in shown.data.items:
        donor, original = owner[it.images], items[int(it.item_id[1:])]
        assert donor.group != original.group and donor.category == original.category
        assert it.question == original.question and it.answer == original.answer
    assert len({it.images for it in shown.data.items}) == len(shown.data.items) == 9
    assert shown.left_out == {"no item of another group has pictures of this category": 2}
    assert conditions.wrong_image(data_of(items), 0) == shown


def test_a_grey_picture_keeps_the_size() -> None:
    shown = conditions.grey(data_of([item(0, images=(png((200, 0, 0), 40, 50),))])).data.items[0]
    assert decode(shown.images[0]).shape == (50, 40, 3) and len(np.unique(decode(shown.images[0]))) == 1


def test_what_needs_the_picture_is_told_apart(tmp_path: Path) -> None:
    """One skill is answered from the picture, one from the words: only the first needs it."""
    items = [item(i, group="") for i in range(40)]
    words = [item(i, group="", skill=Skill.IQ_TEST, category="Words") for i in range(40)]
    words = [replace(it, item_id=f"w{i}", question=f"Words {i}?") for i, it in enumerate(words)]
    hidden = {it.images: it.answer for it in items}

    def rule(question: Question) -> str:
        number = int(question.text.split("?")[0].split()[1])
        if question.text.startswith("Words"):
            return "ABCD"[number % 4]
        return hidden.get(question.images, "A")

    suite = run_suite(Scripted(rule), data_of([*items, *words]), tmp_path, SuiteOptions(baselines=True))
    needs = suite.baselines.needs_picture
    assert needs["object_colour"].verdict == "improved" and needs["object_colour"].delta > 0.4
    assert needs["iq_test"].delta == 0 and needs["iq_test"].verdict == "no evidence"
    rows = suite.baselines.rows
    assert rows["right image"].accuracy == 1 and rows["grey image"].accuracy == rows["text only"].accuracy == 0.625
    assert rows["most frequent letter"].accuracy == 0.25 == suite.baselines.chance


def test_a_model_that_needs_a_picture_is_asked_the_rest(tmp_path: Path) -> None:
    class Needy(Scripted):
        def answers(self, asked, options):
            if not asked[0].images:
                raise NoPicture("this model takes no question without an image")
            return super().answers(asked, options)

    suite = run_suite(
        Needy(lambda q: "A"), data_of([item(i) for i in range(6)]), tmp_path, SuiteOptions(baselines=True)
    )
    assert "without an image" in suite.baselines.impossible["text only"]
    assert "grey image" in suite.baselines.rows and "not possible" in format_suite(suite)


def test_instructions_are_compared(tmp_path: Path) -> None:
    rule = Scripted(lambda q: "A" if q.text.endswith("letter.") else "B")
    options = SuiteOptions(variants=("{prompt}\nAnswer with the letter.", "Look!\n{prompt}"))
    suite = run_suite(rule, data_of([item(0), item(4), item(5)]), tmp_path, options)
    assert [it.accuracy for it in suite.variants.accuracy.values()] == pytest.approx([1 / 3, 2 / 3, 1 / 3])
    assert suite.variants.spread == pytest.approx(1 / 3) and suite.variants.unstable == 1
    assert rule.asked[-1].text.startswith("Look!\nColour 5?\n(A) red")
    hashes = {load_outcomes(tmp_path / name)[0].prompt_hash for name in (".", "variants/0", "variants/1")}
    assert len(hashes) == 3
    for kind, settings in ((EvaluateOptions, {"template": "no place"}), (SuiteOptions, {"variants": ["no place"]})):
        with pytest.raises(ConfigError, match="must hold"):
            validate(settings, kind, "evaluate")


def test_training_rows_and_evaluation_ask_in_the_same_words(folders) -> None:
    from finetune.loading import render

    row = colour_rows(1)[0]
    asked = question_of(item(0, question=row["question"], choices=tuple(row["choices"])), EvaluateOptions())
    processor = load_model(str(folders["llava"])).processor
    trained = processor.apply_chat_template(row["prompt"], tokenize=False, add_generation_prompt=True)
    assert render(processor, asked.text, 1) == trained


# ----------------------------------------------------------------------------------------------------------- server


class Server:
    """An OpenAI-compatible server; `reply` makes text or a status of each request body."""

    def __init__(self, reply) -> None:
        self.seen: list[tuple[dict[str, object], str | None]] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                owner.seen.append((body, self.headers.get("Authorization")))
                said = reply(body["messages"][0]["content"][-1]["text"])
                text, status = ("", said) if isinstance(said, int) else (said, 200)
                choice = {"message": {"content": text}, "finish_reason": "length" if text == "cut" else "stop"}
                data = json.dumps({"choices": [choice]}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    def model(self, **changes: object) -> ServedModel:
        fields = {"address": f"http://127.0.0.1:{self.http.server_address[1]}", "model": "m", "backoff_s": 0}
        return ServedModel(ServerOptions(**{**fields, "retries": 1, "concurrency": 3, **changes}))

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


def test_a_server_is_asked_with_its_images_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("S2P_TEST_KEY", "secret-word")
    pictures = (png((1, 2, 3)), png((4, 5, 6)))
    data = data_of([item(0, images=pictures), *(item(i) for i in range(1, 5))])
    with Server(lambda text: "cut" if "Colour 4" in text else "(A)") as server:
        model = server.model(key_variable="S2P_TEST_KEY")
        outcomes = evaluate_with(model, data, tmp_path / "outcomes.jsonl", GENERATE)
    assert [o.item_id for o in outcomes] == [f"i{i}" for i in range(5)], "in the benchmark's order"
    assert [o.letter for o in outcomes] == ["A"] * 4 + [None] and outcomes[4].reason == "truncated"
    body, key = next(seen for seen in server.seen if "Colour 0" in seen[0]["messages"][0]["content"][-1]["text"])
    assert key == "Bearer secret-word" and body["temperature"] == 0 and body["max_tokens"] == 6
    blocks = body["messages"][0]["content"]
    assert [block["type"] for block in blocks] == ["image_url", "image_url", "text"]
    sent = [base64.b64decode(b["image_url"]["url"].removeprefix("data:image/png;base64,")) for b in blocks[:2]]
    assert tuple(sent) == pictures, "the bytes as they are"
    written = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert "secret-word" not in written and "secret-word" not in repr(model._endpoint)


def test_only_what_is_missing_is_asked_again(tmp_path: Path) -> None:
    data, out, broken = data_of([item(i) for i in range(8)]), tmp_path / "outcomes.jsonl", {"Colour 6"}
    with Server(lambda text: 503 if text.split("?")[0] in broken else "B") as server:
        with pytest.raises(BackendError, match="1 of 8 questions got no reply after 2 tries"):
            evaluate_with(server.model(), data, out, GENERATE)
        assert not out.exists(), "a network's failure is no wrong answer"
        assert len(journal_of(out).read_text().splitlines()) == 8  # the identity and seven answers
        server.seen.clear()
        broken.clear()
        outcomes = evaluate_with(server.model(), data, out, GENERATE)
        assert len(server.seen) == 1
    assert [o.letter for o in outcomes] == ["B"] * 8


def test_one_question_may_be_refused_but_not_all(tmp_path: Path) -> None:
    data = data_of([item(i) for i in range(8)])
    with Server(lambda text: 400 if "Colour 7" in text else "B") as server:
        outcomes = evaluate_with(server.model(), data, tmp_path / "a.jsonl", GENERATE)
    assert (outcomes[7].letter, outcomes[7].reason, outcomes[7].correct) == (None, "error", False)
    for status, words in ((400, "status 400"), (401, "status 401"), (503, "no reply after 2 tries")):
        with Server(lambda text, status=status: status) as server, pytest.raises(BackendError, match=words):
            evaluate_with(server.model(), data, tmp_path / "b.jsonl", GENERATE)
        assert len(server.seen) < 16, "a dead server is not asked everything"


def test_a_server_gives_no_probabilities(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="replies only"):
        evaluate_with(
            ServedModel(ServerOptions(address="http://127.0.0.1:9", model="m")),
            data_of([item(0)]),
            tmp_path / "o.jsonl",
            EvaluateOptions(),
        )


def test_an_image_that_no_one_can_read_is_named() -> None:
    asked = Question(item_id="x", text="?", images=(b"nothing",), n_options=2)
    with pytest.raises(BenchmarkError, match="item x: an image cannot be used"):
        request(asked, "m", 5)


def test_a_turned_photo_is_sent_upright() -> None:
    import io

    from PIL import Image

    buffer, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(texture(0, 60, 40)).save(buffer, "JPEG", exif=exif)
    body = request(Question(item_id="x", text="?", images=(buffer.getvalue(),), n_options=2), "m", 5)
    url = body["messages"][0]["content"][0]["image_url"]["url"]
    sent = base64.b64decode(url.removeprefix("data:image/png;base64,"))
    with Image.open(io.BytesIO(sent)) as image:
        assert image.size == (40, 60) and not image.getexif()


# ------------------------------------------------------------------------------------------------------- abstention


def test_auroc_is_the_share_of_rightly_ordered_pairs() -> None:
    rng = np.random.default_rng(0)
    values, right = rng.integers(0, 6, 60).astype(float), rng.random(60) < 0.6
    pairs = [(a > b) + 0.5 * (a == b) for a in values[right] for b in values[~right]]
    assert auroc(values, right) == pytest.approx(np.mean(pairs))
    assert auroc(values, np.ones(60, bool)) is None


def test_risk_falls_where_confidence_is_earned() -> None:
    right = np.array([True, True, False, True, False, False])
    assert risks(np.array([6.0, 5, 4, 3, 2, 1]), right)[[0, 1, 5]] == pytest.approx([0, 0, 0.5])
    flat = risks(np.ones(6), right)
    assert flat == pytest.approx(np.full(6, 0.5)), "equal values are in no order, whatever the file's"


def test_signals_are_judged_on_the_same_items() -> None:
    rng = np.random.default_rng(1)
    outcomes = []
    for i in range(150):
        best = 0.5 + 0.5 * rng.random()
        letter = "A" if rng.random() < best else "B"
        outcomes.append(
            Outcome(
                item_id=str(i), category="c", skill=Skill.OTHER, model="m", text="A", letter="A", reason=None,
                gold=letter, correct=letter == "A", n_options=2, n_images=1, group=str(i // 2),
                probabilities={"A": 0.5 * best, "B": 0.5 * (1 - best)},
            )
        )  # fmt: skip
    noise = {str(i): float(rng.random()) for i in range(140)}
    found = selective(outcomes, {"noise": noise}, 0)
    assert found.n == 140 and not found.rough
    good, bad = found.signals["max_probability"], found.signals["noise"]
    assert good.low > 0.5 and good.low < good.auroc < good.high
    assert bad.low < 0.5 < bad.high
    assert good.risk["0.3"] < good.risk["1.0"] == pytest.approx(found.n_wrong / 140)
    assert good.auroc == pytest.approx(found.signals["margin"].auroc), "with two options they are one order"
    assert Counter(o.correct for o in outcomes)[False] >= found.n_wrong


# ------------------------------------------------------------------------------------------------------ command line


def test_the_command_asks_a_server_and_explains_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from finetune.cli import main

    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(png((9, 9, 9)))
    row = {"item_id": "1", "category": "c", "question": "Which?", "choices": ["red", "blue"], "answer": "B"}
    (tmp_path / "items.jsonl").write_text(json.dumps({**row, "images": ["images/a.png"]}) + "\n")
    common = ["evaluate", "--model", "m", "--benchmark", "jsonl", "--set", f"path={tmp_path}/items.jsonl"]
    with Server(lambda text: "(B)") as server:
        address = f"http://127.0.0.1:{server.http.server_address[1]}/v1"
        assert main([*common, "--server", address, "--baselines", "--out", str(tmp_path / "out")]) == 0
    assert load_outcomes(tmp_path / "out")[0].letter == "B"
    assert "most frequent letter" in capsys.readouterr().out
    assert {"profile.json", "evaluation.json", "outcomes.jsonl"} <= {p.name for p in (tmp_path / "out").iterdir()}
    for wrong, words in (
        (["--server", "ftp://x"], "expected an http or https address"),
        (["--server", address, "--mode", "choice"], "--mode generate"),
        (["--server", address, "--adapter", "x"], "leave out --adapter"),
        (["--variant", "no place"], "must hold {prompt} once"),
    ):
        assert main([*common, *wrong, "--out", str(tmp_path / "wrong")]) == 2
        assert words in capsys.readouterr().err
