"""Holding a dataset against its contamination certificate, as a third party would."""

from __future__ import annotations

import hashlib
import heapq
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from synth.errors import ImageError
from synth.guard.cascade import Guard
from synth.guard.certificate import CLEAN, NOT_ESTABLISHED, SCHEMA, reasons_against
from synth.guard.fields import entries, section
from synth.guard.options import THRESHOLDS
from synth.guard.survey import CertifiedRow, survey
from synth.images import image_id
from synth.types import JsonValue

LEAST_RECHECKED = 20
"""Samples, or 1 % of them where that is more."""


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What `verify` found."""

    problems: tuple[str, ...]
    n_samples: int
    n_rechecked: int
    """Samples whose images went through the guard again; 0 without a guard."""


def verify(rows: Iterable[CertifiedRow], certificate: Mapping[str, JsonValue], guard: Guard | None) -> Verification:
    """Hold a dataset against its certificate.

    Recomputes the manifest, the counts and the verdict from the certificate's own fields, searches for canaries, and
    (with a guard) checks the images of 1 % of the samples, at least 20, and of all near misses again.
    """
    dataset = section(certificate, "dataset")
    problems = list(_claims(certificate, guard))
    stated = dataset.get("n_samples")
    wanted = max(LEAST_RECHECKED, math.ceil(stated / 100) if isinstance(stated, int) else 0)
    salt = str(dataset.get("manifest_sha256"))
    near = {str(entry.get("sample")): entry for entry in entries(certificate, "near_misses")}
    kept: list[tuple[int, int, CertifiedRow]] = []
    close: list[CertifiedRow] = []

    def passing() -> Iterable[CertifiedRow]:
        for number, row in enumerate(rows):
            # The choice depends on the whole dataset, so nobody can place a sample where it is not looked at.
            rank = int.from_bytes(hashlib.blake2b(f"{salt} {row.sample_id}".encode(), digest_size=8).digest(), "big")
            (heapq.heappush if len(kept) < wanted else heapq.heappushpop)(kept, (-rank, number, row))
            if near and near.keys() & {*row.image_ids, *map(image_id, row.images)}:
                close.append(row)
            yield row

    try:
        result = survey(passing(), None if guard is None else guard.index)
    except ImageError as error:
        return Verification(problems=(*problems, str(error)), n_samples=0, n_rechecked=0)
    for what, found in (
        ("n_samples", result.n_samples),
        ("n_images_unique", result.n_images_unique),
        ("manifest_sha256", result.manifest_sha256),
    ):
        if dataset.get(what) != found:
            problems.append(f"{what}: the certificate says {dataset.get(what)}, the dataset has {found}")
    problems += [f"canary: {hit}" for hit in result.canary_hits]
    problems += [f"text: {hit}" for hit in result.text_hits]
    again = {row.sample_id: row for row in (*close, *(row for _, _, row in kept))} if guard is not None else {}
    for row in again.values():
        problems += _rejected(row, guard, near)
    return Verification(problems=tuple(problems), n_samples=result.n_samples, n_rechecked=len(again))


def _claims(certificate: Mapping[str, JsonValue], guard: Guard | None) -> Iterable[str]:
    if certificate.get("schema") != SCHEMA:
        yield f"schema: expected {SCHEMA}, found {certificate.get('schema')}"
    reasons = reasons_against(certificate)
    if certificate.get("verdict") != (NOT_ESTABLISHED if reasons else CLEAN):
        yield f"verdict: it says {certificate.get('verdict')}; its own fields say: {'; '.join(reasons) or CLEAN}"
    if guard is None:
        return
    built = [benchmark.get("index_sha256") for benchmark in entries(certificate, "benchmarks")]
    if guard.index.sha256 not in built:
        yield f"index: the certificate was made with {built}, this one is {guard.index.sha256}"
    chosen = section(section(certificate, "options"), "chosen")
    for route, least in THRESHOLDS.items():
        name = f"threshold_{route}"
        value = chosen.get(name)
        if isinstance(value, int) and value < least and certificate.get("verdict") == CLEAN:
            yield f"{name}: {value} is looser than the shipped {least}"


def _rejected(row: CertifiedRow, guard: Guard | None, near: Mapping[str, Mapping[str, JsonValue]]) -> Iterable[str]:
    if guard is None:
        return
    for number, data in enumerate(row.images):
        found = guard.check_file(data, row.boxes(number), row.content)
        if found.verdict != "clean":
            yield f"sample {row.sample_id}: image {number + 1} is {found.verdict}, {found.match} ({found.stage})"
        stated = near.get(found.image_id, {})
        for name, what in (("pdq", "distance"), ("inliers", "inliers")):
            if stated and stated.get(name) != found.evidence.get(what):
                yield (
                    f"sample {row.sample_id}: image {number + 1} is a near miss with {name} {stated.get(name)}, "
                    f"now {found.evidence.get(what)}"
                )
