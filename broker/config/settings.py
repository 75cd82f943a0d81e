"""Settings: a TOML file, then the environment, then flags; later sources win.

`log.segment_bytes` in the file is `BRAIDLOG_LOG__SEGMENT_BYTES` in the environment and `--set
log.segment_bytes=...` as a flag. An unknown name or a bad value is a `ConfigError`: a line that
names the source of the setting. Knows no adapter's own options.
"""

from __future__ import annotations

import ipaddress
import os
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from braidlog.broker.config.topics import TopicsConfig
from braidlog.broker.config.units import parse_bytes, parse_seconds
from braidlog.broker.config.wording import SETTING_NOUNS, explain, fault_of, nearest_name
from braidlog.broker.limits import OUTPUT_BYTES_ALL_MAX, RECEIVE_BYTES_ALL_MAX

ENV_PREFIX = "BRAIDLOG_"
# Variables that are no settings: the command line's, a secret, and two switches for tests.
_OTHERS = "CONFIG|URL|TOKEN|USER|PASSWORD|CA_FILE|CONTEXT|CONTEXTS|CLUSTER_SECRET|PURE|PLAIN_TRIO"
ENV_OTHERS = frozenset(ENV_PREFIX + name for name in _OTHERS.split("|"))
FILES = ("braidlog.toml", "~/.config/braidlog/braidlog.toml", "/etc/braidlog/braidlog.toml")
OFF = "off"
FIRST_ADMIN = "admin"

Positive = Annotated[int, msgspec.Meta(ge=1)]
T = TypeVar("T")


class ConfigError(Exception):
    """A setting that cannot be used; the text is a line for the operator."""


class LogConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Defaults of every topic's log. Times in milliseconds; `none` means no retention limit."""

    segment_bytes: Annotated[int, msgspec.Meta(ge=64 * 1024, le=2**40)] = 2**30
    segment_ms: Positive = 7 * 86_400_000
    index_interval_bytes: Annotated[int, msgspec.Meta(ge=512)] = 16 * 1024
    durability: Literal["synced", "written"] = "synced"
    flush_interval_ms: Annotated[int, msgspec.Meta(ge=1, le=3_600_000)] = 250
    retention_bytes: Positive | None = None
    retention_ms: Positive | None = None
    # Interval of retention checks: a fifth of Kafka's default.
    retention_check_ms: Annotated[int, msgspec.Meta(ge=10, le=86_400_000)] = 60_000
    # Interval of compaction checks: Kafka's log.cleaner.backoff.ms.
    compaction_check_ms: Annotated[int, msgspec.Meta(ge=10, le=86_400_000)] = 15_000
    # Replacement for a body that cannot be opened for a reader of another protocol, and for a
    # record that the reader's protocol cannot carry (docs/mapping.md).
    unreadable_records: Literal["refuse", "skip", "raw"] = "refuse"
    uncarried_records: Literal["leave_out", "mark"] = "leave_out"


class MemoryConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Memory for received and sent data, all connections together."""

    input_bytes: Annotated[int, msgspec.Meta(ge=8 * 2**20)] = RECEIVE_BYTES_ALL_MAX
    output_bytes: Annotated[int, msgspec.Meta(ge=8 * 2**20)] = OUTPUT_BYTES_ALL_MAX


class PrincipalLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits of a principal, all its connections together; `none` is no limit."""

    connections: Positive | None = None
    requests_per_s: Positive | None = None
    bytes_per_s: Positive | None = None  # both directions
    topics_per_hour: Positive | None = None

    @property
    def has_any(self) -> bool:
        """True if anything is limited."""
        return any(getattr(self, field) is not None for field in self.__struct_fields__)


class AccessConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Login of clients (docs/security.md). Keys and secrets are read at the start, from
    files only.
    """

    # True: clients must log in, and may do only operations granted to them.
    required: bool = False
    # Users with all permissions; `admin` is created at the first start that needs a user.
    superusers: tuple[str, ...] = (FIRST_ADMIN,)
    token_secret_file: str | None = None  # Signed tokens: the secret of HS256,
    token_public_key_file: str | None = None  # or the public key of RS256 or ES256.
    token_audience: str | None = None
    token_claim: str = "sub"  # The claim that holds the user's name.
    # Back-off of names and addresses after failed logins. Off only for tests with many failures.
    slow_down: bool = True
    # With `required`: log of operations by user, as JSON lines. The default file is `audit.jsonl`
    # in `data_dir`.
    audit: bool = True
    audit_file: str | None = None
    limits: PrincipalLimits = PrincipalLimits()
    # By user name, in place of `limits`.
    user_limits: Mapping[str, PrincipalLimits] = msgspec.field(default_factory=dict)


class StorageConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Storage of records and positions: in `data_dir`, or in the shared store of a cluster."""

    mode: Literal["local", "shared"] = "local"


class SharedConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The shared store (docs/cluster.md), for `storage.mode` shared. Times in milliseconds."""

    # PostgreSQL, as libpq writes the address: postgresql://user@host/name
    database: str | None = None
    store: str | None = None  # s3://BUCKET/PREFIX, or file:///FOLDER on a disk that brokers share
    endpoint: str | None = None  # of an S3 that is not Amazon's
    round_ms: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 100
    round_bytes: Annotated[int, msgspec.Meta(ge=64 * 1024, le=2**30)] = 4 * 2**20
    put_timeout_ms: Annotated[int, msgspec.Meta(ge=100, le=600_000)] = 10_000
    pack_ms: Annotated[int, msgspec.Meta(ge=100, le=86_400_000)] = 60_000
    pack_bytes: Annotated[int, msgspec.Meta(ge=2**20, le=2**32)] = 64 * 2**20
    unpublished_bytes_max: Annotated[int, msgspec.Meta(ge=2**20)] = 256 * 2**20
    cache_bytes: Annotated[int, msgspec.Meta(ge=64 * 2**20)] = 10 * 2**30
    delete_after_ms: Annotated[int, msgspec.Meta(ge=0)] = 3_600_000


class ClusterConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """This broker as a member of a cluster (docs/cluster.md), for `storage.mode` shared."""

    node_id: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 1
    listen: str = "127.0.0.1:0"  # for the other brokers; port 0: any free port
    advertised: str | None = None  # address for the other brokers, if not the listen address
    secret_file: str | None = None  # of the brokers; default: the secret in the database
    lease_ms: Annotated[int, msgspec.Meta(ge=500, le=600_000)] = 5_000
    beat_ms: Annotated[int, msgspec.Meta(ge=50, le=60_000)] = 1_000
    join_ms: Annotated[int, msgspec.Meta(ge=0, le=3_600_000)] = 30_000
    stall_ms: Annotated[int, msgspec.Meta(ge=1_000)] = 30_000
    serve_without_beat_ms: Annotated[int, msgspec.Meta(ge=1_000)] = 30_000


class ShutdownConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Shutdown of the broker."""

    grace_s: Annotated[float, msgspec.Meta(ge=0)] = 25.0  # below the 30 s that supervisors wait


class TlsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """TLS of a listener: files in PEM, read again on SIGHUP."""

    certificate_file: str  # followed by the certificates of its signers
    key_file: str | None = None  # None: in the certificate's file
    client_ca_file: str | None = None  # the CA of client certificates
    client_certificates: Literal["none", "optional", "required"] = "none"


class ListenerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A listener. `options` are the settings of its adapter alone."""

    name: str
    protocol: str
    listen: str | None = None  # `host:port`, "off", or None for the adapter's default address
    advertised: tuple[str, int] | None = None
    insecure: bool = False  # accepts other machines without TLS or login
    tls: TlsConfig | None = None
    principal: str | None = None  # user of all its clients, if the protocol has no login
    options: Mapping[str, object] = msgspec.field(default_factory=dict)


NOWHERE = "settings"


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All settings, checked. `origins` names the source of each given setting."""

    data_dir: str = "data"
    log: LogConfig = LogConfig()
    topics: TopicsConfig = TopicsConfig()
    memory: MemoryConfig = MemoryConfig()
    access: AccessConfig = AccessConfig()
    shutdown: ShutdownConfig = ShutdownConfig()
    storage: StorageConfig = StorageConfig()
    shared: SharedConfig = SharedConfig()
    cluster: ClusterConfig = ClusterConfig()
    # A turn of the event loop with more processor time than this is logged with its task's name.
    # The measurement costs two microseconds a turn; `none` measures nothing.
    loop_turn_log_ms: Annotated[float, msgspec.Meta(ge=1)] | None = 100.0
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "json", "text"] = "auto"
    listeners: Mapping[str, ListenerConfig] = msgspec.field(default_factory=dict)
    origins: Mapping[str, str] = msgspec.field(default_factory=dict)

    def listener(self, name: str) -> ListenerConfig:
        """Return the settings of the listener of that name, or the defaults."""
        return self.listeners.get(name) or ListenerConfig(name=name, protocol=name)

    def origin(self, dotted: str) -> str:
        """Return the source of a setting, or of a group's first setting; else the
        setting's name.
        """
        source = _origin(dotted, self.origins)
        return dotted if source == NOWHERE else source


class _Listener(msgspec.Struct, frozen=True, kw_only=True):
    listen: str | None = None
    advertised: str | None = None
    protocol: str | None = None
    insecure: bool = False
    tls: TlsConfig | None = None
    principal: str | None = None


def load(
    *,
    file: str | None = None,
    environment: Mapping[str, str] = os.environ,
    flags: Sequence[tuple[str, str, str]] = (),
) -> Config:
    """Read and check all settings. Raises ConfigError.

    `flags` are (setting, value, text on the command line), in order.
    """
    settings = _Settings()
    path = (
        file
        or environment.get("BRAIDLOG_CONFIG")
        or next(filter(os.path.isfile, map(os.path.expanduser, FILES)), None)
    )
    if path is not None:
        settings.add_tree(_read_file(path), path)
    for name, value in environment.items():
        if name.startswith(ENV_PREFIX) and name not in ENV_OTHERS:
            key = name.removeprefix(ENV_PREFIX).lower().replace("__", ".")
            settings.add(key, value, f"environment {name}")
    for key, value, written in flags:
        settings.add(key, value, written)
    listeners = settings.tree.pop("listeners", {})
    if "origins" in settings.tree:  # a field of Config that is not a setting
        raise ConfigError(f"{settings.origins['origins']}: origins: unknown setting")
    config = decode(settings.tree, Config, settings.origins)
    if config.storage.mode == "shared":
        config = _for_shared_store(config, settings.origins)
    return msgspec.structs.replace(
        config, listeners=_listeners(listeners, settings.origins), origins=settings.origins
    )


# Segments of the shared store are uploaded whole, so they are smaller and end after a day.
SHARED_LOG_DEFAULTS: Mapping[str, int] = {"segment_bytes": 128 * 2**20, "segment_ms": 86_400_000}


def _for_shared_store(config: Config, origins: Mapping[str, str]) -> Config:
    """Check the settings for the shared store and set its own defaults. Raises ConfigError."""
    where = _origin("storage.mode", origins)
    for name in ("database", "store"):
        if getattr(config.shared, name) is None:
            raise ConfigError(f"{where}: storage.mode shared needs shared.{name}, which is not set")
    if config.log.durability != "synced":
        where = _origin("log.durability", origins)
        raise ConfigError(f"{where}: log.durability: only `synced` with storage.mode shared")
    if config.cluster.beat_ms * 3 > config.cluster.lease_ms:
        where = _origin("cluster", origins)
        raise ConfigError(f"{where}: cluster.lease_ms: is less than three times cluster.beat_ms")
    mine = {key: n for key, n in SHARED_LOG_DEFAULTS.items() if f"log.{key}" not in origins}
    return msgspec.structs.replace(config, log=msgspec.structs.replace(config.log, **mine))


