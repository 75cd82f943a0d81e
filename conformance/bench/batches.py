"""`python -m conformance.bench.batches --load BIN --kafka HOST:PORT,PID`: record batches beside
Kafka.

The real Kafka runs already. An independent load generator (see `conformance.bench.peers`) sends
prepared Produce requests of a 128 KB batch with messages of 100 bytes. The brokers take turns
within each round; each figure is the median of the rounds. Three goals are judged: `written` at
Kafka's rate, `synced` at 0.9 of Kafka's rate, and at most 0.7 of Kafka's processor time per message
in `written`. On a loaded machine only the processor time counts.
"""

import argparse
import sys
from contextlib import ExitStack

from conformance.bench.peer_rows import Figures, PeerRow, PeerServer
from conformance.bench.peers import WARM_UP_S, generator, measure, medians, parse_server
from conformance.server import RunningBroker

BATCHES = 3  # First version of Produce that carries record batches.
KAFKA = "Kafka"
MODES = ("written", "synced")
WRITTEN_RATE_MIN, SYNCED_RATE_MIN, CPU_MAX = 1.0, 0.9, 0.7  # of Kafka's


def braidlog(mode: str, stack: ExitStack) -> PeerServer:
    """Start a Braidlog broker in this mode, until the stack ends."""
    settings = [f"log.durability={mode}"]
    broker = stack.enter_context(RunningBroker(settings=settings))
    return PeerServer(mode, "kafka", broker.addresses["kafka"], broker.pid, BATCHES)


def table(figures_by_name: dict[str, Figures]) -> str:
    """Return a Markdown table with a line per broker."""
    kafka = figures_by_name[KAFKA]
    lines = [
        "| broker | messages a second | of Kafka's | CPU us a message | of Kafka's |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, figures in figures_by_name.items():
        rate, cpu = figures["rate"] / kafka["rate"], figures["cpu_us"] / kafka["cpu_us"]
        cells = f"{figures['rate']:,.0f} | {rate:.2f} | {figures['cpu_us']:.3f} | {cpu:.2f}"
        lines.append(f"| {name} | {cells} |")
    return "\n".join(lines)


def verdicts(figures_by_name: dict[str, Figures]) -> list[tuple[bool, str]]:
    """Return per goal: reached or not, and a line of text."""
    kafka, written, synced = (
        figures_by_name[KAFKA],
        figures_by_name["written"],
        figures_by_name["synced"],
    )
    rates = [written["rate"] / kafka["rate"], synced["rate"] / kafka["rate"]]
    cpu = written["cpu_us"] / kafka["cpu_us"]
    return [
        (rates[0] >= WRITTEN_RATE_MIN, f"written: {rates[0]:.2f} of the rate, {WRITTEN_RATE_MIN}"),
        (rates[1] >= SYNCED_RATE_MIN, f"synced: {rates[1]:.2f} of the rate, {SYNCED_RATE_MIN}"),
        (cpu <= CPU_MAX, f"written: {cpu:.2f} of the processor time, at most {CPU_MAX}"),
    ]


def main() -> int:
    """Return 0 when every goal is reached."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.bench.batches", description=__doc__
    )
    parser.add_argument("--load", metavar="BIN", required=True)
    parser.add_argument("--kafka", metavar="HOST:PORT,PID", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--warm-up", type=float, default=WARM_UP_S, metavar="SECONDS")
    options = parser.parse_args()
    row = PeerRow("batches", "kafka", generator(options.load, "raw", "-size", "100"))
    runs: dict[str, list[Figures]] = {}
    with ExitStack() as stack:
        servers = [parse_server("kafka", f"{KAFKA}={options.kafka},{BATCHES}")]
        servers += [braidlog(mode, stack) for mode in MODES]
        for server in servers:
            measure(server, row, options.warm_up)
        for number in range(options.rounds):
            for server in servers:
                print(f"round {number + 1}: {server.name}", file=sys.stderr)
                runs.setdefault(server.name, []).append(measure(server, row, options.seconds))
    figures_by_name = {name: medians(of_one) for name, of_one in runs.items()}
    print(table(figures_by_name))
    judged = verdicts(figures_by_name)
    for reached, line in judged:
        print("reached" if reached else "MISSED ", line)
    return 0 if all(reached for reached, _ in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
