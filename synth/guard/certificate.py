"""The contamination certificate: what was tested, on what, and what the tests cannot see.

It says "clean under the stated tests" or "not established", never "uncontaminated". Whoever has the dataset can
recompute the manifest; whoever has the guard's index too can repeat the image checks.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from synth.errors import GuardError
from synth.files import write_bytes
from synth.guard import bank
from synth.guard import text as text_index
from synth.guard.canaries import CANARIES
from synth.guard.cascade import Guard, GuardVerdict, Stage
from synth.guard.embeddings import NETWORKS
from synth.guard.fields import entries, section, texts
from synth.guard.index import HASH, merkle_root
from synth.guard.options import GuardOptions
from synth.guard.plant import LEAST, Proof, proof_json
from synth.guard.provenance import TABLE, pools
from synth.guard.scan import Scan
from synth.guard.survey import Survey
from synth.guard.transforms import TRANSFORMS
from synth.types import JsonValue

SCHEMA = "contamination-certificate/2"
CLEAN = "clean-under-stated-tests"
NOT_ESTABLISHED = "not_established"

LIMITS: tuple[str, ...] = (
    "crops below half of either side, and crops of parts that have hardly a key point (clear sky, plain walls)",
    "pictures drawn out in one direction by more than about a third and cropped as well",
    "the same scene from a point of view far away, and another render of one 3D scene",
    "other hues of strongly coloured pictures",
    "redrawn or generated look-alikes",
    "drawings and renders: only exact copies and the hash of whole pictures and panels; no crops, small turns, pages",
    "questions in other words or another language; a question's template may be the benchmark's, and how often it is "
    "stands under template_overlap",
    "the marks of other benchmarks than BLINK's ids and texts that name themselves a canary",
)
"""What the stages that ran cannot see."""
IMAGE_STAGES = ("metadata", "file_sha256", "pixel_sha256", "pdq_panels", "sift_ransac", "warp_correlation")

_TOOLS = {
    "metadata": "regular expressions over names and image metadata",
    "pdq_panels": HASH,
    "sift_ransac": bank.ALGORITHM,
    "warp_correlation": f"luma at {bank.THUMBNAIL} px",
}
_ALONE = "other frames or copies of one of them do not fall with it"
_ONLY_OUTPUTS = ("the source images were not at hand: only the finished ones were checked",)


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What the certificate says about the run; plain statements of the caller."""

    dataset: str
    dataset_revision: str
    generator: str
    version: str
    git: str
    config_sha256: str
    seeds: str
    created: str = ""
    """ISO 8601; part of the file, so leave it empty where equal runs must give equal bytes."""
    removed_text: int = 0
    """Pairs that were dropped for their question."""
    source_names: tuple[str, ...] = ()
    """Sources, folders and files that images come from; looked up in the provenance table."""


def certify(facts: RunFacts, guard: Guard, scan: Scan | None, proof: Proof, result: Survey) -> dict[str, JsonValue]:
    """The certificate of a guarded run: sources scanned, copies planted, finished dataset surveyed.

    scan: None where only the finished dataset is at hand; then the survey must have been made with the guard.
    """
    index, options = guard.index, guard.options
    body: dict[str, JsonValue] = _opening(facts, result)
    body["benchmarks"] = [
        {
            "name": index.benchmark,
            "revision": index.revision,
            "expected_items": index.expected_items,
            "read_items": index.n_items,
            "expected_images": index.expected_images,
            "read_images": index.n_images,
            "unreadable": [],
            "image_file_sha256_merkle": merkle_root([row.tobytes() for row in index.file_sha256]),
            "image_pixel_sha256_merkle": merkle_root([row.tobytes() for row in index.pixel_sha256]),
            "index_sha256": index.sha256,
            "local_features": index.local,
        }
    ]
    body["options"] = {
        "chosen": options.model_dump(mode="json"),
        "shipped": GuardOptions().model_dump(mode="json"),
        "at_index_build": dict(index.thresholds),
        "looser_than_shipped": list(looser(guard)),
    }
    sources = [] if scan is None else list(scan.verdicts.values())
    body["checks"] = [_provenance(facts), *_image_checks(guard, sources, result), *_other_checks(result, guard)]
    body["calibration"] = {"negatives_n": 0, "recall_by_transform": "not_run", "planted": proof_json(proof)}
    removed = Counter(str(found.verdict) for found in sources)
    names = ("copy", "crop", "scene", "unverifiable")
    groups = 0 if scan is None else len(scan.rejected_groups)
    body["removed"] = {**{name: removed[name] for name in names}, "text": facts.removed_text, "groups": groups}
    body["near_misses"] = [_near_miss(found) for found in _near([*sources, *result.outputs])]
    body["uncovered_images"] = sorted(_uncovered(scan, result))
    body["source_pools"] = [pool.json("required, done") for pool in pools(facts.source_names)]
    alone = result.n_without_group if scan is None else scan.n_without_group
    body["groups_unknown"] = alone
    ungrouped = [f"{alone} {'samples' if scan is None else 'images'} without a known group: {_ALONE}"] if alone else []
    body["limits"] = [*LIMITS, *_own_limits(guard), *ungrouped, *(() if scan is not None else _ONLY_OUTPUTS)]
    return _judged(body)


