"""JSON Web Tokens of other issuers (RFC 7519): Pulsar's tokens, and HTTP's Bearer.

The key decides the algorithm, never the token: a secret means HS256, an RSA key RS256, an elliptic
curve key ES256. The module knows no user and no protocol.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from braidlog.broker.errors import NotAuthenticated

if TYPE_CHECKING:
    from braidlog.broker.config.settings import AccessConfig

Key = Any  # A secret's bytes, or a public key of the cryptography library.

SECRET_BYTES_MIN: Final = 32  # RFC 7518, section 3.2: at least as long as the hash.
TOKEN_BYTES_MAX: Final = 8192  # The header limit of common HTTP servers.
DATA_PREFIXES: Final = (b"data:;base64,", b"base64:")  # Prefixes of keys in Pulsar's settings.


@dataclass(frozen=True, slots=True)
class Proved:
    """The verified name and expiry of a token (seconds since 1970; None: forever)."""

    name: str
    expires_s: float | None


class TokenVerifier:
    """Checks tokens against the configured keys."""

    def __init__(self, config: AccessConfig) -> None:
        """Read the keys that the settings name. Raises ValueError with a line for people."""
        self._decode: Callable[[str, Key, str], dict[str, Any]] = _no_key
        self._claim = config.token_claim
        self._audience = config.token_audience
        self._keys: list[tuple[str, Any]] = []
        if config.token_secret_file is not None:
            self._keys.append(("HS256", _read_secret(config.token_secret_file)))
        if config.token_public_key_file is not None:
            self._keys.append(_read_public_key(config.token_public_key_file))
        if self._keys:
            self._decode = self._decoder()

    def verify(self, token: str) -> Proved:
        """Check a token and return its name and expiry. Raises NotAuthenticated."""
        if len(token) > TOKEN_BYTES_MAX:
            raise NotAuthenticated("the token is too long")
        for algorithm, key in self._keys:
            claims = self._decode(token, key, algorithm)
            if not claims:
                continue  # Try the other key.
            name = claims[self._claim]
            if not isinstance(name, str) or not name:
                break
            expires = claims.get("exp")  # A number, also if the token has the number as text.
            try:
                name.encode()  # JSON may hold half of a surrogate pair, which is no text.
                return Proved(name, None if expires is None else float(expires))
            except (UnicodeEncodeError, OverflowError) as error:
                raise NotAuthenticated("the token is not valid") from error
        raise NotAuthenticated("the token is not valid")

    def _decoder(self) -> Callable[[str, Key, str], dict[str, Any]]:
        """Return a function that checks a token; no claims if the token names another algorithm.

        The library is imported here because it takes 8 MB, and most brokers do not use signed
        tokens.
        """
        import jwt

        def decode(token: str, key: Key, algorithm: str) -> dict[str, Any]:
            try:
                return jwt.decode(
                    token,
                    key,
                    algorithms=[algorithm],
                    audience=self._audience,
                    options={"require": [self._claim], "verify_aud": self._audience is not None},
                )
            except jwt.InvalidAlgorithmError:
                return {}
            except jwt.ExpiredSignatureError as error:
                raise NotAuthenticated("the token has expired") from error
            except (jwt.PyJWTError, ValueError) as error:
                raise NotAuthenticated("the token is not valid") from error

        return decode


def _no_key(token: str, key: Key, algorithm: str) -> dict[str, Any]:
    raise NotAuthenticated("no key for signed tokens is set")


def looks_signed(token: str) -> bool:
    """Return True if a token looks like a JSON Web Token; Braidlog's own tokens have no dot."""
    return token.count(".") == 2


def _read(path: str) -> bytes:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    for prefix in DATA_PREFIXES:
        if data.startswith(prefix):
            try:
                return base64.b64decode(data.removeprefix(prefix).strip(), validate=True)
            except binascii.Error as error:
                raise ValueError(f"{path}: no Base64 behind {prefix.decode()}") from error
    return data


def _read_secret(path: str) -> bytes:
    secret = _read(path)
    if len(secret) < SECRET_BYTES_MIN:
        raise ValueError(f"{path}: a secret has at least {SECRET_BYTES_MIN} bytes")
    return secret


def _read_public_key(path: str) -> tuple[str, Any]:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import (
        load_der_public_key,
        load_pem_public_key,
    )

    data = _read(path)
    try:
        key = load_pem_public_key(data) if b"-----BEGIN" in data else load_der_public_key(data)
    except ValueError as error:
        raise ValueError(f"{path}: no public key in PEM or DER") from error
    if isinstance(key, RSAPublicKey):
        return "RS256", key
    if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
        return "ES256", key
    raise ValueError(f"{path}: expected an RSA key or one on the curve P-256")
