"""`braidlog consume` and `braidlog tail`: print the messages of topics of a running broker.

Without a subscription, a read moves no position. Knows how to read, not how a message is printed.
"""

from __future__ import annotations

import re
import selectors
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal
from urllib.parse import urlencode

from cyclopts import Parameter

from braidlog.broker.cli.client import AdminClient, path_part, topic_path
from braidlog.broker.cli.failures import EXIT_INTERRUPTED, EXIT_USAGE, AdminError
from braidlog.broker.cli.message_printer import MessagePrinter
from braidlog.broker.cli.message_text import Template
from braidlog.broker.cli.output import HERE, Where, client_of
from braidlog.broker.cli.places import PartitionBounds, bounds_of, check_place, offset_of
from braidlog.broker.cli.progress import progress

LINES = "application/x-ndjson"
READ_MESSAGES = 1000  # In an answer.
# Wait of the broker for a message; the client waits longer for an answer.
FOLLOW_MS, FETCH_MS = 20_000, 2_000
FOLLOWED_MAX = 500  # Partitions, each on a connection of its own.


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class PrintOptions:
    """Form of printed messages."""

    partition: Annotated[
        int | None, Parameter(name=["--partition", "-p"], help="Only this partition.")
    ] = None
    decode: Annotated[
        bool, Parameter(negative="", help="Show values by their schema, not the stored bytes.")
    ] = False
    format: Annotated[
        str | None,
        Parameter(
            name=["--format", "-f"],
            help="Template: %t topic, %p partition, %o offset, %k key, %v value, %h headers, "
            "%T and %E publish and event time in microseconds, \\n, \\t, \\xHH.",
        ),
    ] = None
    headers_only: Annotated[
        bool, Parameter(negative="", help="Headers in the place of values in a table.")
    ] = False
    grep: Annotated[
        str | None, Parameter(help="Only messages whose key or value matches this expression.")
    ] = None


SHOW = PrintOptions()


def consume(
    topic: str,
    /,
    *,
    subscription: Annotated[
        str | None,
        Parameter(name=["--subscription", "-s"], help="Read and acknowledge in this group."),
    ] = None,
    from_: Annotated[
        str | None,
        Parameter(
            name="--from",
            allow_leading_hyphen=True,
            help="earliest (default), latest, an offset, -N, a time, or 2h (ago).",
        ),
    ] = None,
    until: Annotated[
        str, Parameter(help="end, or a time: stop there, also without --count.")
    ] = "end",
    count: Annotated[
        int | None, Parameter(name=["--count", "-n"], help="Messages at most.")
    ] = None,
    follow: Annotated[
        bool, Parameter(negative="", help="Wait for further messages until interrupted.")
    ] = False,
    type_: Annotated[
        Literal["shared", "exclusive", "failover", "key_shared"],
        Parameter(name="--type", help="Kind of the subscription."),
    ] = "shared",
    ack: Annotated[
        bool, Parameter(help="Acknowledge printed messages of the subscription.")
    ] = True,
    show: PrintOptions = SHOW,
    where: Where = HERE,
) -> int:
    """Print the messages of a topic, partition by partition, up to the present end.

    Example: braidlog consume orders --from -10 --output ndjson
    """
    client = client_of(where)
    if count is not None and count < 0:
        raise AdminError("--count is 0 or more", EXIT_USAGE)
    printer = _printer(topic, where, show, count)
    if subscription is not None:
        if from_ not in (None, "earliest", "latest"):
            text = "--from with a subscription is earliest or latest; groups reset moves it"
            raise AdminError(text, EXIT_USAGE)
        start = "Latest" if from_ == "latest" else "Earliest"
        kind = "_".join(part.capitalize() for part in type_.split("_"))
        wanted = {"subscription_type": kind, "initial_position": start}
        reader = GroupReader(client, topic, subscription, show.decode, ack)
        with printer:
            return reader.run(wanted, printer, follow)
    check_place(from_ or "earliest", "--from")
    readers = [
        _reader(client, topic, bounds, from_ or "earliest", until, show.decode)
        for bounds in bounds_of(client, topic, show.partition)
    ]
    with printer:
        if follow:
            return follow_all(readers, printer)
        return read_all(readers, printer)


