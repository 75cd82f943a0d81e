"""httpx: PIP-64 over plain HTTP, with values and keys in base64 so that any bytes can be sent."""

import base64
import time
from typing import Any

import httpx

from conformance.clients.base import READ_TIMEOUT_S, ClientMessage, Timeout

NAMESPACE = "public/default"
MESSAGES_MAX = 10_000  # Per request.
WAIT_MS = 3000
CONFLICT = 409


class HttpxClient:
    """Keys, values and headers of text; no compression."""

    def __init__(self, address: str) -> None:
        self.base = f"http://{address}"

    def produce(
        self, topic: str, messages: list[ClientMessage], compression: str | None = None
    ) -> None:
        """Send a request per 10,000 messages; each message is acknowledged individually."""
        if compression:
            raise ValueError("HTTP does not compress")
        with self._client() as client:
            self._make(client, topic)
            for start in range(0, len(messages), MESSAGES_MAX):
                batch = [_outgoing(item) for item in messages[start : start + MESSAGES_MAX]]
                answer = client.post(f"/topics/{NAMESPACE}/{topic}", json={"messages": batch})
                answer.raise_for_status()
                refused = [result for result in answer.json()["messageIds"] if result["error_code"]]
                if refused:
                    raise RuntimeError(f"{len(refused)} messages were refused: {refused[0]}")

    def read(self, topic: str, count: int) -> list[ClientMessage]:
        """Read from the beginning of partition 0, without a consumer."""
        messages: list[ClientMessage] = []
        path, position = f"/topics/{NAMESPACE}/{topic}/partitions/0/messages", 0
        deadline = time.monotonic() + READ_TIMEOUT_S
        with self._client() as client:
            while len(messages) < count:
                query = {"position": position, "max_messages": count - len(messages)}
                answer = _get_json(
                    client, path, {**query, "encoding": "base64", "timeout": WAIT_MS}
                )
                messages += [_incoming(message) for message in answer["messages"]]
                position = answer["next_offset"]
                _check(deadline, messages, count)
        return messages

    def read_as_group(self, topic: str, group: str, count: int) -> list[ClientMessage]:
        """Read with a Shared consumer, acknowledge the messages individually, and delete the
        consumer.
        """
        messages: list[ClientMessage] = []
        deadline = time.monotonic() + READ_TIMEOUT_S
        subscription = f"/topics/{NAMESPACE}/{topic}/subscription/{group}"
        with self._client() as client:
            created = client.post(subscription, json={"initial_position": "Earliest"})
            created.raise_for_status()
            consumer = f"{subscription}/consumer/{created.json()['id']}"
            while len(messages) < count:
                query = {"max_messages": count - len(messages), "encoding": "base64"}
                answer = _get_json(client, f"{consumer}/messages", {**query, "timeout": WAIT_MS})
                ids = [message["messageId"] for message in answer["messages"]]
                if ids:
                    done = {"type": "Individual", "messageIds": ids}
                    client.post(f"{subscription}/cursor", json=done).raise_for_status()
                messages += [_incoming(message) for message in answer["messages"]]
                _check(deadline, messages, count)
            client.delete(consumer).raise_for_status()
        return messages

    def _client(self) -> httpx.Client:
        return httpx.Client(base_url=self.base, timeout=READ_TIMEOUT_S)

    def _make(self, client: httpx.Client, topic: str) -> None:
        answer = client.put(f"/api/v1/topics/{NAMESPACE}/{topic}", json={"partitions": 1})
        if answer.status_code != CONFLICT:  # Another client may have created the consumer.
            answer.raise_for_status()


def _get_json(client: httpx.Client, path: str, query: dict[str, Any]) -> dict[str, Any]:
    answer = client.get(path, params=query)
    answer.raise_for_status()
    body: dict[str, Any] = answer.json()
    return body


def _check(deadline: float, messages: list[ClientMessage], count: int) -> None:
    if len(messages) < count and time.monotonic() > deadline:
        raise Timeout(f"{len(messages)} of {count} messages in {READ_TIMEOUT_S:.0f} s")


def _outgoing(item: ClientMessage) -> dict[str, Any]:
    fields: dict[str, Any] = {"partition": item.partition}
    if item.value is not None:
        fields |= {"value": base64.b64encode(item.value).decode(), "encoding": "base64"}
    if item.key is not None:
        fields |= {"key": base64.b64encode(item.key).decode(), "key_encoding": "base64"}
    if item.headers:
        fields["properties"] = {name: value.decode() for name, value in item.headers}
    return fields


def _incoming(message: dict[str, Any]) -> ClientMessage:
    key = message.get("key")
    if key is not None:
        is_packed = message.get("key_encoding") == "base64"
        key = base64.b64decode(key) if is_packed else key.encode()
    value = message.get("value")
    return ClientMessage(
        value=None if value is None else base64.b64decode(value),
        key=key,
        headers=[(name, text.encode()) for name, text in sorted(message["properties"].items())],
        partition=message["partition"],
        offset=message.get("offset"),
    )


DRIVER = HttpxClient
