"""Objects in an S3-compatible store, or in a folder that several machines share, by obstore.

Every put is create-if-absent; retries are ours (`publisher.py`), so that the same bytes always have
the same name. Needs the extra `shared`. Keys come from the environment (`AWS_ACCESS_KEY_ID`,
`AWS_SECRET_ACCESS_KEY`, `AWS_REGION`) or from the machine's own credentials.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, PreconditionError
from obstore.store import LocalStore, S3Store

from braidlog.storage.errors import StoreUnanswered
from braidlog.storage.shared.layout import BadObject, Buffer
from braidlog.storage.shared.object_store import ObjectExists, ObjectMissing

# To connect; a put or get as a whole has `timeout_ms`.
CONNECT_S = 3


class StoreSetting(ValueError):
    """The address of the store cannot be used; the text says why."""


class ObstoreObjects:
    """The objects below a prefix."""

    def __init__(
        self,
        address: str,
        endpoint: str | None = None,
        *,
        timeout_ms: int,
        makes_folder: bool = True,
    ) -> None:
        """`address` is `s3://BUCKET/PREFIX` or `file:///FOLDER`, which is made if it is missing
        unless `makes_folder` is false; `endpoint` the URL of an S3 other than Amazon's.

        Raises StoreSetting.
        """
        self._store = open_store(address, endpoint, timeout_ms, makes_folder=makes_folder)

    def put(self, name: str, data: Buffer) -> None:
        """Make an object. Raises ObjectExists, StoreUnanswered."""
        try:
            obstore.put(self._store, name, bytes(data), mode="create", use_multipart=False)
        except (AlreadyExistsError, PreconditionError) as error:
            raise ObjectExists(name) from error
        except BaseError as error:
            raise _unanswered("put", name, error) from error

    def get(self, name: str, pos: int, size: int) -> bytes:
        """`size` bytes from `pos`. Raises ObjectMissing, BadObject, StoreUnanswered."""
        if size == 0:
            return b""
        try:
            data = bytes(obstore.get_range(self._store, name, start=pos, length=size))
        except (NotFoundError, FileNotFoundError) as error:
            raise ObjectMissing(f"object {name} is missing") from error
        except BaseError as error:
            if self.size(name) < pos + size:
                raise BadObject(f"object {name} is shorter than {pos + size} bytes") from error
            raise _unanswered("get", name, error) from error
        if len(data) != size:
            raise BadObject(f"object {name} is shorter than {pos + size} bytes")
        return data

    def size(self, name: str) -> int:
        """Bytes of an object. Raises ObjectMissing, StoreUnanswered."""
        try:
            return int(obstore.head(self._store, name)["size"])
        except (NotFoundError, FileNotFoundError) as error:
            raise ObjectMissing(f"object {name} is missing") from error
        except BaseError as error:
            raise _unanswered("head", name, error) from error

    def delete(self, name: str) -> None:
        """Remove an object. Raises StoreUnanswered."""
        try:
            obstore.delete(self._store, name)
        except (NotFoundError, FileNotFoundError):
            return
        except BaseError as error:
            raise _unanswered("delete", name, error) from error

    def names(self, prefix: str) -> Iterator[str]:
        """Names that begin with the prefix. Raises StoreUnanswered."""
        try:
            for page in obstore.list(self._store, prefix.rstrip("/")):
                yield from (str(meta["path"]) for meta in page)
        except BaseError as error:
            raise _unanswered("list", prefix, error) from error


def open_store(
    address: str, endpoint: str | None, timeout_ms: int, *, makes_folder: bool = True
) -> LocalStore | S3Store:
    """The store of that address. Raises StoreSetting."""
    parts = urlsplit(address)
    prefix = parts.path.strip("/") or None
    try:
        if parts.scheme == "file":
            return LocalStore(parts.path, mkdir=makes_folder)
        if parts.scheme == "s3" and parts.netloc:
            plain = endpoint is not None and endpoint.startswith("http:")
            return S3Store(
                parts.netloc,
                prefix=prefix,
                config={
                    "conditional_put": "etag",
                    "unsigned_payload": True,
                    **({"endpoint": endpoint} if endpoint else {}),
                },
                client_options={
                    "allow_http": plain,
                    "timeout": timedelta(milliseconds=timeout_ms),
                    "connect_timeout": timedelta(seconds=CONNECT_S),
                },
                retry_config={
                    "max_retries": 0,
                    "retry_timeout": timedelta(milliseconds=timeout_ms),
                },
            )
    except (BaseError, ValueError, OSError) as error:
        raise StoreSetting(f"{address}: {error}") from error
    raise StoreSetting(f"{address!r}: expected s3://BUCKET/PREFIX or file:///FOLDER")


def _unanswered(doing: str, name: str, error: Exception) -> StoreUnanswered:
    text = " ".join(str(error).split())
    return StoreUnanswered(f"cannot {doing} {name}: {text[:300]}")
