/* blocks/checkpoint/zip.c - see blocks/checkpoint/zip.h for what is accepted, and why.
 *
 * Order of work: the end record, which must be the last 22 bytes; the zip64 records, which must be exactly in front of
 * it; the directory, which must be exactly in front of those; then every local header, in file order, with the
 * descriptor of its predecessor: each must begin where the previous one ends.
 */
#define _GNU_SOURCE /* qsort_r */
#include "blocks/checkpoint/zip.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/errmsg.h"

#define END_SIG UINT32_C(0x06054b50)
#define END_BYTES 22
#define LOCATOR_SIG UINT32_C(0x07064b50)
#define LOCATOR_BYTES 20
#define END64_SIG UINT32_C(0x06064b50)
#define END64_BYTES 56
#define CENTRAL_SIG UINT32_C(0x02014b50)
#define CENTRAL_BYTES 46
#define LOCAL_SIG UINT32_C(0x04034b50)
#define LOCAL_BYTES 30
#define DESCRIPTOR_SIG UINT32_C(0x08074b50)
#define DESCRIPTOR_BYTES 16
#define DESCRIPTOR64_BYTES 24

#define FLAG_ENCRYPTED 0x1u
#define FLAG_DESCRIPTOR 0x8u
#define FLAG_UTF8 0x800u
#define METHOD_DEFLATED 8
#define EXTRA_ZIP64 0x0001
#define EXTRA_PADDING 0x4246 /* "FB" */
#define MAX16 0xffffu
#define MAX32 0xffffffffu

/* torch pads an entry's data to .storage_alignment bytes; MAX_LOCAL allows up to 64 KiB, the most that fits the field.
 */
#define MAX_LOCAL (DESCRIPTOR64_BYTES + LOCAL_BYTES + SWN_ZIP_MAX_NAME + 65535)
/* Enough for the usual padding of 64 bytes; larger padding needs a second read. */
#define USUAL_LOCAL 512

struct place {
    uint64_t off, bytes, entries;
};

