"""The access check of dialect W: each command is refused without rights, and the refusal does not
reveal whether the topic exists. The frames are those of the attack, which has every command.
"""

import struct

import pytest

from braidlog.broker.access.access import Access
from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy.errors import ErrorCode
from braidlog.protocols.iggy.layouts_w import W
from braidlog.protocols.iggy.machine import LOGINS
from braidlog.storage.metadata.names import TopicName
from conformance.hostile import rows_iggy
from tests.broker.access.rules import Nothing
from tests.protocols.iggy.test_access import ABOUT_USERS, FOR_ANYBODY, OF_OTHERS
from tests.protocols.iggy.vtalk import CREATE_STREAM, CREATE_TOPIC
from tests.protocols.iggy.wtalk import client_w

CREATE_GROUP = 139
(TALK,) = (talk for talk in rows_iggy.protocol().talks if talk.dialect == "W")
CODES = {operation: code for code, operation in rows_iggy.W_OPERATIONS.items()} | {160: 101}


def code_of(row):
    """Return the command's code."""
    operation = row.frame[176]
    return struct.unpack_from("<I", row.frame, 196)[0] if operation == 2 else CODES[operation]


def kind_of(row):
    """Return the type of the request in a row; None for a command that is not served."""
    layout = W.requests.get(code_of(row))
    return type(layout.read(memoryview(row.frame)[256:])) if layout else None


UNCHECKED = {*FOR_ANYBODY, *ABOUT_USERS, m.CancelDeferred, None} - {*OF_OTHERS, m.GetPartitionRoute}
REFUSED = [row for row in TALK.commands if kind_of(row) not in UNCHECKED]


@pytest.fixture
async def client(broker, open_client):
    """Return a client without rights; the topic of the rows exists, with a group."""
    client = await client_w(open_client)
    place, stream = rows_iggy.PLACE, rows_iggy.STREAM
    assert await client.status(CREATE_STREAM, stream[1:]) == 0
    assert await client.status(CREATE_TOPIC, stream + struct.pack("<I", 1) + b"\x02tp") == 0
    assert await client.status(CREATE_GROUP, place + b"\x03grp") == 0
    broker.access = Access(Nothing())
    return client


async def error_of(client, row):
    """Return the error of a command, from the header or from the result section."""
    await client.send_only(row.frame, 0)
    answer = await client.next_frame()
    (status,) = struct.unpack_from("<I", answer, 216)
    return status or (struct.unpack_from("<I", answer, 264)[0] if len(answer) == 268 else 0)


def test_each_command_is_among_the_rows():
    served = {code for code in W.requests if code not in LOGINS}
    assert served <= {code_of(row) for row in TALK.commands}


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.name)
async def test_a_refusal_does_not_reveal_existence(broker, client, row):
    assert await error_of(client, row) == ErrorCode.UNAUTHORIZED
    await broker.topics.delete(TopicName("public", "hostile", "tp"))
    assert await error_of(client, row) == ErrorCode.UNAUTHORIZED
