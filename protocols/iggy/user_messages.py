"""Typed requests about users, their tokens and who is logged in; see `messages.py`."""

from __future__ import annotations

from dataclasses import dataclass

from protocols.iggy.messages import Name


@dataclass(slots=True)
class LoginUser:
    """`version` is empty before D2; of the Rust and Python clients it is the version of the crate
    `iggy`, from V on that of their own package.
    """

    username: str
    password: str
    version: str = ""
    context: str = ""


@dataclass(slots=True)
class LogoutUser:
    """Back to the state before login."""


@dataclass(slots=True)
class LoginWithToken:
    """Log in with a personal access token."""

    token: str
    version: str = ""
    context: str = ""


@dataclass(slots=True)
class GetUser:
    """A user with its permissions."""

    user: Name


@dataclass(slots=True)
class GetUsers:
    """All users."""


@dataclass(slots=True)
class CreateUser:
    """`permissions` are bytes as the client sent them; None: it sent none."""

    username: str
    password: str
    status: int
    permissions: bytes | None = None
    options: dict[str, tuple[int, bytes]] | None = None


@dataclass(slots=True)
class UpdateUser:
    """Another name, another status; None: as it is."""

    user: Name
    username: str | None
    status: int | None
    options: dict[str, tuple[int, bytes]] | None = None


@dataclass(slots=True)
class DeleteUser:
    """With its tokens."""

    user: Name


@dataclass(slots=True)
class UpdatePermissions:
    """See `CreateUser`."""

    user: Name
    permissions: bytes | None


@dataclass(slots=True)
class ChangePassword:
    """The old one must be right."""

    user: Name
    old: str
    new: str


@dataclass(slots=True)
class GetTokens:
    """The caller's own tokens, by name."""


@dataclass(slots=True)
class CreateToken:
    """`expiry_us` is a duration; 0 (server's default) and all ones: never."""

    name: str
    expiry_us: int


@dataclass(slots=True)
class DeleteToken:
    """One of the caller's own."""

    name: str
