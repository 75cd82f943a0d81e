"""Tells protocols, which see no files, if all parts of a read are in memory."""

from braidlog.storage.log.file_part import all_in_memory as all_in_memory
