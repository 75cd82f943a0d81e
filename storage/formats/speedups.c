/* The loops over bytes that cost the most, in C. Optional: where it is not built, Python does it all.
 *
 * Every function does what a Python function beside it does for what is in order, and gives None for
 * everything else, which it then leaves to Python with its errors. It knows bytes only: no topic, no
 * connection, no clock. All lengths come from clients and are checked before they are used.
 */

#define _DEFAULT_SOURCE /* pwritev */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#include "checksums.h"

/* Numbers in bytes. */
static inline uint32_t be32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline uint8_t *put(uint8_t *to, const void *at, Py_ssize_t size) {
    memcpy(to, at, (size_t)size);
    return to + size;
}

static inline void put_be32(uint8_t *at, uint32_t value) {
    put_le(at, __builtin_bswap32(value), 4);
}

static int is_ascii(const uint8_t *at, Py_ssize_t size) {
    uint8_t all = 0;
    while (size-- > 0)
        all |= at[size];
    return all < 0x80;
}

/* Kafka sets of format 0: `kafka/set_prepare.py`. An entry: offset 8, size 4, crc 4, magic 1,
 * attributes 1, key size 4, key, value size 4, value. */
enum { KAFKA_MESSAGE_MIN = 14, KAFKA_ENTRY_MIN = 26, KAFKA_CODEC_BITS = 7 };

typedef struct {
    const uint8_t *key, *value;
    int32_t key_size, value_size;
    long long offset;
} Message;

/* One step over a set. 0: at its end, or something else than a plain message is there. */
static int next_message(const uint8_t *at, Py_ssize_t *pos, Py_ssize_t end, Message *message) {
    const uint8_t *entry = at + *pos;
    if (end - *pos < KAFKA_ENTRY_MIN)
        return 0;
    Py_ssize_t whole = (Py_ssize_t)(int32_t)be32(entry + 8) + 12;
    if (whole < KAFKA_ENTRY_MIN || whole > end - *pos || entry[16] || entry[17] & KAFKA_CODEC_BITS)
        return 0;
    Py_ssize_t key_size = (int32_t)be32(entry + 18);
    Py_ssize_t value_pos = 22 + (key_size > 0 ? key_size : 0);
    if (key_size < -1 || value_pos + 4 > whole)
        return 0;
    message->value_size = (int32_t)be32(entry + value_pos);
    if (message->value_size < -1
        || value_pos + 4 + (message->value_size > 0 ? message->value_size : 0) != whole)
        return 0;
    message->offset = (long long)((uint64_t)be32(entry) << 32 | be32(entry + 4));
    message->key = entry + 22;
    message->key_size = (int32_t)key_size;
    message->value = entry + value_pos + 4;
    *pos += whole;
    return 1;
}

static Py_ssize_t message_bytes(const Message *message) {
    return KAFKA_ENTRY_MIN + (message->key_size > 0 ? message->key_size : 0)
        + (message->value_size > 0 ? message->value_size : 0);
}

static uint8_t *put_sized(uint8_t *to, const uint8_t *at, int32_t size) {
    put_be32(to, (uint32_t)size);
    return size > 0 ? put(to + 4, at, size) : to + 4;
}

/* Write a message; `to` has room for KAFKA_ENTRY_MIN bytes besides key and value. Returns its end. */
static uint8_t *put_message(uint8_t *to, const Message *message) {
    uint8_t *end = put_sized(to + 18, message->key, message->key_size);
    end = put_sized(end, message->value, message->value_size);
    put_le(to, __builtin_bswap64((uint64_t)message->offset), 8);
    put_be32(to + 8, (uint32_t)(end - to) - 12);
    to[16] = to[17] = 0;
    put_be32(to + 12, crc32_of(to + 16, (size_t)(end - to) - 16));
    return end;
}

/* (set, base offset, bytes of an entry at most) -> (count, end, is compressed) or None. */
static PyObject *kafka_check_and_stamp(PyObject *self, PyObject *args) {
    Py_buffer view;
    unsigned long long base_offset;
    Py_ssize_t bytes_max, pos = 0, count = 0;
    int is_sound = 1, is_compressed = 0;
    Message message;
    if (!PyArg_ParseTuple(args, "w*Kn", &view, &base_offset, &bytes_max))
        return NULL;
    while (is_sound && view.len - pos >= 12) {
        uint8_t *entry = (uint8_t *)view.buf + pos;
        Py_ssize_t size = (int32_t)be32(entry + 8), whole = size + 12;
        if (size >= KAFKA_MESSAGE_MIN && whole > view.len - pos)
            break; /* The last one is cut off, as a client may. */
        is_sound = size >= KAFKA_MESSAGE_MIN && whole <= bytes_max && entry[16] == 0
            && crc32_of(entry + 16, (size_t)size - 4) == be32(entry + 12);
        is_compressed = is_sound && entry[17] & KAFKA_CODEC_BITS;
        if (is_compressed)
            break;
        is_sound = is_sound && next_message(view.buf, &pos, view.len, &message);
        if (is_sound)
            put_le(entry, __builtin_bswap64(base_offset + (uint64_t)count++), 8);
    }
    PyBuffer_Release(&view);
    if (!is_sound)
        Py_RETURN_NONE;
    return is_compressed ? Py_BuildValue("iiO", 0, 0, Py_True) : Py_BuildValue("nnO", count, pos, Py_False);
}

/* Pulsar SENDs: `protocols/pulsar/sending.py` and `pulsar.py`. A frame: size 4, command size 4,
 * command, 0e01, crc32c 4, metadata size 4, metadata, payload. Stored: size 4, delta 4, count 4 (little
 * endian), then what follows the command. */
enum {
    SEND_HEAD = 12, CHECKED_MIN = 10, PREFIX = 12, VARINT_BYTES_MAX = 9, SHORT_MAX = 127,
    JOINED_ENTRY_BYTES = 4096, /* As in `pulsar/prepare.py`. */
    SEND_RECEIPT = 7, /* The type of the command, and the number of its field. */
};

typedef struct {
    uint64_t producer_id, sequence_id;
    long long publish_ms; /* -1: none */
    Py_ssize_t rest_size, frame_size; /* of what follows the command, of all of it */
} Send;

/* A varint of at most 63 bits at *at, which moves behind it; 0 where there is none. */
static int varint(const uint8_t **at, const uint8_t *end, uint64_t *value) {
    uint64_t result = 0;
    for (int i = 0; i < VARINT_BYTES_MAX && *at < end; i++) {
        uint8_t byte = *(*at)++;
        result |= (uint64_t)(byte & 0x7f) << 7 * i;
        if (byte < 0x80) {
            *value = result;
            return 1;
        }
    }
    return 0;
}

static uint8_t *put_varint(uint8_t *to, uint64_t value) {
    for (; value > 0x7f; value >>= 7)
        *to++ = (uint8_t)(value | 0x80);
    *to++ = (uint8_t)value;
    return to;
}

/* A field of a message: a number, or so many bytes. 0: another kind, or none. */
typedef struct {
    uint64_t tag, value;
    const uint8_t *start;
} Field;

static int next_field(const uint8_t **at, const uint8_t *end, Field *field) {
    if (!varint(at, end, &field->tag) || field->tag & 5 || field->tag < 8 || field->tag >> 32
        || !varint(at, end, &field->value))
        return 0;
    int has_bytes = (field->tag & 7) == 2;
    field->start = *at;
    if (has_bytes && field->value > (uint64_t)(end - *at))
        return 0;
    *at += has_bytes ? field->value : 0;
    return 1;
}

#define NUMBER(field) ((field) << 3)
#define BYTES(field) ((field) << 3 | 2)

/* Put a field with a number. */
static uint8_t *put_number(uint8_t *to, int field, uint64_t value) {
    *to = (uint8_t)NUMBER(field);
    return put_varint(to + 1, value);
}

/* What else is in the metadata of an ordinary message, neither compressed nor in pieces nor delayed. */
static const uint8_t is_ordinary[256] = {
    [BYTES(1)] = 1, [BYTES(6)] = 1, [BYTES(16)] = 1, [BYTES(18)] = 1, /* producer, key, schema, ordering key */
    [NUMBER(2)] = 1, [NUMBER(24)] = 1, [NUMBER(9)] = 1, [NUMBER(12)] = 1, /* sequences, size, event time */
    [NUMBER(17)] = 1, [NUMBER(25)] = 1, [NUMBER(30)] = 1, /* key is base64, value is null, key is null */
};
enum { PUBLISH_TIME = NUMBER(3), PROPERTIES = BYTES(4) };

/* Whether a property has a key and a value, once each and nothing else. */
static int is_property(const uint8_t *at, uint64_t size) {
    const uint8_t *end = at + size;
    Field key, value;
    return next_field(&at, end, &key) && key.tag == BYTES(1) && next_field(&at, end, &value)
        && value.tag == BYTES(2) && at == end;
}

