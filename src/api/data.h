/* What a program's data is to the other files of src/api. */
#pragma once

#include "api/session.h"
#include "data/dataset.h"

struct wf_data {
    struct wf_dataset *dataset;
};
