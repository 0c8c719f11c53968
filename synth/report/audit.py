"""`s2p audit` and `s2p calibrate` as pages: how often labels are right, at what yield, and every wrong label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from synth.audit.calibrate import Curve, calibrate_task
from synth.audit.leaks import rows, summary_line
from synth.audit.run import AuditResult
from synth.audit.truth import Graded
from synth.audit.wrong import Wrong
from synth.diagnosis.statistics import wilson
from synth.files import write_text
from synth.plugins import TASKS, load
from synth.report.cards import Card, Example, card
from synth.report.html import Estimate, interval_bar, number, render, words
from synth.report.precision import precision_curve
from synth.types import Drop, JsonValue

TARGET = 0.99
"""The dashed line of an audit's curves."""
SHOWN_WRONG = 200
"""Wrong labels with their pictures; the rest is listed by id."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One task in one domain."""

    task: str
    domain: str
    """ "" for all domains together."""
    n: int
    right: int
    undecidable: int
    bar: Markup
    low: float | None
    precision: float | None
    yield_text: str


@dataclass(frozen=True, kw_only=True)
class Plot:
    """One curve with its words."""

    task: str
    domain: str
    option: str
    chart: Markup
    verdict: str


@dataclass(frozen=True, kw_only=True)
class Blind:
    """What one blind solver gets."""

    skill: str
    cue: str
    about: str
    n: int
    bar: Markup
    accuracy: float
    least: float
    leaks: bool
    example: str


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Why candidates fell, how often, and the first of them."""

    where: str
    reason: str
    count: int
    example: str


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A wrong label, ready to print."""

    qa_id: str
    image: str
    domain: str
    task: str
    stratum: str
    card: Card
    truth: tuple[tuple[str, str], ...]
    ours: tuple[tuple[str, str], ...]


def write_audit_page(path: Path, result: AuditResult, source: str) -> None:
    """Write the page of an audit. `source`: the config or dataset that was audited."""
    section = result.summary.get("shortcuts")
    shortcuts = section if isinstance(section, Mapping) else {"verdict": "not_tested"}
    recomputed = result.summary.get("recomputed")
    shown = result.wrong[:SHOWN_WRONG]
    context: dict[str, object] = {
        "title": f"Audit of {Path(source).name}",
        "n_images": result.n_images,
        "n": sum(g.grade != "undecidable" for g in result.graded),
        "n_wrong": len(result.wrong),
        "groups": list(_tables(result)),
        "plots": _plots(result.graded),
        "target": TARGET,
        "shortcuts": summary_line(shortcuts),
        "leaks": shortcuts["verdict"] in ("leaks", "allowed_leaks"),
        "blind": [_blind(test) for test in rows(shortcuts, "tests")],
        "untested": rows(shortcuts, "untested"),
        "losses": _losses(result.drops),
        "recomputed": recomputed if isinstance(recomputed, Mapping) else None,
        "wrong": [_mistake(wrong) for wrong in shown],
        "unshown": [f"{w.graded.qa.qa_id} on {w.graded.image}" for w in result.wrong[SHOWN_WRONG:]],
    }
    write_text(path, render("audit.html.j2", context))


def write_calibration_page(path: Path, curves: Sequence[Curve], target: float, name: str) -> None:
    """Write the curves of a calibration."""
    context: dict[str, object] = {
        "title": f"Calibration of {name}",
        "target": target,
        "plots": [_plot(curve, target, _chosen(curve)) for curve in curves],
    }
    write_text(path, render("calibration.html.j2", context))


# ------------------------------------------------------------------------------------------------------------ tables


def _tables(result: AuditResult) -> Iterator[tuple[str, str, list[Line]]]:
    """Each task with its lines: all domains together, then one a domain. The text says why a task has no precision."""
    tasks = result.summary["tasks"]
    for task, row in tasks.items() if isinstance(tasks, Mapping) else ():
        if not isinstance(row, Mapping):
            continue
        mine = [g for g in result.graded if g.qa.task == task]
        domains = sorted({g.domain for g in mine})
        shares = row.get("yield_share")
        lines = [_line(task, "", mine, result.n_images, shares)]
        if len(domains) > 1:
            by_domain = shares.get("by_domain") if isinstance(shares, Mapping) else None
            for domain in domains:
                own = by_domain.get(domain) if isinstance(by_domain, Mapping) else None
                lines.append(_line(task, domain or "unknown domain", [g for g in mine if g.domain == domain], 0, own))
        yield task, str(row["off"] or ""), lines


