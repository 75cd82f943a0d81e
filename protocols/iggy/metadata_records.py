"""GET_METADATA_CHANGES (W): the records of changes of streams, topics and users.

A record is made from the subject before and after a change. Options and permissions are those of
now: a subject that no longer exists under its name has unreadable options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from braidlog.broker.access.rights import Resource
from braidlog.broker.access.users import ROOT_USER_ID, UserMeta
from braidlog.broker.topics.past_changes import (
    NamespaceMeta,
    PastChange,
    PastGroup,
    TokenMeta,
    TopicMeta,
)
from braidlog.protocols.iggy import metadata_pages as p
from braidlog.protocols.iggy import names, users
from braidlog.protocols.iggy.context import IggyContext
from braidlog.protocols.iggy.fields import STR8, U32
from braidlog.protocols.iggy.metadata_pages import ChangeKind
from braidlog.protocols.iggy.permission_field import PERMISSIONS_FROM_0
from braidlog.protocols.iggy.topics import topic_info

FROM_0 = 1  # Less than the broker's numbers of streams, topics and groups.
LENGTH_BYTES = 5  # A flag and a length before the permissions of other answers.
NO_FIGURES = (0, 0, 0)  # Of a topic: a record has none.
NOT_REQUESTED = b"\0"  # A deletion has no earlier request.
BY_CLIENT = b"\0"  # Why a token was deleted, or permissions changed.


@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """A record, and the resources or the user that a client must be allowed to see. `body` makes
    the bytes, which takes a millisecond for a user with many permissions.
    """

    kind: ChangeKind
    body: Callable[[], bytes]
    resources: tuple[Resource, ...] = ()
    user_id: int | None = None


def records_of(context: IggyContext, past: PastChange) -> Iterator[ChangeRecord]:
    """Yield the records of a change, as far as Iggy's clients know its subject."""
    match past.before or past.after:
        case NamespaceMeta(tenant=names.TENANT):
            yield from _stream(context, past.before, past.after)
        case TopicMeta(name=name) if name.tenant == names.TENANT and past.namespace is not None:
            if past.group is None:
                yield from _topic(context, past.namespace, past.before, past.after)
            elif isinstance(past.after, TopicMeta):
                yield _group(context, past.namespace, past.after, past.group)
        case UserMeta():
            yield from _user(context, past, past.before, past.after)


def _stream(context: IggyContext, before: object, after: object) -> Iterator[ChangeRecord]:
    changes = context.broker.past_changes

    def record(kind: ChangeKind, meta: NamespaceMeta, end: bytes) -> ChangeRecord:
        def body() -> bytes:
            key = p.stream_key(changes.namespace_number(meta) - FROM_0, meta.created_us)
            return p.described(key, meta.created_us, meta.namespace, end)

        return ChangeRecord(kind, body, (Resource.of_namespace(meta.tenant, meta.namespace),))

    options = p.options_block(b"", b"")
    old = before if isinstance(before, NamespaceMeta) else None
    new = after if isinstance(after, NamespaceMeta) else None
    is_same = (
        old is not None
        and new is not None
        and (changes.namespace_number(old) == changes.namespace_number(new))
    )
    if old is not None and not is_same:
        yield record(ChangeKind.STREAM_DELETED, old, NOT_REQUESTED)
    if new is not None and not is_same:
        yield record(ChangeKind.STREAM_CREATED, new, options)
    elif new is not None and old is not None and new.namespace != old.namespace:
        yield record(ChangeKind.STREAM_UPDATED, new, options)


def _topic(
    context: IggyContext, namespace: NamespaceMeta, before: object, after: object
) -> Iterator[ChangeRecord]:
    old = before if isinstance(before, TopicMeta) else None
    new = after if isinstance(after, TopicMeta) else None
    if new is None and old is not None:
        yield _topic_record(context, namespace, ChangeKind.TOPIC_DELETED, old)
    elif new is not None and old is None:
        yield _topic_record(context, namespace, ChangeKind.TOPIC_CREATED, new)
    elif new is not None and old is not None:
        yield from _topic_changes(context, namespace, old, new)


def _topic_changes(
    context: IggyContext, namespace: NamespaceMeta, old: TopicMeta, new: TopicMeta
) -> Iterator[ChangeRecord]:
    count, resource = len(new.partition_ids), Resource.of_topic(new.name)
    if new.name != old.name or new.settings != old.settings:
        yield _topic_record(context, namespace, ChangeKind.TOPIC_UPDATED, new)
    if new.partition_ids != old.partition_ids:

        def body() -> bytes:
            removed = range(count, len(old.partition_ids))
            numbers = b"".join(map(U32.pack, removed))
            counts = U32.pack(count) + U32.pack(len(removed))
            return _topic_key(context, namespace, new) + counts + numbers + NOT_REQUESTED

        yield ChangeRecord(ChangeKind.PARTITIONS_CHANGED, body, (resource,))


