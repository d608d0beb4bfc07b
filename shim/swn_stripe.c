#include "swn_stripe.h"

#include "swn_gcd.h"

/* So many times what fits, if it takes that to have whole blocks. */
#define LONGER 2

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* So many rows are whole blocks of pixels, and no fewer. */
static int64_t rows_per_block(int64_t row_pixels, int64_t block)
{
    return block / (int64_t)swn_gcd((uint64_t)block, (uint64_t)row_pixels);
}

struct swn_stripe swn_stripe_at(const struct swn_stripe_rows *whole, int64_t from, int64_t count)
{
    int64_t lo = from * whole->stride - whole->padding;
    int64_t hi = (from + count - 1) * whole->stride - whole->padding + whole->dilation * (whole->kernel - 1) + 1;
    if (lo >= 0 && hi <= whole->in)
        return (struct swn_stripe){lo, hi - lo, 0, 0};
    /* Padded, it begins where a row of the whole would: so many rows earlier that all that is wanted is there. More
     * padding than input may be there, of which at least one row has to be. */
    int64_t start = from - (whole->padding + whole->stride - 1) / whole->stride;
    start = least(start, (whole->in - 1) / whole->stride);
    /* Then the pixels that are wanted lie in the same places of the blocks as in the whole. */
    start = most(0, from - (from - start + whole->align - 1) / whole->align * whole->align);
    int64_t first = start * whole->stride, end = most(least(hi, whole->in), first + 1);
    return (struct swn_stripe){first, end - first, whole->padding, from - start};
}

int64_t swn_stripe_align(int64_t rows, int64_t row_pixels, int64_t block)
{
    int64_t unit = rows_per_block(row_pixels, block);
    return rows % unit ? 1 : unit;
}

int64_t swn_stripe_made(const struct swn_stripe_rows *whole, const struct swn_stripe *stripe)
{
    int64_t reach = whole->dilation * (whole->kernel - 1) + 1;
    return (stripe->rows + 2 * stripe->padding - reach) / whole->stride + 1;
}

/* No more than fit, of whole blocks for each thread, or at least of whole blocks, for which there may be more. */
static int64_t rows_of(const struct swn_stripe_scratch *s, int64_t fit, int threads)
{
    fit = most(fit, 1);
    int64_t unit = rows_per_block(s->row_pixels, s->block), each = unit * s->threads;
    if (threads && each <= fit)
        return fit / each * each;
    return unit <= LONGER * fit ? most(fit / unit, 1) * unit : fit;
}

unsigned swn_stripe_cuts(const struct swn_stripe_scratch *s, int64_t bytes, struct swn_stripe_cut cuts[2])
{
    unsigned n = 0;
    int64_t sample_bytes = s->row_bytes * s->rows;
    /* With several samples each thread computes one; a single one is computed by all threads together. In which of the
     * two ways the whole is computed, its parts are most likely to have the same bits. */
    for (int many = s->together && s->samples > 1; many >= 0; many--) {
        int64_t samples = !s->together ? s->samples : many ? least(s->samples, most(s->threads, 2)) : 1;
        int64_t at_once = s->together ? samples : 1, rows = s->rows;
        if (sample_bytes * at_once > bytes)
            rows = least(rows_of(s, bytes / (s->row_bytes * at_once), at_once == 1), s->rows);
        else if (s->together)
            samples = least(s->samples, many ? bytes / sample_bytes : 1);
        if (samples < s->samples || rows < s->rows)
            cuts[n++] = (struct swn_stripe_cut){samples, rows};
    }
    return n;
}
