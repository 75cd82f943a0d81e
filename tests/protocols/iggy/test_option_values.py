"""The options of topics in dialect V: the allowed values of each option, and the parsing of a
block.
"""

import pytest

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.iggy.errors import ErrorCode, Refusal
from braidlog.protocols.iggy.fields import OPTIONS_BYTES_MAX, FieldRefused, Options
from braidlog.protocols.iggy.topic_options import (
    COMPRESSION,
    DURABILITY,
    SEGMENT,
    TOPIC_OPTIONS,
    check_no_options,
    explicit,
    packed,
    topic_options,
)
from braidlog.protocols.reader import LittleEndianReader
from braidlog.storage.formats.record import HeaderKind

U8, U64, STRING = int(HeaderKind.UINT8), int(HeaderKind.UINT64), int(HeaderKind.STRING)


def segment(size):
    return {SEGMENT: (U64, size.to_bytes(8, "little"))}


@pytest.mark.parametrize("size", [0, 1 << 20, 1 << 30, (1 << 20) + 512])
def test_a_segment_size_within_its_bounds_is_accepted(size):
    assert topic_options(segment(size)) == segment(size)


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
        topic_options(options)
    assert raised.value.code == code


GIB, NEVER = 1 << 30, (1 << 64) - 1
HOUR_US = 3_600_000_000
NUMBERS = {
    "segment_size": {
        "128 MiB": 128 << 20,
        "128MiB": 128 << 20,
        "1048576": 1 << 20,
        "512 kib": None,
        "1.5Mi": 3 << 19,
        "2 G": None,
        "0": 0,
        "unlimited": 0,
        "1 MiBs": None,
        "-1": None,
        "": None,
    },
    "max_topic_size": {
        "unlimited": NEVER,
        "server_default": 0,
        "2 GB": 2_000_000_000,
        "1.5KB": 1_500,
        "20 EiB": None,
    },
    "message_expiry": {
        "1h 30m": HOUR_US * 3 // 2,
        "7days": 7 * 24 * HOUR_US,
        "1month": 2_630_016_000_000,
        "3M": 7_890_048_000_000,
        "15us": 15,
        "1500ns": 1,
        "never_expire": NEVER,
        "default": 0,
        "0": 0,
        "1 hour 2 fortnights": None,
        "60": None,
        "137 years": None,
        "h": None,
        "": None,
    },
    "messages_required_to_save": {"16": 16, "+16": 16, "0": None, "16777217": None, "1e3": None},
    "size_of_messages_required_to_save": {"1 MiB": 1 << 20, "2 GiB": None},
    "enforce_fsync": {"true": 1, "false": 0, "True": None, "1": None},
    "preallocate_segments": {"true": 1, "yes": None},
}
TEXTS = [(key, text, number) for key, texts in NUMBERS.items() for text, number in texts.items()]


@pytest.mark.parametrize(("key", "text", "number"), TEXTS)
def test_a_text_is_read_as_in_iggys_configuration_file_and_kept_in_the_keys_kind(key, text, number):
    options = {key: (STRING, text.encode())}
    if number is None:
        with pytest.raises(Refusal) as raised:
            topic_options(options)
        assert raised.value.code == ErrorCode.INVALID_OPTION_VALUE
        return
    kind, value = topic_options(options)[key]
    assert (kind, int.from_bytes(value, "little")) == (int(TOPIC_OPTIONS[key].kind), number)
    assert len(value) == len(TOPIC_OPTIONS[key].default)


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        (STRING, b"GZIP", b"gzip"),
        (U8, b"\x02", b"gzip"),
        (U8, b"\x01", b"none"),
        (U8, b"\x03", None),
        (U8, b"\x01\x00", None),
        (STRING, b"zstd", None),
    ],
)
def test_a_compression_is_named_in_any_case_or_numbered(kind, value, stored):
    if stored is None:
        with pytest.raises(Refusal):
            topic_options({COMPRESSION: (kind, value)})
    else:
        assert topic_options({COMPRESSION: (kind, value)}) == {COMPRESSION: (STRING, stored)}


@pytest.mark.parametrize("text", [b"\xff", b"9" * 5000, b"1" * 60 + b"EiB"])
@pytest.mark.parametrize("key", NUMBERS)
def test_a_text_that_cannot_be_read_is_refused(key, text):
    with pytest.raises(Refusal) as raised:
        topic_options({key: (STRING, text)})
    assert raised.value.code == ErrorCode.INVALID_OPTION_VALUE


def test_an_option_of_0_means_the_servers_default():
    zero = (U64, bytes(8))
    fsync = {"enforce_fsync": (int(HeaderKind.BOOL), b"\0")}
    assert (
        explicit({SEGMENT: zero, "message_expiry": zero, "max_topic_size": zero, **fsync}) == fsync
    )


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


def test_a_repeated_option_is_refused():
    with pytest.raises(ProtocolError, match="is there twice"):
        read(packed(segment(1 << 20)) * 2)


def test_a_too_large_block_is_refused_for_its_size():
    with pytest.raises(FieldRefused) as raised:
        read(bytes(OPTIONS_BYTES_MAX + 1))
    assert raised.value.code == ErrorCode.OPTIONS_BLOCK_TOO_LARGE
