/* How classes are shown, in previews, class maps and overlays alike. */
#ifndef WF_TRAIN_COLOR_H
#define WF_TRAIN_COLOR_H

#include <stdint.h>

/* Colours that can be told apart: steps of the golden angle around the wheel; class 0 is black. */
void wf_class_color(int label, uint8_t rgb[3]);

#endif
