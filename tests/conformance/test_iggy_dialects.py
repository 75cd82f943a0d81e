"""Each dialect of Iggy has a client of its own and a writer of its messages in the conformance
tables, so that a new dialect without rows is noticed.
"""

import pytest

from braidlog.protocols.iggy.all_dialects import BY_NAME
from braidlog.protocols.iggy.forms import SentForm
from braidlog.protocols.iggy.layouts_w import W_DEV
from braidlog.protocols.iggy.vsr_dialects import VSR_BY_NAME
from conformance.clients import iggy_programs
from conformance.clients.iggy import CLIENTS
from conformance.hostile.commands import protocols
from conformance.mapping.writers import WRITERS

# Development builds need to work only as far as the matrix has them.
DIALECTS = sorted({*BY_NAME, *VSR_BY_NAME} - {W_DEV.name})
# Crates 0.0.75 to 0.0.89, which log in: raw frames only.
WITHOUT_CLIENT = {"D0 with login"}


def test_each_dialect_has_a_client():
    clients = {client.dialect for client in (*CLIENTS, *iggy_programs.ALL)}
    assert clients == {*DIALECTS} - WITHOUT_CLIENT


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_dialect_has_hostile_frames(dialect):
    assert dialect in {talk.dialect for talk in protocols()["iggy"].talks}


def test_each_form_of_messages_has_a_writer():
    assert len([name for name in WRITERS if name.startswith("iggy")]) == len(SentForm)