static int plain_metadata(const uint8_t *at, const uint8_t *end, Send *send) {
    Field field;
    send->publish_ms = -1;
    while (at < end) {
        if (!next_field(&at, end, &field))
            return 0;
        if (field.tag == PUBLISH_TIME)
            send->publish_ms = (long long)field.value;
        else if (field.tag == PROPERTIES ? !is_property(field.start, field.value)
                                         : field.tag > 255 || !is_ordinary[field.tag])
            return 0;
        if (send->publish_ms >> 53 > 0)
            return 0;
    }
    return 1;
}

/* What keys and values need of the metadata of an entry, and of a message in a batch. */
enum { KEY, IS_BASE64, ORDERING_KEY, IS_NULL, HAS_NO_KEY, IN_BATCH, IS_GONE = IN_BATCH, SIZE, WANTED };
static const uint8_t of_entry[WANTED] = {BYTES(6), NUMBER(17), BYTES(18), NUMBER(25), NUMBER(30), NUMBER(11)};
static const uint8_t of_single[WANTED] = {BYTES(2), NUMBER(6), BYTES(7), NUMBER(9), NUMBER(10), NUMBER(4), NUMBER(3)};

/* The last field with each of these tags, all 0 where there is none. 0: some field is not plain. */
static int find_fields(const uint8_t *at, const uint8_t *end, const uint8_t tags[], Field found[]) {
    Field field;
    memset(found, 0, WANTED * sizeof *found);
    while (at < end) {
        if (!next_field(&at, end, &field))
            return 0;
        for (int i = 0; i < WANTED; i++)
            if (field.tag == tags[i] && field.tag)
                found[i] = field;
    }
    return 1;
}

/* Look into an entry with a checksum. Gives its payload, NULL where it is not plain. */
static const uint8_t *open_entry(const uint8_t *at, Py_ssize_t size, Field found[]) {
    if (size < CHECKED_MIN || at[0] != 0x0e || at[1] != 0x01 || be32(at + 6) > size - CHECKED_MIN)
        return NULL;
    const uint8_t *payload = at + CHECKED_MIN + be32(at + 6);
    return find_fields(at + CHECKED_MIN, payload, of_entry, found) ? payload : NULL;
}

