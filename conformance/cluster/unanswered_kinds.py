"""The parts of a change for `unanswered`, of any protocol."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

ANSWER_S: Final = 60.0

Near = Mapping[str, tuple[str, int]]  # Address of each listener of the broker that is asked.
# Method, path and body of an HTTP request. NAME stands for the topic's name, TOPIC for
# public/default/NAME.
HttpRequest = tuple[str, str, Any]


class ChangeOutcome(Enum):
    """The meaning of an answer to a change."""

    DONE = "done"
    NOT_DONE = "not done"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Change:
    """A request. `over_topic`: the request goes over the link to the topic's owner, else to the
    catalogue's owner. `creates`: the topic must not exist before. `is_step`: a repeat is another
    change. `appends`: a repeat may store twice. `at_near`: the broker that is asked owns the topic.
    `coordinates`: the broker that is asked coordinates the group that is called as the topic.
    `prepares`: requests before the change. `looks`: paths of HTTP that show the changed state,
    beside the topic itself.
    """

    make: Callable[[Near, str], ChangeOutcome]
    over_topic: bool = False
    creates: bool = False
    is_step: bool = False
    appends: bool = False
    at_near: bool = False
    coordinates: bool = False
    prepares: Sequence[HttpRequest] = ()
    looks: Sequence[str] = ()


def named(text: str, topic: str) -> str:
    """Return a path for a topic."""
    return text.replace("TOPIC", f"public/default/{topic}").replace("NAME", topic)
