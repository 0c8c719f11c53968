"""The conventions that every other module builds on. If one of these fails, no label can be trusted."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.geometry import (
    Points,
    apply_homography,
    box_area,
    box_iou,
    generator,
    homography_from_corners,
    mirror_box,
    patch,
    pixel_of,
    project,
    unproject,
    warp,
)
from synth.types import Matrix

K = np.array([[100.0, 0, 64.0], [0, 120.0, 48.0], [0, 0, 1]])
coordinates = st.floats(0.5, 127.5)
patient = settings(deadline=None)  # a busy machine is no failure


def test_x_is_right_y_is_down_and_z_is_forward():
    right, below, ahead = project(np.array([[0.5, 0.0, 2.0], [0.0, 0.5, 2.0], [0.0, 0.0, 9.0]]), K)
    assert right[0] > K[0, 2] and right[1] == K[1, 2]
    assert below[1] > K[1, 2] and below[0] == K[0, 2]
    assert tuple(ahead) == (K[0, 2], K[1, 2])


def test_the_centre_of_a_pixel_is_at_a_half():
    assert pixel_of(0.5, 0.5) == (0, 0)
    assert pixel_of(3.999, 7.0) == (7, 3)  # (row, column) of (x, y)
    picture = np.zeros((4, 6, 3), dtype=np.uint8)
    picture[2, 4] = 200
    moved, _ = warp(picture, np.array([[1, 0, -1], [0, 1, -1], [0, 0, 1.0]]), 6, 4)
    assert tuple(np.argwhere(moved[..., 0] == 200)[0]) == pixel_of(4.5 - 1, 2.5 - 1) == (1, 3)


@patient
@given(x=coordinates, y=coordinates, z=st.floats(0.1, 80))
def test_projecting_back_and_forth_changes_nothing(x, y, z):
    there = unproject(np.array([[x, y]]), np.array([z]), K)
    assert there[0, 2] == z  # depth is the z coordinate, not the length of the ray
    assert np.allclose(project(there, K), [[x, y]])


@patient
@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=4, max_size=4))
def test_a_homography_maps_its_corners_first_to_second(jitter):
    source = np.array([(0.0, 0), (100, 0), (100, 80), (0, 80)])
    target = source + np.array(jitter)
    H = homography_from_corners(source, target)
    assert np.allclose(apply_homography(H, source), target, atol=1e-6)
    assert np.allclose(apply_homography(np.linalg.inv(H), target), source, atol=1e-6)


def test_a_point_at_infinity_is_nan():
    H = np.array([[1, 0, 0], [0, 1, 0], [-0.01, 0, 1.0]])
    assert np.isnan(apply_homography(H, np.array([[100.0, 5.0]]))).all()


def test_warp_brings_a_pixel_where_the_homography_sends_it():
    picture = np.full((60, 80, 3), 90, dtype=np.uint8)
    picture[20:25, 30:35] = 250
    H = np.array([[1.1, 0.1, -6], [-0.05, 0.95, 9], [0.0004, 0.0002, 1]])
    second, covered = warp(picture, H, 80, 60)
    x, y = apply_homography(H, np.array([[32.5, 22.5]]))[0]
    row, column = pixel_of(x, y)
    assert covered[row, column] and second[row, column, 0] > 240
    assert (second[~covered] == 127).all()


def homographies() -> list[Matrix]:
    """A shift, a mirror image, a quarter turn, and strong changes of perspective of 160 x 120 pixels."""
    rng = np.random.default_rng(0)
    corners = np.array([(0.0, 0), (160, 0), (160, 120), (0, 120)])
    plain = [
        [[1, 0, 3.3], [0, 1, -2.6], [0, 0, 1]],
        [[-1, 0, 160], [0, 1, 0], [0, 0, 1]],
        [[0, -1, 140], [1, 0, -20], [0, 0, 1]],
    ]
    made = [homography_from_corners(corners, corners + rng.uniform(-30, 30, (4, 2))) for _ in range(5)]
    return [*(np.array(H, dtype=np.float64) for H in plain), *made]


def hills(places: Points) -> Points:
    """A smooth picture, known at every point."""
    return 128 + 60 * np.sin(places[:, 0] / 9) + 50 * np.sin(places[:, 1] / 7 + 1)


@pytest.mark.parametrize("H", homographies())
def test_a_warped_picture_lies_within_a_tenth_of_a_pixel_of_where_the_homography_puts_it(H):
    rows, columns = (np.mgrid[0:120, 0:160] + 0.5).reshape(2, -1)
    here = np.stack([columns, rows], axis=1)
    picture = np.rint(hills(here)).astype(np.uint8).reshape(120, 160, 1).repeat(3, axis=2)
    second, covered = warp(picture, H, 160, 120)
    expected = hills(apply_homography(np.linalg.inv(H), here)).reshape(120, 160)
    steep = np.stack(np.gradient(expected)[::-1], axis=-1)
    for quarter in itertools.product((slice(0, 60), slice(60, 120)), (slice(0, 80), slice(80, 160))):
        inside = covered[quarter]
        if inside.sum() > 400:
            differs = (expected - second[..., 0])[quarter][inside]
            shift = np.linalg.lstsq(steep[quarter][inside], differs, rcond=None)[0]
            assert np.hypot(*shift) < 0.1


@pytest.mark.parametrize("H", homographies())
def test_a_pixel_is_covered_where_all_that_it_is_mixed_of_lies_in_the_picture(H):
    second, covered = warp(np.full((120, 160, 3), 250, dtype=np.uint8), H, 160, 120)
    assert (second[covered] == 250).all() and (second[~covered] == 127).all()
    rows, columns = np.nonzero(np.ones_like(covered))
    came_from = apply_homography(np.linalg.inv(H), np.stack([columns + 0.5, rows + 0.5], axis=1))
    room = np.minimum(came_from - 0.5, np.array([159.5, 119.5]) - came_from).min(axis=1).reshape(covered.shape)
    assert covered[room > 1e-6].all() and not covered[room < -1e-6].any()
    assert covered.mean() > 0.2


def test_nothing_is_covered_behind_the_horizon():
    H = np.array([[1, 0, 0], [0, 1, 0], [0.02, 0, 1.0]])  # the line x = 50 of the second picture is infinitely far
    _, covered = warp(np.full((60, 80, 3), 250, dtype=np.uint8), H, 80, 60)
    assert covered[:, :30].any() and not covered[:, 50:].any()


def test_boxes_are_left_top_right_bottom_and_mirror_by_the_width():
    box = (10.0, 20.0, 30.0, 50.0)
    assert box_area(box) == 600
    assert box_iou(box, box) == 1
    assert box_iou(box, (30.0, 20.0, 40.0, 50.0)) == 0
    assert box_iou(box, (20.0, 20.0, 40.0, 50.0)) == pytest.approx(1 / 3)
    assert mirror_box(box, 100) == (70.0, 20.0, 90.0, 50.0)
    assert mirror_box(mirror_box(box, 100), 100) == box
    assert box_area((5.0, 5.0, 1.0, 9.0)) == 0


def test_a_patch_is_centred_on_the_pixel_and_never_cut():
    values = np.arange(48, dtype=np.float32).reshape(6, 8)
    middle = patch(values, 3.7, 2.2, 1)
    assert middle is not None and middle.shape == (3, 3) and middle[1, 1] == values[2, 3]
    assert patch(values, 0.5, 2.5, 1) is None


def test_randomness_depends_on_the_names_and_on_nothing_else():
    first = generator(7, "counting", "image").integers(1 << 30, size=8)
    generator(7, "other", "image").integers(1 << 30, size=80)
    assert (generator(7, "counting", "image").integers(1 << 30, size=8) == first).all()
    for other in (generator(8, "counting", "image"), generator(7, "countin", "gimage"), generator(7, "image")):
        assert (other.integers(1 << 30, size=8) != first).any()
