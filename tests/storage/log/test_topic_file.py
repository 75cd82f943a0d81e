import pytest
from crc32c import crc32c

from braidlog.storage.log.topic_file import (
    BadTopicFile,
    TopicFile,
    pack_topic_file,
    unpack_topic_file,
)
from tests.storage.log.layouts import TOPIC_FILE

CONTENT = TopicFile(17, "public/default/bestellungen-äöü", 3)


def test_bytes_equal_the_format_page():
    data = pack_topic_file(CONTENT)
    parsed = TOPIC_FILE.parse(data)
    assert (parsed.partition_id, parsed.partition_index) == (17, 3)
    assert parsed.name.decode() == CONTENT.topic
    assert parsed.crc == crc32c(data[:-4])
    assert TOPIC_FILE.build(parsed) == data
    assert unpack_topic_file(data) == CONTENT


def test_every_flipped_bit_and_every_cut_is_found():
    data = pack_topic_file(CONTENT)
    for bit in range(len(data) * 8):
        wrong = bytearray(data)
        wrong[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadTopicFile):
            unpack_topic_file(bytes(wrong))
    for size in range(len(data)):
        with pytest.raises(BadTopicFile):
            unpack_topic_file(data[:size])
