"""R3, damage: truncated files and flipped bits in a whole directory; each damage must be found or
harmless.
"""

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from braidlog.storage.errors import DamagedLog, StorageError
from braidlog.storage.formats.api import BodyInfo
from braidlog.storage.formats.batch import Batch
from braidlog.storage.log.folder_reader import list_partitions, open_folder
from braidlog.storage.log.log import Log
from conformance.simulation.calls import TracedDisk
from conformance.simulation.facts import Facts, agreed, catalogue_state, cursor_state
from conformance.simulation.house import Shape, SimulatedBroker, done
from conformance.simulation.medium import Medium, MediumState
from conformance.simulation.scratch import empty, limited
from conformance.simulation.steps import BODY_FORMAT, RandomLives
from conformance.simulation.verify import Broken

# The end of the newest segment is cut at each byte of this range.
TAIL_BYTES = 64 * 1024
STEPS = 90
READ_BYTES = 1 << 20

REFUSED, REPORTED, MET, HARMLESS = "refused", "reported", "met", "harmless"


@dataclass(slots=True)
class SoundLog:
    """The state of a partition after an undamaged start."""

    start: int
    end: int
    shown: int  # acknowledged up to here: offsets above may never have been written
    batches: dict[int, tuple[int, int, bytes]] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Sound:
    """A directory before the damage, and the state after an undamaged start."""

    state: MediumState
    facts: Facts
    shape: Shape
    catalogue: tuple[object, ...] = ()
    cursors: object = None
    logs: dict[int, SoundLog] = field(default_factory=dict)


def random_directory(folder: str, seed: int) -> Sound:
    """Return the directory of a random workload, ended by a clean stop or a kill."""
    rng = random.Random(seed)
    shape = Shape(journal_factor=rng.choice((1, 1, 300)), segment_bytes=rng.choice((1500, 6000)))
    life = begun(folder, shape, rng)
    for _ in range(STEPS):
        life.step()
    return ended(life, folder, cleanly=rng.random() < 0.5)


def long_tailed_directory(folder: str, seed: int, *, cleanly: bool) -> Sound:
    """Return a directory with a single topic, and more than `TAIL_BYTES` in its only segment."""
    life = begun(folder, Shape(journal_factor=1, segment_bytes=1 << 20), random.Random(seed))
    topics = life.house.broker.topics
    name = topics.resolve_pulsar("tail")[0]
    life.do(lambda life: done(topics.create, name, 1).ticket)
    partition = topics.partition(name, 0)
    while partition.log.size_bytes < TAIL_BYTES + 2000:
        life.do(lambda life: life.append_to(partition))
        if life.rng.random() < 0.3:
            life.do(RandomLives.whole_round)
    return ended(life, folder, cleanly=cleanly)


def begun(folder: str, shape: Shape, rng: random.Random) -> RandomLives:
    """Return a workload over a new directory."""
    path = empty(os.path.join(folder, "sound"))
    disk = TracedDisk(path)
    return RandomLives(SimulatedBroker(path, disk, shape), disk, Facts(), shape, rng)


def ended(life: RandomLives, folder: str, *, cleanly: bool) -> Sound:
    """Return the workload's directory, and the state after a start there."""
    path = life.house.path
    if cleanly:
        life.settle()
        life.house.stop()
    else:
        life.house.kill()
    disk = TracedDisk(path)
    state = Medium.of(path, disk.names.numbers).pick(lambda path: True, lambda name: True)
    sound = Sound(state, life.facts, life.shape)
    house = SimulatedBroker(path, disk, life.shape)
    sound.catalogue = catalogue_state(house.broker.catalogue.state)
    sound.cursors = cursor_state(house.cursors)
    for partition_id, partition in house.partitions.items():
        log = partition.log
        shown = life.facts.log(partition_id).shown.last
        sound_log = SoundLog(log.log_start_offset, log.log_end_offset, shown)
        sound.logs[partition_id] = sound_log
        for batch in all_batches(log):
            sound_log.batches[batch.base_offset] = content_of(batch)
            time_us = batch.header.append_us
            sound_log.times[time_us] = log.offset_at_or_after(time_us)
    house.kill()
    return sound


