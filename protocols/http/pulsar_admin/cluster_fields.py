"""Fields that describe a cluster in Pulsar's admin API (Apache's `ClusterData`): read from bodies,
and shown as Apache shows them. Knows no broker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from braidlog.protocols.http.errors import BAD_BODY, RequestRefused

ClusterField = str | bool | list[str]
Fields = Mapping[str, ClusterField]

PEERS: Final = "peerClusterNames"
# Plain and with TLS: of the HTTP listener, and of the Pulsar listener. Apache's noun and example.
ADDRESSES: Final = {
    "serviceUrl": ("http", "service url", "http://pulsar.example.com:8080"),
    "serviceUrlTls": ("https", "service tls url", "https://pulsar.example.com:8443"),
    "brokerServiceUrl": ("pulsar", "broker service url", "pulsar://pulsar.example.com:6650"),
    "brokerServiceUrlTls": (
        "pulsar+ssl",
        "broker service tls url",
        "pulsar+ssl://pulsar.example.com:6651",
    ),
}
PROXY: Final = "proxyServiceUrl"
PROXY_SCHEMES: Final = ("pulsar+ssl", "pulsar")
PROXY_EXAMPLES: Final = (
    "pulsar+ssl://ats-proxy.example.com:4443 or pulsar://ats-proxy.example.com:4080"
)
PROTOCOL: Final = "proxyProtocol"
PROTOCOLS: Final = ("SNI",)
SECRETS: Final = (
    "authenticationParameters",
    "brokerClientTlsTrustStorePassword",
    "brokerClientTlsKeyStorePassword",
    "brokerClientSslFactoryPluginParams",
)
TEXTS: Final = (
    *ADDRESSES,
    PROXY,
    "authenticationPlugin",
    PROTOCOL,
    *SECRETS,
    "brokerClientTlsTrustStoreType",
    "brokerClientTlsTrustStore",
    "brokerClientTlsKeyStoreType",
    "brokerClientTlsKeyStore",
    "brokerClientTrustCertsFilePath",
    "brokerClientKeyFilePath",
    "brokerClientCertificateFilePath",
    "brokerClientSslFactoryPlugin",
    "listenerName",
)
SWITCHES: Final = (
    "brokerClientTlsEnabled",
    "tlsAllowInsecureConnection",
    "brokerClientTlsEnabledWithKeyStore",
)
MIGRATED: Final = "migrated"
MIGRATION: Final = MIGRATED  # Begins the names of stored fields about the clients' move.
MOVED_TO: Final = "migratedClusterUrl."
CLUSTER_NAMES_MAX: Final = 100  # In a body.
AUTHORITY = re.compile(r":/+[^\s/][^\s]*")


def read_cluster(body: object) -> dict[str, ClusterField]:
    """Return the fields in a body, without empty fields. Raises RequestRefused."""
    if body is None:
        raise RequestRefused(BAD_BODY, "cluster data is required")
    if not isinstance(body, dict):
        raise RequestRefused(BAD_BODY, "expected an object with the addresses of the cluster")
    fields: dict[str, ClusterField] = {}
    for name in TEXTS:
        value = _text(name, body.get(name))
        if value:
            fields[name] = value
    fields |= {name: True for name in SWITCHES if _switch(name, body.get(name))}
    peers = read_names(body.get(PEERS), PEERS)
    _check_addresses(fields)
    return fields if peers is None else {**fields, PEERS: peers}


def shown_cluster(fields: Fields, *, with_secrets: bool) -> dict[str, object]:
    """Return the fields as Apache shows them: switches always, other fields if they are set."""
    shown: dict[str, object] = dict.fromkeys(SWITCHES, False)
    hidden = () if with_secrets else SECRETS
    return shown | {
        name: value
        for name, value in fields.items()
        if not name.startswith(MIGRATION) and name not in hidden
    }


def read_migration(body: object, *, is_migrated: bool) -> dict[str, ClusterField]:
    """Return the fields about the move of a cluster's clients. Raises RequestRefused."""
    if not isinstance(body, dict):
        raise RequestRefused(BAD_BODY, "expected an object with the addresses of the new cluster")
    fields: dict[str, ClusterField] = {MIGRATED: is_migrated}
    for name in ADDRESSES:
        value = _text(name, body.get(name))
        if value:
            fields[MOVED_TO + name] = value
    return fields


def migration_of(fields: Fields) -> dict[str, object] | None:
    """Return the move of a cluster's clients as Apache shows it; None if it was never set."""
    if MIGRATED not in fields:
        return None
    urls: dict[str, object] = {
        name: fields[MOVED_TO + name] for name in ADDRESSES if MOVED_TO + name in fields
    }
    return {MIGRATED: fields[MIGRATED], MOVED_TO[:-1]: {**urls, "empty": not urls}}


def read_names(body: object, noun: str) -> list[str] | None:
    """Return the names of clusters in a list, each once; None if there is no list. Raises
    RequestRefused.
    """
    if body is None:
        return None
    if not isinstance(body, list) or not all(isinstance(name, str) for name in body):
        raise RequestRefused(BAD_BODY, f"{noun}: expected a list of names")
    if len(body) > CLUSTER_NAMES_MAX:
        raise RequestRefused(
            BAD_BODY, f"{noun}: {len(body)} names, expected {CLUSTER_NAMES_MAX} at most"
        )
    return [*dict.fromkeys(body)]


def _check_addresses(fields: Fields) -> None:
    for name, (scheme, noun, example) in ADDRESSES.items():
        if name in fields and not _is_url(fields[name], (scheme,)):
            raise RequestRefused(BAD_BODY, f"Illegal {noun}, example: {example}")
    if PROXY in fields and not _is_url(fields[PROXY], PROXY_SCHEMES):
        raise RequestRefused(BAD_BODY, f"Illegal proxy service url, example: {PROXY_EXAMPLES}")
    if PROTOCOL in fields and fields[PROTOCOL] not in PROTOCOLS:
        raise RequestRefused(BAD_BODY, f"{PROTOCOL}: expected {', '.join(PROTOCOLS)}")


def _is_url(value: ClusterField, schemes: Sequence[str]) -> bool:
    scheme, colon, rest = str(value).partition(":")
    return scheme in schemes and AUTHORITY.fullmatch(colon + rest) is not None


def _text(name: str, value: object) -> str:
    """Return a field's text; Apache's JSON library takes numbers and switches for texts."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float | str):
        return str(value)
    if value is not None:
        raise RequestRefused(BAD_BODY, f"{name}: expected a text")
    return ""


def _switch(name: str, value: object) -> bool:
    if isinstance(value, str) and value.lower() in ("", "true", "false"):
        return value.lower() == "true"
    if value is not None and not isinstance(value, bool | int):
        raise RequestRefused(BAD_BODY, f"{name}: expected true or false")
    return bool(value)
