"""The recorded conversation with a real server of dialect D0, repeated here: equal answers except
varying fields, and the intended differences listed in `docs/protocols/iggy.md`.
"""

import struct

from tests.protocols.iggy import description, description_d0
from tests.protocols.iggy.recorded import CLOSED, Recorded, conversation
from tests.protocols.iggy.talk import Talk

D0 = "d0-server-670a8ba.tsv"

# Values that are the server's own, or depend on its storage of records.
VARYING = {"created_at", "client_id", "address", "timestamp", "size", "segments"}
# Answered before the connection ends.
TOO_LONG = ("length 2^31-1, nothing follows", "length 2^32-1, nothing follows")
# Intended differences: docs/protocols/iggy.md has the reasons.
DIFFERENT = {
    "CREATE_STREAM 9, a name of spaces (stored empty)": None,
    "GET_STREAM 9": bytes.fromhex("f103000000000000"),
    "GET_OFFSET consumer 7 is another space": "same",
    "GET_ME in group 7": "order",
    "POLL timestamp 0": "first",
    "GET_GROUP 7 after the refused create": "member",
    "GET_OFFSET of a group made anew": bytes.fromhex("bf0b000000000000"),
    "code 204 UPDATE_STREAM": bytes(8),
    "code 38 LOGIN iggy/iggy": bytes.fromhex("000000000400000001000000"),
    **dict.fromkeys(TOO_LONG, bytes.fromhex("0300000000000000")),
    "POLL by a member without a partition": "empty",
}


def frame(code: int, payload: str) -> bytes:
    data = bytes.fromhex(payload)
    return struct.pack("<II", 4 + len(data), code) + data


def name(number: int) -> str:
    return "0104" + number.to_bytes(4, "little").hex()


def create_topic(number: int, partitions: int) -> bytes:
    text = f"t{number}".encode()
    return frame(
        302,
        name(1) + struct.pack("<IIIB", number, partitions, 0, len(text)).hex() + text.hex(),
    )


def send(topic: int, partition: int, payload: bytes, message_id: int = 0) -> bytes:
    head = name(1) + name(topic) + "0204" + partition.to_bytes(4, "little").hex()
    message = message_id.to_bytes(16, "little") + struct.pack("<II", 0, len(payload)) + payload
    return frame(101, head + message.hex())


