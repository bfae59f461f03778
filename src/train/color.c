#include "train/color.h"

#include <math.h>

void wf_class_color(int label, uint8_t rgb[3])
{
    if (label == 0) {
        rgb[0] = rgb[1] = rgb[2] = 0;
        return;
    }
    const double hue = fmod(0.08 + 0.618033988749895 * (label - 1), 1.0) * 6;
    for (int c = 0; c < 3; c++) {
        const double k = fmod((c == 0 ? 5 : c == 1 ? 3 : 1) + hue, 6);
        const double low = fmax(0, fmin(fmin(k, 4 - k), 1));
        rgb[c] = (uint8_t)lrint(255 * 0.95 * (1 - 0.75 * low));
    }
}
