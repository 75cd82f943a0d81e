"""`braidlog produce` and `braidlog import`: store messages in a topic of a running broker.

`produce` makes new messages of text. `import` stores the lines of `consume --output ndjson` again,
with the same bytes and times.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Annotated, Literal

from cyclopts import Parameter

from braidlog.broker.cli.client import API, AdminClient, Json, topic_path
from braidlog.broker.cli.failures import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_NOT_FOUND,
    EXIT_USAGE,
    AdminError,
)
from braidlog.broker.cli.import_notes import ImportNote
from braidlog.broker.cli.line_input import STANDARD_INPUT, grouped, groups_of_lines
from braidlog.broker.cli.output import HERE, Where, client_of
from braidlog.broker.cli.progress import progress

# A message that the broker refuses, in the text of the refusal.
REFUSED_MESSAGE = re.compile(r"messages\[(\d+)\]")


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class MessageOptions:
    """Parts of produced messages."""

    key: Annotated[str | None, Parameter(name=["--key", "-k"], help="Key of all messages.")] = None
    key_separator: Annotated[
        str | None,
        Parameter(name=["--key-separator", "-K"], help="Text between key and value in each line."),
    ] = None
    partition: Annotated[
        int | None, Parameter(name=["--partition", "-p"], help="Else by key, or in turn.")
    ] = None
    property_: Annotated[
        list[str] | None,
        Parameter(name=["--property", "-P"], negative="", help="NAME=VALUE. Repeatable."),
    ] = None
    event_time: Annotated[
        int | None, Parameter(help="Event time of all messages, in milliseconds since 1970.")
    ] = None
    input: Annotated[
        Literal["raw", "json", "base64"],
        Parameter(help="A value is text, a JSON value (null: no value), or base64."),
    ] = "raw"
    schema: Annotated[
        str | None, Parameter(help="Schema type of JSON values, as STRING, INT64, JSON, AVRO.")
    ] = None


MESSAGE = MessageOptions()


def produce(
    topic: str,
    /,
    *values: str,
    file: Annotated[
        str, Parameter(help="A message in each line; by default standard input.")
    ] = STANDARD_INPUT,
    message: MessageOptions = MESSAGE,
    repeat_: Annotated[
        int, Parameter(name="--repeat", help="Number of times that the given values are sent.")
    ] = 1,
    rate: Annotated[float | None, Parameter(help="Messages per second at most.")] = None,
    where: Where = HERE,
) -> int:
    """Store messages: the given values, or each line of a file or of standard input.

    Example: braidlog produce orders hello world --key k1 --property source=shell
    """
    client = client_of(where)
    if repeat_ < 1 or (rate is not None and not rate > 0):
        raise AdminError("--repeat and --rate are greater than 0", EXIT_USAGE)
    if values:
        encoded = [os.fsencode(value) for value in values]
        groups = grouped(chain.from_iterable(repeat(encoded, repeat_)))
    else:
        groups = groups_of_lines(file)
    messages: Iterable[list[bytes]] = (
        [_message(line, message) for line in lines] for lines in groups
    )
    if rate is not None:
        messages = _paced(messages, rate)
    sending = MessageSending(client, f"/topics/{topic_path(topic)}", where.output)
    return sending.run(message.schema, messages)


def import_(
    file: Annotated[str, Parameter(allow_leading_hyphen=True)],
    topic: str,
    /,
    *,
    partition: Annotated[
        int | None, Parameter(name=["--partition", "-p"], help="Instead of the lines' own.")
    ] = None,
    by_key: Annotated[
        bool, Parameter(negative="", help="Choose partitions by key, not the lines' own.")
    ] = False,
    resume: Annotated[
        str | None,
        Parameter(help="File that notes the stored lines: the next import goes on there."),
    ] = None,
    where: Where = HERE,
) -> int:
    """Store the lines of `consume --output ndjson` in a topic: the same keys, values, headers and
    times. FILE `-` is standard input. Needs the right `admin` on the topic.

    Example: braidlog import orders.ndjson orders-copy --resume orders.note
    """
    client = client_of(where)
    note = ImportNote(resume, file, topic)
    importing = Importing(client, f"{API}/topics/{topic_path(topic)}/messages", note)
    with progress(f"import {topic}") as advance:
        for group in groups_of_lines(file, advance):
            lines = importing.skipped(group)
            if by_key or partition is not None:
                lines = importing.moved(lines, partition)
            importing.send(lines)
    note.remove()
    print(f"{importing.stored} messages stored", file=sys.stderr)
    return 0


class MessageSending:
    """Sends groups of new messages, and reports the results."""

    def __init__(self, client: AdminClient, path: str, output: str) -> None:
        self._client = client
        self._path = path
        self._output = output
        self.stored = 0

    def run(self, schema: str | None, groups: Iterable[list[bytes]]) -> int:
        """Send every group; returns the exit code. Raises AdminError."""
        head = b"" if schema is None else b'"schema_type":%b,' % json.dumps(schema).encode()
        try:
            for group in groups:
                self._send(b'{%b"messages":[%b]}' % (head, b",".join(group)))
        except KeyboardInterrupt:
            print(f"{self.stored} messages stored", file=sys.stderr)
            return EXIT_INTERRUPTED
        except AdminError as error:
            if not self.stored:
                raise
            text = f"{error}; {self.stored} messages were stored"
            raise AdminError(text, error.exit_code) from error
        if self._output == "table":
            print(f"{self.stored} messages stored", file=sys.stderr)
        return 0

    def _send(self, body: bytes) -> None:
        try:
            results = self._client.ask("POST", self._path, body)["messageIds"]
        except AdminError as error:
            if error.exit_code != EXIT_NOT_FOUND:
                raise
            text = f"{error}; create the topic with `braidlog topics create`"
            raise AdminError(text, EXIT_NOT_FOUND) from error
        failed = [result for result in results if result["error"] is not None]
        self.stored += len(results) - len(failed)
        if self._output != "table":
            for result in results:
                print(json.dumps(result))
            sys.stdout.flush()
        if failed:
            raise AdminError(failed[0]["error"], EXIT_FAILED)


class Importing:
    """Sends groups of exported lines, without those that the note calls stored."""

    def __init__(self, client: AdminClient, path: str, note: ImportNote) -> None:
        self._client = client
        self._note = note
        self._path = path
        self._line = 0  # Lines before the present group.
        self.stored = 0

    def skipped(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """Return a group without the lines that an earlier import has stored."""
        count = min(max(self._note.lines - self._line, 0), len(lines))
        self._line += count
        return lines[count:]

    def send(self, lines: Sequence[bytes]) -> None:
        """Store a group of lines. Raises AdminError, with the number of the bad line."""
        full = [line for line in lines if line.strip()]
        if full:
            body = b'{"messages":[%b]}' % b",".join(full)
            try:
                self._client.call("POST", self._path, body)
            except AdminError as error:
                raise AdminError(
                    self._with_line_number(str(error), lines), error.exit_code
                ) from error
            except KeyboardInterrupt:
                text = f"{self.stored} messages stored, up to line {self._line}"
                print(text, file=sys.stderr)
                raise
        self.stored += len(full)
        self._line += len(lines)
        if lines:
            self._note.write(self._line)

    def moved(self, lines: Sequence[bytes], partition: int | None) -> list[bytes]:
        """Return lines with another partition, or with no partition. Raises AdminError."""
        moved: list[bytes] = []
        for number, line in enumerate(lines, self._line + 1):
            if not line.strip():
                moved.append(line)
                continue
            tree = _parsed(line)
            if not isinstance(tree, dict):
                raise AdminError(f"line {number}: not a JSON object{self._before()}", EXIT_FAILED)
            moved.append(json.dumps({**tree, "partition": partition}).encode())
        return moved

    def _with_line_number(self, text: str, lines: Sequence[bytes]) -> str:
        """Return the broker's refusal with the number of the line in the file."""
        numbers = [n for n, line in enumerate(lines, self._line + 1) if line.strip()]
        match = REFUSED_MESSAGE.search(text)
        if match is not None and int(match[1]) < len(numbers):
            text = text.replace(match[0], f"line {numbers[int(match[1])]}", 1)
        else:  # The broker cannot name a line that is not JSON.
            for number in numbers:
                if not isinstance(_parsed(lines[number - self._line - 1]), dict):
                    text = f"line {number}: not a JSON object"
                    break
        return text + self._before()

    def _before(self) -> str:
        return f"; {self.stored} messages before were stored" if self.stored else ""


