"""Partition folders by the topics that own them, as the catalogue says."""

from dataclasses import dataclass

from braidlog.storage.metadata.catalogue import Catalogue


@dataclass(slots=True, frozen=True)
class FolderOwner:
    """The topic of a folder, and the index of the partition in the folder."""

    topic: str
    index: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.index}"


def owners_of(catalogue: Catalogue) -> dict[int, FolderOwner]:
    """Which partition of which topic each folder is, as the catalogue says."""
    return {
        partition_id: FolderOwner(meta.name.full, index)
        for meta in catalogue.all_topics()
        for index, partition_id in enumerate(meta.partition_ids)
    }
