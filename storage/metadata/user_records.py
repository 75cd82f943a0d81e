"""Users, their tokens and what they may do, as the catalogue's journal holds them
(storage/FORMAT.md, section 9.1).

Knows no journal and no hash function: secrets are here only as hashes and derived keys.
"""

import msgspec


class ScramKey(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What SASL/SCRAM keeps of a password for one hash function (RFC 5802, section 3)."""

    mechanism: str  # SCRAM-SHA-256 or SCRAM-SHA-512
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


class TokenMeta(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """An access token of a user: its name and the SHA-256 of its text."""

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
    # Resources for which permissions were set that grant nothing: Iggy's clients are told of them.
    permitted: list[str] = []


class Grant(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """One permission: who may do what to which resources."""

    subject: str  # a user's name, or `role:` and a role's name
    action: str  # as in broker/access/rights.py
    resource: str  # a pattern, as in broker/access/rules.py


class UserSet(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=20):
    """A user was created or changed: this is all of it now, tokens included."""

    meta: UserMeta


class UserGone(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=21):
    """A user was deleted; the number is never used again."""

    user_id: int


class UsersCounted(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=22):
    """The next user number to give out: in a snapshot, which does not show who was deleted."""

    next_user_id: int


class Granted(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=23):
    """A permission was granted."""

    grant: Grant


class Revoked(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=24):
    """A permission was taken back."""

    grant: Grant


UserChange = UserSet | UserGone | UsersCounted | Granted | Revoked
