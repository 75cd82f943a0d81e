"""The api keys that are served, with their structures and versions."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from braidlog.protocols.kafka import wire
from braidlog.protocols.kafka.codec import KeptList
from braidlog.protocols.kafka.schema import Struct
from braidlog.protocols.kafka.versions import NEWEST
from braidlog.protocols.kafka.wire.api_versions import ApiVersion
from braidlog.protocols.kafka.wire.keys import ApiKey


@dataclass(frozen=True, slots=True)
class Api:
    """An API key: versions `version_min` to `version_max` are served."""

    version_min: int
    version_max: int
    request: type[Struct]
    reply: type[Struct]


def _api(key: ApiKey, newest: int) -> Api:
    """Return a served key."""
    module = import_module(f"{wire.__name__}.{key.name.lower()}")
    return Api(module.REQUEST.VERSIONS[0], newest, module.REQUEST, module.RESPONSE)


APIS: Mapping[int, Api] = {int(key): _api(key, newest) for key, newest in NEWEST.items()}

# The requests that are answered, by api key and version.
SERVED = frozenset(
    (key, version)
    for key, api in APIS.items()
    for version in range(api.version_min, api.version_max + 1)
)
# Those in which headers and structures end with tagged fields (KIP-482).
FLEXIBLE = frozenset(
    (key, version) for key, version in SERVED if version >= APIS[key].request.FLEXIBLE
)


def is_served(api_key: int, version: int) -> bool:
    """Return True if requests of that key and version are answered."""
    return (api_key, version) in SERVED


@cache
def ranges() -> KeptList[ApiVersion]:
    """Return the served versions of each key, for ApiVersions: the first request of a client."""
    return KeptList(
        ApiVersion(api_key=key, min_version=api.version_min, max_version=api.version_max)
        for key, api in sorted(APIS.items())
    )