/* entry_key(entry) -> key or None: `sticky_key` of broker/reading/entries.py. */
static PyObject *entry_key(PyObject *self, PyObject *entry) {
    Py_buffer view;
    Field found[WANTED], *key = found + KEY;
    if (PyObject_GetBuffer(entry, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    int is_plain = open_entry(view.buf, view.len, found) != NULL;
    if (is_plain && found[ORDERING_KEY].tag)
        key = found + ORDERING_KEY;
    else
        is_plain = is_plain && key->tag && !found[IS_BASE64].value;
    PyObject *result = !is_plain ? Py_NewRef(Py_None)
        : PyBytes_FromStringAndSize((const char *)key->start, (Py_ssize_t)key->value);
    PyBuffer_Release(&view);
    return result;
}

/* The next message of an entry, or of the batch in it, at *at, which moves behind it. 0: Python has to look. */
static int next_in_entry(int is_batch, const uint8_t **at, const uint8_t *end, Field found[], Message *message) {
    uint64_t size = (uint64_t)(end - *at);
    if (is_batch) {
        uint64_t left = size < 4 ? 0 : size - 4, metadata = left ? be32(*at) : 1;
        if (metadata > left || !find_fields(*at + 4, *at + 4 + metadata, of_single, found)
            || !found[SIZE].tag || found[SIZE].value > left - metadata)
            return 0;
        *at += 4 + metadata;
        size = found[SIZE].value;
    }
    int has_key = found[KEY].tag && !found[HAS_NO_KEY].value;
    message->key = found[KEY].start;
    message->key_size = has_key ? (int32_t)found[KEY].value : -1;
    message->value = *at;
    message->value_size = found[IS_NULL].value ? -1 : (int32_t)size;
    *at += size;
    return !has_key || !found[IS_BASE64].value;
}

/* Write messages of stored entries as a set of format 0: (entries, base offset, start offset, count at most, set)
 * -> (bytes, count, first offset, next offset, whether the next had no room). It ends before an entry that Python
 * has to look at. */
static PyObject *pulsar_to_set(PyObject *self, PyObject *args) {
    Py_buffer view, set;
    unsigned long long base, start, first = 0, next = 0;
    Py_ssize_t count_max, count = 0, where = 0;
    int is_full = 0;
    if (!PyArg_ParseTuple(args, "y*KKnw*", &view, &base, &start, &count_max, &set))
        return NULL;
    for (const uint8_t *entry = view.buf, *stop = entry + view.len, *end; stop - entry >= PREFIX; entry = end) {
        Field found[WANTED];
        Message message;
        Py_ssize_t size = le32(entry), done = count, place = where;
        uint64_t offset = base + le32(entry + 4), left = le32(entry + 8);
        end = entry + PREFIX + size;
        if (size <= stop - entry - PREFIX && offset + left <= start)
            continue;
        const uint8_t *at = size > stop - entry - PREFIX ? NULL : open_entry(entry + PREFIX, size, found);
        int is_batch = at != NULL && found[IN_BATCH].tag;
        int is_sound = at != NULL && left == (is_batch ? found[IN_BATCH].value : 1);
        for (; is_sound && left; left--, offset++) {
            is_sound = next_in_entry(is_batch, &at, end, found, &message);
            if (!is_sound || offset < start || found[IS_GONE].value)
                continue;
            is_full = count == count_max || message_bytes(&message) > set.len - where;
            if (is_full)
                break;
            message.offset = (long long)offset;
            where = put_message((uint8_t *)set.buf + where, &message) - (uint8_t *)set.buf;
            first = count++ ? first : offset;
        }
        if (!is_sound || (!is_full && at != end)) {
            count = done;
            where = place;
            break;
        }
        next = offset;
        if (is_full)
            break;
    }
    PyBuffer_Release(&view);
    PyBuffer_Release(&set);
    return Py_BuildValue("nnKKN", where, count, first, next, PyBool_FromLong(is_full));
}

/* chain(body, head, least, is_big, is_cut) -> bytes of an int64 for the start of each whole entry, or None where
 * they do not end with the body, unless it is cut: the walks of storage/formats/kafka/set_columns.py and plain.py. Each
 * is `head` bytes, the last four of them a size of `least` or more, and as many as that says. */
static PyObject *chain(PyObject *self, PyObject *args) {
    Py_buffer body;
    Py_ssize_t head, pos, count;
    unsigned int least;
    int is_big, is_cut = 0;
    PyObject *found = NULL;
    if (!PyArg_ParseTuple(args, "y*nIp|p", &body, &head, &least, &is_big, &is_cut))
        return NULL;
    do { /* First they are counted, then their starts are noted. */
        for (pos = count = 0; head >= 4 && body.len - pos >= head; count++) {
            const uint8_t *size_at = (const uint8_t *)body.buf + pos + head - 4;
            uint32_t more = is_big ? be32(size_at) : le32(size_at);
            if (more < least || more > (uint64_t)(body.len - pos - head))
                break;
            if (found != NULL)
                ((int64_t *)PyBytes_AsString(found))[count] = pos;
            pos += head + more;
        }
    } while ((is_cut || pos == body.len) && found == NULL
             && (found = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(int64_t))) != NULL);
    PyBuffer_Release(&body);
    return found != NULL || PyErr_Occurred() ? found : Py_NewRef(Py_None);
}

/* The SEND that begins here, if it is whole and its command in order. Gives its entry, NULL for another frame. */
static const uint8_t *send_entry(const uint8_t *at, Py_ssize_t left, Py_ssize_t total_max, Py_ssize_t entry_max,
                                 Send *send) {
    Field producer, sequence, messages;
    if (left < SEND_HEAD)
        return NULL;
    Py_ssize_t total = be32(at), command = be32(at + 4), size = at[11];
    if (at[8] != 0x08 || at[9] != 0x06 || at[10] != 0x32 || size >= 0x80 || command != size + 4
        || total > total_max || total + 4 > left || SEND_HEAD + size >= total + 4)
        return NULL;
    const uint8_t *field = at + SEND_HEAD, *end = field + size;
    if (!next_field(&field, end, &producer) || producer.tag != NUMBER(1)
        || !next_field(&field, end, &sequence) || sequence.tag != NUMBER(2))
        return NULL;
    if (field < end && (!next_field(&field, end, &messages) || messages.tag != NUMBER(3) || field != end))
        return NULL;
    send->producer_id = producer.value;
    send->sequence_id = sequence.value;
    send->rest_size = total + 4 - SEND_HEAD - size;
    send->frame_size = total + 4;
    return send->rest_size > entry_max ? NULL : end;
}

/* Whether the entry has its checksum, and the metadata of a plain message. */
static int is_plain_entry(const uint8_t *at, Py_ssize_t size, Send *send) {
    if (size < CHECKED_MIN)
        return 0;
    Py_ssize_t metadata = be32(at + 6);
    if (at[0] != 0x0e || at[1] != 0x01 || metadata > size - CHECKED_MIN
        || crc32c_of(at + 6, (size_t)size - 6) != be32(at + 2))
        return 0;
    return plain_metadata(at + CHECKED_MIN, at + CHECKED_MIN + metadata, send);
}

/* The SEND that begins here, if it is whole, in order and of the plain kind. */
static int plain_send(const uint8_t *at, Py_ssize_t left, Py_ssize_t total_max,
                      Py_ssize_t entry_max, Send *send) {
    const uint8_t *entry = send_entry(at, left, total_max, entry_max, send);
    return entry != NULL && is_plain_entry(entry, send->rest_size, send);
}

/* single_send(received, bytes of a frame at most, of an entry at most) -> (producer, sequence, place of the entry) of
 * the SEND that fills the buffer; None for all else. The entry is not checked. */
static PyObject *single_send(PyObject *self, PyObject *args) {
    Py_buffer view;
    Py_ssize_t total_max, entry_max;
    Send send;
    if (!PyArg_ParseTuple(args, "y*nn", &view, &total_max, &entry_max))
        return NULL;
    const uint8_t *entry = send_entry(view.buf, view.len, total_max, entry_max, &send);
    int is_single = entry != NULL && send.frame_size == view.len;
    Py_ssize_t place = is_single ? entry - (const uint8_t *)view.buf : 0;
    PyBuffer_Release(&view);
    if (!is_single)
        Py_RETURN_NONE;
    return Py_BuildValue("KKn", send.producer_id, send.sequence_id, place);
}

/* pulsar_receipt(producer, sequence, ledger, entry, highest sequence) -> the frame of a SEND_RECEIPT: `ReceiptWriter`
 * of protocols/pulsar/messages.py. */
static PyObject *pulsar_receipt(PyObject *self, PyObject *args) {
    enum { NUMBER_MAX = 1 + 10, FRAME_HEAD = 8, COMMAND_HEAD = 4 };
    unsigned long long producer, sequence, ledger, entry, highest;
    uint8_t place[2 * NUMBER_MAX], frame[FRAME_HEAD + COMMAND_HEAD + 3 * NUMBER_MAX + 2 + sizeof place];
    if (!PyArg_ParseTuple(args, "KKKKK", &producer, &sequence, &ledger, &entry, &highest))
        return NULL;
    Py_ssize_t place_size = put_number(put_number(place, 1, ledger), 2, entry) - place;
    uint8_t *fields = frame + FRAME_HEAD + COMMAND_HEAD, *to = put_number(put_number(fields, 1, producer), 2, sequence);
    *to++ = BYTES(3);
    *to++ = (uint8_t)place_size;
    to = put_number(put(to, place, place_size), 4, highest);
    const uint8_t command[COMMAND_HEAD] = {NUMBER(1), SEND_RECEIPT, BYTES(SEND_RECEIPT), (uint8_t)(to - fields)};
    put(frame + FRAME_HEAD, command, COMMAND_HEAD);
    put_be32(frame, (uint32_t)(to - frame - 4));
    put_be32(frame + 4, (uint32_t)(to - frame - FRAME_HEAD));
    return PyBytes_FromStringAndSize((const char *)frame, to - frame);
}

static PyObject *send_producer(PyObject *self, PyObject *args) {
    Py_buffer view;
    Py_ssize_t total_max, entry_max;
    Send send;
    if (!PyArg_ParseTuple(args, "y*nn", &view, &total_max, &entry_max))
        return NULL;
    int is_plain = plain_send(view.buf, view.len, total_max, entry_max, &send);
    PyBuffer_Release(&view);
    return is_plain ? PyLong_FromUnsignedLongLong(send.producer_id) : Py_NewRef(Py_None);
}

/* The plain SENDs of one producer at the front: bytes taken, what was sent (sequence, `none`, delta, None), stored
 * entries, publish time of the first and the latest that have one, in ms (-1: none). */
static PyObject *cut_sends(PyObject *self, PyObject *args) {
    Py_buffer view;
    Py_ssize_t frames_max, total_max, entry_max, pos = 0, stored = 0;
    unsigned long long producer_id;
    unsigned int delta;
    long long first_ms = -1, latest_ms = -1;
    PyObject *none, *body = NULL;
    Send send;
    if (!PyArg_ParseTuple(args, "y*nnnKIO", &view, &frames_max, &total_max, &entry_max, &producer_id, &delta, &none))
        return NULL;
    PyObject *sent = PyList_New(0);
    while (sent != NULL && frames_max-- > 0
           && plain_send((uint8_t *)view.buf + pos, view.len - pos, total_max, entry_max, &send)
           && send.producer_id == producer_id) {
        PyObject *one = Py_BuildValue("KOIO", send.sequence_id, none, delta++, Py_None);
        if (one == NULL || PyList_Append(sent, one) < 0)
            Py_CLEAR(sent);
        Py_XDECREF(one);
        first_ms = first_ms < 0 ? send.publish_ms : first_ms;
        latest_ms = send.publish_ms > latest_ms ? send.publish_ms : latest_ms;
        stored += PREFIX + send.rest_size;
        pos += send.frame_size;
    }
    if (sent != NULL && (body = PyBytes_FromStringAndSize(NULL, stored)) != NULL) {
        uint8_t *to = (uint8_t *)PyBytes_AsString(body);
        delta -= (unsigned int)PyList_Size(sent);
        for (const uint8_t *at = view.buf, *end = at + pos; at < end; at += be32(at) + 4) {
            Py_ssize_t rest = (Py_ssize_t)be32(at) + 4 - SEND_HEAD - at[11];
            put_le(to, (uint64_t)rest, 4);
            put_le(to + 4, delta++, 4);
            put_le(to + 8, 1, 4);
            to = put(to + PREFIX, at + SEND_HEAD + at[11], rest);
        }
    }
    PyBuffer_Release(&view);
    if (body == NULL)
        Py_CLEAR(sent);
    return sent == NULL ? NULL : Py_BuildValue("nNNLL", pos, sent, body, first_ms, latest_ms);
}

/* The messages from a start offset on as Pulsar entries: (set, start offset, count at most, metadata before the
 * sequence id, metadata after it) -> entries, which have one offset after the other. It ends before what Python
 * has to look at. */
static PyObject *set_to_entries(PyObject *self, PyObject *args) {
    Py_buffer set;
    long long start;
    const char *before, *after;
    Py_ssize_t count_max, before_size, after_size, pos = 0;
    Message message;
    if (!PyArg_ParseTuple(args, "y*Lny#y#", &set, &start, &count_max, &before, &before_size, &after, &after_size))
        return NULL;
    PyObject *entries = PyList_New(0);
    while (entries != NULL && start >= 0 && count_max > 0 && next_message(set.buf, &pos, set.len, &message)) {
        uint8_t sequence[VARINT_BYTES_MAX], key[] = {BYTES(6), (uint8_t)message.key_size};
        if (message.offset < start)
            continue;
        if (message.offset != start || message.value_size < 0 || message.key_size > SHORT_MAX
            || !is_ascii(message.key, message.key_size))
            break;
        int has_key = message.key_size >= 0;
        Py_ssize_t sequence_size = put_varint(sequence, (uint64_t)message.offset) - sequence;
        Py_ssize_t metadata = before_size + sequence_size + after_size + (has_key ? 2 + message.key_size : 3);
        Py_ssize_t size = CHECKED_MIN + metadata + message.value_size;
        PyObject *entry = PyBytes_FromStringAndSize(NULL, size);
        if (entry != NULL) {
            uint8_t *at = (uint8_t *)PyBytes_AsString(entry), *to = put(at + CHECKED_MIN, before, before_size);
            to = put(put(to, sequence, sequence_size), after, after_size);
            /* Field 30, null_partition_key, says that there is none. */
            to = has_key ? put(put(to, key, 2), message.key, message.key_size) : put(to, "\xf0\1\1", 3);
            put(to, message.value, message.value_size);
            put_be32(at + 6, (uint32_t)metadata);
            put_be32(put(at, "\x0e\x01", 2), crc32c_of(at + 6, (size_t)size - 6));
        }
        if (entry == NULL || PyList_Append(entries, entry) < 0)
            Py_CLEAR(entries);
        Py_XDECREF(entry);
        count_max--;
        start++;
    }
    PyBuffer_Release(&set);
    return entries;
}

/* Iggy's messages: `iggy/classic.py`, `iggy/typed.py`, `iggy/forms.py`. In the older forms, as sent and as stored,
 * a head ends with the headers' length, and the headers, the payload's length and the payload follow; in
 * the later ones, as stored and as a batch has them, a head ends with both lengths and eight zeros, and
 * payload and headers follow. The same numbers as `Form` in `iggy/quick.py`. */
enum form { SENT, CLASSIC, TYPED, FRAME, KAFKA_SET };

/* Bytes of a head, both lengths included, and where in it those begin. */
static const int head_bytes[] = {24, 45, 64, 48}, lengths_at[] = {16, 37, 48, 32};

enum { ID_BYTES = 16, TEXT_MAX = 255, KIND_MAX = 15, STRING_KIND = 2, HEADER_MIN = 9 };
static const uint8_t no_id[ID_BYTES];

typedef struct {
    const uint8_t *id, *headers, *payload;
    Py_ssize_t headers_size, payload_size, header_count, values; /* `values`: bytes of the headers' */
    int has_kinds; /* of the headers' names, before each */
    uint64_t offset, append_us, sent_us;
} Record;

/* One step over messages. 0: at their end, or they are cut short. */
static int next_record(enum form form, const uint8_t *at, Py_ssize_t *pos, Py_ssize_t end, Record *record) {
    const uint8_t *head = at + *pos, *lengths = head + lengths_at[form];
    Py_ssize_t left = end - *pos - head_bytes[form];
    memset(record, 0, sizeof *record);
    if (left < 0 || (record->headers_size = le32(lengths)) > left)
        return 0;
    record->has_kinds = form >= TYPED;
    Py_ssize_t old_headers = record->has_kinds ? 0 : record->headers_size;
    record->payload_size = le32(lengths + 4 + old_headers);
    if (record->payload_size > left - record->headers_size)
        return 0;
    record->payload = record->has_kinds ? head + head_bytes[form] : lengths + 8 + old_headers;
    record->headers = record->has_kinds ? record->payload + record->payload_size : lengths + 4;
    record->id = head + (form == SENT ? 0 : form == CLASSIC ? 17 : 8);
    if (form == FRAME) {
        record->offset = le32(head + 24);
        record->sent_us = le32(head + 28);
    } else if (form != SENT) {
        record->offset = le64(form == TYPED ? head + 24 : head);
        record->append_us = le64(form == TYPED ? head + 32 : head + 9);
        record->sent_us = form == TYPED ? le64(head + 40) : record->append_us;
    }
    *pos += head_bytes[form] + record->headers_size + record->payload_size;
    return 1;
}

/* Count the headers. 0: Python has to look at them, for one is wrong, or a text is not ASCII, or the form
 * that they go to has no place for one (`is_moved`: it is of the other kind). */
static int count_headers(Record *record, int is_moved) {
    const uint8_t *at = record->headers, *end = at + record->headers_size;
    record->header_count = record->values = 0;
    for (; at < end; record->header_count++) {
        Py_ssize_t left = end - at - HEADER_MIN - record->has_kinds;
        if (left < 0)
            return 0;
        if (record->has_kinds && (is_moved ? *at != STRING_KIND : *at < 1 || *at > KIND_MAX))
            return 0;
        at += record->has_kinds;
        Py_ssize_t name = le32(at);
        if (name < 1 || name > TEXT_MAX || name > left || !is_ascii(at + 4, name))
            return 0;
        at += 4 + name;
        Py_ssize_t value = le32(at + 1);
        if (*at < 1 || *at > KIND_MAX || value < 1 || value > TEXT_MAX || value > left - name)
            return 0;
        if (is_moved && *at == STRING_KIND && !is_ascii(at + 5, value))
            return 0;
        record->values += value;
        at += 5 + value;
    }
    return 1;
}

/* Headers that were counted, in a form with kinds of names or without. */
static uint8_t *put_headers(uint8_t *to, const Record *record, int with_kinds) {
    const uint8_t *at = record->headers, *end = at + record->headers_size;
    for (Py_ssize_t size; at < end; at += size, to += size) {
        size = record->headers_size;
        if (with_kinds != record->has_kinds) {
            at += record->has_kinds;
            size = HEADER_MIN + le32(at);
            size += le32(at + size - 4);
            if (with_kinds)
                *to++ = STRING_KIND;
        }
        memcpy(to, at, (size_t)size);
    }
    return to;
}

/* Bytes of its headers in another form. */
static Py_ssize_t headers_in(enum form form, const Record *record) {
    return record->headers_size + ((form >= TYPED) - record->has_kinds) * record->header_count;
}

/* A record in a form in which they are stored or polled. */
static void put_record(enum form form, uint8_t *to, const Record *record) {
    uint8_t *lengths = to + lengths_at[form], *next = lengths + 4;
    put_le(lengths, (uint64_t)headers_in(form, record), 4);
    if (form == CLASSIC) {
        put_le(to, record->offset, 8);
        to[8] = 1; /* available */
        put_le(to + 9, record->append_us, 8);
        memcpy(to + 17, record->id, ID_BYTES);
        put_le(to + 33, crc32_of(record->payload, (size_t)record->payload_size), 4);
        next = put_headers(next, record, 0);
    } else {
        memcpy(to + 8, record->id, ID_BYTES);
        put_le(next + 4, 0, 8);
        put_le(to + 24, record->offset, form == TYPED ? 8 : 4);
        if (form == TYPED) {
            put_le(to + 32, record->append_us, 8);
            put_le(to + 40, record->sent_us, 8);
        } else
            put_le(to + 28, record->sent_us, 4);
    }
    put_le(next, (uint64_t)record->payload_size, 4);
    next += form == CLASSIC ? 4 : 12;
    memcpy(next, record->payload, (size_t)record->payload_size);
    next += record->payload_size;
    if (form != CLASSIC) {
        next = put_headers(next, record, 1);
        put_le(to, xxh3_of(to + 8, (size_t)(next - to - 8)), 8);
    }
}

/* (messages of a SEND, form, earliest us, from which frames count) -> (count, how many have no id, bytes of
 * payloads, of headers' values, of all records as they are stored, first and latest of the clients' times),
 * or None where anything is out of order. */
static PyObject *iggy_check(PyObject *self, PyObject *args) {
    Py_buffer view;
    int form, is_sound = 1;
    unsigned long long earliest_us, first_us = 0, latest_us = 0;
    Py_ssize_t pos = 0, count = 0, missing = 0, payloads = 0, values = 0, size = 0;
    Record record;
    if (!PyArg_ParseTuple(args, "y*iK", &view, &form, &earliest_us))
        return NULL;
    for (; is_sound && next_record(form, view.buf, &pos, view.len, &record); count++) {
        uint64_t offset = form == FRAME ? (uint64_t)count : 0;
        uint64_t sent_us = form == SENT ? 0 : record.sent_us + earliest_us;
        is_sound = count_headers(&record, 0) && record.offset == offset && record.append_us == 0
            && (form == FRAME ? sent_us >> 63 == 0 : record.payload_size > 0)
            && (form == SENT || le64(record.payload - 8) == 0);
        const uint8_t *checked = record.id, *end = (const uint8_t *)view.buf + pos;
        if (form == FRAME)
            is_sound &= xxh3_of(checked, (size_t)(end - checked)) == le64(checked - 8);
        if (sent_us >> 63 == 0) {
            first_us = first_us ? first_us : sent_us;
            latest_us = latest_us > sent_us ? latest_us : sent_us;
        }
        missing += memcmp(record.id, no_id, ID_BYTES) == 0;
        payloads += record.payload_size;
        values += record.values;
        size += head_bytes[form == SENT ? CLASSIC : TYPED] + record.headers_size + record.payload_size;
    }
    is_sound &= pos == view.len && count;
    PyBuffer_Release(&view);
    if (!is_sound)
        Py_RETURN_NONE;
    return Py_BuildValue("nnnnnKK", count, missing, payloads, values, size, first_us, latest_us);
}

/* Head of the header for a key, with the kind of its name and the kind raw: `iggy.KEY_HEADER`. */
static const uint8_t key_head[] = "\2\14\0\0\0braidlog.key\1";
enum { KEY_HEAD_BYTES = sizeof key_head - 1 };

/* One step over a set: a message as a record whose key, where a header can hold it, is one in `block`. */
static int next_of_kafka(int has_kinds, const uint8_t *at, Py_ssize_t *pos, Py_ssize_t end, Record *record,
                         uint8_t *block) {
    Message message;
    if (!next_message(at, pos, end, &message))
        return 0;
    *record = (Record){.id = no_id, .headers = block, .payload = message.value, .has_kinds = has_kinds};
    record->offset = (uint64_t)message.offset;
    record->payload_size = message.value_size;
    if (message.key_size >= 1 && message.key_size <= TEXT_MAX) {
        Py_ssize_t skipped = !has_kinds, size = KEY_HEAD_BYTES - skipped;
        memcpy(block, key_head + skipped, (size_t)size);
        put_le(block + size, (uint64_t)message.key_size, 4);
        memcpy(block + size + 4, message.key, (size_t)message.key_size);
        record->headers_size = size + 4 + message.key_size;
    }
    return 1;
}

/* Write messages as records: (messages, form, pos, form wanted, body, where, count at most, start offset,
 * what is added to offsets, append us, what is added to clients' times, ids for those without, room for the
 * checksums of frames) -> (pos, where, count, first offset, next offset, whether the next had no room).
 * Messages of a SEND and of a set get the append time; those stored already, with 0, keep theirs. It ends
 * before what Python has to look at, and where the form has no place for a record. */
static PyObject *iggy_write(PyObject *self, PyObject *args) {
    Py_buffer view, body, ids, sums;
    int from, form, is_full = 0;
    unsigned long long start, offset, append_us, sent_us, first = 0, next = 0;
    Py_ssize_t pos, where, count_max, count = 0, id = 0;
    uint8_t block[KEY_HEAD_BYTES + 4 + TEXT_MAX];
    Record one;
    if (!PyArg_ParseTuple(args, "y*iniw*nnKKKKy*w*", &view, &from, &pos, &form, &body, &where, &count_max,
                          &start, &offset, &append_us, &sent_us, &ids, &sums))
        return NULL;
    for (Py_ssize_t at = pos; from == KAFKA_SET
             ? next_of_kafka(form >= TYPED, view.buf, &at, view.len, &one, block)
             : next_record(from, view.buf, &at, view.len, &one); pos = at) {
        uint8_t *to = (uint8_t *)body.buf + where;
        if (one.offset < start)
            continue;
        int is_moved = one.has_kinds != (form >= TYPED);
        if (one.payload_size < (form == CLASSIC) || (is_moved && !count_headers(&one, 1)))
            break;
        Py_ssize_t size = head_bytes[form] + headers_in(form, &one) + one.payload_size;
        is_full = count == count_max || size > body.len - where;
        if (is_full)
            break;
        if (append_us && from != KAFKA_SET)
            one.offset = (uint64_t)count;
        first = count ? first : one.offset;
        next = one.offset + 1;
        one.offset += offset;
        one.append_us = append_us ? append_us : one.append_us;
        one.sent_us += sent_us;
        /* Of what is written or read only these have one; before other ids there may be nothing. */
        const uint8_t *checksum = form == FRAME ? to : from == TYPED || from == FRAME ? one.id - 8 : NULL;
        if (ids.len - id >= ID_BYTES && memcmp(one.id, no_id, ID_BYTES) == 0) {
            one.id = (const uint8_t *)ids.buf + id;
            id += ID_BYTES;
        }
        put_record(form, to, &one);
        where += size;
        if (sums.len >= 8 * ++count && checksum)
            memcpy((uint8_t *)sums.buf + 8 * (count - 1), checksum, 8);
    }
    PyBuffer_Release(&view);
    PyBuffer_Release(&body);
    PyBuffer_Release(&ids);
    PyBuffer_Release(&sums);
    return Py_BuildValue("nnnKKN", pos, where, count, first, next, PyBool_FromLong(is_full));
}

/* Head of a batch of frames: partition, base offset, append us, earliest us, bytes of the batch and checksum, eight
 * bytes each, then the count; zeros up to its end. The checksum is that of all these fields but itself, followed by
 * the checksums of the frames. */
enum { FRAMES_HEAD = 256, FRAMES_SUM = 40, FRAMES_COUNT = 48, FRAMES_CHECKED = 44 };

/* A stored record as a frame; its offset and time are distances. */
static void put_frame(uint8_t *to, const Record *record) {
    uint64_t sizes = (uint64_t)record->headers_size | (uint64_t)record->payload_size << 32;
    uint64_t id[] = {le64(record->id), le64(record->id + 8)}, places = record->offset | record->sent_us << 32;
    size_t size = (size_t)(record->payload_size + record->headers_size);
    put_le(to, xxh3_copied(to + 8, id[0], id[1], places, sizes, record->payload, size), 8);
}

/* Stored records that go into one batch: they have one append time, and distances that a frame can hold. */
typedef struct {
    Py_ssize_t count, size, end; /* of bytes with the head; `end` is where the next batch begins */
    uint64_t base, append_us, earliest_us;
} Run;

/* Where the frames of a batch go, their checksums, and the time from which theirs count. */
typedef struct {
    uint8_t *to, *sum;
    Py_ssize_t room;
    uint64_t from_us;
} Frames;

/* Find a run, and write its frames in the same walk. They are incomplete, and only counted, if there is no room, or a
 * record is earlier than `from_us`. */
static Run put_run(Frames frames, const uint8_t *at, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t count_max,
                   Py_ssize_t bytes_max) {
    Run run = {.size = FRAMES_HEAD, .end = pos, .earliest_us = UINT64_MAX};
    uint64_t latest_us = 0;
    Record record;
    for (; run.count < count_max && next_record(TYPED, at, &pos, end, &record); run.count++) {
        uint64_t low = record.sent_us < run.earliest_us ? record.sent_us : run.earliest_us;
        uint64_t high = record.sent_us > latest_us ? record.sent_us : latest_us;
        Py_ssize_t size = run.size + head_bytes[FRAME] + record.headers_size + record.payload_size;
        if (!run.count) {
            run.base = record.offset;
            run.append_us = record.append_us;
        } else if (record.append_us != run.append_us || record.offset - run.base > UINT32_MAX
                   || high - low > UINT32_MAX || size > bytes_max)
            break;
        if (low >= frames.from_us && size <= frames.room) {
            record.offset -= run.base;
            record.sent_us -= frames.from_us;
            put_frame(frames.to + run.size, &record);
            memcpy(frames.sum + 8 * run.count, frames.to + run.size, 8);
        }
        run.earliest_us = low;
        latest_us = high;
        run.size = size;
        run.end = pos;
    }
    return run;
}

/* Write the head of a batch. `checked` has the checksums of the frames behind the room for the fields. */
static void put_batch_head(uint8_t *to, const Run *run, uint64_t partition, uint8_t *checked) {
    const uint64_t fields[] = {partition, run->base, run->append_us, run->earliest_us, (uint64_t)run->size};
    memset(to, 0, FRAMES_HEAD);
    for (int i = 0; i < 5; i++)
        put_le(to + 8 * i, fields[i], 8);
    put_le(to + FRAMES_COUNT, (uint64_t)run->count, 4);
    memcpy(checked, to, FRAMES_SUM);
    memcpy(checked + FRAMES_SUM, to + FRAMES_COUNT, 4);
    put_le(to + FRAMES_SUM, xxh3_of(checked, (size_t)(FRAMES_CHECKED + 8 * run->count)), 8);
}

/* iggy_batches(stored records, pos, partition, count and bytes in a batch at most, room) -> (bytes written, end of
 * the written records): as many batches of frames as there is room for. It ends before a record that is not sound:
 * `batches` of iggy/forms.py. */
static PyObject *iggy_batches(PyObject *self, PyObject *args) {
    Py_buffer view, room;
    unsigned long long partition;
    Py_ssize_t pos, count_max, bytes_max, where = 0;
    Record record;
    Run run;
    if (!PyArg_ParseTuple(args, "y*nKnnw*", &view, &pos, &partition, &count_max, &bytes_max, &room))
        return NULL;
    uint8_t *checked = PyMem_Malloc((size_t)(FRAMES_CHECKED + 8 * count_max));
    while (checked != NULL) {
        Frames frames = {(uint8_t *)room.buf + where, checked + FRAMES_CHECKED, room.len - where, 0};
        Py_ssize_t first = pos;
        if (next_record(TYPED, view.buf, &first, view.len, &record))
            frames.from_us = record.sent_us; /* Most often the earliest. */
        run = put_run(frames, view.buf, pos, view.len, count_max, bytes_max);
        if (!run.count || run.size > frames.room)
            break;
        if (run.earliest_us < frames.from_us) {
            frames.from_us = run.earliest_us;
            put_run(frames, view.buf, pos, view.len, count_max, bytes_max);
        }
        put_batch_head(frames.to, &run, partition, checked);
        where += run.size;
        pos = run.end;
    }
    PyBuffer_Release(&view);
    PyBuffer_Release(&room);
    if (checked == NULL)
        return PyErr_NoMemory();
    PyMem_Free(checked);
    return Py_BuildValue("nn", where, pos);
}

/* Kafka's record batches: `kafka/record_batches.py`. Base offset 8, size 4, epoch 4, magic 1, crc32c 4, attributes 2,
 * last offset delta 4, base and greatest time 8 each, producer id 8 and epoch 2, first sequence 4, count 4, records. */
enum {
    BATCH_PREFIX = 12, BATCH_CHECKED = 21, BATCH_RECORDS = 61, BATCH_RECORD_MIN = 7, BATCH_MAGIC = 2,
    BATCH_RECORDS_MAX = 1 << 20, BATCH_CODECS = 4, BATCH_REFUSED = 32 | 16, IS_COMPRESSED = 1,
    BATCH_APPEND_TIME = 8,
};
static const int64_t time_ms_max = INT64_MAX / 1000, producer_bit = (int64_t)1 << 62;

static inline int64_t be64(const uint8_t *at) {
    return (int64_t)((uint64_t)be32(at) << 32 | be32(at + 4));
}

static inline void put_be64(uint8_t *at, uint64_t value) {
    put_le(at, __builtin_bswap64(value), 8);
}

/* Whether the buffer is one sound batch, of at most so many bytes, that may be stored. */
static int is_sound_batch(const uint8_t *at, Py_ssize_t size, Py_ssize_t bytes_max) {
    if (size < BATCH_RECORDS || size > bytes_max || at[16] != BATCH_MAGIC || be32(at + 8) != size - BATCH_PREFIX)
        return 0;
    uint32_t attributes = (uint32_t)at[21] << 8 | at[22], codec = attributes & KAFKA_CODEC_BITS;
    int64_t producer = be64(at + 43), count = (int32_t)be32(at + 57);
    int has_sequence = !(at[51] & 0x80) && (int32_t)be32(at + 53) >= 0;
    int64_t possible = codec ? BATCH_RECORDS_MAX : (size - BATCH_RECORDS) / BATCH_RECORD_MIN;
    int64_t first = be64(at + 27), last = be64(at + 35);
    if (first < -time_ms_max || first > time_ms_max || last < -time_ms_max || last > time_ms_max)
        return 0;
    return codec <= BATCH_CODECS && !(attributes & BATCH_REFUSED) && producer >= -1
        && (producer == -1 || has_sequence) && count >= 1 && count <= possible
        && (int32_t)be32(at + 23) == count - 1
        && crc32c_of(at + BATCH_CHECKED, (size_t)(size - BATCH_CHECKED)) == be32(at + 17);
}

/* The fields of `BodyInfo` that a produced body has; the times in microseconds, NO_TIME for none. */
typedef struct {
    int64_t first_us, latest_us, producer, epoch, first, last;
    uint32_t count, flags;
} BodyFacts;
static const int64_t NO_TIME = INT64_MIN;

static int64_t us_of(int64_t ms) {
    return ms == -1 ? NO_TIME : ms * 1000;
}

/* The facts of a sound batch. */
static BodyFacts batch_facts(const uint8_t *at) {
    int64_t producer = be64(at + 43), last_ms = be64(at + 35);
    BodyFacts facts = {.count = be32(at + 57), .latest_us = us_of(last_ms)};
    facts.first_us = us_of(at[22] & BATCH_APPEND_TIME ? last_ms : be64(at + 27));
    facts.flags = at[22] & KAFKA_CODEC_BITS ? IS_COMPRESSED : 0;
    if (producer != -1) {
        facts.producer = producer | producer_bit;
        facts.epoch = at[51] << 8 | at[52];
        facts.first = be32(at + 53);
        facts.last = (facts.first + facts.count - 1) & INT32_MAX;
    }
    return facts;
}

static void stamp_batch(uint8_t *at, uint64_t base_offset) {
    put_be64(at, base_offset);
    put_le(at + BATCH_PREFIX, 0, 4);
}

/* A time as a new object, None for NO_TIME. */
static PyObject *time_object(int64_t time_us) {
    return time_us == NO_TIME ? Py_NewRef(Py_None) : PyLong_FromLongLong(time_us);
}

/* kafka_batch(set, base offset, bytes of a batch at most) -> the fields of `BodyInfo`, with the offset stamped, or
 * None for all but a single sound batch. */
static PyObject *kafka_batch(PyObject *self, PyObject *args) {
    Py_buffer view;
    unsigned long long base_offset;
    Py_ssize_t bytes_max;
    if (!PyArg_ParseTuple(args, "w*Kn", &view, &base_offset, &bytes_max))
        return NULL;
    PyObject *info = NULL;
    if (is_sound_batch(view.buf, view.len, bytes_max)) {
        BodyFacts facts = batch_facts(view.buf);
        stamp_batch(view.buf, base_offset);
        info = Py_BuildValue("INNILLLL", facts.count, time_object(facts.first_us), time_object(facts.latest_us),
                             facts.flags, (long long)facts.producer, (long long)facts.epoch, (long long)facts.first,
                             (long long)facts.last);
    }
    PyBuffer_Release(&view);
    return info != NULL || PyErr_Occurred() ? info : Py_NewRef(Py_None);
}

/* A request of Produce: `protocols/kafka/decoding.py`. */
typedef struct {
    const uint8_t *at, *end;
    int is_flexible, is_sound;
} Reader;
enum {
    PRODUCE_FLEXIBLE = 9, PRODUCE_BY_ID = 13, PRODUCE_TRANSACTIONAL = 3, REQUEST_HEAD = 14, TOPIC_ID_BYTES = 16,
    COUNT_BYTES_MAX = 4,
};

/* The next bytes, of which there must be that many. */
static const uint8_t *take(Reader *reader, int64_t size) {
    const uint8_t *at = reader->at;
    reader->is_sound &= size >= 0 && size <= reader->end - at;
    reader->at += reader->is_sound ? size : 0;
    return at;
}

static int64_t take_int(Reader *reader, int bytes) {
    const uint8_t *at = take(reader, bytes);
    if (!reader->is_sound)
        return 0;
    return bytes == 2 ? (int16_t)(at[0] << 8 | at[1]) : (int32_t)be32(at);
}

/* The size of a string or of bytes, or the number of entries of a list; -1 for null. */
static int64_t take_size(Reader *reader, int bytes) {
    if (!reader->is_flexible)
        return take_int(reader, bytes);
    uint64_t value = 0;
    for (int i = 0; i <= COUNT_BYTES_MAX; i++) {
        const uint8_t *at = take(reader, 1);
        if (!reader->is_sound)
            return 0;
        value |= (uint64_t)(*at & 0x7f) << 7 * i;
        if (*at < 0x80)
            return (int64_t)value - 1;
    }
    reader->is_sound = 0;
    return 0;
}

static void take_no_tags(Reader *reader) {
    const uint8_t *at = reader->at;
    if (reader->is_flexible && take(reader, 1) != NULL)
        reader->is_sound = reader->is_sound && *at == 0;
}

/* Add the sets of a topic to a dict, by their partitions. 0: an error is set. */
static int take_sets(Reader *reader, int64_t count, PyObject *frame, const uint8_t *start, PyObject *sets) {
    int is_added = 1;
    for (; count > 0 && is_added && reader->is_sound; count--) {
        PyObject *index = PyLong_FromLongLong(take_int(reader, 4));
        int64_t size = take_size(reader, 4);
        const uint8_t *at = take(reader, size);
        take_no_tags(reader);
        Py_ssize_t pos = at - start;
        PyObject *set = reader->is_sound ? PySequence_GetSlice(frame, pos, pos + size) : Py_NewRef(Py_None);
        is_added = index != NULL && set != NULL && PyDict_SetItem(sets, index, set) == 0;
        Py_XDECREF(index);
        Py_XDECREF(set);
    }
    return is_added;
}

/* Add the topics of a request to a dict, by name or id, each with its sets. 0: an error is set. */
static int take_topics(Reader *reader, int is_by_id, int64_t *entries_left, PyObject *frame, const uint8_t *start,
                       PyObject *topics) {
    int64_t count = take_size(reader, 4);
    int is_added = 1;
    reader->is_sound &= count > 0;
    for (*entries_left -= count; count > 0 && is_added && reader->is_sound; count--) {
        int64_t size = is_by_id ? TOPIC_ID_BYTES : take_size(reader, 2);
        const uint8_t *at = take(reader, size);
        int64_t partitions = take_size(reader, 4);
        *entries_left -= partitions;
        reader->is_sound &= partitions > 0 && *entries_left >= 0;
        if (!reader->is_sound)
            break;
        PyObject *name = PyBytes_FromStringAndSize((const char *)at, (Py_ssize_t)size), *sets = PyDict_New();
        /* A topic that is named twice: Python joins its sets. */
        reader->is_sound &= name == NULL || !PyDict_Contains(topics, name);
        is_added = name != NULL && sets != NULL && PyDict_SetItem(topics, name, sets) == 0
            && take_sets(reader, partitions, frame, start, sets);
        take_no_tags(reader);
        Py_XDECREF(name);
        Py_XDECREF(sets);
    }
    return is_added;
}

/* kafka_produce(frame, entries at most) -> (version, correlation id, client id or None, acks, timeout, topics, number
 * of entries): a request of Produce whose topics, of one partition or more each, are {name or id: {partition: set}}.
 * None for other requests, and for those with a transaction, tagged fields or a set that is null. */
static PyObject *kafka_produce(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Py_buffer view;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "kafka_produce takes a frame and a number");
        return NULL;
    }
    int64_t entries_max = PyLong_AsLongLong(args[1]), left = entries_max;
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    const uint8_t *start = view.buf;
    Reader reader = {start + 4, start + view.len, 0, view.len >= REQUEST_HEAD};
    int64_t key = take_int(&reader, 2), version = take_int(&reader, 2), correlation_id = take_int(&reader, 4);
    int64_t client_size = take_int(&reader, 2);
    const uint8_t *client = take(&reader, client_size > 0 ? client_size : 0);
    reader.is_flexible = version >= PRODUCE_FLEXIBLE;
    take_no_tags(&reader);
    if (version >= PRODUCE_TRANSACTIONAL)
        reader.is_sound &= take_size(&reader, 2) == -1;
    int64_t acks = take_int(&reader, 2), timeout = take_int(&reader, 4);
    reader.is_sound &= key == 0 && version >= 0 && version <= PRODUCE_BY_ID;
    PyObject *result = NULL, *topics = reader.is_sound ? PyDict_New() : NULL;
    if (topics != NULL && take_topics(&reader, version >= PRODUCE_BY_ID, &left, args[0], start, topics)) {
        const char *name = client_size < 0 ? NULL : (const char *)client; /* NULL becomes None. */
        take_no_tags(&reader);
        if (reader.is_sound)
            result = Py_BuildValue("LLy#LLOL", version, correlation_id, name, (Py_ssize_t)client_size, acks, timeout,
                                   topics, entries_max - left);
    }
    Py_XDECREF(topics);
    PyBuffer_Release(&view);
    return result != NULL || PyErr_Occurred() ? result : Py_NewRef(Py_None);
}

