"""The options that dialect V has for topics: the values and the effect of each, and its text in
answers. A text is taken for every option, and stored in the option's own kind.

Options about how the server writes are only kept and shown; but durability `persisted` makes a
topic's durability `synced`. Knows bytes and settings, no topic. Defaults and texts are those of
server 0.9.0-edge.5, the two about durability those of apache-iggy 0.9.0.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from braidlog.protocols.iggy import option_texts as texts
from braidlog.protocols.iggy import replies as r
from braidlog.protocols.iggy.errors import ErrorCode, Refusal
from braidlog.protocols.iggy.messages import UNBOUNDED
from braidlog.storage.formats.record import HeaderKind

Options = Mapping[str, tuple[int, bytes]]

ENTRY = struct.Struct("<BI")
KEY_KIND = int(HeaderKind.STRING)
COMPRESSIONS = {b"none": 1, b"gzip": 2}
COMPRESSION_NAMES = {number: name for name, number in COMPRESSIONS.items()}
DURABILITIES = (b"replicated", b"persisted")
SEGMENT_BYTES = (1 << 20, 1 << 30)
SEGMENT_STEP = 512
MESSAGES_MAX = 1 << 24
UNSAVED_BYTES_MAX = 1 << 30
ENCRYPTION_KEY = "encryption_key"  # Of a stream in W.
UPDATABLE_FLAGS = 1 | 2  # Of an option in W: updatable, resettable.


@dataclass(frozen=True, slots=True)
class Option:
    """An option: its kind and default, further accepted values, and the parser of its text.

    `parse` raises ValueError; None: the text is the value. `zero_is_default`: 0 stands for the
    server's value, as if the option were absent.
    """

    kind: HeaderKind
    default: bytes
    description: str
    takes: Callable[[bytes], bool]
    parse: Callable[[str], int] | None = None
    zero_is_default: bool = False
    is_told: bool = True  # Listed for clients that ask, and among a topic's derived options.


def _u64(number: int) -> bytes:
    return number.to_bytes(8, "little")


def _number(value: bytes) -> int:
    return int.from_bytes(value, "little")


def _is_bool(value: bytes) -> bool:
    return value in (b"\0", b"\1")


def _is_any(value: bytes) -> bool:
    return True


def _is_segment(value: bytes) -> bool:
    low, high = SEGMENT_BYTES
    size = _number(value)
    return not size or (low <= size <= high and not size % SEGMENT_STEP)


COMPRESSION, EXPIRY, SIZE = "compression_algorithm", "message_expiry", "max_topic_size"
SEGMENT, DURABILITY = "segment_size", "durability"

UPDATABLE = frozenset({EXPIRY, SIZE})  # In W: may be changed, and reset to the server's value.

TOPIC_OPTIONS: dict[str, Option] = {
    COMPRESSION: Option(
        HeaderKind.STRING,
        b"none",
        "Compression algorithm (none, gzip)",
        COMPRESSIONS.__contains__,
    ),
    EXPIRY: Option(
        HeaderKind.UINT64,
        _u64(UNBOUNDED),
        "Message expiry in microseconds",
        _is_any,
        texts.expiry_us,
        zero_is_default=True,
    ),
    SIZE: Option(
        HeaderKind.UINT64,
        _u64(UNBOUNDED),
        "Topic size cap in bytes",
        _is_any,
        texts.topic_size,
        zero_is_default=True,
    ),
    SEGMENT: Option(
        HeaderKind.UINT64,
        _u64(1 << 30),
        "Segment size in bytes; a 512-byte multiple within 1048576..=1073741824",
        _is_segment,
        texts.byte_size,
        zero_is_default=True,
    ),
    "enforce_fsync": Option(
        HeaderKind.BOOL,
        b"\0",
        "Kept: the topic's durability says when a SEND is answered",
        _is_bool,
        texts.flag,
    ),
    "messages_required_to_save": Option(
        HeaderKind.UINT32,
        (1024).to_bytes(4, "little"),
        "Kept: nothing waits for further messages; 1..=16777216",
        lambda value: 1 <= _number(value) <= MESSAGES_MAX,
        texts.u32,
    ),
    "size_of_messages_required_to_save": Option(
        HeaderKind.UINT64,
        _u64(1 << 20),
        "Kept: nothing waits for further bytes; at most 1073741824",
        lambda value: _number(value) <= UNSAVED_BYTES_MAX,
        texts.byte_size,
        zero_is_default=True,
    ),
    "preallocate_segments": Option(
        HeaderKind.BOOL, b"\0", "Kept: segments are not reserved", _is_bool, texts.flag
    ),
    DURABILITY: Option(
        HeaderKind.STRING, b"replicated", "", DURABILITIES.__contains__, is_told=False
    ),
    "consumer_offset_durability": Option(
        HeaderKind.STRING, b"replicated", "", DURABILITIES.__contains__, is_told=False
    ),
}


def topic_options(options: Options) -> dict[str, tuple[int, bytes]]:
    """Options as a client gave them, each in its own kind. Raises Refusal."""
    checked = {}
    for key, (kind, value) in options.items():
        option = TOPIC_OPTIONS.get(key)
        if option is None:
            raise Refusal(ErrorCode.UNSUPPORTED_OPTION_KEY, f"no topic has an option {key!r}")
        own = _in_own_kind(key, option, kind, value)
        if own is None or not option.takes(own):
            raise Refusal(ErrorCode.INVALID_OPTION_VALUE, f"option {key!r}: {value!r}")
        checked[key] = (int(option.kind), own)
    return checked


def _in_own_kind(key: str, option: Option, kind: int, value: bytes) -> bytes | None:
    """The value in the option's kind; None if it cannot be read."""
    if key == COMPRESSION and kind == HeaderKind.UINT8:  # As a number, as in classic dialects.
        return COMPRESSION_NAMES.get(_number(value)) if len(value) == 1 else None
    if kind == option.kind and option.kind is not HeaderKind.STRING:
        return value if len(value) == len(option.default) else None
    if kind != HeaderKind.STRING:
        return None
    if key == COMPRESSION:
        return value.lower()
    if option.parse is None:
        return value
    try:
        number = option.parse(value.decode())
    except ValueError:  # UnicodeDecodeError, too.
        return None
    return number.to_bytes(len(option.default), "little")


