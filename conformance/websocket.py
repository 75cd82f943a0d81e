"""Plays dialogues of Pulsar's WebSocket API against a broker, and records or compares the frames.

`--record FILE` writes the answers of a broker, as those of Apache were recorded for
`vectors/pulsar/websocket.tsv`. Without the option, the broker has to answer as recorded: the same
frames, except for ids, publish times and the wording of errors.
"""

from __future__ import annotations

import argparse
import base64
import csv
import html
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from conformance.clients.raw.websocket import Closed, UpgradeRefused, WebSocketClient, call

VECTORS = Path(__file__).parent / "vectors" / "pulsar" / "websocket.tsv"
SILENCE_S = 0.5
TITLE = re.compile(r"<title>Error \d+ (.*?)</title>", re.DOTALL)
PUBLISHED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,3})?Z")
NAMESPACE = "persistent/public/default"
FAILED = "Failed to create producer/consumer"

# A step: number of the connection, word, text. Words of the client: `call` (method, path and body
# of an HTTP call), `open`, `send`, `leave`, and `take` for an answer. Words of the broker, in the
# recorded rows: `accepted`, `refused`, `got`, `silent`, `closed`.
Step = tuple[int, str, str]


def produce(topic: str, query: str = "") -> str:
    """Return the target of a producer."""
    return f"/ws/v2/producer/{NAMESPACE}/{topic}{query}"


def consume(topic: str, query: str = "", subscription: str = "sub") -> str:
    """Return the target of a consumer."""
    return f"/ws/v2/consumer/{NAMESPACE}/{topic}/{subscription}{query}"


def read(topic: str, query: str = "") -> str:
    """Return the target of a reader."""
    return f"/ws/v2/reader/{NAMESPACE}/{topic}{query}"


def value(text: str, **fields: object) -> str:
    """Return the frame of a producer."""
    return json.dumps({"payload": base64.b64encode(text.encode()).decode(), **fields})


def ask(number: int, *texts: str) -> Iterator[Step]:
    """Send frames, and take an answer after each."""
    for text in texts:
        yield number, "send", text
        yield number, "take", ""


def take(number: int, count: int) -> Iterator[Step]:
    """Take answers; the last may be silence."""
    for _ in range(count):
        yield number, "take", ""


def opened(number: int, target: str) -> Iterator[Step]:
    """Open a connection."""
    yield number, "open", target


def refused(*targets: str) -> Iterator[Step]:
    """Open connections, each refused or at once left."""
    for number, target in enumerate(targets, 100):
        yield number, "open", target
        yield number, "leave", ""


def with_id(number: int, **fields: object) -> str:
    """Return a frame about the message taken as that number, from 0, in its dialogue."""
    return json.dumps({**fields, "messageId": f"<{number}>"})


