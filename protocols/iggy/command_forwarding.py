"""Forwards commands on topics of another broker: the frame is forwarded unchanged, and the answer
returned.

`IggyForwarder` is at the broker that the client is connected to, `ForwardedSession` at the owner,
a session per client. Every frame carries the state that the owner needs: the client's identity, its
dialect, and its memberships in groups. If the connection to the owner is lost after a frame was
sent, the client's is ended too: nobody knows whether the command was executed.
"""

from __future__ import annotations

import struct
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from braidlog.broker.access.rights import Principal
from braidlog.broker.cluster.placement import NOBODY
from braidlog.broker.errors import LimitExceeded, NotOwner
from braidlog.broker.runtime.endings import EndConnection, ProtocolError
from braidlog.broker.runtime.steps import Steps, begin
from braidlog.protocols.iggy import names
from braidlog.protocols.iggy.machine import SEND_BYTES_MAX, IggyCommand, RefusedFrame, Standing
from braidlog.protocols.iggy.session import IggySession
from braidlog.storage.formats.api import Buffer
from braidlog.storage.metadata.names import TopicName

if TYPE_CHECKING:
    from braidlog.broker.cluster.placement import Owner, Tries
    from braidlog.broker.server.connection import Connection
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.iggy.context import IggyAnswer, IggyContext

# A frame: length of the rest, length of its `About`, the `About`, then the client's frame.
HEAD = struct.Struct(">II")
# An answer: DONE or MOVED, length of the memberships, length of the client's answer.
ANSWER = struct.Struct(">BII")
DONE, MOVED = 0, 1

ABOUT_BYTES_MAX: Final = 64 * 1024
FRAME_BYTES_MAX: Final = HEAD.size + ABOUT_BYTES_MAX + SEND_BYTES_MAX
# A poll's answer has at most 16 MiB, or a single message from a frame of at most 32 MiB.
ANSWER_BYTES_MAX: Final = 2 * SEND_BYTES_MAX
# A forwarded poll for messages keeps the client's other forwarded commands waiting.
FORWARDED_WAIT_S: Final = 0.25

Membership = tuple[str, str]  # Full name of a topic, and name of a group.


