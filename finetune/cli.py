"""The command `s2p`: the verbs of `synth`, and train, evaluate, compare, loop."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from synth import __version__
from synth import cli as synth_cli
from synth.errors import ConfigError

if TYPE_CHECKING:
    from finetune.respondents import EvaluateOptions, Respondent


def main(argv: list[str] | None = None) -> int:
    """Entry point. Exit codes: 0 done, 1 a gate failed, 2 the user can mend it."""
    parser = argparse.ArgumentParser(
        prog="s2p", description="Benchmark failures in, training data that mends them out, and the proof that it did."
    )
    parser.add_argument("--version", action="version", version=f"see2perceive {__version__}")
    verbs = parser.add_subparsers(metavar="VERB")
    synth_cli.register(verbs)
    verb = synth_cli.add_verb(verbs, "train", _train, "LoRA fine-tuning on a dataset")
    synth_cli.config_arguments(verb)
    verb.add_argument("--dry-run", action="store_true", help="print what memory it will need, and train nothing")
    verb = synth_cli.add_verb(verbs, "merge", _merge, "a LoRA adapter merged into its base model")
    verb.add_argument("adapter", type=Path)
    verb.add_argument("--model", help="base model (default: the one that the adapter names)")
    verb.add_argument("--out", type=Path, required=True)
    verb = synth_cli.add_verb(verbs, "card", _card, "an adapter's card, with the results of a comparison")
    verb.add_argument("adapter", type=Path, help="the `out` of `s2p train`")
    verb.add_argument("--comparison", type=Path, help="comparison.json of `s2p compare`")
    _evaluate_verb(verbs)
    verb = synth_cli.add_verb(verbs, "sensitivity", _sensitivity, "does a model look where the answer is?")
    _model_arguments(verb)
    verb.add_argument("--per-skill", type=int, default=200, help="items of each skill at most (default 200)")
    verb.add_argument("--controls", type=int, default=4, help="irrelevant places an item (default 4)")
    verb = synth_cli.add_verb(verbs, "compare", _compare, "before and after, paired")
    verb.add_argument("before", type=Path, help="outcomes.jsonl, or the folder that holds it")
    verb.add_argument("after", type=Path)
    verb.add_argument("--target", action="append", default=[], help="skill that was taught (repeatable)")
    verb.add_argument(
        "--control", action="append", default=[], metavar="NAME=OUTCOMES", help="control arm (repeatable)"
    )
    verb.add_argument("--gate", action="store_true", help="exit 1 when the gate says no")
    verb.add_argument("--out", type=Path, required=True)
    verb = synth_cli.add_verb(verbs, "loop", _loop, "the whole loop, round by round")
    synth_cli.config_arguments(verb)
    verb.add_argument("--out", type=Path, help="run folder (default: outputs/<name>)")
    return synth_cli.run(parser, argv)


def _model_arguments(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--model", required=True, help="folder or hub id")
    verb.add_argument("--adapter", type=Path, help="LoRA adapter folder")
    verb.add_argument("--benchmark", required=True, help="benchmark plug-in")
    verb.add_argument("--set", action="append", default=[], metavar="key=value", help="option of the benchmark plug-in")
    verb.add_argument("--batch-size", type=int, default=16)
    verb.add_argument("--out", type=Path, required=True)


def _evaluate_verb(verbs: synth_cli.Subparsers[argparse.ArgumentParser]) -> None:
    verb = synth_cli.add_verb(verbs, "evaluate", _evaluate, "a model on a benchmark")
    _model_arguments(verb)
    verb.add_argument(
        "--mode",
        choices=["choice", "generate", "both"],
        help="likeliest letter of one forward pass (default), a written reply that rules read, or both compared",
    )
    verb.add_argument("--max-new-tokens", type=int, default=64, help="longest reply (default 64)")
    verb.add_argument(
        "--variant", action="append", default=[], metavar="TEMPLATE", help="ask so, too: a text with {prompt} in it"
    )
    verb.add_argument("--circular", action="store_true", help="all rotations of the options; right only if all are")
    verb.add_argument("--baselines", action="store_true", help="text only, grey picture, wrong picture, one letter")
    verb.add_argument("--server", metavar="URL", help="ask --model at this OpenAI-compatible address (replies only)")
    verb.add_argument("--server-key", default="", metavar="VARIABLE", help="environment variable with its key")
    verb.add_argument("--concurrency", type=int, default=4, help="requests at a time (default 4)")


def _train(args: argparse.Namespace) -> int:
    from finetune.estimate import estimate, format_estimate
    from finetune.train import TrainConfig, train
    from synth.config import load_config
    from synth.progress import Bars

    config = load_config(args.config, TrainConfig, args.set)
    if args.dry_run:
        print(format_estimate(estimate(config)))
        return 0
    with Bars() as bars:
        record = train(config, lambda done, total: bars.stage("training", done, total))
    layers = ", ".join(f"{tower} {n}" for tower, n in record.adapted.items())
    print(f"LoRA in {record.modules} layers ({layers}), {record.trainable_parameters} parameters")
    print(f"{record.steps} steps in {record.seconds:.0f} s, last loss {record.losses[-1][1]:.3f}: {config.out}")
    return 0


def _merge(args: argparse.Namespace) -> int:
    from finetune.merging import base_of, merge

    found = merge(args.model or base_of(args.adapter), args.adapter, args.out)
    print(
        f"written: {args.out}; against the adapter its log-probabilities differ by {found.merge_difference:.2g} merged "
        f"and {found.reload_difference:.2g} loaded anew (the adapter's effect: {found.effect:.2g})"
    )
    return 0


def _card(args: argparse.Namespace) -> int:
    from finetune.card import write_adapter_card
    from finetune.checkpoints import read_settings
    from finetune.record import read_record

    write_adapter_card(args.adapter, read_record(args.adapter), read_settings(args.adapter), args.comparison)
    print(f"written: {args.adapter}/README.md")
    return 0


def _evaluate(args: argparse.Namespace) -> int:
    from finetune.selective import format_selective
    from finetune.suite import SuiteOptions, format_suite, run_suite
    from synth.config import resolve_named, validate
    from synth.diagnosis.profile import format_table, make_profile, profile_to_json
    from synth.files import write_json
    from synth.plugins import BENCHMARKS
    from synth.progress import Bars

    mode = args.mode or ("generate" if args.server else "choice")
    asked = {
        "mode": "choice" if mode == "both" else mode,
        "max_new_tokens": args.max_new_tokens,
        "batch_size": args.batch_size,
    }
    settings = {
        "evaluate": asked,
        "both": mode == "both",
        "circular": args.circular,
        "variants": args.variant,
        "baselines": args.baselines,
    }
    options = validate(settings, SuiteOptions, "evaluate")
    record, chosen = resolve_named(args.benchmark, args.set, BENCHMARKS, "benchmark")
    respondent = _respondent(args, options.evaluate)
    with Bars() as bars:
        data = record.load(chosen, lambda done, total: bars.stage("benchmark", done, total))
        suite = run_suite(respondent, data, args.out, options, bars)
    profile = make_profile(suite.outcomes, record)
    write_json(args.out / "profile.json", profile_to_json(profile))
    print(format_table(profile))
    print(format_suite(suite))
    if suite.confidence is not None:
        print(format_selective(suite.confidence))
    return 0


def _respondent(args: argparse.Namespace, options: EvaluateOptions) -> Respondent:
    from finetune.respondents import LocalModel
    from finetune.server import ServedModel, ServerOptions
    from synth.config import validate

    if not args.server:
        return LocalModel(args.model, args.adapter, options)
    if args.adapter is not None:
        raise ConfigError("a server brings its own weights", where="--adapter", fix="leave out --adapter or --server")
    settings = {
        "address": args.server,
        "model": args.model,
        "key_variable": args.server_key,
        "concurrency": args.concurrency,
    }
    return ServedModel(validate(settings, ServerOptions, "--server"))


def _sensitivity(args: argparse.Namespace) -> int:
    from finetune.evaluate import EvaluateOptions
    from finetune.grounding import format_cells
    from finetune.respondents import LocalModel
    from finetune.selective import format_selective
    from finetune.sensitivity import SensitivityOptions, sensitivity
    from synth.config import resolve_named, validate
    from synth.plugins import BENCHMARKS
    from synth.progress import Bars

    settings = {"per_skill": args.per_skill, "controls": args.controls}
    options = validate(settings, SensitivityOptions, "sensitivity")
    asked = validate({"batch_size": args.batch_size}, EvaluateOptions, "evaluate")
    record, chosen = resolve_named(args.benchmark, args.set, BENCHMARKS, "benchmark")
    with Bars() as bars:
        data = record.load(chosen, lambda done, total: bars.stage("benchmark", done, total))
        model = LocalModel(args.model, args.adapter, asked)
        found = sensitivity(model, data, args.out, options, asked, bars)
    print(format_cells(found.cells))
    print(format_selective(found.confidence))
    print(f"written: {args.out}/sensitivity.json sensitivity.jsonl outcomes.jsonl")
    return 0


def _compare(args: argparse.Namespace) -> int:
    from finetune.compare import GateOptions, compare, comparison_to_json, format_comparison
    from synth.diagnosis.profile import make_profile, profile_to_json
    from synth.diagnosis.reading import load_outcomes, write_outcomes
    from synth.files import write_json
    from synth.report.run import write_run_report
    from synth.types import Skill

    unknown = [name for name in args.target if name not in set(Skill)]
    if unknown:
        raise ConfigError(f"no such skill: {', '.join(unknown)}", where="--target", fix=f"known: {', '.join(Skill)}")
    controls = {}
    for text in args.control:
        name, _, path = text.partition("=")
        controls[name] = load_outcomes(_outcomes(Path(path)))
    before, after = load_outcomes(_outcomes(args.before)), load_outcomes(_outcomes(args.after))
    comparison = compare(
        before,
        after,
        controls=controls,
        targets=tuple(Skill(name) for name in args.target),
        gate=GateOptions(),
        seed=0,
    )
    write_json(args.out / "comparison.json", comparison_to_json(comparison))
    write_json(args.out / "before" / "profile.json", profile_to_json(make_profile(before)))
    write_outcomes(args.out / "before" / "outcomes.jsonl", before)
    write_outcomes(args.out / "after" / "outcomes.jsonl", after)
    write_run_report(args.out, args.out / "report.html")
    print(format_comparison(comparison))
    print(f"written: {args.out}/comparison.json report.html")
    return 1 if args.gate and not comparison.gate_passed else 0


def _outcomes(path: Path) -> Path:
    return path / "outcomes.jsonl" if path.is_dir() else path


def _loop(args: argparse.Namespace) -> int:
    from finetune.compare import format_comparison
    from finetune.rounds import LoopConfig, loop
    from synth.config import load_config
    from synth.progress import Bars

    config = load_config(args.config, LoopConfig, args.set)
    out = args.out or Path("outputs") / config.name
    with Bars() as bars:
        comparisons = loop(config, out, bars)
    for comparison in comparisons:
        print(format_comparison(comparison))
    if not comparisons:
        print("nothing is weak enough to plan for")
    print(f"report: {out}/report.html")
    return 0 if all(comparison.gate_passed for comparison in comparisons) else 1


if __name__ == "__main__":
    sys.exit(main())
