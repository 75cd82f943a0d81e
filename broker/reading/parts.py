"""Tells protocols, which see no files, whether all that a read returned is in memory."""

from braidlog.storage.log.file_part import all_in_memory as all_in_memory
