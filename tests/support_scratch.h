/* A folder for a program's files: tests write into the working folder, wherever they are started.
 *
 *     return cmocka_run_group_tests(tests, support_scratch_enter, support_scratch_leave);
 */
#ifndef WF_TESTS_SUPPORT_SCRATCH_H
#define WF_TESTS_SUPPORT_SCRATCH_H

/* Makes a fresh folder under $TMPDIR (or /tmp) the working folder; 0 when that went well. */
int support_scratch_enter(void **state);
/* Removes it with what is in it. */
int support_scratch_leave(void **state);

#endif
