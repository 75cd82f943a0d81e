"""`python -m conformance.today`: run today's Kafka clients against a broker, and report the
results.

See README.md in this folder.
"""

import platform
import sys
import uuid
from collections.abc import Iterator
from functools import partial

from conformance.today.command import run_programs
from conformance.today.programs import PROGRAMS, Program, Unavailable
from conformance.today.scenario import (
    PARTITIONS,
    SHARED_S,
    Client,
    Failed,
    check_codec,
    check_group,
    check_refusal,
)

Line = tuple[str, str, str, str]
"""Client, version, what was tried, how it went."""


def outcomes(program: Program, address: str) -> Iterator[tuple[str, str]]:
    """Yield (attempt, result) in order."""
    try:
        client = Client(program.command(), address)
    except Unavailable as reason:
        yield "build", f"skipped: {reason}"
        return
    unique = uuid.uuid4().hex[:8]
    topic = f"today-{program.name}-{unique}"
    if not program.makes_topics:
        client.make(topic)
    for number, codec in enumerate(program.codecs):
        yield codec, _outcome(partial(check_codec, client, topic, codec, number))
    if "group" in program.tries:
        yield "group", _outcome(lambda: check_group(client, f"{topic}-g", f"g-{unique}"))
    if "admin" in program.tries:
        yield "admin", _outcome(lambda: client.call("admin", f"{topic}-a"))
    if "transact" in program.tries:
        yield "refusal", _outcome(lambda: check_refusal(client, topic))


def _outcome(check: object) -> str:
    assert callable(check)
    try:
        found = check()
    except Failed as failure:
        return f"FAILED: {failure}"
    if isinstance(found, float):
        late = "FAILED: " if found > SHARED_S else ""
        return f"{late}ok, shared again {found:.1f} s after a death"
    return f"ok: {found}" if isinstance(found, str) else "ok"


def main() -> int:
    """Return 0 if nothing failed."""
    settings = [f"topics.num_partitions={PARTITIONS}"]
    lines, report = run_programs(__doc__, PROGRAMS, _run, settings)
    if report is not None:
        report.write_text(report_of(lines))
    return int(any(outcome.startswith("FAILED") for *_, outcome in lines))


def _run(chosen: list[Program], address: str) -> Iterator[Line]:
    for program in chosen:
        for what, outcome in outcomes(program, address):
            print(f"{program.name:16} {program.version:8} {what:8} {outcome}", flush=True)
            yield program.name, program.version, what, outcome


def report_of(lines: list[Line]) -> str:
    """Return a table with a row per client."""
    rows: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for name, version, what, outcome in lines:
        rows.setdefault((name, version), []).append((what, outcome))
    text = [
        "# Today's Kafka clients",
        "",
        f"`python -m conformance.today`, Python {platform.python_version()}: each client with its",
        "default settings, at the version that is named (`conformance/today/README.md`).",
        "",
        "| client | records with codec | group of three | admin calls | what is not served |",
        "| --- | --- | --- | --- | --- |",
    ]
    for (name, version), found in rows.items():
        told = dict(found)
        others = {"group", "admin", "refusal"}
        codecs = ", ".join(
            what if outcome == "ok" else f"{what}: {outcome}"
            for what, outcome in found
            if what not in others
        )
        cells = [codecs or "-", *(told.get(one, "-") for one in ("group", "admin", "refusal"))]
        text.append(f"| {name} {version} | " + " | ".join(cells).replace("\n", " ") + " |")
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    sys.exit(main())
