"""The client's half of SCRAM, written from RFC 5802, as a check of the server's half."""

import base64
import hashlib
import hmac

NONCE = "fyko+d2lbbFgONRv9qkxdawL"


class ScramClient:
    """Returns a client's messages, step by step."""

    def __init__(self, mechanism, name, password, *, binding="n,,"):
        self.hash = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
        self.password = password
        self.binding = binding
        escaped = name.replace("=", "=3D").replace(",", "=2C")
        self.bare = f"n={escaped},r={NONCE}"
        self.expected = b""

    def first(self):
        return (self.binding + self.bare).encode()

    def last(self, challenge):
        fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
        assert fields["r"].startswith(NONCE) and len(fields["r"]) > len(NONCE)
        salt = base64.b64decode(fields["s"])
        salted = hashlib.pbkdf2_hmac(self.hash, self.password.encode(), salt, int(fields["i"]))
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
