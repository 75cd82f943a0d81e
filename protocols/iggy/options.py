"""Settings that only the Iggy listener has, with root's name and password. Knows no connection."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import msgspec

ROOT_NAME = ROOT_PASSWORD = "iggy"  # Those of a fresh Iggy server.


class WithoutLogin(enum.Enum):
    """Which clients are served without a login, in the oldest dialect."""

    NOBODY = 0
    # Clients whose frame no later dialect has. Other frames before a login may come from a later
    # client, which cannot read the oldest dialect's answers.
    CERTAIN = 1
    EVERYBODY = 2  # Every client whose frame the oldest dialect has.


class IggyOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of an Iggy listener; `listeners.NAME.` stands before each in the settings."""

    username: str = ROOT_NAME
    # A file whose first line is the password. Without a file the password is `iggy` on loopback,
    # and elsewhere a random password generated at the first start.
    password_file: str | None = None

    # Whether the oldest dialect, which has no login, is served; None: on loopback only, and only
    # from the first frame on that no later dialect has.
    without_login: bool | None = None

    # Time for which a client of dialect W may be without a connection and keep its session and its
    # places in groups; 0: they end with the connection.
    lost_session_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 30.0

    def served_without_login(self, *, loopback: bool) -> WithoutLogin:
        """Which clients that have not logged in are served on such a listener."""
        if self.without_login is None:
            return WithoutLogin.CERTAIN if loopback else WithoutLogin.NOBODY
        return WithoutLogin.EVERYBODY if self.without_login else WithoutLogin.NOBODY

    def check(self) -> None:
        """Check that the password can be read. Raises ValueError, with a single line."""
        try:
            password = self.password()
        except OSError as error:
            reason = f"{self.password_file}: {error.strerror}"
            raise ValueError(f"password_file: {reason}") from None
        except UnicodeDecodeError as error:
            reason = f"not UTF-8: {error.reason}"
            raise ValueError(f"password_file: {self.password_file}: {reason}") from None
        if not password:
            raise ValueError(f"password_file: the first line of {self.password_file} is empty")

    def password(self) -> str:
        """The password, read again each time so that it can be changed.

        Raises OSError, UnicodeDecodeError.
        """
        if self.password_file is None:
            return ROOT_PASSWORD
        first_line, _, _ = Path(self.password_file).read_text("utf-8").partition("\n")
        return first_line.rstrip("\r")
