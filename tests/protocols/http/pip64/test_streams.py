import base64
import json
import random
import threading

import msgspec
import pytest

from braidlog.protocols.http.limits import JSON_PIECE_BYTES, LARGE_RECORD_BYTES
from braidlog.protocols.http.pip64 import streams
from braidlog.protocols.http.pip64.messages import FetchAnswer, ShownMessage, ShownSchema
from braidlog.protocols.http.pip64.showing import TEXT_PIECE_BYTES, _as_text, is_binary


def shown(number: int, value: str) -> ShownMessage:
    return ShownMessage(f"id {number}", 0, value=value)


async def sent(response) -> tuple[dict[bytes, bytes], list[bytes]]:
    """Return the head and the pieces of an answer."""
    head: dict[bytes, bytes] = {}
    pieces: list[bytes] = []

    async def send(message):
        if message["type"] == "http.response.start":
            head.update(message["headers"])
        else:
            pieces.append(message["body"])

    await response({}, None, send)
    return head, pieces


async def test_a_large_answer_is_encoded_and_sent_in_pieces():
    messages = [shown(number, "v" * 100_000) for number in range(20)]
    answer = FetchAnswer(list(messages), [ShownSchema("STRING", 0, "", {})])
    head, pieces = await sent(await streams.whole(answer))
    whole = b"".join(pieces)
    assert len(pieces) > 4
    assert max(map(len, pieces)) < 2 * JSON_PIECE_BYTES
    assert head[b"content-length"] == b"%d" % len(whole)
    body = json.loads(whole)
    assert [message["messageId"] for message in body["messages"]] == [
        message.messageId for message in messages
    ]
    assert len(body["schemas"]) == 1


async def test_small_messages_are_encoded_together_with_the_same_result():
    messages = [shown(number, "v" * (number % 50)) for number in range(3000)]
    pieces_of = []
    for largest_bytes in (0, 50):
        answer = FetchAnswer(list(messages), [ShownSchema("STRING", 0, "", {})])
        _, pieces = await sent(await streams.whole(answer, largest_bytes))
        pieces_of.append(b"".join(pieces))
    assert pieces_of[0] == pieces_of[1]
    assert len(json.loads(pieces_of[1])["messages"]) == len(messages)
    answer = FetchAnswer(messages[:1])
    _, pieces = await sent(await streams.whole(answer, 50))
    assert json.loads(b"".join(pieces))["messages"][0]["messageId"] == "id 0"


async def test_an_answer_without_messages_is_whole():
    _, pieces = await sent(await streams.whole(FetchAnswer([])))
    assert pieces == [b'{"messages":[]}']


async def test_lines_end_with_each_message():
    many = [shown(number, "v" * 100_000) for number in range(9)]
    for messages in ([], many[:1], many):
        _, pieces = await sent(await streams.lines(streams.Shown(messages), {}))
        text = b"".join(pieces)
        assert text.count(b"\n") == len(messages)
        assert [json.loads(line)["messageId"] for line in text.splitlines()] == [
            message.messageId for message in messages
        ]


# A JSON value is kept as written, with its client's line breaks.
PRETTY = ShownMessage("id 0", 0, value=msgspec.Raw(b'{\n  "a": 1,\r\n\r  "b": "x\\ny"\n}'))


async def test_a_value_of_several_lines_is_a_single_line():
    _, pieces = await sent(await streams.lines(streams.Shown([PRETTY, PRETTY]), {}))
    decoded = [json.loads(line) for line in b"".join(pieces).splitlines()]
    assert [message["value"] for message in decoded] == [{"a": 1, "b": "x\ny"}] * 2


def test_a_value_of_several_lines_is_a_single_event():
    place, data, *end = streams._event(PRETTY).splitlines()
    assert place == b"id: id 0" and end == [b""]
    assert json.loads(data.removeprefix(b"data: "))["value"] == {"a": 1, "b": "x\ny"}


async def test_a_value_of_several_lines_is_unchanged_in_an_object():
    _, pieces = await sent(await streams.whole(FetchAnswer([PRETTY])))
    assert bytes(PRETTY.value) in b"".join(pieces)


LONG_TEXTS = {
    "ascii": "v" * 3_000_000,
    "escaped": '"value":"" \\ \n\x01' * 200_000,
    "wide": "vé€😀" * 500_000,
}


@pytest.mark.parametrize("name", LONG_TEXTS)
@pytest.mark.parametrize("largest_bytes", [0, 16 << 20], ids=["in the loop", "in a thread"])
async def test_long_text_is_encoded_in_pieces(name, largest_bytes):
    """Beside a property that looks like the text's place."""
    message = ShownMessage(
        "id 0", 0, value=LONG_TEXTS[name], key="k", properties={"value": "", "b": '"value":""'}
    )
    expected = json.loads(msgspec.json.encode(message))
    for encode, form in ((msgspec.json.encode, b","), (streams._line, b"\n")):
        pieces = await streams._encoded(
            streams.Shown([message, message], largest_bytes), form, encode
        )
        assert max(map(len, pieces)) < 6 * JSON_PIECE_BYTES
        assert len(pieces) > 8
        assert json.loads(b"[" + b"".join(pieces).replace(b"\n", b",") + b"]") == [expected] * 2


async def test_a_message_with_a_large_record_is_encoded_in_the_thread_for_large_records():
    threads = []

    def encode(message):
        threads.append(threading.current_thread())
        return msgspec.json.encode(message)

    for largest_bytes in (LARGE_RECORD_BYTES, LARGE_RECORD_BYTES + 1):
        await streams._encoded(streams.Shown([PRETTY], largest_bytes), b",", encode)
    own = threading.current_thread()
    assert [thread is own for thread in threads] == [True, False]


def test_a_few_control_characters_are_text_and_many_are_not():
    assert not is_binary(b"\0\x1b[0m")
    assert not is_binary("tab\tand é\n".encode() * 1000)
    assert is_binary(bytes(1000))
    assert is_binary(b"abcd\0" * 1000)


@pytest.mark.parametrize("size", [TEXT_PIECE_BYTES, TEXT_PIECE_BYTES + 1, 5 * TEXT_PIECE_BYTES])
def test_long_values_are_shown_as_short_values_are(size):
    rng = random.Random(size)
    text = ("é€😀" * size)[: size // 3].encode()
    assert _as_text(text, "auto") == (text.decode(), "utf8")
    data = rng.randbytes(size)
    assert _as_text(data, "auto") == (base64.b64encode(data).decode(), "base64")
    cut = text[:-1]  # In the middle of a character.
    assert _as_text(cut, "auto") == (base64.b64encode(cut).decode(), "base64")
