/* Principal components of points whose axes are known. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/projection.h"

static void assert_near(double is, double wanted, double tolerance)
{
    if (!(fabs(is - wanted) <= tolerance))
        fail_msg("%g instead of %g", is, wanted);
}

/* (3a + 4b, 4a - 3b, b', a') / 5 turns the plane of a and b into four dimensions; the mean is not zero. */
static void project__finds_the_axes_of_an_ellipse(void **)
{
    enum { N = 12 };
    float rows[N][4], xy[N][2];
    double a[N], b[N], share[2];
    for (int i = 0; i < N; i++) {
        a[i] = 5 * cos(2 * acos(-1) * i / N);
        b[i] = 2 * sin(2 * acos(-1) * i / N);
        rows[i][0] = (float)(0.6 * a[i] + 0.8 * b[i] + 7);
        rows[i][1] = (float)(0.8 * a[i] - 0.6 * b[i] - 3);
        rows[i][2] = rows[i][3] = 1.5f;
    }
    wf_project(&rows[0][0], N, 4, &xy[0][0], share);
    for (int i = 0; i < N; i++) { /* largest elements 0.8 and 0.8 are positive */
        assert_near((double)xy[i][0], a[i], 1e-5);
        assert_near((double)xy[i][1], b[i], 1e-5);
    }
    assert_near(share[0], 25.0 / 29.0, 1e-6); /* of 25 and 4 */
    assert_near(share[1], 4.0 / 29.0, 1e-6);
}

static void project__of_a_line_has_one_component(void **)
{
    const float rows[] = { 1, -1, 2, -2, 3, -3, 6, -6 };
    float xy[8];
    double share[2];
    wf_project(rows, 4, 2, xy, share);
    assert_near((double)xy[0], -2 * sqrt(2), 1e-6); /* the mean is (3, -3) */
    assert_near((double)xy[6], 3 * sqrt(2), 1e-6);
    for (int i = 0; i < 4; i++)
        assert_near((double)xy[2 * i + 1], 0, 1e-6);
    assert_near(share[0], 1, 1e-9);
    assert_near(share[1], 0, 1e-9);
}

static void project__of_equal_rows_is_a_point(void **)
{
    const float rows[] = { 4, 2, 9, 4, 2, 9 };
    float xy[4] = { 1, 1, 1, 1 };
    double share[2] = { 1, 1 };
    wf_project(rows, 2, 3, xy, share);
    for (int i = 0; i < 4; i++)
        assert_near((double)xy[i], 0, 1e-6);
    assert_near(share[0] + share[1], 0, 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(project__finds_the_axes_of_an_ellipse),
        cmocka_unit_test(project__of_a_line_has_one_component),
        cmocka_unit_test(project__of_equal_rows_is_a_point),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
