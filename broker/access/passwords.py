"""Stored forms of passwords and access tokens: argon2id hashes, SCRAM keys, digests of tokens.

Hashing is slow on purpose, so hashes run in a thread, one at a time for the whole broker. A
correct password is remembered as a keyed digest in memory; checking the digest takes microseconds.
The module knows no user and no journal.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple

import trio

from braidlog.broker.errors import LimitExceeded
from braidlog.broker.runtime.threads import run_in_thread
from braidlog.storage.metadata.user_records import ScramKey

# argon2id with 19 MiB and two passes: the first choice of OWASP's Password Storage Cheat Sheet.
# 20 to 40 ms of one core; a second hash at the same time would double the memory.
HASH_MEMORY_KIB: Final = 19 * 1024
HASH_PASSES: Final = 2
HASH_LANES: Final = 1

# Logins that may wait for a hash. At 40 ms each the last login waits 2.5 s; further logins are
# refused and have to try again.
HASHES_WAITING_MAX: Final = 64
REMEMBERED_MAX: Final = 10_000  # Verified passwords, 100 bytes each; least recently used.

PASSWORD_BYTES_MAX: Final = 1024  # As long as any client's own limit; bounds the input of a hash.
TOKEN_BYTES: Final = 37  # 50 characters of base64, like Iggy's own tokens; 296 random bits.

SCRAM_SALT_BYTES: Final = 16
SCRAM_ITERATIONS: Final = 4096  # Kafka's default, and the least that RFC 7677 allows.
SCRAM_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

if TYPE_CHECKING:
    from argon2 import PasswordHasher

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Passwords:
    """Makes and checks the stored forms of passwords."""

    def __init__(self, hashed: Callable[[], object] = lambda: None) -> None:
        """`hashed` is called for each computed hash."""
        self._hashed = hashed
        self._one_at_a_time = trio.CapacityLimiter(1)
        self._turn = trio.Lock()
        self._waiting = 0
        self._key = secrets.token_bytes(32)  # Of this process: remembered digests die with it.
        self._remembered: OrderedDict[str, bytes] = OrderedDict()
        self._dummy: str | None = None

    async def hash(self, password: str) -> tuple[str, list[ScramKey]]:
        """Return the hash and the SCRAM keys of a new password. Raises LimitExceeded."""
        return await self._in_turn(self._make, password)

    async def verify(
        self, password_hash: str, password: str, check: Callable[[], None] = lambda: None
    ) -> bool:
        """Return True if the password fits that hash. Raises LimitExceeded.

        `check` is called before the hashing, and raises to refuse the hashing.
        """
        if self.remembers(password_hash, password):
            self._remembered.move_to_end(password_hash)
            return True
        right = await self._in_turn(self._matches, password_hash, password, check=check)
        if right:
            self._remembered[password_hash] = self._digest(password_hash, password)
            while len(self._remembered) > REMEMBERED_MAX:
                self._remembered.popitem(last=False)
        return right

    def remembers(self, password_hash: str, password: str) -> bool | None:
        """Return True if the remembered password of that hash fits; None if not remembered."""
        digest = self._remembered.get(password_hash)
        if digest is None:
            return None
        return hmac.compare_digest(digest, self._digest(password_hash, password))

    async def verify_unknown_user(
        self, password: str, check: Callable[[], None] = lambda: None
    ) -> None:
        """Spend the time of a check, so that an unknown name takes as long as a wrong password.

        `check` is as in `verify`. Raises LimitExceeded.
        """
        if self._dummy is None:
            self._dummy = await self._in_turn(self._hash, secrets.token_hex(), check=check)
        await self._in_turn(self._matches, self._dummy, password, check=check)

    def invented_scram_key(self, name: str, mechanism: str) -> ScramKey:
        """Return a key that no password fits, so that an unknown name gets the answer of a known
        name.

        The salt is the same at every call.
        """
        salt = hmac.digest(self._key, f"{mechanism} {name}".encode(), "sha256")[:SCRAM_SALT_BYTES]
        chance = secrets.token_bytes(hashlib.new(SCRAM_HASHES[mechanism]).digest_size)
        return ScramKey(mechanism, salt, SCRAM_ITERATIONS, chance, chance)

    @cached_property
    def _hasher(self) -> PasswordHasher:  # Used in a thread: many brokers have no password.
        from argon2 import PasswordHasher

        return PasswordHasher(
            time_cost=HASH_PASSES, memory_cost=HASH_MEMORY_KIB, parallelism=HASH_LANES
        )

    def _digest(self, password_hash: str, password: str) -> bytes:
        return hmac.digest(self._key, password_hash.encode() + b"\0" + password.encode(), "sha256")

    def _make(self, password: str) -> tuple[str, list[ScramKey]]:
        keys = [_scram_key(mechanism, password) for mechanism in SCRAM_HASHES]
        return self._hash(password), keys

    def _hash(self, password: str) -> str:
        return self._hasher.hash(password)

    def _matches(self, password_hash: str, password: str) -> bool:
        from argon2.exceptions import InvalidHashError, VerificationError

        try:
            return self._hasher.verify(password_hash, password)
        except (VerificationError, InvalidHashError):
            return False

    async def _in_turn(
        self, work: Callable[[*Ts], T], *arguments: *Ts, check: Callable[[], None] = lambda: None
    ) -> T:
        """Run `work` in a thread in turn, unless `check` raises by then."""
        if self._waiting >= HASHES_WAITING_MAX:
            raise LimitExceeded("too many logins at once: try again")
        self._waiting += 1
        try:
            async with self._turn:
                check()  # Earlier logins may have failed during the wait.
                self._hashed()
                # The limiter is needed too: an abandoned thread goes on.
                return await run_in_thread(
                    work, *arguments, limiter=self._one_at_a_time, abandon_on_cancel=True
                )
        finally:
            self._waiting -= 1


def new_token() -> str:
    """Return the text of a new access token."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def token_digest(token: str) -> bytes:
    """Return the stored digest of an access token.

    The token is random, so a plain hash is enough.
    """
    return hashlib.sha256(token.encode()).digest()


def _scram_key(mechanism: str, password: str) -> ScramKey:
    """Derive a key (RFC 5802, section 3).

    The password is used as it is: SASLprep is the client's duty.
    """
    name = SCRAM_HASHES[mechanism]
    salt = secrets.token_bytes(SCRAM_SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, SCRAM_ITERATIONS)
    return scram_key_of(mechanism, salt, SCRAM_ITERATIONS, salted)


def scram_key_of(mechanism: str, salt: bytes, iterations: int, salted: bytes) -> ScramKey:
    """Return the key for a salted password (RFC 5802, section 3)."""
    name = SCRAM_HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    server_key = hmac.digest(salted, b"Server Key", name)
    return ScramKey(mechanism, salt, iterations, stored_key, server_key)
