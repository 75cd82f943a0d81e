"""Fixture of tests that run twice: with every read waiting for a disk, and without waits."""

import pytest

from tests.broker.delivery.entry_fakes import FakePartition


@pytest.fixture(params=[False, True], ids=["cold", "warm"])
def is_warm(request, monkeypatch):
    monkeypatch.setattr(FakePartition, "is_warm", request.param)
    return request.param
