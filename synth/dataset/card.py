"""The dataset card: README.md with Hugging Face front matter. Every number in it comes from the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from synth.audit.leaks import summary_line
from synth.dataset.shards import read_rows
from synth.files import write_text
from synth.types import JsonValue

SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def write_card(out: Path, manifest: Mapping[str, JsonValue], certificate: Mapping[str, JsonValue]) -> None:
    """Write `out/README.md` for a finished data folder."""
    write_text(out / "README.md", card_text(manifest, certificate, _licences(out)))


def card_text(
    manifest: Mapping[str, JsonValue], certificate: Mapping[str, JsonValue], licences: Mapping[str, int]
) -> str:
    """The card's Markdown. `licences`: licence of the source photo -> rows."""
    pairs = _section(manifest, "pairs")
    splits = _section(pairs, "by_split")
    front: dict[str, JsonValue] = {
        "license": "other" if len(licences) != 1 else next(iter(licences)).lower(),
        "task_categories": ["visual-question-answering"],
        "language": ["en"],
        "size_categories": [_size(int(str(pairs["kept"])))],
        "tags": ["synthetic", "spatial-reasoning", "see2perceive"],
        "configs": [
            {
                "config_name": "default",
                "data_files": [{"split": name, "path": f"data/{name}-*.parquet"} for name in splits],
            }
        ],
    }
    parts = [
        "---\n" + yaml.safe_dump(front, sort_keys=False) + "---",
        f"# {manifest['name']}",
        "Spatial question-answer pairs made by See2Perceive from unlabeled photos. Each row holds the marked pictures, "
        "a multiple-choice question, the answer letter, TRL's `prompt`/`completion` messages, and in `provenance` the "
        "numbers from which the answer can be recomputed.",
        _table("Pairs", ("skill", "pairs", "answer letters", "strata"), _pair_rows(pairs)),
        _twins_text(pairs),
        _table("Splits (by source group)", ("split", "pairs"), [(k, v) for k, v in splits.items()]),
        _guard_text(certificate),
        _shortcut_text(_section(manifest, "shortcuts")),
        _table(
            "What did not become a pair",
            ("stage", "task", "reason", "count"),
            [(d["stage"], d["task"], d["reason"], d["count"]) for d in _rows(manifest, "drops")[:20]],
        ),
        _table("Licences of the source photos", ("licence", "pairs"), sorted(licences.items())),
        "Label precision is measured by `s2p audit` on photos with ground truth; it is not stated here because it was "
        "not measured on these photos.",
        '```python\nfrom datasets import load_dataset\n\ndataset = load_dataset("path/to/this/folder")\n```',
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _guard_text(certificate: Mapping[str, JsonValue]) -> str:
    verdict = certificate["verdict"]
    if "unguarded" in certificate:
        return (
            "## Contamination\n\n**This dataset was made with `--unguarded`: no benchmark was held out.** Do not "
            "report benchmark gains from it."
        )
    held_out = [f"{b['name']} ({b['read_images']} images)" for b in _rows(certificate, "benchmarks")]
    planted = _section(_section(certificate, "calibration"), "planted")
    removed = {name: n for name, n in _section(certificate, "removed").items() if n}
    text = (
        f"## Contamination\n\nVerdict: **{verdict}** against {', '.join(held_out)}. Of {planted.get('n')} planted "
        f"copies {planted.get('found')} were found; removed: {_counts(removed) or 'nothing'}. The stages that ran, "
        "their counts and limits are in `certificate.json`."
    )
    wording = _section(certificate, "template_overlap")
    shares: list[tuple[JsonValue, ...]] = [
        (task, _section(wording, task)["n"], _wording(_section(wording, task))) for task in wording
    ]
    return f"{text}\n\n{_table('Pairs in the wording of the benchmark', ('task', 'pairs', 'share'), shares)}".strip()


def _wording(overlap: Mapping[str, JsonValue]) -> JsonValue:
    return f"{100 * float(str(overlap['identical_prompt_share'])):.1f} %"


def _shortcut_text(section: Mapping[str, JsonValue]) -> str:
    if not section:
        return ""
    tests = _rows(section, "tests")
    leaks: list[tuple[JsonValue, ...]] = [
        (t["skill"], t["cue"], _share(t["accuracy"]), _share(t["chance"]), t["n"]) for t in tests if t["leaks"]
    ]
    text = f"## Answering without looking\n\n**{summary_line(section)}**"
    if tests:
        text += (
            f" {len(tests)} tests, a blind solver a cue, in cross-validation over source groups: accuracy above chance "
            f"+ {_share(section['slack'])} (one-sided, Holm, {_share(section['alpha'])}). All of them, with what they "
            "could have found, are in `manifest.json`."
        )
    return f"{text}\n\n{_table('', ('skill', 'cue', 'accuracy', 'chance', 'pairs'), leaks)}".strip()


def _share(value: JsonValue) -> str:
    return f"{100 * float(str(value)):.1f} %"


def _pair_rows(pairs: Mapping[str, JsonValue]) -> list[tuple[JsonValue, ...]]:
    letters, strata = _section(pairs, "letters"), _section(pairs, "strata")
    return [
        (skill, n, _counts(_section(letters, skill)), _counts(_section(strata, skill)))
        for skill, n in _section(pairs, "by_skill").items()
    ]


def _twins_text(pairs: Mapping[str, JsonValue]) -> str:
    twins = _section(pairs, "twins")
    if not twins:
        return ""
    return (
        f"Of these, {_counts(twins)} come as contrast pairs: two questions about one photo in the same words, with the "
        "marks' letters exchanged in the second picture, so that the answer is the other one. Both members carry the "
        "same `twin` among the `measures` of their `provenance`, and stand in the same split."
    )


def _counts(table: Mapping[str, JsonValue]) -> str:
    return ", ".join(f"{name or '-'} {n}" for name, n in table.items())


def _table(title: str, header: tuple[str, ...], rows: list[tuple[JsonValue, ...]]) -> str:
    if not rows:
        return ""
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return (f"## {title}\n\n" if title else "") + "\n".join(lines)


def _size(n: int) -> str:
    return next((name for limit, name in SIZES if n < limit), "n>1M")


def _licences(out: Path) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in read_rows(out, ("license",)):
        name = str(row["license"])
        counts[name] = counts.get(name, 0) + 1
    return counts


def _section(value: Mapping[str, JsonValue], key: str) -> Mapping[str, JsonValue]:
    inner = value.get(key)
    return inner if isinstance(inner, Mapping) else {}


def _rows(value: Mapping[str, JsonValue], key: str) -> list[Mapping[str, JsonValue]]:
    inner = value.get(key)
    return [row for row in inner if isinstance(row, Mapping)] if isinstance(inner, list) else []
