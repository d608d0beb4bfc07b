/* Description: archives that torch.save would not write are refused, each for its own reason; those it writes are read;
 * and a read that fails is an error, never a leak. */
/* wraps: strcasecmp strncasecmp */
#define _GNU_SOURCE /* memmem */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/archive.h"

/* These go by the program's locale, in which I and i may be two letters; PyTorch's zip reader knows ASCII's only. */
int __wrap_strcasecmp(const char *a, const char *b);
int __wrap_strcasecmp(const char *a, const char *b)
{
    fail_msg("the locale decides whether %s is %s", a, b);
    return 0;
}
int __wrap_strncasecmp(const char *a, const char *b, size_t n);
int __wrap_strncasecmp(const char *a, const char *b, size_t n)
{
    fail_msg("the locale decides whether %.*s is %s", (int)n, a, b);
    return 0;
}

/* Fields of the records, as offsets from their beginning. */
enum { LOCAL_FLAGS = 6, LOCAL_METHOD = 8, LOCAL_CRC = 14, LOCAL_BYTES = 22, LOCAL_NAME = 30, LOCAL_EXTRA = 40 };
enum { CENTRAL_FLAGS = 8, CENTRAL_METHOD = 10, CENTRAL_CRC = 16, CENTRAL_PACKED = 20, CENTRAL_BYTES = 24 };
enum {
    CENTRAL_NAME_LEN = 28,
    CENTRAL_EXTRA_LEN = 30,
    CENTRAL_COMMENT = 32,
    CENTRAL_DISK = 34,
    CENTRAL_ATTRIBUTES = 38,
    CENTRAL_OFF = 42
};
enum { CENTRAL_NAME = 46, END_DISK = 4, END_HERE = 8, END_ALL = 10, END_SIZE = 12, END_OFF = 16, END_COMMENT = 20 };