static uint16_t get16(const unsigned char *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t get32(const unsigned char *p)
{
    return get16(p) | (uint32_t)get16(p + 2) << 16;
}

static uint64_t get64(const unsigned char *p)
{
    return get32(p) | (uint64_t)get32(p + 4) << 32;
}

int swn_zip_begins(const unsigned char head[4])
{
    return get32(head) == LOCAL_SIG || get32(head) == END_SIG;
}

static int fail(const struct swn_ckpt_source *src, char *why, const char *what)
{
    return swn_ckpt_fail(why, -EINVAL, "%s: %s; is it complete, and was it written by torch.save?", src->path, what);
}

/* For an archive whose offsets count from another place than the file's beginning, `late` bytes behind it: what is
 * wrong with it. Files of torch.distributed.checkpoint have one archive behind the other. */
static int fail_late(const struct swn_ckpt_source *src, uint64_t late, char *why, const char *what)
{
    unsigned char head[4];
    int rc = swn_ckpt_read(src, head, sizeof(head), late, why);
    if (rc)
        return rc;
    if (!late || !swn_zip_begins(head))
        return fail(src, why, what);
    return swn_ckpt_fail(
        why, -EINVAL,
        "%s: its last zip archive does not begin where the file does, but behind something else, as in "
        "files of torch.distributed.checkpoint",
        src->path);
}

/* Whether a field of the old end record agrees with the zip64 record: it holds the value, or the maximum that refers to
 * the zip64 record. */
static int agrees(uint64_t old, uint64_t max, uint64_t value)
{
    return old == max || old == value;
}

/* The zip64 records in front of the end record. */
static int find_directory64(const struct swn_ckpt_source *src, const unsigned char *end, struct place *dir, char *why)
{
    unsigned char locator[LOCATOR_BYTES], big[END64_BYTES];
    uint64_t locator_off = src->size - END_BYTES - LOCATOR_BYTES, big_off = locator_off - END64_BYTES;
    int rc = swn_ckpt_read(src, locator, sizeof(locator), locator_off, why);
    if (!rc)
        rc = swn_ckpt_read(src, big, sizeof(big), big_off, why);
    if (rc)
        return rc;
    static const char apart[] = "the zip64 end record is not in front of its locator";
    if (get32(big) != END64_SIG || get64(locator + 8) > big_off)
        return fail(src, why, apart);
    if (get64(locator + 8) != big_off)
        return fail_late(src, big_off - get64(locator + 8), why, apart);
    if (get32(locator + 4) != 0 || get32(locator + 16) != 1 || get32(big + 16) != 0 || get32(big + 20) != 0)
        return fail(src, why, "the zip archive has several disks");
    if (get64(big + 4) != END64_BYTES - 12)
        return fail(src, why, "the zip64 end record has the wrong size");
    *dir = (struct place){.entries = get64(big + 32), .bytes = get64(big + 40), .off = get64(big + 48)};
    if (get64(big + 24) != dir->entries)
        return fail(src, why, "the zip64 end record contradicts itself");
    if (!agrees(get16(end + 10), MAX16, dir->entries) || !agrees(get32(end + 12), MAX32, dir->bytes) ||
        !agrees(get32(end + 16), MAX32, dir->off))
        return fail(src, why, "the zip64 end record contradicts the end record");
    if (dir->off > big_off || dir->bytes != big_off - dir->off)
        return fail(src, why, "the zip directory does not reach from its offset to the zip64 end record");
    return 0;
}

static int find_directory(const struct swn_ckpt_source *src, struct place *dir, char *why)
{
    unsigned char tail[LOCATOR_BYTES + END_BYTES], *end = tail + LOCATOR_BYTES;
    size_t have = src->size < sizeof(tail) ? (size_t)src->size : sizeof(tail);
    if (have < END_BYTES)
        return fail(src, why, "the zip archive has no end record");
    memset(tail, 0, sizeof(tail));
    int rc = swn_ckpt_read(src, tail + sizeof(tail) - have, have, src->size - have, why);
    if (rc)
        return rc;
    if (get32(end) != END_SIG || get16(end + 20) != 0)
        return fail(src, why, "the zip end record is not at the end, or has a comment");
    if (get16(end + 4) != 0 || get16(end + 6) != 0 || get16(end + 8) != get16(end + 10))
        return fail(src, why, "the zip archive has several disks");
    if (get32(tail) == LOCATOR_SIG && src->size >= END_BYTES + LOCATOR_BYTES + END64_BYTES) {
        rc = find_directory64(src, end, dir, why);
        if (rc)
            return rc;
    } else {
        *dir = (struct place){.entries = get16(end + 10), .bytes = get32(end + 12), .off = get32(end + 16)};
        uint64_t before = src->size - END_BYTES;
        static const char apart[] = "the zip directory does not reach from its offset to the end record";
        if (dir->off > before || dir->bytes > before - dir->off)
            return fail(src, why, apart);
        if (dir->bytes != before - dir->off)
            return fail_late(src, before - dir->off - dir->bytes, why, apart);
    }
    if (dir->bytes > SWN_ZIP_MAX_DIRECTORY || dir->entries > SWN_ZIP_MAX_ENTRIES)
        return fail(src, why, "the zip directory is above the limits (2^20 entries, 64 MiB)");
    if (dir->entries > dir->bytes / CENTRAL_BYTES)
        return fail(src, why, "the zip directory is too small for its number of entries");
    return 0;
}

/* Names are paths below the archive's folder, without a way out of it, and printable. */
static const char *name_fault(const char *name, size_t len)
{
    if (len == 0 || len > SWN_ZIP_MAX_NAME)
        return "an entry's name is empty or longer than 1024 bytes";
    if (!swn_is_utf8(name, len))
        return "an entry's name is not UTF-8";
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f || name[i] == '\\')
            return "an entry's name has a control character or a backslash";
    if (name[0] == '/')
        return "an entry's name is absolute";
    for (size_t i = 0, begin = 0; i <= len; i++) {
        if (i < len && name[i] != '/')
            continue;
        size_t part = i - begin;
        if (part == 0 || (part == 1 && name[begin] == '.') || (part == 2 && !memcmp(name + begin, "..", 2)))
            return "an entry's name has an empty part, . or ..";
        begin = i + 1;
    }
    return NULL;
}

/* Takes the fields that the 32-bit ones refer to from a directory entry's zip64 field, which must hold no others. */
static const char *central_extra(const unsigned char *extra, size_t len, struct swn_zip_entry *e)
{
    uint64_t *wide[3] = {&e->bytes, &e->packed_bytes, &e->header_off};
    size_t want = 0, at = 4;
    for (int i = 0; i < 3; i++)
        want += *wide[i] == MAX32 ? 8u : 0u;
    if (len == 0 && want == 0)
        return NULL;
    if (want == 0)
        return "an entry has an extra field that it does not need";
    if (len != 4 + want || get16(extra) != EXTRA_ZIP64 || get16(extra + 2) != want)
        return "an entry's zip64 field does not hold what its sizes refer to";
    for (int i = 0; i < 3; i++) {
        if (*wide[i] == MAX32) {
            *wide[i] = get64(extra + at);
            at += 8;
        }
    }
    return NULL;
}

