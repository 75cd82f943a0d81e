"""Stored offsets.

Iggy stores the last consumed offset, the broker the next wanted offset: this module converts.
"""

from __future__ import annotations

from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy import names
from braidlog.protocols.iggy import replies as r
from braidlog.protocols.iggy.context import IggyAnswer, IggyContext
from braidlog.protocols.iggy.errors import Absent, ErrorCode, Refusal
from braidlog.protocols.iggy.readers import target
from braidlog.protocols.iggy.topics import current_offset


def get_offset(context: IggyContext, request: m.GetConsumerOffset) -> IggyAnswer:
    """The last offset consumed; absent if nothing is stored, or nothing was consumed yet.

    Raises Absent, Refusal.
    """
    topic = names.get_topic(context.broker, request.stream, request.topic)
    reader = target(context, topic, request.consumer, request.partition, turn=False, owned=False)
    if reader is None:
        raise Absent(ErrorCode.CONSUMER_OFFSET_NOT_FOUND)
    position = reader.position(context)
    # Clients to which what is absent is an error get 0 for "never stored".
    if not position and not context.error_style.absent_is_error:
        raise Absent(ErrorCode.CONSUMER_OFFSET_NOT_FOUND)
    stored = max((position or 0) - 1, 0)
    info = r.OffsetInfo(reader.index, current_offset(reader.partition), stored)
    return IggyAnswer([info], ticket=context.broker.subscriptions.flush_lazy())


def store_offset(context: IggyContext, request: m.StoreConsumerOffset) -> IggyAnswer:
    """Store that everything up to this offset is consumed; 0 is accepted on an empty partition too.

    Raises Refusal.
    """
    topic = names.get_topic(context.broker, request.stream, request.topic)
    reader = target(context, topic, request.consumer, request.partition, turn=False)
    if reader is None:
        raise Refusal(ErrorCode.CONSUMER_OFFSET_NOT_FOUND)
    is_external = request.consumer.kind is m.ConsumerKind.EXTERNAL
    if request.offset > current_offset(reader.partition) and not is_external:
        raise Refusal(ErrorCode.INVALID_OFFSET, f"offset {request.offset} is not there yet")
    return IggyAnswer(ticket=reader.commit(context, request.offset + 1))


def delete_offset(context: IggyContext, request: m.DeleteConsumerOffset) -> IggyAnswer:
    """Return to "never stored" on that partition. Raises Refusal."""
    topic = names.get_topic(context.broker, request.stream, request.topic)
    reader = target(context, topic, request.consumer, request.partition, turn=False)
    subscription = reader.subscription(context) if reader else None
    if reader is None or subscription is None or subscription.position(reader.index) is None:
        raise Refusal(ErrorCode.CONSUMER_OFFSET_NOT_FOUND)
    return IggyAnswer(ticket=subscription.delete_cursor(reader.index))
