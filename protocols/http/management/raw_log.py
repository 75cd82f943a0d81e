"""`/api/v1/log`: stored batches as they are, and the positions that readers commit.

The readers run on other machines and decode the batches themselves (Spark's network fetcher). Knows
bodies and the broker's services; does not look into batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.reading.raw import first_at, read_raw
from braidlog.broker.runtime.turns import in_turns
from braidlog.protocols.http import limits, query
from braidlog.protocols.http.errors import BAD_QUERY, PARTITION_NOT_FOUND, RequestRefused
from braidlog.protocols.http.limits import JSON_PIECE_BYTES
from braidlog.protocols.http.path_names import group_name, topic_name
from braidlog.protocols.http.pip64.names import partition_of
from braidlog.protocols.http.pip64.streams import Pieces
from braidlog.protocols.http.query import page_limit
from braidlog.protocols.http.requests import json_response

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.topics.partition import Partition
    from braidlog.protocols.http.bodies import BodyReader
    from braidlog.protocols.http.requests import Exchange
    from braidlog.protocols.http.waiting import Waiting
    from braidlog.storage.formats.api import Buffer


class RawPartition(msgspec.Struct):
    """A partition of the list; `size_bytes` is the size of the stored batches.

    Offsets and size are 0 without `is_here`: another broker has the records, and answers requests
    that name the partition.
    """

    topic: str
    partition: int
    partition_id: int
    log_start_offset: int
    high_watermark: int
    size_bytes: int
    is_here: bool


class RawPage(msgspec.Struct):
    """A page of the list; `next` is the `after` of the next page."""

    partitions: list[RawPartition]
    next: str | None


class RawState(msgspec.Struct):
    """A partition; `first_offset` answers `?time_us=`."""

    partition_id: int
    log_start_offset: int
    high_watermark: int
    size_bytes: int
    first_offset: int | None = None


class NextOffsets(msgspec.Struct, forbid_unknown_fields=True):
    """Next offsets by partition number."""

    positions: dict[int, int]


class RawLogApi:
    """Handlers of a broker's raw log."""

    def __init__(self, broker: Broker, bodies: BodyReader, waiting: Waiting) -> None:
        self._broker = broker
        self._bodies = bodies
        self._waiting = waiting

    async def list_partitions(self, request: Request) -> Response:
        """A page of the partitions that the client may read, whole topics by name."""
        limit = page_limit(request)
        after = request.query_params.get("after", "")
        exchange: Exchange = request.scope["exchange"]
        listed: list[RawPartition] = []
        topics = sorted(
            (topic for topic in self._broker.topics.all() if topic.name.full > after),
            key=lambda topic: topic.name.full,
        )
        async for topic in in_turns(topics):
            if len(listed) >= limit:
                return json_response(RawPage(listed, listed[-1].topic))
            resource = Resource.of_topic(topic.name)
            if self._broker.access.allows(exchange.principal, Action.CONSUME, resource):
                is_here = self._broker.placement.is_here(topic.name)
                listed += [_listed(partition, is_here) for partition in topic.partitions]
        return json_response(RawPage(listed, None))

    async def state(self, request: Request) -> Response:
        """The offsets of a partition; with `?time_us=` also the first offset at or after that
        time.
        """
        partition = self._partition(request)
        raw_state = RawState(
            partition.partition_id,
            partition.log_start_offset,
            partition.high_watermark,
            partition.size_bytes,
        )
        time_us = request.query_params.get("time_us")
        if time_us is not None:
            raw_state.first_offset = await first_at(partition, query.signed("time_us", time_us))
        return json_response(raw_state)

    async def batches(self, request: Request) -> Response:
        """Whole batches from the batch that holds `?offset=`, about `?bytes_max=` bytes of them.

        At least a single batch, but none at the high watermark. Raises OffsetOutOfRange,
        CorruptBatch.
        """
        partition = self._partition(request)
        offset = query.number(request, ("offset",), None, least=0, most=None)
        if offset is None:
            raise RequestRefused(BAD_QUERY, "expected an offset")
        wanted = query.number(
            request,
            ("bytes_max",),
            limits.RAW_BYTES_DEFAULT,
            least=1,
            most=limits.RAW_BYTES_MAX,
        )
        assert wanted is not None
        waits = self._waiting.for_memory(request)
        room = await self._broker.output.reserve(wanted, waits=waits)
        exchange: Exchange = request.scope["exchange"]
        exchange.at_end.append(partial(room.keep, 0))
        read = await read_raw(partition, offset, room)
        headers = {
            "X-Braidlog-Next-Offset": str(read.next_offset),
            "X-Braidlog-Log-Start": str(partition.log_start_offset),
            "X-Braidlog-High-Watermark": str(partition.high_watermark),
        }
        pieces = [piece for part in read.parts for piece in _pieces(part)]
        return Pieces(pieces, "application/octet-stream", headers)

    async def set_positions(self, request: Request) -> Response:
        """Commit positions of a group, all or none; answered once they are on disk.

        A missing group is created, as by a Kafka client's first commit.
        """
        body = await self._bodies.read(request, NextOffsets)
        topic = self._broker.topics.get(topic_name(request))
        commits = self._broker.subscriptions.commits(group_name(request))
        for index, position in body.positions.items():
            commits.add(topic, index, position)
        await self._broker.durability.reached(commits.write())
        return Response(status_code=204)

    def _partition(self, request: Request) -> Partition:
        """Return the partition of the path, if its id is `?partition_id=` or that is not given.

        Raises TopicNotFound, PartitionNotFound, RequestRefused.
        """
        topic = self._broker.topics.get(topic_name(request))
        partition = partition_of(topic, request)
        wanted = query.number(request, ("partition_id",), None, least=0, most=None)
        if wanted is not None and wanted != partition.partition_id:
            raise RequestRefused(
                PARTITION_NOT_FOUND, f"{topic.name} has no partition of id {wanted}"
            )
        return partition


def _listed(partition: Partition, is_here: bool) -> RawPartition:
    ends_and_size = (partition.log_start_offset, partition.high_watermark, partition.size_bytes)
    return RawPartition(
        partition.topic.name.full,
        partition.index,
        partition.partition_id,
        *(ends_and_size if is_here else (0, 0, 0)),
        is_here,
    )


def _pieces(part: Buffer) -> Iterator[memoryview]:
    """Cut a part into pieces that are each sent in a short turn of the loop."""
    view = memoryview(part)
    for start in range(0, len(view), JSON_PIECE_BYTES):
        yield view[start : start + JSON_PIECE_BYTES]
