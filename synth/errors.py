"""What a user can mend. Each error says what was expected, what was found, where, and what to do.

The command line prints these without a traceback and exits with 2; anything else is a bug and shows one.
"""

from __future__ import annotations


class S2PError(Exception):
    """Base of all errors that a user can mend."""

    def __init__(self, message: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text}\n  what to do: {self.fix}" if self.fix else text

    def __reduce__(self) -> tuple[object, ...]:
        # Worker processes send errors through pickle, which would otherwise lose the keyword fields.
        return (_rebuild, (type(self), self.message, self.where, self.fix))


def _rebuild(kind: type[S2PError], message: str, where: str, fix: str) -> S2PError:
    return kind(message, where=where, fix=fix)


class ConfigError(S2PError):
    """A config file, an override or a flag is wrong."""


class SourceError(S2PError):
    """A source has nothing to read, or its sidecar is wrong."""


class ImageError(S2PError):
    """One image cannot be used; `reason` is the word that the drop ledger counts."""

    @property
    def reason(self) -> str:
        """First word of the message, a stable code such as `truncated` or `too_large`."""
        return self.message.split(":", 1)[0]


class ResultsError(S2PError):
    """A result file cannot be read."""


class BenchmarkError(S2PError):
    """A benchmark cannot be read in full; nothing may be generated or judged against it."""


class BackendError(S2PError):
    """A model or an optional package is missing, or a backend cannot meet a task's need."""


class GuardError(S2PError):
    """The contamination guard cannot be established."""


class RunError(S2PError):
    """A run folder cannot be used: another plan, another process, a damaged shard."""


class DatasetError(S2PError):
    """A dataset folder is not one of ours, or cannot be trained on."""


class GateFailed(S2PError):
    """The work is done and a gate says no: exit 1."""