def headers_of(sum_bytes: int) -> bytes:
    block = b""
    for number in range(-(-sum_bytes // 255)):
        value = bytes(min(255, sum_bytes - 255 * number))
        block += struct.pack("<I", 3) + b"%03d" % number + b"\x01"
        block += struct.pack("<I", len(value)) + value
    return block


def long_request(row_name: str) -> bytes:
    """Return a SEND to partition 2 with a payload, or header values, of that size."""
    total = int(row_name.rpartition(" ")[2].replace(",", ""))
    head = name(1) + name(1) + "0204" + (3).to_bytes(4, "little").hex()
    if "payload" in row_name:
        message = bytes(16) + struct.pack("<II", 0, total) + bytes(total)
    else:
        block = headers_of(total)
        message = bytes(16) + struct.pack("<I", len(block)) + block + struct.pack("<I", 1) + b"x"
    return frame(101, head + message.hex())


# Actions between the rows: frames sent on the same connection before the row of that name.
ORDERED = [send(3, 1, b"m%d" % number, number + 1) for number in range(10)]
BEFORE = {
    "SEND the same id twice in a request": [send(1, 3, b"first") for _ in range(3)],
    "POLL offset 3, count 2": [create_topic(3, 2), *ORDERED],
    "POLL next at the end": [
        frame(100, "0105000000" + name(1) + name(3) + "01000000" + "05" + 16 * "0" + "0a00000001")
    ],
    "next after the first message arrived, 0 stored before": [send(3, 2, b"late")],
    "GET_GROUPS, none": [create_topic(4, 3)],
    "POLL group 7 in turn": [
        send(4, partition, b"%d-%d" % (partition, number))
        for number in range(3)
        for partition in (1, 2, 3)
    ],
    "GET_OFFSET group = partition of the last poll": 3
    * [frame(100, "0207000000" + name(1) + name(4) + "00000000" + "05" + 16 * "0" + "0200000001")],
    "STORE_OFFSET group (partition of the last poll)": [
        frame(100, "0207000000" + name(1) + name(4) + "00000000" + "05" + 16 * "0" + "0200000001")
    ],
    "GET_GROUP 7 after one more partition": [frame(402, name(1) + name(4) + "01000000")],
    "GET_GROUP 7 after two fewer": [frame(403, name(1) + name(4) + "02000000")],
    "GET_OFFSET of a group made anew": [
        frame(602, name(1) + name(4) + "07000000"),
        frame(604, name(1) + name(4) + "07000000"),
    ],
    "POLL by a member without a partition": [
        create_topic(5, 0),
        frame(402, name(1) + name(5) + "01000000"),
        frame(602, name(1) + name(5) + "01000000"),
    ],
}


def steady(value: object) -> object:
    """Return an answer without varying fields."""
    if isinstance(value, dict):
        constant = {key: steady(item) for key, item in value.items() if key not in VARYING}
        if "payload" in constant:
            constant["id"] = constant["id"][0] if constant["id"][1:] == bytes(15) else "random"
        return constant
    if isinstance(value, list):
        return sorted((steady(item) for item in value), key=repr)
    return value


def values(code: int, answer: bytes) -> dict:
    parsed = description.ANSWER_FRAME.parse(answer)
    if not parsed.payload:
        return {"status": parsed.status}
    layout = description_d0.ANSWERS[code]
    return {"status": parsed.status, **description.whole(layout, parsed.payload)}


def normal(code: int, answer: bytes | None) -> object:
    if answer is None or code not in description_d0.ANSWERS:
        return answer
    fields = values(code, answer)
    if code == 10:
        return fields["streams"], fields["topics"], fields["messages"], fields["clients"]
    if code == 100 and "current_offset" in fields:
        return steady(fields)
    if code == 600 and fields["status"] == 0 and "members" in fields:
        members = [sorted(member["partitions"]) for member in fields["members"]]
        return fields["group"], sorted(members)
    return steady(fields)


def expected(row: object) -> bytes | None:
    different = DIFFERENT.get(row.name, row.answer)
    return row.answer if isinstance(different, str) else different


async def test_answers_equal_the_real_servers(connect):
    talk = second = await connect(without_login=True)
    for row in conversation(D0):
        for request in BEFORE.get(row.name, ()):
            assert (await talk.exchange(request))[:4] == bytes(4), row.name
        if row.name == "GET_GROUP 7 after a broken connection":
            await second.stream.aclose()
            await talk.ask_raw_until(row.request, lambda answer: len(answer) == 8 + 32)
        if row.name == "POLL timestamp, exact":
            row.request = await at_our_time(talk, row)
        if row.name == "GET_CLIENT, me":
            me = await talk.exchange(frame(20, ""))
            row.request = frame(21, me[8:12].hex())
        if row.name == "POLL by a member without a partition":
            other = await connect(without_login=True)
            join = frame(604, name(1) + name(5) + "01000000")
            await talk.exchange(join)
            await other.exchange(join)
            partitions = {
                values(100, await connection.exchange(row.request))["partition"]
                for connection in (talk, other)
            }
            assert partitions == {0, 1}
            continue
        if row.name == "JOIN_GROUP 7, second member":
            second = await connect(without_login=True)
        asking = second if row.name == "JOIN_GROUP 7, second member" else talk
        request = long_request(row.name) if row.request == b"(long)" else row.request
        answer = await asking.exchange(request)
        if row.name in TOO_LONG:
            assert await asking.answer() is None
        if answer is None or row.name in TOO_LONG:
            talk = await connect(without_login=True)
            await talk.exchange(frame(201, ""))  # So the connection's dialect is known.
        compare(row, answer)


async def at_our_time(talk: Talk, row: Recorded) -> bytes:
    """Return the answer to the same poll with this broker's time of the first message."""
    first = description_d0.ANSWERS[100].parse(row.answer[8:]).messages[0].offset
    strategy_pos = len(row.request) - 14  # kind, value, count, auto commit
    tail = row.request[strategy_pos + 9 :]
    by_offset = row.request[:strategy_pos] + struct.pack("<BQ", 1, first) + tail
    message = values(100, await talk.exchange(by_offset))["messages"][0]
    assert message["offset"] == first
    return row.request[:strategy_pos] + struct.pack("<BQ", 2, message["timestamp"]) + tail


def compare(row: object, answer: bytes | None) -> None:
    wanted = expected(row)
    if row.name == "POLL timestamp 0":
        assert values(100, answer)["messages_count"] == 3
    elif row.name == "GET_ME in group 7":
        assert values(20, answer)["memberships"] == [{"stream_id": 1, "topic_id": 4, "group_id": 7}]
    elif row.name == "GET_OFFSET consumer 7 is another space":
        assert values(120, answer)["status"] == 0
    elif row.name == "GET_GROUP 7 after the refused create":
        assert values(600, answer)["group"]["members"] == 1
    elif answer is None or wanted is CLOSED or wanted is None:
        assert answer is None and wanted in (CLOSED, None), (row.name, answer)
    else:
        assert normal(row.code, answer) == normal(row.code, wanted), row.name
