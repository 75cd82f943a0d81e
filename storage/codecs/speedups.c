/* The loops over bytes that cost the most, in C. Optional: where it is not built, Python does it all.
 *
 * Every function does what a Python function beside it does for what is in order, and gives None for
 * everything else, which it then leaves to Python with its errors. It knows bytes only: no topic, no
 * connection, no clock. All lengths come from clients and are checked before they are used.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define ON_X86 1
#include <immintrin.h>
#else
#define ON_X86 0
#endif

/* Numbers in bytes. */
static inline uint32_t be32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline void put_be64(uint8_t *at, uint64_t value)
{
    for (int i = 7; i >= 0; i--, value >>= 8)
        at[i] = (uint8_t)value;
}

static inline uint32_t le32(const uint8_t *at)
{
    return (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

static inline void put_le(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++, value >>= 8)
        at[i] = (uint8_t)value;
}

/* Checksums: CRC-32 (zlib's) and CRC-32C. Tables serve everywhere, the processor's own
 * instructions where they are. */

static uint32_t crc32_table[8][256], crc32c_table[8][256];
static int has_clmul, has_sse42;

static void fill_table(uint32_t table[8][256], uint32_t polynomial)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
        table[0][i] = crc;
    }
    for (int i = 0; i < 256; i++)
        for (int slice = 1; slice < 8; slice++)
            table[slice][i] = table[slice - 1][i] >> 8 ^ table[0][table[slice - 1][i] & 0xff];
}

static uint32_t by_table(uint32_t table[8][256], uint32_t crc, const uint8_t *at, size_t size)
{
    for (; size >= 8; at += 8, size -= 8) {
        uint32_t low = crc ^ le32(at), high = le32(at + 4);
        crc = table[7][low & 0xff] ^ table[6][low >> 8 & 0xff] ^ table[5][low >> 16 & 0xff]
            ^ table[4][low >> 24] ^ table[3][high & 0xff] ^ table[2][high >> 8 & 0xff]
            ^ table[1][high >> 16 & 0xff] ^ table[0][high >> 24];
    }
    for (; size; at++, size--)
        crc = crc >> 8 ^ table[0][(crc ^ *at) & 0xff];
    return crc;
}

#if ON_X86
/* Gopal and others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction",
 * Intel 2009. `size` is 64 or more and a multiple of 16. */
__attribute__((target("pclmul,sse4.1")))
static uint32_t by_clmul(uint32_t crc, const uint8_t *at, size_t size)
{
    const __m128i fold_4 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i fold_1 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i fold_64 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i low_halves = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i lane[4], low, one;

    for (int i = 0; i < 4; i++)
        lane[i] = _mm_loadu_si128((const __m128i *)(at + 16 * i));
    lane[0] = _mm_xor_si128(lane[0], _mm_cvtsi32_si128((int)crc));
    for (at += 64, size -= 64; size >= 64; at += 64, size -= 64)
        for (int i = 0; i < 4; i++) {
            low = _mm_clmulepi64_si128(lane[i], fold_4, 0x00);
            lane[i] = _mm_clmulepi64_si128(lane[i], fold_4, 0x11);
            lane[i] = _mm_xor_si128(_mm_xor_si128(lane[i], low),
                                    _mm_loadu_si128((const __m128i *)(at + 16 * i)));
        }
    one = lane[0];
    for (int i = 1; i < 4; i++) {
        low = _mm_clmulepi64_si128(one, fold_1, 0x00);
        one = _mm_clmulepi64_si128(one, fold_1, 0x11);
        one = _mm_xor_si128(_mm_xor_si128(one, low), lane[i]);
    }
    for (; size; at += 16, size -= 16) {
        low = _mm_clmulepi64_si128(one, fold_1, 0x00);
        one = _mm_clmulepi64_si128(one, fold_1, 0x11);
        one = _mm_xor_si128(_mm_xor_si128(one, low), _mm_loadu_si128((const __m128i *)at));
    }
    low = _mm_clmulepi64_si128(one, fold_1, 0x10);
    one = _mm_xor_si128(_mm_srli_si128(one, 8), low);
    low = _mm_srli_si128(one, 4);
    one = _mm_clmulepi64_si128(_mm_and_si128(one, low_halves), fold_64, 0x00);
    one = _mm_xor_si128(one, low);
    low = _mm_clmulepi64_si128(_mm_and_si128(one, low_halves), barrett, 0x10);
    low = _mm_clmulepi64_si128(_mm_and_si128(low, low_halves), barrett, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(one, low), 1);
}