def decode(
    tree: Mapping[str, object], into: type[T], origins: Mapping[str, str], at: str = ""
) -> T:
    """Convert plain values to a checked `into`; `at` is the dotted place of `tree` in the settings.

    Raises ConfigError. Fields named `..._bytes` take sizes, `..._ms` and `..._s` times, and text is
    converted to numbers and booleans.
    """
    try:
        return msgspec.convert(_with_units(tree, into), into, strict=False)
    except msgspec.ValidationError as error:
        fault = fault_of(error, into, SETTING_NOUNS)
        dotted = ".".join(filter(None, (at, fault.place, fault.unknown)))
        text = fault.reason
        if fault.unknown:
            near = nearest_name(fault, into)
            meant = f", did you mean {dotted.removesuffix(fault.unknown)}{near}?" if near else ""
            text = f"unknown setting{meant}"
        where = _origin(dotted.partition("[")[0], origins)  # Of a list: `name[0]`.
        raise ConfigError(f"{where}: {dotted}: {text}") from None
    except _BadValue as error:
        dotted = f"{at}.{error.key}".strip(".")
        raise ConfigError(f"{_origin(dotted, origins)}: {dotted}: {error}") from None


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of `127.0.0.1:9092`, `[::1]:9092` or `localhost:9092`. Raises
    ValueError.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(
            f"{text!r} is not an address: give HOST:PORT, with port 0 for any free port"
        )
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach a listener on the host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _BadValue(ValueError):
    def __init__(self, key: str, reason: str) -> None:
        super().__init__(reason)
        self.key = key


class _Settings:
    """Settings from all sources: the merged tree, and the source of each leaf."""

    def __init__(self) -> None:
        self.tree: dict[str, Any] = {}
        self.origins: dict[str, str] = {}

    def add_tree(self, tree: Mapping[str, object], origin: str, at: str = "") -> None:
        for key, value in tree.items():
            dotted = f"{at}.{key}".strip(".")
            if isinstance(value, dict):
                self.add_tree(value, origin, dotted)
            else:
                self.add(dotted, value, origin)

    def add(self, dotted: str, value: object, origin: str) -> None:
        *parents, key = dotted.split(".")
        node = self.tree
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                raise ConfigError(f"{origin}: {dotted}: {parent!r} is not a group of settings")
        if not key or isinstance(node.get(key), dict):
            raise ConfigError(f"{origin}: {dotted}: names a group of settings, not one")
        node[key] = value
        self.origins[dotted] = origin


def _read_file(path: str) -> dict[str, object]:
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: {explain(error)}") from None


def _origin(dotted: str, origins: Mapping[str, str]) -> str:
    """Return the source of a setting, or of a group's first setting."""
    inside = (key for key in origins if key == dotted or key.startswith(f"{dotted}."))
    return origins[key] if (key := next(inside, None)) is not None else NOWHERE


def _listeners(tree: object, origins: Mapping[str, str]) -> dict[str, ListenerConfig]:
    if not isinstance(tree, dict):
        where = _origin("listeners", origins)
        raise ConfigError(f"{where}: listeners: is a group of settings, not one")
    known = _Listener.__struct_fields__
    listeners = {}
    for name, options in tree.items():
        at = f"listeners.{name}"
        if not isinstance(options, dict):
            raise ConfigError(f"{_origin(at, origins)}: {at}: is a group of settings, not one")
        own = {key: value for key, value in options.items() if key in known}
        common = decode(own, _Listener, origins, at)
        if common.listen is not None and common.listen != OFF:
            _checked_address(common.listen, f"{at}.listen", origins)
        advertised = None
        if common.advertised is not None:
            advertised = _checked_address(common.advertised, f"{at}.advertised", origins)
        listeners[name] = ListenerConfig(
            name=name,
            protocol=common.protocol or name,
            listen=common.listen,
            advertised=advertised,
            insecure=common.insecure,
            tls=common.tls,
            principal=common.principal,
            options={key: value for key, value in options.items() if key not in known},
        )
    return listeners