def tail(
    *topics: str,
    count: Annotated[
        int, Parameter(name=["--count", "-n"], help="Messages of each topic before the new ones.")
    ] = 10,
    show: PrintOptions = SHOW,
    where: Where = HERE,
) -> int:
    """Print the last messages of topics, and further messages as they come, until interrupted.

    Example: braidlog tail orders --grep error
    """
    client = client_of(where)
    if not topics:
        raise AdminError("name a topic", EXIT_USAGE)
    if count < 0:
        raise AdminError("--count is 0 or more", EXIT_USAGE)
    printer = _printer(topics[0], where, show, None)
    readers: list[ConnectionReader] = []
    for topic in topics:
        mine = [
            _reader(client, topic, bounds, f"-{count}", "end", show.decode)
            for bounds in bounds_of(client, topic, show.partition)
        ]
        readers += mine
        earlier = [
            line
            for reader in mine
            for lines in reader.whole(lambda: READ_MESSAGES)
            for line in lines
        ]
        printer.print_last(topic, earlier, count)
    with printer:
        return follow_all(readers, printer)


class ConnectionReader:
    """Reads a partition from an offset on, over a connection that others may share."""

    def __init__(
        self, client: AdminClient, topic: str, bounds: PartitionBounds, decode: bool
    ) -> None:
        """`bounds` are the first offset wanted, and the end of a read to the end."""
        self.topic = topic
        self.client = client
        self.offset, self.end = bounds.start, bounds.end
        self._exact = "false" if decode else "true"
        self._path = f"/topics/{topic_path(topic)}/partitions/{bounds.partition}/messages"

    def ask(self, most: int, timeout_ms: int) -> None:
        """Send a request for messages. Raises AdminError."""
        query = {"position": self.offset, "max_messages": most, "timeout": timeout_ms}
        path = f"{self._path}?{urlencode(query)}&exact={self._exact}"
        self.client.send("GET", path, accept=LINES)

    def take(self) -> list[bytes]:
        """Return the messages of the answer, each a line of JSON. Raises AdminError."""
        _, content, headers = self.client.receive()
        self.offset = int(headers["X-Next-Offset"])
        return content.splitlines() if content else []

    def whole(self, most: Callable[[], int]) -> Iterator[list[bytes]]:
        """Yield the messages up to the end, at most `most()` together, until that is 0. Raises
        AdminError.
        """
        while self.offset < self.end and (count := most()):
            before = self.offset
            self.ask(min(count, self.end - before), 0)
            lines = self.take()
            if self.offset == before:  # Retention or a deletion took the rest.
                return
            yield lines


class GroupReader:
    """Reads as a consumer of a subscription, and acknowledges printed messages."""

    def __init__(
        self, client: AdminClient, topic: str, subscription: str, decode: bool, acks: bool
    ) -> None:
        name = path_part(subscription)
        self._base = f"/topics/{topic_path(topic)}/subscription/{name}"
        self._client = client
        self._topic = topic
        self._exact = "false" if decode else "true"
        self._acks = acks

    def run(self, wanted: dict[str, str], printer: MessagePrinter, follow: bool) -> int:
        """Print messages until none is left, or until interrupted. Raises AdminError."""
        body = {**wanted, "name": f"braidlog-{uuid.uuid4().hex[:8]}"}
        consumer = self._client.ask("POST", self._base, body)["id"]
        path = f"{self._base}/consumer/{consumer}"
        code = 0
        try:
            while printer.wants:
                lines = self._fetch(path, printer, FOLLOW_MS if follow else FETCH_MS)
                if not lines and not follow:
                    break
        except KeyboardInterrupt:
            self._client.close()  # Its answer may be on the way.
            code = EXIT_INTERRUPTED
            print(f"{printer.printed} messages printed", file=sys.stderr)
        finally:
            self._client.ask("DELETE", path)
        return code

    def _fetch(self, path: str, printer: MessagePrinter, timeout_ms: int) -> list[bytes]:
        most = min(READ_MESSAGES, printer.left)
        query = f"max_messages={most}&timeout={timeout_ms}&exact={self._exact}"
        _, content, _ = self._client.call("GET", f"{path}/messages?{query}", accept=LINES)
        lines = content.splitlines() if content else []
        ids = printer.print_lines(self._topic, lines, want_ids=self._acks)
        if ids and self._acks:
            body = {"type": "Individual", "messageIds": ids}
            self._client.ask("POST", f"{self._base}/cursor", body)
        return lines


