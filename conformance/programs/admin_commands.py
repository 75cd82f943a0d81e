"""`python -m conformance.programs.admin_commands`: every command of eight groups of `pulsar-admin`,
with arguments, against a broker; the outcome and text of each are those recorded from Apache.

`--record --pulsar HOST:PORT --http URL` records a running Apache Pulsar with an empty data
directory. The lines are in `admin_commands.txt`, the answers in
`conformance/vectors/pulsar/admin-commands.json`.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conformance.programs import maven, pulsar_admin_program
from conformance.programs.running import NotBuilt
from conformance.server import RunningBroker

LINES: Final = Path(__file__).with_suffix(".txt")
ANSWERS: Final = Path(__file__).parents[1] / "vectors" / "pulsar" / "admin-commands.json"
MAIN: Final = "org.apache.pulsar.admin.cli.Commands"
NAMES: Final = {
    "TOPIC": "persistent://public/shop/orders",
    "PARTS": "persistent://public/shop/parts",
    "SPACE": "public/shop",
}
SCHEMA: Final = {
    "type": "JSON",
    "schema": '{"type":"record","name":"Item","fields":[{"name":"count","type":"int"}]}',
    "properties": {},
}
ENDING: Final = "brokers shutdown"  # Not sent to Apache: it would end.
RUN_S: Final = 600
GROUPS: Final = (
    *("brokers", "clusters", "tenants", "namespaces", "topics", "topicPolicies", "schemas"),
    "broker-stats",
)
REFUSED, DIFFERENT = "501", "differs"


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A line of `admin_commands.txt`, and the way of its comparison."""

    text: str
    flag: str = ""

    @property
    def command(self) -> str:
        """The group and the command; of a method of Java, the name and the parameters."""
        words = self.text.split()
        if "." in words[0]:
            group, _, method = words[0].partition(".")
            return f"{group} {method}"
        return " ".join(words[:2])


def read_lines(path: Path = LINES) -> list[CommandLine]:
    """Return the lines, in the order of the run."""
    texts = [line for line in path.read_text().splitlines() if line and line[0] != "#"]
    return [CommandLine(text, flag) for text, _, flag in (line.partition(" | ") for line in texts)]


def run(pulsar: str, url: str, lines: Sequence[CommandLine]) -> tuple[set[str], list[Any]]:
    """Run the lines. Return the names of all commands of the groups, and each line's answer.
    Raises NotBuilt.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".json") as schema:
        json.dump(SCHEMA, schema)
        schema.flush()
        named = {**NAMES, "ADDRESS": url.partition("://")[2], "SCHEMA": schema.name}
        sent = [
            " ".join(named.get(word, word) for word in line.text.split(" ")) + "\n"
            for line in lines
        ]
        command = maven.command_of(pulsar_admin_program.NAME, MAIN, pulsar, url)
        done = subprocess.run(
            command, input="".join(sent), timeout=RUN_S, capture_output=True, text=True
        )
    groups, *answers = map(json.loads, done.stdout.splitlines())
    if len(answers) != len(lines):
        raise NotBuilt(f"the tool stopped: {done.stderr[-2000:]}")
    known = {f"{group} {name}" for group in GROUPS for name in groups[group]}
    return known, answers


def plain(text: str) -> str:
    """Return the text of an answer without addresses, the tool's own help and its stack traces."""
    text = re.sub(r"(?s)(\n\tat |\n?Usage: pulsar-admin).*", "", text)
    return re.sub(r"127\.0\.0\.1:\d+|localhost:\d+", "HOST", text).strip()