/* An answer to Produce: `protocols/kafka/encoding.py`. */
enum { ANSWER_HEAD = 8, RESULT_HEAD = 14, HAS_TIME = 2, HAS_START = 5, HAS_TEXTS = 8, NUMBER_MAX = 5, TAGS = 1 };

/* A count or the size of a name, as `take_size` reads it. */
static uint8_t *put_size(uint8_t *to, int64_t value, int bytes, int is_flexible) {
    if (is_flexible)
        return put_varint(to, (uint64_t)value + 1);
    put_le(to, bytes == 2 ? (uint16_t)(value << 8 | value >> 8) : __builtin_bswap32((uint32_t)value), bytes);
    return to + bytes;
}

/* The result of a stored set: (partition, base offset, log start offset). NULL: an error is set. */
static uint8_t *put_result(uint8_t *to, PyObject *stored, long long version) {
    long long numbers[3];
    for (int i = 0; i < 3; i++) {
        PyObject *number = PyTuple_GetItem(stored, i);
        numbers[i] = number == NULL ? -1 : PyLong_AsLongLong(number);
    }
    put_be32(to, (uint32_t)numbers[0]);
    put_le(to + 4, 0, 2);
    put_be64(to + 6, (uint64_t)numbers[1]);
    to += RESULT_HEAD;
    if (version >= HAS_TIME) {
        put_le(to, UINT64_MAX, 8);
        to += 8;
    }
    if (version >= HAS_START) {
        put_be64(to, (uint64_t)numbers[2]);
        to += 8;
    }
    if (version >= PRODUCE_FLEXIBLE) /* No errors of records, no text, no tagged fields. */
        to = put(to, "\1\0\0", 3);
    else if (version >= HAS_TEXTS)
        to = put(to, "\0\0\0\0\xff\xff", 6);
    return PyErr_Occurred() ? NULL : to;
}

