"""PRODUCER and CLOSE_PRODUCER: "Producer" in Apache Pulsar's binary protocol document."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker.access.rights import Action, Resource
from broker.errors import BrokerError
from protocols.pulsar import messages, names, schemas
from protocols.pulsar.errors import Refused
from protocols.pulsar.limits import PRODUCERS_MAX
from protocols.pulsar.registry import AccessMode, Producer
from storage.codecs.pb.PulsarApi_pb2 import CommandCloseProducer, CommandProducer, ServerError

if TYPE_CHECKING:
    from broker.topics.partition import Partition
    from protocols.pulsar.session import PulsarSession

LANE = "producer"


def producer(session: PulsarSession, command: CommandProducer) -> None:
    """Open a producer; at once, unless its topic has to be made, or an older one of its name to be
    probed first.
    """
    lane = (LANE, command.producer_id)
    if names.is_missing(session.broker.topics, command.topic):
        session.in_order(lane, partial(_open_with_topic, session, command))
    else:
        session.promptly(lane, partial(_open, session, command))


async def _open_with_topic(session: PulsarSession, command: CommandProducer) -> None:
    try:
        await names.make_missing(session, Action.PRODUCE, command.topic)
    except (BrokerError, Refused) as error:
        session.refuse(command.request_id, error)
    else:
        _open(session, command)


def _open(session: PulsarSession, command: CommandProducer) -> None:
    known = session.producers.get(command.producer_id)
    if known is not None:
        if command.epoch <= known.epoch:
            known.request_id = command.request_id
            answer(session, known, 0)
            return
        session.drop_producer(known)  # The same one after a reconnection that we did not notice.
    try:
        if len(session.producers) >= PRODUCERS_MAX:
            text = f"a connection has at most {PRODUCERS_MAX} producers"
            raise Refused(ServerError.NotAllowedError, text)
        opened, ticket = _prepare(session, command)
        if session.listener.producers.in_the_way(opened) is not None:
            work = partial(_open_after_probe, session, command, opened)
            session.in_order((LANE, command.producer_id), work)
            return
        ticket = max(ticket, _admit(session, command, opened))
    except (BrokerError, Refused) as error:
        session.refuse(command.request_id, error)
    else:
        answer(session, opened, ticket)


async def _open_after_probe(
    session: PulsarSession, command: CommandProducer, opened: Producer
) -> None:
    try:
        await session.listener.producers.probe(opened)
    except BrokerError as error:
        session.refuse(command.request_id, error)
    else:
        _open(session, command)


def answer(session: PulsarSession, opened: Producer, ticket: int) -> None:
    """PRODUCER_SUCCESS, once everything that it tells of is on disk."""
    success = messages.producer_success(
        opened.request_id,
        opened.name,
        schema_version=opened.schema_version,
        topic_epoch=opened.topic_epoch,
        ready=opened.is_ready,
    )
    session.outbox.answer([success], ticket)


def _prepare(session: PulsarSession, command: CommandProducer) -> tuple[Producer, int]:
    """The producer that is asked for, not yet let in, and what its answer waits for."""
    partition, holds_layout = names.open_partition(session, Action.PRODUCE, command.topic)
    # A client whose SEND is refused connects again, and its own timeout begins anew with every
    # success (C++ and all that are made of it): it would never hear that the disk is full.
    partition.check_room()
    opened = Producer(
        session,
        partition,
        command.producer_id,
        command.producer_name or session.listener.producer_name(),
        command.epoch,
        AccessMode(command.producer_access_mode),
        command.request_id,
        holds_layout=holds_layout,
    )
    ticket = partition.topic.ticket
    if command.HasField("schema"):
        topic = partition.topic
        opened.schema_version, schema_ticket = schemas.of_producer(session, topic, command.schema)
        ticket = max(ticket, schema_ticket)
    return opened, ticket


def _admit(session: PulsarSession, command: CommandProducer, opened: Producer) -> int:
    """Let the producer in, or into the queue. Returns a ticket."""
    topic_epoch = command.topic_epoch if command.HasField("topic_epoch") else None
    session.listener.producers.admit(opened, topic_epoch)
    opened.partition.topic.layout_users += opened.holds_layout
    session.producers[opened.producer_id] = opened
    try:
        return _register(session, command, opened)
    except (BrokerError, Refused):
        session.drop_producer(opened)
        raise


def _register(session: PulsarSession, command: CommandProducer, opened: Producer) -> int:
    """What the catalogue and the cursors are to know of the producer. Returns a ticket."""
    ticket = 0
    if command.producer_name and command.user_provided_producer_name:
        name = command.producer_name.encode()
        opened.number, ticket = session.broker.producers.number(name)
    elif opened.topic_epoch is not None:
        ticket = session.broker.producers.ticket
    if command.initial_subscription_name:
        ticket = max(ticket, _make_subscription(session, command, opened.partition))
    return ticket


def _make_subscription(
    session: PulsarSession, command: CommandProducer, partition: Partition
) -> int:
    """The subscription that a dead letter producer wants, from the first entry on."""
    name = command.initial_subscription_name.encode()
    session.connection.check(Action.CONSUME, Resource.of_group(name, partition.topic.name))
    subscription = session.broker.subscriptions.open(partition.topic, name)
    return subscription.start(partition.index, partition.log_start_offset)


def close_producer(session: PulsarSession, command: CommandCloseProducer) -> None:
    """Close a producer; one that is not there is closed too (some clients say it twice)."""
    session.promptly((LANE, command.producer_id), partial(_close, session, command))


def _close(session: PulsarSession, command: CommandCloseProducer) -> None:
    known = session.producers.get(command.producer_id)
    if known is not None:
        if not known.is_ready:  # It gave up waiting; its PRODUCER gets its answer.
            fenced = Refused(ServerError.ProducerFenced, "Closed before its turn came")
            session.refuse(known.request_id, fenced)
        session.drop_producer(known)
    session.outbox.answer([messages.success(command.request_id)])
