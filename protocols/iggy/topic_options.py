"""The options that dialects V and W have: the values and the effect of each, and its text in
answers. A text is taken for every option, and stored in the option's own kind.

Options about how the server writes are only kept and shown; but durability `persisted` makes a
topic's durability `synced`. Knows bytes and settings, no topic. Defaults and texts are those of
server 0.9.0-edge.5, the two about durability those of apache-iggy 0.9.0.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from braidlog.protocols.iggy import option_texts as texts
from braidlog.protocols.iggy import replies as r
from braidlog.protocols.iggy.errors import ErrorCode, Refusal
from braidlog.protocols.iggy.messages import UNBOUNDED
from braidlog.storage.formats.record import HeaderKind

Options = Mapping[str, tuple[int, bytes]]
Catalogue = Mapping[int, Sequence[r.OptionInfo]]

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
UPDATABLE_FLAG, RESETTABLE_FLAG = 1, 2  # Of an option in W.
SCOPE_TOPIC, SCOPE_STREAM, SCOPE_USER = 1, 2, 3
NODES = 1  # That keep a partition, as Iggy's clients see this broker.


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
    # Listed for clients of V that ask, and among a topic's derived options.
    is_told: bool = True
    refusal: ErrorCode = ErrorCode.INVALID_OPTION_VALUE  # For a value that is not accepted.


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
RESIZE_POLICY, REPLICATION_FACTOR = "partition_resize_policy", "replication_factor"
FIXED = b"fixed"  # The resize policy of a topic whose partitions are neither added nor removed.

UPDATABLE = frozenset({EXPIRY, SIZE})  # In W: may be changed, and reset to the server's value.
UPDATABLE_IN_V = UPDATABLE | {COMPRESSION}  # The others describe how segments are written.

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
        HeaderKind.STRING,
        b"replicated",
        "persisted: a SEND is answered once its messages are on disk",
        DURABILITIES.__contains__,
        is_told=False,
    ),
    "consumer_offset_durability": Option(
        HeaderKind.STRING,
        b"replicated",
        "Kept: a stored offset is on disk before its answer",
        DURABILITIES.__contains__,
        is_told=False,
    ),
    RESIZE_POLICY: Option(
        HeaderKind.STRING,
        b"mutable",
        "fixed: Iggy's clients neither add nor remove partitions; else mutable",
        (b"mutable", FIXED).__contains__,
        is_told=False,
    ),
    REPLICATION_FACTOR: Option(
        HeaderKind.UINT32,
        NODES.to_bytes(4, "little"),
        "Nodes that keep each partition: 1",
        lambda value: _number(value) == NODES,
        texts.u32,
        is_told=False,
        refusal=ErrorCode.INVALID_REPLICATION_FACTOR,
    ),
}
V_TOPIC_KEYS = frozenset(TOPIC_OPTIONS) - {RESIZE_POLICY, REPLICATION_FACTOR}
W_TOPIC_KEYS = frozenset(TOPIC_OPTIONS) - {"enforce_fsync"}


def topic_options(
    options: Options, keys: frozenset[str] = V_TOPIC_KEYS
) -> dict[str, tuple[int, bytes]]:
    """Options as a client gave them, each in its own kind; `keys` are those of the client's
    dialect. Raises Refusal.
    """
    checked = {}
    for key, (kind, value) in options.items():
        if key not in keys:
            raise Refusal(ErrorCode.UNSUPPORTED_OPTION_KEY, f"no topic has an option {key!r}")
        option = TOPIC_OPTIONS[key]
        own = _in_own_kind(key, option, kind, value)
        if own is None or not option.takes(own):
            code = ErrorCode.INVALID_OPTION_VALUE if own is None else option.refusal
            raise Refusal(code, f"option {key!r}: {value!r}")
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


def check_updatable(options: Options) -> None:
    """Check that each option of an update may change after the topic's creation. Raises Refusal."""
    for key in options:
        if key not in UPDATABLE_IN_V:
            raise Refusal(ErrorCode.UNSUPPORTED_OPTION_KEY, f"option {key!r} cannot change")


def _described(key: str, flags: int = 0) -> r.OptionInfo:
    option = TOPIC_OPTIONS[key]
    return r.OptionInfo(key, int(option.kind), option.default, option.description, flags=flags)


def _name(key: str, description: str) -> r.OptionInfo:
    return r.OptionInfo(key, KEY_KIND, b"", description, flags=UPDATABLE_FLAG)


_NAME = _name("name", "Name, 1 to 255 bytes; changed by an update")

# The options by scope, for clients that ask.
V_CATALOGUE: Catalogue = {
    SCOPE_TOPIC: [_described(key) for key, option in TOPIC_OPTIONS.items() if option.is_told]
}
W_CATALOGUE: Catalogue = {
    SCOPE_TOPIC: [
        _NAME,
        *(
            _described(key, UPDATABLE_FLAG | RESETTABLE_FLAG if key in UPDATABLE else 0)
            for key in TOPIC_OPTIONS
            if key in W_TOPIC_KEYS
        ),
    ],
    SCOPE_STREAM: [_NAME],
    SCOPE_USER: [
        _name("username", "Name of the user; changed by an update"),
        _name("status", "active or inactive; changed by an update"),
    ],
}