/* A topic and its results. NULL: an error is set. */
static uint8_t *put_topic(uint8_t *to, PyObject *key, PyObject *sets, long long version) {
    int is_flexible = version >= PRODUCE_FLEXIBLE;
    if (version < PRODUCE_BY_ID)
        to = put_size(to, PyBytes_Size(key), 2, is_flexible);
    to = put(to, PyBytes_AsString(key), PyBytes_Size(key));
    to = put_size(to, PyList_Size(sets), 4, is_flexible);
    for (Py_ssize_t i = 0; to != NULL && i < PyList_Size(sets); i++)
        to = put_result(to, PyList_GetItem(sets, i), version);
    if (to != NULL && is_flexible)
        *to++ = 0;
    return to;
}

/* kafka_produced(version, correlation id, {name or id: [(partition, base offset, log start offset)]}) -> the answer to
 * a Produce of which all sets were stored. */
static PyObject *kafka_produced(PyObject *self, PyObject *args) {
    long long version, correlation_id;
    PyObject *topics, *key, *sets, *frame = NULL;
    Py_ssize_t place = 0, room = ANSWER_HEAD + 2 * TAGS + NUMBER_MAX + 4;
    if (!PyArg_ParseTuple(args, "LLO!", &version, &correlation_id, &PyDict_Type, &topics))
        return NULL;
    while (PyDict_Next(topics, &place, &key, &sets)) {
        if (!PyBytes_Check(key) || !PyList_Check(sets)) {
            PyErr_SetString(PyExc_TypeError, "kafka_produced takes lists by names");
            return NULL;
        }
        room += 2 * NUMBER_MAX + PyBytes_Size(key) + TAGS + PyList_Size(sets) * (RESULT_HEAD + 8 + 8 + 6);
    }
    uint8_t *start = PyMem_Malloc((size_t)room), *to = start;
    if (start == NULL)
        return PyErr_NoMemory();
    int is_flexible = version >= PRODUCE_FLEXIBLE;
    put_be32(start + 4, (uint32_t)correlation_id);
    start[ANSWER_HEAD] = 0;
    to = put_size(start + ANSWER_HEAD + is_flexible, PyDict_Size(topics), 4, is_flexible);
    for (place = 0; to != NULL && PyDict_Next(topics, &place, &key, &sets);)
        to = put_topic(to, key, sets, version);
    if (to != NULL) { /* Neither throttled nor with the addresses of other leaders. */
        memset(to, 0, 4 + TAGS);
        to += (version >= 1 ? 4 : 0) + is_flexible;
        put_be32(start, (uint32_t)(to - start - 4));
        frame = PyBytes_FromStringAndSize((const char *)start, to - start);
    }
    PyMem_Free(start);
    return frame;
}

