"""The options of topics in dialect V: which values each takes, and how a block of them is read."""

import pytest

from broker.server.endings import ProtocolError
from protocols.iggy.errors import ErrorCode, Refusal
from protocols.iggy.fields import OPTIONS_BYTES_MAX, FieldRefused, Options
from protocols.iggy.topic_options import (
    DURABILITY,
    SEGMENT,
    check_no_options,
    check_topic_options,
    packed,
)
from protocols.reader import LittleEndianReader
from storage.codecs.record import HeaderKind

U64, STRING = int(HeaderKind.UINT64), int(HeaderKind.STRING)


def segment(size):
    return {SEGMENT: (U64, size.to_bytes(8, "little"))}


@pytest.mark.parametrize("size", [1 << 20, 1 << 30, (1 << 20) + 512])
def test_a_segments_size_within_its_bounds_is_taken(size):
    check_topic_options(segment(size))


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (segment((1 << 20) - 512), ErrorCode.INVALID_OPTION_VALUE),
        (segment((1 << 30) + 512), ErrorCode.INVALID_OPTION_VALUE),
        (segment((1 << 20) + 1), ErrorCode.INVALID_OPTION_VALUE),
        ({SEGMENT: (U64, bytes(4))}, ErrorCode.INVALID_OPTION_VALUE),
        ({SEGMENT: (STRING, bytes(8))}, ErrorCode.INVALID_OPTION_VALUE),
        ({DURABILITY: (STRING, b"perhaps")}, ErrorCode.INVALID_OPTION_VALUE),
        ({"colour": (STRING, b"red")}, ErrorCode.UNSUPPORTED_OPTION_KEY),
    ],
)
def test_other_values_and_options_are_refused(options, code):
    with pytest.raises(Refusal) as raised:
        check_topic_options(options)
    assert raised.value.code == code


def test_streams_and_users_have_no_options():
    check_no_options(None)
    check_no_options({})
    with pytest.raises(Refusal, match="there is no option 'segment_size'") as raised:
        check_no_options(segment(1 << 20))
    assert raised.value.code == ErrorCode.UNSUPPORTED_OPTION_KEY


def read(block):
    return Options().read(LittleEndianReader(memoryview(block)))


def test_a_block_is_read_as_it_was_packed():
    options = {**segment(1 << 20), DURABILITY: (STRING, b"persisted")}
    assert read(packed(options)) == options
    assert read(b"") == {}


def test_an_option_that_is_there_twice_is_no_block():
    with pytest.raises(ProtocolError, match="is there twice"):
        read(packed(segment(1 << 20)) * 2)


def test_a_block_that_is_too_large_is_refused_for_that():
    with pytest.raises(FieldRefused) as raised:
        read(bytes(OPTIONS_BYTES_MAX + 1))
    assert raised.value.code == ErrorCode.OPTIONS_BLOCK_TOO_LARGE
