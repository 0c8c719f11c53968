"""What `s2p generate` costs beside its models: CPU milliseconds a photo of 640 x 480 by step, and peak memory.

`python tests/benchmarks/bench_generate.py`; the depth model and the detector are stand-ins that cost nothing, the
guard is off (bench_guard.py times it) and one process on one core does all. Photos are made of smooth noise. Each task
runs over two numbers of photos: the difference is what a photo costs, the rest is what every run costs (imports too).
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import ParamSpec, TypeVar
from unittest.mock import patch

import cv2
import numpy as np

from synth import drawing, pipeline, recipe, work
from synth.contracts import DepthBackend, RegionBackend
from synth.dataset import rows
from synth.findings import Plan
from synth.geometry import generator
from synth.images import encode_jpeg
from synth.perception.perceive import Perceiver
from synth.recipe import Recipe, Stages
from synth.types import DepthMap, Frame, PluginOptions, Region, Regions, RelativeDepth

WIDTH, HEIGHT = 640, 480
SIZES = {"relative_depth": (200, 2000), "counting": (200, 400), "visual_correspondence": (200, 400)}
"""Photos of the small and the large run."""
P = ParamSpec("P")
T = TypeVar("T")


class Nothing(PluginOptions):
    """No options."""


def depth_runner(options: PluginOptions) -> _Depth:
    return _Depth()


class _Depth:
    """The same slope and steps for every photo: flat places and edges, as in a room."""

    def __init__(self) -> None:
        rows, _ = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)
        blocks = generator(0, "depth").uniform(0.1, 1.0, (6, 8)).astype(np.float32)
        self._inverse = np.kron(blocks, np.ones((80, 80), dtype=np.float32)) + rows / HEIGHT * 0.02
        self._valid = np.ones((HEIGHT, WIDTH), dtype=np.bool_)

    def __call__(self, frames: Sequence[Frame]) -> Sequence[DepthMap | None]:
        return [RelativeDepth(inverse=self._inverse, valid=self._valid, backend="stand-in") for _ in frames]


class _Boxes:
    """Six boxes a photo."""

    def __call__(self, frames: Sequence[Frame]) -> Sequence[Regions | None]:
        boxes = [(40.0 + 95 * i, 60.0 + 50 * (i % 4), 120.0 + 95 * i, 170.0 + 50 * (i % 4)) for i in range(6)]
        items = tuple(Region(label=name, box=box, score=0.9) for name, box in zip("cccvvt", boxes, strict=True))
        return [Regions(items=items, complete=False, backend="stand-in", vocabulary=("c", "t", "v")) for _ in frames]


def boxes_runner(options: PluginOptions) -> _Boxes:
    return _Boxes()


DEPTH = DepthBackend(
    name="stand-in", version=1, options=Nothing, exact=False, identity=lambda _: "stand-in", load=depth_runner
)
REGIONS = RegionBackend(
    name="stand-in", version=1, options=Nothing, exact=False, identity=lambda _: "stand-in", load=boxes_runner
)


def resolved(settings: Recipe, plan: Plan) -> Stages:
    """The recipe's stages with the stand-ins as its models."""
    return replace(recipe.resolve_recipe(settings, plan), depth=(DEPTH, Nothing()), regions=(REGIONS, Nothing()))


def make_photos(folder: Path, count: int) -> None:
    """Smooth noise, JPEG quality 90; ten patterns, each file with other bytes behind its end."""
    rng = generator(0, "photos")
    patterns = []
    for _ in range(10):
        noise = sum(
            cv2.resize(rng.uniform(0, 255 / 3, (side * 3, side * 4, 3)).astype(np.float32), (WIDTH, HEIGHT))
            for side in (4, 24, 100)
        )
        patterns.append(encode_jpeg(np.asarray(noise, dtype=np.float32).clip(0, 255).astype(np.uint8), 90))
    for number in range(count):
        (folder / f"{number:05d}.jpg").write_bytes(patterns[number % 10] + number.to_bytes(4, "big"))