/* The header of a stored batch: `batch.py`. After magic and crc: the fields that come from outside, of these sizes;
 * size of positions, of the body, crc of the body, and a reserved field. */
static const int8_t head_sizes[] = {1, 1, 2, 4, 8, 8, -8, 4, 4, -8, -8, -8, -8, 8, -8, -8, -8};
enum { HEAD_FIELDS = sizeof head_sizes, HEAD_BYTES = 128, HEAD_REST = 8, HEAD_BODY = 112 };
static const uint8_t head_magic[4] = {0xf3, 'B', 'A', 0xd7};

/* Put a number of that size, a negative size being that of a signed one. 0: the number does not fit. */
static int put_field(uint8_t *at, int size, PyObject *number) {
    if (size < 0) {
        long long value = number == Py_None ? INT64_MIN : PyLong_AsLongLong(number);
        put_le(at, (uint64_t)value, -size);
    } else {
        unsigned long long value = PyLong_AsUnsignedLongLong(number);
        put_le(at, value, size);
        if (size < 8 && value >> 8 * size)
            return 0;
    }
    return !PyErr_Occurred();
}

/* Put magic and checksum before the fields. */
static void seal_head(uint8_t *head, uint32_t salt) {
    put(head, head_magic, sizeof head_magic);
    put_le(head + 4, crc32c_on(salt, head + HEAD_REST, HEAD_BYTES - HEAD_REST), 4);
}