/* Parses one directory entry at p, of which `left` bytes exist. *used: its size. Moves the name one byte to the left to
 * terminate it, so that the next entry stays untouched. */
static const char *central_entry(unsigned char *p, size_t left, struct swn_zip_entry *e, size_t *used)
{
    if (left < CENTRAL_BYTES || get32(p) != CENTRAL_SIG)
        return "the zip directory has something other than entries";
    size_t name_len = get16(p + 28), extra_len = get16(p + 30);
    *used = CENTRAL_BYTES + name_len + extra_len;
    if (get16(p + 32) != 0)
        return "an entry has a comment";
    if (get16(p + 34) != 0)
        return "the zip archive has several disks";
    /* a set bit here calls the entry a folder, for which PyTorch's reader returns no bytes */
    if (get16(p + 36) != 0 || get32(p + 38) != 0)
        return "an entry has file attributes, which torch.save does not write";
    if (*used > left)
        return "the zip directory ends inside an entry";
    *e = (struct swn_zip_entry){
        .flags = get16(p + 8),
        .method = get16(p + 10),
        .crc = get32(p + 16),
        .packed_bytes = get32(p + 20),
        .bytes = get32(p + 24),
        .header_off = get32(p + 42),
    };
    if (e->flags & FLAG_ENCRYPTED)
        return "an entry is encrypted";
    if (e->flags & ~(FLAG_DESCRIPTOR | FLAG_UTF8))
        return "an entry has flags that torch.save does not write";
    if (e->method != SWN_ZIP_STORED && e->method != METHOD_DEFLATED)
        return "an entry is neither stored nor deflated";
    const char *fault = name_fault((char *)p + CENTRAL_BYTES, name_len);
    if (!fault)
        fault = central_extra(p + CENTRAL_BYTES + name_len, extra_len, e);
    if (fault)
        return fault;
    if (e->method == SWN_ZIP_STORED && e->packed_bytes != e->bytes)
        return "a stored entry has two sizes";
    char *name = (char *)p + CENTRAL_BYTES - 1;
    memmove(name, name + 1, name_len);
    name[name_len] = 0;
    e->name = name;
    return NULL;
}

static int by_offset(const void *a, const void *b)
{
    const struct swn_zip_entry *x = a, *y = b;
    return (x->header_off > y->header_off) - (x->header_off < y->header_off);
}

/* Case does not count: PyTorch finds entries without looking at that of ASCII, whatever the program's locale, by which
 * strcasecmp would go. */
static int compare_names(const char *x, const char *y)
{
    for (;; x++, y++) {
        unsigned char a = (unsigned char)*x, b = (unsigned char)*y;
        a = a >= 'A' && a <= 'Z' ? (unsigned char)(a + 'a' - 'A') : a;
        b = b >= 'A' && b <= 'Z' ? (unsigned char)(b + 'a' - 'A') : b;
        if (a != b || !a)
            return a - b;
    }
}

/* Ignores case, as PyTorch does when it looks up entries. */
static int by_name(const void *a, const void *b, void *ctx)
{
    const struct swn_zip_entry *entries = ctx;
    const char *x = entries[*(const uint32_t *)a].name, *y = entries[*(const uint32_t *)b].name;
    int order = compare_names(x, y);
    return order ? order : strcmp(x, y);
}

static int read_directory(struct swn_zip *z, const struct swn_ckpt_source *src, const struct place *dir, char *why)
{
    unsigned char *p = malloc(dir->bytes + 1);
    z->directory = (char *)p;
    z->entries = calloc(dir->entries + 1, sizeof(*z->entries));
    z->by_name = calloc(dir->entries + 1, sizeof(*z->by_name));
    if (!p || !z->entries || !z->by_name)
        return swn_ckpt_fail_memory(why, src->path, -ENOMEM);
    int rc = swn_ckpt_read(src, p, dir->bytes, dir->off, why);
    if (rc)
        return rc;
    z->hash = XXH3_64bits(p, dir->bytes);
    size_t left = dir->bytes, used;
    for (; z->count < dir->entries; z->count++, p += used, left -= used) {
        const char *fault = central_entry(p, left, &z->entries[z->count], &used);
        if (fault)
            return fail(src, why, fault);
    }
    if (left)
        return fail(src, why, "the zip directory has more than its entries");
    if (!z->count)
        return fail(src, why, "the zip archive is empty");
    return 0;
}

/* Checks that all names begin with the archive's folder and that no name repeats. Only TorchScript's sources, which are
 * never looked up here, may differ by case alone. */
