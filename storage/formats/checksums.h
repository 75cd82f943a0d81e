/* The checksums of the protocols, by their published algorithms: CRC-32 (zlib's), CRC-32C and XXH3. Tables
 * serve everywhere, the processor's own instructions where they are. Call `fill_tables` first. Knows nothing of
 * what is summed up.
 */

#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define ON_X86 1
#include <immintrin.h>
#else
#define ON_X86 0
#endif

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

static uint32_t crc32_table[8][256], crc32c_table[8][256];
static int has_clmul, has_sse42, has_avx2;

static void fill_table(uint32_t table[8][256], uint32_t polynomial) {
    for (int slice = 0; slice < 8; slice++) /* As many bytes of zero follow each. */
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t crc = slice ? table[slice - 1][i] : i;
            for (int bit = 0; bit < 8; bit++)
                crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
            table[slice][i] = crc;
        }
}

static void fill_tables(void) {
    fill_table(crc32_table, 0xedb88320);
    fill_table(crc32c_table, 0x82f63b78);
#if ON_X86
    __builtin_cpu_init();
    has_clmul = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    has_sse42 = __builtin_cpu_supports("sse4.2");
    has_avx2 = __builtin_cpu_supports("avx2");
#endif
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
 * Intel 2009, up to the last 16 bytes. `size` is 64 or more and a multiple of 16. */
__attribute__((target("pclmul,sse4.1")))
static uint32_t by_clmul(uint32_t crc, const uint8_t *at, size_t size) {
    const __m128i fold_4 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i fold_1 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    __m128i lane[4], one;
    uint8_t last[16];

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
    _mm_storeu_si128((__m128i *)last, one);
    return by_table(crc32_table, 0, last, sizeof last);
}

#ifdef __clang__ /* has the instructions of crc32 apart; GCC has them in sse4.2 */
__attribute__((target("sse4.2,crc32")))
#else
__attribute__((target("sse4.2")))
#endif
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

/* The checksum of what has the sum `before`, and of these bytes behind it. */
static uint32_t crc32c_on(uint32_t before, const uint8_t *at, size_t size) {
#if ON_X86
    if (has_sse42)
        return ~by_sse42(~before, at, size);
#endif
    return ~by_table(crc32c_table, ~before, at, size);
}

static uint32_t crc32c_of(const uint8_t *at, size_t size) {
    return crc32c_on(0, at, size);
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

enum { STRIPE = 64, BLOCK_STRIPES = 16, MANY = 240, COPIED_HEAD = 40 };
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

/* A hash of 241 bytes and more is made from eight sums: each stripe adds to them, each block mixes them. */
enum { SUMS = 8 };
typedef uint64_t Sums[SUMS];

static inline void add_stripe(Sums sums, const uint8_t *stripe, const uint8_t *secret) {
    for (int i = 0; i < SUMS; i++) {
        uint64_t value = le64(stripe + 8 * i), keyed = value ^ le64(secret + 8 * i);
        sums[i ^ 1] += value;
        sums[i] += (keyed & 0xffffffff) * (keyed >> 32);
    }
}

static void add_blocks(Sums sums, const uint8_t *at, size_t stripes) {
    for (size_t n = 0; n < stripes; n++) {
        add_stripe(sums, at + STRIPE * n, xxh_secret + 8 * (n % BLOCK_STRIPES));
        for (int i = 0; i < SUMS && n % BLOCK_STRIPES == BLOCK_STRIPES - 1; i++)
            sums[i] = (sums[i] ^ sums[i] >> 47 ^ le64(xxh_secret + 128 + 8 * i)) * prime_32_1;
    }
}

static const Sums first_sums = {0xc2b2ae3d, 0x9e3779b185ebca87, 0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9,
                                0x85ebca77c2b2ae63, 0x85ebca77, 0x27d4eb2f165667c5, 0x9e3779b1};

static inline uint64_t sum_of(const Sums sums, size_t size) {
    uint64_t hash = size * prime_1;
    for (int i = 0; i < SUMS; i += 2)
        hash += folded(sums[i] ^ le64(xxh_secret + 11 + 8 * i), sums[i + 1] ^ le64(xxh_secret + 19 + 8 * i));
    return avalanche(hash);
}

#if ON_X86
/* Four of the eight sums. */
__attribute__((target("avx2")))
static inline __m256i add_half(__m256i four, __m256i value, const uint8_t *secret) {
    __m256i keyed = _mm256_xor_si256(value, _mm256_loadu_si256((const __m256i *)secret));
    __m256i product = _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32));
    __m256i swapped = _mm256_shuffle_epi32(value, 0x4e);
    return _mm256_add_epi64(four, _mm256_add_epi64(product, swapped));
}

__attribute__((target("avx2")))
static inline __m256i mix_half(__m256i four, const uint8_t *secret) {
    const __m256i prime = _mm256_set1_epi64x((long long)prime_32_1);
    __m256i mix = _mm256_xor_si256(four, _mm256_srli_epi64(four, 47));
    mix = _mm256_xor_si256(mix, _mm256_loadu_si256((const __m256i *)secret));
    __m256i high = _mm256_slli_epi64(_mm256_mul_epu32(_mm256_srli_epi64(mix, 32), prime), 32);
    return _mm256_add_epi64(_mm256_mul_epu32(mix, prime), high);
}

