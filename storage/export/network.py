"""The log of a running broker, read over its HTTP listener (docs/api.md, "Raw batches").

For clusters whose executors do not see the broker's disk. Batches arrive as stored; this module
checks and decodes them. Each open partition has a connection, with a single request at a time,
which is the back-pressure. Knows the standard library's HTTP client, and no Spark.
"""

import http.client
import os
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Self
from urllib.parse import quote, unquote, urlencode, urlsplit

import msgspec
from crc32c import crc32c

from braidlog.storage.errors import DamagedLog, OffsetOutOfRange, reason_of
from braidlog.storage.export.readers import ExportPartition, IsWanted, PartitionState, every_topic
from braidlog.storage.export.registered import RegisteredSchema, by_version
from braidlog.storage.formats.batch import HEADER_BYTES, BadHeader, Batch, unpack

WIRE_SALT = 0  # Salt of headers on the wire: a segment's own salt stays secret.
BYTES_MAX = 4 << 20  # Size of a request.
TIMEOUT_S = 60.0
BUSY = (429, 502, 503)  # 502, 503: the partition may also be moving to another broker.
DAMAGED = ("damaged_log", "corrupt_batch")
BUSY_TRIES = 20  # Tries on a broker that is busy or starting: about a minute.
BUSY_PAUSE_MAX_S = 5.0
TOKEN_VARIABLE = "BRAIDLOG_TOKEN"
API, ADMIN = "/api/v1", "/admin/v2"

Json = dict[str, Any]


class BrokerRefused(OSError):
    """The broker answered with an error; the text is its message."""


class BrokerUnreachable(OSError):
    """No broker answers; the text is the reason."""


