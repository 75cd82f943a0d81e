"""The matrix for readers: Markdown for the repository, an HTML page as a picture, and JSON.

Knows outcomes and client versions only; runs nothing.
"""

import dataclasses
import html
import json
from collections.abc import Iterable, Sequence

from conformance.runner import FAIL, PASS, SKIPPED, CaseOutcome, client_label

WORDS = (PASS, FAIL, SKIPPED)
SIGNS = {PASS: "pass", FAIL: "**FAIL**", SKIPPED: "skipped"}
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 72rem;
       margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: .6rem 0 1.6rem; }
th, td { border: 1px solid #ccc; padding: .25rem .55rem; text-align: left; vertical-align: top; }
th { font-weight: 600; background: #f4f4f4; }
td.pass { background: #d9f2dd; } td.fail { background: #f9c9c9; }
td.skipped { background: #f3ecd2; }
td a { color: inherit; } code { font-size: .92em; } :target { outline: 3px solid #46c; }
"""


@dataclasses.dataclass(frozen=True, slots=True)
class MatrixRun:
    """A run of the matrix: subject and outcomes."""

    date: str  # ISO 8601, as the report shows the date
    subject: str  # the tested brokers: Braidlog's version, or the given addresses
    seconds: float
    outcomes: Sequence[CaseOutcome]

    def count(self, word: str) -> int:
        """Return the number of cells with that result."""
        return sum(outcome.result == word for outcome in self.outcomes)

    def summary(self) -> str:
        """Return the counts in words."""
        return ", ".join(f"{self.count(word)} {word}" for word in WORDS)

    def by_case(self) -> dict[str, list[CaseOutcome]]:
        """Return the cells of each case, in the order of the run."""
        cases: dict[str, list[CaseOutcome]] = {}
        for outcome in self.outcomes:
            cases.setdefault(outcome.case, []).append(outcome)
        return cases


def to_json(run: MatrixRun) -> str:
    """Return the whole run, for machines."""
    cells = [
        {
            **dataclasses.asdict(outcome),
            "versions": [client_label(name) for name in outcome.clients],
            "command": command(outcome),
        }
        for outcome in run.outcomes
    ]
    head = {"date": run.date, "subject": run.subject, "seconds": round(run.seconds, 1)}
    return json.dumps({**head, "summary": run.summary(), "cells": cells}, indent=1) + "\n"


def from_json(text: str) -> MatrixRun:
    """Return the run that `to_json` wrote."""
    document = json.loads(text)
    names = [field.name for field in dataclasses.fields(CaseOutcome)]
    outcomes = [
        CaseOutcome(**{name: cell[name] for name in names} | {"clients": tuple(cell["clients"])})
        for cell in document["cells"]
    ]
    return MatrixRun(document["date"], document["subject"], document["seconds"], outcomes)


def to_markdown(run: MatrixRun, beside: Sequence[MatrixRun] = ()) -> str:
    """Return docs/conformance.md: a table per case, with the reasons of skipped and failed cells
    below.

    The end shows the results of other brokers' runs in the same cells.
    """
    lines = [
        "# Conformance",
        "",
        "What real client libraries saw. A cell is one case with one choice of clients;"
        " where two are named, the first wrote and the second read.",
        "",
        f"Run on {run.date} against {run.subject}: {run.summary()}, {run.seconds:.0f} s.",
        "`make conformance` runs it again; `make conformance ARGS='--only CASE'` one case of it.",
        "",
    ]
    for case, cells in run.by_case().items():
        lines += [f"## {title(case)}", "", cells[0].promise, ""]
        lines += _pairs_markdown(cells) if _are_pairs(cells) else _list_markdown(cells)
        lines += [""]
        lines += _reasons(cells)
    lines += _beside_markdown(run, beside) if beside else []
    return "\n".join(lines).rstrip() + "\n"


def to_html(run: MatrixRun, beside: Sequence[MatrixRun] = ()) -> str:
    """Return a page without other files: the matrix as a picture.

    Each cell leads to the command that repeats the cell. Other runs as in `to_markdown`.
    """
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>Braidlog conformance</title>",
        f"<style>{STYLE}</style><h1>Conformance</h1>",
        f"<p>{_text(run.date)}, {_text(run.subject)}: {_text(run.summary())}.</p>",
    ]
    for case, cells in run.by_case().items():
        parts += [
            f"<h2 id='{_text(case)}'>{_text(title(case))}</h2><p>{_text(cells[0].promise)}</p>"
        ]
        parts += _pairs_html(cells) if _are_pairs(cells) else _list_html(cells)
    parts += _beside_html(run, beside) if beside else []
    parts.append("<h2>Each cell</h2><table><tr><th>cell<th>result<th>to repeat it<th>why</tr>")
    parts += [
        f"<tr id='{_anchor(cell)}'><td>{_text(cell.case)}: {_text(_clients(cell))}"
        f"<td class={cell.result}>{cell.result}<td><code>{_text(command(cell))}</code>"
        f"<td>{_text(cell.reason)}</tr>"
        for cell in run.outcomes
    ]
    return "\n".join([*parts, "</table></html>"]) + "\n"


def _beside(
    run: MatrixRun, beside: Sequence[MatrixRun]
) -> list[tuple[CaseOutcome, list[CaseOutcome | None]]]:
    """Return the cells that another broker's run has too, with each result."""
    runs = [
        {(cell.case, cell.clients): cell for cell in other.outcomes if cell.result != SKIPPED}
        for other in beside
    ]
    rows = [
        (cell, [outcomes.get((cell.case, cell.clients)) for outcomes in runs])
        for cell in run.outcomes
    ]
    return [(cell, others) for cell, others in rows if any(others)]


BESIDE = "Beside other brokers"
BESIDE_PROMISE = (
    "What other runs gave in the same cells: real brokers of one protocol, asked with the clients"
    " that speak to them alone, and our own, three over one store, each protocol at another."
)


def _beside_markdown(run: MatrixRun, beside: Sequence[MatrixRun]) -> list[str]:
    subjects = [run.subject, *(other.subject for other in beside)]
    lines = [f"## {BESIDE}", "", BESIDE_PROMISE, "", f"| cell | {' | '.join(subjects)} |"]
    lines.append("| --- " * (len(subjects) + 1) + "|")
    for cell, others in _beside(run, beside):
        signs = [SIGNS[outcome.result] if outcome else "" for outcome in (cell, *others)]
        lines.append(f"| {title(cell.case)}: {_clients(cell)} | {' | '.join(signs)} |")
    return [*lines, ""]


def _beside_html(run: MatrixRun, beside: Sequence[MatrixRun]) -> list[str]:
    heads = "".join(f"<th>{_text(shown.subject)}" for shown in (run, *beside))
    lines = [f"<h2>{BESIDE}</h2><p>{BESIDE_PROMISE}</p><table><tr><th>cell{heads}</tr>"]
    for cell, others in _beside(run, beside):
        results = "".join(
            f"<td class={outcome.result}>{outcome.result}" if outcome else "<td>"
            for outcome in others
        )
        name = f"{title(cell.case)}: {_clients(cell)}"
        lines.append(f"<tr><td>{_text(name)}{_cell_html(cell)}{results}</tr>")
    return [*lines, "</table>"]


def title(case: str) -> str:
    """Return `raw_null_and_empty` as a heading."""
    return case.replace("_", " ").capitalize()


def command(cell: CaseOutcome) -> str:
    """Return the command that repeats this cell."""
    return f"make conformance ARGS=\"--cell '{cell.case}:{','.join(cell.clients)}'\""


def _are_pairs(cells: Sequence[CaseOutcome]) -> bool:
    """Return True if the cells fill most of a square of writers and readers."""
    if not all(len(cell.clients) == 2 for cell in cells):
        return False
    writers, readers = _axes(cells)
    return 2 * len(cells) >= len(writers) * len(readers)


def _axes(cells: Sequence[CaseOutcome]) -> tuple[list[str], list[str]]:
    return (
        list(dict.fromkeys(cell.clients[0] for cell in cells)),
        list(dict.fromkeys(cell.clients[1] for cell in cells)),
    )


def _pairs_markdown(cells: Sequence[CaseOutcome]) -> list[str]:
    writers, readers = _axes(cells)
    signs = {cell.clients: SIGNS[cell.result] for cell in cells}
    return [
        "| writes \\ reads | " + " | ".join(client_label(name) for name in readers) + " |",
        "| --- " * (len(readers) + 1) + "|",
        *(
            f"| {client_label(writer)} | "
            + " | ".join(signs.get((writer, reader), "") for reader in readers)
            + " |"
            for writer in writers
        ),
    ]


def _list_markdown(cells: Sequence[CaseOutcome]) -> list[str]:
    rows = [f"| {_clients(cell)} | {SIGNS[cell.result]} |" for cell in cells]
    return ["| clients | result |", "| --- | --- |", *rows]


def _reasons(cells: Iterable[CaseOutcome]) -> list[str]:
    lines = [
        f"* {_clients(cell)}: {cell.result}: {cell.reason}" for cell in cells if cell.result != PASS
    ]
    return [*lines, ""] if lines else []


def _pairs_html(cells: Sequence[CaseOutcome]) -> list[str]:
    writers, readers = _axes(cells)
    cell_of = {cell.clients: cell for cell in cells}
    heads = "".join(f"<th>{_text(client_label(name))}" for name in readers)
    lines = [f"<table><tr><th>writes \\ reads{heads}</tr>"]
    for writer in writers:
        row = "".join(_cell_html(cell_of.get((writer, reader))) for reader in readers)
        lines.append(f"<tr><th>{_text(client_label(writer))}{row}</tr>")
    return [*lines, "</table>"]


def _list_html(cells: Sequence[CaseOutcome]) -> list[str]:
    rows = [f"<tr><th>{_text(_clients(cell))}{_cell_html(cell)}</tr>" for cell in cells]
    return ["<table>", *rows, "</table>"]


def _cell_html(cell: CaseOutcome | None) -> str:
    if cell is None:
        return "<td>"
    why = f" title='{_text(cell.reason)}'" if cell.reason else ""
    return f"<td class={cell.result}{why}><a href='#{_anchor(cell)}'>{cell.result}</a>"


def _clients(cell: CaseOutcome) -> str:
    return " > ".join(client_label(name) for name in cell.clients)


def _anchor(cell: CaseOutcome) -> str:
    return _text("-".join((cell.case, *cell.clients)).replace(" ", "-"))


def _text(text: str) -> str:
    return html.escape(text, quote=True)