/* batch_head(salt, body, fields from the version on) -> header, or None where a field does not fit. */
static PyObject *batch_head(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Py_buffer body;
    uint8_t head[HEAD_BYTES] = {0}, *at = head + HEAD_REST;
    if (count != HEAD_FIELDS + 2) {
        PyErr_SetString(PyExc_TypeError, "batch_head takes a salt, a body and the fields");
        return NULL;
    }
    int is_sound = put_field(head, 4, args[0]);
    uint32_t salt = le32(head);
    for (int i = 0; is_sound && i < HEAD_FIELDS; i++) {
        is_sound = put_field(at, head_sizes[i], args[i + 2]);
        at += head_sizes[i] < 0 ? -head_sizes[i] : head_sizes[i];
    }
    if (!is_sound) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    if (PyObject_GetBuffer(args[1], &body, PyBUF_SIMPLE) < 0)
        return NULL;
    uint32_t body_crc = crc32c_of(body.buf, (size_t)body.len);
    int fits = (uint64_t)body.len >> 32 == 0;
    put_le(head + HEAD_BODY + 4, (uint64_t)body.len, 4);
    PyBuffer_Release(&body);
    if (!fits)
        Py_RETURN_NONE;
    put_le(head + HEAD_BODY + 8, body_crc, 4);
    seal_head(head, salt);
    return PyBytes_FromStringAndSize((const char *)head, HEAD_BYTES);
}

/* Check and stamp the messages of a plain set of format 0 that fill the buffer: their count, 0 for others. */
static uint32_t stamp_messages(uint8_t *at, Py_ssize_t size, Py_ssize_t bytes_max, uint64_t base_offset) {
    Py_ssize_t pos = 0;
    uint32_t count = 0;
    Message message;
    while (pos < size) {
        uint8_t *entry = at + pos;
        if (!next_message(at, &pos, size, &message) || at + pos - entry > bytes_max
            || crc32_of(entry + 16, (size_t)(at + pos - entry) - 16) != be32(entry + 12))
            return 0;
        put_be64(entry, base_offset + count++);
    }
    return count;
}

