import pytest

from braidlog.broker import errors
from braidlog.broker.access.patterns import parse_pattern
from braidlog.broker.access.rights import ANONYMOUS, CLUSTER, USERS, Action, Principal, Resource
from braidlog.broker.limits import StateLimits
from braidlog.storage.metadata.names import TopicName
from braidlog.storage.metadata.user_records import Grant
from tests.broker.access.kept_users import KeptUsers

ORDERS = TopicName("public", "default", "orders")
TOPIC = Resource.of_topic(ORDERS)
NAMESPACE = Resource.of_namespace("public", "default")
TENANT = Resource.of_tenant("public")
BILLING = Resource.of_group(b"billing", ORDERS)
ANNA = Principal("anna", frozenset({"readers"}))


@pytest.mark.parametrize(
    ("pattern", "covered"),
    [
        ("*", {TOPIC, NAMESPACE, TENANT, BILLING, CLUSTER, USERS}),
        ("cluster", {CLUSTER, USERS}),
        ("cluster/users", {USERS}),
        ("cluster/server", {CLUSTER}),
        ("public", {TOPIC, NAMESPACE, TENANT, BILLING}),
        ("pub*", {TOPIC, NAMESPACE, TENANT, BILLING}),
        ("other", set()),
        ("public/default", {TOPIC, NAMESPACE, BILLING}),
        ("public/def*", {TOPIC, NAMESPACE, BILLING}),
        ("public/default/orders", {TOPIC, BILLING}),
        ("public/default/ord*", {TOPIC, BILLING}),
        ("public/default/order", set()),
        ("public/default/orders@billing", {TOPIC, BILLING}),
        ("public/default/orders@bill*", {TOPIC, BILLING}),
        ("public/default/orders@audit", {TOPIC}),
        ("public/default/orders@", {TOPIC}),
        ("public/default/*@", {TOPIC}),
        ("public/default/@billing", {BILLING}),
        ("public/default/@bill*", {BILLING}),
        ("public/default/@*", {BILLING}),
        ("public/default/@audit", set()),
    ],
)
def test_a_pattern_covers_its_resources(pattern, covered):
    parsed = parse_pattern(pattern)
    everything = (TOPIC, NAMESPACE, TENANT, BILLING, CLUSTER, USERS)
    assert {candidate for candidate in everything if parsed.covers(candidate)} == covered


@pytest.mark.parametrize(
    ("pattern", "reached"),
    [
        ("*", {"public", "public/default", "shop", "shop/default"}),
        ("cluster", set()),
        ("public", {"public", "public/default"}),
        ("public/def*", {"public", "public/default"}),
        ("public/other", {"public"}),
        ("public/default/orders@billing", {"public", "public/default"}),
        ("*/default/x*", {"public", "public/default", "shop", "shop/default"}),
        ("shop/other/x", {"shop"}),
    ],
)
def test_a_pattern_reaches_parents_of_covered_resources(pattern, reached):
    parsed = parse_pattern(pattern)
    places = ("public", "public/default", "shop", "shop/default")
    assert {place for place in places if parsed.reaches(*place.split("/"))} == reached


def test_a_group_without_topic_is_covered_by_its_name():
    billing = Resource.of_group_within(b"billing", "public", "default")
    audit = Resource.of_group_within(b"audit", "public", "default")
    for pattern in ("public/default/orders@bill*", "public/default/x", "public", "*", "*@billing"):
        assert parse_pattern(pattern).covers(billing)
    assert not parse_pattern("public/default/orders@bill*").covers(audit)


def test_a_group_without_topic_is_not_covered_in_another_namespace():
    billing = Resource.of_group_within(b"billing", "public", "default")
    for pattern in ("public/other/orders@billing", "acme/default/x", "acme", "cluster"):
        assert not parse_pattern(pattern).covers(billing)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a//b",
        "a/b/c/d",
        "/a",
        "a/*b",
        "a@",
        "a/b@",
        "a/b/@",
        "a//@g",
        "a/b/c/@g",
        "a\n",
        "x" * 1025,
    ],
)
def test_an_invalid_pattern_is_refused(text):
    with pytest.raises(ValueError):
        parse_pattern(text)


async def test_a_topic_without_its_groups_needs_a_permission_for_the_group():
    rules = KeptUsers().rules
    await rules.grant(Grant("anna", "consume", "public/default/orders@"))
    assert rules.allows(ANNA, Action.CONSUME, TOPIC)
    assert not rules.allows(ANNA, Action.CONSUME, BILLING)
    assert not rules.allows(ANNA, Action.PRODUCE, TOPIC)
    await rules.grant(Grant("anna", "consume", "public/default/@billing"))
    assert rules.allows(ANNA, Action.CONSUME, BILLING)
    assert rules.allows(
        ANNA, Action.CONSUME, Resource.of_group_within(b"billing", "public", "default")
    )
    await rules.grant(Grant("bert", "admin", "public/default/orders@"))
    assert rules.allows(Principal("bert"), Action.ALTER, TOPIC)
    assert not rules.allows(Principal("bert"), Action.DELETE, BILLING)


