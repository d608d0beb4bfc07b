/* Description: no checkpoint takes a reader longer than in proportion to its size: a second of processor time for each
 * MiB is many times what any takes. Texts and containers that are named again and again, in two bytes each, are what
 * would. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/archive.h"
#include "tests/unit/support/slowness.h"

#define MIB ((size_t)1 << 20)
#define MS_PER_MIB 1000

#define TEXT(n, text) "X" n "\0\0\0" text
#define TENSOR                                                                                                         \
    "ctorch._utils\n_rebuild_tensor_v2\n((" TEXT("\x07", "storage") "ctorch\nFloatStorage\n" TEXT("\x01", "0")         \
        TEXT("\x03", "cpu") "K\x02tQK\0K\x02\x85K\x01\x85\x89"                                                         \
                            "ccollections\nOrderedDict\n)RtR"

/* A pickle of at most a MiB. */
struct writer {
    char *p;
    size_t n;
};

static void put(struct writer *w, const char *p, size_t n)
{
    assert_true(w->n + n <= MIB);
    memcpy(w->p + w->n, p, n);
    w->n += n;
}
#define PUT(w, text) put(w, text, sizeof(text) - 1)

static void put_text(struct writer *w, char of, size_t n, uint32_t last)
{
    uint32_t len = (uint32_t)n + 4;
    PUT(w, "X");
    put(w, (char *)&len, 4);
    assert_true(w->n + n <= MIB);
    memset(w->p + w->n, of, n);
    w->n += n;
    for (int i = 0; i < 4; i++, last /= 26)
        put(w, &"abcdefghijklmnopqrstuvwxyz"[last % 26], 1);
}

/* `what` again and again, until `left` bytes of the MiB are. */
static void fill(struct writer *w, const char *what, size_t n, size_t left)
{
    while (w->n + n + left <= MIB)
        put(w, what, n);
}
#define FILL(w, text, left) fill(w, text, sizeof(text) - 1, left)

/* Half a MiB of text is a key again and again. */
static void two_long_keys(struct writer *w)
{
    PUT(w, "(");
    put_text(w, 'k', 250000, 0);
    PUT(w, "q\0");
    put_text(w, 'k', 250000, 1);
    PUT(w, "q\1}(");
    FILL(w, "h\0Nh\1N", 10);
    PUT(w, "ut.");
}

static void long_names(struct writer *w)
{
    PUT(w, "}(");
    for (uint32_t i = 0; w->n < MIB - 8192; i++) {
        put_text(w, 'k', 3900, i);
        if (!i) {
            PUT(w, TENSOR);
            PUT(w, "q\0");
        } else {
            PUT(w, "h\0");
        }
    }
    PUT(w, "u.");
}

/* A dict with long keys, and a tensor or none, is an item of a list again and again. */
static void one_dict(struct writer *w, int with_tensor)
{
    PUT(w, "]}q\0(");
    for (uint32_t i = 0; i < 250; i++) {
        put_text(w, 'k', 3900, i);
        PUT(w, "N");
    }
    if (with_tensor)
        PUT(w, TEXT("\1", "w") TENSOR);
    PUT(w, "ua(");
    FILL(w, "h\0", 10);
    PUT(w, "e.");
}

static void dict_with_tensor(struct writer *w)
{
    one_dict(w, 1);
}

static void dict_without(struct writer *w)
{
    one_dict(w, 0);
}

/* A list of numbers is made a set of again and again. */
static void one_set(struct writer *w)
{
    PUT(w, "(](");
    FILL(w, "N", MIB / 2);
    PUT(w, "eq\0\x85q\1");
    PUT(w, "c__builtin__\nset\nq\2");
    FILL(w, "h\2h\1R", 10);
    PUT(w, "t.");
}

static void one_size(struct writer *w)
{
    PUT(w, "((");
    FILL(w, "K\1", MIB / 2);
    PUT(w, "tq\0\x85q\1ctorch\nSize\nq\2");
    FILL(w, "h\2h\1R", 10);
    PUT(w, "t.");
}

static void one_text(struct writer *w)
{
    PUT(w, "(");
    put_text(w, 'b', MIB / 2, 0);
    PUT(w, TEXT("\6", "latin1") "\x86q\0c_codecs\nencode\nq\1");
    FILL(w, "h\1h\0R", 10);
    PUT(w, "t.");
}

