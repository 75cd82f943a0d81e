"""The mission in two minutes: three stock clients write a topic, and each client reads all records.

A group walks through the topic from client to client, and the topic becomes Parquet. `make demo`;
exits 1 when a value that both clients of a pair can express was lost, added or reordered.
"""

import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from conformance.clients.base import ClientMessage
from conformance.clients.libraries import CLIENTS, python_for
from conformance.clients.proxy import DriverProxy
from conformance.ending import end_on_signals
from conformance.runner import client_label
from conformance.server import RunningBroker

TOPIC = "demo-orders"
GROUP = "1"  # iggy-py polls with this consumer id; Kafka and Pulsar use it as the group's name.
NAMES = ("kafka-python", "pulsar-client", "iggy-py")
EACH = 1000

Row = tuple[str, str, int, int, bool]


def main() -> int:
    """Return 0 when all records were equal."""
    console = Console()
    started = time.monotonic()
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="braidlog-demo-")))
        broker = stack.enter_context(RunningBroker(scratch))
        console.print("One broker, one log, four listeners:", broker.addresses)
        drivers = [_open(stack, broker, name) for name in NAMES]
        sent = _produce(console, drivers)
        rows: list[Row] = []
        rows += _read_by_each(console, drivers, sent)
        rows += _read_by_one_group(console, drivers, sent)
        rows += _export(console, broker, scratch, sent)
        _show(console, rows)
        code = broker.stop()
    equal = all(row[4] for row in rows) and code == 0
    verdict = "[green]everything equal" if equal else "[red]DIFFERENCES"
    console.print(f"{verdict}[/], {time.monotonic() - started:.0f} s, broker ended with {code}")
    return 0 if equal else 1


def _open(stack: ExitStack, broker: RunningBroker, name: str) -> DriverProxy:
    client = CLIENTS[name]
    address = broker.addresses[client.protocol]
    return stack.enter_context(DriverProxy(python_for(client), client.driver, address))


def _produce(console: Console, drivers: list[DriverProxy]) -> list[bytes]:
    sent: list[bytes] = []
    for name, driver in zip(NAMES, drivers, strict=True):
        values = [f"order {i} by {name}".encode() for i in range(EACH)]
        console.print(f"  {client_label(name)} writes {EACH} values to {TOPIC}")
        driver.produce(TOPIC, [ClientMessage(value) for value in values])
        sent += values
    return sent


def _read_by_each(console: Console, drivers: list[DriverProxy], sent: list[bytes]) -> list[Row]:
    rows = []
    for name, driver in zip(NAMES, drivers, strict=True):
        console.print(f"  {client_label(name)} reads the whole topic")
        seen = [item.value for item in driver.read(TOPIC, len(sent))]
        rows.append(("whole topic", client_label(name), len(sent), len(seen), seen == sent))
    return rows


def _read_by_one_group(
    console: Console, drivers: list[DriverProxy], sent: list[bytes]
) -> list[Row]:
    rows = []
    third = len(sent) // len(drivers)
    for i, (name, driver) in enumerate(zip(NAMES, drivers, strict=True)):
        console.print(f"  {client_label(name)} goes on as group {GROUP!r}")
        seen = [item.value for item in driver.read_as_group(TOPIC, GROUP, third)]
        wanted = sent[i * third : (i + 1) * third]
        rows.append(
            (f"group {GROUP!r}, part {i + 1}", client_label(name), third, len(seen), seen == wanted)
        )
    return rows


def _export(console: Console, broker: RunningBroker, scratch: Path, sent: list[bytes]) -> list[Row]:
    console.print("  PySpark exports the topic to Parquet (starting a JVM)")
    target = scratch / "parquet"
    command = [
        sys.executable,
        "-m",
        "braidlog.broker.cli.main",
        "export",
        TOPIC,
        "--to",
        str(target),
    ]
    command += ["--data-dir", str(broker.data_dir)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL)
    values: list[bytes] = []
    if done.returncode == 0:
        import pyarrow.parquet as parquet

        table = parquet.read_table(target, columns=["offset", "value"]).sort_by("offset")
        values = table.column("value").to_pylist()
    return [("Parquet", "pyspark", len(sent), len(values), values == sent)]


def _show(console: Console, rows: list[Row]) -> None:
    table = Table("what", "by", "sent", "seen", "equal, in order")
    for action, name, sent, seen, equal in rows:
        mark = "[green]yes[/]" if equal else "[red]NO[/]"
        table.add_row(action, name, str(sent), str(seen), mark)
    console.print(table)


if __name__ == "__main__":
    end_on_signals()
    sys.exit(main())