/* The small archive has data.pkl, data/0 and version: entries 0, 1 and 2. */
static void spoil_comment(struct archive *a)
{
    archive_set(a, a->end + END_COMMENT, 1, 2);
    archive_bytes(a, "x", 1);
}
static void spoil_trailing(struct archive *a)
{
    archive_bytes(a, "x", 1);
}
static void spoil_truncated(struct archive *a)
{
    a->n--;
}
static void spoil_second_end(struct archive *a)
{
    unsigned char copy[22];
    memcpy(copy, a->p + a->end, sizeof(copy));
    archive_bytes(a, copy, sizeof(copy));
}
static void spoil_disk(struct archive *a)
{
    archive_set(a, a->end + END_DISK, 1, 2);
}
static void spoil_disk_entries(struct archive *a)
{
    archive_set(a, a->end + END_HERE, 2, 2);
}
static void spoil_fewer(struct archive *a)
{
    archive_set(a, a->end + END_HERE, 2, 2);
    archive_set(a, a->end + END_ALL, 2, 2);
}
static void spoil_more(struct archive *a)
{
    archive_set(a, a->end + END_HERE, 5, 2);
    archive_set(a, a->end + END_ALL, 5, 2);
}
static void spoil_many(struct archive *a)
{
    archive_set(a, a->end + END_HERE, 60000, 2);
    archive_set(a, a->end + END_ALL, 60000, 2);
}
static void spoil_none(struct archive *a)
{
    a->n = 0;
    a->count = 0;
    archive_finish(a);
}
static void spoil_size(struct archive *a)
{
    archive_set(a, a->end + END_SIZE, 100, 4);
}
static void spoil_offset(struct archive *a)
{
    archive_set(a, a->end + END_OFF, 0xfffffff0, 4);
}
static void spoil_encrypted(struct archive *a)
{
    archive_set(a, a->e[1].central + CENTRAL_FLAGS, 0x809, 2);
    archive_set(a, a->e[1].local + LOCAL_FLAGS, 0x809, 2);
}
static void spoil_flags(struct archive *a)
{
    archive_set(a, a->e[1].central + CENTRAL_FLAGS, 0x828, 2);
    archive_set(a, a->e[1].local + LOCAL_FLAGS, 0x828, 2);
}
static void spoil_method(struct archive *a)
{
    archive_set(a, a->e[1].central + CENTRAL_METHOD, 12, 2);
}
static void spoil_deflated_storage(struct archive *a)
{
    archive_set(a, a->e[1].central + CENTRAL_METHOD, 8, 2);
    archive_set(a, a->e[1].local + LOCAL_METHOD, 8, 2);
}
static void spoil_deflated_pickle(struct archive *a)
{
    archive_set(a, a->e[0].central + CENTRAL_METHOD, 8, 2);
    archive_set(a, a->e[0].local + LOCAL_METHOD, 8, 2);
}
static void spoil_bomb(struct archive *a)
{
    archive_set(a, a->e[1].central + CENTRAL_METHOD, 8, 2);
    archive_set(a, a->e[1].local + LOCAL_METHOD, 8, 2);
    archive_set(a, a->e[1].central + CENTRAL_BYTES, 0xfffffff0, 4);
    archive_set(a, a->e[1].descriptor + 12, 0xfffffff0, 4);
}
static void spoil_two_sizes(struct archive *a)
{
    archive_set(a, a->e[1].central + CENTRAL_BYTES, 9, 4);
}
static void spoil_same_entry(struct archive *a)
{
    archive_set(a, a->e[2].central + CENTRAL_OFF, a->e[1].local, 4);
}
static void spoil_inside_entry(struct archive *a)
{
    archive_set(a, a->e[2].central + CENTRAL_OFF, a->e[1].data, 4);
}
static void spoil_in_directory(struct archive *a)
{
    archive_set(a, a->e[3].central + CENTRAL_OFF, a->directory + 1, 4);
}
static void spoil_header_in_directory(struct archive *a)
{
    archive_set(a, a->e[2].local + 26, 3000, 2);
}
static void spoil_far(struct archive *a)
{
    archive_set(a, a->e[2].central + CENTRAL_PACKED, 0x7fffffff, 4);
    archive_set(a, a->e[2].central + CENTRAL_BYTES, 0x7fffffff, 4);
    archive_set(a, a->e[2].descriptor + 8, 0x7fffffff, 4);
    archive_set(a, a->e[2].descriptor + 12, 0x7fffffff, 4);
}
static void spoil_gap(struct archive *a)
{
    archive_set(a, a->e[1].central + CENTRAL_PACKED, 7, 4);
    archive_set(a, a->e[1].central + CENTRAL_BYTES, 7, 4);
}
static void spoil_local_signature(struct archive *a)
{
    archive_set(a, a->e[1].local, 0, 4);
}
static void spoil_local_name(struct archive *a)
{
    a->p[a->e[1].local + LOCAL_NAME + 7] = '1';
}
static void spoil_local_flags(struct archive *a)
{
    archive_set(a, a->e[1].local + LOCAL_FLAGS, 8, 2);
}
static void spoil_local_method(struct archive *a)
{
    archive_set(a, a->e[1].local + LOCAL_METHOD, 8, 2);
}
static void spoil_local_sizes(struct archive *a)
{
    archive_set(a, a->e[1].local + LOCAL_BYTES, 8, 4);
}
static void spoil_plain_crc(struct archive *a) /* an entry without descriptor whose CRC differs */
{
    archive_set(a, a->e[3].central + CENTRAL_CRC, 1, 4);
}
static void spoil_plain_size(struct archive *a)
{
    archive_set(a, a->e[3].local + LOCAL_BYTES, 1, 4);
}
static void spoil_descriptor_signature(struct archive *a)
{
    archive_set(a, a->e[1].descriptor, 0, 4);
}
static void spoil_descriptor_crc(struct archive *a)
{
    archive_set(a, a->e[1].descriptor + 4, 0, 4);
}
static void spoil_descriptor_size(struct archive *a)
{
    archive_set(a, a->e[1].descriptor + 12, 9, 4);
}
static void spoil_extra_kind(struct archive *a)
{
    archive_set(a, a->e[0].local + LOCAL_EXTRA, 0x7075, 2); /* a name in Unicode, which others would believe */
}
static void spoil_extra_length(struct archive *a)
{
    archive_set(a, a->e[0].local + LOCAL_EXTRA + 2, 200, 2);
}
static void spoil_extra_zip64(struct archive *a)
{
    /* of the 20 bytes of padding the first 20 as a zip64 field that lies */
    archive_set(a, a->e[0].local + LOCAL_EXTRA, 1, 2);
    archive_set(a, a->e[0].local + LOCAL_EXTRA + 2, 16, 2);
}
static void rename_to(struct archive *a, size_t i, const char *name)
{
    size_t len = strlen(a->e[i].name);
    assert_int_equal(strlen(name), len);
    memcpy(a->p + a->e[i].central + CENTRAL_NAME, name, len);
    memcpy(a->p + a->e[i].local + LOCAL_NAME, name, len);
}
static void spoil_twice(struct archive *a)
{
    rename_to(a, 3, "m/data/0");
}
static void spoil_case(struct archive *a)
{
    rename_to(a, 3, "m/DATA/0");
}
static void spoil_parent(struct archive *a)
{
    rename_to(a, 3, "m/../a/0");
}
static void spoil_absolute(struct archive *a)
{
    rename_to(a, 3, "/m/ata/0");
}
static void spoil_backslash(struct archive *a)
{
    rename_to(a, 3, "m/data\\0");
}
static void spoil_control(struct archive *a)
{
    rename_to(a, 3, "m/dat\a/0");
}
static void spoil_utf8(struct archive *a)
{
    rename_to(a, 3, "m/dat\xff/0");
}
static void spoil_empty_part(struct archive *a)
{
    rename_to(a, 3, "m/dat//0");
}
static void spoil_other_folder(struct archive *a)
{
    rename_to(a, 3, "n/data/1");
}
static void spoil_no_folder(struct archive *a)
{
    for (size_t i = 0; i < 4; i++)
        a->p[a->e[i].central + CENTRAL_NAME + 1] = a->p[a->e[i].local + LOCAL_NAME + 1] = '_';
    a->p[a->e[0].central + CENTRAL_NAME + 6] = a->p[a->e[0].local + LOCAL_NAME + 6] = '_';
}
static void spoil_entry_comment(struct archive *a)
{
    archive_set(a, a->e[2].central + CENTRAL_COMMENT, 1, 2);
}
static void spoil_entry_disk(struct archive *a)
{
    archive_set(a, a->e[2].central + CENTRAL_DISK, 1, 2);
}
static void spoil_folder(struct archive *a)
{
    archive_set(a, a->e[1].central + CENTRAL_ATTRIBUTES, 0x10, 4);
}
static void spoil_internal(struct archive *a)
{
    archive_set(a, a->e[1].central + CENTRAL_ATTRIBUTES - 2, 1, 2);
}
static void spoil_entry_signature(struct archive *a)
{
    archive_set(a, a->e[1].central, 0x02014b51, 4);
}
static void spoil_name_length(struct archive *a)
{
    archive_set(a, a->e[3].central + CENTRAL_NAME_LEN, 5000, 2);
}
static void spoil_no_name(struct archive *a)
{
    archive_set(a, a->e[3].central + CENTRAL_NAME_LEN, 0, 2);
}
static void spoil_central_extra(struct archive *a)
{
    archive_set(a, a->e[0].central + CENTRAL_NAME_LEN, 4, 2);
    archive_set(a, a->e[0].central + CENTRAL_EXTRA_LEN, 6, 2);
}
static void spoil_zip64_missing(struct archive *a)
{
    archive_set(a, a->e[0].central + CENTRAL_BYTES, 0xffffffff, 4);
}

