/* scheduler/config/reshape.c - see reshape.h. */
#include "scheduler/config/reshape.h"

#include <errno.h>
#include <string.h>

/* Elements of the dimensions from `at` to the next one of any size, which *at is then; the rank: there is none. 0 or
 * -EOVERFLOW. */
static int count_run(const struct swn_shape *s, uint32_t *at, uint64_t *elements)
{
    *elements = 1;
    for (; *at < s->rank && s->sizes[*at] >= 0; ++*at)
        if (__builtin_mul_overflow(*elements, (uint64_t)s->sizes[*at], elements))
            return -EOVERFLOW;
    return 0;
}

int swn_reshape_is_sound(const struct swn_shape *a, const struct swn_shape *b)
{
    uint64_t elements_a, elements_b;

    for (uint32_t i = 0, k = 0;; i++, k++) {
        if (count_run(a, &i, &elements_a) || count_run(b, &k, &elements_b) || elements_a != elements_b)
            return 0;
        if (i == a->rank || k == b->rank)
            return i == a->rank && k == b->rank;
    }
}

int swn_reshape(struct swn_wire_tensor *t, unsigned batch, const struct swn_shape *from, const struct swn_shape *to)
{
    int64_t any[SWN_WIRE_RANK], sizes[SWN_WIRE_RANK];
    uint32_t count = 0, used = 0;

    if (t->rank != batch + from->rank || batch + to->rank > SWN_WIRE_RANK)
        return -EINVAL;
    for (uint32_t d = 0; d < from->rank; d++) {
        if (from->sizes[d] < 0)
            any[count++] = t->shape[batch + d];
        else if (from->sizes[d] != t->shape[batch + d])
            return -EINVAL;
    }
    for (uint32_t d = 0; d < to->rank; d++) {
        if (to->sizes[d] < 0 && used == count)
            return -EINVAL;
        sizes[d] = to->sizes[d] < 0 ? any[used++] : to->sizes[d];
    }
    if (used != count)
        return -EINVAL;
    memcpy(t->shape + batch, sizes, to->rank * sizeof *sizes);
    t->rank = batch + to->rank;
    return 0;
}
