"""The first user of a broker with logins, who can create the other users.

The password is random. Only the broker's own account can read the file with the password.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from braidlog.broker.access.passwords import new_token
from braidlog.broker.access.users import ROOT_USER_ID
from braidlog.broker.config.settings import FIRST_ADMIN

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker

PASSWORD_FILE: Final = "admin-password"  # in the data directory

log = structlog.get_logger()


async def make_first_admin(broker: Broker) -> None:
    """Create the user `admin` if clients must log in and no user exists but a protocol's root.

    In a cluster the catalogue's owner does this. The password is on disk before the user is.
    Raises OSError, StorageFull, StorageFailed.
    """
    owns = broker.placement.catalogue_owner() is None
    others = [user for user in broker.users.all() if user.user_id != ROOT_USER_ID]
    if not broker.authentication.required or others or not owns:
        return
    path = Path(broker.data_dir) / PASSWORD_FILE
    _, ticket = await broker.users.create(FIRST_ADMIN, write_new_password(path))
    await broker.durability.reached(ticket)
    log.warning("first_admin_made", user=FIRST_ADMIN, password_file=str(path))


def write_new_password(path: Path) -> str:
    """Write a random password to a file that only the broker's own account can read.

    Raises OSError.
    """
    password = new_token()
    path.unlink(missing_ok=True)  # Left by a start that ended before the user was created.
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(password + "\n")
        file.flush()
        os.fsync(file.fileno())
    return password
