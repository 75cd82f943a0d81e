"""`python -m conformance.today`: run today's Kafka clients against a broker, tell how each did.

See README.md beside this.
"""

import argparse
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from conformance.server import RunningBroker
from conformance.today.programs import PROGRAMS, Program, Unavailable
from conformance.today.scenario import PARTITIONS, Client, Failed, check_codec, check_group


def outcomes(program: Program, address: str) -> Iterator[tuple[str, str]]:
    """(what was tried, how it went), one after the other."""
    try:
        client = Client(program.command(), address)
    except Unavailable as reason:
        yield "build", f"skipped: {reason}"
        return
    unique = uuid.uuid4().hex[:8]
    topic = f"today-{program.name}-{unique}"
    client.make(topic)
    for number, codec in enumerate(program.codecs):
        yield codec, _outcome(lambda: check_codec(client, topic, codec, number))  # noqa: B023
    yield "group", _outcome(lambda: check_group(client, f"{topic}-g", f"g-{unique}"))
    yield "admin", _outcome(lambda: client.call("admin", f"{topic}-a"))


def _outcome(check: object) -> str:
    assert callable(check)
    try:
        took = check()
    except Failed as failure:
        return f"FAILED: {failure}"
    return f"ok, shared again {took:.1f} s after a death" if isinstance(took, float) else "ok"


def main() -> int:
    """The exit code: 0 if nothing failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", help="a client's name, with or without version")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="a broker that is there already")
    options = parser.parse_args()
    chosen = [
        one
        for one in PROGRAMS
        if not options.only or {one.name, f"{one.name}-{one.version}"} & set(options.only)
    ]
    if options.kafka:
        return _run(chosen, options.kafka)
    with tempfile.TemporaryDirectory() as folder:
        settings = [f"topics.num_partitions={PARTITIONS}"]
        listen = {"kafka": "127.0.0.1:0"}
        with RunningBroker(Path(folder), listen=listen, others=False, settings=settings) as running:
            code = _run(chosen, running.addresses["kafka"])
            running.stop()
            running.verify()
            return code


def _run(chosen: list[Program], address: str) -> int:
    failed = False
    for program in chosen:
        for what, outcome in outcomes(program, address):
            failed |= outcome.startswith("FAILED")
            print(f"{program.name:16} {program.version:8} {what:8} {outcome}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