__attribute__((target("sse4.2")))
static uint32_t by_sse42(uint32_t crc, const uint8_t *at, size_t size)
{
    uint64_t wide = crc, eight;
    for (; size >= 8; at += 8, size -= 8) {
        memcpy(&eight, at, 8);
        wide = _mm_crc32_u64(wide, eight);
    }
    crc = (uint32_t)wide;
    for (; size; at++, size--)
        crc = _mm_crc32_u8(crc, *at);
    return crc;
}
#endif

static uint32_t crc32_of(const uint8_t *at, size_t size)
{
    uint32_t crc = 0xffffffff;
#if ON_X86
    if (has_clmul && size >= 64) {
        size_t folded = size & ~(size_t)15;
        crc = by_clmul(crc, at, folded);
        at += folded;
        size -= folded;
    }
#endif
    return ~by_table(crc32_table, crc, at, size);
}

static uint32_t crc32c_of(const uint8_t *at, size_t size)
{
#if ON_X86
    if (has_sse42)
        return ~by_sse42(0xffffffff, at, size);
#endif
    return ~by_table(crc32c_table, 0xffffffff, at, size);
}

/* XXH3 of 64 bits without a seed, of 17 to 240 bytes: github.com/Cyan4973/xxHash, xxhash_spec.md. */
static const uint8_t xxh_secret[] = {
    184, 254, 108, 57, 35, 164, 75, 190, 124, 1, 129, 44, 247, 33, 173, 28, 222, 212, 109, 233, 131,
    144, 151, 219, 114, 64, 164, 164, 183, 179, 103, 31, 203, 121, 230, 78, 204, 192, 229, 120, 130, 90,
    208, 125, 204, 255, 114, 33, 184, 8, 70, 116, 247, 67, 36, 142, 224, 53, 144, 230, 129, 58, 38, 76,
    60, 40, 82, 187, 145, 195, 0, 203, 136, 208, 101, 139, 27, 83, 46, 163, 113, 100, 72, 151, 162, 13,
    249, 78, 56, 25, 239, 70, 169, 222, 172, 216, 168, 250, 118, 63, 227, 156, 52, 63, 249, 220, 187,
    199, 199, 11, 79, 29, 138, 81, 224, 75, 205, 180, 89, 49, 200, 159, 126, 201, 217, 120, 115, 100,
    234, 197, 172, 131, 52, 211, 235, 195,
};

static inline uint64_t le64(const uint8_t *at)
{
    return le32(at) | (uint64_t)le32(at + 4) << 32;
}

