"""Places that two pictures show: of a photo and its warped copy, or of two photos whose matchers agree.

Two photos: a place counts where every member of the consensus finds it again within `tolerance`, where the one model of
the pair allows it, and where both pictures have texture. A member that finds nothing near a place has not confirmed it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from pydantic import Field
from scipy.spatial import cKDTree

from synth.geometry import Points, apply_homography
from synth.tasks._asking import Ledger, is_truth
from synth.tasks._places import Flags, gather
from synth.tasks._texture import Corners, Patches, corners, likeness, likest, patches, textured
from synth.types import JsonValue, Matches, Matrix, PluginOptions, Scene, SecondView, WarpedPair


class PlaceOptions(PluginOptions):
    """Distances are shares of the second picture's diagonal, the border of each side."""

    border: float = Field(0.06, ge=0, lt=0.4)
    to_truth: float = Field(0.06, gt=0)
    look_alike: float = Field(0.9, gt=0, le=1)
    """Normalised correlation of two patches from which they look the same."""
    min_texture: float = Field(5.0, gt=0)
    """Least corner strength, in grey levels."""
    patch: float = Field(0.015, gt=0, lt=0.1)
    """Radius, as a share of the short side, that must be covered in a warped picture."""
    tolerance: float = Field(0.004, gt=0, le=0.01)
    """How far the members of the consensus may differ about a place of another photo."""
    least_motion: float = Field(0.02, ge=0)
    """Two photos whose places move less than this (the median) are one view: position alone would answer."""


@dataclass(frozen=True, kw_only=True)
class Shared:
    """N places that both pictures show."""

    found: Corners
    """The places in the first picture."""
    index: npt.NDArray[np.int64]
    """(N,) which corner of `found`."""
    there: Points
    size_here: tuple[int, int]
    size_there: tuple[int, int]
    """Width and height, px."""
    members: Mapping[str, Points] = field(default_factory=dict)
    """Where each member of the consensus puts the places, (N, 2); none for a warped copy."""
    repeats: _Repeats | None = None
    """How to tell whether a place looks like another one; None where that cannot have misled anybody."""

    @property
    def here(self) -> Points:
        """(N, 2) px of the first picture."""
        return self.found.points[self.index]

    @property
    def diagonal(self) -> float:
        """Of the second picture, px."""
        return float(np.hypot(*self.size_there))

    @property
    def ways(self) -> npt.NDArray[np.float64]:
        """(N,) how far each place moves from frame to frame; shares of the sides."""
        return lengths(self.there / np.array(self.size_there) - self.here / np.array(self.size_here))

    def away(self, truth: int) -> npt.NDArray[np.float64]:
        """(N,) how far each place, in the second frame, is from that of the truth in the first; shares of the sides."""
        return lengths(self.there / np.array(self.size_there) - self.here[truth] / np.array(self.size_here))

    def likeness(self, i: int, j: int) -> float:
        """Of two places, as the first picture shows them."""
        return likeness(self.found, int(self.index[i]), int(self.index[j]))


@dataclass(frozen=True)
class _Repeats:
    """The second picture's patches, and the places among them."""

    places: Corners
    """The N places."""
    everywhere: Patches
    away: float
    """px."""

    def likest(self, k: int) -> float:
        """Correlation of a place with what is most like it elsewhere in the second picture."""
        return likest(self.places, k, self.everywhere, self.away)


def of_warp(scene: Scene, pair: WarpedPair, options: PlaceOptions, ledger: Ledger) -> Shared:
    """Corners of the first picture that its warped copy shows."""
    rows_there, columns_there = pair.covered.shape
    found = corners(scene.rgb, options.min_texture)
    there = apply_homography(pair.homography, found.points)
    sizes = (scene.rgb.shape[1], scene.rgb.shape[0]), (columns_there, rows_there)
    inside = _within(found.points, sizes[0], options.border) & _within(there, sizes[1], options.border)
    radius = max(2, round(options.patch * min(rows_there, columns_there)))
    fits = (there >= radius + 1).all(axis=1) & (there < np.array(sizes[1]) - radius - 1).all(axis=1)
    keep = np.flatnonzero(inside & fits)
    keep = keep[gather(pair.covered, there[keep], radius).all(axis=(1, 2))]
    ledger.add("out_of_frame", "corner that the second picture does not show", len(found.points) - len(keep))
    return Shared(
        found=found,
        index=np.asarray(keep, dtype=np.int64),
        there=there[keep],
        size_here=sizes[0],
        size_there=sizes[1],
    )


