"""The command line of `synth`: thin. Each verb reads its arguments, calls one function, prints, and writes JSON.

Nothing heavy is imported before a verb runs, so that `s2p --help` answers at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from synth.errors import ConfigError, GateFailed, S2PError

if TYPE_CHECKING:
    from synth.recipe import Recipe
    from synth.types import JsonValue

Handler = Callable[[argparse.Namespace], int]
Subparsers = argparse._SubParsersAction  # argparse publishes no other name for it


def register(verbs: Subparsers[argparse.ArgumentParser]) -> None:
    """Add this package's verbs to a parser."""
    _diagnose_verb(verbs)
    verb = add_verb(verbs, "plan", _plan, "quotas from a profile, each with its reason")
    verb.add_argument("--profile", type=Path, required=True)
    verb.add_argument("--budget", type=int, required=True, help="pairs in all")
    verb.add_argument("--replay-share", type=float, default=0.2, help="share that keeps what the model already knows")
    verb.add_argument("--out", type=Path, required=True, help="plan.json")
    verb = add_verb(verbs, "generate", _generate, "question-answer pairs from photos")
    config_arguments(verb)
    verb.add_argument("--engine", choices=["local"], help="where shards run")
    verb.add_argument("--dry-run", action="store_true", help="print the resolved config and quotas, and stop")
    verb.add_argument("--unguarded", action="store_true", help="hold no benchmark out; stamps every row and the card")
    verb.add_argument("--out", type=Path, help="dataset folder (default: outputs/<name>)")
    verb = add_verb(verbs, "audit", _audit, "label precision on photos with truth")
    config_arguments(verb)
    verb.add_argument("--limit", type=int, help="first N images only")
    verb.add_argument("--out", type=Path, required=True)
    _guard_verbs(verbs)
    verb = add_verb(verbs, "view", _view, "a dataset as web pages")
    verb.add_argument("dataset", type=Path)
    verb.add_argument("--limit", type=int, default=100)
    verb.add_argument("--out", type=Path, required=True)
    verb = add_verb(verbs, "explain", _explain, "why a pair has its answer")
    verb.add_argument("dataset", type=Path)
    verb.add_argument("id", help="qa_id, or its beginning")
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
        return handler(args)
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
    verb.add_argument("--out", type=Path, required=True)


def _guard_verbs(verbs: Subparsers[argparse.ArgumentParser]) -> None:
    group = verbs.add_parser("guard", help="keep a benchmark out of training data")
    inner = group.add_subparsers(required=True, metavar="VERB")
    verb = add_verb(inner, "index", _guard_index, "the guard's index of a benchmark")
    verb.add_argument("benchmark", help="benchmark plug-in, or a folder of images")
    verb.add_argument("--set", action="append", default=[], metavar="key=value", help="option of the benchmark plug-in")
    verb.add_argument("--out", type=Path, required=True)
    verb = add_verb(inner, "check", _guard_check, "is any image of a folder or dataset in the benchmark?")
    verb.add_argument("target", type=Path)
    verb.add_argument("--index", type=Path, required=True)
    verb.add_argument("--out", type=Path, required=True)
    verb = add_verb(inner, "verify", _guard_verify, "recompute a dataset's certificate")
    verb.add_argument("dataset", type=Path)
    verb.add_argument("--index", type=Path, help="the guard index, to look at a sample of the pictures again")


# ---------------------------------------------------------------------------------------------------------- verbs


def _diagnose(args: argparse.Namespace) -> int:
    from synth.diagnosis.profile import format_table, make_profile, profile_to_json
    from synth.diagnosis.reading import benchmark_of, read_results, write_outcomes
    from synth.files import write_json
    from synth.report.diagnosis import write_diagnosis

    for path in args.results:
        outcomes = read_results(path, args.format, trust_released=args.trust_extracted)
        profile = make_profile(outcomes, benchmark_of(path, args.format))
        folder = args.out / profile.model if len(args.results) > 1 else args.out
        write_outcomes(folder / "outcomes.jsonl", outcomes)
        write_json(folder / "profile.json", profile_to_json(profile))
        write_diagnosis(profile, folder / "report.html")
        print(format_table(profile))
        print(f"written: {folder}/outcomes.jsonl profile.json report.html")
    return 0


