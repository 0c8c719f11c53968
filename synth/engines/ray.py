"""Runs shards as Ray tasks: on this machine, or on a cluster that sees the same folders.

Ray only decides where a shard runs; it neither writes nor resumes. A shard commits itself, so a task that Ray repeats
after a lost worker writes the same bytes again. `RAY_ADDRESS` names a running cluster; without it Ray starts here,
bound to this machine, without its dashboard (which would let anybody who reaches it run code).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from synth.errors import BackendError, RunError, S2PError

SpecT = TypeVar("SpecT")
ResultT = TypeVar("ResultT")
STORE_BYTES = 200 * 2**20
"""Object store of a Ray started here: specs and results are small, and Ray would take a third of the memory."""
RETRIES = 2
"""Of a task whose worker died; an exception of ours is not repeated."""


def run(work: Callable[[SpecT], ResultT], specs: Sequence[SpecT], workers: int) -> Iterator[tuple[SpecT, ResultT]]:
    """Yield (spec, result) as shards finish; their order is not fixed. At most `workers` run at once.

    Raises BackendError where Ray is not installed, and RunError when a shard's worker dies again and again; finished
    shards stay.
    """
    if not specs:
        return
    try:
        import ray
    except ImportError:
        raise BackendError("engine ray needs Ray", fix="pip install 'see2perceive[ray]', or --engine local") from None
    started = not ray.is_initialized()
    if started:
        _start(ray.init, workers)
    task = ray.remote(num_cpus=1, max_retries=RETRIES)(work)
    waiting = list(reversed(specs))
    running: dict[object, SpecT] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                spec = waiting.pop()
                running[task.remote(spec)] = spec
            ready, _ = ray.wait(list(running), num_returns=1)
            spec = running.pop(ready[0])
            yield spec, ray.get(ready[0])
    except ray.exceptions.RayTaskError as error:
        # Ray wraps what a task raised; ours is what the user can mend.
        if isinstance(error.cause, S2PError):
            raise error.cause from None
        raise
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError, ray.exceptions.NodeDiedError) as error:
        raise RunError(
            f"a worker died {RETRIES + 1} times: {type(error).__name__}",
            fix="run the same command again: finished shards are kept; --engine local --set engine.workers=1 shows it",
        ) from None
    finally:
        for reference in running:
            ray.cancel(reference, force=True)
        if started:
            ray.shutdown()


def _start(init: Callable[..., object], workers: int) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Newer versions can rebuild the environment of `uv run` and the like on every worker, which takes minutes.
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    if os.environ.get("RAY_ADDRESS"):
        init(logging_level="ERROR")
        return
    init(num_cpus=workers, include_dashboard=False, object_store_memory=STORE_BYTES, logging_level="ERROR")