static const struct {
    const char *words;
    void (*spoil)(struct archive *);
} cases[] = {
    {"has a comment", spoil_comment},
    {"not at the end", spoil_trailing},
    {"not at the end", spoil_truncated},
    {"does not reach", spoil_second_end},
    {"several disks", spoil_disk},
    {"several disks", spoil_disk_entries},
    {"more than its entries", spoil_fewer},
    {"too small for its number", spoil_more},
    {"too small for its number", spoil_many},
    {"is empty", spoil_none},
    {"does not reach", spoil_size},
    {"does not reach", spoil_offset},
    {"encrypted", spoil_encrypted},
    {"flags that torch.save does not write", spoil_flags},
    {"neither stored nor deflated", spoil_method},
    {"is compressed", spoil_deflated_storage},
    {"is compressed", spoil_deflated_pickle},
    {"is compressed", spoil_bomb},
    {"two sizes", spoil_two_sizes},
    {"overlap", spoil_same_entry},
    {"overlap", spoil_inside_entry},
    {"overlaps the directory", spoil_in_directory},
    {"reaches into the directory", spoil_header_in_directory},
    {"reaches into the directory", spoil_far},
    {"no room for a descriptor", spoil_gap},
    {"no local header", spoil_local_signature},
    {"name contradicts", spoil_local_name},
    {"flags contradict", spoil_local_flags},
    {"method contradicts", spoil_local_method},
    {"sizes and a descriptor", spoil_local_sizes},
    {"CRC contradicts", spoil_plain_crc},
    {"sizes contradict", spoil_plain_size},
    {"descriptor is missing", spoil_descriptor_signature},
    {"descriptor contradicts", spoil_descriptor_crc},
    {"descriptor contradicts", spoil_descriptor_size},
    {"extra field that torch.save does not write", spoil_extra_kind},
    {"extra field ends early", spoil_extra_length},
    {"zip64 sizes contradict", spoil_extra_zip64},
    {"the same name", spoil_twice},
    {"the same name", spoil_case},
    {"an empty part, . or ..", spoil_parent},
    {"absolute", spoil_absolute},
    {"backslash", spoil_backslash},
    {"control character", spoil_control},
    {"not UTF-8", spoil_utf8},
    {"an empty part", spoil_empty_part},
    {"outside the archive's folder", spoil_other_folder},
    {"outside the archive's folder", spoil_no_folder},
    {"has a comment", spoil_entry_comment},
    {"several disks", spoil_entry_disk},
    {"file attributes", spoil_folder},
    {"file attributes", spoil_internal},
    {"other than entries", spoil_entry_signature},
    {"ends inside an entry", spoil_name_length},
    {"is empty or longer", spoil_no_name},
    {"extra field that it does not need", spoil_central_extra},
    {"zip64 field does not hold", spoil_zip64_missing},
};

