"""The local engine: what becomes of the workers when the run is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.conftest import ROOT

RUN = """
import os, sys, time
from pathlib import Path
from synth.engines.local import run

def work(path):
    Path(path).write_text(str(os.getpid()))
    time.sleep(120)

if __name__ == "__main__":
    for _ in run(work, sys.argv[1:], 2):
        pass
"""


def test_workers_die_with_a_killed_run(tmp_path: Path) -> None:
    """A training that lives on would write into the folder of the run that is started next."""
    script = tmp_path / "killed.py"
    script.write_text(RUN, encoding="utf-8")
    told = [tmp_path / "a", tmp_path / "b"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, str(script), *map(str, told)], env=environment)
    try:
        wait_for(lambda: all(path.exists() and path.read_text() for path in told))
        workers = [int(path.read_text()) for path in told]
        assert len(set(workers)) == 2 and process.pid not in workers
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        wait_for(lambda: not any(runs(worker) for worker in workers))
    finally:
        process.kill()


def runs(pid: int) -> bool:
    try:
        # Whoever adopts an orphan may be slow to collect it: a dead process that is still listed does not run.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(condition: object, seconds: float = 60) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.1)