def recipe_of(folder: Path, task: str, count: int) -> Recipe:
    """A pair a photo."""
    return Recipe.model_validate(
        {
            "name": "bench",
            "source": {"name": "folder", "path": str(folder)},
            "perception": {"matches": {"name": "homography"}, "consensus": {"flip": True}, "cache": None},
            "tasks": {task: {"n": count}},
            "guard": {"unguarded": True},
            "output": {"evidence": 0},
        }
    )


class Clock:
    """Thread CPU time spent in named steps; a step within a step counts for itself only."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._open: dict[int, list[float]] = {}

    def timed(self, step: str, function: Callable[P, T]) -> Callable[P, T]:
        """The function, its time booked under `step`."""

        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            inner = self._open.setdefault(threading.get_ident(), [])
            inner.append(0.0)
            start = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                spent = time.thread_time() - start
                self.seconds[step] += spent - inner.pop()
                if inner:
                    inner[-1] += spent

        return call


STEPS = (
    ("list and hash the photos", pipeline, "run_identity"),
    ("decode, to ask and to draw", work, "decode"),
    ("questions and checks", work, "_ask"),
    ("write candidates", work, "write_shard"),
    ("choose", pipeline, "read_candidates"),
    ("choose", pipeline, "select"),
    ("draw marks", rows, "draw_marks"),
    ("encode", rows, "encode_jpeg"),
    ("write rows", drawing, "write_shard"),
    ("assemble", pipeline, "assemble"),
    ("certificate", pipeline, "_certify"),
    ("consensus, models apart", Perceiver, "perceive"),
)


def run(count: int, task: str) -> tuple[float, int, float, Counter[str]]:
    """CPU seconds of the process, pairs, peak MiB, and CPU seconds by step."""
    imports = time.process_time()
    clock = Clock()

    def stages(settings: Recipe, plan: Plan) -> Stages:
        found = resolved(settings, plan)
        source = replace(
            found.source,
            load=clock.timed("read and hash", found.source.load),
            list=clock.timed("list and hash the photos", found.source.list),
        )
        return replace(found, source=source)

    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        photos = Path(name) / "photos"
        photos.mkdir()
        make_photos(photos, count)
        for module in (pipeline, work):
            stack.enter_context(patch.object(module, "resolve_recipe", stages))
        for step, owner, attribute in STEPS:
            stack.enter_context(patch.object(owner, attribute, clock.timed(step, getattr(owner, attribute))))
        start = time.process_time()
        clock.seconds["imports"] = imports
        manifest = pipeline.generate(recipe_of(photos, task, count), Path(name) / "out")
        spent = time.process_time() - start
    pairs = manifest["pairs"]
    if not isinstance(pairs, Mapping) or not isinstance(pairs["kept"], int):
        raise TypeError("a manifest without its pairs")
    spent += imports
    clock.seconds["everything else"] = spent - sum(clock.seconds.values())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return spent, pairs["kept"], peak, clock.seconds


def measured(count: int, task: str) -> tuple[float, int, float, dict[str, float]]:
    """The same in a process of its own: a peak of memory cannot be taken back."""
    command = [sys.executable, __file__, "--child", str(count), task]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    spent, pairs, peak, seconds = json.loads(done.stdout.splitlines()[-1])
    return spent, pairs, peak, seconds


def main() -> None:
    """Print both tables."""
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(run(int(sys.argv[2]), sys.argv[3])))
        return
    for task, (few, many) in SIZES.items():
        (small, _, low, start), (large, pairs, high, end) = (measured(count, task) for count in (few, many))
        photo = (large - small) / (many - few)
        print(f"{task}, {pairs} pairs of {many} photos: {1000 * photo:.1f} ms of CPU a photo", end=", ")
        print(f"and {small - few * photo:.1f} s a run")
        print(f"    peak memory: {low:.0f} MiB with {few} photos, {high:.0f} with {many}: {high / low:.3f}")
        each = {step: (end.get(step, 0) - start.get(step, 0)) / (many - few) for step in end}
        for step, spent in sorted(each.items(), key=lambda one: -one[1]):
            print(f"    {step:28} {1000 * spent:6.2f} ms, {start.get(step, 0) - few * spent:6.2f} s a run")


if __name__ == "__main__":
    main()
