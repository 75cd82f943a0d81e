"""The C extension's conversion of many Iggy messages at once, compared with Python's per message;
and equal bodies without the extension.
"""

import random
import struct
from functools import partial

import pytest
import xxhash

from braidlog.storage.errors import CorruptBody, StorageError
from braidlog.storage.formats.base import Stored, WantedRecords
from braidlog.storage.formats.iggy import quick as iggy_quick
from braidlog.storage.formats.iggy import typed as iggy_typed
from braidlog.storage.formats.iggy.classic import (
    IGGY,
    KEY_HEADER,
    body_from_send,
    pack_key,
    read_key,
)
from braidlog.storage.formats.iggy.forms import (
    BATCH_HEAD_BYTES,
    ONE_BATCH_MAX,
    batches,
    batches_one_by_one,
    body_from_batch,
    body_one_by_one,
)
from braidlog.storage.formats.iggy.quick import Form, reencoded, stored_send
from braidlog.storage.formats.iggy.typed import (
    IGGY_TYPED,
    SEND_LIMITS,
    body_from_typed,
    pack_header,
)
from braidlog.storage.formats.kafka.message_sets import KAFKA
from braidlog.storage.formats.record import Record
from tests.storage.formats.iggy.test_classic import header, sent
from tests.storage.formats.iggy.test_forms import batch, batches_of, frame
from tests.storage.formats.speedup_samples import iggy_messages, kafka_set, mutated

in_c = pytest.mark.skipif(iggy_quick.SPEEDUPS is None, reason="the extension is not there")
ROUNDS = 150
ALL = WantedRecords(0, 10_000, 1 << 20)
CODECS = {IGGY.format: IGGY, IGGY_TYPED.format: IGGY_TYPED}


@pytest.fixture
def in_python(monkeypatch):
    """Return a function that returns another function's result, or error, without the extension."""

    def run(function, *arguments, **options):
        with monkeypatch.context() as patched:
            patched.setattr(iggy_quick, "SPEEDUPS", None)
            return outcome(function, *arguments, **options)

    return run


def outcome(function, *arguments, **options):
    try:
        return function(*arguments, **options)
    except StorageError as error:
        return type(error), str(error)


