"""Root without a configured password on a reachable listener: the broker creates a
password, once.
"""

import stat
from pathlib import Path

import pytest

from braidlog.broker.access.users import ROOT_USER_ID
from braidlog.protocols.iggy.adapter import ADAPTER
from braidlog.protocols.iggy.errors import ErrorCode
from braidlog.protocols.iggy.options import IggyOptions
from braidlog.protocols.iggy.root import PASSWORD_FILE


@pytest.fixture
def reachable(broker):
    """Return a function that starts the listener as reachable by other machines."""

    async def start():
        await ADAPTER.start(broker, IggyOptions(), loopback=False)
        for connection in broker.connections:
            connection.loopback = False

    return start


async def test_a_generated_password_is_in_a_file_and_stored_as_a_hash(broker, connect, reachable):
    talk = await connect()
    await talk.status(1)
    await reachable()
    file = Path(broker.data_dir) / PASSWORD_FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    password = file.read_text().strip()
    assert await talk.login() == ErrorCode.INVALID_CREDENTIALS
    assert await talk.login(password=password) == 0
    root = broker.users.by_id(ROOT_USER_ID)
    assert password not in repr(root)
    file.unlink()
    await reachable()  # The next start.
    assert not file.exists()
    assert broker.users.by_id(ROOT_USER_ID) is root


async def test_iggys_default_password_is_refused_even_if_root_is_deleted(
    broker, connect, reachable
):
    talk = await connect()
    await talk.status(1)
    await reachable()
    await broker.users.delete(broker.users.by_id(ROOT_USER_ID))
    assert await talk.login() == ErrorCode.INVALID_CREDENTIALS


async def test_no_password_is_generated_on_loopback_or_with_a_password_file(broker, tmp_path):
    await ADAPTER.start(broker, IggyOptions(), loopback=True)
    file = tmp_path / "password"
    file.write_text("s3cret")
    await ADAPTER.start(broker, IggyOptions(password_file=str(file)), loopback=False)
    assert broker.users.all() == []


async def test_an_existing_user_of_that_name_is_kept(broker):
    await broker.users.create("iggy", "their own")
    await ADAPTER.start(broker, IggyOptions(), loopback=False)
    assert [user.name for user in broker.users.all()] == ["iggy"]
    assert not (Path(broker.data_dir) / PASSWORD_FILE).exists()
