"""`braidlog bench`: the speed of produce and consume over HTTP, against a running broker.

Each client is a thread with a connection of its own. Knows no broker but its HTTP API.
"""

from __future__ import annotations

import base64
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Annotated

from cyclopts import App, Parameter

from braidlog.broker.cli.client import AdminClient, Json, topic_path
from braidlog.broker.cli.consume import LINES
from braidlog.broker.cli.failures import EXIT_USAGE, AdminError
from braidlog.broker.cli.output import HERE, Where, client_of, print_rows
from braidlog.broker.cli.places import bounds_of

bench = App(name="bench", help="Measure produce and consume over HTTP against a running broker.")

Clients = Annotated[int, Parameter(help="Connections at the same time.")]
Batch = Annotated[int, Parameter(help="Messages of a request.")]
COLUMNS = ("messages", "seconds", "messages_per_s", "mib_per_s", "p50_ms", "p99_ms", "max_ms")
MESSAGES_MAX = 10_000  # Of a request, as the broker takes them.


@bench.command(name="produce")
def bench_produce(
    topic: str,
    *,
    count: Annotated[int, Parameter(name=["--count", "-n"], help="Messages in all.")] = 10_000,
    size: Annotated[int, Parameter(help="Bytes of a value.")] = 100,
    clients: Clients = 1,
    batch: Batch = 100,
    where: Where = HERE,
) -> None:
    """Store random messages in a topic; print the rate, and the time of a request.

    Example: braidlog bench produce orders --count 100000 --size 1000 --clients 4
    """
    client = client_of(where)
    _check(count, clients, batch)
    path = f"/topics/{topic_path(topic)}"
    value = base64.b64encode(os.urandom(max(size, 0))).decode()
    messages = [{"value": value, "encoding": "base64"}] * batch
    share = -(-count // clients)

    def work(mine: AdminClient, times: list[float]) -> tuple[int, int]:
        left = share
        while left > 0:
            body = {"messages": messages[: min(batch, left)]}
            began = time.perf_counter()
            message_ids = mine.ask("POST", path, body)["messageIds"]
            times.append(time.perf_counter() - began)
            if failed := [
                message_id["error"] for message_id in message_ids if message_id["error"] is not None
            ]:
                raise AdminError(failed[0])
            left -= len(message_ids)
        return share, share * size

    _run(where, [client.another() for _ in range(clients)], work)


@bench.command(name="consume")
def bench_consume(topic: str, *, batch: Batch = 1000, where: Where = HERE) -> None:
    """Read a topic from its start to its end, a client for each partition; print the rate, and the
    time of a request. Bytes are those of the answers.

    Example: braidlog bench consume orders
    """
    client = client_of(where)
    _check(1, 1, batch)
    ranges = list(bounds_of(client, topic))
    waiting = iter(ranges)

    def work(mine: AdminClient, times: list[float]) -> tuple[int, int]:
        bounds = next(waiting)
        path = f"/topics/{topic_path(topic)}/partitions/{bounds.partition}/messages"
        offset, size, count = bounds.start, 0, 0
        while offset < bounds.end:
            query = f"position={offset}&max_messages={batch}&timeout=0&max_bytes=10485760"
            began = time.perf_counter()
            _, content, headers = mine.call("GET", f"{path}?{query}&exact=true", accept=LINES)
            times.append(time.perf_counter() - began)
            if int(headers["X-Next-Offset"]) == offset:
                break
            offset = int(headers["X-Next-Offset"])
            size, count = size + len(content), count + content.count(b"\n")
        return count, size

    _run(where, [client.another() for _ in ranges], work)


Work = Callable[[AdminClient, list[float]], tuple[int, int]]


def _run(where: Where, clients: Sequence[AdminClient], work: Work) -> None:
    """Run the work with each client at the same time, and print the result. Raises AdminError."""
    times: list[float] = []
    done: list[tuple[int, int]] = []
    errors: list[AdminError] = []

    def attempt(client: AdminClient) -> None:
        try:
            done.append(work(client, times))
        except AdminError as error:
            errors.append(error)

    threads = [threading.Thread(target=attempt, args=(client,), daemon=True) for client in clients]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    if errors:
        raise errors[0]
    report = result(sum(count for count, _ in done), sum(size for _, size in done), seconds, times)
    print_rows(where, report, COLUMNS)


def result(messages: int, size: int, seconds: float, times: Sequence[float]) -> Json:
    """Return rates, and percentiles of the times of requests."""
    ordered = sorted(times) or [0.0]

    def percentile(share: float) -> float:
        return round(1000 * ordered[min(int(len(ordered) * share), len(ordered) - 1)], 3)

    return {
        "messages": messages,
        "seconds": round(seconds, 3),
        "messages_per_s": round(messages / max(seconds, 1e-9)),
        "mib_per_s": round(size / max(seconds, 1e-9) / 2**20, 2),
        "p50_ms": percentile(0.5),
        "p99_ms": percentile(0.99),
        "max_ms": percentile(1.0),
    }


def _check(count: int, clients: int, batch: int) -> None:
    """Raise AdminError for impossible numbers."""
    if count < 1 or not 1 <= clients <= 1000 or not 1 <= batch <= MESSAGES_MAX:
        text = f"--count is 1 or more, --clients 1 to 1000, --batch 1 to {MESSAGES_MAX}"
        raise AdminError(text, EXIT_USAGE)