NACK = {"type": "negativeAcknowledge"}
DIALOGUES: dict[str, Sequence[Step]] = {
    "producer": [
        *opened(1, produce("ws-producer")),
        *ask(
            1,
            value("hi", properties={"a": "1"}, context="c1"),
            value("x"),
            value("", key="k", eventTime="2020-01-02T03:04:05.678Z"),
            value("x", eventTime="2020-01-02T03:04:05+01:00", context=5),
            value("x", key=5, properties={"n": 1, "t": True}),
            value("x", unknown=1, replicationClusters=["a"]),
            value("x", deliverAfterMs=1),
            '{"payload":"YQ"}',
            '{"payload":"YQ==","payload":"Yg=="}',
        ),
    ],
    "producer errors keep the connection": [
        *opened(1, produce("ws-errors")),
        *ask(
            1,
            "nojson",
            "",
            "[]",
            "3",
            "{}",
            '{"payload":null}',
            '{"payload":"!!","context":"c"}',
            '{"payload":"YW==YW=="}',
            '{"payload":"YQ==","properties":[]}',
            value("x", eventTime="yesterday", context="z"),
            value("x", eventTime="2020-01-02T03:04:05"),
            value("x", eventTime=123),
            value("x", deliverAt="x"),
            value("fine"),
        ),
    ],
    "producer refusals": [
        *opened(1, produce("ws-refusals", "?producerName=p")),
        *refused(
            *(
                produce("ws-refusals", f"?{query}")
                for query in (
                    "producerName=p",
                    "producerName=",
                    "messageRoutingMode=X",
                    "compressionType=BAD",
                    "compressionType=LZ4",
                    "hashingScheme=X",
                    "hashingScheme=Murmur3_32Hash",
                    "sendTimeoutMillis=x",
                    "sendTimeoutMillis=-1",
                    "initialSequenceId=x",
                    "initialSequenceId=-5",
                    "maxPendingMessages=0",
                    "batchingEnabled=zz",
                    "messageRoutingMode=CustomPartition",
                )
            ),
            "/ws/v2/producer/persistent/public/none/t",
            "/ws/v2/producer/persistent/none/default/t",
            "/ws/v2/other/persistent/public/default/t",
            "/ws/producer/persistent/public/standalone/default/t",
            "/ws/v3/producer/x",
        ),
    ],
    "producer of a terminated topic": [
        *opened(1, produce("ws-terminated")),
        *ask(1, value("a")),
        (0, "call", f"POST /admin/v2/{NAMESPACE}/ws-terminated/terminate"),
        *ask(1, value("b", context="late")),
        *refused(produce("ws-terminated")),
    ],
    "consumer": [
        *opened(1, consume("ws-consumer")),
        *opened(2, produce("ws-consumer")),
        *ask(2, value("a", properties={"p": "1"}, key="k", eventTime="2020-01-02T03:04:05.678Z")),
        *ask(2, value(""), value("c")),
        *take(1, 4),
        *refused(consume("ws-consumer")),
        *ask(1, with_id(0), '{"type":"isEndOfTopic"}', '{"type":"permit","permitMessages":1}'),
        (1, "leave", ""),
        *opened(3, consume("ws-consumer")),
        *take(3, 3),
    ],
    "receiver queue": [
        *opened(1, consume("ws-queue", "?receiverQueueSize=2")),
        *opened(2, produce("ws-queue")),
        *ask(2, value("a"), value("b"), value("c"), value("d")),
        *take(1, 3),
        *ask(1, with_id(0)),
        *take(1, 1),
        *ask(1, with_id(0)),
    ],
    "pull mode": [
        *opened(1, consume("ws-pull", "?pullMode=true")),
        *opened(2, produce("ws-pull")),
        *ask(2, value("a"), value("b"), value("c"), value("d")),
        *take(1, 1),
        *ask(1, '{"type":"permit","permitMessages":2}'),
        *take(1, 2),
        *ask(1, '{"type":"permit","permitMessages":1}'),
        *take(1, 1),
        *ask(1, '{"type":"unsubscribe"}'),
    ],
    "negative acknowledgement": [
        *opened(1, consume("ws-nack", "?subscriptionType=Shared&negativeAckRedeliveryDelay=100")),
        *opened(2, produce("ws-nack")),
        *ask(2, value("a"), value("b")),
        *take(1, 2),
        (1, "send", with_id(0, **NACK)),
        *take(1, 2),
    ],
    "acknowledgement timeout": [
        *opened(1, consume("ws-timeout", "?subscriptionType=Shared&ackTimeoutMillis=1000")),
        *opened(2, produce("ws-timeout")),
        *ask(2, value("a")),
        *take(1, 1),
        (1, "take slowly", ""),
    ],
    "dead letters": [
        *opened(
            1,
            consume(
                "ws-dead",
                "?subscriptionType=Shared&maxRedeliverCount=1&negativeAckRedeliveryDelay=100",
            ),
        ),
        *opened(2, consume("ws-dead-sub-DLQ", subscription="dead")),
        *opened(3, produce("ws-dead")),
        *ask(3, value("a", properties={"p": "1"})),
        *take(1, 1),
        (1, "send", with_id(0, **NACK)),
        (1, "take slowly", ""),
        (1, "send", with_id(0, **NACK)),
        (2, "take slowly", ""),
        *take(1, 1),
    ],
    "consumer refusals": [
        *opened(1, consume("ws-kinds", "?subscriptionType=Shared")),
        *refused(
            *(
                consume("ws-kinds", f"?subscriptionType={kind}")
                for kind in ("Failover", "Exclusive", "Key_Shared", "X", "shared")
            ),
            *(
                consume("ws-params", f"?{query}")
                for query in (
                    "receiverQueueSize=abc",
                    "receiverQueueSize=-1",
                    "receiverQueueSize=0",
                    "ackTimeoutMillis=5",
                    "ackTimeoutMillis=x",
                    "negativeAckRedeliveryDelay=-1",
                    "negativeAckRedeliveryDelay=x",
                    "consumerName=",
                    "priorityLevel=-1",
                    "priorityLevel=x",
                    "maxRedeliverCount=0",
                    "maxRedeliverCount=x",
                    "deadLetterTopic=dlq",
                    "subscriptionMode=X",
                )
            ),
            consume("ws-params", "", "a%20b"),
            "/ws/v2/consumer/persistent/public/none/t/sub",
        ),
    ],
    "reader": [
        *opened(1, produce("ws-reader")),
        *ask(1, value("a"), value("b"), value("c"), value("d")),
        *opened(2, read("ws-reader")),
        *take(2, 1),
        *opened(3, read("ws-reader", "?messageId=earliest&receiverQueueSize=2")),
        *take(3, 3),
        *ask(3, with_id(0)),
        *take(3, 1),
        *ask(3, "{}", '{"type":"isEndOfTopic"}'),
        *opened(4, read("ws-reader", "?messageId=<1>")),
        *take(4, 3),
        *refused(
            read("ws-reader", "?messageId=xx"),
            read("ws-reader", "?messageId=!!"),
            read("ws-reader", "?messageId="),
            read("ws-reader", "?receiverQueueSize=-1"),
            "/ws/v2/reader/persistent/public/none/t",
        ),
        (0, "call", f"POST /admin/v2/{NAMESPACE}/ws-reader/terminate"),
        *ask(4, '{"type":"isEndOfTopic"}'),
    ],
    "partitions": [
        (0, "call", f"PUT /admin/v2/{NAMESPACE}/ws-parts/partitions 3"),
        *opened(1, consume("ws-parts")),
        *opened(2, produce("ws-parts", "?messageRoutingMode=RoundRobinPartition")),
        *ask(2, *(value("x", key=key) for key in "abcd")),
        *opened(3, produce("ws-parts", "?hashingScheme=Murmur3_32Hash")),
        *ask(3, *(value("x", key=key) for key in "abcd")),
        *opened(4, produce("ws-parts-partition-1")),
        *ask(4, value("x")),
    ],
}


