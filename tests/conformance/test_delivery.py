"""Real clients against the model of delivery, each kind of subscription once."""

import pytest

pytest.importorskip("pulsar", reason="pulsar-client is not installed")

from conformance.delivery import KINDS, run

pytestmark = [pytest.mark.clients, pytest.mark.slow]


def test_every_subscription_kind_follows_the_model() -> None:
    reports: list[str] = []
    assert run(range(len(KINDS)), steps=30, report=reports.append) == []
    assert len(reports) == len(KINDS)
