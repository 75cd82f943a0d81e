"""The recorded conversation with a real server, repeated here: equal answers except
varying fields.
"""

import pytest

from tests.protocols.iggy import description
from tests.protocols.iggy.recorded import CLOSED, conversation, recorded

# Values that are the server's own, or depend on its storage of records.
VARYING = {
    "created_at",
    "client_id",
    "address",
    "timestamp",
    "size",
    "segments",
}


def steady(value: object) -> object:
    """Return an answer without varying fields."""
    if isinstance(value, dict):
        return {key: steady(item) for key, item in value.items() if key not in VARYING}
    if isinstance(value, list):
        return [steady(item) for item in value]
    return value


def normal(code: int, name: str, answer: bytes | None) -> object:
    if answer is None or code not in description.ANSWERS:
        return answer
    values = steady(description.answer(code, answer))
    if name == "GET_STATS":
        return {key: values[key] for key in ("status", "streams", "topics", "messages", "clients")}
    if name == "GET_GROUP, one member":
        values["members"] = [sorted(member["partitions"]) for member in values["members"]]
    return values


async def test_answers_equal_the_real_servers(connect):
    talk = await connect()
    for row in conversation():
        if row.name.startswith("length"):
            break
        answer = await talk.exchange(row.request)
        if answer is None:
            assert row.answer is None, row.name
            talk = await connect()
            await talk.login()
            continue
        wanted = normal(row.code, row.name, row.answer)
        assert normal(row.code, row.name, answer) == wanted, row.name


@pytest.mark.parametrize("name", ["length 0", "length 3"])
async def test_length_below_the_code_closes(talk, name):
    assert recorded(name).answer is CLOSED
    assert await talk.exchange(recorded(name).request) is None