/* A reader of places alone goes by the same directory. It needs no pickle, and leaves compressed records out. */
static void assert_no_places(const struct archive *a, void (*spoil)(struct archive *), const char *words)
{
    struct swn_checkpoint *c = NULL;
    char why[SWN_ERRMSG];
    int rc = read_places(a->p, a->n, &c, why);
    if (spoil == spoil_deflated_pickle) {
        assert_int_equal(rc, 0);
        assert_int_equal(c->storage_count, 1);
        swn_checkpoint_close(c, &swn_io_sys);
    } else if (rc != -EINVAL || !strstr(why, words)) {
        fail_msg("wanted '%s', got %d and '%s'", words, rc, why);
    }
}

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct archive a;
        archive_small(&a);
        archive_add(&a, "m/data/1", NULL, 0);
        archive_finish(&a);
        cases[i].spoil(&a);
        assert_refused(a.p, a.n, "x.pt", -EINVAL, cases[i].words);
        assert_no_places(&a, cases[i].spoil, cases[i].words);
        archive_free(&a);
    }
}

/* Something in front: once with offsets as they were, once moved along. */
static void test_prefix(void **state)
{
    (void)state;
    for (int moved = 0; moved < 2; moved++) {
        struct archive a, b;
        archive_small(&a);
        archive_begin(&b);
        archive_bytes(&b, "PK\3\4junk", 8);
        if (moved) {
            archive_bytes(&b, a.p, a.n);
            memcpy(b.e, a.e, sizeof(a.e));
            for (b.count = 0; b.count < a.count; b.count++)
                b.e[b.count].local += 8;
            archive_finish(&b);
        } else {
            archive_finish(&a);
            archive_bytes(&b, a.p, a.n);
        }
        assert_refused(b.p, b.n, "x.pt", -EINVAL, moved ? "in front of the archive" : "does not begin where");
        archive_free(&a);
        archive_free(&b);
    }
}

/* One archive behind the other, as torch.distributed.checkpoint writes them: nothing is incomplete. */
static void test_several_archives(void **state)
{
    (void)state;
    for (int is_64 = 0; is_64 < 2; is_64++) {
        struct archive a, both;
        archive_small(&a);
        if (is_64)
            archive_finish64(&a);
        else
            archive_finish(&a);
        archive_begin(&both);
        archive_bytes(&both, a.p, a.n);
        archive_bytes(&both, a.p, a.n);
        assert_refused(both.p, both.n, "x.pt", -EINVAL,
                       "x.pt: its last zip archive does not begin where the file does");
        archive_free(&a);
        archive_free(&both);
    }
}