async def test_a_permission_holds_from_its_grant_to_its_revocation():
    rules = KeptUsers().rules
    grant = Grant("anna", "produce", "public/default/orders")
    assert not rules.allows(ANNA, Action.PRODUCE, TOPIC)
    await rules.grant(grant)
    assert rules.allows(ANNA, Action.PRODUCE, TOPIC)
    assert rules.allows(ANNA, Action.DESCRIBE, TOPIC)
    assert not rules.allows(ANNA, Action.CONSUME, TOPIC)
    assert not rules.allows(Principal("bert"), Action.PRODUCE, TOPIC)
    await rules.revoke(grant)
    assert not rules.allows(ANNA, Action.PRODUCE, TOPIC)
    with pytest.raises(errors.UserNotFound):
        await rules.revoke(grant)


async def test_roles_admins_and_superusers():
    rules = KeptUsers(superusers=["root"]).rules
    await rules.grant(Grant("role:readers", "consume", "public/default"))
    await rules.grant(Grant("bert", "admin", "public/default"))
    assert rules.allows(ANNA, Action.CONSUME, BILLING)
    assert rules.allows(Principal("bert"), Action.DELETE, TOPIC)
    assert not rules.allows(Principal("bert"), Action.DELETE, TENANT)
    assert rules.allows(Principal("root"), Action.ADMINISTER, CLUSTER)
    assert not rules.allows(Principal("root", is_anonymous=True), Action.DESCRIBE, TOPIC)
    assert not rules.allows(ANONYMOUS, Action.DESCRIBE, TOPIC)


@pytest.mark.parametrize("word", ["produce", "create", "alter", "delete", "administer", "admin"])
@pytest.mark.parametrize("resource", ["public/default/orders", "public/default", "public", "*"])
async def test_a_group_permission_only_allows_reading_with_its_topic(word, resource):
    rules = KeptUsers().rules
    await rules.grant(Grant("anna", word, f"{resource}@billing"))
    actions = set(Action) if word == "admin" else {Action(word), Action.DESCRIBE}
    assert {action for action in Action if rules.allows(ANNA, action, BILLING)} == actions
    for place in (TOPIC, NAMESPACE, TENANT):
        allowed = {action for action in Action if rules.allows(ANNA, action, place)}
        assert allowed <= {Action.CONSUME, Action.DESCRIBE}
    assert not rules.allows(ANNA, Action.DELETE, Resource.of_group(b"audit", ORDERS))
    assert rules.allows(ANNA, Action.CONSUME, TOPIC) == (word == "admin")


async def test_a_user_with_a_roles_name_lacks_the_roles_permissions():
    rules = KeptUsers().rules
    await rules.grant(Grant("role:readers", "consume", "public/default"))
    assert not rules.allows(Principal("role:readers"), Action.CONSUME, TOPIC)
    assert not rules.reaches(Principal("role:readers"), "public")
    assert rules.allows(Principal("x", frozenset({"readers"})), Action.CONSUME, TOPIC)


async def test_permissions_survive_a_restart():
    house = KeptUsers()
    await house.rules.grant(Grant("anna", "consume", "public/default/orders@billing"))
    again = KeptUsers(house.catalogue.reopened()).rules
    assert again.allows(ANNA, Action.CONSUME, BILLING)
    assert not again.allows(ANNA, Action.CONSUME, Resource.of_group(b"audit", ORDERS))
    assert [grant.subject for grant in again.list()] == ["anna"]


@pytest.mark.parametrize(
    "grant",
    [
        Grant("anna", "dance", "*"),
        Grant("", "produce", "*"),
        Grant("an\ud800na", "produce", "*"),
        Grant("anna", "produce", "a//b"),
    ],
)
async def test_an_invalid_permission_is_refused(grant):
    with pytest.raises(errors.InvalidRequest):
        await KeptUsers().rules.grant(grant)


def test_a_superuser_reaches_everything():
    rules = KeptUsers(superusers=["root"]).rules
    assert rules.reaches(Principal("root"), "public", "default")
    assert not rules.reaches(Principal("anna"), "public", "default")


async def test_permissions_are_limited_in_number():
    rules = KeptUsers(limits=StateLimits(grants=2)).rules
    grants = [Grant("anna", "produce", f"public/default/t{n}") for n in range(3)]
    for grant in grants[:2]:
        await rules.grant(grant)
    await rules.grant(grants[0])  # An existing permission needs no room.
    with pytest.raises(errors.LimitExceeded, match="limit of 2 permissions reached"):
        await rules.grant(grants[2])
    assert list(rules.list()) == grants[:2]


async def test_answers_about_long_names_are_not_cached():
    rules = KeptUsers().rules
    await rules.grant(Grant("anna", "consume", "public/default"))
    group = Resource.of_group(b"g" * 1_000_000, ORDERS)
    namespace = Resource.of_namespace("public", "n" * 1_000_000)
    for _ in range(2):
        assert rules.allows(ANNA, Action.CONSUME, group)
        assert not rules.allows(ANNA, Action.CONSUME, namespace)
    assert not rules._answers


async def test_answers_are_cached_up_to_a_limit_and_stay_right():
    rules = KeptUsers(limits=StateLimits(grant_answers=3)).rules
    await rules.grant(Grant("anna", "produce", "public/default/t*"))
    for number in range(5):
        assert not rules.allows(Principal(f"stranger {number}"), Action.PRODUCE, TOPIC)
        assert len(rules._answers) <= 3 and len(rules._rules) <= 3
    for _ in range(2):
        for number in range(5):
            topic = Resource.of_topic(TopicName("public", "default", f"t{number}"))
            other = Resource.of_topic(TopicName("public", "default", f"u{number}"))
            assert rules.allows(ANNA, Action.PRODUCE, topic)
            assert not rules.allows(ANNA, Action.PRODUCE, other)