def _parsed(line: bytes) -> object:
    """Return the JSON of a line; None if the line is not JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _message(line: bytes, options: MessageOptions) -> bytes:
    """Return the JSON of a message for the broker. Raises AdminError."""
    key = None if options.key is None else os.fsencode(options.key)
    if options.key_separator is not None:
        key, separator, line = line.partition(os.fsencode(options.key_separator))
        if not separator:
            raise AdminError(f"no {options.key_separator!r} in the line {key[:60]!r}", EXIT_FAILED)
    message: Json = {}
    if options.input == "json":
        if _parsed(line) is None and line.strip() != b"null":
            raise AdminError(f"not JSON: {line[:60]!r}", EXIT_FAILED)
        value = line  # As written: numbers keep their digits.
    else:
        text = line.strip() if options.input == "base64" else base64.b64encode(line)
        value = json.dumps(text.decode("ascii", "replace")).encode()
        message["encoding"] = "base64"
    if key is not None:
        message |= {"key": base64.b64encode(key).decode(), "key_encoding": "base64"}
    if options.partition is not None:
        message["partition"] = options.partition
    if options.event_time is not None:
        message["eventTime"] = options.event_time
    if options.property_:
        message["properties"] = dict(_property(text) for text in options.property_)
    return b'{"value":%b%b' % (value, _rest(message))


def _rest(message: Json) -> bytes:
    """Return the members after the first member of an object."""
    return b"}" if not message else b"," + json.dumps(message).encode()[1:]


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not _is_text(text):
        raise AdminError(f"--property {text!r}: expected NAME=VALUE in UTF-8", EXIT_USAGE)
    return name, value


def _is_text(text: str) -> bool:
    """Return True if an argument is UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _paced(groups: Iterable[list[bytes]], rate: float) -> Iterator[list[bytes]]:
    """Yield each message alone, not faster than the rate."""
    began, sent = time.monotonic(), 0
    for group in groups:
        for message in group:
            wait_s = began + sent / rate - time.monotonic()
            if wait_s > 0:
                time.sleep(wait_s)
            sent += 1
            yield [message]
