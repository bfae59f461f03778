/* The cores that this process may use: a launcher may bind it to some. */
#pragma once

int wf_cores(void);
