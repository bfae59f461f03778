/* Memory of the machine, or of the control group that the process runs in where that has less. */
#pragma once

#include <stddef.h>

struct wf_free_memory {
    size_t all, free; /* bytes; free: without pushing out what is in use; 0: not known */
};
struct wf_free_memory wf_free_memory(void);
