"""Objects of other modules: no class inherits behaviour from another room, and each module changes
its own objects.
"""

import pytest

from tests.ownership import foreign_assignments, foreign_bases

# Classes for others to extend: a room's consumers extend the delivery's consumer, by its send.
EXTENDED = {"Consumer", "PullingConsumer"}


def test_no_class_inherits_behaviour_from_another_room() -> None:
    """A cluster object holds a local object, or both implement an interface."""
    offenders = [f"{place} <- {base}" for place, base in foreign_bases() if base not in EXTENDED]
    assert not offenders, "\n".join(offenders)


# Counted or filled for every request or field: a call each would cost too much.
FILLED_FROM_OUTSIDE = {
    *("IggyMachine.logged_in", "IggyMachine.session"),
    *("Outbox.gathering", "Writer.small"),
}


@pytest.mark.slow
def test_no_module_assigns_an_attribute_of_another_modules_object() -> None:
    """Objects that only hold values may be filled from anywhere."""
    offenders = [
        place for place, attribute in foreign_assignments() if attribute not in FILLED_FROM_OUTSIDE
    ]
    assert not offenders, "\n".join(sorted({*offenders}))
