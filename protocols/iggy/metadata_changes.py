"""GET_METADATA_CHANGES (W): the changes of streams, topics and users after a place, or their state,
in pages.

Changes are those that `Broker.past_changes` remembers. The status tells a client with an older
cursor to ask for the state again. The number of a change is `Broker.last_change`.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

import trio

from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.access.users import ROOT_USER_ID
from braidlog.broker.topics.topic import Topic
from braidlog.protocols.iggy import metadata_pages as p
from braidlog.protocols.iggy import names, users
from braidlog.protocols.iggy.context import IggyAnswer, IggyContext
from braidlog.protocols.iggy.fields import STR8, U32
from braidlog.protocols.iggy.metadata_pages import ChangeStart, ChangeStatus, ItemGroup, ItemKey
from braidlog.protocols.iggy.metadata_records import (
    FROM_0,
    NO_FIGURES,
    records_of,
    token_item,
    user_item,
)
from braidlog.protocols.iggy.names import NamedGroup, Stream
from braidlog.protocols.iggy.topics import in_pieces, topic_info

TURN_BYTES: Final = 4 * 1024
# Besides the bytes: making a record costs as much as so many bytes; looking at a change, too.
RECORD_BYTES, CHANGE_BYTES = 256, 16


class Item(NamedTuple):
    """A part of the state, and the resources that a client must be allowed to see."""

    group: ItemGroup
    key: ItemKey
    body: Callable[[], bytes]
    resources: tuple[Resource, ...] = ()


async def get_changes(context: IggyContext, request: p.GetMetadataChanges) -> IggyAnswer:
    """Return a page of changes or of the state, or the outcome for a cursor."""
    broker = context.broker
    await broker.durability.reached(broker.past_changes.ticket)  # No crash takes back a change.
    log_id, begin_after = _log_id(context), broker.past_changes.begin_after
    head = p.ChangeCursor(log_id, broker.last_change, ordinal=p.LAST_ORDINAL)
    page = p.ChangesPage(ChangeStatus.OK, log_id, head.op, begin_after, head)
    match request.start:
        case ChangeStart.CURRENT:
            await _fill(context, request, page)
        case ChangeStart.EARLIEST:
            after = p.ChangeCursor(log_id, begin_after[0], ordinal=p.LAST_ORDINAL)
            await _add_records(context, request, after, page)
        case ChangeStart.AFTER:
            page.status = _status(request.cursor, head, begin_after[0])
            if page.status is ChangeStatus.OK:
                await _add_records(context, request, request.cursor, page)
            else:  # A client that is ahead of this broker asks for the same changes later.
                page.cursor = request.cursor if page.status is ChangeStatus.BEHIND else None
    return IggyAnswer(tail=[page.write()])


def _status(cursor: p.ChangeCursor, head: p.ChangeCursor, begin_after: int) -> ChangeStatus:
    if cursor.log_id != head.log_id:
        return ChangeStatus.RESET
    if cursor.op > head.op:
        return ChangeStatus.BEHIND
    is_remembered = (cursor.op, cursor.ordinal) >= (begin_after, p.LAST_ORDINAL)
    return ChangeStatus.OK if is_remembered else ChangeStatus.EXPIRED


class PageWork:
    """Work since the last checkpoint, in bytes of records and items: making 4 KiB takes some
    milliseconds.
    """

    def __init__(self) -> None:
        self._done = 0

    async def did(self, size: int) -> None:
        """Count work; let other tasks have their turn after much of it."""
        self._done += size
        if self._done >= TURN_BYTES:
            self._done = 0
            await trio.lowlevel.checkpoint()


async def _add_records(
    context: IggyContext,
    request: p.GetMetadataChanges,
    after: p.ChangeCursor,
    page: p.ChangesPage,
) -> None:
    """Add the next records after a cursor that the caller may see."""
    records, size, work = list[p.WrittenRecord](), 0, PageWork()
    bytes_max = context.shared.limits.page_bytes
    page.records = records
    sees_users, begun = users.sees_users(context), (after.op, after.ordinal)
    # A copy: changes during a checkpoint belong to the next page.
    for op, past in [*context.broker.past_changes.after(after.op - 1)]:
        await work.did(CHANGE_BYTES)
        if not request.takes(past.time_us):
            continue
        for ordinal, record in enumerate(records_of(context, past)):
            is_seen = sees_users or record.user_id in (None, context.client.user_id)
            if (op, ordinal) <= begun or record.kind.group not in request.groups or not is_seen:
                continue
            if not all(context.allows(Action.DESCRIBE, thing) for thing in record.resources):
                continue
            body = record.body()
            await work.did(RECORD_BYTES + len(body))
            written = p.WrittenRecord(op, ordinal, past.time_us, record.kind, body)
            if records and records[-1][3:] == written[3:]:
                records[-1] = written  # Permissions are set one by one, and are told as of now.
                continue
            if len(records) == request.limit or size >= bytes_max:
                last = records[-1]
                page.cursor = p.ChangeCursor(page.log_id, last.op, ordinal=last.ordinal)
                page.has_more = True
                return
            records.append(written)
            size += len(body)


def _log_id(context: IggyContext) -> bytes:
    """Return the number of this history. Another number makes clients read the state again."""
    created_us = min((meta.created_us for meta in context.broker.namespaces.all()), default=0)
    return hashlib.blake2b(created_us.to_bytes(8), digest_size=16).digest()


async def _fill(context: IggyContext, request: p.GetMetadataChanges, page: p.ChangesPage) -> None:
    """Add the next items of the state, and the token of the page if more items follow.

    The cursor of all pages is that of the first page: changes since then are told afterwards.
    """
    token, items, size, work = request.token, list[tuple[ItemGroup, bytes]](), 0, PageWork()
    bytes_max = context.shared.limits.page_bytes
    if token is not None and token.anchor.log_id != page.log_id:
        page.status, page.cursor = ChangeStatus.RESET, None
        return
    page.is_current = True
    begun: tuple[int, ItemKey] = (0, ())
    if token is not None:
        begun = token.group, token.last_key
    last: tuple[ItemGroup, ItemKey] | None = None
    anchor = page.cursor if token is None else token.anchor
    assert anchor is not None
    page.cursor = anchor
    page.items = items
    async for item in _items(context):
        place, body = (item.group, item.key), b""
        if item.group in request.groups and place > begun and _sees(context, item):
            if len(items) == request.limit or size >= bytes_max:
                assert last is not None
                mask = p.mask_of(request.groups)
                page.token = p.PageToken(anchor, context.broker.last_change, mask, *last)
                page.has_more = True
                return
            body, last = item.body(), place
            items.append((item.group, body))
            size += len(body)
        await work.did(RECORD_BYTES + len(body) if body else CHANGE_BYTES)


def _sees(context: IggyContext, item: Item) -> bool:
    return all(context.allows(Action.DESCRIBE, resource) for resource in item.resources)


async def _items(context: IggyContext) -> AsyncIterator[Item]:
    """Yield the whole state, ordered by group and key; of the users those that the caller may
    see.
    """
    for item in _streams(context):
        yield item
    for items in (_topics, _partitions, _groups):
        for stream in names.streams(context.broker):
            topics = names.topics(context.broker, stream)
            async for topic in in_pieces(topics, context.shared.limits.piece_partitions):
                for item in items(context, stream, topic):
                    yield item
    for item in _users(context):
        yield item


def _streams(context: IggyContext) -> Iterator[Item]:
    for stream in names.streams(context.broker):
        key, body = (stream.stream_id - FROM_0,), partial(_stream_body, stream)
        resource = Resource.of_namespace(names.TENANT, stream.name)
        yield Item(ItemGroup.STREAMS, key, body, (resource,))


def _stream_body(stream: Stream) -> bytes:
    options = p.options_block(b"", b"")
    return p.described(_stream_key(stream), stream.created_us, stream.name, options)


def _topics(context: IggyContext, stream: Stream, topic: Topic) -> Iterator[Item]:
    key, body = _topic_numbers(context, stream, topic), partial(_topic_body, context, stream, topic)
    yield Item(ItemGroup.TOPICS, key, body, (topic.resource,))


def _topic_body(context: IggyContext, stream: Stream, topic: Topic) -> bytes:
    info = topic_info(context.broker, topic, {topic.name.full: NO_FIGURES})
    options = p.options_block(info.options, info.derived_options)
    return p.described(
        _topic_key(context, stream, topic), info.created_us, topic.name.topic, options
    )


def _partitions(context: IggyContext, stream: Stream, topic: Topic) -> Iterator[Item]:
    def body() -> bytes:
        return _topic_key(context, stream, topic) + U32.pack(len(topic.partitions))

    key = _topic_numbers(context, stream, topic)
    yield Item(ItemGroup.PARTITIONS, key, body, (topic.resource,))


def _groups(context: IggyContext, stream: Stream, topic: Topic) -> Iterator[Item]:
    """Yield the groups of a topic; none for a topic of another broker, which alone knows them."""

    def body(group: NamedGroup) -> bytes:
        number = U32.pack(group.group_id - FROM_0)
        return _topic_key(context, stream, topic) + number + STR8.write(group.name)

    if not context.broker.placement.is_here(topic.name):
        return
    numbers = _topic_numbers(context, stream, topic)
    for group in sorted(names.groups(context.broker, topic), key=lambda group: group.group_id):
        resources = (topic.resource, Resource.of_group(group.name.encode(), topic.name))
        key = (*numbers, group.group_id - FROM_0)
        yield Item(ItemGroup.GROUPS, key, partial(body, group), resources)


def _users(context: IggyContext) -> Iterator[Item]:
    """Yield users, then access tokens; the caller's own tokens alone if the caller may not see
    users.
    """
    all_users = users.visible_users(context)
    for user in all_users:
        body = partial(user_item, context, user)
        yield Item(ItemGroup.USERS, (user.user_id - ROOT_USER_ID,), body)
    for user in all_users:
        number = user.user_id - ROOT_USER_ID
        for token in sorted(user.tokens, key=lambda token: token.name.encode()):
            body = partial(token_item, p.user_key(number, user.created_us), token)
            yield Item(ItemGroup.TOKENS, (number, token.name), body)


def _stream_key(stream: Stream) -> bytes:
    return p.stream_key(stream.stream_id - FROM_0, stream.created_us)


def _topic_key(context: IggyContext, stream: Stream, topic: Topic) -> bytes:
    number = names.topic_number(context.broker, topic) - FROM_0
    return p.topic_key(_stream_key(stream), number, topic.meta.topic_id)


def _topic_numbers(context: IggyContext, stream: Stream, topic: Topic) -> tuple[int, int]:
    return stream.stream_id - FROM_0, names.topic_number(context.broker, topic) - FROM_0
