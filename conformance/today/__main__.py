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
from conformance.today.programs import MIGRATION, PROGRAMS, Program, ProgramUnavailable
from conformance.today.scenario import (
    PARTITIONS,
    SHARED_S,
    ClientProgram,
    ScenarioFailed,
    check_codec,
    check_group,
    check_migration,
    check_modern,
    check_refusal,
    check_share,
)

Line = tuple[str, str, str, str]
"""Client, version, what was tried, how it went."""


def outcomes(program: Program, address: str) -> Iterator[tuple[str, str]]:
    """Yield (attempt, result) in order."""
    try:
        client = ClientProgram(program.command(), address)
    except ProgramUnavailable as reason:
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
    if "modern" in program.tries:
        yield "modern", _outcome(lambda: check_modern(client, f"{topic}-m", f"m-{unique}"))
    if MIGRATION in program.tries:
        yield MIGRATION, _outcome(lambda: check_migration(client, f"{topic}-c", f"c-{unique}"))
    if "share" in program.tries:
        yield "share", _outcome(lambda: check_share(client, f"{topic}-s", f"s-{unique}"))
    if "admin" in program.tries:
        yield "admin", _outcome(lambda: client.call("admin", f"{topic}-a"))
    if "transact" in program.tries:
        yield "refusal", _outcome(lambda: check_refusal(client, topic))


def _outcome(check: object) -> str:
    assert callable(check)
    try:
        detail = check()
    except ScenarioFailed as failure:
        return f"FAILED: {failure}"
    if isinstance(detail, float):
        late = "FAILED: " if detail > SHARED_S else ""
        return f"{late}ok, shared again {detail:.1f} s after a death"
    return f"ok: {detail}" if isinstance(detail, str) else "ok"


def main() -> int:
    """Return 0 if nothing failed."""
    settings = [f"topics.num_partitions={PARTITIONS}"]
    lines, report = run_programs(__doc__, PROGRAMS, _run, settings)
    if report is not None:
        report.write_text(report_of(lines))
    return int(any(outcome.startswith("FAILED") for *_, outcome in lines))


def _run(chosen: list[Program], address: str) -> Iterator[Line]:
    for program in chosen:
        for check, outcome in outcomes(program, address):
            print(f"{program.name:16} {program.version:8} {check:8} {outcome}", flush=True)
            yield program.name, program.version, check, outcome


def report_of(lines: list[Line]) -> str:
    """Return a table with a row per client."""
    rows: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for name, version, check, outcome in lines:
        rows.setdefault((name, version), []).append((check, outcome))
    text = [
        "# Today's Kafka clients",
        "",
        f"`python -m conformance.today`, Python {platform.python_version()}: each client with its",
        "default settings, at the version that is named (`conformance/today/README.md`).",
        "",
        "`not in VERSION`: this version of the client has no such calls. `-`: not tried, since",
        "transactions are not served.",
        "",
        "| client | records with codec | group of three | `group.protocol=consumer` | share group "
        "| admin calls | what is not served |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (name, version), checks in rows.items():
        outcome_of = dict(checks)
        others = ("group", "modern", "share", "admin", "refusal")
        codecs = ", ".join(
            check if outcome == "ok" else f"{check}: {outcome}"
            for check, outcome in checks
            if check not in (*others, MIGRATION)
        )
        absent = dict.fromkeys(("modern", "share"), f"not in {version}")
        cells = [
            codecs or "-",
            *(outcome_of.get(check, absent.get(check, "-")) for check in others),
        ]
        text.append(f"| {name} {version} | " + " | ".join(cells).replace("\n", " ") + " |")
    text += [
        "",
        "A group that goes to the consumer protocol and back, a member after the other:",
        "",
    ]
    text += [
        f"* {name} {version}: {outcome}"
        for name, version, check, outcome in lines
        if check == MIGRATION
    ]
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    sys.exit(main())
