/* base/size.h - sizes in text: "256M" in, "256.0 MiB" out.
 *
 * Pure functions: no locale, no allocation, thread-safe. The rules for a budget live here because the library
 * (environment) and swapnetctl (--budget) must refuse the same texts for the same reasons.
 */
#ifndef SWN_BASE_SIZE_H
#define SWN_BASE_SIZE_H

#include <stdint.h>

/* The smallest budget that a user may set: a smaller one has no room for a model beside the pool, its tables and one
 * read in flight. */
#define SWN_BUDGET_LEAST_BYTES (UINT64_C(4) << 20)
/* The least budget of a process that asked for none: before it has a lease, when its demand is unknown, and when the
 * rest of the process takes all of its memory. */
#define SWN_BUDGET_UNASKED_BYTES (UINT64_C(8) << 20)

/* The largest amount of memory that a user may name (4096T). Messages to swapnetd carry no more, and sums of several
 * cannot overflow. */
#define SWN_MEMORY_MOST_BYTES (UINT64_C(1) << 52)
#define SWN_MEMORY_MOST_TEXT "4096T"

/* SWN_BUDGET_UNASKED_BYTES, or `most` where less was asked for; most 0: the process asked for nothing. */
static inline uint64_t swn_budget_unasked(uint64_t most)
{
    return most && most < SWN_BUDGET_UNASKED_BYTES ? most : SWN_BUDGET_UNASKED_BYTES;
}

/* DIGITS[.DIGITS][K|M|G|T][B|iB], units are powers of 1024, letters in either case; a fraction needs a unit and is
 * rounded down to whole bytes. 0 and *bytes; -EINVAL: not a size (signs and blanks included), -ERANGE: does not fit 64
 * bits. *bytes is untouched on error. */
int swn_parse_size(const char *text, uint64_t *bytes);

/* swn_parse_size plus the rules for a budget. On error also *why: a static text that completes "BUDGET='...' ", what is
 * wrong and what to write instead. 0, -EINVAL or -ERANGE. */
int swn_parse_budget(const char *text, uint64_t *bytes, const char **why);

/* "256.0 MiB", rounded to the nearest tenth. Returns buf. */
char *swn_format_mib(char buf[32], uint64_t bytes);

#endif
