"""Records above the limit of a frame as the pieces of a chunked message."""

from crc32c import crc32c

from braidlog.broker.reading.entries import Entry
from braidlog.protocols.pulsar.machine import MESSAGE_BYTES_MAX
from braidlog.protocols.pulsar.oversize import SIZE, pieces
from braidlog.storage.formats.pulsar.entry import read_metadata
from tests.protocols.pulsar.talk import entry

PAYLOAD = bytes(range(251)) * (2 * MESSAGE_BYTES_MAX // 251 + 1)


def test_pieces_share_the_memory_of_their_record_and_have_good_checksums():
    record = Entry(7, 1, entry(PAYLOAD), 0)
    cut = list(pieces(record, "c"))
    assert len(cut) == 3
    for head, part in cut:
        assert len(head) < 200
        assert part.obj is record.body
        body = bytes(head) + bytes(part)
        assert len(body) <= MESSAGE_BYTES_MAX + 200
        assert SIZE.unpack_from(body, 2)[0] == crc32c(body[6:])
        read_metadata(body, check=True)
    assert b"".join(part for _, part in cut) == PAYLOAD
