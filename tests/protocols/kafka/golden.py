"""The recorded Kafka frames of `conformance/vectors/kafka`, as typed rows."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

VECTORS = Path(__file__).parents[3] / "conformance" / "vectors" / "kafka"


@dataclass(frozen=True)
class GoldenFrame:
    """A request of a real client and the answer that the client accepted; `answer` may be empty."""

    label: str
    api_key: int
    version: int
    request: bytes
    answer: bytes


@dataclass(frozen=True)
class GoldenAnswer:
    """A request and the answer of an 0.8.2.2 broker; `answer` is a frame as hex or a word."""

    label: str
    api_key: int | None
    note: str
    quirk: bool
    request: bytes
    answer: str


def golden_frames() -> list[GoldenFrame]:
    """Return all rows of `golden-frames.tsv`."""
    rows = []
    for number, row in _rows("golden-frames.tsv"):
        api, key, version, sender, note, request, answer = (*row, "", "")[:7]
        frame = bytes.fromhex(answer) if _is_hex(answer) else b""
        label = f"{number} {api} {sender} {note}"
        rows.append(GoldenFrame(label, int(key), int(version), bytes.fromhex(request), frame))
    return rows


def golden_answers() -> list[GoldenAnswer]:
    """Return all rows of `golden-answers.tsv`, in file order."""
    rows = []
    for number, row in _rows("golden-answers.tsv"):
        key, _, note, quirk, request, answer = (*row, "", "")[:6]
        rows.append(
            GoldenAnswer(
                f"{number} {note}",
                int(key) if key else None,
                note,
                quirk == "quirk",
                bytes.fromhex(request),
                answer,
            )
        )
    return rows


def _rows(name: str) -> Iterator[tuple[int, list[str]]]:
    with (VECTORS / name).open(newline="") as file:
        for number, row in enumerate(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE), 1):
            if row and not row[0].startswith("#"):
                yield number, row


def _is_hex(text: str) -> bool:
    return bool(text) and set(text) <= set("0123456789abcdef")
