"""For tests that run twice: where each read waits for a disk, and where none does."""

import pytest

from tests.broker.delivery.entry_fakes import FakePartition


@pytest.fixture(params=[False, True], ids=["cold", "warm"])
def is_warm(request, monkeypatch):
    monkeypatch.setattr(FakePartition, "is_warm", request.param)
    return request.param
