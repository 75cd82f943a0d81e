"""Typed requests about users, their tokens and logins; see `messages.py`."""

from __future__ import annotations

import msgspec

from braidlog.protocols.iggy.messages import Name

# Iggy's permissions in the order of their bytes: for all streams, for a stream, and for a topic.
GLOBAL_PERMISSIONS = (
    *("manage_servers", "read_servers", "manage_users", "read_users"),
    *("manage_streams", "read_streams", "manage_topics", "read_topics"),
    *("poll_messages", "send_messages"),
)
STREAM_PERMISSIONS = (
    *("manage_stream", "read_stream", "manage_topics", "read_topics"),
    *("poll_messages", "send_messages"),
)
TOPIC_PERMISSIONS = ("manage_topic", "read_topic", "poll_messages", "send_messages")


class StreamPermissions(msgspec.Struct):
    """Permissions on a stream, and on single topics in it, by their numbers."""

    granted: frozenset[str]
    topics: dict[int, frozenset[str]] = {}


class Permissions(msgspec.Struct):
    """Permissions of a user: everywhere, and on single streams, by their numbers."""

    granted: frozenset[str]
    streams: dict[int, StreamPermissions] = {}


class LoginUser(msgspec.Struct):
    """`version` is empty before D2. Rust and Python clients send the version of the crate `iggy`,
    from V on that of their own package. `secret` proves later that another connection is the same
    client's (W).
    """

    username: str
    password: str
    version: str = ""
    context: str = ""
    secret: bytes = b""


class BindSession(msgspec.Struct):
    """Continue a session on another connection (W). `session` 0: the session whose number has not
    reached the client. `version` is that of the client's library.
    """

    version: str
    client: bytes
    session: int
    metadata_op: int
    secret: bytes


class LogoutUser(msgspec.Struct):
    """Back to the state before login."""


class LoginWithToken(msgspec.Struct):
    """Log in with a personal access token; `secret` as in `LoginUser`."""

    token: str
    version: str = ""
    context: str = ""
    secret: bytes = b""


class GetUser(msgspec.Struct):
    """A user with its permissions."""

    user: Name


class GetUsers(msgspec.Struct):
    """All users."""


class CreateUser(msgspec.Struct):
    """`permissions` None: the client sent none."""

    username: str
    password: str
    status: int
    permissions: Permissions | None = None
    options: dict[str, tuple[int, bytes]] | None = None


class UpdateUser(msgspec.Struct):
    """Change a user's name and status; None: no change."""

    user: Name
    username: str | None
    status: int | None
    options: dict[str, tuple[int, bytes]] | None = None


class DeleteUser(msgspec.Struct):
    """With its tokens."""

    user: Name


class UpdatePermissions(msgspec.Struct):
    """All that a user may do from now on; None: nothing."""

    user: Name
    permissions: Permissions | None


class ChangePassword(msgspec.Struct):
    """Change a password; the old password must be right."""

    user: Name
    old: str
    new: str


class GetTokens(msgspec.Struct):
    """The caller's own tokens, by name."""


class CreateToken(msgspec.Struct):
    """`expiry_us` is a duration; 0 (server's default) and all ones: never."""

    name: str
    expiry_us: int


class DeleteToken(msgspec.Struct):
    """Delete a token of the caller."""

    name: str
