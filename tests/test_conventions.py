"""The conventions that every other module builds on. If one of these fails, no label can be trusted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.geometry import (
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
