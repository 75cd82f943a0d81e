"""Frames recorded between clients and ZooKeeper 3.4.6 (conformance/vectors/zookeeper)."""

import csv
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).parents[3] / "conformance/vectors/zookeeper/frames.tsv"


@dataclass(frozen=True)
class Vector:
    client: str
    operation: str
    request: bytes
    answer: bytes


def vectors():
    with FILE.open(newline="") as file:
        return [
            Vector(
                row["client"],
                row["operation"],
                bytes.fromhex(row["request"]),
                bytes.fromhex(row["answer"]),
            )
            for row in csv.DictReader(file, delimiter="\t")
        ]
