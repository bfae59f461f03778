#include "base/crc32c.h"

/* 0x1EDC6F41, lowest bit first. */
static const uint32_t POLYNOMIAL = 0x82F63B78u;

uint32_t wf_crc32c(uint32_t before, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    uint32_t crc = ~before;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= at[i];
        /* Bit by bit: its files are small, and a table would be a second thing to get right. */
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (POLYNOMIAL & (0u - (crc & 1u)));
    }
    return ~crc;
}
