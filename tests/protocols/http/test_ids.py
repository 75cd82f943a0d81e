"""Message ids as text: valid and invalid ids."""

import base64

import pytest

from braidlog.protocols.http.ids import (
    ID_TEXT_MAX,
    NONE,
    BadMessageId,
    EntryIds,
    MessageId,
    read_id,
    write_id,
)
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import MessageIdData


def packed(**fields):
    return base64.b64encode(MessageIdData(**fields).SerializePartialToString()).decode()


@pytest.mark.parametrize(
    "message_id",
    [MessageId(1, 2, 0, -1), MessageId(1, 2, -1, 5), MessageId(2**63 - 1, 2**63 - 1, 3, 0)],
)
def test_an_id_round_trips_with_and_without_padding(message_id):
    text = write_id(message_id)
    assert read_id(text) == read_id(text.rstrip("=")) == message_id
    assert read_id(text.translate(str.maketrans("+/", "-_"))) == message_id


@pytest.mark.parametrize("partition", [NONE, 0, 3])
def test_ids_of_many_entries_are_those_of_each_entry(partition):
    writer = EntryIds(7, partition)
    for entry in (0, 1, 300, 0, 2**63 - 1):
        for batch_index in (NONE, 0, 9, NONE):
            expected = write_id(MessageId(7, entry, partition, batch_index))
            assert writer.write(entry, batch_index) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "1 to 256 characters"),
        ("A" * (ID_TEXT_MAX + 1), "1 to 256 characters"),
        ("?", "is not a message id"),
        ("AAAA", "is not a message id"),
        (packed(ledgerId=1), "ledger or entry is missing"),
        (packed(entryId=1), "ledger or entry is missing"),
        (packed(ledgerId=2**63, entryId=1), "of a stored message"),
        (packed(ledgerId=1, entryId=2**64 - 1), "of a stored message"),
    ],
)
def test_an_invalid_id_is_refused_with_the_reason(text, reason):
    with pytest.raises(BadMessageId, match=reason):
        read_id(text)
