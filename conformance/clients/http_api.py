"""`python -m conformance.clients.http_api --tool PATH`: schemathesis against a Braidlog broker.

All phases run twice: with random names, and with the names of an existing topic, group and
consumer.

    python3 -m venv /tmp/api && /tmp/api/bin/pip install schemathesis==4.32.5
    python -m conformance.clients.http_api --tool /tmp/api/bin/schemathesis --report FILE

The exit code is 1 for an answer that `/openapi.json` does not describe, a 500, a traceback in the
broker's log, or a turn of the broker's loop above 50 ms. `tests/protocols/http/test_description.py`
is the short form.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.request import Request, urlopen

from conformance.server import RunningBroker

PHASES = "examples,coverage,fuzzing,stateful"
# Checks against the description. `not_a_server_error` is judged below: Pulsar's admin API has
# operations that this broker answers with 501.
CHECKS = (
    "status_code_conformance,content_type_conformance,response_schema_conformance,"
    "response_headers_conformance"
)
# The tool discards many generated values (path names with a slash) and is slow at that; neither is
# a fault of the broker.
ABOUT_THE_TOOL = "filter_too_much,too_slow"
ANSWER_S = 90  # A read may wait for a minute.
BAD_EVENTS = ("Traceback", "request_failed", "loop_held")  # In lines of the broker's log.
SETTINGS = ("loop_turn_log_ms=50",)
BASE = "/topics/public/default/orders"
KNOWN: dict[str, object] = {
    "path.tenant": "public",
    "path.namespace": "default",
    "path.topic": "orders",
    "path.name": "orders",
    "path.subscription": "s",
    "path.group": "s",
    "path.consumer": "c",
    "path.partition": 0,
    "query.timeout": 0,  # A read of an existing topic would wait, up to a minute.
}
NAMES: dict[str, dict[str, object]] = {"chance": {}, "there": KNOWN}


def main(arguments: Sequence[str]) -> int:
    """Run the tool; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.clients.http_api", description=__doc__
    )
    parser.add_argument("--tool", default="schemathesis", help="its command")
    parser.add_argument("--examples", type=int, default=20, help="requests of one operation")
    parser.add_argument("--phases", default=PHASES)
    parser.add_argument("--names", nargs="+", choices=list(NAMES), default=list(NAMES))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path, help="a Markdown file to write")
    options = parser.parse_args(arguments)
    lines = ["| names | seconds | requests | faults |", "| --- | --- | --- | --- |"]
    is_right = True
    for name in options.names:
        with RunningBroker(settings=SETTINGS) as broker:
            began = time.monotonic()
            code = _run(broker, options, NAMES[name])
            faults = _faults(broker)
            if code:
                faults.append(f"schemathesis ended with {code}")
            seconds, verdict = time.monotonic() - began, "; ".join(faults) or "none"
            lines.append(f"| {name} | {seconds:.0f} | {_requests(broker)} | {verdict} |")
            is_right = is_right and not faults
    text = "\n".join(lines) + "\n"
    print(text)
    if options.report is not None:
        options.report.write_text(text)
    return 0 if is_right else 1


def _run(broker: RunningBroker, options: argparse.Namespace, known: dict[str, object]) -> int:
    _put(broker, "PUT", "/api/v1/topics/public/default/orders", {"partitions": 1})
    _put(broker, "POST", BASE, {"messages": [{"key": "k", "value": "v"}]})
    _put(broker, "POST", f"{BASE}/subscription/s", {"id": "c", "initial_position": "Earliest"})
    config = broker.folder / "schemathesis.toml"
    parameters = [f'"{name}" = {json.dumps(value)}' for name, value in known.items()]
    config.write_text("\n".join(["[parameters]", *parameters, ""]))
    command = [options.tool, "--config-file", str(config), "run", f"{broker.url}/openapi.json"]
    command += ["--seed", str(options.seed), "--max-examples", str(options.examples)]
    command += ["--phases", options.phases, "--checks", CHECKS, "--continue-on-failure"]
    command += ["--request-timeout", str(ANSWER_S), "--generation-database", "none"]
    command += ["--suppress-health-check", ABOUT_THE_TOOL]
    return subprocess.run(command, check=False, cwd=broker.folder).returncode


def _put(broker: RunningBroker, method: str, path: str, body: object) -> None:
    head = {"Content-Type": "application/json"}
    with urlopen(Request(f"{broker.url}{path}", json.dumps(body).encode(), head, method=method)):
        pass


def _faults(broker: RunningBroker) -> list[str]:
    """Return the faults that the broker has noticed."""
    faults = []
    if _count(broker, 'braidlog_errors_total{code="internal_error",protocol="http"}'):
        faults.append("a 500")
    log = broker.log()
    for line in log.splitlines():
        if any(event in line for event in BAD_EVENTS):
            print(line)
    faults += [event for event in BAD_EVENTS if event in log]
    return faults


def _requests(broker: RunningBroker) -> int:
    return _count(broker, "braidlog_requests_total{")


def _count(broker: RunningBroker, start: str) -> int:
    lines = broker.metrics_lines()
    return int(sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(start)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