static int check_names(struct swn_zip *z, const struct swn_ckpt_source *src, char *why)
{
    const char *slash = strchr(z->entries[0].name, '/');
    if (!slash)
        return fail(src, why, "an entry lies outside the archive's folder");
    z->prefix = (size_t)(slash + 1 - z->entries[0].name);
    for (size_t i = 0; i < z->count; i++) {
        if (strncmp(z->entries[i].name, z->entries[0].name, z->prefix))
            return fail(src, why, "an entry lies outside the archive's folder");
        z->by_name[i] = (uint32_t)i;
    }
    qsort_r(z->by_name, z->count, sizeof(*z->by_name), by_name, z->entries);
    for (size_t i = 1; i < z->count; i++) {
        const char *a = z->entries[z->by_name[i - 1]].name, *b = z->entries[z->by_name[i]].name;
        int same = !strcmp(a, b), code = !strncmp(a + z->prefix, "code/", 5) && !strncmp(b + z->prefix, "code/", 5);
        if (same || (!compare_names(a, b) && !code))
            return fail(src, why, "two entries have the same name");
    }
    return 0;
}

/* A local header's extra fields: torch's padding, and a zip64 field that repeats the directory's values. */
static const char *local_extra(const unsigned char *x, size_t len, const struct swn_zip_entry *e)
{
    int seen = 0;
    while (len) {
        size_t field = len < 4 ? len : (size_t)get16(x + 2) + 4;
        if (len < 4 || field > len)
            return "a local header's extra field ends early";
        if (get16(x) == EXTRA_ZIP64) {
            size_t n = field - 4, at = 4;
            if (seen++ || (n != 8 && n != 16 && n != 24))
                return "a local header's zip64 field has the wrong size";
            if (n >= 16) {
                /* torch writes 0 as the packed size here, as it is not known yet */
                uint64_t packed = get64(x + 12);
                if (get64(x + 4) != e->bytes ||
                    (packed != e->packed_bytes && (packed || !(e->flags & FLAG_DESCRIPTOR))))
                    return "a local header's zip64 sizes contradict the directory";
                at = 20;
            }
            if (n != 16 && get64(x + at) != e->header_off)
                return "a local header's zip64 offset contradicts the directory";
        } else if (get16(x) != EXTRA_PADDING) {
            return "a local header has an extra field that torch.save does not write";
        }
        x += field;
        len -= field;
    }
    return NULL;
}

/* Compares the local header at p with its directory entry. */
static const char *local_header(const unsigned char *p, const struct swn_zip_entry *e)
{
    size_t name_len = get16(p + 26);
    const unsigned char *extra = p + LOCAL_BYTES + name_len;
    if (get32(p) != LOCAL_SIG)
        return "there is no local header where the directory says";
    if (get16(p + 6) != e->flags)
        return "a local header's flags contradict the directory";
    if (get16(p + 8) != e->method)
        return "a local header's method contradicts the directory";
    if (name_len != strlen(e->name) || memcmp(p + LOCAL_BYTES, e->name, name_len))
        return "a local header's name contradicts the directory";
    uint32_t crc = get32(p + 14), packed = get32(p + 18), bytes = get32(p + 22);
    if (e->flags & FLAG_DESCRIPTOR) {
        if (crc || packed || bytes)
            return "a local header has sizes and a descriptor";
    } else if (crc != e->crc) {
        return "a local header's CRC contradicts the directory";
    } else {
        int wide = bytes == MAX32 && packed == MAX32 && get16(p + 28) >= 20 && get16(extra) == EXTRA_ZIP64 &&
                   get16(extra + 2) >= 16;
        if (!wide && (packed != e->packed_bytes || bytes != e->bytes))
            return "a local header's sizes contradict the directory";
    }
    return local_extra(extra, get16(p + 28), e);
}

/* The bytes between the data of entry e and the next header: nothing, or a descriptor that repeats the directory. */
static const char *descriptor(const unsigned char *p, uint64_t len, const struct swn_zip_entry *e)
{
    if (!(e->flags & FLAG_DESCRIPTOR))
        return len ? "there are bytes between two entries" : NULL;
    if (len != DESCRIPTOR_BYTES && len != DESCRIPTOR64_BYTES)
        return "there are bytes between two entries, or no room for a descriptor";
    int wide = len == DESCRIPTOR64_BYTES;
    uint64_t packed = wide ? get64(p + 8) : get32(p + 8), bytes = wide ? get64(p + 16) : get32(p + 12);
    if (get32(p) != DESCRIPTOR_SIG)
        return "an entry's descriptor is missing";
    if (get32(p + 4) != e->crc || packed != e->packed_bytes || bytes != e->bytes)
        return "an entry's descriptor contradicts the directory";
    return NULL;
}

