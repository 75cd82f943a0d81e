"""What numpy makes of many messages at once against what is made of them one by one."""

import random
import struct
import subprocess
import sys

import pytest

pytest.importorskip("numpy", reason="the extra `fast` is not installed")

from storage.codecs import iggy, iggy_typed
from storage.codecs.base import Stored, Wanted
from storage.codecs.iggy import IGGY, body_from_send
from storage.codecs.iggy_forms import (
    BATCH_HEAD_BYTES,
    ONE_BATCH_MAX,
    batches,
    batches_one_by_one,
    body_from_batch,
    body_one_by_one,
)
from storage.codecs.iggy_rows import batches_of, body_of_batch, body_of_typed
from storage.codecs.iggy_typed import (
    IGGY_TYPED,
    BrokenRule,
    body_from_typed,
    pack_header,
    stamp_one_by_one,
)
from storage.errors import CorruptBody, RecordTooLarge
from tests.storage.codecs.test_iggy import header, sent
from tests.storage.codecs.test_iggy_forms import batch, frame

iggy.ROWS.wait()
HEAD = b"\x02\x00\x00\x00k1"
KINDS = ("equal", "mixed", "equal headers", "mixed headers")


def headers(chance: random.Random) -> bytes:
    return b"".join(
        pack_header(b"key-%d" % number, chance.randbytes(chance.randrange(1, 9)), 1)
        for number in range(chance.randrange(3))
    )


def contents(chance: random.Random, kind: str, count: int) -> list[tuple[bytes, bytes]]:
    """Payloads and headers."""
    if kind == "equal":
        return [(chance.randbytes(40), b"") for _ in range(count)]
    if kind == "equal headers":
        return [(chance.randbytes(4), pack_header(b"n", b"%03d" % at, 2)) for at in range(count)]
    block = headers if kind == "mixed headers" else lambda _: b""
    return [(chance.randbytes(chance.randrange(1, 90)), block(chance)) for _ in range(count)]


def typed(payload: bytes, block: bytes, *, message_id: int = 1, sent_us: int = 7) -> bytes:
    head = struct.pack("<Q16sQQQIIQ", 0, message_id.to_bytes(16, "little"), 0, 0, sent_us,
                       len(block), len(payload), 0)  # fmt: skip
    return head + payload + block


def sent_batch(chance: random.Random, kind: str, count: int, **more: int) -> bytes:
    frames = [
        frame(payload, number=at, headers=block, delta=chance.randrange(1000))
        for at, (payload, block) in enumerate(contents(chance, kind, count))
    ]
    return batch(*frames, **more)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_becomes_the_same_body(kind, seed):
    chance = random.Random(seed)
    sent_us = chance.choice([0, 5, 1_700_000_000_000_000])
    data = memoryview(sent_batch(chance, kind, chance.randrange(1, 90), sent_us=sent_us))
    base_offset = chance.choice([0, 7, 1 << 62])
    body, info = body_of_batch(data, HEAD, base_offset, 9)
    expected = body_one_by_one(data, HEAD, base_offset, 9, sent_us)
    assert (bytes(body), info) == expected


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", KINDS)
def test_typed_messages_become_the_same_body(kind, seed):
    chance = random.Random(seed)
    messages = b"".join(
        typed(*one, message_id=chance.getrandbits(128) or 1, sent_us=chance.choice([0, 3, 1 << 63]))
        for one in contents(chance, kind, chance.randrange(1, 90))
    )
    quick, slow = bytearray(HEAD + messages), bytearray(HEAD + messages)
    base_offset = chance.choice([0, 7, 1 << 62])
    arguments = (len(HEAD), base_offset, 9, chance.randbytes)
    info = body_of_typed(memoryview(quick), *arguments)
    assert info == stamp_one_by_one(memoryview(slow), *arguments)
    assert quick == slow


def test_messages_without_an_id_get_uuids_of_version_4_and_others_keep_theirs():
    messages = b"".join(typed(b"x" * 40, b"", message_id=at % 2 * 5) for at in range(200))
    prepared = body_from_typed(messages, 0, 1, random_bytes=random.Random(5).randbytes)
    records = iggy_typed.IGGY_TYPED.decode(prepared.body, 0, 1).records
    ids = [record.message_id for record in records]
    assert ids[1::2] == [5] * 100
    fresh = [number.to_bytes(16, "little") for number in ids[::2]]
    assert len(set(fresh)) == 100
    assert {(one[6] >> 4, one[8] >> 6) for one in fresh} == {(4, 2)}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", KINDS)
def test_stored_records_become_the_same_batches(kind, seed):
    chance = random.Random(seed)
    records = b""
    for at in range(chance.randrange(1, 4)):  # Of some appends.
        body = body_one_by_one(
            memoryview(sent_batch(chance, kind, chance.randrange(1, 40))), b"", at * 50, at, 5
        )[0]
        records += body
    made = [bytes(one) for one in batches_of(memoryview(records), 3)]
    assert made == list(batches_one_by_one(memoryview(records), 3))


