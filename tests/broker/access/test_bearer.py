import base64
import hmac
import json
import time

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from braidlog.broker.access.bearer import TOKEN_BYTES_MAX, TokenVerifier
from braidlog.broker.config.settings import AccessConfig
from braidlog.broker.errors import NotAuthenticated

SECRET = bytes(range(32))
RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())


def public(key, encoding=Encoding.PEM):
    return key.public_key().public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)


@pytest.fixture
def file(tmp_path):
    def write(data):
        path = tmp_path / f"key-{len(list(tmp_path.iterdir()))}"
        path.write_bytes(data)
        return str(path)

    return write


def by_secret(file, data=SECRET, **more):
    return TokenVerifier(AccessConfig(token_secret_file=file(data), **more))


@pytest.mark.parametrize("data", [SECRET, b"data:;base64," + base64.b64encode(SECRET)])
def test_a_token_signed_with_the_secret_is_valid(file, data):
    expires = time.time() + 100
    proved = by_secret(file, data).verify(jwt.encode({"sub": "anna", "exp": expires}, SECRET))
    assert proved.name == "anna" and abs(proved.expires_s - expires) < 1


def test_a_time_as_text_is_a_time(file):
    token = jwt.encode({"sub": "anna", "exp": str(2**33)}, SECRET)
    assert by_secret(file).verify(token).expires_s == 2**33


@pytest.mark.parametrize(("key", "algorithm"), [(RSA, "RS256"), (EC, "ES256")])
@pytest.mark.parametrize("encoding", [Encoding.PEM, Encoding.DER])
def test_a_token_signed_with_the_private_key_is_valid(file, key, algorithm, encoding):
    verifier = TokenVerifier(AccessConfig(token_public_key_file=file(public(key, encoding))))
    assert verifier.verify(jwt.encode({"sub": "anna"}, key, algorithm)).name == "anna"
    assert verifier.verify(jwt.encode({"sub": "anna"}, key, algorithm)).expires_s is None


def forged_with_public_key_as_secret():
    """Return a token with HS256 keyed with the public key.

    Only a broker that lets the token choose the algorithm would accept it.
    """
    parts = [{"alg": "HS256", "typ": "JWT"}, {"sub": "anna"}]
    text = b".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts
    )
    signature = hmac.digest(public(RSA), text, "sha256")
    return (text + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


WRONG = {
    "expired": jwt.encode({"sub": "anna", "exp": 1}, SECRET),
    "not yet": jwt.encode({"sub": "anna", "nbf": 2**33}, SECRET),
    "another secret": jwt.encode({"sub": "anna"}, bytes(32)),
    "no algorithm": jwt.encode({"sub": "anna"}, None, "none"),
    "no name": jwt.encode({"aud": "x"}, SECRET),
    "empty name": jwt.encode({"sub": ""}, SECRET),
    "another algorithm": jwt.encode({"sub": "anna"}, SECRET * 2, "HS512"),
    "cut": jwt.encode({"sub": "anna"}, SECRET)[:-5],
    "noise": "a.b.c",
    "empty": "",
    "swapped key": forged_with_public_key_as_secret(),
    "not ASCII": "\udcff.\u00e4.c",
    "too long": "a" * (TOKEN_BYTES_MAX + 1),
}


@pytest.mark.parametrize("which", WRONG)
def test_other_tokens_are_invalid(file, which):
    verifier = TokenVerifier(
        AccessConfig(token_secret_file=file(SECRET), token_public_key_file=file(public(RSA)))
    )
    with pytest.raises(NotAuthenticated):
        verifier.verify(WRONG[which])


def test_a_token_must_have_the_configured_audience(file):
    verifier = by_secret(file, token_audience="braidlog")
    assert verifier.verify(jwt.encode({"sub": "a", "aud": ["x", "braidlog"]}, SECRET)).name == "a"
    for claims in ({"sub": "a"}, {"sub": "a", "aud": "x"}):
        with pytest.raises(NotAuthenticated):
            verifier.verify(jwt.encode(claims, SECRET))


def test_another_claim_can_be_the_name(file):
    verifier = by_secret(file, token_claim="role")
    assert verifier.verify(jwt.encode({"sub": "x", "role": "anna"}, SECRET)).name == "anna"


@pytest.mark.parametrize(
    ("setting", "data"),
    [
        ("token_secret_file", b"short"),
        ("token_secret_file", b"data:;base64,?"),
        ("token_public_key_file", b"noise"),
        ("token_public_key_file", public(ed25519.Ed25519PrivateKey.generate())),
    ],
)
def test_an_invalid_key_is_reported_at_the_start(file, setting, data):
    with pytest.raises(ValueError):
        TokenVerifier(AccessConfig(**{setting: file(data)}))


def test_a_missing_key_file_is_reported_at_the_start():
    with pytest.raises(ValueError, match="No such file"):
        TokenVerifier(AccessConfig(token_secret_file="/nowhere/at/all"))


def test_without_keys_no_token_is_valid():
    verifier = TokenVerifier(AccessConfig())
    with pytest.raises(NotAuthenticated):
        verifier.verify(jwt.encode({"sub": "anna"}, SECRET))


@pytest.mark.parametrize(
    "claims", ['{"sub": "anna", "exp": %s}' % ("9" * 400), r'{"sub": "\ud800"}']
)
def test_unusable_claims_make_a_token_invalid(file, claims):
    text = jwt.PyJWS().encode(claims.encode(), SECRET, "HS256")
    with pytest.raises(NotAuthenticated, match="the token is not valid"):
        by_secret(file).verify(text)
