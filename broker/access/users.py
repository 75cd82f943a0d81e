"""The users of the broker, for every protocol, and the check of their credentials.

Every change is a change of the catalogue and returns its commit ticket. The module knows no
protocol: each protocol has its own limits on names and passwords, within the limits here.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from typing import Final, Protocol

from msgspec.structs import replace

from braidlog.broker import errors
from braidlog.broker.access.login_throttle import LoginThrottle
from braidlog.broker.access.passwords import PASSWORD_BYTES_MAX, Passwords, new_token, token_digest
from braidlog.broker.access.rights import ROLE_PREFIX, Principal
from braidlog.broker.limits import STATE_LIMITS, StateLimits
from braidlog.storage.metadata.user_records import (
    Granted,
    Revoked,
    ScramKey,
    TokenMeta,
    UserChange,
    UserGone,
    UserMeta,
    UserSet,
)
from braidlog.storage.metadata.users import ROOT_USER_ID, UserBook

# Protocols import the record of a user from here.
__all__ = [
    "NAME_BYTES_MAX",
    "ROOT_USER_ID",
    "ScramKey",
    "UserCatalogue",
    "UserMeta",
    "Users",
    "principal_of",
]

NAME_BYTES_MAX: Final = 255

# Returns changes of permissions. Called directly before they are written, without an await.
GrantChanges = Callable[[], Iterable[UserChange]]


class UserCatalogue(Protocol):
    """The storage of users and permissions."""

    @property
    def users(self) -> UserBook:
        """The current users, to be read only."""

    @property
    def ticket(self) -> int:
        """The ticket after which every change so far is on disk."""

    def change_users(self, *changes: UserChange) -> int:
        """Make changes as a single record; return the ticket.

        A call that raises, and a crash, leave none of them. Raises InvalidRequest, StorageFull,
        StorageFailed.
        """


class Users:
    """All users."""

    def __init__(
        self,
        catalogue: UserCatalogue,
        *,
        now_us: Callable[[], int],
        clock_s: Callable[[], float],
        slows_down: bool = True,
        hashed: Callable[[], object] = lambda: None,
        limits: StateLimits = STATE_LIMITS,
    ) -> None:
        """`now_us` is the time of day in microseconds, `clock_s` a steady clock in seconds.

        With `slows_down` clients that fail often must wait. `hashed` is called for each password
        hash, which is the main cost of a login.
        """
        self._catalogue = catalogue
        self._book = catalogue.users
        self._limits = limits
        self._passwords = Passwords(hashed)
        self._throttle = LoginThrottle(is_on=slows_down)
        self._now_us = now_us
        self._clock_s = clock_s

    # Finding.

    def all(self) -> Sequence[UserMeta]:
        """Return every user, by number."""
        return self._book.all()

    def find(self, name: str) -> UserMeta | None:
        """Return the user of that name, or None."""
        return self._book.find(name)

    def by_id(self, user_id: int) -> UserMeta | None:
        """Return the user with that number, or None."""
        return self._book.by_id(user_id)

    def deactivations(self, user: UserMeta | None) -> int:
        """Count the user's deactivations since this process started; 0 for None."""
        return 0 if user is None else self._book.deactivations(user.user_id)

    def get(self, name: str) -> UserMeta:
        """Return the user of that name. Raises UserNotFound."""
        user = self._book.find(name)
        if user is None:
            raise errors.UserNotFound(f"no user {name}")
        return user

    # Logging in.

    async def verify(
        self, name: str, password: str, address: str, *, must_be_active: bool = True
    ) -> UserMeta:
        """Return the user with that name and password; `address` is the client's host.

        Raises NotAuthenticated, also for too many failures in a row, and LimitExceeded.
        """
        keys = _throttle_keys(name, address)
        user = self._book.find(name)
        known = None if user is None else self._passwords.remembers(user.password_hash, password)
        check = partial(self._check_throttle, keys, known=known)
        check()
        if len(password.encode()) > PASSWORD_BYTES_MAX:
            right = False
        elif user is None or not user.password_hash:
            await self._passwords.verify_unknown_user(password, check)
            right = False
        else:
            right = await self._passwords.verify(user.password_hash, password, check)
        # Another task may have changed or removed the user meanwhile.
        if not right or user is None or self._book.by_id(user.user_id) is not user:
            self._throttle.failed(keys, self._clock_s())
            raise errors.NotAuthenticated("wrong user name or password")
        self._throttle.succeeded(keys)
        return _active(user) if must_be_active else user

    def verify_token(self, token: str, address: str) -> tuple[UserMeta, TokenMeta]:
        """Return the active user of this access token, and the stored token.

        `address` is the client's host. Raises NotAuthenticated.
        """
        digest = token_digest(token)
        user = self._book.by_token(digest)
        if user is None:  # Tokens cannot be guessed, so a correct token never has to wait.
            self._throttle.failed((f"address {address}",), self._clock_s())
            raise errors.NotAuthenticated("unknown token")
        token_meta = next(token_meta for token_meta in user.tokens if token_meta.digest == digest)
        if token_meta.expires_us is not None and token_meta.expires_us <= self._now_us():
            raise errors.NotAuthenticated("the token has expired")
        return _active(user), token_meta

    def scram_key(self, name: str, mechanism: str, address: str) -> ScramKey:
        """Return the key for a SCRAM login of that name; an invented key for an unknown name.

        Raises NotAuthenticated after too many failures in a row.
        """
        self._check_throttle(self._scram_keys(name, address))
        user = self._book.find(name)
        for key in () if user is None else user.scram:
            if key.mechanism == mechanism:
                return key
        return self._passwords.invented_scram_key(name, mechanism)

    def scram_ended(self, name: str, key: ScramKey, address: str, *, is_right: bool) -> UserMeta:
        """Return the active user whose SCRAM login with this key has ended.

        Raises NotAuthenticated if the proof was wrong, the user was changed meanwhile, or too many
        other logins have failed since this login began: any number of logins may run at once.
        """
        keys = _throttle_keys(name, address)
        self._check_throttle(self._scram_keys(name, address))
        user = self._book.find(name)
        if not is_right or user is None or key not in user.scram:
            self._throttle.failed(keys, self._clock_s())
            raise errors.NotAuthenticated("wrong user name or password")
        self._throttle.succeeded(keys)
        return _active(user)

    async def verify_configured(
        self, name: str, password: str, expected: str, address: str
    ) -> None:
        """Check a name and password against the settings, which belong to no stored user.

        Otherwise as `verify`. Raises NotAuthenticated, LimitExceeded.
        """
        keys = _throttle_keys(name, address)
        right = hmac.compare_digest(password.encode(), expected.encode())
        check = partial(self._check_throttle, keys, known=right)
        check()
        if not right:
            await self._passwords.verify_unknown_user(password[:PASSWORD_BYTES_MAX], check)
            self._throttle.failed(keys, self._clock_s())
            raise errors.NotAuthenticated("wrong user name or password")
        self._throttle.succeeded(keys)

    def _check_throttle(self, keys: tuple[str, ...], *, known: bool | None = None) -> None:
        """Raise NotAuthenticated while a key has to wait.

        `known` says if the password is correct, where a check needs no hash. Other clients'
        failures at the same address do not delay a correct password. So a wrong password counts for
        its name even while the address has to wait; otherwise a client could try passwords until
        one is not delayed.
        """
        now, name = self._clock_s(), keys[:1]
        if self._throttle.wait_s(name if known else keys, now) > 0:
            if known is False and self._throttle.wait_s(name, now) <= 0:
                self._throttle.failed(name, now)
            raise errors.NotAuthenticated("too many failed logins: try again later")

    def _scram_keys(self, name: str, address: str) -> tuple[str, ...]:
        """Return the keys whose failures delay a SCRAM login.

        SCRAM proves the password too late for a check. So other clients' failures at the address do
        not count if the user has logged in from there before.
        """
        keys = _throttle_keys(name, address)
        return keys[:1] if self._throttle.has_let_in(keys) else keys

    # Changing. All raise StorageFull, StorageFailed.

    async def create(
        self,
        name: str,
        password: str | None,
        *,
        user_id: int | None = None,
        roles: Sequence[str] = (),
        is_active: bool = True,
        scram: Sequence[ScramKey] = (),
        permitted: Sequence[str] = (),
        grants: GrantChanges = tuple,
    ) -> tuple[UserMeta, int]:
        """Create a user, and return the user with the commit ticket.

        A user without a password has keys for SCRAM, tokens or a certificate. `user_id` must be
        free; the default is the next number. `permitted` is as in `UserMeta`. The changes of
        `grants` are in the user's own record. Raises UserExists, InvalidRequest, LimitExceeded, and
        the errors of `grants`.
        """
        _check(name, password)
        _check_no_role(name)
        password_hash, scram = "", list(scram)
        if password is not None:
            password_hash, scram = await self._passwords.hash(password)
        if self.find(name) or (user_id is not None and self.by_id(user_id)):
            raise errors.UserExists(f"user {name} already exists")
        if len(self._book) >= self._limits.users:
            raise errors.LimitExceeded(f"limit of {self._limits.users} users reached")
        user = UserMeta(
            user_id=self._book.next_user_id if user_id is None else user_id,
            name=name,
            password_hash=password_hash,
            created_us=self._now_us(),
            is_active=is_active,
            roles=list(roles),
            scram=scram,
            permitted=list(permitted),
        )
        # In this order the history has a single change: no user has the name of the grants before.
        return user, self._catalogue.change_users(*grants(), UserSet(user))

    async def set_password(self, user: UserMeta, password: str) -> int:
        """Give a user another password. Raises InvalidRequest, LimitExceeded, UserNotFound."""
        return await self.alter(user, password=password)

    async def change_scram_keys(
        self, name: str, keys: Sequence[ScramKey], removed: Container[str] = ()
    ) -> int:
        """Give a user these keys for SCRAM, made by the client, and remove the keys for the
        mechanisms `removed`, in a single change of the catalogue. Create the user if needed.

        With keys, the user's password and its keys are gone: else the former password would still
        log in by other means. Keys that were set so before stay, unless a key of their mechanism is
        given. Without keys, a password stays for other logins. Raises InvalidRequest,
        LimitExceeded.
        """
        user = self.find(name)
        if user is None:
            _, ticket = await self.create(name, None, scram=keys)
            return ticket
        former = [] if keys and user.password_hash else user.scram
        replaced = {key.mechanism for key in keys}
        left = [
            key for key in former if key.mechanism not in replaced and key.mechanism not in removed
        ]
        password_hash = "" if keys else user.password_hash
        return self._replace(user, password_hash=password_hash, scram=[*left, *keys])

    async def alter(
        self,
        user: UserMeta,
        *,
        name: str | None = None,
        password: str | None = None,
        is_active: bool | None = None,
        roles: Sequence[str] | None = None,
    ) -> int:
        """Change the given fields, all or none.

        Raises UserExists, UserNotFound, InvalidRequest, LimitExceeded.
        """
        changed: dict[str, object] = {}
        if password is not None:
            _check(user.name, password)
            changed["password_hash"], changed["scram"] = await self._passwords.hash(password)
        current = self._current(user)
        renamed = name is not None and name != current.name
        if name is not None and renamed:
            _check(name, None)
            _check_no_role(name)
            if self.find(name):
                raise errors.UserExists(f"user {name} already exists")
            changed["name"] = name
        if is_active is not None:
            changed["is_active"] = is_active
        if roles is not None:
            changed["roles"] = list(roles)
        moved = self._book.grants_of(current.name) if renamed else []  # Permissions go by name.
        # In this order the history has a single change of the user: neither the grants of the new
        # name before the user has the name, nor those of the old name afterwards, name a user.
        return self._catalogue.change_users(
            *(Granted(replace(grant, subject=name)) for grant in moved),
            UserSet(replace(current, **changed)),
            *map(Revoked, moved),
        )

    def set_permissions(
        self, user: UserMeta, permitted: Sequence[str], grants: GrantChanges
    ) -> int:
        """Change a user's permissions, all or none; `permitted` is as in `UserMeta`.

        Raises UserNotFound, and the errors of `grants`.
        """
        current, changes = self._current(user), list(grants())
        if list(permitted) != current.permitted:
            changes.append(UserSet(replace(current, permitted=list(permitted))))
        if not changes:
            return self._catalogue.ticket
        return self._catalogue.change_users(*changes)

    async def delete(self, user: UserMeta) -> int:
        """Remove a user with all tokens and permissions. Raises UserNotFound.

        A later user of that name starts without them.
        """
        current = self._current(user)
        revoked = map(Revoked, self._book.grants_of(current.name))
        return self._catalogue.change_users(UserGone(current.user_id), *revoked)

    async def create_token(
        self, user: UserMeta, name: str, expires_us: int | None
    ) -> tuple[str, int]:
        """Create an access token and return its text with the ticket. The text is not stored.

        Raises UserNotFound, UserExists if the user has a token of that name, LimitExceeded,
        InvalidRequest.
        """
        _check(name, None)
        current = self._current(user)
        if any(token.name == name for token in current.tokens):
            raise errors.UserExists(f"token {name} already exists")
        if len(current.tokens) >= self._limits.user_tokens:
            text = f"user {user.name} has {self._limits.user_tokens} tokens"
            raise errors.LimitExceeded(text)
        text = new_token()
        token_meta = TokenMeta(name, token_digest(text), self._now_us(), expires_us)
        return text, self._replace(current, tokens=[*current.tokens, token_meta])

    async def delete_token(self, user: UserMeta, name: str) -> int:
        """Remove an access token by name. Raises UserNotFound if user or token is unknown."""
        current = self._current(user)
        left = [token for token in current.tokens if token.name != name]
        if len(left) == len(current.tokens):
            raise errors.UserNotFound(f"user {user.name} has no token {name}")
        return self._replace(current, tokens=left)

    def _current(self, user: UserMeta) -> UserMeta:
        current = self._book.by_id(user.user_id)
        if current is None:
            raise errors.UserNotFound(f"no user {user.name}")
        return current

    def _replace(self, user: UserMeta, **changed: object) -> int:
        return self._set(replace(self._current(user), **changed))

    def _set(self, user: UserMeta) -> int:
        return self._catalogue.change_users(UserSet(user))


