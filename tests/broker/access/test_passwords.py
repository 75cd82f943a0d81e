"""SCRAM keys against the example of RFC 7677, section 3."""

import base64
import hashlib
import hmac

from braidlog.broker.access import passwords


def test_scram_keys_prove_the_clients_of_rfc_7677(monkeypatch):
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    monkeypatch.setattr(passwords.secrets, "token_bytes", lambda size: salt)
    key = passwords._scram_key("SCRAM-SHA-256", "pencil")
    message = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,"
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    signature = hmac.digest(key.stored_key, message, "sha256")
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == key.stored_key
    server = hmac.digest(key.server_key, message, "sha256")
    assert base64.b64encode(server) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_tokens_are_fifty_random_characters():
    tokens = {passwords.new_token() for _ in range(100)}
    assert len(tokens) == 100 and {len(token) for token in tokens} == {50}
