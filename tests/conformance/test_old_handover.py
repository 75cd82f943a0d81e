"""The order of a group's readers. `python -m conformance.old.handover` runs the clients."""

from conformance.old import handover


def test_the_group_goes_back_to_the_old_consumer_after_each_client_of_today() -> None:
    names = [name for name, _ in handover.turns()]
    assert names[::2] == ["high-level consumer"] * (len(handover.TODAY) + 1)
    assert names[1::2] == list(handover.TODAY)