def principal_of(user: UserMeta) -> Principal:
    """Return the principal of a connection after a login as this user."""
    return Principal(user.name, frozenset(user.roles))


def _throttle_keys(name: str, address: str) -> tuple[str, str]:
    """Return the keys that count failures of a name and at an address.

    The keys are remembered, so a name is cut to the longest name that a user may have.
    """
    return f"name {name[:NAME_BYTES_MAX]}", f"address {address}"


def _active(user: UserMeta) -> UserMeta:
    if not user.is_active:
        raise errors.NotAuthenticated(f"user {user.name} is not active")
    return user


def _check(name: str, password: str | None) -> None:
    if not 0 < len(name.encode()) <= NAME_BYTES_MAX or not name.isprintable():
        raise errors.InvalidRequest(f"a name has 1 to {NAME_BYTES_MAX} bytes of printable text")
    if password is not None and not 0 < len(password.encode()) <= PASSWORD_BYTES_MAX:
        raise errors.InvalidRequest(f"a password has 1 to {PASSWORD_BYTES_MAX} bytes")


def _check_no_role(name: str) -> None:
    if name.startswith(ROLE_PREFIX):
        raise errors.InvalidRequest(
            f"user name {name!r} begins with {ROLE_PREFIX!r}, which is kept for roles"
        )
