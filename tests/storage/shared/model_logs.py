"""Logs of the simulation: the part of `SharedLog` for rounds and packs, in memory.

A segment file is a head and records of sixteen bytes, an offset and a value.
"""

import struct
from dataclasses import dataclass

from braidlog.storage.shared.layout import SliceEntry
from braidlog.storage.shared.packer import Packer
from braidlog.storage.shared.points import SharedPoint, Slice

RECORD = struct.Struct("<QQ")
HEAD_BYTES = 64


@dataclass(eq=False)
class ModelSegment:
    """A segment of a model's log: its own bytes, or an earlier owner's pieces."""

    base_offset: int
    file: object
    size: int
    end_offset: int
    newest_append_us: int = 0
    taken_pos: int = 0
    taken_offset: int = 0
    published_pos: int = 0
    published_offset: int = 0
    packed_pos: int = 0
    packed_offset: int = 0


class ModelPacker(Packer):
    """Packs segments without an index."""

    def _index(self, segment):
        return b"index", None


class OwnFile:
    """A local segment file."""

    def __init__(self):
        self.data = bytearray(b"H" * HEAD_BYTES)

    def read_at(self, size, pos, *, wait=True):
        return bytes(self.data[pos : pos + size])


class PieceFile:
    """An earlier owner's segment."""

    def __init__(self, objects, pieces):
        self._objects, self.pieces = objects, pieces

    def read_at(self, size, pos, *, wait=True):
        data = b""
        for piece in self.pieces.overlapping(pos, size):
            first, last = max(pos, piece.file_pos), min(pos + size, piece.file_end)
            data += self._objects.get(
                piece.object, piece.object_pos + first - piece.file_pos, last - first
            )
        return data


class ModelLog:
    """The interface of `SharedLog` for a packer and a round."""

    def __init__(self, objects, pieces_of_log, number, shard):
        self.partition_id, self.shard = number, shard
        self.log_start_offset = pieces_of_log.log_start if pieces_of_log else 0
        self.log_end_offset = self.durable_offset = pieces_of_log.log_end if pieces_of_log else 0
        self.segments = []
        self.whole = set()
        for pieces in pieces_of_log.segments if pieces_of_log else ():
            file = PieceFile(objects, pieces)
            self.segments.append(ModelSegment(pieces.base, file, pieces.size, pieces.end_offset))
            if pieces.is_whole:
                self.whole.add(pieces.base)
        self.active = None
        self.tracks = {}

    def append(self, values, *, rolls):
        if self.active is None or (rolls and self.active.size > HEAD_BYTES):
            base = self.log_end_offset
            self.active = ModelSegment(base, OwnFile(), HEAD_BYTES, base)
            self.active.taken_offset = self.active.published_offset = base
            self.active.packed_offset = base
            self.segments.append(self.active)
            self.tracks[base] = self.active
        for value in values:
            self.active.file.data += RECORD.pack(self.log_end_offset, value)
            self.active.size += RECORD.size
            self.log_end_offset += 1
            self.active.end_offset = self.log_end_offset

    def point(self):
        slices = []
        for track in self.tracks.values():
            if track.size > max(track.taken_pos, HEAD_BYTES):
                offsets = track.taken_offset, track.end_offset
                slices.append(self._slice(track, track.taken_pos, track.size, offsets))
                track.taken_pos, track.taken_offset = track.size, track.end_offset
        return SharedPoint((), (), self.log_end_offset, slices)

    def _slice(self, track, start, end, offsets):
        entry = SliceEntry(
            self.shard, self.partition_id, track.base_offset, start, end - start, *offsets, 0, 0
        )
        return Slice(entry, track.file)

    def published(self, point):
        self.durable_offset = max(self.durable_offset, point.end_offset)
        for piece in point.slices:
            track = self.tracks.get(piece.entry.segment_base)
            if track is not None:
                track.published_pos = piece.entry.file_end
                track.published_offset = piece.entry.end_offset

    def segments_to_upload(self):
        return [
            (segment, segment.end_offset)
            for segment in self.segments
            if segment is not self.active
            and segment.base_offset not in self.whole
            and (segment.base_offset not in self.tracks or segment.published_pos == segment.size)
        ]

    def slices_to_pack(self):
        return [
            self._slice(
                track,
                track.packed_pos,
                track.published_pos,
                (track.packed_offset, track.published_offset),
            )
            for track in self.tracks.values()
            if track.published_pos > track.packed_pos
        ]

    def packed(self, entry):
        track = self.tracks.get(entry.segment_base)
        if track is not None:
            track.packed_pos, track.packed_offset = entry.file_end, entry.end_offset

    def repacked(self, base, pieces):
        for segment in self.segments:
            if segment.base_offset == base and isinstance(segment.file, PieceFile):
                segment.file.pieces = pieces

    def uploaded(self, segment, pieces):
        self.whole.add(segment.base_offset)
        self.tracks.pop(segment.base_offset, None)

    def retain(self, count):
        """Drop the oldest segments, of the durable records."""
        dropped = self.segments[:count]
        segments = self.segments[count:]
        if dropped and segments and segments[0].base_offset <= self.durable_offset:
            self.log_start_offset = segments[0].base_offset
            self.segments = segments
            for segment in dropped:
                self.tracks.pop(segment.base_offset, None)

    def purge(self):
        """Drop everything, if all records are durable."""
        if self.durable_offset == self.log_end_offset:
            self.log_start_offset = self.log_end_offset
            self.segments, self.tracks, self.active = [], {}, None
