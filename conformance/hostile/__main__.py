"""`python -m conformance.hostile`: attack a new broker, and judge the broker after each attack.

    python -m conformance.hostile --protocol kafka --frames 2000000 --report docs/reports/hostile.md

Without `--protocol` every protocol is attacked. Then the scenarios run twice: the second pass shows
the growth of memory. The exit code is 1 at the first finding.
"""

import argparse
import platform
import sys
import time
from dataclasses import replace
from pathlib import Path

from conformance.clients import iggy_programs
from conformance.ending import end_on_signals
from conformance.hostile.attack import AttackResult, attack
from conformance.hostile.clearing import clear, fill_memory, prepare
from conformance.hostile.commands import OPTIONAL, protocols
from conformance.hostile.judge import (
    AttackEffect,
    check_log,
    judged,
    memory_given_back,
    peak_bytes,
    restarts_with_the_same,
)
from conformance.hostile.rows import Protocol
from conformance.hostile.scenarios import (
    LONG,
    LONG_SCENARIOS,
    SCENARIOS,
    SHORT,
    Scenario,
)
from conformance.server import RunningBroker

EVERY = SCENARIOS | LONG_SCENARIOS
MIB, MB = 1 << 20, 1_000_000
# Highest memory with the default limits, and highest growth of the second pass over the first.
MOST_MB, GROWTH_MB = 400, 30
# A longer turn is a line in the log, and such a line ends the run. Mutated logins guess passwords,
# and Iggy's oldest dialect has no login.
SETTINGS = ("loop_turn_log_ms=50", "access.slow_down=false", *iggy_programs.SETTINGS)
ROUND_FRAMES = 25_000
QUIET_S = 60.0  # Between the second pass and the last measurement of memory.


