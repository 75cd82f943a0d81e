"""Bodies of requests that create a namespace: content that would be dropped is refused.

Admin clients send every policy with its default. Knows no broker.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from braidlog.protocols.http.errors import BAD_BODY, NOT_SUPPORTED, RequestRefused

CLUSTER: Final = "standalone"
WITHOUT_EFFECT: Final = ("lastUpdatedTimestamp",)  # Apache sets the time.
# Defaults of the Policies of Java's and Go's clients beside absent, empty, false and zero values.
DEFAULTS: Final = {
    "clusterThatCanDeleteNamespace": (CLUSTER,),
    "subscription_auth_mode": ("None",),
    "offload_threshold": (-1,),
    "offload_threshold_in_seconds": (-1,),
    "schema_auto_update_compatibility_strategy": ("Full", "FULL"),
    "schema_compatibility_strategy": ("UNDEFINED", "Full", "FULL"),
}
# False differs from the absent value of these policies.
SWITCHES: Final = ("deduplicationEnabled", "is_allow_auto_update_schema")


def given_policies(body: object, served: Collection[str]) -> dict[str, object]:
    """Return the policies in a body that creates a namespace, without defaults. Raises
    RequestRefused for a policy outside `served`.
    """
    if body is None:
        return {}
    if not isinstance(body, dict):
        raise RequestRefused(BAD_BODY, "expected the policies of the namespace as an object")
    stated = {name: value for name, value in body.items() if not _is_default(name, value)}
    dropped = stated.keys() - served
    if dropped:
        names = ", ".join(sorted(name[:60] for name in dropped)[:5])
        raise RequestRefused(NOT_SUPPORTED, f"a namespace is not created with {names} here")
    return stated


def _is_default(name: str, value: object) -> bool:
    if name in WITHOUT_EFFECT or value in DEFAULTS.get(name, ()):
        return True
    if isinstance(value, dict):  # Java sends the maps of `auth_policies`, all empty.
        return all(inner in ({}, [], None) for inner in value.values())
    return value is None or (name not in SWITCHES and not value)