def read_all(readers: Sequence[ConnectionReader], printer: MessagePrinter) -> int:
    """Print every reader's messages up to its end; returns the exit code. Raises AdminError."""
    total = min(sum(reader.end - reader.offset for reader in readers), printer.left)
    try:
        with progress("consume", "records", hidden=sys.stdout.isatty()) as advance:
            for reader in readers:
                for lines in reader.whole(lambda: min(READ_MESSAGES, printer.left)):
                    printer.print_lines(reader.topic, lines)
                    advance(printer.seen, total)
    except KeyboardInterrupt:
        print(f"{printer.printed} messages printed", file=sys.stderr)
        return EXIT_INTERRUPTED
    return 0


def follow_all(readers: Sequence[ConnectionReader], printer: MessagePrinter) -> int:
    """Print the messages of all readers as they come, until interrupted. Raises AdminError."""
    if len(readers) > FOLLOWED_MAX:
        text = f"at most {FOLLOWED_MAX} partitions are followed, here are {len(readers)}"
        raise AdminError(f"{text}; name one by --partition", EXIT_USAGE)
    with selectors.DefaultSelector() as selector:
        try:
            for reader in readers:
                reader.client = reader.client.another()
                _ask_and_watch(selector, reader, printer)
            ready = iter(selector.select())
            while printer.wants:
                key, _ = next(ready, (None, 0))
                if key is None:
                    ready = iter(selector.select())
                    continue
                selector.unregister(key.fileobj)
                printer.print_lines(key.data.topic, key.data.take())
                if printer.wants:
                    _ask_and_watch(selector, key.data, printer)
        except KeyboardInterrupt:
            print(f"{printer.printed} messages printed", file=sys.stderr)
            return EXIT_INTERRUPTED
    return 0


def _ask_and_watch(
    selector: selectors.BaseSelector, reader: ConnectionReader, printer: MessagePrinter
) -> None:
    reader.ask(min(READ_MESSAGES, printer.left), FOLLOW_MS)
    selector.register(reader.client.fileno(), selectors.EVENT_READ, reader)


def _reader(
    client: AdminClient, topic: str, bounds: PartitionBounds, from_: str, until: str, decode: bool
) -> ConnectionReader:
    start = offset_of(client, topic, bounds, from_, "--from")
    end = bounds.end
    if until != "end":
        end = offset_of(client, topic, bounds, until, "--until")
    return ConnectionReader(client, topic, PartitionBounds(bounds.partition, start, end), decode)


def _printer(topic: str, where: Where, show: PrintOptions, count: int | None) -> MessagePrinter:
    """Return the printer for a user's options. Raises AdminError."""
    topic_path(topic)  # A bad name is a better reason than a missing broker.
    template = None if show.format is None else Template(show.format)
    try:
        wanted = None if show.grep is None else re.compile(show.grep.encode())
    except (re.error, UnicodeEncodeError) as error:
        text = f"--grep {show.grep!r}: no regular expression: {error}"
        raise AdminError(text, EXIT_USAGE) from None
    return MessagePrinter(where.output, template, wanted, count, headers_only=show.headers_only)