class BrokerReader:
    """A broker by the URL of its HTTP listener, `http://[:TOKEN@]HOST[:PORT]`.

    Implements `ExportLog`.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def partitions(self, is_wanted: IsWanted = every_topic) -> list[PartitionState]:
        """Return all partitions that the token may read; in a cluster, ask other brokers for
        theirs.
        """
        states: list[PartitionState] = []
        after: str | None = ""
        with _Connection(self._url) as connection:
            while after is not None:
                page = connection.json(f"{API}/log?{urlencode({'after': after})}")
                for partition in page["partitions"]:
                    if is_wanted(partition["topic"]):
                        states += _state_of(partition, connection)
                after = page["next"]
        return states

    def open(self, topic: str, index: int, partition_id: int) -> ExportPartition:
        return BrokerPartition(self._url, topic, index, partition_id)

    def schemas(self, topics: Collection[str]) -> dict[str, list[RegisteredSchema]]:
        """Return the same as `LogReader.schemas`, with one request per topic."""
        by_topic = {}
        with _Connection(self._url) as connection:
            for topic in topics:
                path = f"{ADMIN}/schemas/{_path(topic)}/schemas"
                status, content = connection.ask("GET", path)
                if status == 404:
                    continue
                _check(status, content)
                versions = msgspec.json.decode(content)["getSchemaResponses"]
                if not versions:
                    continue
                by_topic[topic] = by_version(
                    {
                        version["version"]: RegisteredSchema(version["type"], version["data"])
                        for version in versions
                    }
                )
        return by_topic


class BrokerPartition:
    """A partition, up to its durable end at the time of opening."""

    def __init__(self, url: str, topic: str, index: int, partition_id: int) -> None:
        self._connection = _Connection(url)
        self._path = f"{API}/log/{_path(topic)}/{index}"
        self._identity = {"partition_id": partition_id}
        self._name = f"{topic}/{index}"
        state = self._state()
        self.log_start_offset: int = state["log_start_offset"]
        self.high_watermark: int = state["high_watermark"]

    def batches(self, from_offset: int, to_offset: int | None = None) -> Iterator[Batch]:
        """Yield the same as `ReadOnlyLog.batches`."""
        offset, end = from_offset, self.high_watermark
        if not self.log_start_offset <= offset <= end:
            raise OffsetOutOfRange(offset, self.log_start_offset, end)
        end = end if to_offset is None else min(to_offset, end)
        while offset < end:
            content = self._fetch(offset)
            following = offset
            for batch in _batches(content, self._name, offset):
                if batch.base_offset >= end:
                    return
                following = batch.next_offset
                yield batch
            if following == offset:
                raise DamagedLog(self._name, 0, offset, "the broker sent no records")
            offset = following

    def _fetch(self, offset: int) -> bytes:
        query = urlencode({**self._identity, "offset": offset, "bytes_max": BYTES_MAX})
        status, content = self._connection.ask("GET", f"{self._path}/batches?{query}")
        if status == 416:
            state = self._state()
            raise OffsetOutOfRange(offset, state["log_start_offset"], state["high_watermark"])
        if status >= 400 and _text_of(content, "code") in DAMAGED:
            raise DamagedLog(self._name, 0, offset, _message(content))
        _check(status, content)
        return content

    def first_at(self, time_us: int) -> int | None:
        """Return the same as `ExportPartition.first_at`."""
        first_offset: int | None = self._state(time_us=time_us)["first_offset"]
        return first_offset

    def _state(self, **query: int) -> Json:
        return self._connection.json(f"{self._path}?{urlencode({**self._identity, **query})}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def tell_broker(url: str, group: str, positions: Mapping[tuple[str, int], int]) -> None:
    """Commit positions, (topic, partition) to the next offset, under a group's name.

    Raises OSError; the topics before the failing topic are committed.
    """
    topics: dict[str, dict[str, int]] = {}
    for (topic, index), position in positions.items():
        topics.setdefault(topic, {})[str(index)] = position
    with _Connection(url) as connection:
        for topic, numbers in topics.items():
            path = f"{API}/groups/{_path(topic)}/{quote(group, safe='')}/positions"
            body = msgspec.json.encode({"positions": numbers})
            _check(*connection.ask("PUT", path, body))


def report_run(url: str, run: Json) -> None:
    """Report a finished run to a broker, which lists the last runs. Raises OSError."""
    with _Connection(url) as connection:
        _check(*connection.ask("POST", f"{API}/exports", msgspec.json.encode(run)))


class _Connection:
    """A kept-alive connection to the API of a broker."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise OSError(f"invalid broker URL {url!r}, expected http://HOST:PORT")
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        self._connection = kind(parts.hostname, parts.port, timeout=TIMEOUT_S)
        self._shown = f"{parts.scheme}://{parts.hostname}:{parts.port}"
        self._base = parts.path.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        token = unquote(parts.password) if parts.password else os.environ.get(TOKEN_VARIABLE)
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def json(self, path: str) -> Json:
        """Return the answer to a GET. Raises OSError."""
        status, content = self.ask("GET", path)
        _check(status, content)
        answer: Json = msgspec.json.decode(content)
        return answer

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Return status and content, once the broker is not too busy. Raises OSError."""
        for _ in range(BUSY_TRIES):
            status, content, pause_s = self._once(method, path, body)
            if status not in BUSY:
                return status, content
            time.sleep(min(pause_s, BUSY_PAUSE_MAX_S))
        return status, content

    def _once(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes, float]:
        try:
            try:
                self._connection.request(method, self._base + path, body, self._headers)
                response = self._connection.getresponse()
            except (ConnectionError, http.client.RemoteDisconnected):
                # The connection was idle for too long: try again on a new connection.
                self._connection.close()
                self._connection.request(method, self._base + path, body, self._headers)
                response = self._connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            text = f"no broker answers at {self._shown}: {reason_of(error)}"
            raise BrokerUnreachable(text) from error
        pause = response.headers.get("Retry-After", "1")
        return response.status, content, float(pause) if pause.isdecimal() else 1.0


def _state_of(answer: Json, connection: _Connection) -> list[PartitionState]:
    """Return the state of a listed partition; [] if deleted meanwhile. Raises OSError."""
    topic, index, partition_id = answer["topic"], answer["partition"], answer["partition_id"]
    figures = answer
    if not answer["is_here"]:
        query = urlencode({"partition_id": partition_id})
        try:
            figures = connection.json(f"{API}/log/{_path(topic)}/{index}?{query}")
        except FileNotFoundError:
            return []
    start, watermark = figures["log_start_offset"], figures["high_watermark"]
    return [PartitionState(topic, partition_id, index, start, watermark, figures["size_bytes"])]


def _batches(content: bytes, name: str, offset: int) -> Iterator[Batch]:
    """Yield the batches of an answer, checked. Raises DamagedLog."""
    view, pos = memoryview(content), 0
    while pos < len(view):
        try:
            header = unpack(view, WIRE_SALT, pos)
        except BadHeader as error:
            raise DamagedLog(name, pos, offset, f"on the wire: {error}") from None
        body_pos, stop = pos + HEADER_BYTES, pos + header.stored_bytes
        if stop > len(view) or crc32c(view[body_pos:stop]) != header.body_crc:
            raise DamagedLog(name, pos, header.base_offset, "on the wire: body checksum is wrong")
        split = body_pos + header.positions_bytes
        yield Batch(header, view[body_pos:split], view[split:stop], pos)
        offset, pos = header.next_offset, stop


def _check(status: int, content: bytes) -> None:
    if status == 404:
        raise FileNotFoundError(_message(content))
    if status >= 400:
        raise BrokerRefused(_message(content))


def _message(content: bytes) -> str:
    return _text_of(content, "message") or "no Braidlog broker answers there"


def _text_of(content: bytes, key: str) -> str:
    """Return a field of the broker's error; empty if the content is no error."""
    try:
        return str(msgspec.json.decode(content)[key])
    except (msgspec.DecodeError, KeyError, TypeError):
        return ""


def _path(topic: str) -> str:
    return "/".join(quote(part, safe="") for part in topic.split("/"))
