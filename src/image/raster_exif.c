#include "image/raster_exif.h"

#include <stdbool.h>
#include <stdint.h>

enum { ORIENTATION = 274, SHORT = 3, ENTRY = 12 };

static uint32_t number(const unsigned char *at, int bytes, bool big)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++)
        value = value << 8 | at[big ? i : bytes - 1 - i];
    return value;
}

int wf_exif_orientation(const unsigned char *block, size_t size)
{
    if (size < 8 || block[0] != block[1] || (block[0] != 'I' && block[0] != 'M'))
        return 1;
    const bool big = block[0] == 'M';
    const size_t directory = number(block + 4, 4, big);
    if (directory > size || size - directory < 2)
        return 1;
    const uint32_t count = number(block + directory, 2, big);
    for (uint32_t i = 0; i < count; i++) {
        const size_t place = directory + 2 + (size_t)i * ENTRY;
        if (size - directory < 2 + ((size_t)i + 1) * ENTRY)
            return 1;
        const unsigned char *const entry = block + place;
        if (number(entry, 2, big) != ORIENTATION || number(entry + 2, 2, big) != SHORT)
            continue;
        const uint32_t value = number(entry + 8, 2, big);
        return value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}
