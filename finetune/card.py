"""The adapter's card: README.md with Hugging Face front matter. Every number comes from a record."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from finetune.record import TrainRecord
from synth.errors import RunError
from synth.files import sha256_file, write_text
from synth.types import JsonValue

SHOWN = (
    *("method", "lora_r", "lora_alpha", "lora_dropout", "use_rslora", "use_dora", "quantization"),
    *("learning_rate", "scheduler", "warmup", "weight_decay", "epochs", "max_steps", "batch_size"),
    *("gradient_accumulation", "curriculum", "image_max_pixels", "seed"),
)
"""Settings that the card lists; the rest is in train_run.json."""
LORA = {
    **{"lora_r": "r", "lora_alpha": "lora_alpha", "lora_dropout": "lora_dropout"},
    **{"use_rslora": "use_rslora", "use_dora": "use_dora"},
}
"""Settings that PEFT saves -> its names for them."""


def write_adapter_card(
    out: Path, record: TrainRecord, settings: Mapping[str, JsonValue], comparison: Path | None = None
) -> None:
    """Write `out/README.md`. `comparison`: the comparison.json of `s2p compare` (or `loop`) for this adapter.

    Raises RunError for a comparison or an adapter_config.json that cannot be read.
    """
    results = _read(comparison) if comparison is not None else {}
    adapter = _read(out / "adapter_config.json")
    # An adapter that was gone on from brings its own: what PEFT saved counts, not what was configured.
    settings = {**settings, **{key: adapter.get(name) for key, name in LORA.items()}}
    manifest = Path(record.dataset) / "manifest.json"
    identity = f"sha256 `{sha256_file(manifest)}`" if manifest.is_file() else "no manifest.json beside the data"
    write_text(out / "README.md", adapter_card(record, settings, identity, results))


def adapter_card(
    record: TrainRecord, settings: Mapping[str, JsonValue], manifest: str, comparison: Mapping[str, JsonValue]
) -> str:
    """The card's Markdown. `manifest`: how the dataset is identified; `comparison`: {} where nothing was compared."""
    base = _name(record.model)
    front = {
        "base_model": base,
        "library_name": "peft",
        "pipeline_tag": "image-text-to-text",
        "tags": ["lora", "see2perceive", record.method],
    }
    arm = f"**This is a control arm ({record.control}): it must not be used as a model.**" if record.control else ""
    chosen = settings.get(record.method)
    options = chosen if isinstance(chosen, Mapping) else {}
    parts = [
        "---\n" + yaml.safe_dump(front, sort_keys=False) + "---",
        f"# LoRA adapter for {base}",
        arm,
        f"Trained by See2Perceive with TRL ({record.method.upper()}) on {record.rows} rows; "
        f"{record.trainable_parameters} trainable parameters in {record.modules} layers "
        f"({', '.join(f'{tower} {n}' for tower, n in record.adapted.items())}).",
        _table("Data", ("", ""), _data(record, manifest)),
        _table("Rows by skill", ("skill", "rows"), list(record.rows_by_skill.items())),
        _table(
            "Hyperparameters",
            ("setting", "value"),
            [(key, settings[key]) for key in SHOWN if settings.get(key) is not None]
            + [(f"{record.method}.{key}", value) for key, value in options.items()],
        ),
        _table("Training", ("", ""), _training(record)),
        _results(comparison),
        _table("Versions", ("package", "version"), list(record.versions.items())),
        "```python\nfrom peft import PeftModel\nfrom transformers import AutoModelForImageTextToText, AutoProcessor\n\n"
        f'base = AutoModelForImageTextToText.from_pretrained("{base}")\n'
        'model = PeftModel.from_pretrained(base, "path/to/this/folder")\n'
        'processor = AutoProcessor.from_pretrained("path/to/this/folder")  # carries the image budget\n```',
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _data(record: TrainRecord, manifest: str) -> list[tuple[JsonValue, ...]]:
    rows: list[tuple[JsonValue, ...]] = [
        ("dataset", _name(record.dataset)),
        ("manifest", manifest),
        ("contamination guard", record.certificate),
    ]
    if record.replay is not None:
        replay = record.replay
        share = f"{replay.rows} rows ({100 * replay.share:.1f} %)"
        rows.append(("replay", f"{share} of {_name(replay.dataset)}, guard: {replay.certificate}"))
    return rows


def _training(record: TrainRecord) -> list[tuple[JsonValue, ...]]:
    rows: list[tuple[JsonValue, ...]] = [
        ("steps", record.steps),
        ("loss, first and last logged", f"{record.losses[0][1]:.4f}, {record.losses[-1][1]:.4f}"),
        ("longest row looked at", f"{record.preflight.longest_tokens} tokens"),
        ("precision", "bfloat16" if record.bf16 else "float32"),
    ]
    if record.adapter is not None:
        rows.append(("went on from", _name(record.adapter)))
    if record.margins:
        rows.append(("reward margin, first and last", f"{record.margins[0][1]:.4f}, {record.margins[-1][1]:.4f}"))
    if record.rewards:
        rows.append(("reward, first and last", f"{record.rewards[0][1]:.4f}, {record.rewards[-1][1]:.4f}"))
    if record.zero_variance is not None:
        rows.append(("groups of one reward", f"{100 * record.zero_variance:.1f} %"))
    if record.dev is not None and record.dev.accuracy:
        step, best = max(record.dev.accuracy, key=lambda entry: entry[1])
        said = f"{100 * best:.1f} % of {record.dev.questions} at step {step}"
        rows.append(("dev questions answered right (chosen by: optimistic)", said))
    return rows


def _results(comparison: Mapping[str, JsonValue]) -> str:
    skills = comparison.get("per_skill")
    if not isinstance(skills, Mapping):
        return ""
    rows = [
        (name, *(_percent(cell.get(key)) for key in ("before", "after", "delta", "low", "high")), cell.get("verdict"))
        for name, cell in skills.items()
        if isinstance(cell, Mapping)
    ]
    gate = comparison.get("gate")
    passed = gate.get("passed") if isinstance(gate, Mapping) else None
    verdict = "" if passed is None else f"\n\nGate: {'passed' if passed else 'not passed'}."
    return _table("Results", ("skill", "before %", "after %", "delta", "low", "high", "verdict"), rows) + verdict


def _percent(value: JsonValue) -> str:
    return f"{100 * value:.1f}" if isinstance(value, int | float) else "-"


def _name(path: str) -> str:
    """A folder by its last part: whose machine it lay on is nobody's business. A hub name stays whole."""
    return Path(path).name if Path(path).exists() or Path(path).is_absolute() else path


def _table(title: str, header: Sequence[str], rows: Sequence[tuple[JsonValue, ...]]) -> str:
    if not rows:
        return ""
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return f"## {title}\n\n" + "\n".join(lines)


def _read(path: Path) -> Mapping[str, JsonValue]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise RunError(f"cannot be read: {error}", where=str(path)) from None
    if not isinstance(data, dict):
        raise RunError("not a JSON object", where=str(path))
    return data