def paths(value: object, path: str = "") -> Iterator[str]:
    """Yield the path of each key of a JSON value; of a list, the first element's."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield f"{path}.{key}"
            yield from paths(inner, f"{path}.{key}")
    elif isinstance(value, list) and value:
        yield from paths(value[0], f"{path}[]")


def recorded(line: CommandLine, answer: Any) -> dict[str, object]:
    """Return the part of Apache's answer that a comparison needs."""
    text = plain(answer["text"])
    if line.flag == "keys":
        return {"ok": answer["ok"], "keys": sorted(set(paths(_json(text))))}
    is_free = line.flag == "status" or line.flag.startswith((REFUSED, DIFFERENT))
    return {"ok": answer["ok"]} if is_free else {"ok": answer["ok"], "text": text}


def outcome(line: CommandLine, answer: Any, expected: Any) -> str:
    """Return `same`, `501`, `differs`, or the fault."""
    text, is_ok = plain(answer["text"]), answer["ok"]
    if line.flag == REFUSED:
        return f"served: {text[:200]}" if is_ok else REFUSED
    if line.flag.startswith(DIFFERENT):
        return DIFFERENT
    if is_ok != expected["ok"]:
        return f"ends with {is_ok}, not {expected['ok']}: {text[:200]}"
    if "keys" in expected:
        missing = set(expected["keys"]) - set(paths(_json(text)))
        return f"lacks {', '.join(sorted(missing))}" if missing else "same"
    if "text" in expected and _value(text) != _value(expected["text"]):
        return f"answers {text[:200]!r}, not {expected['text'][:200]!r}"
    return "same"


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _value(text: str) -> object:
    """Return the JSON value of a text with lists of words in order; else the text."""
    value = _json(text)
    is_words = isinstance(value, list) and all(isinstance(word, str) for word in value)
    return sorted(value) if is_words and isinstance(value, list) else value or text


def table(
    lines: Iterable[CommandLine], outcomes: Iterable[str], groups: Sequence[str] = GROUPS
) -> Iterator[str]:
    """Yield the rows of the table of groups: commands, served, refused, and those that differ."""
    by_command: dict[str, set[str]] = {}
    for line, result in zip(lines, outcomes, strict=True):
        by_command.setdefault(line.command, set()).add(result)
    totals: Counter[str] = Counter()
    for group in (*groups, "all"):
        counts: Counter[str] = Counter()
        for command, kinds in by_command.items():
            if command.startswith(f"{group} "):
                counts["commands"] += 1
                counts["served" if kinds - {REFUSED} else "refused"] += 1
                counts["other"] += DIFFERENT in kinds
        totals += counts
        shown = totals if group == "all" else counts
        numbers = (shown[name] for name in ("commands", "served", "refused", "other"))
        yield f"| {group} | {' | '.join(map(str, numbers))} |"


def main() -> int:
    """Return 1 if an answer differs without a reason, or a command has no line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="record a running Apache Pulsar")
    parser.add_argument("--pulsar", default="127.0.0.1:6650", metavar="HOST:PORT")
    parser.add_argument("--http", default="http://127.0.0.1:8080", metavar="URL")
    options = parser.parse_args()
    pulsar_admin_program.build()
    lines = read_lines()
    if options.record:
        lines = [line for line in lines if line.text != ENDING]
        _, answers = run(options.pulsar, options.http, lines)
        rows = {
            f"{number} {line.text}": recorded(line, answer)
            for number, (line, answer) in enumerate(zip(lines, answers, strict=True))
        }
        ANSWERS.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
        return 0
    with RunningBroker() as broker:
        known, answers = run(broker.addresses["pulsar"], broker.url, lines)
    expected = json.loads(ANSWERS.read_text())
    outcomes = [
        outcome(line, answer, expected.get(f"{number} {line.text}", {"ok": False}))
        for number, (line, answer) in enumerate(zip(lines, answers, strict=True))
    ]
    missing = known - {line.command for line in lines}
    faults = [f"no line: {command}" for command in sorted(missing)] + [
        f"{line.text}: {result}"
        for line, result in zip(lines, outcomes, strict=True)
        if result not in ("same", REFUSED, DIFFERENT)
    ]
    print("\n".join((*faults, *table(lines, outcomes))))
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
