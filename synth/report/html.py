"""Static HTML pages and the few charts in them: no script, no library in the page, nothing loaded from anywhere.

Every value that reaches a page goes through jinja2 with autoescape on, so file names, questions and model replies may
hold anything. Pages carry a content security policy that allows inline style and `data:` pictures and nothing else.
Charts are inline SVG on a fixed scale of 0 to 100 % unless their docstring says otherwise.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from synth.diagnosis.statistics import corrected
from synth.errors import ImageError

Tone: TypeAlias = Literal["up", "down", "flat"]
DASH = "–"
MINUS = "−"
_MAGIC = ((b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8\xff", "jpeg"))
_WIDTH, _HEIGHT, _PAD = 300, 30, 9
_NAMES = {"left_right": "left or right", "iq_test": "IQ test", "grpo": "GRPO", "dpo": "DPO", "sft": "SFT"}
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A share (0..1) with its 95 % interval where one is known."""

    value: float
    low: float | None = None
    high: float | None = None


# ---------------------------------------------------------------------------------------------------------- pages


@cache
def environment() -> Environment:
    """The one jinja2 environment: autoescape for every template, and an unknown name in a template is an error."""
    env = Environment(
        loader=PackageLoader("synth.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= {
        "pct": percent,
        "points": points,
        "pvalue": p_value,
        "corrected": corrected,
        "count": count,
        "duration": duration,
        "size": byte_size,
        "words": words,
        "number": number,
        "nats": nats,
    }
    return env


def render(template: str, context: Mapping[str, object]) -> str:
    """One page as text; lone surrogates, which JSON may hold and UTF-8 may not, become question marks."""
    text = environment().get_template(template).render(dict(context))
    return text.encode("utf-8", "replace").decode("utf-8")


def data_uri(data: bytes) -> str:
    """A picture as a `data:` address. Raises ImageError for anything but PNG, JPEG and WEBP (by their first bytes)."""
    kind = next((name for magic, name in _MAGIC if data.startswith(magic)), None)
    if kind is None and data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "webp"
    if kind is None:
        raise ImageError("unknown_format: a report shows PNG, JPEG and WEBP only")
    return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"


# ---------------------------------------------------------------------------------------------------------- words


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def percent(value: float | None) -> str:
    """0.8051 → "80.5%"; unknown → a dash."""
    return f"{100 * value:.1f}%" if value is not None and math.isfinite(value) else DASH


def points(value: float | None) -> str:
    """A difference of shares in percentage points with its sign: 0.287 → "+28.7"."""
    if value is None or not math.isfinite(value):
        return DASH
    rounded = round(100 * value, 1)
    return f"{'+' if rounded > 0 else MINUS if rounded < 0 else '±'}{abs(rounded):.1f}"


def p_value(value: float | None) -> str:
    """0.0123 → "0.012", 2e-28 → "2 × 10⁻²⁸"."""
    if value is None or not math.isfinite(value):
        return DASH
    if value >= 0.001:
        return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"
    if value <= 0:
        return "below 10⁻³⁰⁰"
    mantissa, exponent = f"{value:.0e}".split("e")
    return f"{mantissa} × 10{str(int(exponent)).translate(_SUPERSCRIPT)}"


def nats(value: float | None, *, sign: bool = False) -> str:
    """A divergence in nats: 0.347 → "0.35", 0.0123 → "0.012"; with `sign`: "+0.35"."""
    if value is None or not math.isfinite(value):
        return DASH
    text = f"{abs(value):.2f}" if abs(value) >= 0.1 else f"{abs(value):.3f}"
    zero = not float(text)
    return f"{MINUS if value < 0 and not zero else '+' if sign and not zero else ''}{text}"


def count(value: int | None) -> str:
    """6240 → "6,240"."""
    return DASH if value is None else f"{value:,}"


def duration(seconds: float | None) -> str:
    """Seconds as people say them: 8.25 → "8.2 s", 130 → "2 min 10 s", 7260 → "2 h 1 min"."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def byte_size(value: int | None) -> str:
    """Bytes in powers of 1000: 5_230_000 → "5.2 MB"."""
    if value is None:
        return DASH
    size = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def words(name: str) -> str:
    """A code as words: "relative_depth" → "Relative depth"; names that are words already stay as they are."""
    text = _NAMES.get(str(name), str(name).replace("_", " ").strip())
    return text[:1].upper() + text[1:]


def spoken(name: str) -> str:
    """A code as words inside a sentence: "relative_depth" → "relative depth", "iq_test" → "IQ test"."""
    text = words(name)
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def number(value: object) -> str:
    """A JSON scalar for reading: floats with four significant digits, true and false as yes and no."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return DASH if value is None else str(value)


# --------------------------------------------------------------------------------------------------------- charts


def _x(share: float) -> str:
    return f"{_PAD + min(1.0, max(0.0, share)) * (_WIDTH - 2 * _PAD):.1f}"


def svg(body: str, label: str, *, width: int = _WIDTH, height: int = _HEIGHT, kind: str = "") -> Markup:
    """A chart from its shapes, which must be escaped already; `label` is what a screen reader says."""
    name = escape(label)
    return Markup(
        f'<svg class="chart {kind}" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{name}"><title>{name}</title>{body}</svg>'
    )


def _ground(chance: float | None, human: float | None) -> str:
    parts = [f'<line class="grid" x1="{_x(q)}" x2="{_x(q)}" y1="3" y2="27"/>' for q in (0, 0.25, 0.5, 0.75, 1)]
    parts.append(f'<line class="base" x1="{_x(0)}" x2="{_x(1)}" y1="15" y2="15"/>')
    if chance is not None and math.isfinite(chance):
        parts.append(f'<line class="chance" x1="{_x(chance)}" x2="{_x(chance)}" y1="2" y2="28"/>')
    if human is not None and math.isfinite(human):
        x = float(_x(human))
        parts.append(f'<path class="human" d="M{x:.1f} 8 l5 7 l-5 7 l-5 -7 z"/>')
    return "".join(parts)


def _interval(at: Estimate, kind: str, y: float) -> str:
    if at.low is None or at.high is None or not (math.isfinite(at.low) and math.isfinite(at.high)):
        return ""
    low, high = _x(at.low), _x(at.high)
    ends = "".join(f'<line class="iv {kind}" x1="{x}" x2="{x}" y1="{y - 3.5}" y2="{y + 3.5}"/>' for x in (low, high))
    return f'<line class="iv {kind}" x1="{low}" x2="{high}" y1="{y}" y2="{y}"/>{ends}'


def axis() -> Markup:
    """The scale of the bars below it, for the head of a table column."""
    marks = "".join(
        f'<text x="{_x(q)}" y="12" text-anchor="middle">{100 * q:.0f}</text>' for q in (0, 0.25, 0.5, 0.75, 1)
    )
    return svg(marks, "scale from 0 to 100 percent", height=16, kind="axis")


def interval_bar(at: Estimate, *, chance: float | None = None, human: float | None = None, label: str = "") -> Markup:
    """One share with its interval; a dashed tick at chance and a diamond at the human level where they are known."""
    if not _known(at.value):
        return Markup('<span class="muted">no value</span>')
    x = _x(at.value)
    fill = f'<line class="fill" x1="{_x(0)}" x2="{x}" y1="15" y2="15"/>'
    dot = f'<circle class="dot after" cx="{x}" cy="15" r="5"/>'
    said = f"{label}: {_spoken(at)}{_references(chance, human)}".removeprefix(": ")
    return svg(_ground(chance, human) + fill + _interval(at, "after", 15) + dot, said, kind="bar")


def dumbbell(
    before: Estimate,
    after: Estimate,
    *,
    tone: Tone = "flat",
    chance: float | None = None,
    human: float | None = None,
    label: str = "",
) -> Markup:
    """Two shares of the same questions: a hollow dot before, a filled dot after, each with its interval."""
    if not (_known(before.value) and _known(after.value)):
        return Markup('<span class="muted">no value</span>')
    x0, x1 = _x(before.value), _x(after.value)
    body = (
        _ground(chance, human)
        + _interval(before, "before", 9.5)
        + _interval(after, f"after {tone}", 20.5)
        + f'<line class="link {tone}" x1="{x0}" x2="{x1}" y1="9.5" y2="20.5"/>'
        + f'<circle class="dot before" cx="{x0}" cy="9.5" r="4.6"/>'
        + f'<circle class="dot after {tone}" cx="{x1}" cy="20.5" r="5.2"/>'
    )
    said = f"{label}: before {_spoken(before)}, after {_spoken(after)}{_references(chance, human)}".removeprefix(": ")
    return svg(body, said, kind="bell")


def histogram(
    values: Sequence[float], *, bins: int = 10, low: float = 0.0, high: float = 1.0, label: str = ""
) -> Markup:
    """Small histogram of values in [low, high]; values outside count in the outermost bin."""
    kept = [v for v in values if math.isfinite(v)]
    if not kept:
        return Markup('<span class="muted">no values</span>')
    counts = [0] * bins
    for value in kept:
        counts[min(bins - 1, max(0, int((value - low) / (high - low) * bins)))] += 1
    width, height, top = 220, 56, max(counts)
    step = width / bins
    bars = "".join(
        f'<rect class="col" x="{i * step + 1:.1f}" y="{height - 12 - 42 * n / top:.1f}" width="{step - 2:.1f}" '
        f'height="{42 * n / top:.1f}"><title>{escape(f"{n} of {len(kept)}")}</title></rect>'
        for i, n in enumerate(counts)
    )
    ends = (
        f'<text x="1" y="{height - 1}">{low:g}</text>'
        f'<text x="{width - 1}" y="{height - 1}" text-anchor="end">{high:g}</text>'
    )
    return svg(bars + ends, f"{label} ({len(kept)} values)", width=width, height=height, kind="hist")


def share_bar(parts: Mapping[str, int], *, label: str = "") -> Markup:
    """One bar cut in proportion to the counts, in the order given; for letters and strata, which should be even."""
    total = sum(parts.values())
    if total <= 0:
        return Markup('<span class="muted">none</span>')
    x, body = 0.0, ""
    for index, (name, n) in enumerate(parts.items()):
        wide = _WIDTH * n / total
        title = escape(f"{name}: {n} of {total}")
        place = f'x="{x:.1f}" y="1" width="{max(0.0, wide - 1):.1f}" height="22"'
        body += f'<rect class="part p{index % 6}" {place} rx="2"><title>{title}</title></rect>'
        if wide >= 8 * len(name) + 10:
            body += f'<text x="{x + wide / 2:.1f}" y="16" text-anchor="middle">{escape(name)}</text>'
        x += wide
    said = ", ".join(f"{name} {n}" for name, n in parts.items())
    return svg(body, f"{label}: {said}".removeprefix(": "), height=24, kind="shares")


def _spoken(at: Estimate) -> str:
    if at.low is None or at.high is None:
        return percent(at.value)
    return f"{percent(at.value)} ({percent(at.low)} to {percent(at.high)})"


def _references(chance: float | None, human: float | None) -> str:
    text = "" if chance is None else f"; chance {percent(chance)}"
    return text if human is None else f"{text}; human {percent(human)}"
