"""Clients' bytes on their way into the log: made here, checked and stamped by the broker's code.

HTTP uses a separate request and is not here.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from braidlog.storage.formats.api import BodyFormat, BodyInfo, Codec, Prepared
from braidlog.storage.formats.iggy.classic import IGGY, body_from_send
from braidlog.storage.formats.iggy.forms import body_from_batch, body_from_untyped
from braidlog.storage.formats.iggy.typed import IGGY_TYPED, body_from_typed
from braidlog.storage.formats.kafka import messages_v1 as kafka_timed
from braidlog.storage.formats.kafka import record_batches as kafka_batches
from braidlog.storage.formats.kafka import set_prepare as kafka_prepare
from braidlog.storage.formats.kafka.message_sets import KAFKA
from braidlog.storage.formats.kafka.record_batches import KAFKA_BATCHES
from braidlog.storage.formats.pulsar import entry_runs as pulsar
from braidlog.storage.formats.record import Record
from conformance.mapping import iggy_forms, kafka_forms, pulsar_forms

LIMIT = 1 << 24

# From records, a base offset and the time: the body format, and the body to append.
Writer = Callable[[Sequence[Record], int, int], tuple[int, Prepared]]


def pulsar_entries(form: str, found: Sequence[Record]) -> list[tuple[bytes, int]]:
    """Return (entry, message count) of each SEND that a client makes from the records."""
    is_packed = "zlib" in form
    if "batch" in form:
        return [(pulsar_forms.batch_entry(found, is_packed), len(found))]
    return [(pulsar_forms.entry(one, is_packed), 1) for one in found]


def _kafka_0(is_packed: bool) -> Writer:
    def write(found: Sequence[Record], base_offset: int, now_us: int) -> tuple[int, Prepared]:
        sent = bytearray(kafka_forms.produced_0(found, is_packed))
        made = kafka_prepare.prepare(sent, base_offset, now_us, message_bytes_max=LIMIT)
        return KAFKA.format, made

    return write


def _kafka_1(is_packed: bool) -> Writer:
    def write(found: Sequence[Record], base_offset: int, now_us: int) -> tuple[int, Prepared]:
        sent = memoryview(kafka_forms.produced_1(found, is_packed))
        records, _ = kafka_timed.records(sent, LIMIT, LIMIT, LIMIT)
        records = [replace(one, offset=offset) for offset, one in enumerate(records, base_offset)]
        body = KAFKA_BATCHES.encode(records, base_offset)
        return KAFKA_BATCHES.format, Prepared(body, KAFKA_BATCHES.inspect(body))

    return write


def _kafka_2(is_packed: bool) -> Writer:
    def write(found: Sequence[Record], base_offset: int, now_us: int) -> tuple[int, Prepared]:
        sent = bytearray(kafka_forms.produced_2(found, is_packed))
        return KAFKA_BATCHES.format, kafka_batches.prepare(
            sent, base_offset, message_bytes_max=LIMIT
        )

    return write


def _pulsar(form: str) -> Writer:
    def write(found: Sequence[Record], base_offset: int, now_us: int) -> tuple[int, Prepared]:
        body, delta, flags, times = bytearray(), 0, 0, list[int]()
        for entry, count in pulsar_entries(form, found):
            info = pulsar.parse_send(memoryview(entry))
            assert info.record_count == count and info.publish_us is not None
            body += pulsar.ENTRY_PREFIX.pack(len(entry), delta, count) + entry
            delta, flags, times = delta + count, flags | info.flags, [*times, info.publish_us]
        return BodyFormat.PULSAR, Prepared(
            bytes(body), BodyInfo(delta, times[0], max(times), flags)
        )

    return write


def _iggy(
    pack: Callable[[Sequence[Record]], bytes], make: Callable[..., Prepared], codec: Codec
) -> Writer:
    def write(found: Sequence[Record], base_offset: int, now_us: int) -> tuple[int, Prepared]:
        messages = memoryview(pack(found))
        return codec.format, make(messages, base_offset, now_us, key=found[0].key)

    return write


def _from_batch(
    messages: memoryview, base_offset: int, now_us: int, *, key: bytes | None
) -> Prepared:
    count = int.from_bytes(messages[48:52], "little")
    return body_from_batch(messages, count, base_offset, now_us, key=key)


WRITERS: dict[str, Writer] = {
    "kafka-0": _kafka_0(False),
    "kafka-0 gzip": _kafka_0(True),
    "kafka-1": _kafka_1(False),
    "kafka-1 gzip": _kafka_1(True),
    "kafka-2": _kafka_2(False),
    "kafka-2 gzip": _kafka_2(True),
    "pulsar": _pulsar("pulsar"),
    "pulsar zlib": _pulsar("pulsar zlib"),
    "pulsar batch": _pulsar("pulsar batch"),
    "pulsar batch zlib": _pulsar("pulsar batch zlib"),
    "iggy": _iggy(iggy_forms.sent_classic, body_from_send, IGGY),
    "iggy-typed 0.7": _iggy(iggy_forms.sent_untyped, body_from_untyped, IGGY_TYPED),
    "iggy-typed 0.9": _iggy(iggy_forms.sent_typed, body_from_typed, IGGY_TYPED),
    "iggy-typed 0.11": _iggy(iggy_forms.sent_batch, _from_batch, IGGY_TYPED),
}
