"""What the guards around training cost: rows and tokens a second of `s2p train` against stock TRL on the same rows.

`python tests/benchmarks/bench_train.py`; the built-in model on a CPU, the same LoRA, batch, order and number of steps.
Seconds are CPU seconds of the training loop on one thread, so that other processes on the machine matter less; the two
take turns in one process and the faster of each one's turns counts. A ratio of 1 means that nothing is lost.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from finetune.loading import quiet  # noqa: E402
from finetune.settings import TrainConfig  # noqa: E402
from finetune.train import train  # noqa: E402
from tests.small_vlms import colour_rows, write_rows  # noqa: E402

MODEL = ROOT / "finetune" / "tiny" / "base"
TURNS, STEPS, BATCH = 2, 10, 16


def ours(rows: Path, out: Path) -> tuple[float, int]:
    """(CPU seconds of the training loop, tokens)."""
    record = train(
        TrainConfig(
            model=str(MODEL),
            dataset=rows,
            out=out,
            max_steps=STEPS,
            batch_size=BATCH,
            lora_dropout=0.0,
            precision="fp32",
            device="cpu",
            threads=1,
        )
    )
    return record.cpu_seconds, record.tokens


def stock(rows: Path, out: Path) -> tuple[float, int]:
    """The same by TRL alone, as `trl sft` would run it."""
    from datasets import load_dataset
    from peft import LoraConfig
    from trl import SFTConfig, SFTTrainer

    with quiet():
        data = load_dataset(str(rows), split="train", cache_dir=str(out / "cache"))
        trainer = SFTTrainer(
            model=str(MODEL),
            args=SFTConfig(
                output_dir=str(out),
                max_steps=STEPS,
                per_device_train_batch_size=BATCH,
                learning_rate=1e-4,
                lr_scheduler_type="cosine",
                warmup_steps=0.05,
                max_length=None,
                bf16=False,
                use_cpu=True,
                gradient_checkpointing=False,
                activation_checkpointing=False,
                dataloader_pin_memory=False,
                seed=0,
                data_seed=0,
                save_steps=200,
                logging_steps=10,
                report_to="none",
                disable_tqdm=True,
            ),
            train_dataset=data,
            peft_config=LoraConfig(
                r=16,
                lora_alpha=32,
                lora_dropout=0.0,
                target_modules=r".*language_model.*(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)",
                task_type="CAUSAL_LM",
            ),
        )
        start = time.process_time()
        trainer.train()
        seconds = time.process_time() - start
    return seconds, int([entry["num_tokens"] for entry in trainer.state.log_history if "num_tokens" in entry][-1])


def main() -> None:
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = write_rows(folder / "rows", colour_rows(STEPS * BATCH))
        times: dict[str, list[float]] = {"ours": [], "stock": []}
        tokens = {}
        for turn in range(TURNS):
            for label, run in (("stock", stock), ("ours", ours)):
                seconds, tokens[label] = run(rows, folder / f"{label}-{turn}")
                times[label].append(seconds)
    best = {label: min(values) for label, values in times.items()}
    result = {
        "rows_per_cpu_second": {label: round(STEPS * BATCH / seconds, 2) for label, seconds in best.items()},
        "tokens_per_cpu_second": {label: round(tokens[label] / seconds) for label, seconds in best.items()},
        "ratio": round(best["stock"] / best["ours"], 3),
        "cpu_seconds": {label: [round(s, 2) for s in values] for label, values in times.items()},
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
