"""The judge: a second reader for what the rules leave open, which never touches a letter and never invents one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from synth.diagnosis.answers import read_answer
from synth.diagnosis.judge import JudgeOptions, judge, prompt
from synth.errors import BackendError, ConfigError
from synth.types import Outcome, Skill
from tests.small_vlms import byte_pairs

DEPTH = ("A is closer", "B is closer")
OPEN = "The answer could be A or B; the light falls from the left."


def outcome(item_id: str, text: str, **changes: object) -> Outcome:
    reading = read_answer(text, 2, DEPTH)
    fields = {
        "item_id": item_id, "category": "Relative_Depth", "skill": Skill.RELATIVE_DEPTH, "model": "m", "text": text,
        "letter": reading.letter, "reason": reading.reason, "gold": "B", "correct": reading.letter == "B",
        "n_options": 2, "n_images": 1,
    }  # fmt: skip
    return Outcome(**{**fields, **changes})


class Server:
    """An OpenAI-compatible server whose replies a test writes down: texts, or statuses that are not 200."""

    def __init__(self) -> None:
        self.replies: list[str | int | bytes] = []
        self.seen: list[tuple[str, dict[str, object], str | None]] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                owner.seen.append((self.path, body, self.headers.get("Authorization")))
                reply = owner.replies.pop(0) if owner.replies else 500
                status = reply if isinstance(reply, int) else 200
                message = {"choices": [{"message": {"role": "assistant", "content": reply}}]}
                data = reply if isinstance(reply, bytes) else json.dumps(message).encode()
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "http://127.0.0.1:9/")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_address[1]}"


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield made
    made.http.shutdown()
    thread.join()
    made.http.server_close()


def options(server: Server, **changes: object) -> JudgeOptions:
    return JudgeOptions(**{"model": "reader", "endpoint": server.address, "backoff_s": 0, "retries": 1, **changes})


def choices_of(_: Outcome) -> tuple[str, ...]:
    return DEPTH


def test_only_what_is_ambiguous_is_asked_and_no_letter_changes(server: Server, tmp_path: Path) -> None:
    given = [
        outcome("1", "The answer is A."),
        outcome("2", OPEN),
        outcome("3", "I'm sorry, I can't assist with that."),
        outcome("4", "(A) B is closer"),
        outcome("5", OPEN, gold=None, correct=None, reason="unscored", tags={"reading": "ambiguous"}),
    ]
    server.replies = ["B", "(B)", "A", "Z", "The reply chooses none: Z", "Z"]
    record = tmp_path / "judged.jsonl"
    judged = judge(given, choices_of, options(server), record=record)
    assert [o.judge for o in judged] == [None, "B", None, None, "Z"]
    assert [(o.letter, o.correct, o.reason) for o in judged] == [(o.letter, o.correct, o.reason) for o in given]
    rows = [json.loads(line) for line in record.read_text().splitlines()]
    assert rows == [
        {"item_id": "2", "votes": ["B", "B", "A"], "letter": "B", "model": "reader"},
        {"item_id": "5", "votes": ["Z", "Z", "Z"], "letter": "Z", "model": "reader"},
    ]
    path, body, key = server.seen[0]
    assert path == "/v1/chat/completions" and body["model"] == "reader" and key is None
    assert len({seen[1]["seed"] for seen in server.seen[:3]}) == 3, "three equal samples are one vote"


def test_conflicts_only_when_asked(server: Server) -> None:
    server.replies = ["A", "A", "A"]
    judged = judge([outcome("1", "(A) B is closer")], choices_of, options(server), ask=("conflict",))
    assert judged[0].judge == "A" and judged[0].letter is None
    with pytest.raises(ConfigError, match="refusal"):
        judge([], choices_of, options(server), ask=("refusal",))


@pytest.mark.parametrize(
    ("replies", "word"),
    [
        (["A", "B", "Z"], "Z"),
        (["A", "B", "C"], "Z"),  # a letter that no option has is no vote for one
        (["A", "A", "B"], "A"),
        (["A", 500, "A", "B"], "A"),  # asked again
        (["A", 429, 500, "A"], "A"),  # two of three, one vote lost
        (["A", 500, 500, 503, 503], None),  # one of three is no majority, and the losses are not the judge's word
        (["B", b"not json", b"{}", "Z"], None),
    ],
)
def test_votes(server: Server, replies: list[str | int | bytes], word: str | None) -> None:
    server.replies = list(replies)
    assert judge([outcome("1", OPEN)], choices_of, options(server))[0].judge == word


def test_more_than_the_cap_is_listed_but_not_asked(server: Server, tmp_path: Path) -> None:
    server.replies = ["B"] * 3
    record = tmp_path / "judged.jsonl"
    given = [outcome("1", OPEN), outcome("2", OPEN)]
    judged = judge(given, choices_of, options(server, max_items=1), record=record)
    assert [o.judge for o in judged] == ["B", None] and len(server.seen) == 3
    assert json.loads(record.read_text().splitlines()[1])["votes"] == []


def test_refusals_of_the_server_are_told(server: Server) -> None:
    for status in (401, 404, 302):
        server.replies = [status]
        with pytest.raises(BackendError, match=str(status)):
            judge([outcome("1", OPEN)], choices_of, options(server))
    server.replies = []
    with pytest.raises(BackendError, match="does not answer"):
        judge([outcome("1", OPEN)], choices_of, options(server))


def test_the_key_comes_from_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    named = options(server, key_variable="S2P_TEST_KEY")
    monkeypatch.delenv("S2P_TEST_KEY", raising=False)
    with pytest.raises(ConfigError, match="S2P_TEST_KEY"):
        judge([outcome("1", OPEN)], choices_of, named)
    monkeypatch.setenv("S2P_TEST_KEY", "abc")
    server.replies = ["A"] * 3
    judge([outcome("1", OPEN)], choices_of, named)
    assert server.seen[-1][2] == "Bearer abc"


def test_prompt_shows_options_and_reply_only() -> None:
    text = prompt("x" * 9000 + "the end", 3, ("red", "blue"))
    assert "(A) red\n(B) blue\n(C)\n" in text and "the end" in text and len(text) < 5000


def test_no_judge_is_named() -> None:
    assert judge([outcome("1", "A")], choices_of, JudgeOptions())[0].judge is None, "nothing to ask, nothing to load"
    with pytest.raises(ConfigError, match="no judge"):
        judge([outcome("1", OPEN)], choices_of, JudgeOptions())
    with pytest.raises(BackendError, match="no such folder"):
        judge([outcome("1", OPEN)], choices_of, JudgeOptions(model="nowhere"))
    with pytest.raises(ConfigError, match="http"):
        judge([outcome("1", OPEN)], choices_of, JudgeOptions(endpoint="file:///etc/hosts"))


@pytest.fixture(scope="module")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text-generation checkpoint of a stock class with random weights."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("judge")
    bpe = byte_pairs([prompt(OPEN, 2, DEPTH)] * 5, 300, ["<end>"])
    PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<end>").save_pretrained(folder)
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=300, n_embd=16, n_layer=1, n_head=2, n_positions=1600, bos_token_id=0, eos_token_id=0
    )
    GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


def test_a_random_model_says_nothing(random_model: Path) -> None:
    given = [outcome(str(i), OPEN) for i in range(6)]
    chosen = JudgeOptions(model=str(random_model), max_tokens=12)
    judged = judge(given, choices_of, chosen)
    assert all(o.letter is None and o.correct is False for o in judged)
    assert sum(o.judge == "Z" for o in judged) >= 5
    assert [o.judge for o in judge(given, choices_of, chosen)] == [o.judge for o in judged]


def test_a_damaged_checkpoint_is_told(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="not a text-generation model"):
        judge([outcome("1", OPEN)], choices_of, JudgeOptions(model=str(tmp_path)))
