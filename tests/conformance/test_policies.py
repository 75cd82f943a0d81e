"""A short run of the policies under load: `conformance.policies`."""

from dataclasses import replace

import pytest

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
pytest.importorskip("pulsar", reason="pulsar-client is not installed")

from conformance.policies import limits, rates, shown
from conformance.policies.place import Place
from conformance.server import RunningBroker

SECONDS = 0.5


@pytest.mark.slow
@pytest.mark.clients
def test_policies_hold_and_are_shown():
    limit = replace(limits.CHECKS[0], levels=["topic"])
    (rate,) = [check for check in rates.CHECKS if check.client == "Iggy"]
    with RunningBroker(settings=(*rates.SETTINGS, *limits.SETTINGS)) as broker:
        place = Place(broker.addresses)
        rates.prepare(place, [rate])
        limit.prepare(place)
        shown.prepare(place)
        assert list(limit.faults(place)) == []
        assert list(shown.faults(place)) == []
        # A quarter of a second's messages pass at once, and each SEND is stored whole.
        assert 0 < rate.load(place, rate.topic, SECONDS) <= rate.rate * (SECONDS + 0.5)


def test_a_rate_that_does_not_hold_is_a_fault():
    (check,) = [check for check in rates.CHECKS if check.client == "Iggy"]
    for count, is_fault in ((900, False), (899, True), (1100, False), (1101, True)):
        assert bool([*rates.faults([check], {check.name: count}, 10)]) is is_fault
    assert [*rates.faults([check], {check.name: "it failed"}, 10)] == [f"{check.name}: it failed"]