/* Arguments of kafka_append, in order. */
enum {
    AT_FD, AT_POS, AT_SALT, AT_PARTITION, AT_EPOCH, AT_OFFSET, AT_OFFSET_MAX, AT_DURABLE, AT_BYTES_MAX, AT_APPEND_US,
    AT_PRODUCER, AT_PRODUCER_EPOCH, AT_SEQUENCE, APPEND_NUMBERS,
};
/* `BodyFormat`; the version of header and body. */
enum { STORED_SET = 2, STORED_ENTRIES = 3, STORED_BATCH = 7, HEAD_VERSION = 1 };

/* The arguments behind the body; 0 with an exception if they are not the numbers of a body. */
static int append_numbers(PyObject *const *args, Py_ssize_t count, int64_t numbers[]) {
    if (count != APPEND_NUMBERS + 1) {
        PyErr_SetString(PyExc_TypeError, "a body is appended with its numbers");
        return 0;
    }
    for (int i = 0; i < APPEND_NUMBERS; i++)
        numbers[i] = PyLong_AsLongLong(args[i + 1]);
    return !PyErr_Occurred();
}

/* Write the header of a batch with that body into zeros. 0: not all offsets may be given out. */
static int put_head(uint8_t *head, uint64_t format, const BodyFacts *facts, const int64_t numbers[],
                    const uint8_t *body, Py_ssize_t size) {
    if (!facts->count || numbers[AT_OFFSET] > numbers[AT_OFFSET_MAX] - facts->count)
        return 0;
    const uint64_t fields[HEAD_FIELDS] = {
        HEAD_VERSION, HEAD_VERSION, format, facts->flags,
        (uint64_t)numbers[AT_PARTITION], (uint64_t)numbers[AT_EPOCH], (uint64_t)numbers[AT_OFFSET],
        facts->count - 1, facts->count, (uint64_t)numbers[AT_DURABLE], (uint64_t)facts->first_us,
        (uint64_t)facts->latest_us, (uint64_t)numbers[AT_APPEND_US], (uint64_t)facts->producer,
        (uint64_t)facts->epoch, (uint64_t)facts->first, (uint64_t)facts->last,
    };
    uint8_t *to = head + HEAD_REST;
    for (int i = 0, width; i < HEAD_FIELDS; i++, to += width) {
        width = head_sizes[i] < 0 ? -head_sizes[i] : head_sizes[i];
        put_le(to, fields[i], width);
    }
    put_le(head + HEAD_BODY + 4, (uint64_t)size, 4);
    put_le(head + HEAD_BODY + 8, crc32c_of(body, (size_t)size), 4);
    seal_head(head, (uint32_t)numbers[AT_SALT]);
    return 1;
}

/* Write header and body at their place. 0: not all of it was written. */
static int write_batch(const int64_t numbers[], const uint8_t *head, const void *body, Py_ssize_t size) {
    struct iovec parts[] = {{(void *)head, HEAD_BYTES}, {(void *)body, (size_t)size}};
    PyThreadState *state = PyEval_SaveThread(); /* The disk may make the write wait. */
    ssize_t written = pwritev((int)numbers[AT_FD], parts, 2, (off_t)numbers[AT_POS]);
    PyEval_RestoreThread(state);
    return written == HEAD_BYTES + size;
}

/* What an append gives; None if it did not happen. */
static PyObject *appended(int is_written, const BodyFacts *facts) {
    if (!is_written)
        Py_RETURN_NONE;
    return Py_BuildValue("INLL", facts->count, time_object(facts->latest_us), (long long)facts->producer,
                         (long long)facts->last);
}

/* Check and stamp a produced set, and write the header of its stored batch. 0: another set, or not the producer's
 * next. */
static int head_of_set(uint8_t *at, Py_ssize_t size, const int64_t numbers[], uint8_t *head, BodyFacts *facts) {
    int is_batch = size > BATCH_RECORDS && at[16] == BATCH_MAGIC;
    if (is_batch) {
        if (be64(at + 43) != numbers[AT_PRODUCER] || !is_sound_batch(at, size, (Py_ssize_t)numbers[AT_BYTES_MAX]))
            return 0;
        *facts = batch_facts(at);
        if (facts->producer && (facts->epoch != numbers[AT_PRODUCER_EPOCH] || facts->first != numbers[AT_SEQUENCE]))
            return 0;
        stamp_batch(at, (uint64_t)numbers[AT_OFFSET]);
    } else {
        *facts = (BodyFacts){.first_us = NO_TIME, .latest_us = NO_TIME};
        facts->count = stamp_messages(at, size, (Py_ssize_t)numbers[AT_BYTES_MAX], (uint64_t)numbers[AT_OFFSET]);
    }
    return put_head(head, is_batch ? STORED_BATCH : STORED_SET, facts, numbers, at, size);
}

/* kafka_append(set, file descriptor, file position, salt, partition, owner epoch, base offset, end of the offsets that
 * may be given out, durable offset, bytes of a message or batch at most, append us, producer, its epoch, its next
 * sequence) -> (count, latest publish us, stored producer id, last sequence): check a produced set, stamp the set, and
 * write the set behind its header. None if Python has to look, which then does all of this again. */
static PyObject *kafka_append(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Py_buffer view;
    BodyFacts facts;
    int64_t numbers[APPEND_NUMBERS];
    uint8_t head[HEAD_BYTES] = {0};
    if (!append_numbers(args, count, numbers) || PyObject_GetBuffer(args[0], &view, PyBUF_WRITABLE) < 0)
        return NULL;
    int is_written = head_of_set(view.buf, view.len, numbers, head, &facts)
        && write_batch(numbers, head, view.buf, view.len);
    PyBuffer_Release(&view);
    return appended(is_written, &facts);
}

/* pulsar_append(entry, numbers as of kafka_append; producer 0 for none) -> as kafka_append: check the entry of a SEND,
 * and write the entry behind its prefix and the header of a batch. */
static PyObject *pulsar_append(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Py_buffer view;
    Send send;
    BodyFacts facts = {.count = 1};
    int64_t numbers[APPEND_NUMBERS];
    uint8_t head[HEAD_BYTES] = {0}, body[PREFIX + JOINED_ENTRY_BYTES];
    if (!append_numbers(args, count, numbers) || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    int is_written = 0;
    if (view.len <= numbers[AT_BYTES_MAX] && view.len <= JOINED_ENTRY_BYTES
        && is_plain_entry(view.buf, view.len, &send)) {
        facts.first_us = facts.latest_us = us_of(send.publish_ms);
        facts.producer = numbers[AT_PRODUCER];
        facts.epoch = numbers[AT_PRODUCER_EPOCH];
        facts.first = facts.last = numbers[AT_SEQUENCE];
        put_le(body, (uint64_t)view.len, 4);
        put_le(body + 4, 0, 4);
        put_le(body + 8, 1, 4);
        put(body + PREFIX, view.buf, view.len);
        is_written = put_head(head, STORED_ENTRIES, &facts, numbers, body, PREFIX + view.len)
            && write_batch(numbers, head, body, PREFIX + view.len);
    }
    PyBuffer_Release(&view);
    return appended(is_written, &facts);
}

static PyMethodDef methods[] = {
    {"kafka_check_and_stamp", kafka_check_and_stamp, METH_VARARGS, NULL},
    {"kafka_batch", kafka_batch, METH_VARARGS, NULL},
    {"kafka_produce", (PyCFunction)(void (*)(void))kafka_produce, METH_FASTCALL, NULL},
    {"kafka_produced", kafka_produced, METH_VARARGS, NULL},
    {"kafka_append", (PyCFunction)(void (*)(void))kafka_append, METH_FASTCALL, NULL},
    {"pulsar_append", (PyCFunction)(void (*)(void))pulsar_append, METH_FASTCALL, NULL},
    {"batch_head", (PyCFunction)(void (*)(void))batch_head, METH_FASTCALL, NULL},
    {"single_send", single_send, METH_VARARGS, NULL},
    {"pulsar_receipt", pulsar_receipt, METH_VARARGS, NULL},
    {"send_producer", send_producer, METH_VARARGS, NULL},
    {"cut_sends", cut_sends, METH_VARARGS, NULL},
    {"entry_key", entry_key, METH_O, NULL},
    {"pulsar_to_set", pulsar_to_set, METH_VARARGS, NULL},
    {"set_to_entries", set_to_entries, METH_VARARGS, NULL},
    {"chain", chain, METH_VARARGS, NULL},
    {"iggy_check", iggy_check, METH_VARARGS, NULL},
    {"iggy_write", iggy_write, METH_VARARGS, NULL},
    {"iggy_batches", iggy_batches, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_speedups", "See speedups.c.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__speedups(void) {
    fill_tables();
    return PyModule_Create(&module);
}
