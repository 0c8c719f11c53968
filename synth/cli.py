"""The command line of `synth`: thin. Each verb reads its arguments, calls one function, prints, and writes JSON.

Nothing heavy is imported before a verb runs, so that `s2p --help` answers at once.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from synth.errors import ConfigError, GateFailed, S2PError

if TYPE_CHECKING:
    from synth.contracts import BenchmarkData
    from synth.diagnosing import DiagnoseRequest
    from synth.diagnosis.judge import JudgeOptions
    from synth.guard.options import GuardOptions
    from synth.recipe import Recipe
    from synth.types import JsonValue, Reporter

Handler = Callable[[argparse.Namespace], int]
Subparsers = argparse._SubParsersAction  # argparse publishes no other name for it


def register(verbs: Subparsers[argparse.ArgumentParser]) -> None:
    """Add this package's verbs to a parser."""
    _diagnose_verb(verbs)
    verb = add_verb(verbs, "plan", _plan, "quotas from a profile, each with its reason")
    verb.add_argument("--profile", type=Path, required=True)
    verb.add_argument("--budget", type=int, required=True, help="pairs in all")
    verb.add_argument("--replay-share", type=float, default=0.2, help="share that keeps what the model already knows")
    verb.add_argument("--max-share", type=float, default=0.6, help="most of the budget for one skill")
    verb.add_argument(
        "--difficulty", action="append", default=[], metavar="easy=0.4", help="share of a band (easy, medium, hard)"
    )
    verb.add_argument("--contrast", type=Path, help="contrast.json of `s2p diagnose --specialist`")
    verb.add_argument(
        "--sensitivity", type=Path, metavar="FILE", help="sensitivity.json of `s2p sensitivity`: blind, or misread?"
    )
    verb.add_argument("--out", type=Path, required=True, help="plan.json")
    verb = add_verb(verbs, "generate", _generate, "question-answer pairs from photos")
    config_arguments(verb)
    verb.add_argument("--engine", choices=["local", "ray"], help="where shards run (default: the config's)")
    verb.add_argument("--dry-run", action="store_true", help="print the resolved config and quotas, and stop")
    verb.add_argument("--unguarded", action="store_true", help="hold no benchmark out; stamps every row and the card")
    verb.add_argument("--out", type=Path, help="dataset folder (default: outputs/<name>)")
    verb = add_verb(verbs, "audit", _audit, "label precision on photos with truth, or of a finished dataset")
    verb.add_argument("config", type=Path, metavar="CONFIG|DATASET", help="a config, or a folder of `s2p generate`")
    verb.add_argument("--set", action="append", default=[], metavar="a.b=c", help="override a setting (repeatable)")
    verb.add_argument("--truth", type=Path, metavar="FOLDER", help="photos of the dataset with their truth.jsonl")
    verb.add_argument("--limit", type=int, help="first N images only")
    verb.add_argument("--groups", choices=["all", "even", "odd"], default="all", help="every other source group only")
    verb.add_argument("--out", type=Path, required=True)
    verb = add_verb(verbs, "calibrate", _calibrate, "margins for a target precision, from photos with truth")
    config_arguments(verb)
    verb.add_argument("--target", type=float, default=0.99, help="least lower bound of the precision (default 0.99)")
    verb.add_argument("--groups", choices=["all", "even", "odd"], default="all", help="every other source group only")
    verb.add_argument("--out", type=Path, required=True, help="calibration file, for `calibration:` in a config")
    _guard_verbs(verbs)
    verb = add_verb(verbs, "view", _view, "a dataset as web pages")
    verb.add_argument("dataset", type=Path)
    verb.add_argument("--limit", type=int, default=100)
    verb.add_argument("--out", type=Path, required=True)
    verb = add_verb(verbs, "explain", _explain, "why a pair has its answer")
    verb.add_argument("dataset", type=Path)
    verb.add_argument("id", help="qa_id, or its beginning")
    verb.add_argument("--out", type=Path, default=Path("outputs") / "explain", help="folder (default: %(default)s)")
    verb = add_verb(verbs, "export", _export, "a dataset in another format")
    verb.add_argument("dataset", type=Path)
    verb.add_argument("--to", required=True, help="name of the format")
    verb.add_argument("--out", type=Path, required=True)


