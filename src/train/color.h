/* Colours of classes in previews, class maps and overlays. */
#pragma once

#include <stdint.h>

/* Distinct colours: steps of the golden angle around the hue circle; class 0 is black. */
void wf_class_color(int label, uint8_t rgb[3]);
