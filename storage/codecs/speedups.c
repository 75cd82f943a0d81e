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
static inline uint32_t be32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline uint32_t le32(const uint8_t *at) {
    return (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

static inline uint64_t le64(const uint8_t *at) {
    return le32(at) | (uint64_t)le32(at + 4) << 32;
}

static inline void put_le(uint8_t *at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++, value >>= 8)
        at[i] = (uint8_t)value;
}

/* Checksums: CRC-32 (zlib's) and CRC-32C. Tables serve everywhere, the processor's own
 * instructions where they are. */

static uint32_t crc32_table[8][256], crc32c_table[8][256];
static int has_clmul, has_sse42;

static void fill_table(uint32_t table[8][256], uint32_t polynomial) {
    for (int slice = 0; slice < 8; slice++) /* As many bytes of zero follow each. */
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t crc = slice ? table[slice - 1][i] : i;
            for (int bit = 0; bit < 8; bit++)
                crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
            table[slice][i] = crc;
        }
}

static uint32_t by_table(uint32_t table[8][256], uint32_t crc, const uint8_t *at, size_t size) {
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
__attribute__((target("pclmul,sse4.1")))
static inline __m128i fold(__m128i lane, __m128i by, __m128i next) {
    __m128i low = _mm_clmulepi64_si128(lane, by, 0x00), high = _mm_clmulepi64_si128(lane, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(high, low), next);
}

/* Gopal and others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction",
 * Intel 2009. `size` is 64 or more and a multiple of 16. */
__attribute__((target("pclmul,sse4.1")))
static uint32_t by_clmul(uint32_t crc, const uint8_t *at, size_t size) {
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
        for (int i = 0; i < 4; i++)
            lane[i] = fold(lane[i], fold_4, _mm_loadu_si128((const __m128i *)(at + 16 * i)));
    one = lane[0];
    for (int i = 1; i < 4; i++)
        one = fold(one, fold_1, lane[i]);
    for (; size; at += 16, size -= 16)
        one = fold(one, fold_1, _mm_loadu_si128((const __m128i *)at));
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
static uint32_t by_sse42(uint32_t crc, const uint8_t *at, size_t size) {
    uint64_t wide = crc;
    for (; size >= 8; at += 8, size -= 8)
        wide = _mm_crc32_u64(wide, le64(at));
    crc = (uint32_t)wide;
    for (; size; at++, size--)
        crc = _mm_crc32_u8(crc, *at);
    return crc;
}
#endif

static uint32_t crc32_of(const uint8_t *at, size_t size) {
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

static uint32_t crc32c_of(const uint8_t *at, size_t size) {
#if ON_X86
    if (has_sse42)
        return ~by_sse42(0xffffffff, at, size);
#endif
    return ~by_table(crc32c_table, 0xffffffff, at, size);
}

/* XXH3 of 64 bits without a seed, of 17 bytes and more: github.com/Cyan4973/xxHash, xxhash_spec.md. */
static const uint8_t xxh_secret[192] = {
    184, 254, 108, 57, 35, 164, 75, 190, 124, 1, 129, 44, 247, 33, 173, 28, 222, 212, 109, 233, 131, 144,
    151, 219, 114, 64, 164, 164, 183, 179, 103, 31, 203, 121, 230, 78, 204, 192, 229, 120, 130, 90, 208,
    125, 204, 255, 114, 33, 184, 8, 70, 116, 247, 67, 36, 142, 224, 53, 144, 230, 129, 58, 38, 76, 60, 40,
    82, 187, 145, 195, 0, 203, 136, 208, 101, 139, 27, 83, 46, 163, 113, 100, 72, 151, 162, 13, 249, 78, 56,
    25, 239, 70, 169, 222, 172, 216, 168, 250, 118, 63, 227, 156, 52, 63, 249, 220, 187, 199, 199, 11, 79,
    29, 138, 81, 224, 75, 205, 180, 89, 49, 200, 159, 126, 201, 217, 120, 115, 100, 234, 197, 172, 131, 52,
    211, 235, 195, 197, 129, 160, 255, 250, 19, 99, 235, 23, 13, 221, 81, 183, 240, 218, 73, 211, 22, 85,
    38, 41, 212, 104, 158, 43, 22, 190, 88, 125, 71, 161, 252, 143, 248, 184, 209, 122, 208, 49, 206, 69,
    203, 58, 143, 149, 22, 4, 40, 175, 215, 251, 202, 187, 75, 64, 126,
};

enum { STRIPE = 64, BLOCK_STRIPES = 16 };
static const uint64_t prime_1 = 0x9e3779b185ebca87, prime_32_1 = 0x9e3779b1;

static inline uint64_t folded(uint64_t left, uint64_t right) {
    unsigned __int128 product = (unsigned __int128)left * right;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t mixed(const uint8_t *at, const uint8_t *secret) {
    return folded(le64(at) ^ le64(secret), le64(at + 8) ^ le64(secret + 8));
}

static inline uint64_t avalanche(uint64_t hash) {
    hash = (hash ^ hash >> 37) * 0x165667919e3779f9;
    return hash ^ hash >> 32;
}

static uint64_t xxh3_of_many(const uint8_t *at, size_t size) {
    uint64_t lane[8] = {0xc2b2ae3d, prime_1, 0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9,
                        0x85ebca77c2b2ae63, 0x85ebca77, 0x27d4eb2f165667c5, prime_32_1};
    size_t stripes = (size - 1) / STRIPE;
    uint64_t hash = size * prime_1;
    for (size_t n = 0; n <= stripes; n++) { /* The last one is the end, whatever it overlaps. */
        const uint8_t *stripe = n < stripes ? at + STRIPE * n : at + size - STRIPE;
        const uint8_t *secret = xxh_secret + (n < stripes ? 8 * (n % BLOCK_STRIPES) : 121);
        for (int i = 0; i < 8; i++) {
            uint64_t value = le64(stripe + 8 * i), keyed = value ^ le64(secret + 8 * i);
            lane[i ^ 1] += value;
            lane[i] += (keyed & 0xffffffff) * (keyed >> 32);
        }
        for (int i = 0; i < 8 && n < stripes && n % BLOCK_STRIPES == BLOCK_STRIPES - 1; i++)
            lane[i] = (lane[i] ^ lane[i] >> 47 ^ le64(xxh_secret + 128 + 8 * i)) * prime_32_1;
    }
    for (int i = 0; i < 8; i += 2)
        hash += folded(lane[i] ^ le64(xxh_secret + 11 + 8 * i),
                       lane[i + 1] ^ le64(xxh_secret + 19 + 8 * i));
    return avalanche(hash);
}

static uint64_t xxh3_of(const uint8_t *at, size_t size) {
    uint64_t hash = size * prime_1;
    if (size > 240)
        return xxh3_of_many(at, size);
    for (size_t i = size > 128 ? 0 : (size + 31) / 32; i-- > 0;) /* From both ends inwards. */
        hash += mixed(at + 16 * i, xxh_secret + 32 * i)
            + mixed(at + size - 16 * (i + 1), xxh_secret + 32 * i + 16);
    for (size_t i = 0; size > 128 && i < size / 16; i++) {
        hash += mixed(at + 16 * i, xxh_secret + (i < 8 ? 16 * i : 16 * (i - 8) + 3));
        hash = i == 7 ? avalanche(hash) : hash;
    }
    return avalanche(hash + (size > 128 ? mixed(at + size - 16, xxh_secret + 119) : 0));
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
enum { SEND_HEAD = 12, CHECKED_MIN = 10, PREFIX = 12, VARINT_BYTES_MAX = 9 };

typedef struct {
    uint64_t producer_id;
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

/* A field of a message: a number, or so many bytes. 0: another kind, or none. */
typedef struct {
    uint64_t tag, value;
    const uint8_t *start;
} Field;

static int next_field(const uint8_t **at, const uint8_t *end, Field *field) {
    if (!varint(at, end, &field->tag) || field->tag & 5 || !varint(at, end, &field->value))
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

/* The ordering key in an entry's metadata, else its partition key; NULL where there is neither, or it
 * is not plain. */
static const uint8_t *key_in(const uint8_t *at, const uint8_t *end, uint64_t *size) {
    Field field, key = {0}, ordering = {0};
    uint64_t is_base64 = 0;
    while (at < end) {
        if (!next_field(&at, end, &field))
            return NULL;
        if (field.tag == NUMBER(17))
            is_base64 = field.value;
        else if (field.tag == BYTES(6))
            key = field;
        else if (field.tag == BYTES(18))
            ordering = field;
    }
    *size = ordering.start ? ordering.value : key.value;
    return ordering.start ? ordering.start : is_base64 ? NULL : key.start;
}

/* entry_key(entry) -> key or None: `sticky_key` of broker/delivery/entries.py. */
static PyObject *entry_key(PyObject *self, PyObject *entry) {
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

/* chain(body, head, least, is_big, is_cut) -> bytes of an int64 for the start of each whole entry, or None where
 * they do not end with the body, unless it is cut: the walks of storage/spark/decode/kafka.py and plain.py. Each
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
                ((int64_t *)PyBytes_AS_STRING(found))[count] = pos;
            pos += head + more;
        }
    } while ((is_cut || pos == body.len) && found == NULL
             && (found = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(int64_t))) != NULL);
    PyBuffer_Release(&body);
    return found != NULL || PyErr_Occurred() ? found : Py_NewRef(Py_None);
}

/* The SEND that begins here, if it is whole, in order and of the plain kind. */
static int plain_send(const uint8_t *at, Py_ssize_t left, Py_ssize_t total_max,
                      Py_ssize_t entry_max, Send *send) {
    Field producer, sequence, messages;
    if (left < SEND_HEAD)
        return 0;
    Py_ssize_t total = be32(at), command = be32(at + 4), size = at[11];
    if (at[8] != 0x08 || at[9] != 0x06 || at[10] != 0x32 || size >= 0x80 || command != size + 4
        || total > total_max || total + 4 > left || SEND_HEAD + size >= total + 4)
        return 0;
    const uint8_t *field = at + SEND_HEAD, *end = field + size;
    if (!next_field(&field, end, &producer) || producer.tag != NUMBER(1)
        || !next_field(&field, end, &sequence) || sequence.tag != NUMBER(2))
        return 0;
    if (field < end && (!next_field(&field, end, &messages) || messages.tag != NUMBER(3) || field != end))
        return 0;
    send->producer_id = producer.value;
    send->rest_size = total + 4 - SEND_HEAD - size;
    send->frame_size = total + 4;
    if (send->rest_size < CHECKED_MIN || send->rest_size > entry_max)
        return 0;
    Py_ssize_t metadata = be32(end + 6);
    if (end[0] != 0x0e || end[1] != 0x01 || metadata > send->rest_size - CHECKED_MIN
        || crc32c_of(end + 6, (size_t)send->rest_size - 6) != be32(end + 2))
        return 0;
    return plain_metadata(end + CHECKED_MIN, end + CHECKED_MIN + metadata, send);
}

static PyObject *send_producer(PyObject *self, PyObject *args) {
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
                    uint8_t *body, PyObject *sent) {
    for (Py_ssize_t i = 0; i < count; i++, delta++) {
        Field sequence = {0};
        const uint8_t *field = at + SEND_HEAD, *stop = field + at[11];
        Py_ssize_t whole = (Py_ssize_t)be32(at) + 4, rest = whole - (stop - at);
        for (int skipped = 0; skipped < 2; skipped++) /* The producer is before it; all is in order. */
            next_field(&field, stop, &sequence);
        put_le(body, (uint64_t)rest, 4);
        put_le(body + 4, delta, 4);
        put_le(body + 8, 1, 4);
        memcpy(body + PREFIX, stop, (size_t)rest);
        body += PREFIX + rest;
        at += whole;
        PyObject *one = Py_BuildValue("KOIO", sequence.value, none, delta, Py_None);
        if (one == NULL)
            return -1;
        PyList_SET_ITEM(sent, i, one);
    }
    return 0;
}

/* The plain SENDs of one producer at the front: bytes taken, what was sent, stored entries, publish
 * time of the first and the latest that have one, in ms (-1: none). */
static PyObject *cut_sends(PyObject *self, PyObject *args) {
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
        first_ms = first_ms < 0 ? send.publish_ms : first_ms;
        latest_ms = send.publish_ms > latest_ms ? send.publish_ms : latest_ms;
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

/* Iggy's messages: `iggy.py`, `iggy_typed.py`, `iggy_forms.py`. In the older forms, as sent and as stored,
 * a head ends with the headers' length, and the headers, the payload's length and the payload follow; in
 * the later ones, as stored and as a batch has them, a head ends with both lengths and eight zeros, and
 * payload and headers follow. The same numbers as `iggy.Form`. */
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

static int is_ascii(const uint8_t *at, Py_ssize_t size) {
    uint8_t all = 0;
    while (size-- > 0)
        all |= at[size];
    return all < 0x80;
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

/* (stored records, pos, count at most) -> (count, base offset, append us, earliest us, bytes as frames): as
 * many as go into one batch, which have one append time and distances that a frame can hold. */
static PyObject *iggy_run(PyObject *self, PyObject *args) {
    Py_buffer view;
    Py_ssize_t pos, count_max, count = 0, size = 0;
    uint64_t earliest = UINT64_MAX, latest = 0;
    Record first = {0}, one;
    if (!PyArg_ParseTuple(args, "y*nn", &view, &pos, &count_max))
        return NULL;
    for (; count < count_max && next_record(TYPED, view.buf, &pos, view.len, &one); count++) {
        first = count ? first : one;
        uint64_t low = one.sent_us < earliest ? one.sent_us : earliest;
        uint64_t high = one.sent_us > latest ? one.sent_us : latest;
        if (one.append_us != first.append_us || one.offset - first.offset > UINT32_MAX
            || high - low > UINT32_MAX)
            break;
        earliest = low;
        latest = high;
        size += head_bytes[FRAME] + one.headers_size + one.payload_size;
    }
    PyBuffer_Release(&view);
    return Py_BuildValue("nKKKn", count, first.offset, first.append_us, earliest, size);
}

static PyMethodDef methods[] = {
    {"kafka_check_and_stamp", kafka_check_and_stamp, METH_VARARGS, NULL},
    {"send_producer", send_producer, METH_VARARGS, NULL},
    {"cut_sends", cut_sends, METH_VARARGS, NULL},
    {"entry_key", entry_key, METH_O, NULL},
    {"chain", chain, METH_VARARGS, NULL},
    {"iggy_check", iggy_check, METH_VARARGS, NULL},
    {"iggy_write", iggy_write, METH_VARARGS, NULL},
    {"iggy_run", iggy_run, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_speedups", "See speedups.c.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__speedups(void) {
    fill_table(crc32_table, 0xedb88320);
    fill_table(crc32c_table, 0x82f63b78);
#if ON_X86
    __builtin_cpu_init();
    has_clmul = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    has_sse42 = __builtin_cpu_supports("sse4.2");
#endif
    return PyModule_Create(&module);
}
