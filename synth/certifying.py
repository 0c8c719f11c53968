"""Between the dataset and the guard: rows as the guard reads them, the certificate of a run, checks of what exists."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from synth import __version__
from synth.contracts import BenchmarkData
from synth.dataset.shards import data_files, iterate, read_rows
from synth.errors import GuardError
from synth.files import write_text
from synth.guard.building import build_index
from synth.guard.cascade import Guard, GuardVerdict
from synth.guard.certificate import (
    RunFacts,
    certify,
    certify_unguarded,
    read_certificate,
    write_certificate,
)
from synth.guard.embeddings import load_networks
from synth.guard.fields import entries
from synth.guard.index import Expected, GuardIndex, load_index
from synth.guard.options import GuardOptions, content_of
from synth.guard.plant import Proof
from synth.guard.scan import Scan
from synth.guard.survey import CertifiedRow, Survey, survey
from synth.guard.verification import Verification, verify
from synth.images import SUFFIXES
from synth.types import Box, JsonValue, Progress

CERTIFICATE = "certificate.json"
COLUMNS = (
    *("qa_id", "images", "question", "choices", "prompt", "completion", "task", "source_name", "source_group"),
    *("image_ids", "provenance"),
)


@dataclass(frozen=True, kw_only=True)
class Certified:
    """What a run knows when it asks for its certificate."""

    name: str
    run: str
    seed: int
    sources: tuple[str, ...]
    """Folders and sources that the images come from; looked up in the provenance table."""
    guard: Guard | None
    """None: unguarded."""
    scan: Scan | None
    proof: Proof | None
    outputs: Mapping[str, tuple[GuardVerdict, ...]]
    """The guard's word on the finished pictures, by qa_id."""
    removed_text: int = 0
    """Pairs that were dropped for their question."""


def certify_dataset(dataset: Path, facts: Certified) -> dict[str, JsonValue]:
    """Read the finished dataset once and write `certificate.json` beside it."""
    run = RunFacts(
        dataset=facts.name,
        dataset_revision=facts.run,
        generator="see2perceive",
        version=__version__,
        git="",
        config_sha256=facts.run,
        seeds=str(facts.seed),
        source_names=facts.sources,
        removed_text=facts.removed_text,
    )
    result = survey(certified_rows(dataset), facts.guard.index if facts.guard else None)
    if facts.guard is None or facts.proof is None:
        certificate = certify_unguarded(run, result, "--unguarded was typed")
    else:
        kept = {str(row["qa_id"]) for row in read_rows(dataset, ("qa_id",))}
        seen = {v.image_id: v for qa_id, found in facts.outputs.items() if qa_id in kept for v in found}
        outputs = tuple(seen[image_id] for image_id in sorted(seen))
        certificate = certify(run, facts.guard, facts.scan, facts.proof, replace(result, outputs=outputs))
    write_certificate(certificate, dataset / CERTIFICATE)
    return certificate


def certified_rows(dataset: Path) -> Iterator[CertifiedRow]:
    """The rows of a finished dataset as the guard reads them."""
    for path in data_files(dataset):
        for row in iterate(path, COLUMNS):
            yield _certified_row(row)


def check_target(
    target: Path, index: Path, out: Path, progress: Progress | None = None, options: GuardOptions | None = None
) -> dict[str, int]:
    """Check every image of a dataset or folder; write `verdicts.jsonl` and `certificate.json`.

    Returns the number of images by verdict, and under "text" that of samples whose question is the benchmark's own.
    Without the benchmark's images no copies can be planted, so the certificate says what was compared and that nothing
    is established; `s2p generate` plants and establishes.
    """
    guard = Guard(load_index(index), options)
    samples = list(_samples_of(target))
    n_images = sum(len(sample.images) for sample in samples)
    if not n_images:
        raise GuardError("no image to check", where=str(target), fix="give a dataset, or a folder of JPEG, PNG or WEBP")
    lines: list[str] = []
    rows: list[CertifiedRow] = []
    counts: Counter[str] = Counter()
    for sample in samples:
        readable = []
        for number, data in enumerate(sample.images):
            name = f"{sample.sample_id}#{number + 1}" if sample.question else sample.sample_id
            found = guard.check_file(data, sample.boxes(number), sample.content, name)
            counts[found.verdict] += 1
            lines.append(json.dumps(found.line(name), ensure_ascii=False))
            if found.stage != "decode":
                readable.append(number)
            if progress is not None:
                progress(len(lines), n_images)
        images = tuple(sample.images[number] for number in readable)
        rows.append(replace(sample, images=images, masked=tuple(sample.boxes(number) for number in readable)))
    result = survey([row for row in rows if row.images or row.question], guard.index, guard)
    if result.text_hits:
        counts["text"] = len(result.text_hits)
    write_text(out / "verdicts.jsonl", "\n".join(lines) + "\n")
    write_certificate(_certificate_of(target, result, guard, counts), out / CERTIFICATE)
    return dict(counts)


