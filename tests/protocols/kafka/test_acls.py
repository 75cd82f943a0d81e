"""Requests for ACLs change the permissions that every protocol checks."""

import pytest

from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import Action, Principal, Resource
from braidlog.broker.access.rules import Grant
from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.wire.create_acls import AclCreation, CreateAclsRequest
from braidlog.protocols.kafka.wire.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from braidlog.protocols.kafka.wire.describe_acls import DescribeAclsRequest
from tests.broker.access.rules import Nothing
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.kafka.talk import FOO_NAME

ANNA = Principal("anna")
SECURITY_DISABLED, INVALID_REQUEST, NOT_AUTHORIZED = 54, 42, 31


@pytest.fixture
async def client(broker: Broker, client: RawKafka) -> RawKafka:
    """Yield a connection of a client that may only administer."""
    broker.access = Access(Nothing(Action.ADMINISTER))
    return client


def creation(kind: int, name: bytes, operation: int, permission: int = 3) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=3,
        principal=b"User:anna",
        host=b"*",
        operation=operation,
        permission_type=permission,
    )


def anything(kind: type, **fields: object) -> object:
    about = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return kind(**(about | fields))


async def creation_codes(client: RawKafka, *creations: AclCreation, version: int = 3) -> list[int]:
    reply = await client.call_whole(CreateAclsRequest(creations=creations), version)
    return [result.error_code for result in reply.results]


@pytest.mark.parametrize("version", range(1, 4))
async def test_an_acl_is_a_permission_until_it_is_deleted(
    broker: Broker, client: RawKafka, version: int
) -> None:
    topic, group = Resource.of_topic(FOO_NAME), Resource.of_group(b"g", FOO_NAME)
    sent = [creation(2, b"foo", 3), creation(3, b"g", 3), creation(2, b"foo", 3, permission=2)]
    assert await creation_codes(client, *sent, version=version) == [0, 0, INVALID_REQUEST]
    assert broker.permissions.list("anna") == [
        Grant("anna", "consume", "public/default/foo@"),
        Grant("anna", "consume", "public/default/@g"),
    ]
    for resource in (topic, group):
        assert broker.permissions.allows(ANNA, Action.CONSUME, resource)
    shown = await client.call_whole(anything(DescribeAclsRequest), version)
    assert [
        (resource.resource_type, resource.resource_name, resource.pattern_type, len(resource.acls))
        for resource in shown.resources
    ] == [(2, b"foo", 3, 1), (3, b"g", 3, 1)]
    assert (shown.resources[0].acls[0].principal, shown.resources[0].acls[0].operation) == (
        b"User:anna",
        3,
    )
    wanted = anything(DeleteAclsFilter, resource_type_filter=3)
    reply = await client.call_whole(DeleteAclsRequest(filters=[wanted]), version)
    (result,) = reply.filter_results
    assert [(acl.resource_name, acl.operation) for acl in result.matching_acls] == [(b"g", 3)]
    assert not broker.permissions.allows(ANNA, Action.CONSUME, group)
    assert broker.permissions.allows(ANNA, Action.CONSUME, topic)


async def test_a_permission_of_the_command_line_is_shown_and_deleted(
    broker: Broker, client: RawKafka
) -> None:
    await broker.permissions.grant(Grant("role:ops", "admin", "public/default/foo"))
    shown = await client.call_whole(anything(DescribeAclsRequest, principal_filter=b"Role:ops"), 3)
    assert [
        (resource.resource_name, resource.acls[0].operation) for resource in shown.resources
    ] == [(b"foo", 2)]
    wanted = anything(DeleteAclsFilter, resource_name_filter=b"foo")
    await client.call_whole(DeleteAclsRequest(filters=[wanted]), 3)
    assert broker.permissions.list() == []


async def test_an_acl_is_in_the_result_of_each_filter_that_fits(
    broker: Broker, client: RawKafka
) -> None:
    assert await creation_codes(client, creation(2, b"foo", 3)) == [0]
    filters = [anything(DeleteAclsFilter), anything(DeleteAclsFilter, resource_type_filter=2)]
    reply = await client.call_whole(DeleteAclsRequest(filters=filters), 3)
    assert [len(result.matching_acls) for result in reply.filter_results] == [1, 1]
    assert broker.permissions.list() == []


async def test_unknown_values_of_a_filter_are_refused(client: RawKafka) -> None:
    for fields, described, deleted in (
        ({"resource_type_filter": 0}, INVALID_REQUEST, INVALID_REQUEST),
        ({"operation": 99}, 0, INVALID_REQUEST),
        ({"principal_filter": b"\xff"}, 0, 0),
    ):
        shown = await client.call_whole(anything(DescribeAclsRequest, **fields), 3)
        assert (shown.error_code, shown.resources) == (described, [])
        filters = [anything(DeleteAclsFilter, **fields)]
        reply = await client.call_whole(DeleteAclsRequest(filters=filters), 3)
        assert reply.filter_results[0].error_code == deleted
        assert reply.filter_results[0].matching_acls == []
    assert await creation_codes(client, creation(2, b"\xff", 3)) == [INVALID_REQUEST]


@pytest.mark.parametrize(
    ("access", "code"), [(Access(), SECURITY_DISABLED), (Access(Nothing()), NOT_AUTHORIZED)]
)
async def test_acls_need_access_control_and_the_right(
    broker: Broker, client: RawKafka, access: Access, code: int
) -> None:
    broker.access = access
    assert await creation_codes(client, creation(2, b"foo", 3)) == [code]
    shown = await client.call_whole(anything(DescribeAclsRequest), 3)
    assert (shown.error_code, shown.resources) == (code, [])
    filters = [anything(DeleteAclsFilter)]
    reply = await client.call_whole(DeleteAclsRequest(filters=filters), 3)
    assert reply.filter_results[0].error_code == code
    assert broker.permissions.list() == []
