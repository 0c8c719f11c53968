"""The guard's first pass over all images of a run, and what falls with an image that is in the benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from synth.errors import GuardError
from synth.guard.cascade import Guard, GuardVerdict
from synth.guard.options import content_of
from synth.types import Drop, View


@dataclass(frozen=True, kw_only=True)
class Scan:
    """The first pass over all images of a run. Members of a source group (scene, video) fall together.

    An image whose group is "" is a group of its own: nobody knows what belongs to it, so nothing falls with it. How
    many there are is counted, and the certificate says so.
    """

    verdicts: Mapping[str, GuardVerdict]
    """By image id."""
    rejected_groups: Mapping[str, str]
    """Group -> id of the member that hit."""
    n_without_group: int = 0
    """Images whose group is unknown."""

    def reason(self, view: View) -> str | None:
        """Why this view must not be used: guard_copy, …_crop, …_scene, …_unverifiable, …_group; None where it may.

        Raises GuardError for a view that was not scanned: unchecked is not clean.
        """
        found = self.verdicts.get(view.image_id)
        if found is None:
            raise GuardError(
                "an image reached generation without a check", where=view.name, fix="scan all images first"
            )
        if found.verdict != "clean":
            return f"guard_{found.verdict}"
        return "guard_group" if view.group and view.group in self.rejected_groups else None

    def drop(self, view: View) -> Drop | None:
        """The ledger entry of a rejected view, with the benchmark image or the member that it fell for."""
        reason = self.reason(view)
        if reason is None:
            return None
        found = self.verdicts[view.image_id]
        example = self.rejected_groups[view.group] if reason == "guard_group" else found.match or found.stage
        return Drop(stage="guard", task="", image=view.name, reason=reason, example=example)


def scan(guard: Guard, views: Iterable[View]) -> Scan:
    """Check every image of a run. Views are not kept, so any number may pass."""
    verdicts: dict[str, GuardVerdict] = {}
    groups: dict[str, str] = {}
    alone = 0
    for view in views:
        found = guard.check_file(view.data, content=content_of(view.domain), name=view.name)
        alone += not view.group
        verdicts[found.image_id] = _stricter(verdicts.get(found.image_id), found)
        if found.is_hit and view.group:
            groups.setdefault(view.group, found.image_id)
    return Scan(verdicts=verdicts, rejected_groups=groups, n_without_group=alone)


def merge(scans: Iterable[Scan]) -> Scan:
    """One scan from those of several shards; a group rejected in one of them is rejected in all."""
    verdicts: dict[str, GuardVerdict] = {}
    groups: dict[str, str] = {}
    alone = 0
    for part in scans:
        alone += part.n_without_group
        for image_id, found in part.verdicts.items():
            verdicts[image_id] = _stricter(verdicts.get(image_id), found)
        for group, image_id in part.rejected_groups.items():
            groups.setdefault(group, image_id)
    return Scan(verdicts=verdicts, rejected_groups=groups, n_without_group=alone)


def _stricter(a: GuardVerdict | None, b: GuardVerdict) -> GuardVerdict:
    if a is None or a.verdict == "clean":
        return b if a is None or b.verdict != "clean" or b.content == "photograph" else a
    return a
