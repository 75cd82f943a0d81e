"""The tables of a login by SASL. Layouts: as in `tables.py`."""

from braidlog.protocols.kafka import sasl_messages as m
from braidlog.protocols.kafka.fields import BLOB, I16, I64, TEXT, Api, Array, Field, ignored, table

SASL_HANDSHAKE_KEY, SASL_AUTHENTICATE_KEY = 17, 36

SASL_HANDSHAKE = Api(
    1,
    table(m.SaslHandshakeRequest, Field("mechanism", TEXT)),
    table(m.SaslHandshakeReply, Field("error", I16), Field("mechanisms", Array(TEXT))),
)

SASL_AUTHENTICATE = Api(
    1,
    table(m.SaslAuthenticateRequest, Field("data", BLOB)),
    table(
        m.SaslAuthenticateReply,
        Field("error", I16),
        Field("message", TEXT),
        Field("data", BLOB),
        ignored(I64, since=1),  # When to log in again: never on this connection.
    ),
)

SASL_APIS = {SASL_HANDSHAKE_KEY: SASL_HANDSHAKE, SASL_AUTHENTICATE_KEY: SASL_AUTHENTICATE}