def run(parser: argparse.ArgumentParser, argv: list[str] | None) -> int:
    """Parse and run; a user's mistake is one message and exit 2, a failed gate exit 1."""
    args = parser.parse_args(argv)
    handler: Handler | None = getattr(args, "handler", None)
    if handler is None:
        parser.print_help()
        return 2
    try:
        code = handler(args)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Whoever read our output has left (`| head`); without this Python complains once more at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except GateFailed as error:
        print(f"s2p: {error}", file=sys.stderr)
        return 1
    except S2PError as error:
        print(f"s2p: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("s2p: stopped; run the same command again to go on", file=sys.stderr)
        return 130


def add_verb(
    verbs: Subparsers[argparse.ArgumentParser], name: str, handler: Handler, about: str
) -> argparse.ArgumentParser:
    """Add one verb with its handler."""
    parser = verbs.add_parser(name, help=about, description=about[0].upper() + about[1:] + ".")
    parser.set_defaults(handler=handler)
    return parser


def config_arguments(verb: argparse.ArgumentParser) -> None:
    """A config file and its overrides."""
    verb.add_argument("config", type=Path)
    verb.add_argument("--set", action="append", default=[], metavar="a.b=c", help="override a setting (repeatable)")


def _diagnose_verb(verbs: Subparsers[argparse.ArgumentParser]) -> None:
    verb = add_verb(verbs, "diagnose", _diagnose, "what a model cannot perceive, from its result files")
    verb.add_argument("results", type=Path, nargs="+", help="result files or folders of benchmark runs")
    verb.add_argument("--format", default="auto", help="name of the result format (default: found by content)")
    verb.add_argument("--trust-extracted", action="store_true", help="score the letters that the file itself gives")
    verb.add_argument(
        "--map", action="append", default=[], metavar="field=column", help="our field in a table's column"
    )
    verb.add_argument("--benchmark", default="", metavar="NAME", help="read the items, too: keys, options, pictures")
    verb.add_argument("--set", action="append", default=[], metavar="key=value", help="option of the benchmark plug-in")
    verb.add_argument("--baseline", type=Path, metavar="RESULTS", help="an earlier run: what changed since?")
    verb.add_argument("--gate", action="store_true", help="exit 1 where a category regressed or cannot be compared")
    verb.add_argument(
        "--gate-margin", type=float, metavar="POINTS", help="and where the mean may have lost more than so many points"
    )
    verb.add_argument(
        "--allow-refused", action="append", default=[], metavar="CATEGORY", help="may be left out of the comparison"
    )
    verb.add_argument("--specialist", type=Path, metavar="CONFIG", help="experts to hold the failures against")
    verb.add_argument(
        "--judge-model", default="", metavar="MODEL", help="language model for replies that rules cannot read"
    )
    verb.add_argument("--judge-endpoint", default="", metavar="URL", help="ask it at this OpenAI-compatible address")
    verb.add_argument("--judge-key", default="", metavar="VARIABLE", help="environment variable with the address's key")
    verb.add_argument(
        "--round", type=int, metavar="N", help="leave out the fifth of the items that round N is judged on"
    )
    verb.add_argument(
        "--routing", type=float, default=0.5, help="list categories below this share of the way to people"
    )
    verb.add_argument("--out", type=Path, required=True)


def _guard_verbs(verbs: Subparsers[argparse.ArgumentParser]) -> None:
    group = verbs.add_parser("guard", help="keep a benchmark out of training data")
    inner = group.add_subparsers(required=True, metavar="VERB")
    verb = add_verb(inner, "index", _guard_index, "the guard's index of a benchmark")
    _benchmark_arguments(verb)
    verb.add_argument("--expect-items", type=int, metavar="N", help="refuse a benchmark with another number of items")
    verb.add_argument("--expect-images", type=int, metavar="N", help="refuse one with another number of images")
    _option_argument(verb)
    verb.add_argument("--out", type=Path, required=True)
    verb = add_verb(inner, "check", _guard_check, "is any image of a folder or dataset in the benchmark?")
    verb.add_argument("target", type=Path)
    verb.add_argument("--index", type=Path, required=True)
    _option_argument(verb)
    verb.add_argument("--out", type=Path, required=True)
    verb = add_verb(inner, "selftest", _guard_selftest, "what the guard finds of a benchmark's altered copies")
    _benchmark_arguments(verb)
    verb.add_argument("--negatives", type=Path, help="folder of pictures that are not in it: measures false alarms")
    verb.add_argument("--images", type=int, default=40, help="benchmark images to copy (default: %(default)s)")
    verb.add_argument("--out", type=Path, required=True, help="JSON file")
    verb = add_verb(inner, "verify", _guard_verify, "recompute a dataset's certificate")
    verb.add_argument("dataset", type=Path)
    verb.add_argument("--index", type=Path, help="the guard index, to look at a sample of the pictures again")
    verb.add_argument("--benchmark", default="", help="the benchmark itself: the index is built from it again")
    verb.add_argument("--set", action="append", default=[], metavar="key=value", help="option of the benchmark plug-in")
    _option_argument(verb)


def _benchmark_arguments(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("benchmark", help="benchmark plug-in; or a folder of images, parquet files, or a VLMEvalKit TSV")
    verb.add_argument("--set", action="append", default=[], metavar="key=value", help="option of the benchmark plug-in")


def _option_argument(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--option", action="append", default=[], metavar="key=value", help="option of the guard, as in guard.options"
    )


# ---------------------------------------------------------------------------------------------------------- verbs


def _diagnose(args: argparse.Namespace) -> int:
    from synth.diagnosing import diagnose
    from synth.diagnosis.contrast import format_contrast
    from synth.diagnosis.matrix import format_matrix
    from synth.diagnosis.profile import format_table
    from synth.diagnosis.snapshots import format_snapshot
    from synth.progress import Bars

    request = _diagnose_request(args)
    with Bars() as bars:
        found = diagnose(request, bars)
    for run in found.runs:
        print(format_table(run.profile))
        if run.contrasts:
            print(format_contrast(run.contrasts))
        if run.snapshot is not None:
            print(format_snapshot(run.snapshot))
        print(f"written: {run.folder}/{' '.join(run.files)}\n")
    if found.matrix is not None:
        print(format_matrix(found.matrix))
        print(f"written: {args.out}/matrix.json matrix.html")
    failed = any(run.snapshot is not None and not run.snapshot.gate_passed for run in found.runs)
    return 1 if args.gate and failed else 0


def _diagnose_request(args: argparse.Namespace) -> DiagnoseRequest:
    """What the arguments ask for. Raises ConfigError where they do not belong together."""
    from synth.diagnosing import DiagnoseRequest
    from synth.diagnosis.snapshots import SnapshotGate

    if args.baseline is None and (args.gate or args.gate_margin is not None or args.allow_refused):
        raise ConfigError("nothing to compare with", where="--gate", fix="give the earlier run as --baseline")
    if args.gate_margin is not None and not 0 < args.gate_margin < 100:
        raise ConfigError(f"{args.gate_margin:g} points are no margin", where="--gate-margin", fix="3, for example")
    if args.round is not None and args.round < 0:
        raise ConfigError(f"no round {args.round}", where="--round", fix="count from 0")
    mapped = [text.partition("=") for text in args.map]
    if not all(field and column for field, _, column in mapped):
        raise ConfigError("expected field=column", where="--map", fix="--map text=prediction, for example")
    return DiagnoseRequest(
        results=tuple(args.results),
        out=args.out,
        format=args.format,
        trust_extracted=args.trust_extracted,
        columns={field: column for field, _, column in mapped},
        benchmark=args.benchmark,
        settings=tuple(args.set),
        baseline=args.baseline,
        gate=SnapshotGate(
            margin=None if args.gate_margin is None else args.gate_margin / 100,
            allow_refused=tuple(args.allow_refused),
        ),
        specialist=args.specialist,
        judge=_judge_options(args),
        round_number=args.round,
        routing=args.routing,
    )


def _judge_options(args: argparse.Namespace) -> JudgeOptions | None:
    if not args.judge_model and not args.judge_endpoint:
        return None
    from synth.diagnosis.judge import JudgeOptions

    return JudgeOptions(model=args.judge_model, endpoint=args.judge_endpoint, key_variable=args.judge_key)


def _plan(args: argparse.Namespace) -> int:
    from synth.config import parse_overrides, validate
    from synth.diagnosis.blindness import load_sensitivity
    from synth.diagnosis.profile import load_profile
    from synth.plan import PlanOptions, format_plan, load_contrasts, make_plan, save_plan
    from synth.plugins import TASKS, load_all

    settings: dict[str, JsonValue] = {
        "budget": args.budget,
        "replay_share": args.replay_share,
        "max_share": args.max_share,
        "difficulty": parse_overrides(args.difficulty),
    }
    options = validate(settings, PlanOptions, "s2p plan")
    contrasts = load_contrasts(args.contrast) if args.contrast else ()
    sensitivity = load_sensitivity(args.sensitivity) if args.sensitivity else None
    plan = make_plan(load_profile(args.profile), options, load_all(TASKS), contrasts, sensitivity)
    save_plan(args.out, plan)
    print(format_plan(plan))
    return 0


def load_recipe(path: Path, overrides: list[str], *, unguarded: bool = False) -> Recipe:
    """A recipe from YAML; only the flag may unguard it. Raises ConfigError."""
    from synth.config import load_config
    from synth.recipe import Recipe

    recipe = load_config(path, Recipe, overrides)
    if recipe.guard.unguarded:
        raise ConfigError("guard.unguarded cannot stand in a config", where=str(path), fix="type --unguarded")
    if unguarded:
        recipe = recipe.model_copy(update={"guard": recipe.guard.model_copy(update={"unguarded": True})})
    return recipe


def _generate(args: argparse.Namespace) -> int:
    import json

    from synth.audit.leaks import check_shortcuts
    from synth.pipeline import generate, preview
    from synth.progress import Bars

    overrides = [*args.set, f"engine.name={args.engine}"] if args.engine else args.set
    recipe = load_recipe(args.config, overrides, unguarded=args.unguarded)
    if args.dry_run:
        plan = preview(recipe)
        print(json.dumps({"resolved": plan.resolved, "quotas": list(plan.quotas)}, indent=2, default=str))
        print(f"{plan.images} images in {plan.shards} shards")
        return 0
    out = args.out or Path("outputs") / recipe.name
    with Bars() as bars:
        manifest = generate(recipe, out, bars)
    _print_manifest(out, manifest)
    check_shortcuts(manifest, out)
    return 0


def _print_manifest(out: Path, manifest: Mapping[str, JsonValue]) -> None:
    from synth.audit.leaks import format_shortcuts

    for quota in _list(manifest["quotas"]):
        print(f"{quota['task']:24} {quota['skill']:24} {quota['made']:>6} of {quota['n']} pairs")
    print("what did not become a pair:")
    for drop in _list(manifest["drops"])[:12]:
        example = f"   e.g. {drop['example']}" if drop["example"] else ""
        print(f"  {drop['count']:>7}  {drop['stage']}/{drop['task'] or 'image'}: {drop['reason']}{example}")
    guard = manifest["guard"]
    if isinstance(guard, dict):
        print(
            f"guard: {guard['verdict']}; planted {guard['planted']}, found {guard['found']}, removed {guard['removed']}"
        )
    shortcuts = manifest.get("shortcuts")
    if isinstance(shortcuts, dict):
        print(format_shortcuts(shortcuts))
    print(f"written: {out}")


def _list(value: JsonValue) -> list[Mapping[str, JsonValue]]:
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def _audit(args: argparse.Namespace) -> int:
    from synth.audit.finished import audit_dataset, check_recomputed
    from synth.audit.leaks import check_shortcuts, format_shortcuts
    from synth.audit.run import audit, reasons
    from synth.audit.truth import format_audit, write_graded
    from synth.files import write_json
    from synth.progress import Bars
    from synth.report.audit import write_audit_page

    finished = args.config.is_dir()
    _check_audit(args, finished=finished)
    with Bars() as bars:
        if finished:
            result = audit_dataset(args.config, args.truth, lambda done, total: bars.stage("auditing", done, total))
        else:
            recipe = load_recipe(args.config, args.set)
            result = audit(recipe, lambda done, total: bars.stage("auditing", done, total), args.limit, args.groups)
    write_json(args.out / "audit.json", result.summary)
    write_graded(args.out / "graded.jsonl", result.graded)
    write_audit_page(args.out / "report.html", result, str(args.config))
    print(format_audit(result.summary))
    for reason, n in reasons(result.drops).most_common(12):
        print(f"  {n:>7}  {reason}")
    section = result.summary["shortcuts"]
    if isinstance(section, dict):
        print(format_shortcuts(section))
    print(f"written: {args.out}/audit.json graded.jsonl report.html")
    if finished:
        check_recomputed(result.summary, args.config)
        check_shortcuts(result.summary, args.config)
    return 0


def _check_audit(args: argparse.Namespace, *, finished: bool) -> None:
    """Raise ConfigError for a flag that does not belong to what is audited."""
    if finished and (args.set or args.limit is not None or args.groups != "all"):
        raise ConfigError("--set, --limit and --groups belong to a config", where=str(args.config))
    if not finished and args.truth is not None:
        raise ConfigError("--truth belongs to a dataset", where=str(args.config), fix="a config names its source")


def _calibrate(args: argparse.Namespace) -> int:
    from synth.audit.calibrate import curves_json, format_curves
    from synth.audit.run import calibrate
    from synth.files import write_json
    from synth.progress import Bars
    from synth.report.audit import write_calibration_page

    if not 0.5 < args.target < 1:
        raise ConfigError(f"a target of {args.target} is no precision", where="--target", fix="0.99, for example")
    recipe = load_recipe(args.config, args.set)
    with Bars() as bars:
        result = calibrate(recipe, args.target, lambda done, total: bars.stage("calibrating", done, total), args.groups)
    write_json(args.out, result.content)
    curves = args.out.with_name(f"{args.out.stem}_curves.json")
    write_json(curves, {"target": args.target, "curves": curves_json(result.curves)})
    page = args.out.with_suffix(".html")
    write_calibration_page(page, result.curves, args.target, recipe.name)
    print(format_curves(result.curves))
    print(f"written: {args.out} {curves.name} {page.name}")
    return 0


def _folder_or_benchmark(args: argparse.Namespace, bars: Reporter) -> BenchmarkData | Path:
    """The folder of images, or the items of the tables or the benchmark plug-in, that `args.benchmark` names."""
    from synth.config import resolve_named
    from synth.guard.reading import TABLES, read_benchmark
    from synth.plugins import BENCHMARKS

    path = Path(args.benchmark)
    if path.is_dir() or path.suffix.lower() in TABLES:
        return read_benchmark(path)
    record, options = resolve_named(args.benchmark, args.set, BENCHMARKS, "benchmark")
    return record.load(options, lambda done, total: bars.stage("reading the benchmark", done, total))


def _one_thread() -> None:
    """Numeric libraries read these variables when they load. The guard's many small products only lose by threads."""
    import os

    from synth.engines.local import THREAD_VARIABLES

    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))