def of_photos(scene: Scene, second: SecondView, options: PlaceOptions, ledger: Ledger) -> Shared:
    """Places of the first photo that all members find again in the second."""
    plain = second.matches[0]
    sizes = (scene.rgb.shape[1], scene.rgb.shape[0]), (second.rgb.shape[1], second.rgb.shape[0])
    tolerances = tuple(options.tolerance * float(np.hypot(*size)) for size in sizes)
    inside = _within(plain.here, sizes[0], options.border) & _within(plain.there, sizes[1], options.border)
    ledger.add("out_of_frame", f"match at the border of {second.view.name}", int((~inside).sum()))
    keep = np.flatnonzero(inside)
    members: dict[str, Points] = {}
    for member in second.matches:
        put = _put(member, plain.here[keep], tolerances[0])
        lost = np.isnan(put[:, 0])
        differs = ~lost & (lengths(put - plain.there[keep]) > tolerances[1])
        ledger.add("not_confirmed", f"{second.view.name}: the {member.member} pass finds it not", int(lost.sum()))
        ledger.add("members_differ", f"{second.view.name}: the {member.member} pass", int(differs.sum()))
        agrees = ~lost & ~differs
        keep, members = (
            keep[agrees],
            {name: points[agrees] for name, points in members.items()} | {member.member: put[agrees]},
        )
    found, told = textured(scene.rgb, plain.here[keep], options.min_texture)
    places, also = textured(second.rgb, plain.there[keep[told]], options.min_texture)
    ledger.add("no_texture", f"match with {second.view.name}", len(keep) - len(also))
    repeats = _Repeats(places, patches(second.rgb), options.to_truth * float(np.hypot(*sizes[1])))
    return Shared(
        found=found,
        index=also,
        there=places.points,
        size_here=sizes[0],
        size_there=sizes[1],
        members={name: points[told[also]] for name, points in members.items()},
        repeats=None if is_truth(plain.backend) else repeats,
    )


def motion(places: Shared) -> float:
    """Median way of the places from frame to frame, as a share of the diagonal; 0 where there are none."""
    if not len(places.index):
        return 0.0
    scale = np.array(places.size_there) / np.array(places.size_here)
    return float(np.median(lengths(places.there - places.here * scale))) / places.diagonal


def model_measures(plain: Matches) -> dict[str, JsonValue]:
    """The one model that explains the matches of two photos, for the provenance."""
    for name, matrix in (("homography", plain.homography), ("fundamental", plain.fundamental)):
        if matrix is not None:
            return {"model": name, "model_matrix": _listed(matrix)}
    return {"model": "exact"}


def lengths(vectors: Points) -> npt.NDArray[np.float64]:
    """(N,) lengths of (N, 2) vectors."""
    return np.asarray(np.hypot(vectors[:, 0], vectors[:, 1]))


def _listed(matrix: Matrix) -> list[list[float]]:
    return [[float(value) for value in row] for row in matrix]


def _put(member: Matches, places: Points, radius: float) -> Points:
    """Where a member puts places of the first photo, (N, 2): as its nearest match within `radius` moves; else nan."""
    put: Points = np.full((len(places), 2), np.nan)
    if len(member.here) and len(places):
        gaps, nearest = cKDTree(member.here).query(places)
        near = gaps <= radius
        put[near] = (places + member.there[nearest] - member.here[nearest])[near]
    return put


def _within(points: Points, size: tuple[int, int], edge: float) -> Flags:
    sides = np.array(size)
    return np.asarray((points >= edge * sides).all(axis=1) & (points <= (1 - edge) * sides).all(axis=1))
