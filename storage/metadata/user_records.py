"""Users, tokens and permissions in the catalogue's journal (storage/FORMAT.md, section 9.1).

Knows no journal and no hash function: secrets are here only as hashes and derived keys.
"""

import msgspec


class ScramKey(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """SASL/SCRAM's stored form of a password for a hash function (RFC 5802, section 3)."""

    mechanism: str  # SCRAM-SHA-256 or SCRAM-SHA-512
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


class TokenMeta(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """An access token of a user: name, and SHA-256 of the token's text."""

    name: str
    digest: bytes
    created_us: int
    expires_us: int | None  # None: never


class UserMeta(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A user. An empty `password_hash` matches no password: the user has tokens or certificates."""

    user_id: int
    name: str
    password_hash: str  # argon2id, with its parameters and salt
    created_us: int
    is_active: bool
    roles: list[str]
    scram: list[ScramKey] = []
    tokens: list[TokenMeta] = []
    # Resources with permissions that grant nothing: Iggy's clients receive them.
    permitted: list[str] = []


class Grant(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """A permission of a user or role: an action on resources."""

    subject: str  # a user's name, or `role:` and a role's name
    action: str  # as in broker/access/rights.py
    resource: str  # a pattern, as in broker/access/rules.py


class UserSet(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=20):
    """A user was created or changed: the complete new state, tokens included."""

    meta: UserMeta


class UserGone(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=21):
    """A user was deleted; the number is never used again."""

    user_id: int


class UsersCounted(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=22):
    """The next user number to give out: in a snapshot, which does not show deleted users."""

    next_user_id: int


class Granted(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=23):
    """A permission was granted."""

    grant: Grant


class Revoked(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=24):
    """A permission was revoked."""

    grant: Grant


UserChange = UserSet | UserGone | UsersCounted | Granted | Revoked
