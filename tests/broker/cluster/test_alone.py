"""A broker without a cluster has no peers."""

import pytest

from braidlog.broker.cluster.alone import Alone
from braidlog.broker.errors import NotOwner
from braidlog.storage.metadata.names import TopicName

TOPIC, NOBODY = TopicName("public", "default", "t"), object()
PLACE = (TOPIC.full, 0)
DEFAULT = ("public", "default")


async def test_a_question_to_a_node_finds_no_owner():
    alone = Alone()
    questions = (
        alone.forward(2, "kafka"),
        alone.schema(2, NOBODY, TOPIC, version=None, non_persistent=False),
        alone.purge(2, NOBODY, PLACE[0]),
    )
    for question in questions:
        with pytest.raises(NotOwner, match="there is no other broker"):
            await question
    (error,) = await alone.commit(NOBODY, b"g", [(2, (*PLACE, 1, None, 0))])
    assert isinstance(error, NotOwner)
    positions = await alone.committed(NOBODY, b"g", [(2, PLACE)], 0.0)
    assert isinstance(positions[PLACE], NotOwner)


async def test_a_question_to_all_brokers_has_no_answers():
    alone = Alone()
    assert await alone.positions(NOBODY, b"g", DEFAULT) == []
    assert not await alone.end_group(NOBODY, b"g", DEFAULT)
    assert (await alone.stored_sizes(), await alone.non_persistent(DEFAULT)) == ({}, {})
    await alone.follow()


async def test_there_is_no_second_try():
    assert not await Alone().tries(10.0).again(NotOwner("it moves"))
