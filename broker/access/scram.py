"""The server's side of a SCRAM login (RFC 5802, and RFC 7677 for SHA-256).

After two messages each way both sides know that the other has the password, which is never sent.
The caller brings the keys: the module knows no user. Channel binding is not offered.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final

from braidlog.broker.access.passwords import SCRAM_HASHES
from braidlog.broker.errors import NotAuthenticated
from braidlog.storage.metadata.user_records import ScramKey

NONCE_BYTES: Final = 24  # As random as Kafka's own nonces.
MESSAGE_BYTES_MAX: Final = 4096  # A name of 255 bytes and any client's nonce fit many times.


class ScramServer:
    """A login under way: `read_first`, `challenge`, `finish`, in this order."""

    def __init__(self, mechanism: str) -> None:
        """`mechanism` is one of `SCRAM_HASHES`."""
        self._hash = SCRAM_HASHES[mechanism]
        self._binding = ""  # The client's header on channel binding; its last message repeats it.
        self._first_bare = ""
        self._nonce = ""
        self._challenge = ""
        self._key: ScramKey | None = None

    def read_first(self, message: bytes) -> str:
        """Return the name in the client's first message (RFC 5802, section 5.1).

        Raises NotAuthenticated.
        """
        text = _text(message)
        parts = text.split(",", 2)
        if len(parts) < 3 or parts[0] not in ("n", "y"):
            raise NotAuthenticated("channel binding is not served")
        self._binding, self._first_bare = f"{parts[0]},{parts[1]},", parts[2]
        fields = _fields(self._first_bare)
        name, nonce = _unescaped(fields.get("n", "")), fields.get("r", "")
        if not name or not nonce or "m" in fields or fields.get("tokenauth") == "true":
            raise NotAuthenticated("the first message of the login is not one")
        if parts[1] not in ("", f"a={fields['n']}"):
            raise NotAuthenticated("nobody may act for somebody else")
        self._nonce = nonce + secrets.token_urlsafe(NONCE_BYTES)
        return name

    def challenge(self, key: ScramKey) -> bytes:
        """Return the server's first message; `key` belongs to the name from `read_first`."""
        self._key = key
        salt = base64.b64encode(key.salt).decode()
        self._challenge = f"r={self._nonce},s={salt},i={key.iterations}"
        return self._challenge.encode()

    def finish(self, message: bytes) -> bytes:
        """Return the server's last message if the client's proof is right.

        Raises NotAuthenticated.
        """
        assert self._key is not None, "the challenge comes first"
        without_proof, nonce, proof = _text(message).rpartition(",p=")
        fields = _fields(without_proof)
        binding = base64.b64encode(self._binding.encode()).decode()
        if not nonce or fields.get("c") != binding or fields.get("r") != self._nonce:
            raise NotAuthenticated("the last message of the login is not one")
        auth_message = ",".join((self._first_bare, self._challenge, without_proof)).encode()
        signature = hmac.digest(self._key.stored_key, auth_message, self._hash)
        client_key = bytes(a ^ b for a, b in zip(_decoded(proof), signature, strict=False))
        stored_key = hashlib.new(self._hash, client_key).digest()
        if not hmac.compare_digest(stored_key, self._key.stored_key):
            raise NotAuthenticated("wrong user name or password")
        verifier = hmac.digest(self._key.server_key, auth_message, self._hash)
        return b"v=" + base64.b64encode(verifier)


def _text(message: bytes) -> str:
    if len(message) > MESSAGE_BYTES_MAX:
        raise NotAuthenticated("a message of the login is too long")
    try:
        return message.decode()
    except UnicodeDecodeError as error:
        raise NotAuthenticated("a message of the login is not text") from error


def _fields(text: str) -> dict[str, str]:
    """Return the attributes of a message; the first of each name counts."""
    fields: dict[str, str] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        fields.setdefault(name, value)
    return fields


def _unescaped(name: str) -> str:
    """Return a `saslname` without escapes (RFC 5802, section 5.1). Raises NotAuthenticated."""
    if name.count("=") != name.count("=2C") + name.count("=3D"):
        raise NotAuthenticated("the name in the login is written wrongly")
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise NotAuthenticated("the proof of the login is not Base64") from error