def _certificate_of(target: Path, result: Survey, guard: Guard, counts: Mapping[str, int]) -> dict[str, JsonValue]:
    """The certificate of a check. Images that cannot be decoded are no samples; the verdict counts name them."""
    facts = RunFacts(
        dataset=target.name,
        dataset_revision="",
        generator="see2perceive",
        version=__version__,
        git="",
        config_sha256="",
        seeds="",
        source_names=(str(target),),
    )
    nothing_planted = Proof(n=0, found=0, by_transform={}, missed=())
    certificate = certify(facts, guard, None, nothing_planted, result)
    return {**certificate, "images_by_verdict": dict(counts)}


def verify_dataset(
    dataset: Path, held_out: Path | BenchmarkData | None, options: GuardOptions | None = None
) -> Verification:
    """Hold a dataset against its certificate; with what it holds out, a sample of its pictures is looked at again.

    held_out: an index file, or the benchmark (items, or a folder of images), whose index is then built as it was.
    """
    certificate = read_certificate(dataset / CERTIFICATE)
    guard = None
    if held_out is not None:
        guard = Guard(_index_of(held_out, certificate, options or GuardOptions()), options)
    return verify(certified_rows(dataset), certificate, guard)


def _index_of(
    held_out: Path | BenchmarkData, certificate: Mapping[str, JsonValue], options: GuardOptions
) -> GuardIndex:
    if isinstance(held_out, Path) and held_out.is_file():
        return load_index(held_out)
    stated = next(iter(entries(certificate, "benchmarks")), {})
    wanted = Expected(
        items=_whole(stated.get("expected_items")),
        images=_whole(stated.get("expected_images")),
        revision=str(stated["revision"]) if stated.get("revision") else None,
    )
    local = stated.get("local_features") is not False
    return build_index(held_out, wanted, local=local, networks=load_networks(options))


def _whole(value: JsonValue) -> int | None:
    return value if isinstance(value, int) else None


def _certified_row(row: Mapping[str, JsonValue]) -> CertifiedRow:
    provenance = json.loads(str(row["provenance"]))
    boxes = tuple(tuple(_box(box) for box in panel["drawn"]) for panel in provenance["panels"])
    return CertifiedRow(
        sample_id=str(row["qa_id"]),
        task=str(row["task"]),
        images=tuple(_bytes(row)),
        question=str(row["question"]),
        prompt=_message_text(row["prompt"]),
        choices=tuple(str(choice) for choice in _list(row["choices"])),
        texts=(
            _message_text(row["completion"]),
            str(row["source_name"]),
            str(row["provenance"]),
        ),
        image_ids=tuple(str(image_id) for image_id in _list(row["image_ids"])),
        group=str(row["source_group"]),
        content=content_of(str(provenance["domain"])),
        masked=boxes,
    )


def _samples_of(target: Path) -> Iterator[CertifiedRow]:
    """The rows of a dataset, or each image of a folder as a sample without a question."""
    if (target / "data").is_dir() and list((target / "data").glob("*.parquet")):
        yield from certified_rows(target)
        return
    for path in sorted(target.rglob("*")) if target.is_dir() else [target]:
        if path.suffix.lower() in SUFFIXES and path.is_file():
            name = path.relative_to(target).as_posix() if target.is_dir() else path.name
            yield CertifiedRow(sample_id=name, task="", images=(path.read_bytes(),), question="")


def _bytes(row: Mapping[str, JsonValue]) -> Iterator[bytes]:
    for image in _list(row["images"]):
        data = image["bytes"] if isinstance(image, Mapping) else None
        if not isinstance(data, bytes):
            raise GuardError(f"{row['qa_id']}: a picture without bytes")
        yield data


def _message_text(messages: JsonValue) -> str:
    texts = []
    for message in _list(messages):
        blocks = message["content"] if isinstance(message, Mapping) else None
        texts += [str(block["text"]) for block in _list(blocks) if isinstance(block, Mapping) and block["text"]]
    return "\n".join(texts)


def _list(value: JsonValue) -> Sequence[JsonValue]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _box(values: Sequence[float]) -> Box:
    x1, y1, x2, y2 = values
    return (float(x1), float(y1), float(x2), float(y2))