def test_a_long_run_becomes_several_batches():
    one = body_one_by_one(memoryview(batch(frame(b"x"))), b"", 0, 9, 5)[0]
    records = memoryview(one * (ONE_BATCH_MAX + 1))
    counts = [struct.unpack_from("<I", made, 48)[0] for made in batches(records, 0)]
    assert counts == [ONE_BATCH_MAX, 1]


@pytest.mark.parametrize("seed", range(40))
def test_what_is_damaged_is_told_as_one_by_one(seed):
    chance = random.Random(seed)
    good = sent_batch(chance, chance.choice(KINDS), 80)
    data = bytearray(good)
    place = chance.randrange(BATCH_HEAD_BYTES, len(data))
    data[place] ^= 1 << chance.randrange(8)
    if chance.random() < 0.3:
        cut = bytearray(good[: -chance.randrange(1, 40)])
        struct.pack_into("<Q", cut, 32, len(cut))
        data = cut
    with pytest.raises((CorruptBody, RecordTooLarge)) as expected:
        body_one_by_one(memoryview(data), HEAD, 0, 9, 5)
    assert body_of_batch(memoryview(data), HEAD, 0, 9) is None
    with pytest.raises(type(expected.value), match=None) as found:
        body_from_batch(data, 80, 0, 9)
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize(
    "wrong",
    [
        typed(b"", b""),
        typed(b"x" * 40, b"\0"),
        typed(b"x" * 40, pack_header(b"", b"v", 2)),
        typed(b"x" * 40, pack_header(b"n", b"v", 16)),
        typed(b"x" * 40, pack_header(b"\xff", b"v", 2)),
        typed(b"x" * 40, b"")[:-1],
        typed(b"x" * 40, b"")[:24] + b"\1" + typed(b"x" * 40, b"")[25:],
        typed(b"x" * 40, b"")[:32] + b"\1" + typed(b"x" * 40, b"")[33:],
    ],
)
def test_what_breaks_a_rule_is_left_to_one_by_one(wrong):
    messages = typed(b"x" * 40, b"") * 80 + wrong
    body = bytearray(messages)
    assert body_of_typed(memoryview(body), 0, 0, 9, random.randbytes) is None
    assert body == messages
    with pytest.raises((CorruptBody, BrokenRule)):
        body_from_typed(messages, 0, 9)


def test_small_sends_do_not_load_numpy():
    code = (
        "import sys; from tests.storage.codecs.test_iggy_forms import batch, frame;"
        "from storage.codecs.iggy_forms import body_from_batch;"
        "body_from_batch(batch(frame(b'x')), 1, 0, 9);"
        "assert 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def made_over(codec, body, body_format):
    """All of a body by `converted`; None where it does not go that way."""
    count = 300  # Or fewer: only whether all of them are wanted depends on it.
    made = codec.converted(Stored(body, body_format, 9, 0, count, True), Wanted(0, count, 1 << 20))
    return None if made is None else made.records


def by_records(source, target, body):
    """What `converted` gives, by way of records."""
    records = source.decode(body, 0, 9).records
    return bytes(target.readable(target.encode(records, 0)))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", ["equal", "mixed"])
def test_classic_and_later_forms_become_each_other_without_records(kind, seed):
    chance = random.Random(seed)
    payloads = [payload for payload, _ in contents(chance, kind, 300)]
    classic = body_from_send(b"".join(sent(one, message_id=7) for one in payloads), 40, 9).body
    made = made_over(IGGY_TYPED, classic, IGGY.format)
    assert bytes(made) == by_records(IGGY, IGGY_TYPED, classic)
    typed_body = body_from_typed(b"".join(typed(one, b"") for one in payloads), 40, 9).body
    made = made_over(IGGY, typed_body, IGGY_TYPED.format)
    assert bytes(made) == by_records(IGGY_TYPED, IGGY, typed_body)


def test_what_takes_a_look_at_each_message_goes_by_records():
    block = pack_header(b"n", b"v", 2)
    many = b"".join(typed(b"x" * 40, b"") for _ in range(100))
    with_headers = body_from_typed(many + typed(b"x", block), 0, 9).body
    empty = body_one_by_one(
        memoryview(batch(*(frame(b"x" * 60 if at else b"", number=at) for at in range(90)))),
        bytes(4), 0, 9, 5,
    )[0]  # fmt: skip
    for body in (with_headers, empty):
        assert made_over(IGGY, body, IGGY_TYPED.format) is None
    plain = sent(b"y" * 40, message_id=3)
    headed = sent(b"y" * 40, header(b"n", b"v"), 3)
    classic = body_from_send(plain * 100 + headed + plain, 0, 9).body
    assert made_over(IGGY_TYPED, classic, IGGY.format) is None
    assert made_over(IGGY_TYPED, classic, 1) is None


def test_a_partitioning_key_is_nothing_that_readers_of_iggy_are_shown():
    many = b"".join(sent(b"y" * 40, message_id=3) for _ in range(100))
    keyed, plain = (body_from_send(many, 0, 9, key=key).body for key in (b"k", None))
    made = made_over(IGGY_TYPED, keyed, IGGY.format)
    assert bytes(made) == bytes(made_over(IGGY_TYPED, plain, IGGY.format))