def _guard_options(args: argparse.Namespace) -> GuardOptions:
    from synth.config import parse_overrides, validate
    from synth.guard.options import GuardOptions

    return validate(parse_overrides(args.option), GuardOptions, "--option")


def _guard_index(args: argparse.Namespace) -> int:
    _one_thread()
    from synth.guard.building import build_index
    from synth.guard.embeddings import load_networks
    from synth.guard.index import Expected, save_index
    from synth.progress import Bars

    networks = load_networks(_guard_options(args))
    with Bars() as bars:
        benchmark = _folder_or_benchmark(args, bars)
        wanted = Expected(items=args.expect_items, images=args.expect_images)
        index = build_index(benchmark, wanted, networks=networks)
    save_index(index, args.out)
    print(f"{len(index.names)} images of {index.benchmark}, index {index.sha256[:16]}: {args.out}")
    for note in index.notes:
        print(f"note: {note}")
    return 0


def _guard_selftest(args: argparse.Namespace) -> int:
    _one_thread()
    from synth.files import write_json
    from synth.guard.selftest import named_images, selftest, table, to_json
    from synth.progress import Bars

    negatives = named_images(args.negatives) if args.negatives else {}
    with Bars() as bars:
        benchmark = _folder_or_benchmark(args, bars)
        result = selftest(benchmark, negatives, args.images, lambda d, t: bars.stage("copying and checking", d, t))
    write_json(args.out, to_json(result))
    print(table(result))
    print(f"written: {args.out}")
    return 0


