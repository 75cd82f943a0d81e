import json

import msgspec

from braidlog.protocols.http.limits import JSON_PIECE_BYTES
from braidlog.protocols.http.pip64 import streams
from braidlog.protocols.http.pip64.messages import FetchAnswer, ShownMessage, ShownSchema
from braidlog.protocols.http.pip64.showing import is_binary


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
    found = json.loads(whole)
    assert [one["messageId"] for one in found["messages"]] == [one.messageId for one in messages]
    assert len(found["schemas"]) == 1


async def test_an_answer_without_messages_is_whole():
    _, pieces = await sent(await streams.whole(FetchAnswer([])))
    assert pieces == [b'{"messages":[]}']


async def test_lines_end_with_each_message():
    many = [shown(number, "v" * 100_000) for number in range(9)]
    for messages in ([], many[:1], many):
        _, pieces = await sent(await streams.lines(messages, {}))
        text = b"".join(pieces)
        assert text.count(b"\n") == len(messages)
        assert [json.loads(line)["messageId"] for line in text.splitlines()] == [
            one.messageId for one in messages
        ]


# A JSON value is kept as written, with its client's line breaks.
PRETTY = ShownMessage("id 0", 0, value=msgspec.Raw(b'{\n  "a": 1,\r\n\r  "b": "x\\ny"\n}'))


async def test_a_value_of_several_lines_is_a_single_line():
    _, pieces = await sent(await streams.lines([PRETTY, PRETTY], {}))
    found = [json.loads(line) for line in b"".join(pieces).splitlines()]
    assert [one["value"] for one in found] == [{"a": 1, "b": "x\ny"}] * 2


def test_a_value_of_several_lines_is_a_single_event():
    place, data, *end = streams._event(PRETTY).splitlines()
    assert place == b"id: id 0" and end == [b""]
    assert json.loads(data.removeprefix(b"data: "))["value"] == {"a": 1, "b": "x\ny"}


async def test_a_value_of_several_lines_is_unchanged_in_an_object():
    _, pieces = await sent(await streams.whole(FetchAnswer([PRETTY])))
    assert bytes(PRETTY.value) in b"".join(pieces)


def test_a_few_control_characters_are_text_and_many_are_not():
    assert not is_binary(b"\0\x1b[0m")
    assert not is_binary("tab\tand é\n".encode() * 1000)
    assert is_binary(bytes(1000))
    assert is_binary(b"abcd\0" * 1000)
