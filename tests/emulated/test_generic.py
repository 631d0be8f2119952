"""The engine on an accelerator that torch has never heard of: nothing in it may assume CUDA."""

from __future__ import annotations

import pytest

from tests.models.golden import ATOL
from tests.runtime.continuations import CASES

WAITS = 1
"""Copies to the host in a decode step: the tokens with their flags."""


@pytest.fixture(scope="module")
def answer(emulate):
    return emulate("zephyr", "run_generic", "zephyr")


def test_the_device_is_found_and_marked(answer):
    (device,) = (row for row in answer["devices"] if row["emulated"])
    assert device["target"] == "emulated:zephyr"


@pytest.mark.parametrize("name", CASES)
def test_reference_continuations(answer, name):
    for row in answer["golden"][name]:
        assert row["found"] == row["expected"]
        assert row["error"] < 2 * ATOL


@pytest.mark.parametrize("name", CASES)
def test_the_host_waits_as_often_as_it_must(answer, name):
    assert set(answer["waits"][name]) == {WAITS}
