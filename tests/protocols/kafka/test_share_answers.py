"""Requests about share groups get the codes of Apache Kafka 4.3.1 (`share-answers.tsv`)."""

import csv
from pathlib import Path
from typing import Any, Final

from braidlog.protocols.kafka.codec import read
from braidlog.protocols.kafka.fields import FieldReader
from braidlog.protocols.kafka.schema import Struct
from braidlog.protocols.kafka.tables import APIS
from tests.protocols.kafka.frames import RawKafka

ROWS: Final = Path(__file__).parents[3] / "conformance/vectors/kafka/share-answers.tsv"
HEAD_BYTES: Final = 9  # Size, correlation id, number of tagged fields.
# Kafka answers "unknown server error" there; Braidlog names the partition and the code 100.
DIFFERENT: Final = {"first fetch of an unknown topic id"}


def rows() -> list[dict[str, str]]:
    with ROWS.open() as lines:
        return list(csv.DictReader(lines, delimiter="\t"))


def codes(value: Any) -> Any:
    """Return the codes of an answer, with the shape of its lists."""
    if isinstance(value, list):
        return [codes(item) for item in value]
    if not isinstance(value, Struct):
        return None
    names = [field.name for field in value.FIELDS]
    return {
        name: getattr(value, name) if name.endswith("error_code") else codes(getattr(value, name))
        for name in names
    }


async def test_answers_have_kafkas_codes(client: RawKafka) -> None:
    checked = 0
    for row in rows():
        key, version = int(row["key"]), int(row["version"])
        await client.stream.send_all(bytes.fromhex(row["request"]))
        frame = await client.frame()
        assert frame is not None
        answer = read(APIS[key].reply, FieldReader(memoryview(frame), HEAD_BYTES), version)
        wanted = bytes.fromhex(row["answer"])
        kafka = read(APIS[key].reply, FieldReader(memoryview(wanted), HEAD_BYTES), version)
        if row["note"] not in DIFFERENT:
            assert codes(answer) == codes(kafka), row["note"]
            checked += 1
    assert checked >= 28