static void test_zip64(void **state)
{
    static const struct {
        size_t from_end, bytes;
        uint64_t value;
        const char *words;
    } spoilt[] = {
        {22 + 20 + 56 - 24, 8, 7, "contradicts itself"},
        {22 + 20 + 56 - 4, 8, 45, "wrong size"},
        {22 + 20 + 56 - 16, 4, 1, "several disks"},
        {22 + 20 + 56 - 40, 8, 7, "contradicts the end record"},
        {22 + 20 + 56 - 48, 8, 7, "contradicts the end record"},
        {22 + 20 - 8, 8, 0, "not in front of its locator"},
        {22 + 20 - 16, 4, 2, "several disks"},
        {22 - 12, 4, 7, "contradicts the end record"},
    };
    struct reading r = {.n = 0};
    char why[SWN_ERRMSG];
    struct archive a;
    (void)state;
    archive_small(&a);
    archive_finish64(&a);
    assert_int_equal(read_bytes(&r, a.p, a.n, "x.pt", NULL, why), 0);
    archive_set(&a, a.end + END_OFF, 0xffffffff, 4); /* "see there" */
    archive_set(&a, a.end + END_HERE, 0xffffffff, 4);
    assert_int_equal(read_bytes(&r, a.p, a.n, "x.pt", NULL, why), 0);
    archive_free(&a);
    for (size_t i = 0; i < sizeof(spoilt) / sizeof(*spoilt); i++) {
        archive_small(&a);
        archive_finish64(&a);
        archive_set(&a, a.n - spoilt[i].from_end, spoilt[i].value, spoilt[i].bytes);
        assert_refused(a.p, a.n, "x.pt", -EINVAL, spoilt[i].words);
        archive_free(&a);
    }
}