def _line(task: str, domain: str, graded: Sequence[Graded], n_images: int, shares: JsonValue) -> Line:
    grades = Counter(g.grade for g in graded)
    right, n = grades["right"], grades["right"] + grades["wrong"]
    low, high = wilson(right, n)
    texts = [f"{len(graded) / n_images:.2f} a photo"] if n_images else [f"{len(graded)} candidates"]
    if isinstance(shares, Mapping) and shares["share"] is not None:
        texts.append(f"{100 * float(str(shares['share'])):.1f}% of {shares['decided']} random pairs")
    return Line(
        task=task,
        domain=domain,
        n=n,
        right=right,
        undecidable=grades["undecidable"],
        bar=interval_bar(Estimate(value=right / n, low=low, high=high), label=f"{task} {domain}") if n else Markup(""),
        low=low if n else None,
        precision=right / n if n else None,
        yield_text=", ".join(texts),
    )


def _losses(drops: Sequence[Drop]) -> list[Loss]:
    counts: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], str] = {}
    for drop in drops:
        key = (f"{drop.stage}, {words(drop.task).lower() if drop.task else 'whole photo'}", drop.reason)
        counts[key] += drop.count
        if key not in examples and (drop.example or drop.image):
            examples[key] = f"{drop.image}: {drop.example}" if drop.example else drop.image
    return [
        Loss(where=where, reason=reason, count=n, example=examples.get((where, reason), ""))
        for (where, reason), n in counts.most_common()
    ]


# ------------------------------------------------------------------------------------------------------------ curves


def _plots(graded: Sequence[Graded]) -> list[Plot]:
    """The dials' curves over the candidates as they were audited: from the margin in use to a stricter one."""
    found = []
    for name in sorted({g.qa.task for g in graded}):
        for curve in calibrate_task(load(TASKS, name), graded, TARGET):
            if curve.points:
                first = curve.points[0]
                found.append(_plot(curve, TARGET, f"{first.right} of {first.n} right with the margin in use"))
    return found


def _plot(curve: Curve, target: float, verdict: str) -> Plot:
    return Plot(
        task=curve.task,
        domain=curve.domain or "all domains",
        option=curve.dial.option + (f" ({curve.dial.stratum})" if curve.dial.stratum else ""),
        chart=precision_curve(curve, target),
        verdict=verdict,
    )


def _chosen(curve: Curve) -> str:
    point = curve.chosen
    if point is None:
        return f"Off: {curve.off}"
    return (
        f"Above {point.value:.3g}: {point.right} of {point.n} right, at least {100 * point.low:.1f}%, "
        f"keeps {100 * point.kept:.0f}%"
    )


# ------------------------------------------------------------------------------------------------------ blind solvers


def _blind(test: Mapping[str, JsonValue]) -> Blind:
    accuracy, low, high, chance, least = (
        float(str(test[key])) for key in ("accuracy", "low", "high", "chance", "least")
    )
    bar = interval_bar(
        Estimate(value=accuracy, low=low, high=high), chance=chance, label=f"{test['skill']} {test['cue']}"
    )
    return Blind(
        skill=str(test["skill"]),
        cue=str(test["cue"]),
        about=str(test["about"]),
        n=int(str(test["n"])),
        bar=bar,
        accuracy=accuracy,
        least=least,
        leaks=test["leaks"] is True,
        example=str(test["example"]),
    )


# ------------------------------------------------------------------------------------------------------ wrong labels


def _mistake(wrong: Wrong) -> Mistake:
    qa = wrong.graded.qa
    example = Example(
        images=wrong.pictures,
        question=qa.question,
        choices=qa.choices,
        answer=None,
        skill=str(qa.skill),
        replies={"our label": qa.answer},
    )
    plain = {key: value for key, value in qa.provenance.measures.items() if key != "skill"}
    return Mistake(
        qa_id=qa.qa_id,
        image=wrong.graded.image,
        domain=wrong.graded.domain,
        task=qa.task,
        stratum=qa.stratum,
        card=card(example),
        truth=wrong.truth,
        ours=tuple((key.replace("_", " "), _short(value)) for key, value in plain.items()),
    )


def _short(value: JsonValue) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_short(inner)}" for key, inner in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"({', '.join(_short(inner) for inner in value[:8])}{', …' if len(value) > 8 else ''})"
    return number(value)
