"""The catalogue of a data directory, read beside a running or stopped broker: no lock, no writes.

Includes all changes that are durable by the journal's watermark slot. Knows no broker.
"""

import os
from contextlib import closing

from braidlog.storage.errors import DamagedLog
from braidlog.storage.formats.batch import HEADER_BYTES
from braidlog.storage.log.files import FileGone
from braidlog.storage.log.folder_reader import HANDLES_MAX
from braidlog.storage.log.layout import JOURNAL_KINDS
from braidlog.storage.log.local_files import LocalFiles
from braidlog.storage.log.recovery import LogIdentity
from braidlog.storage.log.scan import read_checked
from braidlog.storage.log.watermark import read_watermark
from braidlog.storage.metadata.catalogue import Catalogue
from braidlog.storage.metadata.journal_catalogue import JournalCatalogue
from braidlog.storage.tools.journal_records import JournalRecords, StoredJournal
from braidlog.storage.tools.survey import LogSurvey

NAME = "catalogue"
LOOKS_MAX = 5  # At a journal that a broker shortens meanwhile.


def read_catalogue(data_dir: str | os.PathLike[str]) -> Catalogue:
    """Return the catalogue that a start would replay. Raises DamagedLog, UnknownRecord; OSError if
    there is none.
    """
    for _ in range(LOOKS_MAX - 1):
        try:
            return _read(os.fspath(data_dir))
        except FileGone:
            continue
    return _read(os.fspath(data_dir))


def _read(data_dir: str) -> Catalogue:
    folder = os.path.join(data_dir, NAME)
    os.stat(folder)  # Raises OSError; without a journal folder there is no catalogue.
    identity = LogIdentity(folder, JOURNAL_KINDS[NAME], 1)
    slot = read_watermark(folder, identity.partition_id, identity.kind)
    with closing(LocalFiles(data_dir, handles_max=HANDLES_MAX, read_only=True)) as files:
        survey = LogSurvey(files, identity, slot, slot.durable_offset)
        records = JournalRecords()
        for good in survey.batches():
            header = good.header
            size = header.positions_bytes + header.body_bytes
            place = (size, good.file_pos + HEADER_BYTES, header.base_offset)
            body = bytes(read_checked(good.segment, *place))
            records.batch(good, body[header.positions_bytes :])
        result = survey.result
        start = records.start(result)
        records.forget_superseded(result, start)
        for hole in result.holes:
            raise DamagedLog(hole.path, hole.file_pos, hole.offset, hole.reason)
        bodies = records.records(result, start)
        return JournalCatalogue(StoredJournal(bodies, records.damage), now_us=0).catalogue