class About(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Metadata of each forwarded frame. `joined`: memberships still unknown to the owner."""

    name: str
    roles: list[str]
    is_anonymous: bool
    user_id: int | None
    standing: Standing
    joined: list[Membership]


async def receive(stream: trio.SocketStream, size: int) -> bytearray:
    """Return exactly `size` bytes of another broker. Raises OSError, trio.BrokenResourceError."""
    data = bytearray(size)
    left = memoryview(data)
    while left:
        received = await stream.socket.recv_into(left)
        if not received:
            raise trio.BrokenResourceError("the connection has ended")
        left = left[received:]
    return data


class Link:
    """A client's connection to an owner. `joined`: the client's memberships there."""

    def __init__(self, stream: trio.SocketStream, answer_s: float) -> None:
        self.stream = stream
        self._answer_s = answer_s
        self.joined: list[Membership] = []

    async def ask(self, about: About, frame: bytes) -> Buffer | None:
        """Send a frame and return the answer; None if that broker is not the owner. Raises
        EndConnection without an answer.
        """
        header = msgspec.msgpack.encode(about)
        size = HEAD.size - 4 + len(header) + len(frame)
        try:
            with trio.fail_after(self._answer_s):
                await self.stream.send_all(HEAD.pack(size, len(header)) + header + frame)
                status, joined, length = ANSWER.unpack(await receive(self.stream, ANSWER.size))
                if joined + length > ANSWER_BYTES_MAX:
                    raise trio.BrokenResourceError(f"an answer of {joined + length} bytes")
                self.joined = msgspec.msgpack.decode(
                    await receive(self.stream, joined), type=list[Membership]
                )
                answer = await receive(self.stream, length)
        except (OSError, trio.BrokenResourceError, trio.TooSlowError) as error:
            raise EndConnection(f"the owner of a topic does not answer: {error}") from error
        return None if status == MOVED else answer


class IggyForwarder:
    """The forwarded connections of a client."""

    def __init__(self, context: IggyContext) -> None:
        self._context = context
        self._links: dict[int, Link] = {}
        self._homeless: list[Membership] = []  # Memberships of dropped links: no owner has these.

    async def answer(self, standing: Standing, frame: bytes, node: int) -> Buffer | None:
        """Forward a frame to node `node` and return the answer; None if the node does not own the
        topic. Raises NotOwner if the node is unreachable; EndConnection.
        """
        link = self._links.get(node)
        if link is None:
            name = self._context.connection.listener_name
            stream = await self._context.broker.peers.forward(node, name)
            link = Link(stream, self._context.shared.limits.answer_s)
            self._links[node] = link
        joined = [
            membership
            for membership in self._memberships()
            if self._is_at(membership, node) and membership not in link.joined
        ]
        try:
            answer = await link.ask(self._about(standing, joined), frame)
        # Also Cancelled: a late answer would be taken for another frame's answer.
        except BaseException:
            self._drop(node)
            raise
        if answer is None:
            self._drop(node)
        else:
            self._handed_over(joined, link)
        return answer

    def _about(self, standing: Standing, joined: list[Membership]) -> About:
        context = self._context
        principal = context.connection.principal
        roles = sorted(principal.roles)
        user_id = context.client.user_id
        return About(principal.name, roles, principal.is_anonymous, user_id, standing, joined)

    def _handed_over(self, joined: list[Membership], link: Link) -> None:
        """Forget memberships that an owner now has: only a single broker may hold a membership, so
        that leaving a group there ends it.
        """
        for node, other in [*self._links.items()]:
            if other is not link and any(membership in other.joined for membership in joined):
                self._drop(node)
        self._homeless = [membership for membership in self._homeless if membership not in joined]
        groups, client_id = self._context.shared.groups, self._context.client.client_id
        for topic, group in joined:
            topic_found = _find(self._context, topic)
            if topic_found is not None:
                groups.leave(topic_found.meta.topic_id, group, client_id)

    def _memberships(self) -> list[Membership]:
        all_joined = [membership for link in self._links.values() for membership in link.joined]
        return [*dict.fromkeys([*all_joined, *self._homeless, *_joined_here(self._context)])]

    def _is_at(self, membership: Membership, node: int) -> bool:
        owner = self._owner(membership)
        return owner is not None and owner.node_id == node

    def _owner(self, membership: Membership) -> Owner | None:
        return self._context.broker.placement.owner(TopicName(*membership[0].split("/", 2)))

    def come_home(self) -> None:
        """Join groups here whose topics have moved to this broker."""
        for node, link in [*self._links.items()]:
            if any(self._owner(membership) is None for membership in link.joined):
                self._drop(node)
        homeless, self._homeless = self._homeless, []
        for membership in homeless:
            if self._owner(membership) is None:
                _join(self._context, membership)
            else:
                self._homeless.append(membership)

    def serve(self, context: IggyContext) -> None:
        """Serve another connection of the same session from now on."""
        self._context = context

    def rejoin(self, others: IggyForwarder) -> None:
        """Take over the memberships of other connections of the client, which end."""
        memberships = [m for m in others._memberships() if m not in self._memberships()]
        others.close()
        self._homeless += [m for m in memberships if m not in self._homeless]

    def _drop(self, node: int) -> None:
        """End the connection to an owner; the client's memberships there are orphaned."""
        link = self._links.pop(node, None)
        if link is not None:
            link.stream.socket.close()
            self._homeless += [
                membership for membership in link.joined if membership not in self._homeless
            ]

    def close_unneeded(self) -> tuple[int, int]:
        """See `ForwardedLinks.close_unneeded`."""
        for node, link in [*self._links.items()]:
            if not link.joined:
                self._drop(node)
        return len(self._links), sum(len(link.joined) for link in self._links.values())

    def close(self) -> None:
        """End all connections to owners after the client disconnected."""
        for node in [*self._links]:
            self._drop(node)


def _find(context: IggyContext, topic: str) -> Topic | None:
    return context.broker.topics.find(TopicName(*topic.split("/", 2)))


def _join(context: IggyContext, membership: Membership) -> None:
    topic = _find(context, membership[0])
    if topic is not None:
        gently = context.dialect.behaviour.cooperative_join
        groups, client_id = context.shared.groups, context.client.client_id
        groups.join(topic.meta.topic_id, membership[1], client_id, gently=gently)


def _joined_here(context: IggyContext) -> list[Membership]:
    """Return the client's memberships at this broker."""
    memberships = []
    for topic_id, name in context.shared.groups.joined(context.client.client_id):
        topic = context.broker.topics.find_by_id(topic_id)
        if topic is not None:
            memberships.append((topic.name.full, name))
    return memberships


class ForwardingSession(IggySession):
    """A client's session at a broker of a cluster."""

    def _serve(self, frame: memoryview) -> Steps[None]:
        self._continue_links()
        forwarder = self._forwarder
        if forwarder is not None:
            forwarder.come_home()
        try:
            yield from super()._serve(frame)
            self._drop_ended()
        except NotOwner as error:
            tries = self._context.broker.peers.tries(self._context.shared.limits.find_s)
            yield self._forward(bytes(frame), error, tries)

    async def _forward(self, frame: bytes, error: NotOwner, tries: Tries) -> None:
        """Return the answer of the topic's owner, once there is an owner."""
        forwarder = self._forwarder = self._forwarder or IggyForwarder(self._context)
        while True:
            if error.node_id != NOBODY.node_id:
                try:
                    standing = self._machine.standing()
                    answer = await forwarder.answer(standing, frame, error.node_id)
                except NotOwner as unreached:
                    error = unreached
                else:
                    if answer is not None:
                        self._outbox.answer([answer])
                        return
            if not await tries.again(error):
                self._fail_frame(frame, error)
                return
            forwarder.come_home()
            try:
                waited = begin(IggySession._serve(self, memoryview(bytearray(frame))))
                if waited is not None:
                    await waited
                return
            except NotOwner as moved:
                error = moved

    def _fail_frame(self, frame: bytes, error: NotOwner) -> None:
        event = self._machine.decode(memoryview(frame))
        if isinstance(event, RefusedFrame):
            self._refuse(event)
        else:
            self._fail_with(event, error)

    def _drop_ended(self) -> None:
        """End the connections to owners after a logout that ended the session (W)."""
        context, forwarder = self._context, self._forwarder
        if (
            forwarder is not None
            and context.dialect.behaviour.keeps_sessions
            and not context.logical
        ):
            forwarder.close()
            self._forwarder = None

    def _continue_links(self) -> None:
        """Take over the connections to owners from the former connection of a session (W)."""
        session = self._context.logical
        if session is None or not isinstance(session.links, IggyForwarder):
            return
        links, session.links = session.links, None
        if self._forwarder is None:
            self._forwarder = links
            links.serve(self._context)
        else:
            self._forwarder.rejoin(links)

    async def closed(self) -> None:
        """Close as `IggySession.closed`; the connections to owners end with the session."""
        self._leave(self._forwarder)

    _forwarder: IggyForwarder | None = None


class AnswersOutbox:
    """The outbox of a forwarded client: each answer carries the client's memberships here."""

    def __init__(self, session: ForwardedSession, connection: Connection) -> None:
        self._session = session
        self._outbox = connection.outbox

    @property
    def is_broken(self) -> bool:
        """True if the reader of the answers is gone."""
        return self._outbox.is_broken

    def answer(self, parts: Sequence[Buffer], ticket: int = 0, status: int = DONE) -> None:
        """Send an answer once `ticket` is durable."""
        joined = msgspec.msgpack.encode(self._session.joined())
        size = sum(map(len, parts))
        self._outbox.answer([ANSWER.pack(status, len(joined), size) + joined, *parts], ticket)


class ForwardedSession(IggySession):
    """Serves a client of another broker, which forwards its frames.

    Answers are forwarded in order, so a poll for messages waits in the handler, and not for long.
    """

    defers = False

    def frame_size(self, view: memoryview) -> int | None:
        """Return the whole size of the next frame, None while unknown. Raises ProtocolError."""
        if len(view) < HEAD.size:
            return None
        size, about = HEAD.unpack_from(view)
        if size > FRAME_BYTES_MAX or about + HEAD.size - 4 > size:
            raise ProtocolError(f"a forwarded frame of {size} bytes")
        return 4 + int(size)

    def handle(self, frame: memoryview) -> Coroutine[Any, Any, None] | None:
        """Handle as `IggySession.handle`, on behalf of the client that sent the frame."""
        _, size = HEAD.unpack_from(frame)
        try:
            about = msgspec.msgpack.decode(frame[HEAD.size : HEAD.size + size], type=About)
        except msgspec.MsgspecError as error:
            raise ProtocolError(str(error)) from error
        self._be(about)
        own = frame[HEAD.size + size :]
        if self._machine.frame_size(own) != len(own):
            raise ProtocolError(f"{len(own)} bytes are not one frame")
        return begin(self._answered(own))

    def _be(self, about: About) -> None:
        context = self._context
        principal = Principal(about.name, frozenset(about.roles), about.is_anonymous)
        if context.connection.principal != principal:
            try:
                context.connection.act_for(principal)
            except LimitExceeded as error:
                raise EndConnection(str(error)) from error
        context.client.user_id = about.user_id
        context.wait_max_s = FORWARDED_WAIT_S
        self._machine.resume(about.standing)
        context.session = self._machine.session
        context.dialect = self._machine.dialect
        for membership in about.joined:
            _join(context, membership)

    def _answered(self, frame: memoryview) -> Steps[None]:
        try:
            yield from self._serve(frame)
        except NotOwner:
            self._answers.answer([], status=MOVED)

    def _carry_out(self, command: IggyCommand, context: IggyContext) -> Steps[IggyAnswer | None]:
        """Serve as `IggySession._carry_out`, but follow the catalogue first if the topic is unknown
        here: the other broker may have a newer catalogue.
        """
        broker = self._context.broker
        if not names.is_known(broker, command.request):
            yield broker.peers.follow()
        return (yield from super()._carry_out(command, context))

    def joined(self) -> list[Membership]:
        """Return the client's memberships here."""
        return _joined_here(self._context)

    def begin_forwarded(self, connection: Connection) -> ForwardedSession:
        """Send answers as forwarded answers."""
        self._answers = self._outbox = AnswersOutbox(self, connection)
        return self

    def on_deadline(self, now: float) -> float:
        """Check nothing: the other broker keeps the deadlines."""
        return now + self._context.shared.limits.answer_s

    _answers: AnswersOutbox
