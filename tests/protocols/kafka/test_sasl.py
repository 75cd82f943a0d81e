"""Logins at a broker without authentication, and expiring tokens."""

import time
from types import SimpleNamespace

import pytest
import trio

from braidlog.broker.access.authentication import Identity
from braidlog.broker.access.rights import ANONYMOUS, Principal
from braidlog.broker.runtime.endings import EndConnection
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.login import LOOK_S, KafkaLogin
from braidlog.protocols.kafka.wire.sasl_authenticate import SaslAuthenticateRequest
from braidlog.protocols.kafka.wire.sasl_handshake import SaslHandshakeRequest


@pytest.mark.parametrize(
    ("password", "code"), [(b"secret", Code.NONE), (b"wrong", Code.SASL_AUTHENTICATION_FAILED)]
)
async def test_a_broker_without_authentication_checks_a_sent_login(broker, client, password, code):
    await broker.users.create("anna", "secret")
    await client.call_with_table(SaslHandshakeRequest(mechanism=b"PLAIN"), 1)
    login = SaslAuthenticateRequest(auth_bytes=b"\0anna\0" + password)
    assert (await client.call_with_table(login, 1)).error_code == code


async def test_a_connection_ends_when_its_token_expires():
    identity = Identity(Principal("carl"), expires_s=time.time() + 100)
    authentication = SimpleNamespace(required=True, bearer=lambda token, at: identity)
    connection = SimpleNamespace(principal=ANONYMOUS, at="kafka 10.0.0.1")
    connection.act_for = lambda principal, proof: setattr(connection, "principal", principal)
    login = KafkaLogin(connection, authentication)
    assert login.is_needed
    login.begin(b"OAUTHBEARER")
    await login.step(b"n,,\1auth=Bearer x\1\1")
    assert not login.is_needed
    now = trio.current_time()
    assert login.check_expiry(now, now + 600) == now + LOOK_S
    with pytest.raises(EndConnection, match="has expired"):
        login.check_expiry(now + 101, now + 600)
