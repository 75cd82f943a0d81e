"""Some changes whose answers are lost between real brokers."""

import tempfile
from pathlib import Path

import pytest

from conformance.cluster import servers, unanswered
from conformance.cluster.unanswered_changes import Told

SHORT = {
    "Iggy CREATE_PARTITIONS": Told.DONE,
    "Iggy SEND": Told.UNKNOWN,
    "Kafka CreateTopics": Told.DONE,
    "Pulsar PRODUCER": Told.DONE,
    "HTTP PATCH topic": Told.DONE,
    "HTTP set positions": Told.UNKNOWN,
}


@pytest.mark.slow
@pytest.mark.clients
def test_clients_receive_the_outcome_despite_a_cut_link_to_the_owner():
    if (reason := servers.missing()) is not None:
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="braidlog-unanswered-") as folder:
        told, faults = unanswered.run(Path(folder), list(SHORT))
    assert (told, faults) == (SHORT, [])
