import random

import pytest
import trio

from braidlog.broker import errors
from braidlog.broker.access.login_throttle import FREE_FAILURES
from braidlog.broker.access.passwords import HASHES_WAITING_MAX
from braidlog.broker.access.rules import Grant
from braidlog.broker.access.users import ScramKey, principal_of
from braidlog.broker.limits import TOKENS_MAX, StateLimits
from tests.broker.access.kept_users import KeptUsers, MemoryCatalogue

HERE = "127.0.0.1"
ACTIONS = ("produce", "consume", "describe", "alter")


async def with_anna(**more):
    house = KeptUsers()
    anna, _ = await house.users.create("anna", "secret one", **more)
    return house, anna


async def test_a_user_logs_in_by_name_and_password():
    house, anna = await with_anna(roles=["readers"])
    assert await house.users.verify("anna", "secret one", HERE) is anna
    assert principal_of(anna).name == "anna" and principal_of(anna).roles == {"readers"}
    for name, password in (("anna", "secret two"), ("anna", ""), ("bert", "secret one")):
        with pytest.raises(errors.NotAuthenticated, match="wrong user name or password"):
            await house.users.verify(name, password, HERE)


async def test_users_survive_a_restart_and_the_journal_has_no_secrets():
    house, anna = await with_anna()
    token, _ = await house.users.create_token(anna, "ci", None)
    again = KeptUsers(house.catalogue.reopened())
    assert (await again.users.verify("anna", "secret one", HERE)).user_id == anna.user_id
    assert again.users.verify_token(token, HERE)[0].name == "anna"
    stored = b"".join(house.catalogue.journal.records)
    assert b"secret one" not in stored and token.encode() not in stored


async def test_an_accepted_password_costs_no_second_hash():
    house, anna = await with_anna()
    await house.users.verify("anna", "secret one", HERE)
    house.users._passwords._hasher = None  # A hash would fail from now on.
    assert await house.users.verify("anna", "secret one", HERE) is anna


async def test_a_changed_password_ends_the_old_one():
    house, anna = await with_anna()
    await house.users.verify("anna", "secret one", HERE)
    await house.users.set_password(anna, "secret two")
    with pytest.raises(errors.NotAuthenticated):
        await house.users.verify("anna", "secret one", HERE)
    assert (await house.users.verify("anna", "secret two", HERE)).name == "anna"


async def test_a_user_removed_during_the_hash_is_refused(nursery):
    house, anna = await with_anna()
    ended = []

    async def log_in():
        try:
            await house.users.verify("anna", "secret one", HERE)
        except errors.NotAuthenticated as error:
            ended.append(error)

    nursery.start_soon(log_in)
    while not house.users._passwords._waiting:
        await trio.lowlevel.checkpoint()
    await house.users.delete(anna)
    while house.users._passwords._waiting:
        await trio.lowlevel.checkpoint()
    await trio.testing.wait_all_tasks_blocked()
    assert len(ended) == 1


async def test_inactive_users_are_refused():
    house, anna = await with_anna()
    token, _ = await house.users.create_token(anna, "ci", None)
    await house.users.alter(anna, is_active=False)
    with pytest.raises(errors.NotAuthenticated, match="not active"):
        await house.users.verify("anna", "secret one", HERE)
    with pytest.raises(errors.NotAuthenticated, match="not active"):
        house.users.verify_token(token, HERE)


async def test_names_and_numbers_are_unique():
    house, anna = await with_anna()
    with pytest.raises(errors.UserExists):
        await house.users.create("anna", "x")
    with pytest.raises(errors.UserExists):
        await house.users.create("bert", "x", user_id=anna.user_id)
    await house.users.delete(anna)
    bert, _ = await house.users.create("bert", "x")
    assert bert.user_id == anna.user_id + 1
    assert KeptUsers(house.catalogue.reopened()).users.find("anna") is None


async def test_a_renamed_user_keeps_number_password_and_tokens():
    house, anna = await with_anna()
    token, _ = await house.users.create_token(anna, "ci", None)
    await house.users.alter(anna, name="anne")
    assert house.users.find("anna") is None
    assert house.users.verify_token(token, HERE)[0].name == "anne"
    assert (await house.users.verify("anne", "secret one", HERE)).user_id == anna.user_id


