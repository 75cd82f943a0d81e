"""The rules of groups, each shown by a script in `rules/`."""

from pathlib import Path

import pytest

from braidlog.protocols.kafka.classic_group import KafkaGroup, MemberRefused
from braidlog.protocols.kafka.errors import Code
from tests.protocols.kafka.talk import join_request
from tests.scripts import Script, cases

SESSION_S = 10.0  # As `join_request` says.
CLIENT = (b"client", b"/host")
NOBODY = "nobody"


class GroupPlayer:
    """A classic group that takes the actions of a script."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ids: dict[str, bytes] = {NOBODY: b"x"}
        self.new_group()

    def new_group(self, delay: str = "0") -> None:
        self.group = KafkaGroup(b"g", initial_delay_s=float(delay))

    def members(self, *names: str) -> None:
        for count, name in enumerate(names, 1):
            for joining in (name, *names[: count - 1]):
                self.join(joining)
        self.sync(*(f"{name}=x" for name in names))

    def join(
        self, name: str, *, instance: str = "", protocols: str = "range", type: str = "consumer"
    ) -> None:
        kinds = [kind.encode() for kind in protocols.split(",") if kind]
        request = join_request(
            {kind: b"of " + kind for kind in kinds},
            member_id=self.ids.get(name, b""),
            group_instance_id=instance.encode() or None,
            protocol_type=type.encode(),
        )
        self.ids[name] = self.group.admit(request, CLIENT, self.now).member_id
        assert name == NOBODY or self.ids[name].startswith(b"client-")

    def promise(self, name: str) -> None:
        self.ids[name] = self.group.promise(CLIENT[0], self.now, SESSION_S)

    def sync(self, *assignments: str) -> None:
        pairs = [text.partition("=") for text in assignments]
        shares = {self.ids[name]: share.encode() for name, _, share in pairs}
        self.group.assign(shares, self.now)

    def leave(self, name: str, *, instance: str = "") -> Code:
        return self.group.leave(self.ids.get(name), instance.encode() or None, self.now)

    def check(self, name: str, *, instance: str = "", generation: str = "") -> None:
        number = int(generation) if generation else self.group.generation
        member = self.group.check(self.ids[name], instance.encode() or None, number)
        assert member.member_id == self.ids[name]

    def wait(self, name: str) -> None:
        self.group.members[self.ids[name]].parked = True

    def answer(self, name: str) -> None:
        self.group.members[self.ids[name]].parked = False

    def alive(self, name: str, due: str) -> None:
        self.group.members[self.ids[name]].due = float(due)

    def lost(self, name: str) -> None:
        self.group.lost(self.group.members[self.ids[name]], self.now)

    def at(self, now: str) -> None:
        self.now = float(now)
        self.group.advance(self.now)

    def fact(self, name: str) -> str:
        """Return a fact of the present state, as scripts write it."""
        group = self.group
        match name.split("-"):
            case ["state"]:
                return group.state.value.decode()
            case ["generation"]:
                return str(group.generation)
            case ["protocol"]:
                return group.protocol_name.decode()
            case ["leader"]:
                return self._name(group.leader)
            case ["members"]:
                return " ".join(map(self._name, group.members)) or "none"
            case ["due"]:
                return f"{group.next_due():g}"
            case [("sees" | "old") as kind, member]:
                return self._answer(self.ids[member], may_skip=kind == "sees")
            case _:
                return group.members[self.ids[name]].assignment.decode() or "none"

    def _name(self, member_id: bytes) -> str:
        return next(name for name, known in self.ids.items() if known == member_id)

    def _answer(self, member_id: bytes, *, may_skip: bool) -> str:
        try:
            reply = self.group.joined_reply(member_id, may_skip=may_skip)
        except MemberRefused as error:
            return error.code.name
        skips = " skips" if reply.skip_assignment else ""
        assert reply.leader is not None
        metadata = b"of " + self.group.protocol_name
        assert all(member.metadata == metadata for member in reply.members)
        return f"{self._name(reply.leader)} {len(reply.members)}{skips}"


def play(player: GroupPlayer, name: str, words: list[str]) -> Code:
    """Take an action; return the code of its answer."""
    options = [word.partition("=") for word in words if "=" in word and name != "sync"]
    arguments = [word for word in words if "=" not in word or name == "sync"]
    try:
        code = getattr(player, name.replace("-", "_"))(
            *arguments, **{key: value for key, _, value in options}
        )
    except MemberRefused as error:
        return error.code
    return code or Code.NONE


@pytest.mark.parametrize(("_file", "script"), cases(Path(__file__).parent / "rules"))
def test_rules_of_groups(_file: str, script: Script) -> None:
    player = GroupPlayer()
    for step in script.steps:
        name, *words = step.action
        code = play(player, name, words)
        facts = [
            (fact, code.name if fact == "code" else player.fact(fact)) for fact, _ in step.facts
        ]
        assert facts == step.facts, step.line
        assert code == Code.NONE or "code" in dict(facts), step.line