def _plan(args: argparse.Namespace) -> int:
    from synth.diagnosis.profile import load_profile
    from synth.plan import PlanOptions, format_plan, make_plan, save_plan
    from synth.plugins import TASKS, load_all

    options = PlanOptions(budget=args.budget, replay_share=args.replay_share)
    plan = make_plan(load_profile(args.profile), options, load_all(TASKS))
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

    from synth.pipeline import generate, preview
    from synth.progress import Bars

    recipe = load_recipe(args.config, args.set, unguarded=args.unguarded)
    if args.dry_run:
        plan = preview(recipe)
        print(json.dumps({"resolved": plan.resolved, "quotas": list(plan.quotas)}, indent=2, default=str))
        print(f"{plan.images} images in {plan.shards} shards")
        return 0
    out = args.out or Path("outputs") / recipe.name
    with Bars() as bars:
        manifest = generate(recipe, out, bars)
    _print_manifest(out, manifest)
    return 0


def _print_manifest(out: Path, manifest: Mapping[str, JsonValue]) -> None:
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
    print(f"written: {out}")


def _list(value: JsonValue) -> list[Mapping[str, JsonValue]]:
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def _audit(args: argparse.Namespace) -> int:
    from synth.audit.run import audit, reasons
    from synth.audit.truth import format_audit, write_graded
    from synth.files import write_json
    from synth.progress import Bars

    recipe = load_recipe(args.config, args.set)
    with Bars() as bars:
        result = audit(recipe, lambda done, total: bars.stage("auditing", done, total), args.limit)
    write_json(args.out / "audit.json", result.summary)
    write_graded(args.out / "graded.jsonl", result.graded)
    print(format_audit(result.summary))
    for reason, n in reasons(result.drops).most_common(12):
        print(f"  {n:>7}  {reason}")
    return 0


def _guard_index(args: argparse.Namespace) -> int:
    from synth.config import PluginChoice, parse_overrides, resolve
    from synth.guard.index import build_index, save_index
    from synth.plugins import BENCHMARKS
    from synth.progress import Bars

    with Bars() as bars:
        if Path(args.benchmark).is_dir():
            index = build_index(Path(args.benchmark))
        else:
            choice = PluginChoice.model_validate({**parse_overrides(args.set), "name": args.benchmark})
            record, options = resolve(choice, BENCHMARKS, "benchmark")
            index = build_index(record.load(options, lambda d, t: bars.stage("reading the benchmark", d, t)))
    save_index(index, args.out)
    print(f"{len(index.names)} images of {index.benchmark}, index {index.sha256[:16]}: {args.out}")
    return 0


def _guard_check(args: argparse.Namespace) -> int:
    from synth.certifying import check_target
    from synth.progress import Bars

    with Bars() as bars:
        counts = check_target(args.target, args.index, args.out, lambda d, t: bars.stage("checking", d, t))
    print(", ".join(f"{name} {n}" for name, n in sorted(counts.items())))
    print(f"written: {args.out}/verdicts.jsonl certificate.json")
    return 1 if any(n for name, n in counts.items() if name != "clean") else 0


def _guard_verify(args: argparse.Namespace) -> int:
    from synth.certifying import verify_dataset

    problems = verify_dataset(args.dataset, args.index)
    for problem in problems:
        print(f"problem: {problem}")
    print("the certificate does not hold" if problems else "the certificate holds")
    return 1 if problems else 0


def _view(args: argparse.Namespace) -> int:
    from synth.report.view import write_view

    write_view(args.dataset, args.out, args.limit)
    print(f"written: {args.out}/index.html")
    return 0


def _explain(args: argparse.Namespace) -> int:
    from synth.dataset.explain import explain

    explanation = explain(args.dataset, args.id)
    print(explanation.text)
    return 0 if explanation.agrees else 1


def _export(args: argparse.Namespace) -> int:
    from synth.plugins import EXPORTS, load

    n = load(EXPORTS, args.to).write(args.dataset, args.out)
    print(f"{n} rows written: {args.out}")
    return 0
