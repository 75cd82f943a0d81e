import base64
import json

import pytest

from braidlog.protocols.http.limits import PROPERTIES_MAX
from braidlog.protocols.http.websocket import frames
from braidlog.protocols.http.websocket.frames import BAD_JSON, BAD_PAYLOAD, BadFrame
from braidlog.storage.formats.record import Header, HeaderKind, Record

NOW_US = 1_700_000_000_000_000


def record(**fields):
    return frames.record_of(frames.read_message(json.dumps(fields)), NOW_US)


def test_message_becomes_a_record():
    message = record(
        payload="aGk=", properties={"a": "1", "n": 5}, key="k", eventTime="2020-01-02T03:04:05.678Z"
    )
    assert (message.value, message.key, message.publish_us) == (b"hi", b"k", NOW_US)
    assert message.event_us == 1_577_934_245_678_000
    assert [(header.name, header.value) for header in message.headers] == [
        (b"a", b"1"),
        (b"n", b"5"),
    ]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("", BAD_JSON),
        ("[]", BAD_JSON),
        ("[" * 100_000, BAD_JSON),
        ('{"payload":"\ud800"}', BAD_JSON),
        ('{"deliverAt":"x"}', BAD_JSON),
        ("{}", BAD_PAYLOAD),
        ('{"payload":"!"}', BAD_PAYLOAD),
        ('{"payload":"YQ==","properties":{"a":null}}', BAD_PAYLOAD),
        ('{"payload":"YQ==","eventTime":"2020-13-02T03:04:05Z"}', BAD_PAYLOAD),
        ('{"payload":"YQ==","eventTime":"' + "9" * 500 + '"}', BAD_PAYLOAD),
        ('{"payload":"YQ==","deliverAt":99999999999999999}', BAD_PAYLOAD),
        (json.dumps({"payload": "", "properties": dict.fromkeys(map(str, range(1001)), "")}), 7),
    ],
)
def test_faulty_message_has_apaches_number(text, number):
    assert PROPERTIES_MAX == 1000
    with pytest.raises(BadFrame) as caught:
        frames.record_of(frames.read_message(text), NOW_US)
    assert caught.value.number == number
    assert len(str(caught.value)) < 300


def test_error_of_a_message_keeps_its_context():
    with pytest.raises(BadFrame) as caught:
        record(payload="!", context="c")
    answer = frames.send_error(caught.value.number, str(caught.value), caught.value.context)
    assert json.loads(answer)["context"] == "c"
    assert json.loads(answer)["result"] == "send-error:7"


@pytest.mark.parametrize(
    ("fields", "expected_us"),
    [
        ({"deliverAt": 5}, 5_000),
        ({"deliverAfterMs": 5}, NOW_US + 5_000),
        ({"deliverAt": 7, "deliverAfterMs": 5}, NOW_US + 5_000),
        ({"deliverAt": -1, "deliverAfterMs": 0}, None),
    ],
)
def test_time_of_delivery(fields, expected_us):
    assert record(payload="", **fields).deliver_at_us == expected_us


def test_delivered_record_is_text_of_all_its_fields():
    record = Record(
        3,
        9,
        1_577_934_245_670_000,
        1_000,
        b"\xff",
        b"hi",
        [
            Header(b"a", b"1"),
            Header(b"bin", b"\xff"),
            Header(b"n", b"\x05\0\0\0", HeaderKind.INT32),
        ],
    )
    assert json.loads(frames.delivered(record, "id", 2)) == {
        "messageId": "id",
        "payload": base64.b64encode(b"hi").decode(),
        "properties": {"a": "1", "n": "5"},
        "publishTime": "2020-01-02T03:04:05.670Z",
        "redeliveryCount": 2,
        "eventTime": "1970-01-01T00:00:00.001Z",
        "key": "/w==",
    }


def test_absent_fields_are_left_out():
    shown = json.loads(frames.delivered(Record(0, 5_000), "id", 0))
    assert shown == {
        "messageId": "id",
        "payload": "",
        "properties": {},
        "publishTime": "1970-01-01T00:00:00.005Z",
        "redeliveryCount": 0,
    }


def test_time_beyond_the_calendar_is_a_number():
    assert frames.time_text(2**63 - 1) == str((2**63 - 1) // 1000)
