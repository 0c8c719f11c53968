"""Progress: bars on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import NoReturn

from tqdm import tqdm

EVERY_S = 20.0
"""Seconds between lines where the output is not a terminal."""


class Silent:
    """Says nothing."""

    def stage(self, name: str, done: int, total: int) -> None:
        """Nothing to see."""


class Bars:
    """One bar a stage; use as a context manager so that the last bar is closed."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._name = ""
        self._bar: tqdm[NoReturn] | None = None
        self._said = 0.0

    def __enter__(self) -> Bars:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def stage(self, name: str, done: int, total: int) -> None:
        """`done` of `total` units of the named stage are finished."""
        if name != self._name:
            self._close()
            self._name = name
            self._said = 0.0
            if self._terminal:
                self._bar = tqdm(total=total, desc=name, leave=True, dynamic_ncols=True)
        if self._bar is not None:
            self._bar.total = total
            self._bar.update(done - self._bar.n)
        elif done >= total or time.monotonic() - self._said > EVERY_S:
            self._said = time.monotonic()
            print(f"{name}: {done}/{total}", file=sys.stderr, flush=True)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
