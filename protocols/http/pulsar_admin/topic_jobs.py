"""Work on a topic that Pulsar's admin API asks for: compaction and termination."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.reading import entries
from braidlog.protocols.http.errors import ONE_PARTITION_WANTED, RequestRefused
from braidlog.protocols.http.path_names import name_of
from braidlog.protocols.http.pulsar_admin.answers import done, json_answer

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.topics.partition import Partition


class AdminTopicJobs:
    """Handlers of compaction and termination."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def compact(self, request: Request) -> Response:
        """Compact a topic; the answer follows as soon as the compaction is queued."""
        name, index = name_of(request)
        self._broker.compactor.ask(self._broker.topics.get(name), index)
        return done()

    async def compaction_status(self, request: Request) -> Response:
        """The state of a topic's compaction since the broker started."""
        name, index = name_of(request)
        status = self._broker.compactor.status(self._broker.topics.get(name), index)
        return json_answer({"status": status.state.value, "lastError": status.last_error})

    async def terminate(self, request: Request) -> Response:
        """Terminate a topic without partitions; answers with its last message's id."""
        name, _ = name_of(request)
        topic = self._broker.topics.get(name)
        await self._broker.durability.reached(await self._broker.topics.terminate(name))
        return json_answer(await _last_id(topic.partitions[0], -1))

    async def terminate_partitions(self, request: Request) -> Response:
        """Terminate a partitioned topic; answers with each partition's last message's id."""
        name, _ = name_of(request)
        topic = self._broker.topics.get(name)
        if not topic.partitioned:
            raise RequestRefused(ONE_PARTITION_WANTED, f"{name} has no partitions: see terminate")
        await self._broker.durability.reached(await self._broker.topics.terminate(name))
        return json_answer(
            {
                str(partition.index): await _last_id(partition, partition.index)
                for partition in tuple(topic.partitions)
            }
        )


async def _last_id(partition: Partition, index: int) -> dict[str, int]:
    span = await entries.last_entry(partition)
    entry = entries.EARLIEST if span is None else span.offset
    return {
        "ledgerId": partition.partition_id,
        "entryId": entry,
        "partitionIndex": index,
        "batchIndex": -1,
        "batchSize": 0,
    }
