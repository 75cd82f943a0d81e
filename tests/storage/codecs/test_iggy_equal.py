"""What numpy makes of equal messages against what the plain loop makes of them one by one."""

import random
import subprocess
import sys

import pytest

pytest.importorskip("numpy", reason="the extra `fast` is not installed")

from storage.codecs import iggy
from storage.codecs.iggy import EQUAL_MIN, IGGY, body_from_send
from storage.codecs.iggy_equal import body_of_equal
from storage.errors import CorruptBody, RecordTooLarge
from tests.storage.codecs.test_iggy import header, sent

iggy.EQUAL.wait()


def by_the_loop(messages: list[bytes], base_offset: int, key: bytes | None) -> bytes:
    """One SEND a message: none is large enough for numpy."""
    bodies = [
        body_from_send(message, base_offset + at, 9, key=key).body
        for at, message in enumerate(messages)
    ]
    return iggy.pack_key(key) + b"".join(bytes(IGGY.readable(body)) for body in bodies)


@pytest.mark.parametrize("seed", range(10))
def test_equal_messages_become_the_body_that_the_loop_makes(seed: int) -> None:
    rng = random.Random(seed)
    size, key = rng.randint(1, 300), rng.choice([None, b"k", bytes(255)])
    base_offset = rng.choice([0, 7, 1 << 62])
    messages = [
        sent(rng.randbytes(size), message_id=rng.getrandbits(128) or 1) for _ in range(EQUAL_MIN)
    ]
    prepared = body_from_send(b"".join(messages), base_offset, 9, key=key)
    assert isinstance(prepared.body, memoryview), "numpy was not used"
    assert bytes(prepared.body) == by_the_loop(messages, base_offset, key)
    assert prepared.info.record_count == EQUAL_MIN


@pytest.mark.parametrize("known", [1, 1 << 64, 1 << 127])
def test_messages_without_an_id_get_uuids_of_version_4_and_others_keep_theirs(known: int) -> None:
    messages = b"".join(sent(b"payload", message_id=number % 2 * known) for number in range(200))
    seed = random.Random(5)
    body = body_from_send(messages, 0, 1, random_bytes=seed.randbytes).body
    ids = [record.message_id for record in IGGY.decode(body, 0, 1).records]
    assert ids[1::2] == [known] * 100
    fresh = [number.to_bytes(16, "little") for number in ids[::2]]
    assert len(set(fresh)) == 100
    assert {one[6] >> 4 for one in fresh} == {4}
    assert {one[8] >> 6 for one in fresh} == {2}


@pytest.mark.parametrize("place", [0, 1, EQUAL_MIN - 1])
def test_anything_unusual_is_left_to_the_loop(place: int) -> None:
    plain = [sent(b"v" * 40, message_id=3) for _ in range(EQUAL_MIN)]
    with_header = sent(b"v" * (40 - len(header(b"n", b"v"))), header(b"n", b"v"), 3)
    other_size = sent(b"v" * 41, message_id=3)
    for odd in (with_header, other_size):
        messages = [*plain[:place], odd, *plain[place + 1 :]]
        view = memoryview(b"".join(messages))
        assert body_of_equal(view, bytes(4), 0, 9, random.randbytes) is None
        assert bytes(body_from_send(view, 0, 9).body) == by_the_loop(messages, 0, None)


def test_what_is_wrong_is_told_as_by_the_loop() -> None:
    with pytest.raises(CorruptBody):
        body_from_send(sent(b"") * EQUAL_MIN, 0, 9)
    with pytest.raises(CorruptBody):
        body_from_send(sent(b"value") * EQUAL_MIN + b"v", 0, 9)
    with pytest.raises(RecordTooLarge):
        body_from_send(sent(b"value") * EQUAL_MIN, 0, 9, payload_bytes_max=5 * EQUAL_MIN - 1)


def test_small_sends_do_not_load_numpy() -> None:
    code = (
        "import sys; from storage.codecs.iggy import body_from_send;"
        "body_from_send((bytes(20) + bytes([1, 0, 0, 0]) + b'v') * 10, 0, 9);"
        "assert 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