def main(arguments: list[str]) -> int:
    """Run the attacks; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m conformance.hostile", description=__doc__)
    known = protocols()
    parser.add_argument("--protocol", choices=[*known, "none"], action="append")
    parser.add_argument("--dialect", help="frames of this dialect of the protocol alone")
    parser.add_argument("--frames", type=int, default=20_000, help="mutated frames per protocol")
    parser.add_argument("--minutes", type=float, default=1e6, help="at most, per protocol")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--long", action="store_true", help="scenarios in their long form")
    parser.add_argument("--no-scenarios", action="store_true")
    parser.add_argument("--scenario", choices=list(EVERY), action="append", help="this alone")
    parser.add_argument("--report", type=Path, help="a Markdown file to write")
    options = parser.parse_args(arguments)
    wanted = [name for name in known if name in (options.protocol or known)]
    report = HostileReport(options.seed)
    with RunningBroker(listen=OPTIONAL, settings=SETTINGS) as broker:
        for name in wanted:
            with judged(broker) as verdict:
                until = time.monotonic() + 60 * options.minutes
                part = of_dialect(known[name], options.dialect)
                sent = attack_in_rounds(
                    broker, part, options.frames, options.seed, verdict, until=until
                )
            assert not sent.hung, f"{sent.hung} connections were never closed"
            report.attacked(name, sent, verdict)
            clear(broker)
        if not options.no_scenarios:
            wanted_ones = options.scenario or (EVERY if options.long else SCENARIOS)
            chosen = {name: EVERY[name] for name in wanted_ones}
            _run_scenarios(broker, report, chosen, is_long=options.long)
        begun = time.monotonic()
        restarts_with_the_same(broker)
        report.say(f"It restarted with the same records, in {time.monotonic() - begun:.1f} s.")
    if options.report is not None:
        options.report.write_text(report.text())
    return 0


def of_dialect(protocol: Protocol, dialect: str | None) -> Protocol:
    """Return the part of an attack in that dialect; the whole attack if there is none given."""
    if dialect is None:
        return protocol
    return replace(protocol, talks=[talk for talk in protocol.talks if talk.dialect == dialect])


def attack_in_rounds(
    broker: RunningBroker,
    protocol: Protocol,
    frames: int,
    seed: int,
    verdict: AttackEffect,
    *,
    until: float,
) -> AttackResult:
    """Send `frames` frames, and delete the created topics after every ROUND_FRAMES.

    No further round begins after `until`. With several rounds, a large topic and the first round
    fill the memory that a broker keeps: only the growth of the later rounds is judged.
    """
    whole = AttackResult()
    if frames > ROUND_FRAMES:
        fill_memory(broker)
        verdict.memory_before = broker.resident_bytes()
    for number, begun in enumerate(range(0, frames, ROUND_FRAMES)):
        if time.monotonic() >= until:
            break
        prepare(broker)
        whole.add(attack(broker, protocol, min(ROUND_FRAMES, frames - begun), f"{seed} {number}"))
        print(
            f"{protocol.name}: {whole.total} frames, {broker.resident_bytes() / MIB:.0f} MiB",
            flush=True,
        )
        check_log(broker)
        clear(broker)
        if not number and frames > ROUND_FRAMES:
            before, now = verdict.memory_before, broker.resident_bytes()
            assert now - before <= verdict.growth_max, f"{now - before} bytes in the first round"
            verdict.memory_before, verdict.growth_max = now, GROWTH_MB * MB
    return whole


def _run_scenarios(
    broker: RunningBroker, report: "HostileReport", scenarios: dict[str, Scenario], *, is_long: bool
) -> None:
    after: list[int] = []
    for turn in (1, 2):
        for name, scenario in scenarios.items():
            with judged(broker) as verdict:
                scenario(broker, LONG if is_long else SHORT)
            report.played(f"{name}, pass {turn}", verdict)
        if turn == 2 and is_long:
            time.sleep(QUIET_S)
        # Like the memory after a scenario: up to 45 MB of holes in the heap are no growth.
        expected = after[0] + GROWTH_MB * MB if after else 0
        after.append(memory_given_back(broker, expected))
    first, second, most = (size / MB for size in (*after, peak_bytes(broker)))
    report.say(f"Memory after the first pass {first:.0f} MB, after the second one {second:.0f} MB;")
    report.say(f"{most:.0f} MB at most.")
    figures = f"{first:.0f}, {second:.0f}, at most {most:.0f} MB"
    assert most <= MOST_MB and second - first <= GROWTH_MB, f"too much memory: {figures}"


class HostileReport:
    """The actions and findings, as Markdown, printed immediately."""

    def __init__(self, seed: int) -> None:
        self._lines: list[str] = []
        self.say("# Hostile clients\n")
        self.say(
            f"Seed {seed}, Python {platform.python_version()}, {platform.machine()}. Times are"
        )
        self.say(
            "those of a healthy client of each protocol that worked meanwhile, at their worst.\n"
        )

    def say(self, line: str) -> None:
        """Add a line."""
        print(line, flush=True)
        self._lines.append(line)

    def attacked(self, name: str, sent: AttackResult, verdict: AttackEffect) -> None:
        """Report mutated frames."""
        share = 100 * sent.handled.total() / sent.total
        self.say(f"## {name}: {sent.total} mutated frames in {sent.seconds:.0f} s\n")
        self.say(
            f"{sent.handled.total()} ({share:.0f} %) reached a handler. {_effect_text(verdict)}\n"
        )
        if len(sent.dialects) > 1:
            self.say("| dialect | frames |\n| --- | --- |")
            for dialect, count in sorted(sent.dialects.items()):
                self.say(f"| {dialect} | {count} |")
            self.say("")
        self.say("| command | handled |\n| --- | --- |")
        for command, count in sorted(sent.handled.items()):
            self.say(f"| {command} | {count} |")
        self.say("")

    def played(self, name: str, verdict: AttackEffect) -> None:
        """Report a scenario."""
        self.say(f"* {name}: {_effect_text(verdict)}")

    def text(self) -> str:
        """Return the whole report."""
        return "\n".join(self._lines) + "\n"


def _effect_text(verdict: AttackEffect) -> str:
    waits = ", ".join(f"{name} {wait:.2f} s" for name, wait in sorted(verdict.longest_s.items()))
    before, most, after = verdict.memory_before, verdict.memory_most, verdict.memory_after
    memory = (
        f"{before / MIB:.0f} MiB before, {after / MIB:.0f} after, {most / MIB:.0f} at most so far"
    )
    return f"Waits: {waits}. Memory: {memory}."


if __name__ == "__main__":
    end_on_signals()
    sys.exit(main(sys.argv[1:]))
