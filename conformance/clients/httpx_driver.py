"""httpx: PIP-64 over plain HTTP, with values and keys in base64 so that any bytes can be sent."""

import base64
import time
from typing import Any

import httpx

from conformance.clients.base import READ_TIMEOUT_S, Message, Timeout

NAMESPACE = "public/default"
MESSAGES_MAX = 10_000  # Per request.
WAIT_MS = 3000
CONFLICT = 409


class HttpxClient:
    """Keys, values and headers of text; no compression."""

    def __init__(self, address: str) -> None:
        self.base = f"http://{address}"

    def produce(self, topic: str, messages: list[Message], compression: str | None = None) -> None:
        """Send a request per 10,000 messages; each message is acknowledged individually."""
        if compression:
            raise ValueError("HTTP does not compress")
        with self._client() as client:
            self._make(client, topic)
            for start in range(0, len(messages), MESSAGES_MAX):
                batch = [_outgoing(item) for item in messages[start : start + MESSAGES_MAX]]
                answer = client.post(f"/topics/{NAMESPACE}/{topic}", json={"messages": batch})
                answer.raise_for_status()
                refused = [one for one in answer.json()["messageIds"] if one["error_code"]]
                if refused:
                    raise RuntimeError(f"{len(refused)} messages were refused: {refused[0]}")

    def read(self, topic: str, count: int) -> list[Message]:
        """Read from the beginning of partition 0, without a consumer."""
        taken: list[Message] = []
        path, position = f"/topics/{NAMESPACE}/{topic}/partitions/0/messages", 0
        deadline = time.monotonic() + READ_TIMEOUT_S
        with self._client() as client:
            while len(taken) < count:
                query = {"position": position, "max_messages": count - len(taken)}
                answer = _asked(client, path, {**query, "encoding": "base64", "timeout": WAIT_MS})
                taken += [_incoming(one) for one in answer["messages"]]
                position = answer["next_offset"]
                _check(deadline, taken, count)
        return taken

    def read_as_group(self, topic: str, group: str, count: int) -> list[Message]:
        """Read with a Shared consumer, acknowledge the messages individually, and delete the
        consumer.
        """
        taken: list[Message] = []
        deadline = time.monotonic() + READ_TIMEOUT_S
        subscription = f"/topics/{NAMESPACE}/{topic}/subscription/{group}"
        with self._client() as client:
            made = client.post(subscription, json={"initial_position": "Earliest"})
            made.raise_for_status()
            consumer = f"{subscription}/consumer/{made.json()['id']}"
            while len(taken) < count:
                query = {"max_messages": count - len(taken), "encoding": "base64"}
                answer = _asked(client, f"{consumer}/messages", {**query, "timeout": WAIT_MS})
                ids = [one["messageId"] for one in answer["messages"]]
                if ids:
                    done = {"type": "Individual", "messageIds": ids}
                    client.post(f"{subscription}/cursor", json=done).raise_for_status()
                taken += [_incoming(one) for one in answer["messages"]]
                _check(deadline, taken, count)
            client.delete(consumer).raise_for_status()
        return taken

    def _client(self) -> httpx.Client:
        return httpx.Client(base_url=self.base, timeout=READ_TIMEOUT_S)

    def _make(self, client: httpx.Client, topic: str) -> None:
        answer = client.put(f"/api/v1/topics/{NAMESPACE}/{topic}", json={"partitions": 1})
        if answer.status_code != CONFLICT:  # Another client may have created the consumer.
            answer.raise_for_status()


def _asked(client: httpx.Client, path: str, query: dict[str, Any]) -> dict[str, Any]:
    answer = client.get(path, params=query)
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found


def _check(deadline: float, taken: list[Message], count: int) -> None:
    if len(taken) < count and time.monotonic() > deadline:
        raise Timeout(f"{len(taken)} of {count} messages in {READ_TIMEOUT_S:.0f} s")


def _outgoing(item: Message) -> dict[str, Any]:
    fields: dict[str, Any] = {"partition": item.partition}
    if item.value is not None:
        fields |= {"value": base64.b64encode(item.value).decode(), "encoding": "base64"}
    if item.key is not None:
        fields |= {"key": base64.b64encode(item.key).decode(), "key_encoding": "base64"}
    if item.headers:
        fields["properties"] = {name: value.decode() for name, value in item.headers}
    return fields


def _incoming(one: dict[str, Any]) -> Message:
    key = one.get("key")
    if key is not None:
        is_packed = one.get("key_encoding") == "base64"
        key = base64.b64decode(key) if is_packed else key.encode()
    value = one.get("value")
    return Message(
        value=None if value is None else base64.b64decode(value),
        key=key,
        headers=[(name, text.encode()) for name, text in sorted(one["properties"].items())],
        partition=one["partition"],
        offset=one.get("offset"),
    )


DRIVER = HttpxClient
