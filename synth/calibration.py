"""A calibration file, as `s2p calibrate` writes it: task options by domain, or the reason why a task is off there.

A photo's domain picks the entry; a photo whose domain the file does not know gets the entry "any". A file holds for the
very models it was made with, and is refused for others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from synth.config import digest, first_mistake, validate
from synth.errors import ConfigError
from synth.types import PluginOptions

ANY = "any"


class Entry(BaseModel):
    """One task in one domain."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    off: str | None
    options: Mapping[str, float]
    closed: Mapping[str, str] = Field(default_factory=dict)
    """Options that let nothing through here -> why."""
    evidence: Mapping[str, Mapping[str, float] | None]


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    calibration: int = Field(ge=1, le=1)
    target: float
    source: str
    n_images: int
    backends: Mapping[str, str]
    tasks: Mapping[str, Mapping[str, Entry]]


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What a calibration file says, and which one it is."""

    target: float
    backends: Mapping[str, str]
    """Role and member (depth/plain, depth/flip …) -> identity of the model with its options."""
    tasks: Mapping[str, Mapping[str, Entry]]
    digest: str
    """Of the file's content: part of a run's identity."""

    def options_for(self, task: str, options: PluginOptions, domain: str) -> PluginOptions | str:
        """The task's options for a photo of that domain, or why the task is off there. A task that was not calibrated
        keeps its options."""
        if task not in self.tasks:
            return options
        domains = self.tasks[task]
        name = domain if domain in domains else ANY
        if name not in domains:
            return f"not calibrated for photos of domain {domain or 'unknown'}"
        entry = domains[name]
        if entry.off is not None:
            return f"{name}: {entry.off}"
        return validate({**options.model_dump(), **entry.options}, type(options), f"calibration of {task}, {name}")

    def check(self, identities: Mapping[str, str], where: str) -> None:
        """Raises ConfigError where a task would look through other models than those it was calibrated with."""
        roles = {name.split("/")[0] for name in self.backends}
        mine = {name: value for name, value in identities.items() if name.split("/")[0] in roles}
        differing = sorted(
            name for name in self.backends.keys() | mine.keys() if self.backends.get(name) != mine.get(name)
        )
        if differing:
            name = differing[0]
            raise ConfigError(
                f"made for other models: {name} was {self.backends.get(name, 'absent')}, is {mine.get(name, 'absent')}",
                where=where,
                fix="run `s2p calibrate` with this config's perception, or leave `calibration` out",
            )


def load_calibration(path: Path) -> Calibration:
    """Read a calibration file. Raises ConfigError for anything else."""
    try:
        text = path.read_text(encoding="utf-8")
        found = _File.model_validate_json(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", where=str(path), fix="run `s2p calibrate` first") from None
    except ValidationError as error:
        raise ConfigError(f"not a calibration file: {first_mistake(error)}", where=str(path)) from None
    return Calibration(target=found.target, backends=found.backends, tasks=found.tasks, digest=digest(json.loads(text)))
