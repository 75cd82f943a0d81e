"""Clients' bytes on their way into the log: made here, checked and stamped by the broker's code.

HTTP uses a separate request and is not here.
"""

from collections.abc import Callable, Sequence

from braidlog.storage.formats.api import Prepared
from braidlog.storage.formats.compression import INFLATED_BYTES_MAX
from braidlog.storage.formats.iggy.prepare import SentForm
from braidlog.storage.formats.iggy.prepare import prepare as iggy_prepare
from braidlog.storage.formats.kafka import prepare as kafka_prepare
from braidlog.storage.formats.pulsar.entry_runs import parse_send
from braidlog.storage.formats.pulsar.prepare import BODY_FORMAT, EntryRun
from braidlog.storage.formats.record import Record
from conformance.mapping import iggy_forms, kafka_forms, pulsar_forms

LIMIT = 1 << 24

# From records, a base offset and the time: the body to append.
Writer = Callable[[Sequence[Record], int, int], Prepared]


def pulsar_entries(form: str, records: Sequence[Record]) -> list[tuple[bytes, int]]:
    """Return (entry, message count) of each SEND that a client makes from the records."""
    is_packed = "zlib" in form
    if "batch" in form:
        return [(pulsar_forms.batch_entry(records, is_packed), len(records))]
    return [(pulsar_forms.entry(record, is_packed), 1) for record in records]


def _kafka(pack: Callable[[Sequence[Record], bool], bytes | bytearray], is_packed: bool) -> Writer:
    def write(records: Sequence[Record], base_offset: int, now_us: int) -> Prepared:
        sent = memoryview(bytearray(pack(records, is_packed)))
        limits = kafka_prepare.SetLimits(LIMIT, LIMIT, INFLATED_BYTES_MAX)
        prepared = kafka_prepare.prepare(sent, base_offset, limits)
        if isinstance(prepared, kafka_prepare.PackedSet):
            prepared = prepared.open().at(base_offset)
        assert isinstance(prepared, Prepared)
        return prepared

    return write


def _pulsar(form: str) -> Writer:
    def write(records: Sequence[Record], base_offset: int, now_us: int) -> Prepared:
        run, sends = EntryRun(), pulsar_entries(form, records)
        for entry, count in sends:
            send = parse_send(entry)
            assert send.record_count == count and send.publish_us is not None
            run.add(memoryview(entry), send, 0, 0)
        parts, _ = run.prepare(len(sends))
        return Prepared(b"".join(parts), run.info, BODY_FORMAT)

    return write


def _iggy(pack: Callable[[Sequence[Record]], bytes], form: SentForm) -> Writer:
    def write(records: Sequence[Record], base_offset: int, now_us: int) -> Prepared:
        messages = memoryview(pack(records))
        count = int.from_bytes(messages[48:52], "little")  # of a batch
        return iggy_prepare(form, messages, count, base_offset, now_us, records[0].key)

    return write


WRITERS: dict[str, Writer] = {
    "kafka-0": _kafka(kafka_forms.produced_0, False),
    "kafka-0 gzip": _kafka(kafka_forms.produced_0, True),
    "kafka-1": _kafka(kafka_forms.produced_1, False),
    "kafka-1 gzip": _kafka(kafka_forms.produced_1, True),
    "kafka-2": _kafka(kafka_forms.produced_2, False),
    "kafka-2 gzip": _kafka(kafka_forms.produced_2, True),
    "pulsar": _pulsar("pulsar"),
    "pulsar zlib": _pulsar("pulsar zlib"),
    "pulsar batch": _pulsar("pulsar batch"),
    "pulsar batch zlib": _pulsar("pulsar batch zlib"),
    "iggy": _iggy(iggy_forms.sent_classic, SentForm.CLASSIC),
    "iggy-typed 0.7": _iggy(iggy_forms.sent_untyped, SentForm.UNTYPED),
    "iggy-typed 0.9": _iggy(iggy_forms.sent_typed, SentForm.TYPED),
    "iggy-typed 0.11": _iggy(iggy_forms.sent_batch, SentForm.BATCH),
    "iggy-typed 0.12": _iggy(iggy_forms.sent_producer_batch, SentForm.PRODUCER_BATCH),
}
