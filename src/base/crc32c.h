/* CRC-32C (Castagnoli), the checksum of iSCSI, ext4 and TFRecord files. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Continues the checksum `before` with `data`; 0 to start. */
uint32_t wf_crc32c(uint32_t before, const void *data, size_t bytes);