async def test_permissions_follow_a_renamed_user_and_end_with_a_deleted_user():
    house, anna = await with_anna()
    await house.rules.grant(Grant("anna", "produce", "public"))
    await house.rules.grant(Grant("role:anna", "produce", "public"))
    await house.users.alter(anna, name="annika")
    assert house.rules.list("anna") == []
    assert house.rules.list("annika") == [Grant("annika", "produce", "public")]
    await house.users.delete(house.users.get("annika"))
    assert house.rules.list() == [Grant("role:anna", "produce", "public")]


async def test_tokens_expire_and_can_be_revoked():
    house, anna = await with_anna()
    short, _ = await house.users.create_token(anna, "short", house.now_us + 10)
    long, _ = await house.users.create_token(anna, "long", None)
    assert house.users.verify_token(short, HERE)[0].name == "anna"
    house.now_us += 10
    with pytest.raises(errors.NotAuthenticated, match="expired"):
        house.users.verify_token(short, HERE)
    await house.users.delete_token(anna, "long")
    with pytest.raises(errors.NotAuthenticated, match="unknown"):
        house.users.verify_token(long, HERE)
    with pytest.raises(errors.UserNotFound):
        await house.users.delete_token(anna, "long")
    with pytest.raises(errors.UserExists):
        await house.users.create_token(anna, "short", None)


async def test_a_user_has_a_limit_of_tokens():
    house, anna = await with_anna()
    for number in range(TOKENS_MAX):
        await house.users.create_token(anna, f"token {number}", None)
    with pytest.raises(errors.LimitExceeded):
        await house.users.create_token(anna, "one more", None)


async def test_wrong_passwords_delay_only_their_sender():
    house, anna = await with_anna()
    await house.users.verify("anna", "secret one", HERE)
    for _ in range(20):
        with pytest.raises(errors.NotAuthenticated):
            await house.users.verify("bert", "guess", HERE)
    house.users._passwords._hasher = None  # From here on, nothing is hashed.
    with pytest.raises(errors.NotAuthenticated, match="too many"):
        await house.users.verify("carl", "guess", HERE)
    with pytest.raises(errors.NotAuthenticated, match="too many"):
        await house.users.verify("bert", "guess", "10.0.0.9")
    # A known user is still accepted, also at the address of the guessing client.
    assert await house.users.verify("anna", "secret one", HERE) is anna


@pytest.mark.parametrize("kind", ["a user's", "the settings'"])
async def test_a_waiting_address_cannot_try_passwords(kind):
    house, _ = await with_anna()
    # The login is remembered from now on.
    await house.users.verify("anna", "secret one", "10.0.0.2")

    async def guess(password, address=HERE):
        if kind == "a user's":
            await house.users.verify("anna", password, address)
        else:
            await house.users.verify_configured("anna", password, "secret one", address)

    for number in range(FREE_FAILURES):
        with pytest.raises(errors.NotAuthenticated):
            await house.users.verify(f"nobody {number}", "guess", HERE)
    await guess("secret one")
    house.clock_s += 61
    for number in range(FREE_FAILURES):
        with pytest.raises(errors.NotAuthenticated):
            await house.users.verify(f"another {number}", "guess", HERE)
    for number in range(FREE_FAILURES):
        with pytest.raises(errors.NotAuthenticated, match="too many"):
            await guess(f"guess {number}")
    for address in (HERE, "10.0.0.2"):
        with pytest.raises(errors.NotAuthenticated, match="too many"):
            await guess("secret one", address)


async def test_a_login_after_the_wait_is_tried():
    house, anna = await with_anna()
    for _ in range(6):
        with pytest.raises(errors.NotAuthenticated):
            await house.users.verify("anna", "guess", HERE)
    with pytest.raises(errors.NotAuthenticated, match="too many"):
        await house.users.verify("anna", "secret one", HERE)
    house.clock_s += 61
    assert await house.users.verify("anna", "secret one", HERE) is anna


async def test_waiting_logins_have_a_limit(nursery):
    house, _ = await with_anna()
    outcomes = []

    async def log_in(number):
        try:
            await house.users.verify("anna", "secret one", f"10.0.0.{number}")
            outcomes.append("in")
        except errors.LimitExceeded:
            outcomes.append("busy")

    for number in range(HASHES_WAITING_MAX + 3):
        nursery.start_soon(log_in, number)
    while len(outcomes) < HASHES_WAITING_MAX + 3:
        await trio.sleep(0.001)
    assert outcomes.count("busy") == 3


