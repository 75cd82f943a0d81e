"""Registry of codecs by body format, for broker, recovery, tools and Spark alike.

Built-in codecs are imported on first use: Pulsar's needs protobuf, which a reader of Kafka bodies
should not load. Other codecs come from installed packages, by the entry-point group
`braidlog.codecs`: each entry point is a `Codec` object of a number of 64 or above.
"""

import importlib
from importlib.metadata import entry_points

from braidlog.storage.errors import UnreadableBody
from braidlog.storage.formats.api import BodyFormat, ColumnDecoder
from braidlog.storage.formats.base import Codec

ENTRY_POINT_GROUP = "braidlog.codecs"

FOREIGN_FORMAT_MIN = 64  # numbers below are the project's own

_BUILT_IN = {
    "plain": (BodyFormat.PLAIN, "braidlog.storage.formats.plain.codec", "PLAIN"),
    "kafka": (BodyFormat.KAFKA, "braidlog.storage.formats.kafka.message_sets", "KAFKA"),
    "kafka_batches": (
        BodyFormat.KAFKA_BATCHES,
        "braidlog.storage.formats.kafka.record_batches",
        "KAFKA_BATCHES",
    ),
    "pulsar": (BodyFormat.PULSAR, "braidlog.storage.formats.pulsar.entry_runs", "PULSAR"),
    "iggy": (BodyFormat.IGGY, "braidlog.storage.formats.iggy.classic", "IGGY"),
    "iggy_typed": (BodyFormat.IGGY_TYPED, "braidlog.storage.formats.iggy.typed", "IGGY_TYPED"),
}
_NAME_OF = {int(number): name for name, (number, _, _) in _BUILT_IN.items()}

_by_format: dict[int, Codec] = {}
_by_name: dict[str, Codec] = {}
_column_decoders: dict[str, ColumnDecoder] = {}


def codec_for(body_format: int) -> Codec:
    """Return the codec of a batch header's body format.

    Raises:
        UnreadableBody: no codec of that number is built in, registered or installed.
    """
    if (codec := _by_format.get(body_format)) is not None:
        return codec
    if body_format in _NAME_OF:
        return codec_named(_NAME_OF[body_format])
    _load_installed()
    if (codec := _by_format.get(body_format)) is not None:
        return codec
    raise UnreadableBody(f"no codec for body format {body_format}")


def format_name(body_format: int) -> str:
    """Return the name of a body format; its number without a codec."""
    if body_format in (BodyFormat.GAP, BodyFormat.JOURNAL):
        return BodyFormat(body_format).name.lower()
    try:
        return codec_for(body_format).name
    except UnreadableBody:
        return str(body_format)


def codec_named(name: str) -> Codec:
    """Return the codec of that name.

    Raises:
        UnreadableBody: no codec of that name is built in, registered or installed.
    """
    if (codec := _by_name.get(name)) is not None:
        return codec
    if name in _BUILT_IN:
        _, module, attribute = _BUILT_IN[name]
        named_codec: Codec = getattr(importlib.import_module(module), attribute)
        _by_format[named_codec.format] = _by_name[name] = named_codec
        return named_codec
    _load_installed()
    if (codec := _by_name.get(name)) is not None:
        return codec
    raise UnreadableBody(f"no codec named {name!r}")


def column_decoder_for(codec: Codec) -> ColumnDecoder | None:
    """Return the function that converts runs of a codec's bodies to columns for Spark, None if
    missing.

    The function needs numpy and is imported on first use.
    """
    if (name := codec.column_decoder) is None:
        return None
    if (decoder := _column_decoders.get(name)) is None:
        module, _, attribute = name.partition(":")
        decoder = _column_decoders[name] = getattr(importlib.import_module(module), attribute)
    return decoder


def register(codec: Codec) -> None:
    """Add a codec that is not built in.

    Raises:
        ValueError: its number or name is taken, or the number is below FOREIGN_FORMAT_MIN.
    """
    if codec.format < FOREIGN_FORMAT_MIN or codec.name in _BUILT_IN:
        raise ValueError(
            f"codec {codec.name!r} (format {codec.format}) needs a name of its own and a number "
            f"from {FOREIGN_FORMAT_MIN} up"
        )
    for known in (_by_format.get(codec.format, codec), _by_name.get(codec.name, codec)):
        if known is not codec:
            raise ValueError(
                f"codec {codec.name!r} (format {codec.format}) clashes with "
                f"{known.name!r} (format {known.format})"
            )
    _by_format[codec.format] = codec
    _by_name[codec.name] = codec


def _load_installed() -> None:
    for entry_point in entry_points(group=ENTRY_POINT_GROUP):
        register(entry_point.load())