def all_batches(log: Log) -> Iterator[Batch]:
    """Yield every batch of a log. Raises DamagedLog."""
    offset = log.log_start_offset
    while batches := log.read(offset, READ_BYTES):
        yield from batches
        offset = batches[-1].next_offset


def content_of(batch: Batch) -> tuple[int, int, bytes]:
    """Return the fields of a batch that must be right."""
    return batch.next_offset, batch.header.flags, bytes(batch.body)


def judge(sound: Sound, state: MediumState, folder: str) -> str:
    """Open a damaged directory; return the kind of detection, or that the damage was harmless.

    Raises Broken, and any error that should not have been raised.
    """
    path = empty(os.path.join(folder, "damaged"))
    state.write(path)
    with limited():
        outside = read_outside(sound, path)
        try:
            house = SimulatedBroker(path, TracedDisk(path), sound.shape)
        except StorageError as error:
            if path not in str(error) and "catalogue" not in str(error):
                raise Broken(f"the refusal names no file: {error}") from error
            return REFUSED
        try:
            return max(outside, judge_house(sound, house), key=(HARMLESS, MET, REPORTED).index)
        finally:
            house.kill()


def read_outside(sound: Sound, path: str) -> str:
    """Read all partitions without a broker. Raises Broken for a wrong record."""
    result = HARMLESS
    for partition in list_partitions(path):
        known = sound.logs.get(partition.partition_id)
        if known is None:
            continue  # Of a deleted topic.
        with open_folder(partition.folder) as log:
            try:
                for batch in log.batches(log.log_start_offset):
                    check_batch(batch, known)
            except StorageError:
                result = MET
    return result


def check_batch(batch: Batch, known: SoundLog) -> None:
    """Check that a batch is unchanged; batches below the log start may reappear."""
    expected = known.batches.get(batch.base_offset)
    if expected != content_of(batch) and batch.base_offset >= known.start:
        raise Broken(f"batch {batch.base_offset} is {content_of(batch)}, was {expected}")


def judge_house(sound: Sound, house: SimulatedBroker) -> str:
    """Return how a started broker handles the damage."""
    result = HARMLESS
    catalogue, cursors = catalogue_state(house.broker.catalogue.state), cursor_state(house.cursors)
    if catalogue != sound.catalogue or cursors != sound.cursors:
        if all(report.is_clean for report in house.journal_reports):
            raise Broken(f"catalogue or cursors changed in silence: {catalogue} {cursors}")
        if catalogue not in sound.facts.catalogue.states:
            raise Broken(f"catalogue never was {catalogue}")
        if cursors not in [agreed(state, catalogue) for state in sound.facts.cursors.states]:
            raise Broken(f"cursors never were {cursors}")
        result = REPORTED
    for partition_id, partition in house.partitions.items():
        known = sound.logs.get(partition_id)
        if known is not None:
            judged = judge_log(known, partition.log, house)
            result = max(judged, result, key=(HARMLESS, MET, REPORTED).index)
    return result