@pytest.mark.parametrize("name", ["anna", "nobody"])
async def test_waiting_guesses_are_refused_after_other_failures(nursery, name):
    house, _ = await with_anna()
    # Creates the hash for comparisons with unknown names.
    with pytest.raises(errors.NotAuthenticated):
        await house.users.verify("somebody else", "guess", "10.0.0.2")
    hashes, refused = [], []
    house.users._passwords._hashed = lambda: hashes.append(1)

    async def guess(number):
        with pytest.raises(errors.NotAuthenticated):
            await house.users.verify(name, f"guess {number}", HERE)
        refused.append(number)

    for number in range(20):
        nursery.start_soon(guess, number)
    while len(refused) < 20:
        await trio.sleep(0.001)
    assert len(hashes) == FREE_FAILURES


async def test_a_password_in_the_settings_is_equally_hard_to_guess():
    house, hashes = KeptUsers(), []
    house.users._passwords._hashed = lambda: hashes.append(1)
    await house.users.verify_configured("iggy", "its own", "its own", HERE)
    assert not hashes
    for number in range(FREE_FAILURES):
        with pytest.raises(errors.NotAuthenticated, match="wrong user name or password"):
            await house.users.verify_configured("iggy", f"guess {number}", "its own", HERE)
    assert len(hashes) > FREE_FAILURES  # The first hash is for comparisons with unknown names.
    with pytest.raises(errors.NotAuthenticated, match="too many failed logins"):
        await house.users.verify_configured("iggy", "its own", "its own", "10.0.0.2")


@pytest.mark.parametrize(
    ("name", "password"), [("", "x"), ("a\nb", "x"), ("a" * 256, "x"), ("a", ""), ("a", "x" * 1025)]
)
async def test_names_and_passwords_have_size_limits(name, password):
    with pytest.raises(errors.InvalidRequest):
        await KeptUsers().users.create(name, password)


async def test_a_user_cannot_take_a_roles_name_and_permissions():
    house, anna = await with_anna()
    await house.rules.grant(Grant("role:readers", "consume", "public"))
    with pytest.raises(errors.InvalidRequest):
        await house.users.create("role:readers", None)
    with pytest.raises(errors.InvalidRequest):
        await house.users.alter(anna, name="role:readers")
    await house.users.create_token(anna, "role:readers", None)


async def test_a_too_long_name_is_truncated_in_memory():
    house, _ = await with_anna()
    with pytest.raises(errors.NotAuthenticated):
        await house.users.verify("n" * 100_000, "secret", HERE)
    assert max(map(len, house.users._throttle._failures)) < 300


async def test_a_too_long_password_is_not_hashed():
    house, _ = await with_anna()
    house.users._passwords._hasher = None
    with pytest.raises(errors.NotAuthenticated):
        await house.users.verify("anna", "x" * 2000, HERE)


async def test_ten_thousand_wrong_passwords_in_a_minute_are_hardly_hashed():
    hashes = []
    house, anna = await with_anna()
    house.users._passwords._hashed = lambda: hashes.append(1)
    house.users._passwords._matches = lambda password_hash, password: password == "secret one"
    await house.users.verify("anna", "secret one", "10.0.0.7")
    token, _ = await house.users.create_token(anna, "ci", None)
    for number in range(10_000):
        name = "anna" if number % 2 else f"nobody-{number % 100}"
        with pytest.raises(errors.NotAuthenticated):
            await house.users.verify(name, f"wrong {number}", f"10.0.0.{number % 5}")
        house.clock_s += 0.006
    assert len(hashes) < 300
    assert house.users.verify_token(token, "10.0.0.1")[0].name == "anna"


async def test_keys_for_scram_change_in_a_single_record():
    house = KeptUsers()
    first, second = (ScramKey(name, b"s", 4096, b"a", b"b") for name in ("first", "second"))
    records = house.catalogue.journal.records
    for keys, removed, left in (([first], (), [first]), ([second], ["first"], [second])):
        before = len(records)
        await house.users.change_scram_keys("anna", keys, removed)
        assert house.users.get("anna").scram == left
        assert len(records) == before + 1


async def test_keys_are_removed_without_the_password():
    house, _ = await with_anna()
    await house.users.change_scram_keys("anna", [], ["SCRAM-SHA-256"])
    assert (await house.users.verify("anna", "secret one", HERE)).name == "anna"
    assert [key.mechanism for key in house.users.get("anna").scram] == ["SCRAM-SHA-512"]


