"""A model behind an OpenAI-compatible server: it is asked for replies, several at a time, images as data URLs in order.

One question that the server refuses (too long, a picture it cannot read) is an outcome with reason `error`; a server
that refuses or fails everything stops the run, and what was answered stays in the journal.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice

from PIL import Image
from pydantic import Field

from finetune.respondents import Answer, EvaluateOptions
from finetune.score import NoPicture, Question
from synth.completions import Refused, complete, endpoint
from synth.config import Config
from synth.errors import BackendError, BenchmarkError, ConfigError, ImageError
from synth.images import decode, encode_png, inspect
from synth.types import JsonValue

_THIS_QUESTION = (400, 413, 422)
"""Statuses that speak of one request, not of the address or the key."""
_ORIENTATION = 0x0112
_HOPELESS = 3
"""Questions in a row without a reply, or refused before any is answered, after which the server is given up."""


class ServerOptions(Config):
    """Which server is asked, and how hard."""

    address: str
    """Base address, e.g. http://localhost:8000, with or without /v1."""
    model: str = Field(min_length=1)
    """The name that is sent to it."""
    key_variable: str = ""
    """Environment variable that holds the key; "" where the server wants none."""
    concurrency: int = Field(4, ge=1)
    timeout_s: float = Field(120, gt=0)
    retries: int = Field(5, ge=0)
    backoff_s: float = Field(1, ge=0)
    """Wait before the first retry; doubles with each."""


class ServedModel:
    """A model that a server runs. Raises ConfigError for an address that is none, or a missing key."""

    def __init__(self, options: ServerOptions) -> None:
        self.name = options.model
        self._options = options
        self._endpoint = endpoint(
            options.address,
            key_variable=options.key_variable,
            timeout_s=options.timeout_s,
            retries=options.retries,
            backoff_s=options.backoff_s,
        )

    @property
    def identity(self) -> JsonValue:
        """Address and name: a server tells nothing of its weights."""
        return [self._endpoint.address, self._options.model]

    def answers(self, questions: Sequence[Question], options: EvaluateOptions) -> Iterator[Sequence[Answer]]:
        """One answer at a time, as they come. Raises ConfigError for a mode that a server has not, BackendError where
        it refuses everything or leaves questions without a reply.
        """
        if options.mode != "generate":
            raise ConfigError("a server is asked for replies only", where="mode", fix="--mode generate")
        answered, silent, in_a_row, errors = 0, 0, 0, 0
        tries = f"{self._options.retries + 1} tries"
        for answer in self._each(questions, options.max_new_tokens):
            in_a_row = in_a_row + 1 if answer is None else 0
            silent += answer is None
            errors += answer is not None and bool(answer.error)
            answered += answer is not None and not answer.error
            if in_a_row >= _HOPELESS or (not answered and errors >= _HOPELESS):
                why = f"no reply after {tries}" if answer is None else answer.error
                kind = BackendError if answer is None or questions[0].images else NoPicture
                raise kind(why, where=self._endpoint.address, fix="is the server running, with this model?")
            if answer is not None:
                yield [answer]
        if silent:
            raise BackendError(
                f"{silent} of {len(questions)} questions got no reply after {tries}",
                where=self._endpoint.address,
                fix="run the same command again: what was answered is kept",
            )

    def _each(self, questions: Sequence[Question], max_tokens: int) -> Iterator[Answer | None]:
        """Answers in the order in which they come; only as many requests are under way as may be."""
        todo = iter(questions)
        pool = ThreadPoolExecutor(self._options.concurrency)
        running: set[Future[Answer | None]] = set()
        try:
            while True:
                free = self._options.concurrency - len(running)
                running |= {pool.submit(self._ask, question, max_tokens) for question in islice(todo, free)}
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, question: Question, max_tokens: int) -> Answer | None:
        try:
            said = complete(self._endpoint, request(question, self._options.model, max_tokens))
        except Refused as error:
            if error.status not in _THIS_QUESTION:
                raise
            return Answer(item_id=question.item_id, text=None, error=error.message)
        return None if said is None else Answer(item_id=question.item_id, text=said.text, truncated=said.truncated)


def request(question: Question, model: str, max_tokens: int) -> dict[str, JsonValue]:
    """The body of one request: the images first, in order, then the text, as in training rows; greedy."""
    blocks: list[JsonValue] = [
        {"type": "image_url", "image_url": {"url": _data_url(data, question.item_id)}} for data in question.images
    ]
    blocks.append({"type": "text", "text": question.text})
    return {
        "model": model,
        "messages": [{"role": "user", "content": blocks}],
        "temperature": 0,
        "max_tokens": max_tokens,
    }


def _data_url(data: bytes, item_id: str) -> str:
    try:
        kind = inspect(data, min_side=1).format.lower()
        with Image.open(io.BytesIO(data)) as image:
            turned = image.getexif().get(_ORIENTATION, 1) != 1
        if turned:  # not every server obeys the orientation that a file asks for
            kind, data = "png", encode_png(decode(data, min_side=1))
    except ImageError as error:
        raise BenchmarkError(f"an image cannot be used: {error.message}", where=f"item {item_id}") from None
    return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