static inline uint64_t mixed(const uint8_t *at, const uint8_t *secret)
{
    unsigned __int128 product = (unsigned __int128)(le64(at) ^ le64(secret))
        * (le64(at + 8) ^ le64(secret + 8));
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t xxh3_of(const uint8_t *at, size_t size)
{
    uint64_t hash = size * 0x9e3779b185ebca87;
    for (size_t i = size > 128 ? 0 : (size + 31) / 32; i-- > 0;) /* From both ends inwards. */
        hash += mixed(at + 16 * i, xxh_secret + 32 * i)
            + mixed(at + size - 16 * (i + 1), xxh_secret + 32 * i + 16);
    for (size_t i = 0; size > 128 && i < size / 16; i++) {
        hash += mixed(at + 16 * i, xxh_secret + (i < 8 ? 16 * i : 16 * (i - 8) + 3));
        if (i == 7)
            hash = (hash ^ hash >> 37) * 0x165667919e3779f9, hash ^= hash >> 32;
    }
    hash += size > 128 ? mixed(at + size - 16, xxh_secret + 119) : 0;
    hash = (hash ^ hash >> 37) * 0x165667919e3779f9;
    return hash ^ hash >> 32;
}

/* Kafka sets of format 0: `kafka_prepare.py`. An entry: offset 8, size 4, crc 4, magic 1,
 * attributes 1, key size 4, key, value size 4, value. */
enum { KAFKA_MESSAGE_MIN = 14, KAFKA_ENTRY_MIN = 26, KAFKA_CODEC_BITS = 7 };

typedef struct {
    const uint8_t *key, *value;
    int32_t key_size, value_size;
    long long offset;
} Message;

/* One step over a set. 0: at its end, or something else than a plain message is there. */
static int next_message(const uint8_t *at, Py_ssize_t *pos, Py_ssize_t end, Message *message)
{
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

static PyObject *kafka_check_and_stamp(PyObject *self, PyObject *args)
{
    Py_buffer view;
    long long base_offset;
    Py_ssize_t bytes_max;
    if (!PyArg_ParseTuple(args, "w*Ln", &view, &base_offset, &bytes_max))
        return NULL;
    uint8_t *at = view.buf;
    Py_ssize_t pos = 0, count = 0, end = view.len;
    int is_sound = 1, is_compressed = 0;
    Message message;
    while (end - pos >= KAFKA_ENTRY_MIN) {
        uint8_t *entry = at + pos;
        Py_ssize_t size = (int32_t)be32(entry + 8), whole = size + 12;
        is_sound = size >= KAFKA_MESSAGE_MIN;
        if (!is_sound || whole > end - pos)
            break;
        is_sound = whole <= bytes_max && crc32_of(entry + 16, (size_t)size - 4) == be32(entry + 12)
            && entry[16] == 0;
        if (!is_sound)
            break;
        is_compressed = entry[17] & KAFKA_CODEC_BITS;
        if (is_compressed)
            break;
        is_sound = next_message(at, &pos, end, &message);
        if (!is_sound)
            break;
        put_be64(entry, (uint64_t)(base_offset + count));
        count++;
    }
    if (is_sound && !is_compressed && end - pos >= 12)
        is_sound = (int32_t)be32(at + pos + 8) >= KAFKA_MESSAGE_MIN;
    PyBuffer_Release(&view);
    if (!is_sound)
        Py_RETURN_NONE;
    return is_compressed ? Py_BuildValue("nnO", (Py_ssize_t)0, (Py_ssize_t)0, Py_True)
                         : Py_BuildValue("nnO", count, pos, Py_False);
}

/* Offsets of messages that were checked; False where they do not fill the buffer. */
static PyObject *kafka_stamp(PyObject *self, PyObject *args)
{
    Py_buffer view;
    long long offset;
    if (!PyArg_ParseTuple(args, "w*L", &view, &offset))
        return NULL;
    uint8_t *at = view.buf;
    Py_ssize_t pos = 0, end = view.len;
    while (end - pos >= 12) {
        Py_ssize_t whole = (Py_ssize_t)(int32_t)be32(at + pos + 8) + 12;
        if (whole < 12 || whole > end - pos)
            break;
        put_be64(at + pos, (uint64_t)offset++);
        pos += whole;
    }
    PyBuffer_Release(&view);
    return PyBool_FromLong(pos == end);
}

/* Pulsar SENDs: `protocols/pulsar/sending.py` and `pulsar.py`. A frame: size 4, command size 4,
 * command, 0e01, crc32c 4, metadata size 4, metadata, payload. Stored: size 4, delta 4, count 4 (little
 * endian), then what follows the command. */

enum { SEND_HEAD = 12, CHECKED_MIN = 10, PREFIX = 12, VARINT_BYTES_MAX = 9 };

typedef struct {
    uint64_t producer_id, sequence_id, publish_ms;
    int has_publish;
    const uint8_t *rest; /* what follows the command */
    Py_ssize_t rest_size, frame_size;
} Send;

/* A varint of at most 63 bits at *at, which moves behind it; 0 where there is none. */
static int varint(const uint8_t **at, const uint8_t *end, uint64_t *value)
{
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

/* A length and as many bytes. */
static int piece(const uint8_t **at, const uint8_t *end, const uint8_t **start, uint64_t *size)
{
    if (!varint(at, end, size) || *size > (uint64_t)(end - *at))
        return 0;
    *start = *at;
    *at += *size;
    return 1;
}

/* Whether a property has a key and a value, once each and nothing else. */
static int is_property(const uint8_t *at, uint64_t size)
{
    const uint8_t *end = at + size, *start;
    uint64_t length;
    if (at == end || *at++ != 0x0a || !piece(&at, end, &start, &length))
        return 0;
    return at < end && *at++ == 0x12 && piece(&at, end, &start, &length) && at == end;
}

/* Metadata of one ordinary message, neither compressed nor in pieces nor delayed. */
static int plain_metadata(const uint8_t *at, const uint8_t *end, Send *send)
{
    const uint8_t *start;
    uint64_t tag, value;
    send->has_publish = 0;
    while (at < end) {
        if (!varint(&at, end, &tag))
            return 0;
        switch (tag) {
        case 3 << 3: /* publish_time */
            if (!varint(&at, end, &send->publish_ms) || send->publish_ms >> 53)
                return 0;
            send->has_publish = 1;
            break;
        case 2 << 3: /* sequence_id */
        case 9 << 3: /* uncompressed_size */
        case 12 << 3: /* event_time */
        case 17 << 3: /* partition_key_b64_encoded */
        case 24 << 3: /* highest_sequence_id */
        case 25 << 3: /* null_value */
        case 30 << 3: /* null_partition_key */
            if (!varint(&at, end, &value))
                return 0;
            break;
        case 1 << 3 | 2: /* producer_name */
        case 6 << 3 | 2: /* partition_key */
        case 16 << 3 | 2: /* schema_version */
        case 18 << 3 | 2: /* ordering_key */
            if (!piece(&at, end, &start, &value))
                return 0;
            break;
        case 4 << 3 | 2: /* properties */
            if (!piece(&at, end, &start, &value) || !is_property(start, value))
                return 0;
            break;
        default:
            return 0;
        }
    }
    return 1;
}

/* The ordering key in an entry's metadata, else its partition key; NULL where there is neither, or it
 * is not plain. */
static const uint8_t *key_in(const uint8_t *at, const uint8_t *end, uint64_t *size)
{
    const uint8_t *start, *key = NULL, *ordering = NULL;
    uint64_t tag, value, key_size = 0, ordering_size = 0, is_base64 = 0;
    while (at < end) {
        if (!varint(&at, end, &tag))
            return NULL;
        if ((tag & 7) == 0) {
            if (!varint(&at, end, &value))
                return NULL;
            if (tag == 17 << 3) /* partition_key_b64_encoded */
                is_base64 = value;
        } else if ((tag & 7) == 2) {
            if (!piece(&at, end, &start, &value))
                return NULL;
            if (tag == (6 << 3 | 2)) {
                key = start;
                key_size = value;
            } else if (tag == (18 << 3 | 2)) {
                ordering = start;
                ordering_size = value;
            }
        } else
            return NULL;
    }
    *size = ordering ? ordering_size : key_size;
    return ordering ? ordering : is_base64 ? NULL : key;
}

/* entry_key(entry) -> key or None: `sticky_key` of broker/delivery/entries.py. */
static PyObject *entry_key(PyObject *self, PyObject *entry)
{
    Py_buffer view;
    if (PyObject_GetBuffer(entry, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    const uint8_t *at = view.buf, *key = NULL;
    uint64_t size = 0;
    if (view.len >= CHECKED_MIN && at[0] == 0x0e && at[1] == 0x01
        && (Py_ssize_t)be32(at + 6) <= view.len - CHECKED_MIN)
        key = key_in(at + CHECKED_MIN, at + CHECKED_MIN + be32(at + 6), &size);
    PyObject *found = key == NULL ? Py_NewRef(Py_None)
                                  : PyBytes_FromStringAndSize((const char *)key, (Py_ssize_t)size);
    PyBuffer_Release(&view);
    return found;
}

/* The SEND that begins here, if it is whole, in order and of the plain kind. */
static int plain_send(const uint8_t *at, Py_ssize_t left, Py_ssize_t total_max,
                      Py_ssize_t entry_max, Send *send)
{
    uint64_t ignored;
    if (left < SEND_HEAD)
        return 0;
    Py_ssize_t total = be32(at), command = be32(at + 4), size = at[11];
    if (at[8] != 0x08 || at[9] != 0x06 || at[10] != 0x32 || size >= 0x80 || command != size + 4)
        return 0;
    if (total > total_max || total + 4 > left || SEND_HEAD + size >= total + 4)
        return 0;
    const uint8_t *field = at + SEND_HEAD, *end = field + size;
    if (field == end || *field++ != 0x08 || !varint(&field, end, &send->producer_id))
        return 0;
    if (field == end || *field++ != 0x10 || !varint(&field, end, &send->sequence_id))
        return 0;
    if (field < end && (*field++ != 0x18 || !varint(&field, end, &ignored) || field != end))
        return 0;
    send->rest = end;
    send->rest_size = total + 4 - SEND_HEAD - size;
    send->frame_size = total + 4;
    if (send->rest_size < CHECKED_MIN || send->rest_size > entry_max)
        return 0;
    Py_ssize_t metadata = be32(end + 6);
    if (end[0] != 0x0e || end[1] != 0x01 || metadata > send->rest_size - CHECKED_MIN)
        return 0;
    if (crc32c_of(end + 6, (size_t)send->rest_size - 6) != be32(end + 2))
        return 0;
    return plain_metadata(end + CHECKED_MIN, end + CHECKED_MIN + metadata, send);
}

static PyObject *send_producer(PyObject *self, PyObject *args)
{
    Py_buffer view;
    Py_ssize_t total_max, entry_max;
    Send send;
    if (!PyArg_ParseTuple(args, "y*nn", &view, &total_max, &entry_max))
        return NULL;
    int is_plain = plain_send(view.buf, view.len, total_max, entry_max, &send);
    PyBuffer_Release(&view);
    if (!is_plain)
        Py_RETURN_NONE;
    return PyLong_FromUnsignedLongLong(send.producer_id);
}

/* Fill the stored entries and the list of what was sent: (sequence, `none`, delta, None). */
static int fill_run(const uint8_t *at, Py_ssize_t count, uint32_t delta, PyObject *none,
                    uint8_t *body, PyObject *sent)
{
    Send send = {0};
    for (Py_ssize_t i = 0; i < count; i++, delta++) {
        /* Only the command is read again: it was found in order. */
        const uint8_t *field = at + SEND_HEAD + 1, *stop = at + SEND_HEAD + at[11];
        Py_ssize_t whole = (Py_ssize_t)be32(at) + 4, rest = whole - (stop - at);
        varint(&field, stop, &send.producer_id);
        field++;
        varint(&field, stop, &send.sequence_id);
        put_le(body, (uint64_t)rest, 4);
        put_le(body + 4, delta, 4);
        put_le(body + 8, 1, 4);
        memcpy(body + PREFIX, stop, (size_t)rest);
        body += PREFIX + rest;
        at += whole;
        PyObject *one = Py_BuildValue("KOIO", send.sequence_id, none, delta, Py_None);
        if (one == NULL)
            return -1;
        PyList_SET_ITEM(sent, i, one);
    }
    return 0;
}

/* The plain SENDs of one producer at the front: bytes taken, what was sent, stored entries, publish
 * time of the first and the latest that have one, in ms (-1: none). */
static PyObject *cut_sends(PyObject *self, PyObject *args)
{
    Py_buffer view;
    Py_ssize_t frames_max, total_max, entry_max;
    unsigned long long producer_id;
    unsigned int delta;
    PyObject *none, *sent = NULL, *body = NULL, *result = NULL;
    if (!PyArg_ParseTuple(args, "y*nnnKIO", &view, &frames_max, &total_max, &entry_max,
                          &producer_id, &delta, &none))
        return NULL;
    const uint8_t *at = view.buf;
    Py_ssize_t pos = 0, count = 0, stored = 0;
    long long first_ms = -1, latest_ms = -1;
    Send send;
    while (count < frames_max
           && plain_send(at + pos, view.len - pos, total_max, entry_max, &send)
           && send.producer_id == producer_id) {
        if (send.has_publish) {
            if (first_ms < 0)
                first_ms = (long long)send.publish_ms;
            if ((long long)send.publish_ms > latest_ms)
                latest_ms = (long long)send.publish_ms;
        }
        stored += PREFIX + send.rest_size;
        pos += send.frame_size;
        count++;
    }
    sent = PyList_New(count);
    body = PyBytes_FromStringAndSize(NULL, stored);
    if (sent != NULL && body != NULL
        && fill_run(at, count, delta, none, (uint8_t *)PyBytes_AS_STRING(body), sent) == 0)
        result = Py_BuildValue("nOOLL", pos, sent, body, first_ms, latest_ms);
    Py_XDECREF(sent);
    Py_XDECREF(body);
    PyBuffer_Release(&view);
    return result;
}

/* Iggy messages as classic clients send them: `iggy.py`. Sent: id 16, headers' length 4, headers,
 * payload's length 4, payload. Stored: offset 8, state 1, time 8, id 16, crc 4, then all but the id. */

enum { SENT_HEAD = 24, RECORD_HEAD = 37, TEXT_MAX = 255, KIND_MAX = 15 };

/* Bytes of all values of a block of headers; -1 for what Python has to look at. `typed`: 1 where each
 * name has its kind before it, else 0. */
static Py_ssize_t header_bytes(const uint8_t *at, Py_ssize_t size, int typed)
{
    Py_ssize_t total = 0;
    while (size > 0) {
        if (size < 4 + typed || (typed && (at[0] < 1 || at[0] > KIND_MAX)))
            return -1;
        at += typed;
        size -= typed;
        Py_ssize_t name = le32(at);
        if (name < 1 || name > TEXT_MAX || size < 4 + name + 5)
            return -1;
        for (Py_ssize_t i = 0; i < name; i++)
            if (at[4 + i] >= 0x80)
                return -1; /* Not ASCII: whether it is text Python says. */
        const uint8_t *kind = at + 4 + name;
        Py_ssize_t value = le32(kind + 1);
        if (kind[0] < 1 || kind[0] > KIND_MAX || value < 1 || value > TEXT_MAX)
            return -1;
        Py_ssize_t whole = 4 + name + 5 + value;
        if (whole > size)
            return -1;
        total += value;
        at += whole;
        size -= whole;
    }
    return total;
}

typedef struct {
    Py_ssize_t count, missing, payloads, headers;
} Sent;

static int check_sent(const uint8_t *at, Py_ssize_t end, Sent *sent)
{
    static const uint8_t no_id[16];
    memset(sent, 0, sizeof *sent);
    for (Py_ssize_t pos = 0; pos < end; sent->count++) {
        if (end - pos < SENT_HEAD)
            return 0;
        Py_ssize_t headers = le32(at + pos + 16);
        if (headers > end - pos - SENT_HEAD)
            return 0;
        Py_ssize_t payload_pos = pos + SENT_HEAD + headers, size = le32(at + payload_pos - 4);
        if (!size || size > end - payload_pos)
            return 0;
        if (headers) {
            Py_ssize_t values = header_bytes(at + pos + 20, headers, 0);
            if (values < 0)
                return 0;
            sent->headers += values;
        }
        sent->missing += memcmp(at + pos, no_id, 16) == 0;
        sent->payloads += size;
        pos = payload_pos + size;
    }
    return sent->count > 0;
}

static void fill_records(const uint8_t *at, Py_ssize_t end, uint64_t offset, uint64_t append_us,
                         const uint8_t *ids, uint8_t *record)
{
    static const uint8_t no_id[16];
    for (Py_ssize_t pos = 0; pos < end; offset++) {
        Py_ssize_t headers = le32(at + pos + 16), payload_pos = pos + SENT_HEAD + headers;
        Py_ssize_t size = le32(at + payload_pos - 4), rest = payload_pos + size - pos - 16;
        put_le(record, offset, 8);
        record[8] = 1;
        put_le(record + 9, append_us, 8);
        if (memcmp(at + pos, no_id, 16) == 0) {
            memcpy(record + 17, ids, 16);
            record[17 + 6] = (record[17 + 6] & 0x0f) | 0x40; /* UUID, version 4 */
            record[17 + 8] = (record[17 + 8] & 0x3f) | 0x80;
            ids += 16;
        } else
            memcpy(record + 17, at + pos, 16);
        put_le(record + 33, crc32_of(at + payload_pos, (size_t)size), 4);
        memcpy(record + RECORD_HEAD, at + pos + 16, (size_t)rest);
        record += RECORD_HEAD + rest;
        pos = payload_pos + size;
    }
}

/* The body of a SEND, behind `head`, and how many messages it holds; None where a limit is passed
 * or anything is out of order. `random_bytes(n)` gives ids to those without. */
static PyObject *iggy_body(PyObject *self, PyObject *args)
{
    Py_buffer view, head;
    long long base_offset, append_us;
    Py_ssize_t payloads_max, headers_max;
    PyObject *random_bytes, *ids = NULL, *body = NULL, *result = NULL;
    Sent sent;
    if (!PyArg_ParseTuple(args, "y*y*LLnnO", &view, &head, &base_offset, &append_us,
                          &payloads_max, &headers_max, &random_bytes))
        return NULL;
    if (!check_sent(view.buf, view.len, &sent) || sent.payloads > payloads_max
        || sent.headers > headers_max) {
        result = Py_NewRef(Py_None);
        goto done;
    }
    ids = PyObject_CallFunction(random_bytes, "n", 16 * sent.missing);
    if (ids == NULL)
        goto done;
    if (!PyBytes_Check(ids) || PyBytes_GET_SIZE(ids) != 16 * sent.missing) {
        PyErr_SetString(PyExc_TypeError, "random_bytes gives as many bytes as it is asked for");
        goto done;
    }
    body = PyByteArray_FromStringAndSize(
        NULL, head.len + view.len + sent.count * (RECORD_HEAD - 16));
    if (body == NULL)
        goto done;
    uint8_t *to = (uint8_t *)PyByteArray_AS_STRING(body);
    memcpy(to, head.buf, (size_t)head.len);
    fill_records(view.buf, view.len, (uint64_t)base_offset, (uint64_t)append_us,
                 (const uint8_t *)PyBytes_AS_STRING(ids), to + head.len);
    result = Py_BuildValue("On", body, sent.count);
done:
    Py_XDECREF(ids);
    Py_XDECREF(body);
    PyBuffer_Release(&view);
    PyBuffer_Release(&head);
    return result;
}

/* The frames of a batch of Iggy's crate 0.11 (`iggy_forms.FRAME_HEAD`) as stored records
 * (`iggy_typed.HEAD`) at `to`: how much they are and hold, or None. `sums` gets their checksums. */
static PyObject *iggy_frames(PyObject *self, PyObject *args)
{
    Py_buffer view, body, sums;
    unsigned long long offset, append_us, earliest_us, first_us = 0, latest_us = 0;
    Py_ssize_t pos = 0, to, count = 0, payloads = 0, values = 0;
    if (!PyArg_ParseTuple(args, "y*w*nw*KKK", &view, &body, &to, &sums, &offset, &append_us,
                          &earliest_us))
        return NULL;
    for (; view.len - pos >= 48 && sums.len >= 8 * (count + 1); count++) {
        const uint8_t *frame = (uint8_t *)view.buf + pos;
        uint8_t *record = (uint8_t *)body.buf + to;
        Py_ssize_t headers = le32(frame + 32), payload = le32(frame + 36), rest = headers + payload;
        uint64_t sent_us = earliest_us + le32(frame + 28);
        Py_ssize_t held = rest > 176 || rest > view.len - pos - 48 || body.len - to < 64 + rest
                || le32(frame + 24) != count || le64(frame + 40) || sent_us >> 63
                || xxh3_of(frame + 8, 40 + (size_t)rest) != le64(frame)
            ? -1 : header_bytes(frame + 48 + payload, headers, 1);
        if (held < 0)
            break;
        memcpy(record + 8, frame + 8, 16);
        put_le(record + 24, offset + (uint64_t)count, 8);
        put_le(record + 32, append_us, 8);
        put_le(record + 40, sent_us, 8);
        memcpy(record + 48, frame + 32, 16); /* sizes and zeros */
        memcpy(record + 64, frame + 48, (size_t)rest);
        put_le(record, xxh3_of(record + 8, 56 + (size_t)rest), 8);
        memcpy((uint8_t *)sums.buf + 8 * count, frame, 8);
        first_us = first_us ? first_us : sent_us;
        latest_us = sent_us > latest_us ? sent_us : latest_us;
        payloads += payload;
        values += held;
        pos += 48 + rest;
        to += 64 + rest;
    }
    int is_sound = pos == view.len && to == body.len && 8 * count == sums.len;
    PyBuffer_Release(&view);
    PyBuffer_Release(&body);
    PyBuffer_Release(&sums);
    if (!is_sound)
        Py_RETURN_NONE;
    return Py_BuildValue("nnKK", payloads, values, first_us, latest_us);
}

/* Iggy's classic records of a set, from an offset on, as many as there is room for; a key that a
 * header can hold comes in one, behind `head`. They end before what Python has to look at. */
static PyObject *kafka_to_iggy(PyObject *self, PyObject *args)
{
    Py_buffer view, head;
    long long append_us, start, first = 0, next = 0;
    Py_ssize_t count_max, bytes_max, pos = 0, size = 0, count = 0;
    int is_full = 0;
    Message message;
    if (!PyArg_ParseTuple(args, "y*y*LLnn", &view, &head, &append_us, &start, &count_max, &bytes_max))
        return NULL;
    PyObject *made = PyBytes_FromStringAndSize(NULL, bytes_max);
    while (made != NULL && next_message(view.buf, &pos, view.len, &message)) {
        Py_ssize_t value = message.value_size, key = message.key_size;
        Py_ssize_t headers = key >= 1 && key <= TEXT_MAX ? head.len + 4 + key : 0;
        if (message.offset < start)
            continue;
        if (value < 1)
            break;
        is_full = count == count_max || RECORD_HEAD + 8 + headers + value > bytes_max - size;
        if (is_full)
            break;
        uint8_t *to = (uint8_t *)PyBytes_AS_STRING(made) + size;
        put_le(to, (uint64_t)message.offset, 8);
        to[8] = 1;
        put_le(to + 9, (uint64_t)append_us, 8);
        memset(to + 17, 0, 16);
        put_le(to + 33, crc32_of(message.value, (size_t)value), 4);
        put_le(to + 37, (uint64_t)headers, 4);
        if (headers) {
            memcpy(to + 41, head.buf, (size_t)head.len);
            put_le(to + 41 + head.len, (uint64_t)key, 4);
            memcpy(to + 45 + head.len, message.key, (size_t)key);
        }
        put_le(to + 41 + headers, (uint64_t)value, 4);
        memcpy(to + 45 + headers, message.value, (size_t)value);
        size += RECORD_HEAD + 8 + headers + value;
        first = count++ ? first : message.offset;
        next = message.offset + 1;
    }
    PyBuffer_Release(&view);
    PyBuffer_Release(&head);
    if (made == NULL || _PyBytes_Resize(&made, size) < 0)
        return NULL;
    return Py_BuildValue("NnLLN", made, count, first, next, PyBool_FromLong(is_full));
}

static PyMethodDef methods[] = {
    {"kafka_check_and_stamp", kafka_check_and_stamp, METH_VARARGS,
     "(set, base offset, bytes of an entry at most) -> (count, end, is compressed) or None"},
    {"kafka_stamp", kafka_stamp, METH_VARARGS, "(checked set, base offset) -> whether it was sound"},
    {"send_producer", send_producer, METH_VARARGS,
     "(received, frame at most, entry at most) -> producer id of a plain SEND at the front or None"},
    {"cut_sends", cut_sends, METH_VARARGS,
     "(received, frames, frame and entry at most, producer id, delta, none)"
     " -> (bytes, sent, entries, first ms, latest ms)"},
    {"entry_key", entry_key, METH_O, "Key of a stored Pulsar entry, None where it is not plain."},
    {"iggy_body", iggy_body, METH_VARARGS,
     "(messages, head, base offset, append us, payloads and headers at most, random bytes)"
     " -> (body, count) or None"},
    {"iggy_frames", iggy_frames, METH_VARARGS,
     "(frames, body, where, room for checksums, base offset, append us, earliest us)"
     " -> (bytes of payloads, of headers, first us, latest us) or None"},
    {"kafka_to_iggy", kafka_to_iggy, METH_VARARGS,
     "(set, head of a key's header, append us, start offset, records and bytes at most)"
     " -> (records, count, first offset, next offset, whether there was no room for the next)"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_speedups", "See speedups.c.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__speedups(void)
{
    fill_table(crc32_table, 0xedb88320);
    fill_table(crc32c_table, 0x82f63b78);
#if ON_X86
    __builtin_cpu_init();
    has_clmul = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    has_sse42 = __builtin_cpu_supports("sse4.2");
#endif
    return PyModule_Create(&module);
}