def certify_unguarded(facts: RunFacts, result: Survey, reason: str) -> dict[str, JsonValue]:
    """The certificate of a run without a guard: everything that was not done, and the verdict not_established."""
    body: dict[str, JsonValue] = _opening(facts, result)
    stages = ("provenance", *IMAGE_STAGES)
    body["unguarded"] = reason
    body["benchmarks"] = []
    body["checks"] = [*({"stage": stage, "status": "not_run"} for stage in stages), *_other_checks(result, None)]
    body["source_pools"] = [pool.json("not done") for pool in pools(facts.source_names)]
    body["limits"] = ["no image was compared with any benchmark"]
    return _judged(body)


def write_certificate(certificate: Mapping[str, JsonValue], path: Path) -> str:
    """Write the file atomically; its sha256, for the dataset card."""
    data = (json.dumps(certificate, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()
    write_bytes(path, data)
    return hashlib.sha256(data).hexdigest()


def read_certificate(path: Path) -> dict[str, JsonValue]:
    """Raises GuardError where there is none or it is of another kind."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise GuardError(f"no readable certificate: {error}", where=str(path), fix="generate or check again") from None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise GuardError(f"not a certificate of schema {SCHEMA}", where=str(path), fix="generate or check again")
    return found


def looser(guard: Guard) -> tuple[str, ...]:
    """Options that let more through than the shipped ones, or than those the index was built under."""
    options, shipped = guard.options, GuardOptions()
    least = {
        "threshold_photograph": max(shipped.threshold_photograph, guard.index.thresholds.get("photograph", 0)),
        "threshold_rendered": max(shipped.threshold_rendered, guard.index.thresholds.get("rendered", 0)),
        "threshold_drawing": max(shipped.threshold_drawing, guard.index.thresholds.get("drawing", 0)),
        "min_quality": shipped.min_quality,
    }
    most = {
        "inliers": shipped.inliers,
        "correlation": shipped.correlation,
        "certain_inliers": shipped.certain_inliers,
    }
    return (
        *(name for name, value in least.items() if int(getattr(options, name)) < value),
        *(name for name, value in most.items() if float(getattr(options, name)) > value),
    )


# ------------------------------------------------------------------------------------------------------------- verdict


def reasons_against(certificate: Mapping[str, JsonValue]) -> tuple[str, ...]:
    """Why a certificate does not establish anything, from its own fields alone; empty where they bear it out."""
    if "unguarded" in certificate:
        return (f"the run was not guarded: {certificate['unguarded']}",)
    reasons: list[str] = []
    for benchmark in entries(certificate, "benchmarks") or ({},):
        for what in ("items", "images"):
            read, expected = benchmark.get(f"read_{what}"), benchmark.get(f"expected_{what}")
            if not isinstance(read, int) or read <= 0 or (expected is not None and read != expected):
                reasons.append(f"{read} {what} of the benchmark were read, {expected} are expected")
    planted = section(section(certificate, "calibration"), "planted")
    n, found = planted.get("n", 0), planted.get("found", 0)
    if not isinstance(n, int) or n < LEAST:
        reasons.append(f"{n} copies were planted, at least {LEAST} are needed")
    elif found != n:
        reasons.append(f"{found} of {n} planted copies were found")
    checks = {str(check.get("stage")): check for check in entries(certificate, "checks")}
    kinds = set(section(planted, "by_transform"))
    local = {kind for kind, transform in TRANSFORMS.items() if not transform.hashed}
    if _looked(checks.get("sift_ransac", {})) and not kinds & local:
        reasons.append("no copy was planted that only local features can find")
    options = section(certificate, "options")
    reasons += [f"{name} is looser than shipped" for name in texts(options, "looser_than_shipped")]
    for stage in ("provenance", *IMAGE_STAGES, "canary"):
        status = checks.get(stage, {}).get("status", "missing")
        if status != "pass":
            reasons.append(f"stage {stage}: {status}")
    text = checks.get("text_residual", {})
    # A folder of images has no questions, and the limits say so.
    if text.get("status") != "pass" and not (text.get("status") == "not_run" and text.get("n_known") == 0):
        reasons.append(f"stage text_residual: {text.get('status', 'missing')}")
    if uncovered := texts(certificate, "uncovered_images"):
        reasons.append(f"{len(uncovered)} images of the dataset have no clean verdict, e.g. {uncovered[0]}")
    return tuple(reasons)


def _looked(check: Mapping[str, JsonValue]) -> bool:
    """True where the stage saw an image."""
    return any(section(check, where).get("n_checked", 0) != 0 for where in ("sources", "outputs"))


def _judged(body: dict[str, JsonValue]) -> dict[str, JsonValue]:
    reasons = reasons_against(body)
    return {**body, "verdict": NOT_ESTABLISHED if reasons else CLEAN, "verdict_reasons": list(reasons)}


# ------------------------------------------------------------------------------------------------------------ sections


def _opening(facts: RunFacts, result: Survey) -> dict[str, JsonValue]:
    own = uuid.uuid5(uuid.NAMESPACE_OID, result.manifest_sha256)
    return {
        "schema": SCHEMA,
        "created": facts.created,
        "dataset": {
            "name": facts.dataset,
            "revision": facts.dataset_revision,
            "n_samples": result.n_samples,
            "n_images_unique": result.n_images_unique,
            "manifest_sha256": result.manifest_sha256,
        },
        "generator": {
            "name": facts.generator,
            "version": facts.version,
            "git": facts.git,
            "config_sha256": facts.config_sha256,
            "seeds": facts.seeds,
        },
        "template_overlap": {
            task: {"n": n, "identical_prompt_share": same / n} for task, (n, same) in sorted(result.overlap.items())
        },
        "canaries": {
            "searched": list(CANARIES),
            "hits": len(result.canary_hits),
            "examples": list(result.canary_hits[:20]),
            "own_canary": f"{facts.dataset} canary GUID {own}",
        },
    }


def _provenance(facts: RunFacts) -> dict[str, JsonValue]:
    found = pools(facts.source_names)
    refused = [pool.name for pool in found if pool.data_set.action == "refuse"]
    return {
        "stage": "provenance",
        "tool": TABLE.name,
        "params": {"table_sha256": hashlib.sha256(TABLE.read_bytes()).hexdigest()},
        "n_checked": len(facts.source_names),
        "n_hits": len(found),
        "refused": list(refused),
        "status": "fail" if refused else "pass",
    }


def _image_checks(guard: Guard, sources: Sequence[GuardVerdict], result: Survey) -> list[JsonValue]:
    """One entry a stage, sources and outputs counted apart. What is not clean among outputs was not removed: fail."""
    checks: list[JsonValue] = []
    unclean = any(found.verdict != "clean" for found in result.outputs)
    for position, stage in enumerate(guard.stages):
        earlier = {"decode", *(before.name for before in guard.stages[:position])}
        on_sources, on_outputs = (_count(stage, earlier, verdicts) for verdicts in (sources, result.outputs))
        ran = bool(sources) or bool(result.outputs)
        checks.append(
            {
                "stage": stage.name,
                "tool": _tool(guard, stage.name),
                "ran_on": "both" if result.outputs and sources else "outputs" if result.outputs else "sources",
                "sources": on_sources,
                "outputs": on_outputs,
                "status": "not_run" if not ran else "fail" if unclean else "pass",
            }
        )
    return checks


def _tool(guard: Guard, stage: str) -> str:
    held = guard.index.embedded.get(stage)
    return _TOOLS.get(stage, "sha256") if held is None else held.identity


def _count(stage: Stage, earlier: set[str], verdicts: Sequence[GuardVerdict]) -> dict[str, int]:
    skipped = [found for found in verdicts if found.stage in earlier and found.verdict != "clean"]
    low = [found for found in verdicts if found.stage == stage.name and found.verdict == "unverifiable"]
    # Renders and drawings end clean before the stages for photographs.
    other = [found for found in verdicts if found.stage in earlier and found.verdict == "clean"]
    return {
        "n_checked": len(verdicts) - len(skipped) - len(low) - len(other),
        "n_hits": sum(found.is_hit and found.stage == stage.name for found in verdicts),
        "n_review": sum(found.near_miss and found.stage == stage.name for found in verdicts),
        "n_skipped": len(skipped) + len(low) + len(other),
        "skipped_undecodable": sum(found.stage == "decode" for found in skipped),
        "skipped_decided_earlier": sum(found.stage != "decode" for found in skipped),
        "skipped_low_quality": len(low),
        "skipped_other_route": len(other),
    }


def _other_checks(result: Survey, guard: Guard | None) -> list[JsonValue]:
    canary: dict[str, JsonValue] = {
        "stage": "canary",
        "tool": "regular expressions over every text field and image metadata",
        "n_checked": result.n_samples,
        "n_hits": len(result.canary_hits),
        "status": "fail" if result.canary_hits else "pass",
    }
    known = 0 if guard is None else len(guard.index.text.questions)
    text: dict[str, JsonValue] = {
        "stage": "text_residual",
        "tool": f"residuals without {text_index.REPEATED}-times repeated {text_index.WINDOW}-grams",
        "params": {"gram": text_index.GRAM, "content_words": text_index.CONTENT},
        "n_known": known,
        "n_checked": result.n_samples if known else 0,
        "n_hits": len(result.text_hits),
        "examples": list(result.text_hits[:20]),
        "status": "not_run" if not known else "fail" if result.text_hits else "pass",
    }
    ran = [] if guard is None else [stage.name for stage in guard.stages]
    absent: list[JsonValue] = [{"stage": name, "status": "not_run"} for name in NETWORKS if name not in ran]
    return [canary, text, *absent]


def _near(verdicts: Iterable[GuardVerdict]) -> list[GuardVerdict]:
    near = [found for found in verdicts if found.near_miss]
    return sorted(
        near, key=lambda found: (-_inliers(found), str(found.evidence.get("distance")).zfill(3), found.image_id)
    )


def _inliers(found: GuardVerdict) -> int:
    value = found.evidence.get("inliers")
    return value if isinstance(value, int) else 0


def _near_miss(found: GuardVerdict) -> dict[str, JsonValue]:
    return {
        "sample": found.image_id,
        "benchmark_item": found.evidence.get("nearest"),
        "shares_with": found.evidence.get("shares_with"),
        "pdq": found.evidence.get("distance"),
        "inliers": found.evidence.get("inliers"),
        "proposed": found.evidence.get("proposed"),
        "decision": "kept",
        "by": "rule",
    }


def _uncovered(scan: Scan | None, result: Survey) -> set[str]:
    """What is in the dataset although nobody called it clean: source images, groups, or samples that name no source."""
    if scan is None:
        return set() if result.outputs or result.n_samples == 0 else {"no image was checked"}
    clean = {image_id for image_id, found in scan.verdicts.items() if found.verdict == "clean"}
    rejected = set(scan.rejected_groups) & set(result.groups)
    nameless = {f"{result.n_without_source} samples without a source image"} if result.n_without_source else set()
    return {*(result.image_ids - clean), *(f"group {group}" for group in rejected), *nameless}


def _own_limits(guard: Guard) -> list[str]:
    index = guard.index
    limits = list(index.notes)
    if not index.local:
        limits.append("built for renders and drawings: every photograph is unverifiable")
    if not len(index.text.questions):
        limits.append("the index holds no questions: texts were not compared")
    weak = int((index.quality < guard.options.min_quality).sum())
    if weak:
        limits.append(f"{weak} benchmark images have too little structure: only exact copies are found")
    ran = {stage.name for stage in guard.stages}
    limits += [f"{name} proposes from a similarity on that nobody measured" for name in NETWORKS if name in ran]
    if index.expected_images is None and index.expected_items is None:
        limits.append("nobody stated how many images the benchmark must have")
    return limits