def explicit(options: Options) -> dict[str, tuple[int, bytes]]:
    """The options without those that stand for the server's own value."""
    return {
        key: (kind, value)
        for key, (kind, value) in options.items()
        if any(value) or not TOPIC_OPTIONS[key].zero_is_default
    }


def check_no_options(options: Options | None) -> None:
    """Check that there are none, for streams and users. Raises Refusal."""
    if options:
        key = next(iter(options))
        if key == ENCRYPTION_KEY:
            raise Refusal(
                ErrorCode.STREAM_ENCRYPTION_UNAVAILABLE, "encryption keys of streams are not served"
            )
        raise Refusal(ErrorCode.UNSUPPORTED_OPTION_KEY, f"there is no option {key!r}")


def compression_of(options: Options) -> int | None:
    """The number of a compression, if it is among the options."""
    return COMPRESSIONS[options[COMPRESSION][1]] if COMPRESSION in options else None


def number_of(options: Options, key: str) -> int | None:
    """The value of a number option, if it is given."""
    return _number(options[key][1]) if key in options else None


def packed(options: Options) -> bytes:
    """An options block, sorted by key as the server does."""
    parts: list[bytes] = []
    for key, (kind, value) in sorted(options.items()):
        name = key.encode()
        parts += (ENTRY.pack(KEY_KIND, len(name)), name, ENTRY.pack(kind, len(value)), value)
    return b"".join(parts)


def unpacked(block: bytes) -> dict[str, tuple[int, bytes]]:
    """The options of a block that `packed` made."""
    options: dict[str, tuple[int, bytes]] = {}
    pos = 0
    while pos < len(block):
        _, size = ENTRY.unpack_from(block, pos)
        pos += ENTRY.size
        key = block[pos : pos + size].decode()
        kind, value_size = ENTRY.unpack_from(block, pos + size)
        pos += size + ENTRY.size
        options[key] = (kind, block[pos : pos + value_size])
        pos += value_size
    return options


def derived(
    options: Options, *, compression: int, expiry_us: int, size_max: int, segment_bytes: int
) -> bytes:
    """The block of options that no client has given, with the topic's values."""
    values = {
        COMPRESSION: COMPRESSION_NAMES.get(compression, b"none"),
        SEGMENT: _u64(segment_bytes),
        EXPIRY: _u64(expiry_us),
        SIZE: _u64(size_max),
    }
    return packed(
        {
            key: (int(option.kind), values.get(key, option.default))
            for key, option in TOPIC_OPTIONS.items()
            if option.is_told and key not in options
        }
    )


def described() -> list[r.OptionInfo]:
    """The options, for a client that asks which there are."""
    return [
        r.OptionInfo(
            key,
            int(option.kind),
            option.default,
            option.description,
            flags=UPDATABLE_FLAGS if key in UPDATABLE else 0,
        )
        for key, option in TOPIC_OPTIONS.items()
        if option.is_told
    ]
