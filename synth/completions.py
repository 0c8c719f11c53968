"""A client of OpenAI-compatible servers, made of the standard library: one request, tried again where that may help.

The key is read from an environment variable, travels in a header alone and is part of no message. No redirect is
followed: it would carry the key to another host.
"""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field

from synth.errors import BackendError, ConfigError
from synth.types import JsonValue

_TRY_AGAIN = (408, 409, 425, 429)


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where requests go, and how patiently."""

    address: str
    timeout_s: float
    retries: int
    backoff_s: float
    """Wait before the first retry; doubles with each."""
    headers: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Completion:
    """What the server said."""

    text: str
    truncated: bool
    """It ran into the length limit."""


class Refused(BackendError):
    """The server will not answer this request however often it is sent; `status` says why."""

    @property
    def status(self) -> int:
        """The HTTP status, e.g. 401."""
        return int(self.message.rsplit(" ", 1)[-1])


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


_OPENER = urllib.request.build_opener(_Stay)


def endpoint(
    base: str, *, key_variable: str = "", timeout_s: float = 60, retries: int = 3, backoff_s: float = 1
) -> Endpoint:
    """The chat-completions address of a server, e.g. http://localhost:8000, with or without its /v1.

    `key_variable` names the environment variable that holds the key; "" where the server wants none. Raises ConfigError
    for an address that is not http or https, or an empty variable.
    """
    if urllib.parse.urlsplit(base).scheme not in ("http", "https"):
        raise ConfigError("expected an http or https address", where=base, fix="http://localhost:8000")
    headers = {"Content-Type": "application/json"}
    if key_variable:
        key = os.environ.get(key_variable, "")
        if not key:
            raise ConfigError(f"the environment variable {key_variable} is empty", fix="set it to the key")
        headers["Authorization"] = f"Bearer {key}"
    root = base.rstrip("/").removesuffix("/chat/completions").removesuffix("/v1")
    return Endpoint(
        address=f"{root}/v1/chat/completions",
        timeout_s=timeout_s,
        retries=retries,
        backoff_s=backoff_s,
        headers=headers,
    )


def complete(to: Endpoint, body: Mapping[str, JsonValue]) -> Completion | None:
    """One completion; None where every try failed (time-out, server error, damaged answer). Raises Refused."""
    data = json.dumps(body).encode()
    for attempt in range(to.retries + 1):
        if attempt:
            time.sleep(to.backoff_s * 2 ** (attempt - 1))
        try:
            return _post(to, data)
        except (OSError, http.client.HTTPException, ValueError):
            continue
    return None


def _post(to: Endpoint, data: bytes) -> Completion:
    request = urllib.request.Request(to.address, data=data, headers=dict(to.headers), method="POST")
    try:
        with _OPENER.open(request, timeout=to.timeout_s) as response:
            answer: object = json.loads(response.read())
    except urllib.error.HTTPError as error:
        if error.code in _TRY_AGAIN or error.code >= 500:
            raise OSError(f"status {error.code}") from None
        fix = "check the address, the model's name and the key"
        raise Refused(f"the server refuses: status {error.code}", where=to.address, fix=fix) from None
    match answer:
        case {"choices": [{"message": {"content": str(content)}} as choice, *_]}:
            return Completion(text=content, truncated=choice.get("finish_reason") == "length")
    raise ValueError("not a chat completion")
