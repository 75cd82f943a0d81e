"""The recorded Pulsar frames of `conformance/vectors/pulsar`, by name."""

import csv
from functools import cache
from pathlib import Path

from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import BaseCommand

VECTORS = Path(__file__).parents[3] / "conformance" / "vectors" / "pulsar"


@cache
def frames(file):
    """Return name -> (sender, bytes) of every row."""
    with (VECTORS / file).open(newline="") as lines:
        rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    return {row[0]: (row[1], bytes.fromhex(row[2])) for row in rows}


def sent(name):
    """Return a frame of the real client, or a frame that the client accepted from a stub."""
    return frames("golden-frames.tsv")[name][1]


def answered(name):
    """Return a frame of Apache's broker."""
    return frames("golden-answers.tsv")[name][1]


def by_client():
    return [name for name, (sender, _) in frames("golden-frames.tsv").items() if sender == "C"]


def by_stub():
    return [name for name, (sender, _) in frames("golden-frames.tsv").items() if sender == "S"]


def taken_apart(frame):
    """Return the command of a frame, and the rest."""
    total, size = int.from_bytes(frame[:4], "big"), int.from_bytes(frame[4:8], "big")
    assert total + 4 == len(frame)
    return BaseCommand.FromString(frame[8 : 8 + size]), frame[8 + size :]
