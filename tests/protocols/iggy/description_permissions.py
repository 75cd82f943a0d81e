"""The block of a user's permissions, described with construct."""

from construct import Array, If, Int8ul, Int32ul, RepeatUntil, Struct, this

TOPIC = Struct("id" / Int32ul, "flags" / Array(4, Int8ul), "more" / Int8ul)
STREAM = Struct(
    "id" / Int32ul,
    "flags" / Array(6, Int8ul),
    "has_topics" / Int8ul,
    "topics" / If(this.has_topics, RepeatUntil(lambda topic, _, __: not topic["more"], TOPIC)),
    "more" / Int8ul,
)
BLOCK = Struct(
    "flags" / Array(10, Int8ul),
    "has_streams" / Int8ul,
    "streams" / If(this.has_streams, RepeatUntil(lambda stream, _, __: not stream["more"], STREAM)),
)


def block(flags: list[int], streams: dict[int, tuple[list[int], dict[int, list[int]]]]) -> bytes:
    """Return a block: ten flags, then streams with six flags and topics with four, by their
    numbers.
    """
    return BLOCK.build(
        {
            "flags": flags,
            "has_streams": int(bool(streams)),
            "streams": _listed(
                [
                    {
                        "id": number,
                        "flags": stream_flags,
                        "has_topics": int(bool(topics)),
                        "topics": _listed(
                            [{"id": topic, "flags": four} for topic, four in topics.items()]
                        ),
                    }
                    for number, (stream_flags, topics) in streams.items()
                ]
            ),
        }
    )


def _listed(records: list[dict]) -> list[dict] | None:
    for number, record in enumerate(records, 1):
        record["more"] = int(number < len(records))
    return records or None