/* Reads [off, limit), at most `most` of it, with a second read if the usual length is too short. p: MAX_LOCAL bytes. */
static int read_local(const struct swn_ckpt_source *src, unsigned char *p, uint64_t off, uint64_t limit, size_t before,
                      size_t *have, char *why)
{
    size_t most = limit - off < MAX_LOCAL ? (size_t)(limit - off) : MAX_LOCAL;
    *have = most < USUAL_LOCAL ? most : USUAL_LOCAL;
    int rc = swn_ckpt_read(src, p, *have, off, why);
    if (rc || *have < before + LOCAL_BYTES)
        return rc;
    size_t need = before + LOCAL_BYTES + get16(p + before + 26) + get16(p + before + 28);
    if (need > *have && need <= most) {
        rc = swn_ckpt_read(src, p + *have, need - *have, off + *have, why);
        *have = need;
    }
    return rc;
}

/* Walks the file: entry by entry, each where the previous one ends, the last ending where the directory begins. */
static int check_locals(struct swn_zip *z, const struct swn_ckpt_source *src, uint64_t directory_off, unsigned char *p,
                        char *why)
{
    uint64_t at = 0; /* where the data of the previous entry ends */
    for (size_t i = 0; i <= z->count; i++) {
        struct swn_zip_entry *e = i < z->count ? &z->entries[i] : NULL,
                             *previous = i ? e ? e - 1 : z->entries + i - 1 : NULL;
        uint64_t header = e ? e->header_off : directory_off;
        if (header > directory_off || header < at)
            return fail(src, why, "two entries overlap, or one overlaps the directory");
        if (header - at > (previous ? DESCRIPTOR64_BYTES : 0))
            return fail(src, why,
                        i ? "there are bytes between two entries" : "there are bytes in front of the archive");
        size_t before = (size_t)(header - at), have;
        int rc = read_local(src, p, at, e ? directory_off : header, before, &have, why);
        if (rc)
            return rc;
        const char *fault = previous ? descriptor(p, before, previous) : NULL;
        if (!fault && e) {
            if (have < before + LOCAL_BYTES ||
                have < before + LOCAL_BYTES + get16(p + before + 26) + get16(p + before + 28))
                fault = "a local header reaches into the directory";
            else
                fault = local_header(p + before, e);
        }
        if (fault)
            return fail(src, why, fault);
        if (!e)
            break;
        e->data_off = header + LOCAL_BYTES + get16(p + before + 26) + get16(p + before + 28);
        if (e->packed_bytes > directory_off - e->data_off)
            return fail(src, why, "an entry reaches into the directory");
        at = e->data_off + e->packed_bytes;
    }
    return 0;
}

int swn_zip_open(struct swn_zip *z, const struct swn_ckpt_source *src, char why[SWN_ERRMSG])
{
    struct place dir;
    memset(z, 0, sizeof(*z));
    unsigned char *scratch = malloc(MAX_LOCAL);
    int rc = scratch ? find_directory(src, &dir, why) : swn_ckpt_fail_memory(why, src->path, -ENOMEM);
    if (!rc)
        rc = read_directory(z, src, &dir, why);
    if (!rc) {
        qsort(z->entries, z->count, sizeof(*z->entries), by_offset);
        rc = check_names(z, src, why);
    }
    if (!rc)
        rc = check_locals(z, src, dir.off, scratch, why);
    free(scratch);
    if (rc)
        swn_zip_close(z);
    return rc;
}

void swn_zip_close(struct swn_zip *z)
{
    free(z->entries);
    free(z->by_name);
    free(z->directory);
    memset(z, 0, sizeof(*z));
}

const struct swn_zip_entry *swn_zip_find(const struct swn_zip *z, const char *name)
{
    size_t low = 0, high = z->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct swn_zip_entry *e = &z->entries[z->by_name[middle]];
        int order = compare_names(e->name + z->prefix, name);
        if (!order)
            order = strcmp(e->name + z->prefix, name);
        if (!order)
            return e;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

int swn_zip_hash(const struct swn_ckpt_source *src, uint64_t *hash, char why[SWN_ERRMSG])
{
    struct place dir;
    int rc = find_directory(src, &dir, why);
    if (rc)
        return rc;
    void *p = malloc(dir.bytes + 1);
    if (!p)
        return swn_ckpt_fail_memory(why, src->path, -ENOMEM);
    rc = swn_ckpt_read(src, p, dir.bytes, dir.off, why);
    if (!rc)
        *hash = XXH3_64bits(p, dir.bytes);
    free(p);
    return rc;
}
