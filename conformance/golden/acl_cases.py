"""Dialogues about ACLs: of a superuser, and of a user without rights."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from braidlog.protocols.kafka.wire.create_acls import AclCreation, CreateAclsRequest
from braidlog.protocols.kafka.wire.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from braidlog.protocols.kafka.wire.describe_acls import DescribeAclsRequest
from conformance.golden.login_cases import CARL, LoginDialogue, LoginStep, logged_in

ACL_VERSIONS: Final = range(1, 4)  # Kafka 4 serves no version 0.
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, GROUP, CLUSTER, TRANSACTION, TOKEN, USER = range(2, 8)
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = range(2, 9)
DESCRIBE_TOKENS: Final = 14
DENY, ALLOW = 2, 3
UNKNOWN, BEYOND = 0, 99
NOT_TEXT: Final = b"\xff"
USUAL: Final = {
    "resource_type": TOPIC,
    "resource_name": b"books",
    "resource_pattern_type": LITERAL,
    "principal": b"User:anna",
    "host": b"*",
    "operation": READ,
    "permission_type": ALLOW,
}
ANYTHING: Final = {
    "resource_type_filter": ANY,
    "resource_name_filter": None,
    "pattern_type_filter": ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}
# The ACLs that filters choose from.
PRESENT: Final[Sequence[dict[str, Any]]] = (
    {},
    {"operation": DESCRIBE, "principal": b"User:bert"},
    {"resource_name": b"bo", "resource_pattern_type": PREFIXED, "operation": WRITE},
    {"resource_name": b"*", "operation": ALL, "principal": b"User:root"},
    {"resource_type": GROUP, "resource_name": b"readers"},
    {"resource_type": CLUSTER, "resource_name": b"kafka-cluster", "operation": ALTER},
)
FILTERS: Final[Sequence[tuple[str, dict[str, Any]]]] = (
    ("all", {}),
    ("of topics", {"resource_type_filter": TOPIC}),
    ("of groups", {"resource_type_filter": GROUP}),
    ("of the cluster", {"resource_type_filter": CLUSTER}),
    ("of tokens", {"resource_type_filter": TOKEN}),
    ("of a name", {"resource_name_filter": b"books"}),
    ("of a literal name", {"resource_name_filter": b"books", "pattern_type_filter": LITERAL}),
    ("that match a name", {"resource_name_filter": b"books", "pattern_type_filter": MATCH}),
    ("of a prefix", {"resource_name_filter": b"bo", "pattern_type_filter": PREFIXED}),
    ("of prefixes", {"pattern_type_filter": PREFIXED}),
    ("of every name", {"resource_name_filter": b"*", "pattern_type_filter": LITERAL}),
    ("of an empty name", {"resource_name_filter": b""}),
    ("of another name", {"resource_name_filter": b"other"}),
    ("of a principal", {"principal_filter": b"User:anna"}),
    ("of another principal", {"principal_filter": b"User:nobody"}),
    ("of a principal without a kind", {"principal_filter": b"anna"}),
    ("of every host", {"host_filter": b"*"}),
    ("of another host", {"host_filter": b"10.0.0.1"}),
    ("of an operation", {"operation": READ}),
    ("of allowances", {"permission_type": ALLOW}),
    ("of denials", {"permission_type": DENY}),
    ("of an unknown type", {"resource_type_filter": UNKNOWN}),
    ("of a type beyond", {"resource_type_filter": BEYOND}),
    ("of an unknown form", {"pattern_type_filter": UNKNOWN}),
    ("of a form beyond", {"pattern_type_filter": BEYOND}),
    ("of an unknown operation", {"operation": UNKNOWN}),
    ("of an operation beyond", {"operation": BEYOND}),
    ("of an unknown permission", {"permission_type": UNKNOWN}),
    ("of a permission beyond", {"permission_type": BEYOND}),
    ("of a name that is no text", {"resource_name_filter": NOT_TEXT}),
)
BAD_CREATIONS: Final[Sequence[tuple[str, dict[str, Any]]]] = (
    ("of an unknown type", {"resource_type": UNKNOWN}),
    ("of any type", {"resource_type": ANY}),
    ("of a type beyond", {"resource_type": BEYOND}),
    ("of an unknown form", {"resource_pattern_type": UNKNOWN}),
    ("of any form", {"resource_pattern_type": ANY}),
    ("of a matching form", {"resource_pattern_type": MATCH}),
    ("of a form beyond", {"resource_pattern_type": BEYOND}),
    ("of an unknown operation", {"operation": UNKNOWN}),
    ("of any operation", {"operation": ANY}),
    ("of an operation beyond", {"operation": BEYOND}),
    ("of an unknown permission", {"permission_type": UNKNOWN}),
    ("of any permission", {"permission_type": ANY}),
    ("of a permission beyond", {"permission_type": BEYOND}),
    ("without a name", {"resource_name": b""}),
    ("of a principal without a kind", {"principal": b"anna"}),
    ("without a principal", {"principal": b""}),
    ("of a cluster by another name", {"resource_type": CLUSTER, "resource_name": b"other"}),
)
# Kafka stores these; permissions here cannot say them.
FOREIGN_CREATIONS: Final[Sequence[tuple[str, dict[str, Any]]]] = (
    ("that denies", {"permission_type": DENY}),
    ("without a host", {"host": b""}),
    ("of a principal without a name", {"principal": b"User:"}),
    ("of a name that is no text", {"resource_name": NOT_TEXT}),
    ("for a host", {"host": b"127.0.0.1"}),
    ("for everybody", {"principal": b"User:*"}),
    ("for another kind of principal", {"principal": b"Group:readers"}),
    ("of a transactional id", {"resource_type": TRANSACTION, "operation": WRITE}),
    ("of a token", {"resource_type": TOKEN, "operation": DESCRIBE}),
    ("of a user", {"resource_type": USER, "operation": DESCRIBE_TOKENS}),
    ("to write to a group", {"resource_type": GROUP, "operation": WRITE}),
    ("of a name with a star", {"resource_name": b"a*"}),
    (
        "of a prefixed cluster",
        {
            "resource_type": CLUSTER,
            "resource_name": b"kafka-cluster",
            "resource_pattern_type": PREFIXED,
        },
    ),
)


def _created(note: str, version: int, *acls: dict[str, Any]) -> LoginStep:
    creations = [AclCreation(**(USUAL | acl)) for acl in acls]
    return LoginStep(f"create {note}", version, CreateAclsRequest(creations=creations))


def _described(note: str, version: int, **fields: Any) -> LoginStep:
    return LoginStep(f"ACLs {note}", version, DescribeAclsRequest(**(ANYTHING | fields)))


def _deleted(note: str, version: int, *filters: dict[str, Any]) -> LoginStep:
    wanted = [DeleteAclsFilter(**(ANYTHING | fields)) for fields in filters]
    return LoginStep(f"delete {note}", version, DeleteAclsRequest(filters=wanted))


def _is_bad(fields: dict[str, Any]) -> bool:
    """Return True if Kafka may close the connection for a filter."""
    return any(value in (UNKNOWN, BEYOND, NOT_TEXT) for value in fields.values())


def _present(version: int) -> LoginDialogue:
    yield from logged_in(
        _described("of a new broker", version),
        _created("ACLs", version, *PRESENT),
        _created("an ACL again", version, {}),
        _created("an ACL twice", version, {}, {}),
        _created("nothing", version),
        *(_described(note, version, **fields) for note, fields in FILTERS if not _is_bad(fields)),
    )


def _refusals(version: int) -> Iterator[LoginDialogue]:
    """Yield requests that Kafka refuses, some by the end of the connection."""
    for note, fields in FILTERS:
        if _is_bad(fields):
            yield logged_in(_described(note, version, **fields))
            yield logged_in(_deleted(f"ACLs {note}", version, fields))
    for note, fields in BAD_CREATIONS:
        yield logged_in(_created(f"an ACL {note}", version, fields))
    good = {"resource_name": b"beside"}
    nameless = {"principal": b"anna"}
    yield logged_in(_created("a good ACL beside a bad ACL", version, nameless, good))
    yield logged_in(_described("after refusals", version))


def _deletions(version: int) -> LoginDialogue:
    literal = {"resource_name_filter": b"beside", "pattern_type_filter": LITERAL}
    of_topics = {"resource_type_filter": TOPIC, "pattern_type_filter": MATCH}
    overlapping = {**of_topics, "resource_name_filter": b"books"}
    yield from logged_in(
        _deleted("nothing", version),
        _deleted("an ACL of another name", version, {"resource_name_filter": b"other"}),
        _deleted("an ACL by its name", version, literal),
        _deleted("an ACL again", version, literal),
        _deleted("what two filters match", version, overlapping, {"operation": READ}),
        _described("after deletions", version),
        *(_created(f"an ACL {note}", version, fields) for note, fields in FOREIGN_CREATIONS),
        _deleted("ACLs of all kinds", version, {}),
    )


def _without_rights(version: int) -> LoginDialogue:
    yield from logged_in(
        _described("of a user without rights", version),
        _created("ACLs without rights", version, {}, {"principal": b"anna"}),
        _created("nothing without rights", version),
        _deleted("ACLs without rights", version, {}),
        user=CARL,
    )


def acl_dialogues() -> Iterator[LoginDialogue]:
    """Yield the dialogues about ACLs, in order; each leaves no ACL."""
    for version in ACL_VERSIONS:
        yield _present(version)
        yield from _refusals(version)
        yield _deletions(version)
        yield _without_rights(version)