/* A dict is the state of a tensor again and again. */
static void one_state(struct writer *w)
{
    PUT(w, "(");
    PUT(w, TENSOR);
    PUT(w, "q\0" TEXT("\1", "a") "q\1(h\0\x89"
                                 "ccollections\nOrderedDict\n)R}(");
    FILL(w, "h\1N", MIB / 2);
    PUT(w, "utq\2ctorch._utils\n_rebuild_parameter_with_state\nq\3");
    FILL(w, "h\3h\2R", 10);
    PUT(w, "t.");
}

/* Or its metadata. */
static void one_metadata(struct writer *w)
{
    PUT(w,
        "(ctorch._utils\n_rebuild_tensor_v2\nq\0((" TEXT("\x07", "storage") "ctorch\nFloatStorage\n" TEXT("\x01", "0")
            TEXT("\x03", "cpu") "K\x02tQK\0K\x02\x85K\x01\x85\x89"
                                "ccollections\nOrderedDict\n)R}(" TEXT("\4", "conj") "q\1\x89");
    FILL(w, "h\1\x89", MIB / 2);
    PUT(w, "utq\2");
    FILL(w, "h\0h\2R", 10);
    PUT(w, "t.");
}

/* A dict is copied again and again, and the copies gone through. */
static void counters(struct writer *w)
{
    PUT(w, "(}(");
    for (uint32_t i = 0; w->n < MIB / 2; i++) {
        put_text(w, 'k', 1, i);
        PUT(w, "N");
    }
    PUT(w, "u\x85q\0ccollections\nCounter\nq\1");
    FILL(w, "h\1h\0R", 10);
    PUT(w, "t.");
}

/* Each list holds the one before twice: 2^250 ways to the innermost, and to a tensor in it, or none. */
static void lists(struct writer *w, const char *inner, size_t n)
{
    PUT(w, "(](");
    put(w, inner, n);
    PUT(w, "eq\0");
    for (int i = 1; i < 63; i++)
        put(w, (char[]){']', '(', 'h', (char)(i - 1), 'h', (char)(i - 1), 'e', 'q', (char)i}, 9);
    FILL(w, "N", 10);
    PUT(w, "t.");
}

static void lists_with_tensor(struct writer *w)
{
    lists(w, TENSOR, sizeof(TENSOR) - 1);
}

static void lists_without(struct writer *w)
{
    lists(w, "N", 1);
}

static const struct {
    const char *name;
    void (*write)(struct writer *w);
} kinds[] = {
    {"two long keys", two_long_keys},
    {"long names", long_names},
    {"a dict with a tensor", dict_with_tensor},
    {"a dict without tensors", dict_without},
    {"sets of a list", one_set},
    {"sizes of a tuple", one_size},
    {"bytes of a text", one_text},
    {"states of a tensor", one_state},
    {"metadata of a tensor", one_metadata},
    {"copies of a dict", counters},
    {"lists of lists with a tensor", lists_with_tensor},
    {"lists of lists", lists_without},
};

/* Whatever becomes of it: refused or read. */
static double read_ms(const struct writer *w, char why[SWN_ERRMSG])
{
    struct archive a;
    archive_begin(&a);
    archive_add(&a, "m/data.pkl", w->p, w->n);
    archive_add(&a, "m/data/0", "\0\0\x80\x3f\0\0\0\x40", 8);
    archive_add(&a, "m/version", "3\n", 2);
    archive_finish(&a);
    struct reading r = {0};
    why[0] = 0;
    double begin = cpu_ms();
    read_bytes(&r, a.p, a.n, "x.pt", NULL, why);
    double took = cpu_ms() - begin;
    archive_free(&a);
    return took;
}

static void test_time(void **state)
{
    (void)state;
    double most = here_ms(MS_PER_MIB);
    struct writer w = {.p = malloc(MIB)};
    assert_non_null(w.p);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        char why[SWN_ERRMSG];
        w.n = 0;
        PUT(&w, "\x80\x02");
        kinds[i].write(&w);
        double took = read_ms(&w, why);
        print_message("%s: %.0f ms%s%s\n", kinds[i].name, took, why[0] ? ", " : "", why);
        if (took > most)
            fail_msg("%s: %.0f ms, where %.0f are allowed", kinds[i].name, took, most);
    }
    free(w.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