def same(block, size):
    """Return random bytes that both ways see alike, for any request size."""
    return block * (size // 16)


def of_kind(kind, header):
    """Return a header whose name is of that kind."""
    return bytes((kind,)) + header[1:]


def headers(chance, kinds=(2, 2, 2, 1)):
    """Return headers with kinds of names."""
    return b"".join(
        of_kind(
            chance.choice(kinds),
            pack_header(
                chance.choice([b"name-%d" % at, "ключ".encode()]),
                chance.randbytes(chance.randrange(1, 9)),
                chance.choice([1, 1, 1, 2, 15]),
            ),
        )
        for at in range(chance.choice([0, 0, 1, 3]))
    )


def typed(payload, block=b"", *, message_id=1, sent_us=7, reserved=0):
    """Return a message of crate 0.9 as sent."""
    message_id = message_id.to_bytes(16, "little")
    sizes = (len(block), len(payload), reserved)
    return struct.pack("<Q16sQQQIIQ", 0, message_id, 0, 0, sent_us, *sizes) + payload + block


def typed_messages(chance):
    return b"".join(
        typed(
            chance.randbytes(chance.choice([1, 5, 100, 300])),
            headers(chance),
            message_id=chance.choice([0, chance.getrandbits(128)]),
            sent_us=chance.choice([0, 3, 1_700_000_000_000_000, 1 << 63, (1 << 64) - 1]),
        )
        for _ in range(chance.randrange(1, 12))
    )


def frames(chance):
    """Return frames of a batch, with right checksums despite other faults."""
    wrong = chance.random() < 0.4
    for number in range(chance.randrange(1, 12)):
        spoilt = wrong and chance.random() < 0.3
        block = headers(chance)
        yield frame(
            chance.randbytes(chance.choice([0, 1, 5, 100, 300])),
            number=number + (spoilt and chance.random() < 0.2),
            headers=mutated(chance, block) if spoilt else block,
            delta=chance.choice([0, 1, 1 << 31]),
        )


@in_c
def test_xxh3_of_every_length():
    data = random.Random(3).randbytes(3000)
    for size in (*range(1, 1300), 2047, 2048, 2049, 2999):
        prepared = body_from_typed(typed(data[:size]), 0, 9)
        checksum, checked = bytes(prepared.body[4:12]), bytes(prepared.body[12:])
        assert checksum == struct.pack("<Q", xxhash.xxh3_64_intdigest(checked)), size


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("make", [iggy_messages, typed_messages])
def test_sends_become_the_same_bodies(make, seed, in_python):
    chance = random.Random(seed)
    function = body_from_typed if make is typed_messages else body_from_send
    refused = 0
    for _ in range(ROUNDS):
        data = mutated(chance, make(chance))
        options = {"key": b"k1", "random_bytes": partial(same, chance.randbytes(16))}
        body = outcome(function, data, 1 << 40, 9, **options)
        wanted = in_python(function, data, 1 << 40, 9, **options)
        if isinstance(wanted, tuple):
            refused += 1
            assert body == wanted, (seed, data)
        else:
            assert (bytes(body.body), body.info) == (bytes(wanted.body), wanted.info), (seed, data)
    assert 0 < refused < ROUNDS


@pytest.mark.parametrize("seed", range(4))
def test_batches_become_the_same_bodies(seed, in_python):
    chance = random.Random(seed)
    refused = 0
    times = [0, 5, 1_700_000_000_000_000, (1 << 63) - 2, (1 << 64) - 1]
    for _ in range(ROUNDS):
        parts = list(frames(chance))
        data = batch(*parts, sent_us=chance.choice(times))
        if chance.random() < 0.2:
            cut = bytearray(data[:BATCH_HEAD_BYTES] + mutated(chance, data[BATCH_HEAD_BYTES:]))
            struct.pack_into("<Q", cut, 32, len(cut))
            data = bytes(cut)
        count = len(parts) + (chance.random() < 0.05)
        body = outcome(body_from_batch, data, count, 1 << 40, 9, key=b"k")
        wanted = in_python(body_from_batch, data, count, 1 << 40, 9, key=b"k")
        if isinstance(wanted, tuple):
            refused += 1
            assert body == wanted, (seed, data)
        else:
            assert (bytes(body.body), body.info) == (bytes(wanted.body), wanted.info), (seed, data)
    assert 0 < refused < ROUNDS


@in_c
@pytest.mark.parametrize(
    ("form", "messages"),
    [
        (Form.SENT, sent(b"x")),
        (Form.SENT, sent(b"x" * 300, header(b"name", b"v"))),
        (Form.TYPED, typed(b"x" * 300, pack_header(b"n", b"v", 2))),
        (Form.FRAME, frame(b"", number=0) + frame(b"y" * 300, number=1)),
    ],
)
def test_valid_messages_need_no_python_and_cut_messages_are_left_to_it(form, messages):
    stamps = (7, 9, 5)
    assert stored_send(messages, form, b"", stamps, SEND_LIMITS, random.randbytes) is not None
    for end in range(len(messages)):
        if form is not Form.FRAME or end != len(frame(b"")):  # A whole frame.
            body = stored_send(messages[:end], form, b"", stamps, SEND_LIMITS, random.randbytes)
            assert body is None


@in_c
def test_messages_without_an_id_get_uuids_of_version_4_and_others_keep_theirs():
    messages = b"".join(typed(b"x" * 40, message_id=at % 2 * 5) for at in range(200))
    prepared = body_from_typed(messages, 0, 1, random_bytes=random.Random(5).randbytes)
    ids = [record.message_id for record in IGGY_TYPED.decode(prepared.body, 0, 1).records]
    assert ids[1::2] == [5] * 100
    fresh = [number.to_bytes(16, "little") for number in ids[::2]]
    assert len(set(fresh)) == 100
    assert {(message_id[6] >> 4, message_id[8] >> 6) for message_id in fresh} == {(4, 2)}


# Conversion between stored forms.


def stored_bodies(chance, body_format):
    """Return a stored body of an Iggy form, or a Kafka set."""
    if body_format == KAFKA.format:
        return kafka_set(chance)
    if body_format == IGGY.format:
        return bytes(body_from_send(iggy_messages(chance), 40, 9, key=b"k").body)
    return bytes(body_from_typed(typed_messages(chance), 40, 9, key=b"k").body)


@in_c
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("source", [IGGY.format, IGGY_TYPED.format, KAFKA.format])
@pytest.mark.parametrize("target", CODECS.values())
def test_direct_conversion_equals_conversion_by_records(target, source, seed):
    if target.format == source:
        return
    chance = random.Random(seed)
    converted = 0
    for _ in range(ROUNDS):
        body = stored_bodies(chance, source)
        if source == KAFKA.format:
            body = mutated(chance, body)
        wanted = WantedRecords(
            chance.choice((0, 0, 3, 43)), chance.randrange(1, 12), chance.choice((150, 9000))
        )
        part = target.converted(Stored(body, source, 0, 9, 12), wanted)
        converted += part.count
        assert len(part.records) <= wanted.bytes_max and part.count <= wanted.records_max
        if not part.count:
            continue
        codec = CODECS.get(source, KAFKA)
        start = wanted.start_offset
        decoded = codec.decode(body, 0, 9, start_offset=start, records_max=part.count)
        for record in decoded.records:
            record.key = record.key if source == KAFKA.format else None
        expected = target.readable(target.encode(decoded.records, 0))
        assert bytes(part.records) == bytes(expected), (seed, body)
        first, last = decoded.records[0].offset, decoded.records[-1].offset
        assert (part.first_offset, part.next_offset) == (first, last + 1)
    assert converted > ROUNDS // 10


@in_c
def test_direct_conversion_takes_all_of_a_valid_body():
    blocks = [b"", pack_header(b"n", b"v", 2) + pack_header(b"more", b"\xff", 1)]
    many = b"".join(typed(b"x" * (at + 1), blocks[at % 2]) for at in range(300))
    body = body_from_typed(many, 0, 9).body
    part = IGGY.converted(Stored(body, IGGY_TYPED.format, 0, 9, 300), ALL)
    assert (part.count, part.next_offset, part.is_full) == (300, 300, False)
    back = IGGY_TYPED.converted(Stored(bytes(4) + part.records, IGGY.format, 0, 9, 300), ALL)
    assert back.count == 300
    assert len(back.records) == len(body) - read_key(body)[0]


@in_c
def test_direct_conversion_ends_before_records_for_python():
    plain = typed(b"x")
    for odd in (
        typed(b"x", of_kind(1, pack_header(b"n", b"v", 2))),  # The name is binary,
        typed(b"x", pack_header("ключ".encode(), b"v", 2)),  # or possibly binary,
        typed(b"x", pack_header(b"n", b"\xff", 2)),  # or the value is.
    ):
        body = body_from_typed(plain + odd + plain, 0, 9).body
        part = IGGY.converted(Stored(body, IGGY_TYPED.format, 0, 9, 3), ALL)
        assert (part.count, part.next_offset, part.is_full) == (1, 1, False)
    empty = batch(frame(b"x", number=0), frame(b"", number=1))
    body = body_one_by_one(memoryview(empty), bytes(4), 0, 9, 5)[0]
    assert IGGY.converted(Stored(body, IGGY_TYPED.format, 0, 9, 2), ALL).count == 1


@in_c
def test_direct_conversion_reports_a_lack_of_room():
    body = body_from_send(sent(b"x" * 50) * 3, 0, 9).body
    for room, count in ((0, 0), (113, 0), (114, 1), (228, 2), (341, 2), (342, 3)):
        part = IGGY_TYPED.converted(Stored(body, IGGY.format, 0, 9, 3), WantedRecords(0, 100, room))
        assert (part.count, part.is_full) == (count, count < 3)
    part = IGGY_TYPED.converted(Stored(body, IGGY.format, 0, 9, 3), WantedRecords(1, 1, 9000))
    assert (part.count, part.first_offset, part.next_offset, part.is_full) == (1, 1, 2, True)


@in_c
@pytest.mark.parametrize("target", CODECS.values())
def test_the_key_of_a_message_of_a_set_is_a_header(target):
    stored = KAFKA.encode([Record(0, 9, key=b"k" * 255, value=b"v" * 100)], 0)
    part = target.converted(Stored(stored, KAFKA.format, 0, 9, 1), ALL)
    (record,) = target.decode(bytes(4) + part.records, 0, 9).records
    assert [(header.name, header.value) for header in record.headers] == [(KEY_HEADER, b"k" * 255)]


def test_no_other_format_is_converted_directly(in_python):
    body = body_from_send(sent(b"x"), 0, 9).body
    assert IGGY_TYPED.converted(Stored(body, 1, 0, 9, 1), ALL) is None
    assert in_python(IGGY_TYPED.converted, Stored(body, IGGY.format, 0, 9, 1), ALL) is None
    wanted = (Form.CLASSIC, Form.TYPED, Stored(body, IGGY.format, 0, 9, 1), ALL)
    assert in_python(reencoded, body[4:], *wanted) is None


# Polls of the newest dialect.


def stored_records(chance):
    """Return records of several appends."""
    whole = b""
    for at in range(chance.randrange(1, 4)):
        parts = [
            frame(chance.randbytes(chance.choice([0, 9, 300, 2100])), number=number,
                  headers=headers(chance), delta=chance.choice([0, 5, (1 << 32) - 1]))
            for number in range(chance.randrange(1, 20))
        ]  # fmt: skip
        data = memoryview(batch(*parts, sent_us=chance.choice([0, 5, 1 << 50])))
        sent_us = struct.unpack_from("<Q", data, 24)[0]
        whole += body_one_by_one(data, b"", at * 50, chance.choice([at, 7]), sent_us)[0]
    return memoryview(whole)


@pytest.mark.parametrize("seed", range(40))
def test_stored_records_become_the_same_batches(seed):
    records = stored_records(random.Random(seed))
    assert b"".join(batches(records, 3)) == b"".join(batches_one_by_one(records, 3))


def test_truncated_records_are_reported():
    records = stored_records(random.Random(1))
    for cut in (records[:-1], records[:20]):
        with pytest.raises(CorruptBody):
            list(batches(cut, 3))


def test_a_long_run_becomes_several_batches():
    stored_body = body_one_by_one(memoryview(batch(frame(b"x"))), b"", 0, 9, 5)[0]
    joined = batches(memoryview(stored_body * (ONE_BATCH_MAX + 1)), 0)
    counts = [struct.unpack_from("<I", piece, 48)[0] for piece in batches_of(joined)]
    assert counts == [ONE_BATCH_MAX, 1]


def test_distant_offsets_are_in_different_batches():
    parts = [
        body_one_by_one(memoryview(batch(frame(b"x"))), b"", offset, 9, 5)[0]
        for offset in (0, (1 << 32) - 1, 1 << 32)
    ]
    records = memoryview(b"".join(parts))
    joined = batches_of(batches(records, 0))
    assert joined == list(batches_one_by_one(records, 0))
    assert [struct.unpack_from("<I", piece, 48)[0] for piece in joined] == [2, 1]


def test_readers_of_iggy_do_not_see_a_partitioning_key():
    many = sent(b"y" * 40, message_id=3) * 9
    keyed, plain = (body_from_send(many, 0, 9, key=key).body for key in (b"k", None))
    assert pack_key(b"k") == keyed[:5]
    answers = [
        IGGY_TYPED.converted(Stored(stored_body, IGGY.format, 0, 9, 9), ALL)
        for stored_body in (keyed, plain)
    ]
    assert answers[0] == answers[1]
    assert iggy_typed.IGGY_TYPED.readable(keyed) == IGGY_TYPED.readable(plain)


@in_c
def test_messages_without_checksum_have_none():
    message = bytes(range(16)) + bytes(4) + struct.pack("<I", 1) + b"x"
    messages, checksums = message * 3, bytearray(b"\xaa" * 24)
    body = bytearray(45 * 3 + 3)
    place = (Form.CLASSIC, body, 0)
    iggy_quick.SPEEDUPS.iggy_write(messages, Form.SENT, 0, *place, 3, 0, 7, 9, 0, b"", checksums)
    assert checksums == b"\xaa" * 24
