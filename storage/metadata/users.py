"""Users and permissions in memory, and the application of journal changes to them.

Part of the catalogue, which writes the changes. Knows no secret, no rule and no clock.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from braidlog.storage.metadata.user_records import (
    Grant,
    Granted,
    Revoked,
    UserChange,
    UserGone,
    UserMeta,
    UsersCounted,
    UserSet,
)

# The superuser of the configuration; Iggy's clients expect this number.
ROOT_USER_ID: Final = 1


class UserBook:
    """All users and permissions. Callers must not change the returned metas."""

    def __init__(self) -> None:
        self.grants: dict[Grant, None] = {}  # In the order of granting.
        self.version = 0  # Rises with each change.
        self.grants_version = 0  # Rises with each change of `grants`.
        self._grants_of: dict[str, dict[Grant, None]] = {}
        self.next_user_id = ROOT_USER_ID + 1
        self._by_id: dict[int, UserMeta] = {}
        self._by_name: dict[str, UserMeta] = {}
        self._by_token: dict[bytes, UserMeta] = {}
        self._deactivations: dict[int, int] = {}  # By user number; only those of this process.

    def __len__(self) -> int:
        return len(self._by_id)

    def all(self) -> list[UserMeta]:
        """Return every user, by number."""
        return [self._by_id[user_id] for user_id in sorted(self._by_id)]

    def find(self, name: str) -> UserMeta | None:
        """Return the user of that name."""
        return self._by_name.get(name)

    def by_id(self, user_id: int) -> UserMeta | None:
        """Return the user with that number."""
        return self._by_id.get(user_id)

    def by_token(self, digest: bytes) -> UserMeta | None:
        """Return the owner of the token with that digest."""
        return self._by_token.get(digest)

    def deactivations(self, user_id: int) -> int:
        """Return the number of deactivations of a user: clients connected before a deactivation
        must log in again, even if no check ran while the user was inactive.
        """
        return self._deactivations.get(user_id, 0)

    def grants_of(self, subject: str) -> list[Grant]:
        """Return the grants of a user or role, in the order of granting."""
        return list(self._grants_of.get(subject, ()))

    def apply(self, change: UserChange) -> None:
        """Apply a change, live or replayed. Raises KeyError if the change names
        something missing.
        """
        APPLY[type(change)](self, change)
        self.version += 1

    def clear(self) -> None:
        """Empty the book before `apply` fills it again; every holder of the book sees
        the change.
        """
        for table in (self.grants, self._grants_of, self._by_id, self._by_name, self._by_token):
            table.clear()
        self.next_user_id = ROOT_USER_ID + 1
        self.version += 1
        self.grants_version += 1

    def changes(self) -> Iterator[UserChange]:
        """Yield everything as changes, for a snapshot."""
        yield UsersCounted(self.next_user_id)
        yield from map(UserSet, self._by_id.values())
        yield from map(Granted, self.grants)

    def _apply_user(self, change: UserSet) -> None:
        meta = change.meta
        old = self._by_id.get(meta.user_id)
        if old is not None:
            self._forget(old)
        if not meta.is_active and (old is None or old.is_active):
            self._deactivations[meta.user_id] = self.deactivations(meta.user_id) + 1
        self._by_id[meta.user_id] = self._by_name[meta.name] = meta
        self._by_token.update((token.digest, meta) for token in meta.tokens)
        self.next_user_id = max(self.next_user_id, meta.user_id + 1)

    def _apply_user_gone(self, change: UserGone) -> None:
        self._forget(self._by_id.pop(change.user_id))
        self._deactivations.pop(change.user_id, None)

    def _apply_counted(self, change: UsersCounted) -> None:
        self.next_user_id = change.next_user_id

    def _apply_granted(self, change: Granted) -> None:
        self.grants[change.grant] = None
        self._grants_of.setdefault(change.grant.subject, {})[change.grant] = None
        self.grants_version += 1

    def _apply_revoked(self, change: Revoked) -> None:
        del self.grants[change.grant]
        del self._grants_of[change.grant.subject][change.grant]
        if not self._grants_of[change.grant.subject]:
            del self._grants_of[change.grant.subject]
        self.grants_version += 1

    def _forget(self, meta: UserMeta) -> None:
        del self._by_name[meta.name]
        for token in meta.tokens:
            del self._by_token[token.digest]


APPLY: Final[dict[type, Callable[[UserBook, Any], None]]] = {
    UserSet: UserBook._apply_user,
    UserGone: UserBook._apply_user_gone,
    UsersCounted: UserBook._apply_counted,
    Granted: UserBook._apply_granted,
    Revoked: UserBook._apply_revoked,
}
