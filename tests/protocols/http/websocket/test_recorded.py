"""The broker answers the dialogues that were recorded with Apache Pulsar 4.2.4."""

import pytest
import trio

from conformance.websocket import DIALOGUES, compared, rows
from tests.protocols.http.conftest import listener

__all__ = ["listener"]
SILENCE_S = 0.1


@pytest.fixture
def counted(broker):
    return broker


def test_every_dialogue_is_recorded():
    assert {row[0] for row in rows()} == set(DIALOGUES)


@pytest.mark.slow
async def test_answers_are_those_of_apache(listener):
    (host, port), *_ = listener
    differences = []
    for name in DIALOGUES:
        url = f"http://{host}:{port}"
        differences += await trio.to_thread.run_sync(compared, url, name, SILENCE_S)
    assert not differences, "\n".join(differences)
