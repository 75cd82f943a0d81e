"""Streams: namespaces of the tenant `public`, as Iggy's clients see and change them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from braidlog.broker import errors
from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.cluster.peers import Asker
from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy import names
from braidlog.protocols.iggy import replies as r
from braidlog.protocols.iggy.context import IggyAnswer, IggyContext
from braidlog.protocols.iggy.errors import ErrorCode, Refusal
from braidlog.protocols.iggy.topic_options import check_no_options
from braidlog.protocols.iggy.topics import topic_infos
from braidlog.storage.metadata.names import DEFAULT_NAMESPACE, valid_namespace

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.topics.topic import Topic

PURGE_TRIES: Final = 3  # For a topic that is renamed or deleted while its stream is purged.


async def get_stream(context: IggyContext, request: m.GetStream) -> IggyAnswer:
    """A stream with its topics. Raises Absent."""
    stream = names.get_stream(context.broker, request.stream, listed=True)
    broker = context.broker
    infos = await topic_infos(
        broker, names.topics(broker, stream), await broker.peers.stored_sizes()
    )
    return IggyAnswer([_stream_info(stream, infos), *infos])


async def get_streams(context: IggyContext, request: m.GetStreams) -> IggyAnswer:
    """All streams."""
    broker = context.broker
    elsewhere = await broker.peers.stored_sizes()
    records = []
    for stream in names.streams(broker):
        infos = await topic_infos(broker, names.topics(broker, stream), elsewhere)
        records.append(_stream_info(stream, infos))
        await trio.lowlevel.checkpoint()
    return IggyAnswer(records)


async def create_stream(context: IggyContext, request: m.CreateStream) -> IggyAnswer:
    """Create a namespace, or adopt an existing unlisted namespace. Raises Refusal."""
    broker = context.broker
    check_no_options(request.options)
    if not valid_namespace(names.TENANT, request.name):
        raise Refusal(ErrorCode.INVALID_STREAM_NAME)
    names.check_chosen(request.stream_id, ErrorCode.INVALID_STREAM_ID)
    stream_id = request.stream_id or names.free_stream_id(broker)
    existing = names.find_stream(broker, request.name)
    names.check_free(
        context.dialect.behaviour,
        (names.find_stream(broker, stream_id) is not None, ErrorCode.STREAM_ID_ALREADY_EXISTS),
        (existing is not None and existing.listed, ErrorCode.STREAM_NAME_ALREADY_EXISTS),
    )
    if existing is None:
        ticket = await broker.namespaces.create(names.TENANT, request.name, iggy_id=stream_id)
    else:
        ticket = await broker.namespaces.renumber(names.TENANT, request.name, stream_id)
    stream = names.get_stream(broker, request.name)
    infos = await topic_infos(broker, names.topics(broker, stream), {})
    topics = infos if context.dialect.behaviour.lists_new_topics else []
    return IggyAnswer([_stream_info(stream, infos), *topics], ticket=ticket)


async def update_stream(context: IggyContext, request: m.UpdateStream) -> IggyAnswer:
    """Give a stream, with all of its topics, another name. Raises Refusal."""
    broker = context.broker
    check_no_options(request.options)
    stream = names.get_stream(broker, request.stream)
    if request.name == stream.name:
        return IggyAnswer()
    if not valid_namespace(names.TENANT, request.name):
        raise Refusal(ErrorCode.INVALID_STREAM_NAME)
    context.check(Action.CREATE, Resource.of_namespace(names.TENANT, request.name))
    if names.find_stream(broker, request.name) is not None:
        raise Refusal(ErrorCode.STREAM_NAME_ALREADY_EXISTS)
    ticket = await broker.renaming.rename_namespace(names.TENANT, stream.name, request.name)
    return IggyAnswer(ticket=ticket)


async def delete_stream(context: IggyContext, request: m.DeleteStream) -> IggyAnswer:
    """Delete a stream with all its topics; the default namespace stays, empty and unlisted."""
    broker = context.broker
    stream = names.get_stream(broker, request.stream)
    for topic in names.topics(context.broker, stream):
        if not topic.deleted:  # By another client, meanwhile.
            await broker.topics.delete(topic.name)
    if stream.name == DEFAULT_NAMESPACE:
        return IggyAnswer(ticket=await broker.namespaces.renumber(names.TENANT, stream.name, None))
    return IggyAnswer(ticket=await broker.namespaces.delete(names.TENANT, stream.name))


async def purge_stream(context: IggyContext, request: m.PurgeStream) -> IggyAnswer:
    """Delete all messages of all topics of a stream, whichever broker owns them. Raises Absent,
    NotOwner.
    """
    broker = context.broker
    stream = names.get_stream(broker, request.stream)
    asker = Asker(context.connection.principal, context.connection.at)
    await broker.durability.all_durable()  # Only durable records can be dropped.
    for topic_id in [topic.meta.topic_id for topic in names.topics(broker, stream)]:
        for _ in range(PURGE_TRIES):
            topic = broker.topics.find_by_id(topic_id)
            if topic is None:
                break  # Deleted meanwhile; the others are still purged.
            with suppress(errors.TopicNotFound):  # Or it has another name by now.
                await _purge(broker, asker, topic)
                break
    await broker.durability.all_durable()
    return IggyAnswer()


async def _purge(broker: Broker, asker: Asker, topic: Topic) -> None:
    """Purge a topic where it is kept. Raises TopicNotFound, NotOwner."""
    owner = broker.placement.owner(topic.name)
    if owner is None:
        await broker.retention.purge(topic)
    else:
        await broker.peers.purge(owner.node_id, asker, topic.name.full)


def _stream_info(stream: names.Stream, infos: Sequence[r.TopicDetails]) -> r.StreamInfo:
    return r.StreamInfo(
        stream_id=stream.stream_id,
        created_us=stream.created_us,
        topics_count=len(infos),
        size_bytes=sum(info.size_bytes for info in infos),
        messages_count=sum(info.messages_count for info in infos),
        name=stream.name,
    )