/* The same as `add_blocks` and the last stripe. `left` and `right` are the first stripe; the others are at
 * `at`, and are copied to `to` unless that is NULL. The halves are no array: GCC 12 writes an array to
 * memory and reads it back. */
__attribute__((target("avx2"), always_inline))
static inline uint64_t sum_by_avx2(__m256i left, __m256i right, const uint8_t *at, size_t size, uint8_t *to) {
    size_t stripes = (size - 1) / STRIPE;
    __m256i low = _mm256_loadu_si256((const __m256i *)first_sums);
    __m256i high = _mm256_loadu_si256((const __m256i *)first_sums + 1);
    Sums sums;
    for (size_t n = 0;;) {
        const uint8_t *secret = xxh_secret + 8 * (n % BLOCK_STRIPES);
        low = add_half(low, left, secret);
        high = add_half(high, right, secret + 32);
        if (n % BLOCK_STRIPES == BLOCK_STRIPES - 1) {
            low = mix_half(low, xxh_secret + 128);
            high = mix_half(high, xxh_secret + 160);
        }
        if (++n == stripes)
            break;
        left = _mm256_loadu_si256((const __m256i *)(at + STRIPE * n));
        right = _mm256_loadu_si256((const __m256i *)(at + STRIPE * n) + 1);
        if (to) {
            _mm256_storeu_si256((__m256i *)(to + STRIPE * n), left);
            _mm256_storeu_si256((__m256i *)(to + STRIPE * n) + 1, right);
        }
    }
    left = _mm256_loadu_si256((const __m256i *)(at + size - STRIPE)); /* Whatever it overlaps. */
    right = _mm256_loadu_si256((const __m256i *)(at + size - STRIPE) + 1);
    low = add_half(low, left, xxh_secret + 121);
    high = add_half(high, right, xxh_secret + 153);
    if (to) {
        _mm256_storeu_si256((__m256i *)(to + size - STRIPE), left);
        _mm256_storeu_si256((__m256i *)(to + size - STRIPE) + 1, right);
    }
    _mm256_storeu_si256((__m256i *)sums, low);
    _mm256_storeu_si256((__m256i *)sums + 1, high);
    _mm256_zeroupper(); /* GCC 12 leaves this out, and all code after it waits for the upper halves. */
    return sum_of(sums, size);
}

__attribute__((target("avx2")))
static uint64_t xxh3_by_avx2(const uint8_t *at, size_t size) {
    const __m256i *first = (const __m256i *)at;
    return sum_by_avx2(_mm256_loadu_si256(first), _mm256_loadu_si256(first + 1), at, size, NULL);
}

/* No stripe is read from where it was just written: such a read waits for all writes before it. */
__attribute__((target("avx2")))
static uint64_t xxh3_copied_by_avx2(uint8_t *to, uint64_t h0, uint64_t h1, uint64_t h2, uint64_t h3,
                                    const uint8_t *from, size_t size) {
    int64_t first[3];
    memcpy(first, from, sizeof first);
    __m256i left = _mm256_set_epi64x((int64_t)h3, (int64_t)h2, (int64_t)h1, (int64_t)h0);
    __m256i right = _mm256_set_epi64x(first[2], first[1], first[0], 0);
    _mm256_storeu_si256((__m256i *)to, left);
    _mm256_storeu_si256((__m256i *)to + 1, right);
    return sum_by_avx2(left, right, from - COPIED_HEAD, COPIED_HEAD + size, to);
}
#endif

static uint64_t xxh3_of_many(const uint8_t *at, size_t size) {
    Sums sums;
#if ON_X86
    if (has_avx2)
        return xxh3_by_avx2(at, size);
#endif
    memcpy(sums, first_sums, sizeof sums);
    add_blocks(sums, at, (size - 1) / STRIPE);
    add_stripe(sums, at + size - STRIPE, xxh_secret + 121); /* The end, whatever it overlaps. */
    return sum_of(sums, size);
}

static uint64_t xxh3_of(const uint8_t *at, size_t size) {
    uint64_t hash = size * prime_1;
    if (size > MANY)
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

/* Write four numbers and a zero, and copy the bytes behind them; return the checksum of all, in the same walk. The
 * numbers come in registers: a vector that is read from numbers just written waits for them. */
static uint64_t xxh3_copied(uint8_t *to, uint64_t h0, uint64_t h1, uint64_t h2, uint64_t h3,
                            const uint8_t *from, size_t size) {
    const uint64_t head[] = {h0, h1, h2, h3, 0};
#if ON_X86
    if (has_avx2 && size > MANY)
        return xxh3_copied_by_avx2(to, h0, h1, h2, h3, from, size);
#endif
    for (int i = 0; i < 5; i++)
        put_le(to + 8 * i, head[i], 8);
    memcpy(to + COPIED_HEAD, from, size);
    return xxh3_of(to, COPIED_HEAD + size);
}
