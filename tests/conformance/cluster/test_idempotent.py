"""The judge of idempotent producers finds values that are lost or stored twice."""

from collections import Counter

import pytest

from conformance.cluster.idempotent import Numbered, judge


class Answered(Numbered):
    """A producer with two acknowledged values."""

    def start(self):
        self.answered("p:0", 0)
        self.answered("p:1", 1)

    def stop(self):
        pass


@pytest.mark.parametrize(
    ("stored", "fault"),
    [
        (["p:0", "p:1"], ""),
        (["p:0", "p:1", "p:2"], ""),  # Stored, with a lost answer.
        (["p:0"], "1 acknowledged values are lost: ['p:1']"),
        (["p:0", "p:1", "p:1"], "1 values are stored twice: ['p:1']"),
        (["p:0", "p:1", "other:1", "other:1"], ""),
    ],
)
def test_a_value_is_stored_once(stored, fault):
    producer = Answered("p", "", ["t"])
    producer.start()
    assert judge(producer, Counter(stored)) == ([f"p: {fault}"] if fault else [])
