"""Kafka 4.3.1's answers to logins and to requests for ACLs, and this broker's in the same order."""

from pathlib import Path

import pytest

from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.tables import APIS
from conformance.golden.asking import CLOSED, SIZE, body_of, decoded, frame_of
from conformance.golden.comparing import compare, read_known
from conformance.golden.login_cases import ADMIN, CARL, LoginDialogue, LoginStep
from conformance.golden.logins import dialogues, next_step, row_of
from conformance.golden.talk import GoldenRow, read_table
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.kafka.golden import VECTORS
from tests.protocols.kafka.talk import OpenClient, second_client

RECORDED = read_table(Path(VECTORS) / "login-answers-4.3.1.tsv")
KNOWN = read_known(Path(VECTORS) / "login-differences-4.3.1.tsv")
KEYS = (17, 29, 30, 31, 36)
PARTS = {30: "results", 31: "filter_results"}  # Fields with an error each, by key.
SERVED_BY_KAFKA = read_table(Path(VECTORS) / "golden-answers-4.3.1.tsv").versions
SETTINGS = {
    "access.required": "true",
    "access.slow_down": "false",  # Wrong passwords follow each other.
}


async def ask(client: RawKafka, step: LoginStep) -> str:
    """Send a step; return the body of the answer in hexadecimal, or CLOSED."""
    body = step.body
    is_bare = isinstance(body, bytes)
    await client.stream.send_all(
        SIZE.pack(len(body)) + body if isinstance(body, bytes) else frame_of(step.version, body)
    )
    answer = await client.frame()
    if is_bare or answer is None:
        return CLOSED
    return body_of(body.KEY, step.version, bytes(answer)[SIZE.size :])


async def hold(client: RawKafka, dialogue: LoginDialogue) -> list[GoldenRow]:
    """Hold a dialogue; return the rows of its answers."""
    rows = []
    step: LoginStep | None = next(dialogue)
    while step is not None:
        row = row_of(step, await ask(client, step))
        rows += [row] if row is not None else []
        step = next_step(dialogue, row)
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("broker", [SETTINGS], indirect=True, ids=[""])
async def test_every_answer_is_kafkas_but_for_the_known_differences(
    broker: Broker, open_client: OpenClient
) -> None:
    for user in (ADMIN, CARL):
        await broker.users.create(*user)
    rows = []
    for dialogue in dialogues():
        client = await second_client(open_client)
        rows += await hold(client, dialogue)
        await client.stream.aclose()
    differences = list(compare(RECORDED, {}, rows))
    new = [difference for difference in differences if not any(map(difference.is_of, KNOWN))]
    assert not new, "\n".join(map(str, new))
    gone = {known for known in KNOWN if not any(item.is_of(known) for item in differences)}
    assert not gone, "these differences are gone"


def test_each_version_of_logins_and_acls_has_a_good_answer() -> None:
    """A version is good if an answer to it has no error."""
    good = set()
    for row in RECORDED.rows:
        if row.key in KEYS and row.answer != CLOSED:
            reply = decoded(row.key, row.version, row.answer)
            parts = getattr(reply, PARTS.get(row.key, ""), [reply])
            if parts and not any(part.error_code for part in parts):
                good.add((row.key, row.version))
    served = {
        (key, version)
        for key in KEYS
        for version in range(SERVED_BY_KAFKA[key][0], APIS[key].version_max + 1)
    }
    assert not served - good