class DialoguePlayer:
    """Plays the steps of a dialogue against a broker."""

    def __init__(self, url: str, silence_s: float = SILENCE_S) -> None:
        self._url = url
        self._silence_s = silence_s
        self._clients: dict[int, WebSocketClient] = {}

    def act(self, number: int, word: str, text: str) -> list[Step]:
        """Do a step; return the answers of the broker."""
        if word == "call":
            method, path, body = (*text.split(" "), "")[:3]
            return [(number, "status", str(call(self._url, method, path, body)))]
        if word == "open":
            return [self._open(number, text)]
        client = self._clients.get(number)
        if client is None:  # The connection was refused.
            return []
        if word == "send":
            client.send(text)
        elif word == "leave":
            self._clients.pop(number).close()
        else:
            return [self._take(number, client, 5.0 if word == "take slowly" else self._silence_s)]
        return []

    def _open(self, number: int, target: str) -> Step:
        try:
            self._clients[number] = WebSocketClient(self._url, target)
        except UpgradeRefused as error:
            match = TITLE.search(error.body)
            if match:
                return number, "refused", f"{error.status} {html.unescape(match[1])}"
            text = json.loads(error.body)["message"] if error.body else ""
            return number, "refused", f"{error.status} {text}"
        return number, "accepted", ""

    def _take(self, number: int, client: WebSocketClient, seconds: float) -> Step:
        try:
            return number, "got", str(client.receive(seconds))
        except TimeoutError:
            return number, "silent", ""
        except Closed as error:
            return number, "closed", f"{error.code} {error.reason}"

    def close(self) -> None:
        """Close every connection."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()


class Ids:
    """The ids of received messages: of the recording, and of the broker that is compared."""

    def __init__(self) -> None:
        self.recorded: list[str] = []
        self._own: dict[str, str] = {}

    def note(self, recorded: str, own: str) -> None:
        """Note that two ids name the same message."""
        if recorded not in self._own:
            self.recorded.append(recorded)
        assert self._own.setdefault(recorded, own) == own, f"{recorded} is {own} now"

    def own(self, text: str) -> str:
        """Return a frame of the recording with the ids of the compared broker."""
        for recorded, own in self._own.items():
            text = text.replace(recorded, own)
        return text


def recorded(url: str) -> Iterator[tuple[str, int, str, str]]:
    """Yield the rows of all dialogues with a broker."""
    for name, steps in DIALOGUES.items():
        player, ids = DialoguePlayer(url), list[str]()
        for number, word, text in steps:
            for place, known in enumerate(ids):
                text = text.replace(f"<{place}>", known)
            if not word.startswith("take"):
                yield name, number, word, text
            for answer in player.act(number, word, text):
                yield name, *answer
                if answer[1] == "got" and "publishTime" in answer[2]:
                    key = json.loads(answer[2])["messageId"]
                    ids += [key] if key not in ids else []
        player.close()


def rows(name: str | None = None) -> list[tuple[str, int, str, str]]:
    """Return the recorded rows, of one dialogue or of all."""
    with VECTORS.open(newline="", encoding="utf-8") as lines:
        cells = list(csv.reader(lines, delimiter="\t"))[1:]
    return [
        (dialogue, int(number), word, text)
        for dialogue, number, word, text in cells
        if name in (None, dialogue)
    ]


def compared(url: str, name: str, silence_s: float = SILENCE_S) -> list[str]:
    """Return the differences of a broker from a recorded dialogue."""
    player, ids, answers = DialoguePlayer(url, silence_s), Ids(), list[Step]()
    differences = []
    for _, number, word, text in rows(name):
        if word in ("call", "open", "send", "leave"):
            answers = player.act(number, word, ids.own(text))
            continue
        if word in ("got", "silent", "closed"):
            last = "take" if word == "silent" else "take slowly"
            answers = player.act(number, last, "")
        (answer,) = answers or [(number, "nothing", "")]
        if not _is_same((word, text), (answer[1], answer[2]), ids):
            differences.append(f"{name}, connection {number}: {word} {text}, here {answer[1:]}")
    player.close()
    return differences


def _is_same(expected: tuple[str, str], answer: tuple[str, str], ids: Ids) -> bool:
    if expected[0] != answer[0]:
        return False
    if expected[0] == "status":
        return expected[1][0] == answer[1][0]
    if expected[0] == "refused":
        mine, other = expected[1].partition(" ")[::2], answer[1].partition(" ")[::2]
        # Apache's own words stay; other texts are its broker's, with addresses and request ids.
        has_words = mine[1].startswith("Invalid query params") and "messageId" not in mine[1]
        return mine[0] == other[0] and (not has_words or mine[1] == other[1])
    if expected[0] != "got":
        return True
    mine, other = json.loads(expected[1]), json.loads(answer[1])
    for fields in (mine, other):
        fields["errorMsg"] = bool(fields.get("errorMsg"))
        published = fields.pop("publishTime", None)
        assert published is None or PUBLISHED.fullmatch(published), published
        properties = fields.get("properties", {})
        for key in ("ORIGIN_MESSAGE_ID", "ORIGIN_MESSAGE_IDY_TIME"):
            if key in properties:
                properties[key] = properties[key].count(":")
    if "messageId" in mine and "messageId" in other:
        ids.note(mine.pop("messageId"), other.pop("messageId"))
    return bool(mine == other)


def main() -> None:
    """Record or compare."""
    parser = argparse.ArgumentParser(prog="conformance.websocket", description=__doc__)
    parser.add_argument("url", help="of the broker's HTTP listener")
    parser.add_argument("--record", metavar="FILE", help="write the answers")
    wanted = parser.parse_args()
    if wanted.record:
        with Path(wanted.record).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter="\t", lineterminator="\n")
            writer.writerow(["dialogue", "connection", "step", "text"])
            writer.writerows(recorded(wanted.url))
        return
    differences = [line for name in DIALOGUES for line in compared(wanted.url, name)]
    print("\n".join(differences) or f"{len(DIALOGUES)} dialogues as recorded")
    sys.exit(bool(differences))


if __name__ == "__main__":
    main()
