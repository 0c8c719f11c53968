"""Pretrains the built-in VLM from nothing on rendered rooms: what things are and their colour, never where or how far.

    python -m finetune.tiny.pretrain --frames outputs/cache/rooms --out outputs/tiny

Two phases. First the vision tower alone, with dense heads; then everything, eight semantic questions a picture, with
pointer losses on the attention of the decoder. The defaults are the budget of the shipped weights. Every batch is drawn
from its own generator (seed, phase, step), so a run that is killed and resumed makes the same weights as one that is
not, as far as the pool of frames is the same.
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import math
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from finetune.precision import float32_attention, use_bf16
from finetune.tiny.build import IMAGE_SIDE, build
from finetune.tiny.frames import Picture, load_pictures
from finetune.tiny.heldout import Score, make_items, score
from finetune.tiny.losses import AuxiliaryHeads, Weights, dense_losses, question_losses
from finetune.tiny.packing import Packer
from finetune.tiny.questions import SEMANTIC
from finetune.tiny.sampling import pixel_values, sample_picture
from synth.errors import SourceError
from synth.rooms.render import RENDERER_VERSION
from synth.rooms.store import ensure
from synth.types import Skill

if TYPE_CHECKING:
    from transformers import LlavaForConditionalGeneration

LOG = logging.getLogger(__name__)
POOL = range(900)
HELD_OUT = range(900, 950)
STEPS_VISION = 800
STEPS_ALL = 1400
"""Budget of the shipped weights."""
VERSION = 1
"""Of this recipe; part of training.json."""

_SAVE_EVERY = 180.0
_WARM_UP = 100
_LOOK_EVERY, _LOOK_ITEMS = 200, 60
"""Steps between the looks at held-out rooms, and items a skill in one."""


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One stretch of training. It ends with its steps, or with its minutes where those are shorter."""

    name: str
    steps: int
    minutes: float
    pictures: int
    """In a batch."""
    rate: float
    """Learning rate of the decoder at its height."""
    tower_factor: float
    """The tower's learning rate is this times `rate`."""
    asks: bool


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that decides the weights, and where they go."""

    frames: Path
    out: Path
    checkpoint: Path
    seed: int
    threads: int
    depth_head: bool
    phases: tuple[Phase, ...]
    held_out: int
    """Items a skill at the end."""
    notes: tuple[str, ...] = ()
    """What training.json should say of this run besides its settings."""


class Run:
    """A training run: model, heads, optimiser, and how far it has come."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.model, self.processor = build(settings.seed)
        torch.manual_seed(settings.seed)
        self.heads = AuxiliaryHeads()
        self.packer = Packer(self.processor)
        self.pool: list[Picture] = []
        self.phase = 0
        self.step = 0
        self.bf16 = use_bf16("auto", "cpu")
        self.seconds = [0.0 for _ in settings.phases]
        self.pool_sizes: list[int] = []
        self.optimiser = _optimiser(self.model, self.heads)

    def refresh_pool(self) -> None:
        """Read frames that have appeared since; raises SourceError while there are none."""
        known = {picture.seed for picture in self.pool}
        self.pool += load_pictures(self.settings.frames, (seed for seed in POOL if seed not in known))
        self.pool.sort(key=lambda picture: (picture.seed, picture.view))
        if not self.pool:
            raise SourceError(
                "no rendered room of the seeds 0..899",
                where=str(self.settings.frames),
                fix="render them first: python -m finetune.tiny.pretrain --render --frames DIR",
            )

    def progress(self) -> float:
        """Share of the current phase's budget that is used, by steps or by minutes, whichever is more."""
        phase = self.settings.phases[self.phase]
        return max(self.step / phase.steps, self.seconds[self.phase] / 60 / phase.minutes)

    def train_step(self) -> dict[str, float]:
        """One batch; returns the parts of the loss."""
        phase, progress = self.settings.phases[self.phase], self.progress()
        rng = np.random.default_rng([self.settings.seed, self.phase, self.step])
        samples = [sample_picture(self.pool, progress, rng, asks=phase.asks) for _ in range(phase.pictures)]
        rate = phase.rate * min(1.0, (self.step + 1) / _WARM_UP) * _schedule(progress)
        for group, factor in zip(self.optimiser.param_groups, (phase.tower_factor, 1.0), strict=True):
            group["lr"] = rate * factor
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            tokens = self.model.model.vision_tower(pixel_values(samples), output_hidden_states=True).hidden_states[-1]
            parts = dense_losses(self.heads, tokens, [sample.labels for sample in samples])
            if phase.asks:
                parts |= question_losses(self.model, self.heads, tokens, self.packer.pack(samples))
        weights = asdict(Weights(depth=_depth_weight(phase, self.settings.depth_head)))
        self.optimiser.zero_grad()
        torch.stack([weights[name] * part for name, part in parts.items() if weights[name]]).sum().backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        self.step += 1
        return {name: float(part.detach()) for name, part in parts.items()}

    def save_checkpoint(self) -> None:
        """Everything needed to go on, written under a temporary name first."""
        state = {
            "model": self.model.state_dict(),
            "heads": self.heads.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "progress": (self.phase, self.step, self.seconds, self.pool_sizes),
        }
        path = self.settings.checkpoint
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        torch.save(state, temporary)
        temporary.replace(path)

    def load_checkpoint(self) -> None:
        """Go on where a killed run stopped."""
        state = torch.load(self.settings.checkpoint, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.heads.load_state_dict(state["heads"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.phase, self.step, self.seconds, self.pool_sizes = state["progress"]


def _optimiser(model: LlavaForConditionalGeneration, heads: AuxiliaryHeads) -> torch.optim.AdamW:
    """Two groups: tower, projector and heads; decoder. The state is kept from phase to phase."""
    tower: list[torch.nn.Parameter] = []
    decoder: list[torch.nn.Parameter] = []
    for name, parameter in model.named_parameters():
        (tower if "vision_tower" in name or "projector" in name else decoder).append(parameter)
    groups = [{"params": [*tower, *heads.parameters()]}, {"params": decoder}]
    return torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.02, fused=True)


def _depth_weight(phase: Phase, depth_head: bool) -> float:
    return 0.0 if not depth_head else 0.3 if phase.asks else 0.5


def _schedule(progress: float) -> float:
    """Constant for the first half, then a cosine down to 3 %."""
    return 0.03 + 0.97 * (math.cos(math.pi * max(0.0, min(1.0, 2 * progress - 1))) + 1) / 2


def train(run: Run) -> None:
    """Run the phases to their ends, saving every three minutes; logs losses every 50 steps."""
    phases = run.settings.phases
    run.model.train()
    saved = time.monotonic()
    with float32_attention(True):
        while run.phase < len(phases):
            started, recent = time.monotonic(), []
            while run.progress() < 1.0:
                if run.step % 100 == 0 or not run.pool:
                    run.refresh_pool()
                recent.append(run.train_step())
                run.seconds[run.phase] += time.monotonic() - started
                started = time.monotonic()
                if run.step % 50 == 0:
                    _print_losses(run, recent)
                    recent = []
                if phases[run.phase].asks and run.step % _LOOK_EVERY == 0:
                    scores = evaluate(run, _LOOK_ITEMS)
                    print_scores(scores)
                    export(run, scores, finished=False)
                    started = time.monotonic()
                if time.monotonic() - saved > _SAVE_EVERY:
                    run.save_checkpoint()
                    saved = time.monotonic()
                    started = time.monotonic()
            run.pool_sizes.append(len(run.pool))
            run.phase, run.step = run.phase + 1, 0
            run.save_checkpoint()


def _print_losses(run: Run, recent: Sequence[dict[str, float]]) -> None:
    means = {name: float(np.mean([parts[name] for parts in recent])) for name in recent[0]}
    name = run.settings.phases[run.phase].name
    shown = " ".join(f"{part} {value:.3f}" for part, value in means.items())
    LOG.info("%s step %d %.0fs pool %d %s", name, run.step, run.seconds[run.phase], len(run.pool), shown)


# ---------------------------------------------------------------------------------------------------------- the results


def export(run: Run, scores: dict[Skill, Score], *, finished: bool) -> None:
    """Write the folder that AutoModelForImageTextToText loads: bf16 weights, processor, training.json."""
    out = run.settings.out
    fresh = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    shutil.rmtree(fresh, ignore_errors=True)
    copy.deepcopy(run.model).to(torch.bfloat16).save_pretrained(fresh)
    run.processor.save_pretrained(fresh)
    (fresh / "training.json").write_text(json.dumps(_record(run, scores, finished), indent=1) + "\n")
    out.mkdir(parents=True, exist_ok=True)
    # File by file, weights last: the folder may hold a README, and a reader finds whole files at any moment.
    for path in sorted(fresh.iterdir(), key=lambda path: path.suffix == ".safetensors"):
        path.chmod(0o644)
        path.replace(out / path.name)
    fresh.rmdir()


def _record(run: Run, scores: dict[Skill, Score], finished: bool) -> dict[str, object]:
    settings = run.settings
    return {
        "recipe_version": VERSION,
        "finished": finished,
        "notes": settings.notes,
        "seed": settings.seed,
        "torch": torch.__version__,
        "threads": settings.threads,
        "depth_head": settings.depth_head,
        "bf16_autocast": run.bf16,
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
        "phases": [
            {
                **asdict(phase),
                "minutes": phase.minutes if math.isfinite(phase.minutes) else None,
                "steps_done": phase.steps if index < run.phase else run.step if index == run.phase else 0,
                "seconds": round(run.seconds[index]),
                "pictures_in_pool_at_end": run.pool_sizes[index] if index < len(run.pool_sizes) else None,
            }
            for index, phase in enumerate(settings.phases)
        ],
        "pool": {"seeds": [POOL.start, POOL.stop - 1], "views": 2, "side": 128, "renderer_version": RENDERER_VERSION},
        "held_out": {
            "seeds": [HELD_OUT.start, HELD_OUT.stop - 1],
            "skills": {
                skill.value: {**asdict(result), "taught": skill in SEMANTIC} for skill, result in scores.items()
            },
        },
    }


def evaluate(run: Run, n: int) -> dict[Skill, Score]:
    """Score the weights as they are saved, rounded to bf16, on the held-out rooms; empty where none is rendered."""
    pictures = load_pictures(run.settings.frames, HELD_OUT)
    if not pictures:
        return {}
    saved = copy.deepcopy(run.model).to(torch.bfloat16).to(torch.float32)
    return score(saved, run.processor, make_items(pictures, n, seed=1))


def print_scores(scores: dict[Skill, Score]) -> None:
    """A line a skill."""
    for skill, result in scores.items():
        taught = "" if skill in SEMANTIC else "  (never asked in pretraining)"
        LOG.info("  %-16s n %d accuracy %.3f chance %.3f%s", skill, result.n, result.accuracy, result.chance, taught)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m finetune.tiny.pretrain", description=__doc__)
    parser.add_argument("--frames", type=Path, required=True, help="folder of rendered rooms (synth.rooms.store)")
    parser.add_argument("--out", type=Path, required=True, help="folder for the model")
    parser.add_argument("--render", action="store_true", help="first render the rooms that the folder lacks")
    parser.add_argument("--minutes-vision", type=float, default=math.inf, help="upper limit of the first phase")
    parser.add_argument("--minutes-all", type=float, default=math.inf, help="upper limit of the second phase")
    parser.add_argument("--steps-vision", type=int, default=STEPS_VISION)
    parser.add_argument("--steps-all", type=int, default=STEPS_ALL)
    parser.add_argument("--no-depth-head", action="store_true", help="train the tower without the auxiliary depth head")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--checkpoint", type=Path, help="default: beside the model's folder")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    parser.add_argument("--held-out", type=int, default=400, help="items a skill in the evaluation")
    parser.add_argument("--note", action="append", default=[], help="a remark for training.json; may be repeated")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Command line."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    given = _arguments(argv)
    torch.set_num_threads(given.threads)
    settings = Settings(
        frames=given.frames,
        out=given.out,
        checkpoint=given.checkpoint or given.out.with_name(given.out.name + "_checkpoint.pt"),
        seed=given.seed,
        threads=given.threads,
        depth_head=not given.no_depth_head,
        phases=(
            Phase(
                name="vision",
                steps=given.steps_vision,
                minutes=given.minutes_vision,
                pictures=16,
                rate=1e-3,
                tower_factor=1.5,
                asks=False,
            ),
            Phase(
                name="all",
                steps=given.steps_all,
                minutes=given.minutes_all,
                pictures=12,
                rate=6e-4,
                tower_factor=1.3,
                asks=True,
            ),
        ),
        held_out=given.held_out,
        notes=tuple(given.note),
    )
    if given.render:
        ensure([*POOL, *HELD_OUT], IMAGE_SIDE, given.frames, given.threads)
    run = Run(settings)
    if given.resume and settings.checkpoint.exists():
        run.load_checkpoint()
        LOG.info("resumed at phase %d, step %d", run.phase, run.step)
    train(run)
    scores = evaluate(run, settings.held_out)
    print_scores(scores)
    export(run, scores, finished=True)


if __name__ == "__main__":
    main()