async def test_a_crash_leaves_a_whole_change_of_a_user_or_none():
    """A user is created with permissions, a rename moves them, and a deletion revokes them: in the
    user's own record. So does a change of several permissions.
    """
    house, seed = KeptUsers(), random.randrange(1 << 30)
    print(f"seed {seed}")
    chance, records = random.Random(seed), house.catalogue.journal.records
    states = {len(records): state_of(house.catalogue)}
    for step in range(50):
        names = [user.name for user in house.users.all()]
        if not names or chance.random() < 0.2:
            changes = house.granting(f"user {step}", *chance.choices(ACTIONS, k=step % 3))
            await house.users.create(f"user {step}", None, permitted=["public"], grants=changes)
        elif chance.random() < 0.3:
            user = house.users.get(chance.choice(names))
            changes = house.granting(user.name, *chance.choices(ACTIONS, k=step % 3))
            house.users.set_permissions(user, [f"public/{step % 2}"], changes)
        elif chance.random() < 0.4:
            resource = f"topic public/default/{step}"
            await house.rules.grant(Grant(chance.choice(names), "produce", resource))
        elif chance.random() < 0.7:
            user = house.users.get(chance.choice(names))
            await house.users.alter(user, name=f"renamed {step}", is_active=step % 2 == 0)
        else:
            await house.users.delete(house.users.get(chance.choice(names)))
        states[len(records)] = state_of(house.catalogue)
    assert len(states) > 20
    for count in range(1, len(records) + 1):
        assert state_of(MemoryCatalogue(records[:count])) == states.get(count)


async def test_password_and_status_change_in_a_single_record():
    house, anna = await with_anna()
    before = len(house.catalogue.journal.records)
    await house.users.alter(anna, password="secret two", roles=["readers"])
    assert len(house.catalogue.journal.records) == before + 1
    assert (await house.users.verify("anna", "secret two", HERE)).roles == ["readers"]


async def test_a_renamed_and_a_deleted_user_are_remembered_as_a_change_each():
    house, anna = await with_anna()
    await house.rules.grant(Grant("anna", "produce", "public"))
    place = house.catalogue.state.writer.place
    await house.users.alter(anna, name="anne")
    await house.users.delete(anna)
    renamed, gone = house.catalogue.state.history.after(place)
    assert (renamed.before.name, renamed.after.name) == ("anna", "anne")
    assert (gone.before.name, gone.after) == ("anne", None)


def state_of(catalogue):
    book = catalogue.users
    users = [(user.name, user.is_active, user.permitted) for user in book.all()]
    return users, list(book.grants)


async def test_a_user_with_permissions_is_remembered_as_created_once_and_changed_once():
    house = KeptUsers()
    place = house.catalogue.state.writer.place
    anna, _ = await house.users.create("anna", None, grants=house.granting("anna", *ACTIONS))
    house.users.set_permissions(anna, [], house.granting("anna", "produce", "admin"))
    created, changed = house.catalogue.state.history.after(place)
    assert (created.before, created.after.name, created.of_grants) == (None, "anna", False)
    assert (changed.before.name, changed.after.name, changed.of_grants) == ("anna", "anna", True)
    assert [grant.action for grant in house.rules.list("anna")] == ["produce", "admin"]


async def test_permissions_above_the_limit_are_refused_without_effect():
    house = KeptUsers(limits=StateLimits(grants=3))
    with pytest.raises(errors.LimitExceeded):
        await house.users.create("anna", None, grants=house.granting("anna", *ACTIONS))
    assert house.users.find("anna") is None
    anna, _ = await house.users.create("anna", None, grants=house.granting("anna", *ACTIONS[:3]))
    with pytest.raises(errors.LimitExceeded):
        house.users.set_permissions(anna, ["public"], house.granting("anna", *ACTIONS))
    assert len(house.rules.list("anna")) == 3 and house.users.get("anna").permitted == []
    house.users.set_permissions(anna, [], house.granting("anna", *ACTIONS[1:]))
    assert [grant.action for grant in house.rules.list()] == ["consume", "describe", "alter"]


async def test_unchanged_permissions_are_no_change():
    house = KeptUsers()
    anna, _ = await house.users.create("anna", None, grants=house.granting("anna", "produce"))
    count = len(house.catalogue.journal.records)
    house.users.set_permissions(anna, [], house.granting("anna", "produce"))
    assert len(house.catalogue.journal.records) == count


@pytest.mark.parametrize(
    "grant",
    [
        Grant("anna", "fly", "public"),
        Grant("anna", "produce", ""),
        Grant("a\nb", "produce", "public"),
        Grant("n" * 256, "produce", "public"),
    ],
)
def test_an_invalid_permission_is_no_replacement(grant):
    house = KeptUsers()
    with pytest.raises(errors.InvalidRequest):
        house.rules.replacement([Grant("anna", "produce", "public"), grant], [])
