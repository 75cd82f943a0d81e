"""Generates a random password for root if none is set and other machines can connect. It is written
to a file at the first start, and kept as a hash.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from braidlog.broker.access.first_admin import write_new_password
from braidlog.broker.access.users import ROOT_USER_ID

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker

PASSWORD_FILE = "iggy-password"  # In the data directory.

log = structlog.get_logger()


async def make_root(broker: Broker, name: str) -> None:
    """Give root a password if it has none yet; an existing user of that name stays as it is.

    The file is on disk before the user is. Raises OSError, StorageFull, StorageFailed.
    """
    root = broker.users.by_id(ROOT_USER_ID)
    if (root is not None and root.password_hash) or (root is None and broker.users.find(name)):
        return
    if broker.placement.catalogue_owner() is not None:
        return  # The broker that owns the catalogue does it.
    path = Path(broker.data_dir) / PASSWORD_FILE
    password = write_new_password(path)
    if root is None:
        _, ticket = await broker.users.create(name, password, user_id=ROOT_USER_ID)
    else:
        ticket = await broker.users.set_password(root, password)
    await broker.published(ticket)
    log.warning("iggy_root_made", user=name, password_file=str(path))
