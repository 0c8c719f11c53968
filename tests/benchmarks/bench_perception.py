"""What perception costs beside the networks: CPU time of our own side as a share of the forward passes, one thread.

`python tests/benchmarks/bench_perception.py` (about a minute of CPU). Depth Anything V2 Small and RT-DETR v2 r18 at
their real shapes with random weights, photos of 640 x 480, all through the perceiver and its cache. Fails above 3 %.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import cv2
import numpy as np
import torch
from transformers import (
    DepthAnythingConfig,
    DepthAnythingForDepthEstimation,
    Dinov2Config,
    DPTImageProcessor,
    RTDetrImageProcessor,
    RTDetrResNetConfig,
    RTDetrV2Config,
    RTDetrV2ForObjectDetection,
)

from synth.contracts import Need
from synth.perception import _checkpoint
from synth.perception.cache import Cache
from synth.perception.consensus import ConsensusOptions
from synth.perception.perceive import Perceiver
from synth.plugins import DEPTH, REGIONS, load
from synth.types import Frame, View

PHOTOS = 3
LIMIT = 0.03
NEEDS = frozenset({Need.DEPTH, Need.REGIONS})
Spent = defaultdict[str, float]


def depth_anything_small(folder: Path) -> None:
    """The shapes of Depth Anything V2 Small."""
    backbone = Dinov2Config(
        hidden_size=384,
        num_hidden_layers=12,
        num_attention_heads=6,
        image_size=518,
        patch_size=14,
        out_indices=[3, 6, 9, 12],
        reshape_hidden_states=False,
        apply_layernorm=True,
    )
    config = DepthAnythingConfig(
        backbone_config=backbone,
        reassemble_hidden_size=384,
        neck_hidden_sizes=[48, 96, 192, 384],
        fusion_hidden_size=64,
        head_hidden_size=32,
    )
    DepthAnythingForDepthEstimation(config).save_pretrained(folder)
    DPTImageProcessor(
        size={"height": 518, "width": 518}, keep_aspect_ratio=True, ensure_multiple_of=14
    ).save_pretrained(folder)


def rt_detr_r18(folder: Path) -> None:
    """The shapes of RT-DETR v2 r18vd."""
    backbone = RTDetrResNetConfig(
        hidden_sizes=[64, 128, 256, 512],
        depths=[2, 2, 2, 2],
        layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )
    config = RTDetrV2Config(
        backbone_config=backbone,
        encoder_in_channels=[128, 256, 512],
        hidden_expansion=0.5,
        decoder_layers=3,
        num_labels=80,
    )
    RTDetrV2ForObjectDetection(config).save_pretrained(folder)
    RTDetrImageProcessor(size={"height": 640, "width": 640}).save_pretrained(folder)


def photos(n: int) -> list[Frame]:
    """Smooth noise of 640 x 480."""
    rng = np.random.default_rng(0)
    frames = []
    for number in range(n):
        rgb = cv2.resize(rng.integers(0, 255, (24, 32, 3), dtype=np.uint8), (640, 480), interpolation=cv2.INTER_CUBIC)
        sha = hashlib.sha256(rgb.tobytes()).hexdigest()
        view = View(
            image_id=sha,
            data=b"",
            width=640,
            height=480,
            name=f"photo-{number}",
            source="made",
            group=f"photo-{number}",
        )
        frames.append(Frame(view=view, rgb=rgb))
    return frames


@contextmanager
def timed(spent: Spent, name: str) -> Iterator[None]:
    """Adds the block's CPU seconds."""
    start = time.process_time()
    try:
        yield
    finally:
        spent[name] += time.process_time() - start


@contextmanager
def clocks(spent: Spent) -> Iterator[None]:
    """Clocks around what a perceiver calls."""
    in_batches, put, module_call = _checkpoint.in_batches, Cache.put, torch.nn.Module.__call__

    def batches(
        frames: Sequence[Frame],
        options: _checkpoint.CheckpointOptions,
        prepare: Callable[[Frame], Mapping[str, torch.Tensor]],
        run: Callable[[Sequence[Frame], dict[str, torch.Tensor]], Sequence[object]],
    ) -> list[object]:
        def clocked(frame: Frame) -> Mapping[str, torch.Tensor]:
            with timed(spent, "photo to input"):
                return prepare(frame)

        return in_batches(frames, options, clocked, run)

    def store(cache: Cache, key: str, value: object) -> None:
        with timed(spent, "cache entry"):
            put(cache, key, value)

    def forward(module: torch.nn.Module, *args: object, **inputs: object) -> object:
        if not isinstance(module, DepthAnythingForDepthEstimation | RTDetrV2ForObjectDetection):
            return module_call(module, *args, **inputs)
        with timed(spent, f"network: {type(module).__name__}"):
            return module_call(module, *args, **inputs)

    with ExitStack() as stack:
        stack.enter_context(patch.object(_checkpoint, "in_batches", batches))
        stack.enter_context(patch.object(Cache, "put", store))
        stack.enter_context(patch.object(torch.nn.Module, "__call__", forward))
        yield


def main() -> int:
    """Print the table; 1 where our own side costs too much."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    spent: Spent = defaultdict(float)
    with tempfile.TemporaryDirectory() as place:
        depth_anything_small(Path(place) / "depth")
        rt_detr_r18(Path(place) / "regions")
        depth, regions = load(DEPTH, "transformers"), load(REGIONS, "transformers")
        seen = Perceiver(
            depth=(depth, depth.options.model_validate({"path": f"{place}/depth", "device": "cpu"})),
            regions=(regions, regions.options.model_validate({"path": f"{place}/regions", "device": "cpu"})),
            matches=None,
            consensus_options=ConsensusOptions(flip=False),
            cache=Cache(Path(place) / "cache"),
        )
        first, *others = photos(PHOTOS + 1)
        seen.perceive([first], NEEDS, 0)  # loads the models and warms them
        with clocks(spent), timed(spent, "all"):
            seen.perceive(others, NEEDS, 0)
        with timed(spent, "the same from the cache"):
            seen.perceive(others, NEEDS, 0)
    networks = sum(seconds for name, seconds in spent.items() if name.startswith("network"))
    own = spent["all"] - networks
    spent["the rest"] = own - spent["photo to input"] - spent["cache entry"]
    order = sorted(spent.keys() - {"all"}, key=lambda name: -spent[name])
    for name in [*order, "all"]:
        print(f"{name:45} {spent[name] / PHOTOS * 1000:9.1f} ms a photo  {spent[name] / networks:7.2%}")
    print(f"{'our own side, of the networks':45} {own / PHOTOS * 1000:9.1f} ms a photo  {own / networks:7.2%}")
    return int(own > LIMIT * networks)


if __name__ == "__main__":
    raise SystemExit(main())
