"""Before a login no frame reaches more than the login: the short form."""

import pytest

from conformance.hostile.commands import protocols
from conformance.hostile.rows_login import families
from conformance.hostile.strangers import (
    before_login,
    handshakes,
    secured,
    wrong_passwords,
)

pytestmark = pytest.mark.slow
FRAMES = 150
TRIES = 3000
SEED = 1


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A shared broker with a slow-down of failed logins."""
    with secured(tmp_path_factory.mktemp("secured"), slows_down=True) as broker:
        yield broker


@pytest.mark.parametrize("family", families())
def test_handshakes(server, family):
    assert handshakes(server, family, FRAMES, SEED).total == FRAMES


@pytest.mark.parametrize("name", protocols())
def test_commands_before_a_login(server, name):
    assert before_login(server, name, FRAMES, SEED).total == FRAMES


def test_wrong_passwords_are_refused_without_hashing_or_delaying_others(server):
    hashed, _, _ = wrong_passwords(server, TRIES)  # The operator receives answers meanwhile.
    assert hashed <= TRIES / 20
