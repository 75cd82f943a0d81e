"""Makes a catalogue that lost records fit the partition folders again.

A folder's topic file names its topic and partition, so that no user record becomes unreachable
because a catalogue record is lost. Knows the catalogue, and of folders only their topic files.
"""

from collections.abc import Mapping
from itertools import takewhile

from braidlog.storage.log.topic_file import TopicFile
from braidlog.storage.metadata.catalogue import Catalogue
from braidlog.storage.metadata.journal_positions import JournalPositions
from braidlog.storage.metadata.names import InvalidTopicName, TopicName, parse_topic


class CatalogueRepair:
    """Changes a catalogue in memory; `lines` describe the changes for people."""

    def __init__(self, catalogue: Catalogue, folders: Mapping[int, TopicFile | None]) -> None:
        """`folders` are the existing folders with their topic files, None for a bad file."""
        self.catalogue = catalogue
        self.lines: list[str] = []
        self._folders = folders

    def run(self, cursors: JournalPositions | None, now_us: int) -> None:
        """Drop topics without any folder, and create topics again that folders name.

        New topics get numbers that no cursor has.
        """
        catalogue = self.catalogue
        catalogue.raise_partition_ids(max(self._folders, default=0))
        if cursors is not None:
            catalogue.raise_topic_ids(max(cursors.topic_ids(), default=0))
        self._drop_topics_without_folders()
        for name, numbers in sorted(self._unclaimed().items()):
            self._claim(name, numbers, now_us)
        for meta in catalogue.all_topics():
            self._need_namespace(meta.name, now_us)
        known = {
            partition_id for meta in catalogue.all_topics() for partition_id in meta.partition_ids
        }
        for number in sorted(self._folders.keys() - known):
            self.lines.append(f"  nothing says whose folder {number} is: a start sets it aside")

    def _drop_topics_without_folders(self) -> None:
        for meta in self.catalogue.all_topics():
            if meta.partition_ids and not any(
                partition_id in self._folders for partition_id in meta.partition_ids
            ):
                self.catalogue.delete_topic(meta.topic_id)
                self.lines.append(f"  topic {meta.name} goes: it has no folder, as if deleted")

    def _unclaimed(self) -> dict[TopicName, dict[int, int]]:
        """Folders that no topic has: partition number to partition id, by the topic they name."""
        known = {
            partition_id
            for meta in self.catalogue.all_topics()
            for partition_id in meta.partition_ids
        }
        by_topic: dict[TopicName, dict[int, int]] = {}
        for number, content in self._folders.items():
            if number in known or content is None or content.partition_id != number:
                continue
            try:
                name = parse_topic(content.topic)
            except InvalidTopicName:
                continue
            by_topic.setdefault(name, {})[content.partition_index] = number
        return by_topic

    def _claim(self, name: TopicName, numbers: dict[int, int], now_us: int) -> None:
        """Give a topic the folders that continue where its partitions end."""
        meta = self.catalogue.topic(name)
        ids = list(meta.partition_ids) if meta is not None else []
        following = takewhile(numbers.__contains__, range(len(ids), len(ids) + len(numbers)))
        more = [numbers[index] for index in following]
        if not more:
            return
        if meta is None:
            self._need_namespace(name, now_us)
            self.catalogue.create_topic(name, more, partitioned=len(more) > 1, created_us=now_us)
            text = f"topic {name} is made again from its {len(more)} folders; its settings, schemas"
            text += ", groups, positions and Iggy's number for it are lost"
        else:
            self.catalogue.set_partitions(meta.topic_id, ids + more, partitioned=True)
            text = f"topic {name} gets back {len(more)} partitions from their folders"
        self.lines.append(f"  {text}")

    def _need_namespace(self, name: TopicName, now_us: int) -> None:
        if self.catalogue.namespace(name.tenant, name.namespace) is None:
            self.catalogue.create_namespace(name.tenant, name.namespace, created_us=now_us)
            self.lines.append(f"  namespace {name.tenant}/{name.namespace} is made again")
