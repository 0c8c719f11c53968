"""Runs shards in this process or in a few spawned ones. Knows nothing of what a shard does.

Workers are spawned, never forked: a renderer or a model's threads do not survive a fork.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection
from threading import Thread
from typing import TypeVar

from synth.errors import RunError

SpecT = TypeVar("SpecT")
ResultT = TypeVar("ResultT")

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def run(work: Callable[[SpecT], ResultT], specs: Sequence[SpecT], workers: int) -> Iterator[tuple[SpecT, ResultT]]:
    """Yield (spec, result) as shards finish; their order is not fixed. `work` must be a module-level function.

    Raises RunError when a worker process dies (out of memory, a crash in native code); finished shards stay.
    """
    if workers <= 1 or len(specs) <= 1:
        for spec in specs:
            yield spec, work(spec)
        return
    context = multiprocessing.get_context("spawn")
    with _shared_cores(workers), ProcessPoolExecutor(workers, context, _end_with_parent) as pool:
        futures = {pool.submit(work, spec): spec for spec in specs}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool:
            raise RunError(
                "a worker process died (out of memory, or a crash in native code)",
                fix="run the same command again: finished shards are kept; engine.workers=1 shows the culprit",
            ) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _end_with_parent() -> None:
    """In a worker: die when the run is killed. One that lived on would write beside the run that is started next."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        Thread(target=_wait_and_exit, args=(parent.sentinel,), daemon=True).start()


def _wait_and_exit(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


@contextmanager
def _shared_cores(workers: int) -> Iterator[None]:
    """Workers share the cores instead of fighting for them: numeric libraries read these variables when they load."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(max(1, (os.cpu_count() or 1) // workers))))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