def _group(
    context: IggyContext, namespace: NamespaceMeta, topic: TopicMeta, past: PastGroup
) -> ChangeRecord:
    def body() -> bytes:
        key = _topic_key(context, namespace, topic)
        named = U32.pack(past.group_id - FROM_0) + STR8.write(past.name)
        return key + named + U32.pack(past.count) + (b"" if past.is_new else NOT_REQUESTED)

    kind = ChangeKind.GROUP_CREATED if past.is_new else ChangeKind.GROUP_DELETED
    seen = (Resource.of_topic(topic.name), Resource.of_group(past.name.encode(), topic.name))
    return ChangeRecord(kind, body, seen)


def _topic_record(
    context: IggyContext, namespace: NamespaceMeta, kind: ChangeKind, meta: TopicMeta
) -> ChangeRecord:
    def body() -> bytes:
        end = NOT_REQUESTED
        if kind is not ChangeKind.TOPIC_DELETED:
            end = U32.pack(len(meta.partition_ids)) + _options(context, meta)
        key = _topic_key(context, namespace, meta)
        return p.described(key, meta.created_us, meta.name.topic, end)

    return ChangeRecord(kind, body, (Resource.of_topic(meta.name),))


def _topic_key(context: IggyContext, namespace: NamespaceMeta, meta: TopicMeta) -> bytes:
    changes = context.broker.past_changes
    stream = p.stream_key(changes.namespace_number(namespace) - FROM_0, namespace.created_us)
    return p.topic_key(stream, changes.topic_number(meta) - FROM_0, meta.topic_id)


def _options(context: IggyContext, meta: TopicMeta) -> bytes:
    topic = context.broker.topics.find(meta.name)
    if topic is None or topic.meta.topic_id != meta.topic_id:
        return p.UNREADABLE
    info = topic_info(context.broker, topic, {topic.name.full: NO_FIGURES})
    return p.options_block(info.options, info.derived_options)


def _user(
    context: IggyContext, past: PastChange, before: object, after: object
) -> Iterator[ChangeRecord]:
    old = before if isinstance(before, UserMeta) else None
    new = after if isinstance(after, UserMeta) else None
    user = new or old
    assert user is not None
    number = user.user_id - ROOT_USER_ID
    key = p.user_key(number, user.created_us)
    identity = key + STR8.write(user.name)

    def record(kind: ChangeKind, body: Callable[[], bytes]) -> ChangeRecord:
        return ChangeRecord(kind, body, (), number)

    def permissions() -> bytes:
        block = _permissions(context, user)
        return identity + bytes((bool(block),)) + block + BY_CLIENT

    if new is None:
        yield record(ChangeKind.USER_DELETED, lambda: identity)
        return
    if old is None:
        yield record(ChangeKind.USER_CREATED, partial(user_item, context, new))
    elif (new.name, new.is_active) != (old.name, old.is_active):
        yield record(ChangeKind.USER_UPDATED, partial(user_item, context, new))
    if old is not None and new.password_hash != old.password_hash:
        yield record(ChangeKind.PASSWORD_CHANGED, lambda: identity)
    if past.of_grants or (old is not None and new.permitted != old.permitted):
        yield record(ChangeKind.PERMISSIONS_UPDATED, permissions)
    old_tokens = {token.name: token for token in old.tokens} if old is not None else {}
    new_tokens = {token.name: token for token in new.tokens}
    for name in sorted({*old_tokens, *new_tokens}):
        if new_tokens.get(name) == old_tokens.get(name):
            continue
        if name in old_tokens:
            gone = key + STR8.write(name) + BY_CLIENT
            yield record(ChangeKind.TOKEN_DELETED, partial(bytes, gone))
        if name in new_tokens:
            yield record(ChangeKind.TOKEN_CREATED, partial(token_item, key, new_tokens[name]))


def user_item(context: IggyContext, user: UserMeta) -> bytes:
    """Return the body of a user, with the permissions of now."""
    info, _ = users.user_records(context, user)
    key, block = p.user_key(info.user_id, info.created_us), _permissions(context, user)
    return p.user_body(key, info.username, info.status, block)


def token_item(user_key: bytes, token: TokenMeta) -> bytes:
    """Return the body of an access token."""
    return p.token_body(user_key, token.name, token.expires_us or 0)


def _permissions(context: IggyContext, user: UserMeta) -> bytes:
    _, permissions = users.user_records(context, user)
    return PERMISSIONS_FROM_0.write(permissions.permissions)[LENGTH_BYTES:]