def judge_log(known: SoundLog, log: Log, house: SimulatedBroker) -> str:
    """Return how a log handles the damage."""
    result = REPORTED if log.recovery.cuts or log.recovery.damages else HARMLESS
    if log.recovery.gap == (known.end, log.log_end_offset):
        result = REPORTED  # The newer slot of the reservation is damaged: the older slot counts.
    elif log.log_end_offset > known.end:
        raise Broken(f"log ends at {log.log_end_offset}, was {known}")
    if log.log_start_offset > known.start:
        raise Broken(f"log begins at {log.log_start_offset}, was {known}")
    if log.log_end_offset < known.shown and not (log.recovery.cuts or log.recovery.damages):
        raise Broken(f"it ends in silence at {log.log_end_offset}, acknowledged were {known.shown}")
    met = False
    for base in known.batches:
        if base < log.log_end_offset:
            try:
                check_found(log, log.read(base, 0)[0], known)
            except DamagedLog:
                met = True
    try:
        for batch in all_batches(log):
            check_found(log, batch, known)
    except DamagedLog:
        met = True
    for time_us, offset in known.times.items():
        try:
            offset_at_time = log.offset_at_or_after(time_us)
        except DamagedLog:
            met = True
        else:
            expected = min(offset, log.log_end_offset)
            if offset_at_time != expected and not met and result == HARMLESS:
                raise Broken(f"time {time_us} is at {offset_at_time}, not {expected}")
    try_append(log, house)
    return MET if met and result == HARMLESS else result


def check_found(log: Log, batch: Batch, known: SoundLog) -> None:
    """Check that a batch is unchanged, or a reported gap: behind a cut, or behind all batches."""
    gap = log.recovery.gap
    may_follow = log.recovery.cuts or (gap and gap[0] == known.end)
    if not (may_follow and gap and gap[0] <= batch.base_offset):
        check_batch(batch, known)


def try_append(log: Log, house: SimulatedBroker) -> None:
    """Append another batch: the log stores the batch, or refuses clearly."""
    end = log.log_end_offset
    try:
        base = log.append([b"new"], BodyInfo(1), body_format=BODY_FORMAT, append_us=1)
    except DamagedLog:
        if not log.recovery.damages:
            raise Broken("appends are refused, and no damage is reported") from None
        return
    house.broker.committer.commit()
    if base != end or bytes(log.read(base, 0)[0].body) != b"new":
        raise Broken(f"a new batch went to {base}, not {end}, or reads otherwise")


def cut_short(sound: Sound, bytes_off: int) -> MediumState:
    """Return the directory with that many bytes cut off the newest segment of partition 1."""
    logs = [path for path in sound.state.files if path.startswith("partitions/1/")]
    path = max(name for name in logs if name.endswith(".log"))
    content = sound.state.files[path]
    return changed(sound.state, path, content[: len(content) - bytes_off])


def with_a_flip(sound: Sound, rng: random.Random) -> tuple[MediumState, str]:
    """Return the directory with a flipped bit in a file, and the place of the bit."""
    files = sorted(path for path, content in sound.state.files.items() if content)
    path = rng.choice(files)
    content = bytearray(sound.state.files[path])
    pos, bit = rng.randrange(len(content)), rng.randrange(8)
    content[pos] ^= 1 << bit
    return changed(sound.state, path, bytes(content)), f"bit {bit} of byte {pos} of {path}"


def changed(state: MediumState, path: str, content: bytes) -> MediumState:
    """Return the directory with another content of a file."""
    return MediumState(state.folders, {**state.files, path: content})


def flips(seed: int, folder: str, count: int) -> Iterator[str | None]:
    """Yield the faults after each of `count` single flipped bits in a directory of that seed."""
    sound = random_directory(folder, seed)
    rng = random.Random(seed)
    for _ in range(count):
        state, where = with_a_flip(sound, rng)
        yield judged(sound, state, folder, where)


def truncations(seed: int, folder: str, cuts: range) -> Iterator[str | None]:
    """Yield the faults after each of these numbers of bytes is cut off the end of a log.

    The log ended with a clean stop for an even seed, else with a kill.
    """
    sound = long_tailed_directory(folder, seed, cleanly=seed % 2 == 0)
    for bytes_off in cuts:
        yield judged(sound, cut_short(sound, bytes_off), folder, f"{bytes_off} bytes cut off")


def judged(sound: Sound, state: MediumState, folder: str, where: str) -> str | None:
    """Return the fault of a damaged directory, or None."""
    try:
        judge(sound, state, folder)
    except Exception as error:
        return f"{where}: {type(error).__name__}: {error}"
    return None
