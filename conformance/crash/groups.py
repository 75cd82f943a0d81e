"""Group members that commit constantly and remember the last acknowledged commit."""

import random
import threading

from conformance.clients.raw.iggy import IggyWire
from conformance.clients.raw.kafka import KafkaWire
from conformance.crash.writers import Address


class GroupCommitter(threading.Thread):
    """Moves the position of its own group forward by small steps until the broker is killed."""

    def __init__(
        self, listener: str, address: Address, topic: str, position: int, seed: int
    ) -> None:
        super().__init__(daemon=True)
        self.listener = listener
        self.address = address
        self.topic = topic
        self.group = f"crash-{listener}"
        self.position = position
        self.has_answer = False  # True once a commit of this member was acknowledged.
        self.unanswered: int | None = None  # The commit in flight, which may have happened.
        self.random = random.Random(seed)
        self.stopping = threading.Event()
        self.fault: BaseException | None = None

    def run(self) -> None:
        """Commit, wait for the answer, remember."""
        try:
            if self.listener == "kafka":
                self._commit_by_kafka()
            else:
                self._commit_by_iggy()
        except (ConnectionError, TimeoutError):
            return  # The kill.
        except BaseException as fault:
            self.fault = fault

    def _commit_by_kafka(self) -> None:
        with KafkaWire(self.address) as wire:
            while not self.stopping.is_set():
                wanted = self.position + self.random.randrange(3)
                self.unanswered = wanted
                assert wire.commit(self.group, self.topic, wanted) == 0
                self._acknowledged(wanted)

    def _commit_by_iggy(self) -> None:
        """Commit below the end of the log only: Iggy refuses an offset beyond the end."""
        with IggyWire(self.address) as wire:
            while not self.stopping.is_set():
                messages = wire.poll(self.topic, 1 + self.random.randrange(3), 1, self.position)
                if messages:
                    wanted = messages[-1].offset + 1
                    self.unanswered = wanted
                    wire.store_offset(self.topic, self.group, wanted - 1)
                    self._acknowledged(wanted)

    def _acknowledged(self, position: int) -> None:
        self.position, self.unanswered, self.has_answer = position, None, True
