"""`python -m conformance.programs.java_admin_calls`: every method of Java's admin client about
brokers, clusters, tenants, namespaces, topics, policies, schemas, statistics and lookups; the
result or error of each is that recorded from Apache, or a reason is given.

`--record --pulsar HOST:PORT --http URL` records a running Apache Pulsar with an empty data
directory. The lines are in `java_admin_calls.txt`, the answers in
`conformance/vectors/pulsar/java-admin-calls.json`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from conformance.programs import maven
from conformance.programs.admin_commands import (
    DIFFERENT,
    REFUSED,
    CommandLine,
    outcome,
    read_lines,
    recorded,
    table,
)
from conformance.programs.running import NotBuilt
from conformance.server import RunningBroker

NAME: Final = "pulsar-java-admin"
SOURCES: Final = Path(__file__).parent / "pulsar_java_admin"
LINES: Final = Path(__file__).with_suffix(".txt")
ANSWERS: Final = Path(__file__).parents[1] / "vectors" / "pulsar" / "java-admin-calls.json"
GROUPS: Final = (
    *("Brokers", "Clusters", "Tenants", "Namespaces", "Topics", "TopicPolicies", "Schemas"),
    *("BrokerStats", "Lookup", "NonPersistentTopics"),
)
ENDING: Final = "Brokers.shutDownBrokerGracefully(int,boolean)"  # The broker would end.
APACHE_PAUSE_MS: Final = 100  # Until Apache shows a changed policy of a topic.
RUN_S: Final = 580
ANSWER: Final = '{"line"'  # Begins an answer; libraries print lines of their own.


def run(
    pulsar: str, url: str, lines: Sequence[CommandLine], pause_ms: int = 0
) -> tuple[set[str], list[Any]]:
    """Call the methods. Return the signatures of all methods, and each line's answer. Raises
    NotBuilt.
    """
    sent = "".join(line.text.replace("ADDRESS", url.partition("://")[2]) + "\n" for line in lines)
    command = maven.command_of(NAME, "Calls", pulsar, url, str(pause_ms))
    done = subprocess.run(command, input=sent, timeout=RUN_S, capture_output=True, text=True)
    printed = done.stdout.splitlines()
    answers = [json.loads(line) for line in printed if line.startswith(ANSWER)]
    signatures = next((json.loads(line) for line in printed if line.startswith('["')), [])
    if len(answers) != len(lines):
        raise NotBuilt(f"the program stopped: {done.stderr[-2000:]}")
    return {name for name in signatures if name.partition(".")[0] in GROUPS}, answers


def fault(line: CommandLine, answer: Any, expected: Any) -> str:
    """Return the outcome as for `pulsar-admin`; a refusal has to be 501."""
    is_refusal = line.flag == REFUSED and not answer["ok"]
    if is_refusal and not answer["text"].startswith(REFUSED):
        return f"ends with {answer['text'][:200]}, not {REFUSED}"
    return outcome(line, answer, expected)


def main() -> int:
    """Return 1 if an answer differs without a reason, or a method has no line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="record a running Apache Pulsar")
    parser.add_argument("--pulsar", default="127.0.0.1:6650", metavar="HOST:PORT")
    parser.add_argument("--http", default="http://127.0.0.1:8080", metavar="URL")
    options = parser.parse_args()
    maven.build(SOURCES, NAME)
    lines = read_lines(LINES)
    keys = [f"{number} {line.text}" for number, line in enumerate(lines)]
    if options.record:
        _, answers = run(options.pulsar, options.http, lines, APACHE_PAUSE_MS)
        rows = dict(zip(keys, map(recorded, lines, answers), strict=True))
        ANSWERS.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
        return 0
    with RunningBroker() as broker:
        known, answers = run(broker.addresses["pulsar"], broker.url, lines)
    expected = json.loads(ANSWERS.read_text())
    outcomes = [
        fault(line, answer, expected[key])
        for key, line, answer in zip(keys, lines, answers, strict=True)
    ]
    missing = known - {line.text.split(" ")[0] for line in lines} - {ENDING}
    faults = [f"no line: {signature}" for signature in sorted(missing)] + [
        f"{line.text}: {result}"
        for line, result in zip(lines, outcomes, strict=True)
        if result not in ("same", REFUSED, DIFFERENT)
    ]
    print("\n".join((*faults, *table(lines, outcomes, GROUPS))))
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