def _checked_address(text: str, dotted: str, origins: Mapping[str, str]) -> tuple[str, int]:
    try:
        return parse_address(text)
    except ValueError as error:
        raise ConfigError(f"{_origin(dotted, origins)}: {dotted}: {error}") from None


def _with_units(tree: Mapping[str, object], into: type) -> dict[str, object]:
    """Return the tree with sizes, times and `none` converted, by the fields' names and types."""
    hints = typing.get_type_hints(into, include_extras=True)
    plain: dict[str, object] = {}
    for key, value in tree.items():
        hint = hints.get(key)
        if isinstance(value, dict) and isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            plain[key] = _group_with_units(key, value, hint)
        elif isinstance(value, dict) and (inner := _struct_of_each(hint)) is not None:
            plain[key] = {
                name: _group_with_units(f"{key}.{name}", group, inner)
                for name, group in value.items()
            }
        elif isinstance(value, str):
            try:
                plain[key] = plain_value(key, value, hint)
            except ValueError as error:
                raise _BadValue(key, str(error)) from None
        else:
            plain[key] = value
    return plain


def _group_with_units(key: str, value: object, hint: type) -> object:
    """Convert the nested group of settings at `key`."""
    if not isinstance(value, dict):
        return value
    try:
        return _with_units(value, hint)
    except _BadValue as error:
        raise _BadValue(f"{key}.{error.key}", str(error)) from None


def _struct_of_each(hint: object) -> type | None:
    """Return the type of a mapping's values, if they are groups of settings."""
    values = typing.get_args(hint)[1:] if typing.get_origin(hint) is Mapping else ()
    return next((kind for kind in values if issubclass(kind, msgspec.Struct)), None)


def plain_value(key: str, text: str, hint: object) -> object:
    """Convert a setting's text by its name and type: sizes and times to numbers, lists split at
    their commas, `none` to None if allowed; other text stays. Raises ValueError.
    """
    if typing.get_origin(hint) is tuple:
        parts = [part.strip() for part in text.split(",") if part.strip()]
        return [plain_value(key, part, typing.get_args(hint)[0]) for part in parts]
    kinds = set(_alternatives(hint))
    if type(None) in kinds and text.strip().lower() in ("none", ""):
        return None
    words = (kind for kind in kinds if typing.get_origin(kind) is Literal)
    choices = [choice for kind in words for choice in typing.get_args(kind)]
    if choices and text not in choices:
        raise ValueError(f"{text!r} is none of {', '.join(choices)}")
    if not kinds & {int, float}:
        return text
    if "bytes" in key.split("_"):
        return parse_bytes(text)
    unit = key.rpartition("_")[2]
    if unit in ("ms", "s") and "per" not in key.split("_"):
        seconds = parse_seconds(text, unit=unit)
        number = seconds * 1000 if unit == "ms" else seconds
        return number if float in kinds else round(number)
    return text


def _alternatives(hint: object) -> Iterator[object]:
    """Iterate over the plain types of an annotation: `Annotated[int, ...] | None` gives int and
    NoneType.
    """
    origin = typing.get_origin(hint)
    if origin is Annotated:
        yield from _alternatives(typing.get_args(hint)[0])
    elif origin in (typing.Union, types.UnionType):
        for inner in typing.get_args(hint):
            yield from _alternatives(inner)
    else:
        yield hint
