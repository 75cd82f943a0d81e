"""A policy of Pulsar's admin API: its paths, its JSON form, and the settings of topics behind it.

Knows Pulsar's names of settings, but not their storage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Final

from starlette.requests import Request

from braidlog.broker.access.rights import Action
from braidlog.broker.topics.settings import row_of
from braidlog.broker.topics.settings_table import TOPIC_SETTINGS
from braidlog.broker.topics.topic_setting import NO_LIMIT
from braidlog.protocols.http.errors import BAD_BODY, BAD_LIMIT, RequestRefused
from braidlog.protocols.http.pulsar_admin.answers import as_number

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.topics.topic import Topic
    from braidlog.broker.topics.topic_setting import TopicSetting

LIMIT_MAX: Final = 1 << 40  # Minutes or MiB: far above any real need.
APPLIED: Final = ("applied",)  # The query parameter that asks for values in force.
LEVELS: Final = ("namespace", "topic")
UNDEFINED: Final = "UNDEFINED"  # A choice that is not set.
Setting = str | int | bool
Settings = Mapping[str, Setting]
Changes = dict[str, Setting | None]


@dataclass(frozen=True, slots=True)
class PolicyField:
    """A field of a policy with several values: its name in JSON, and its setting.

    An absent field has the value `default`; a default of None means that the field may be absent.
    """

    name: str
    setting: str
    default: Setting | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy, of one or several settings of a topic.

    `path` ends the paths of a namespace and, without `topic_path`, of a topic. `read` returns the
    changes by a body, `show` the JSON value; both have defaults for a policy of a single setting,
    and of `fields`. `topic_query` is the query parameter that has a topic's value, in place of the
    body. `applied` is the value in force where no level sets any; `in_force` returns the value in
    force by the settings of the broker's logs.
    """

    path: str
    noun: str = ""  # For the API's description; by default the path.
    form: str = ""  # Describes the body.
    _: KW_ONLY
    fields: Sequence[PolicyField] = ()
    own_names: Sequence[str] | None = None  # Fields in the body that `read` understands.
    query: Sequence[str] = ()  # Query parameters that `read` and `removed` understand.
    applied: object = None
    in_force: Callable[[Broker, Topic], object] | None = None
    unset: object = None  # A namespace's value where it sets none; `topic_unset` a topic's.
    topic_unset: object = None
    of_non_persistent: object = None  # Such a topic's value in force, in place of `in_force`.
    read: Callable[[object, Request], Changes] | None = None
    show: Callable[[Settings], object] | None = None
    removed: Callable[[Request], Changes] | None = None  # The changes by a DELETE.
    check: Callable[[Broker], None] | None = None  # Raises if the broker cannot have the policy.
    levels: Sequence[str] = LEVELS
    topic_path: str = ""
    shown_at: str = ""  # The path of GET, if that differs.
    negative: str = ""  # The text of the error for a number below 0, if that differs.
    topic_query: str = ""
    namespace_method: str = "POST"
    topic_method: str = "POST"
    may_be_empty: bool = False  # A POST without a body removes the policy.
    action: Action = Action.ALTER  # The right that a change needs.
    absent_status: int = 200  # Of a namespace's answer without a value, which is empty.
    is_removable: bool = True  # For a namespace; a topic's policy can always be removed.
    topic_absent_status: int = 200  # Of a topic's answer without a value, which is empty.

    @property
    def names(self) -> Sequence[str] | None:
        """The fields in the body; None for a body that is no object."""
        return self.own_names or [field.name for field in self.fields] or None

    @property
    def settings(self) -> list[TopicSetting]:
        """The settings that make the policy."""
        return [row for row in TOPIC_SETTINGS.values() if row.pulsar == self.path]

    def calls(self, *, is_topic: bool) -> list[tuple[str, list[str]]]:
        """Return the ends of the policy's paths with their methods; GET shows, DELETE removes."""
        path = (is_topic and self.topic_path) or self.path
        methods = [self.topic_method if is_topic else self.namespace_method]
        methods += ["DELETE"] if is_topic or self.is_removable else []
        if self.shown_at:
            return [(self.shown_at, ["GET"]), (path, methods)]
        return [(path, ["GET", *methods])]

    def changes(self, body: object, request: Request) -> Changes:
        """Return the changes that a body asks for. Raises RequestRefused."""
        if self.read is not None:
            return self.read(body, request)
        if self.fields:
            return self.changes_by_fields(body)
        (row,) = self.settings
        if body is None and self.may_be_empty:
            return {row.name: None}
        number = as_number(body)
        if type(number) is int and number < 0 and not (row.is_switch or row.choices):
            called = request.scope.get("path", self.path).rpartition("/")[2]
            text = self.negative or f"{called} must be 0 or more"  # Apache's words.
            raise RequestRefused(BAD_LIMIT, text)
        return {row.name: read_value(row, body)}

    def changes_by_fields(self, body: object) -> Changes:
        """Return the changes that an object with the fields asks for. Raises RequestRefused."""
        if body is None:  # Apache removes the policy.
            return dict.fromkeys(field.setting for field in self.fields)
        if not isinstance(body, dict):
            names = ", ".join(field.name for field in self.fields)
            raise RequestRefused(BAD_BODY, f"expected an object with the fields {names}")
        changes: Changes = {}
        for field in self.fields:
            value = body.get(field.name)
            row = row_of(field.setting)
            assert row is not None, "the table of policies names settings that exist"
            is_number = not (row.is_switch or row.choices)
            if row.choices and value not in (None, *row.choices):
                words = ", ".join(row.choices)
                raise RequestRefused(BAD_BODY, f"{field.name}: expected one of {words}")
            if value is None or (is_number and value == NO_LIMIT):
                changes[field.setting] = field.default if value is None else NO_LIMIT
            else:
                is_word = bool(row.choices)
                changes[field.setting] = value if is_word else read_value(row, value, field.name)
        return changes

    def shown(self, settings: Settings) -> object:
        """Return the policy as JSON; None without a value."""
        if self.show is not None:
            return self.show(settings)
        if self.fields:
            return self.fields_shown(settings)
        (row,) = self.settings
        value = settings.get(row.name)
        if row.choices:
            return None if value is None else str(value).upper()
        return 0 if value == NO_LIMIT else value

    def fields_shown(self, settings: Settings) -> dict[str, Setting] | None:
        """Return the object of the fields; None without a value."""
        if not any(field.setting in settings for field in self.fields):
            return None
        values = {field.name: settings.get(field.setting, field.default) for field in self.fields}
        return {name: value for name, value in values.items() if value is not None}

    def removal(self, request: Request) -> Changes:
        """Return the changes that remove the policy. Raises RequestRefused."""
        if self.removed is not None:
            return self.removed(request)
        names = [field.setting for field in self.fields] or [row.name for row in self.settings]
        return dict.fromkeys(names)


def read_value(row: TopicSetting, body: object, named: str = "the body") -> Setting | None:
    """Return the value of a setting, by the setting's values; `named` is the value's place. Raises
    RequestRefused.
    """
    if row.is_switch:
        if not isinstance(body, bool):
            raise RequestRefused(BAD_BODY, f"{named} has to be true or false")
        return body
    if row.choices:
        known = {choice.upper(): choice for choice in row.choices}
        if body == UNDEFINED:
            return None
        if not isinstance(body, str) or body not in known:
            raise RequestRefused(
                BAD_BODY, f"expected one of {UNDEFINED}, {', '.join(sorted(known))}"
            )
        return known[body]
    body = as_number(body)
    if type(body) is not int or not body <= LIMIT_MAX:
        unit = " of bytes" if row.name.endswith("_bytes") else ""
        raise RequestRefused(BAD_BODY, f"{named} has to be a number{unit}, 0 or more")
    if body < 0:
        raise RequestRefused(BAD_LIMIT, f"{named} must be 0 or more")
    return body
