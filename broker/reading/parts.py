"""For protocols, which see no files: whether what a read gave is in memory."""

from storage.log.file_part import all_in_memory as all_in_memory