def _guard_check(args: argparse.Namespace) -> int:
    _one_thread()
    from synth.certifying import check_target
    from synth.progress import Bars

    options = _guard_options(args)
    with Bars() as bars:
        counts = check_target(args.target, args.index, args.out, lambda d, t: bars.stage("checking", d, t), options)
    print(", ".join(f"{name} {n}" for name, n in sorted(counts.items())))
    print(f"written: {args.out}/verdicts.jsonl certificate.json")
    return 1 if any(n for name, n in counts.items() if name != "clean") else 0


def _guard_verify(args: argparse.Namespace) -> int:
    _one_thread()
    from synth.certifying import verify_dataset
    from synth.progress import Bars

    if args.index and args.benchmark:
        raise ConfigError("an index and a benchmark", where="--index", fix="give one of the two")
    with Bars() as bars:
        held_out = args.index or (_folder_or_benchmark(args, bars) if args.benchmark else None)
        found = verify_dataset(args.dataset, held_out, _guard_options(args))
    for problem in found.problems:
        print(f"problem: {problem}")
    print(f"{found.n_samples} samples hashed again; the pictures of {found.n_rechecked} went through the guard again")
    print("the certificate does not hold" if found.problems else "the certificate holds")
    return 1 if found.problems else 0


def _view(args: argparse.Namespace) -> int:
    from synth.report.view import write_view

    write_view(args.dataset, args.out, args.limit)
    print(f"written: {args.out}/index.html")
    return 0


def _explain(args: argparse.Namespace) -> int:
    from synth.dataset.explain import explain
    from synth.files import write_bytes, write_text

    explanation = explain(args.dataset, args.id)
    print(explanation.text)
    write_text(args.out / f"{explanation.qa_id}.txt", explanation.text + "\n")
    write_bytes(args.out / f"{explanation.qa_id}.png", explanation.png)
    print(f"written: {args.out}/{explanation.qa_id}.txt .png")
    return 0 if explanation.agrees else 1


def _export(args: argparse.Namespace) -> int:
    from synth.plugins import EXPORTS, load

    n = load(EXPORTS, args.to).write(args.dataset, args.out)
    print(f"{n} rows written: {args.out}")
    return 0
