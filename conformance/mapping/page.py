"""The tables of docs/mapping.md, made from the rules. Knows text only."""

from conformance.mapping.rules import (
    ABOUT,
    FIELDS,
    MADE_UP,
    READS,
    TITLES,
    UNTOUCHED,
    WRITES,
    rule_of,
)

BEGIN = "<!-- made by python -m conformance.mapping: from here -->"
END = "<!-- to here -->"
MADE_UP_ROW = "- (made up)"


def tables() -> str:
    """Return the text between the two marks."""
    lines = [
        "## Clients",
        "",
        "| name below | clients | writes | reads |",
        "| --- | --- | --- | --- |",
    ]
    for name, title in TITLES.items():
        both = [("yes" if name in known else "no") for known in (WRITES, READS)]
        lines.append(f"| {title} | {ABOUT[name]} | {' | '.join(both)} |")
    lines += ["", "## Fields of writers", ""]
    lines += ["| field | " + " | ".join(TITLES[name] for name in WRITES) + " |"]
    lines += ["| --- " * (len(WRITES) + 1) + "|"]
    for field in FIELDS:
        cells = [WRITES[writer].get(field, "-") for writer in WRITES]
        lines.append(f"| {field} | {' | '.join(cells)} |")
    lines += ["", "## Every ordered pair", ""]
    for writer in WRITES:
        for reader in READS:
            lines += pair(writer, reader)
    return "\n".join(lines)


def pair(writer: str, reader: str) -> list[str]:
    """Return the heading and table of a pair."""
    lines = [f"### {TITLES[writer]} -> {TITLES[reader]}", ""]
    if (writer, reader) in UNTOUCHED:
        return [*lines, "Byte for byte as sent, also bodies that the broker cannot open.", ""]
    lines += ["| field | arrives as | rule |", "| --- | --- | --- |"]
    for field in FIELDS:
        made_up = MADE_UP.get(reader, {}).get(field)
        if field in WRITES[writer]:
            rule = rule_of(writer, reader, field)
            place = f"`{rule.seen_as}`" if rule.seen_as else "stays in the log"
            lines.append(f"| {field} | {place} | {rule.how} |")
        elif made_up is not None:
            place = READS[reader][field].seen_as
            lines.append(f"| {field} {MADE_UP_ROW} | `{place}` | {made_up} |")
    return [*lines, ""]


def renewed(page: str) -> str:
    """Return the page with new tables."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{after}"
