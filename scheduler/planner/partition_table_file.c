/* scheduler/planner/partition_table_file.c - lookup tables as files. A file is hostile input: sizes are checked before
 * anything is taken from it, and every row is computed again from the model. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "scheduler/planner/partition_table.h"
#include "base/text_file.h"

#define MAGIC "SWNTABL1"
#define HEADER 32
#define LIST 24
#define ROW 16

static uint64_t key_of(const struct swn_part_model *m)
{
    XXH64_hash_t h = XXH3_64bits(m->bytes, (m->layers + 1) * sizeof *m->bytes);
    return XXH3_64bits_withSeed(m->in, 3 * (m->layers + 1) * sizeof *m->in, h);
}

static void put32(unsigned char **at, uint32_t v)
{
    v = htole32(v);
    memcpy(*at, &v, sizeof v);
    *at += sizeof v;
}

static void put64(unsigned char **at, uint64_t v)
{
    v = htole64(v);
    memcpy(*at, &v, sizeof v);
    *at += sizeof v;
}

static uint32_t get32(const unsigned char **at)
{
    uint32_t v;
    memcpy(&v, *at, sizeof v);
    *at += sizeof v;
    return le32toh(v);
}

static uint64_t get64(const unsigned char **at)
{
    uint64_t v;
    memcpy(&v, *at, sizeof v);
    *at += sizeof v;
    return le64toh(v);
}

int swn_table_write(const struct swn_table *t, const struct swn_part_model *m, unsigned char **bytes, size_t *len)
{
    *len = HEADER;
    for (uint32_t i = 0; i < t->lists; i++)
        *len += LIST + t->list[i].rows * (ROW + 4 * (size_t)(t->list[i].blocks - 1));
    unsigned char *at = *bytes = malloc(*len);
    if (!at)
        return -ENOMEM;
    memcpy(at, MAGIC, 8);
    at += 16; /* the checksum is written last */
    put64(&at, key_of(m));
    put32(&at, t->layers);
    put32(&at, t->lists);
    for (uint32_t i = 0; i < t->lists; i++) {
        put32(&at, t->list[i].blocks);
        put32(&at, t->list[i].rows);
        put32(&at, (uint32_t)t->list[i].complete);
        put32(&at, 0);
        put64(&at, t->list[i].most_memory);
    }
    for (uint32_t i = 0; i < t->lists; i++)
        for (uint32_t k = 0; k < t->list[i].rows; k++) {
            uint64_t latency;
            memcpy(&latency, &t->list[i].row[k].part.latency_s, sizeof latency);
            put64(&at, t->list[i].row[k].part.memory_bytes);
            put64(&at, latency);
        }
    for (uint32_t i = 0; i < t->lists; i++)
        for (uint32_t k = 0; k < t->list[i].rows; k++)
            for (uint32_t p = 0; p + 1 < t->list[i].blocks; p++)
                put32(&at, t->list[i].row[k].points[p]);
    at = *bytes + 8;
    put64(&at, XXH3_64bits(*bytes + 16, *len - 16));
    return 0;
}

/* Reads the head of each list, and checks the size that they imply. 0 or -EINVAL. */
static int read_lists(struct swn_table *t, const unsigned char **at, size_t len)
{
    size_t need = HEADER + t->lists * (size_t)LIST;
    if (need > len)
        return -EINVAL;
    for (uint32_t i = 0; i < t->lists; i++) {
        struct swn_table_list *l = &t->list[i];
        l->blocks = get32(at);
        uint32_t rows = get32(at), complete = get32(at), zero = get32(at);
        l->most_memory = get64(at);
        if (l->blocks != i + 1 || l->blocks > t->layers || rows > SWN_TABLE_ROWS || complete > 1 || zero)
            return -EINVAL;
        l->complete = (int)complete;
        need += rows * (ROW + 4 * (size_t)(l->blocks - 1));
        l->row = calloc(rows + 1, sizeof *l->row);
        if (!l->row)
            return -ENOMEM;
        l->rows = rows;
    }
    return need == len ? 0 : -EINVAL;
}

