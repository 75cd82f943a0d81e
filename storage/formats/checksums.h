/* The checksums of the protocols, by their published algorithms: CRC-32 (zlib's), CRC-32C and XXH3. Tables
 * serve everywhere, the processor's own instructions where they are. Call `fill_tables` first. Knows nothing of
 * what is summed up.
 */

#pragma once

#include <stddef.h>
#include <stdint.h>

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

static void fill_tables(void) {
    fill_table(crc32_table, 0xedb88320);
    fill_table(crc32c_table, 0x82f63b78);
#if ON_X86
    __builtin_cpu_init();
    has_clmul = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    has_sse42 = __builtin_cpu_supports("sse4.2");
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
