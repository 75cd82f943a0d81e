"""The first user of a broker that asks who its clients are, so that somebody can make the others.

Its password is chance, and stands in a file that only the broker's own account can read.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from broker.access.passwords import new_token
from broker.config.settings import FIRST_ADMIN

if TYPE_CHECKING:
    from broker.broker import Broker

PASSWORD_FILE: Final = "admin-password"  # in the data directory

log = structlog.get_logger()


async def make_first_admin(broker: Broker) -> None:
    """Make the user `admin` if there is no user at all and clients must be some. Its password is on
    disk before the user is.

    Raises OSError, StorageFull, StorageFailed.
    """
    if not broker.authentication.required or broker.users.all():
        return
    password = new_token()
    path = Path(broker.data_dir) / PASSWORD_FILE
    path.unlink(missing_ok=True)  # Of a start that ended before the user was made.
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(password + "\n")
        file.flush()
        os.fsync(file.fileno())
    _, ticket = await broker.users.create(FIRST_ADMIN, password)
    await broker.durability.reached(ticket)
    log.warning("first_admin_made", user=FIRST_ADMIN, password_file=str(path))