/* Whether a row is a partition, has the stated memory and latency, and is in order. */
static int row_is_right(const struct swn_part_model *m, const struct swn_table_list *l, uint32_t k)
{
    size_t first[SWN_TABLE_BLOCKS] = {0};
    const struct swn_table_row *row = &l->row[k];
    for (uint32_t i = 1; i < l->blocks; i++) {
        first[i] = row->points[i - 1];
        if (first[i] <= first[i - 1] || first[i] >= m->layers)
            return 0;
    }
    struct swn_part part = swn_partition_judge(m, first, l->blocks);
    return part.memory_bytes == row->part.memory_bytes && part.latency_s == row->part.latency_s &&
           (!k || (part.memory_bytes > row[-1].part.memory_bytes && part.latency_s < row[-1].part.latency_s));
}

static int read_rows(struct swn_table *t, const struct swn_part_model *m, const unsigned char *at)
{
    for (uint32_t i = 0; i < t->lists; i++)
        for (uint32_t k = 0; k < t->list[i].rows; k++) {
            struct swn_part *part = &t->list[i].row[k].part;
            part->memory_bytes = get64(&at);
            uint64_t latency = get64(&at);
            memcpy(&part->latency_s, &latency, sizeof latency);
            part->exact = t->list[i].complete;
        }
    uint32_t *points = t->memory;
    for (uint32_t i = 0; i < t->lists; i++)
        for (uint32_t k = 0; k < t->list[i].rows; k++) {
            t->list[i].row[k].points = points;
            for (uint32_t p = 0; p + 1 < t->list[i].blocks; p++)
                *points++ = get32(&at);
            if (!row_is_right(m, &t->list[i], k))
                return -EINVAL;
        }
    return 0;
}

static int read_body(struct swn_table *t, const struct swn_part_model *m, const unsigned char *bytes, size_t len)
{
    const unsigned char *at = bytes + 16;
    if (get64(&at) != key_of(m))
        return -ESTALE;
    t->layers = get32(&at);
    uint32_t lists = get32(&at);
    if (t->layers != m->layers || lists > SWN_TABLE_BLOCKS)
        return -EINVAL;
    t->list = calloc(lists + 1, sizeof *t->list);
    t->memory = malloc(len); /* all points, which take a part of the file's bytes */
    if (!t->list || !t->memory)
        return -ENOMEM;
    t->lists = lists;
    int rc = read_lists(t, &at, len);
    return rc ? rc : read_rows(t, m, at);
}

int swn_table_read(struct swn_table **out, const struct swn_part_model *m, const unsigned char *bytes, size_t len)
{
    if (len < HEADER || len > SWN_TABLE_BYTES || memcmp(bytes, MAGIC, 8))
        return -EINVAL;
    const unsigned char *at = bytes + 8;
    if (get64(&at) != XXH3_64bits(bytes + 16, len - 16))
        return -EILSEQ;
    struct swn_table *t = calloc(1, sizeof *t);
    if (!t)
        return -ENOMEM;
    int rc = read_body(t, m, bytes, len);
    if (rc)
        swn_table_free(t);
    else
        *out = t;
    return rc;
}

int swn_table_save(const struct swn_table *t, const struct swn_part_model *m, const char *path)
{
    unsigned char *bytes;
    size_t len;
    int rc = swn_table_write(t, m, &bytes, &len);
    if (rc)
        return rc;
    rc = swn_textfile_replace(path, bytes, len);
    free(bytes);
    return rc;
}

int swn_table_load(struct swn_table **out, const struct swn_part_model *m, const char *path)
{
    char *bytes;
    size_t len;
    struct stat st;
    if (stat(path, &st))
        return -errno;
    if (!S_ISREG(st.st_mode)) /* reading a fifo would wait for a writer */
        return -EINVAL;
    int rc = swn_textfile_read(path, SWN_TABLE_BYTES, &bytes, &len);
    if (rc)
        return rc;
    rc = swn_table_read(out, m, (const unsigned char *)bytes, len);
    free(bytes);
    return rc;
}
