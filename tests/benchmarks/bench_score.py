"""Measures what one forward pass saves against a generated reply, on the built-in model and on two stock classes.

    OMP_NUM_THREADS=1 python tests/benchmarks/bench_score.py [--items 16] [--repeats 3]

The same questions in the same batches of 8, the same decoding of images and the same thread: scoring by option letters,
and greedy generation of 32 tokens (which no end token cuts short). CPU seconds, the fastest of the repeats, taken in
turns, so that a busy machine disturbs both alike. Exit code 1 where the ratio of a stock class is below 4. The built-in
model is shown and not held to it: most of its forward pass is the vision tower, which a reply pays for once as well.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from finetune.generate import generate
from finetune.loading import VisionLanguageModel, load_model
from finetune.score import Question, score
from tests.small_vlms import QUESTION, png, small_llava, small_qwen

ROOT = Path(__file__).resolve().parents[2]
BATCH = 8
TOKENS = 32
LEAST = 4.0


def questions(n: int) -> list[Question]:
    """Colour questions about pictures of the built-in model's size."""
    text = f"{QUESTION}\n(A) red\n(B) blue\n(C) green\n(D) white"
    return [
        Question(item_id=str(i), text=text, images=(png((10 * i % 256, 90, 160), 128, 128),), n_options=4)
        for i in range(n)
    ]


def seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def compare(loaded: VisionLanguageModel, asked: list[Question], repeats: int) -> tuple[float, float]:
    """Fastest seconds of scoring and of generating, measured in turns after one run of each to warm up."""
    own = loaded.model.generation_config
    own.eos_token_id = [len(loaded.processor.tokenizer) + 1]  # never said, so every reply has all its tokens

    def write() -> list[object]:
        return list(generate(loaded, asked, max_new_tokens=TOKENS, batch_size=BATCH, n_threads=1))

    def choose() -> list[object]:
        return list(score(loaded, asked, batch_size=BATCH, n_threads=1))

    turns = [(seconds(choose), seconds(write)) for _ in range(repeats + 1)][1:]
    return min(a for a, _ in turns), min(b for _, b in turns)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    asked = questions(args.items)
    worst = float("inf")
    with tempfile.TemporaryDirectory() as folder:
        built_in = ROOT / "finetune" / "tiny" / "base"
        paths = {
            "built-in (LLaVA with SegFormer)": built_in,
            "tiny LLaVA (CLIP)": small_llava(Path(folder) / "llava"),
            "tiny Qwen2.5-VL": small_qwen(Path(folder) / "qwen"),
        }
        print(f"{args.items} items, batch {BATCH}, {TOKENS} new tokens, 1 thread, CPU time, fastest of {args.repeats}")
        for name, path in paths.items():
            choosing, writing = compare(load_model(str(path), device="cpu"), asked, args.repeats)
            worst = worst if path == built_in else min(worst, writing / choosing)
            print(
                f"{name:34} score {1000 * choosing / args.items:7.1f} ms an item, generate "
                f"{1000 * writing / args.items:7.1f} ms, ratio {writing / choosing:.1f}"
            )
    print(f"smallest ratio of a stock class {worst:.1f}, wanted {LEAST:.0f}")
    return 0 if worst >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
