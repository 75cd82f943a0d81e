"""The client's half of SCRAM, written from RFC 5802, as a check of the server's half."""

import base64
import hashlib
import hmac
from typing import Final

NONCE: Final = "fyko+d2lbbFgONRv9qkxdawL"
HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class ScramClient:
    """Returns a client's messages, step by step."""

    def __init__(self, mechanism: str, name: str, password: str, *, binding: str = "n,,") -> None:
        self.hash = HASHES[mechanism]
        self.password = password
        self.binding = binding
        escaped = name.replace("=", "=3D").replace(",", "=2C")
        self.bare = f"n={escaped},r={NONCE}"
        self.expected = b""

    def first(self) -> bytes:
        """Return the first message."""
        return (self.binding + self.bare).encode()

    def last(self, challenge: bytes) -> bytes:
        """Return the last message; then `expected` is the right answer of the server."""
        fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
        assert fields["r"].startswith(NONCE) and len(fields["r"]) > len(NONCE)
        salt = base64.b64decode(fields["s"])
        salted = salted_password(self.hash, self.password, salt, int(fields["i"]))
        binding = base64.b64encode(self.binding.encode()).decode()
        without_proof = f"c={binding},r={fields['r']}"
        auth_message = f"{self.bare},{challenge.decode()},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", self.hash)
        stored_key = hashlib.new(self.hash, client_key).digest()
        signature = hmac.digest(stored_key, auth_message, self.hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self.hash)
        self.expected = b"v=" + base64.b64encode(hmac.digest(server_key, auth_message, self.hash))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def salted_password(hash_name: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Return RFC 5802's SaltedPassword."""
    return hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