static void test_archive_parts(void **state)
{
    static const struct {
        const char *data_pkl, *version, *byteorder, *words;
        int err;
    } parts[] = {
        {NULL, "3\n", NULL, "no entry 'data.pkl'", -EINVAL},
        {"", NULL, NULL, "no entry 'version'", -EINVAL},
        {"", "11\n", NULL, "newer than this swapnet", -ENOTSUP},
        {"", "x\n", NULL, "not a version", -EINVAL},
        {"", "3\n3", NULL, "not a version", -EINVAL},
        {"", "3\n", "big", "big-endian", -ENOTSUP},
        {"", "3\n", "middle", "neither little nor big", -EINVAL},
        {"", "3\n", "little", "ends inside an opcode", -EINVAL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        struct archive a;
        archive_begin(&a);
        archive_add(&a, parts[i].data_pkl ? "m/data.pkl" : "m/other.pkl", "\x80", 1);
        if (parts[i].version)
            archive_add(&a, "m/version", parts[i].version, strlen(parts[i].version));
        if (parts[i].byteorder)
            archive_add(&a, "m/byteorder", parts[i].byteorder, strlen(parts[i].byteorder));
        archive_finish(&a);
        assert_refused(a.p, a.n, "x.pt", parts[i].err, parts[i].words);
        archive_free(&a);
    }
}

static void test_storages(void **state)
{
    (void)state;
    struct archive a;
    archive_small(&a);
    archive_finish(&a);
    rename_to(&a, 1, "m/data/2");
    assert_refused(a.p, a.n, "x.pt", -EINVAL, "data/0 is not in the archive");
    archive_free(&a);
    archive_small(&a);
    archive_finish(&a);
    unsigned char *numel = memmem(a.p, a.n, "cpuK\x02", 5);
    numel[4] = 3;
    assert_refused(a.p, a.n, "x.pt", -EINVAL, "has 8 bytes, the pickle says 12");
    archive_free(&a);
}

/* Entries that PyTorch refuses when they are spoilt, and so must we, though nothing depends on them. */
static void test_unused_entries(void **state)
{
    static const struct {
        const char *name, *content, *words;
    } entries[] = {
        {"m/.storage_alignment", "64", NULL},
        {"m/.storage_alignment", "6a", "'.storage_alignment' is not a number"},
        {"m/.storage_alignment", "-64", "'.storage_alignment' is not a number"},
        {"m/.storage_alignment", "", "'.storage_alignment' is not a number"},
        {"m/.data/serialization_id", "0123", NULL},
        {"m/.data/serialization_id", "01\xff", "'.data/serialization_id' is not UTF-8"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(entries) / sizeof(*entries); i++) {
        struct reading r = {.n = 0};
        char why[SWN_ERRMSG];
        struct archive a;
        archive_small(&a);
        archive_add(&a, entries[i].name, entries[i].content, strlen(entries[i].content));
        archive_finish(&a);
        if (entries[i].words)
            assert_refused(a.p, a.n, "x.pt", -EINVAL, entries[i].words);
        else
            assert_int_equal(read_bytes(&r, a.p, a.n, "x.pt", NULL, why), 0);
        archive_free(&a);
    }
}

static void test_other_formats(void **state)
{
    static const unsigned char old[] = {0x80, 2,    0x8a, 10,   0x6c, 0xfc, 0x9c, 0x46,
                                        0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, 0x2e, 0};
    char tar[1024] = "pickle", hdf[64] = "\x89HDF\r\n\x1a\n";
    (void)state;
    memcpy(tar + 257, "ustar", 5);
    assert_refused(old, sizeof(old), "x.pt", -ENOTSUP, "torch.save(torch.load(OLD), NEW)");
    for (unsigned char protocol = 2; protocol <= 5; protocol++) { /* torch.save(..., pickle_protocol=protocol) */
        unsigned char framed[24] = {0x80, protocol, 0x95, 13};
        size_t at = protocol < 4 ? 2 : 11;
        memcpy(framed + at, old + 2, sizeof(old) - 3);
        assert_refused(framed, at + sizeof(old) - 3, "x.pt", -ENOTSUP, "before 1.6");
    }
    assert_refused(tar, sizeof(tar), "x.pt", -ENOTSUP, "before 1.6");
    assert_refused(hdf, sizeof(hdf), "x.pt", -EINVAL, "neither a zip archive");
    assert_refused("", 0, "x.pt", -EINVAL, "neither a zip archive");
    assert_refused("{\"weight_map\":{}}", 17, "x.pt", -EINVAL, "must be called *.index.json");
}

static void test_accepted(void **state)
{
    struct reading r = {.n = 0};
    struct swn_checkpoint *c;
    struct swn_identity id;
    char why[SWN_ERRMSG];
    struct archive a;
    (void)state;
    archive_small(&a);
    archive_add(&a, "m/data/9", NULL, 0); /* as torch writes empty storages; no tensor uses it */
    archive_finish(&a);
    for (size_t limit = 0; limit < 4; limit++) {
        r.short_reads = limit; /* reads that give less than was asked for are continued */
        assert_int_equal(read_bytes(&r, a.p, a.n, "x.pt", &c, why), 0);
        assert_int_equal(c->tensor_count, 1);
        assert_int_equal(c->storage_count, 1);
        assert_int_equal(c->storages[0].off, a.e[1].data);
        assert_int_equal(c->storages[0].bytes, 8);
        assert_string_equal(c->storages[0].name, "data/0");
        assert_string_equal(c->tensors[0].name, "w");
        assert_int_equal(c->tensors[0].dtype, SWN_F32);
        assert_int_equal(c->tensors[0].ndim, 1);
        assert_int_equal(c->tensors[0].shape[0], 2);
        assert_int_equal(swn_checkpoint_identity(&r.io, c->files[0].fd, &id, why), 0);
        assert_true(id.directory == c->files[0].identity.directory && id.size == a.n);
        swn_checkpoint_close(c, &r.io);
        assert_int_equal(r.open_files, 0);
    }
    archive_free(&a);
}

/* Every call of the I/O table fails in turn, once and for ever; interrupted reads are repeated. */
static void test_faults(void **state)
{
    struct archive a;
    char why[SWN_ERRMSG];
    (void)state;
    archive_small(&a);
    archive_finish(&a);
    for (int for_ever = 0; for_ever < 2; for_ever++) {
        size_t n = 1;
        for (;; n++) {
            struct reading r = {.fail_at = n, .for_ever = for_ever, .err = -EIO};
            int rc = read_bytes(&r, a.p, a.n, "x.pt", NULL, why);
            if (r.calls < n) {
                assert_int_equal(rc, 0);
                break;
            }
            assert_int_equal(rc, -EIO);
            assert_true(why[0]);
        }
        assert_true(n > 8);
    }
    struct reading once = {.fail_at = 8, .err = -EINTR}, always = {.fail_at = 8, .for_ever = 1, .err = -EINTR};
    assert_int_equal(read_bytes(&once, a.p, a.n, "x.pt", NULL, why), 0);
    assert_int_equal(read_bytes(&always, a.p, a.n, "x.pt", NULL, why), -EINTR);
    archive_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),          cmocka_unit_test(test_prefix),        cmocka_unit_test(test_zip64),
        cmocka_unit_test(test_several_archives), cmocka_unit_test(test_archive_parts), cmocka_unit_test(test_storages),
        cmocka_unit_test(test_other_formats),    cmocka_unit_test(test_accepted),      cmocka_unit_test(test_faults),
        cmocka_unit_test(test_unused_entries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
