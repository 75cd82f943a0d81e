"""SaslHandshake and SaslAuthenticate: the requests around a login. Knows no mechanism."""

from __future__ import annotations

from braidlog.broker.errors import BrokerError, LimitExceeded, NotAuthenticated
from braidlog.broker.runtime.endings import EndConnection
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.login import MECHANISMS
from braidlog.protocols.kafka.wire.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from braidlog.protocols.kafka.wire.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)


def sasl_handshake(context: KafkaContext, request: SaslHandshakeRequest) -> KafkaAnswer:
    """Agree on a mechanism; refused once the client has logged in.

    A second handshake within a login, or an unknown mechanism, ends the connection, as in Kafka.
    """
    login, code, ends = context.login, Code.NONE, ""
    if login.is_done:
        code = Code.ILLEGAL_SASL_STATE
    elif login.has_begun:
        code, ends = Code.ILLEGAL_SASL_STATE, "a second handshake within a login"
    elif not login.begin(request.mechanism):
        code, ends = Code.UNSUPPORTED_SASL_MECHANISM, "the client names no mechanism of this broker"
    reply = SaslHandshakeResponse(error_code=code, mechanisms=list(MECHANISMS))
    return KafkaAnswer(reply, ends=ends)


async def sasl_authenticate(context: KafkaContext, request: SaslAuthenticateRequest) -> KafkaAnswer:
    """Take a message of the mechanism; a login that fails ends the connection, as Kafka does.

    Raises EndConnection if too many log in at once: a client without an answer retries.
    """
    if not context.login.has_begun:
        text = "no handshake came before"
        reply = _failed(Code.ILLEGAL_SASL_STATE, text)
        return KafkaAnswer(reply, ends="" if context.login.is_done else text)
    try:
        data = await context.login.step(request.auth_bytes or b"")
    except NotAuthenticated as error:
        context.refused(error)
        reply = _failed(Code.SASL_AUTHENTICATION_FAILED, str(error))
        return KafkaAnswer(reply, ends=f"login refused: {error}")
    except LimitExceeded as error:
        raise EndConnection(str(error)) from error
    return KafkaAnswer(SaslAuthenticateResponse(error_message=None, auth_bytes=data))


def _failed(code: Code, text: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=code, error_message=text.encode())


async def raw_step(context: KafkaContext, data: bytes) -> bytes:
    """The same after version 0 of the handshake: then messages come without requests around them.

    Raises EndConnection: there is no other answer.
    """
    try:
        return await context.login.step(data)
    except BrokerError as error:
        context.refused(error)
        raise EndConnection(f"login refused: {error}") from error
