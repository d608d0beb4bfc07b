/* scheduler/serve/repository.c - see repository.h. */
#define _GNU_SOURCE
#include "scheduler/serve/repository.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/paths.h"
#include "scheduler/serve/repository_path.h"

#define BELOW (O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)

/* Of the folder of a model.py, in which all code is looked at before it is run. */
#define CODE_DEPTH 16
#define CODE_ENTRIES 20000

struct swn_repository {
    int fd;
    char path[PATH_MAX];
};

int swn_repository_name_is_valid(const char *name, size_t length)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

    if (length == 0 || length >= SWN_REPOSITORY_NAME || name[0] == '.')
        return 0;
    for (size_t i = 0; i < length; i++)
        if (!name[i] || !strchr(letters, name[i]))
            return 0;
    return 1;
}

int swn_repository_open(struct swn_repository **out, const char *path, char why[SWN_ERRMSG])
{
    struct swn_repository *r = calloc(1, sizeof *r);

    if (!r)
        return swn_errmsg(why, -ENOMEM, "out of memory");
    r->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r->fd < 0 || !realpath(path, r->path)) {
        int err = -errno;
        swn_repository_close(r);
        return swn_errmsg(why, err, "cannot open the model repository '%s': %s", path, strerror(-err));
    }
    *out = r;
    return 0;
}

void swn_repository_close(struct swn_repository *r)
{
    if (r && r->fd >= 0)
        close(r->fd);
    free(r);
}

/* ---- folders ---- */

/* A stream over a folder of its own offset. NULL with errno set. */
static DIR *open_folder(int at, const char *name)
{
    int fd = openat(at, name, BELOW | O_DIRECTORY);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (fd >= 0 && !d) {
        int err = errno;
        close(fd);
        errno = err;
    }
    return d;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int is_folder(int at, const char *name)
{
    struct stat st;
    return fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

int swn_repository_names(struct swn_repository *r, char (**names)[SWN_REPOSITORY_NAME], size_t *count)
{
    char(*list)[SWN_REPOSITORY_NAME] = calloc(SWN_REPOSITORY_MODELS, sizeof *list);
    DIR *d = list ? open_folder(r->fd, ".") : NULL;
    struct dirent *entry;
    int rc = list ? d ? 0 : -errno : -ENOMEM;

    *count = 0;
    while (rc == 0 && (entry = readdir(d))) {
        if (!swn_repository_name_is_valid(entry->d_name, strlen(entry->d_name)) || !is_folder(r->fd, entry->d_name))
            continue;
        if (*count == SWN_REPOSITORY_MODELS)
            rc = -E2BIG;
        else
            memcpy(list[(*count)++], entry->d_name, strlen(entry->d_name) + 1);
    }
    if (d)
        closedir(d);
    if (rc) {
        free(list);
        return rc;
    }
    qsort(list, *count, sizeof *list, compare_names);
    *names = list;
    return 0;
}

/* ---- one model ---- */

/* A file of the model's folder, malloc'd; one that has more bytes than `most` comes with most + 1 of them. -errno:
 * `why` is filled. */
static ssize_t read_file(int folder, const char *name, size_t most, char **text, char why[SWN_ERRMSG])
{
    struct stat st;
    ssize_t n = -1;
    int fd = openat(folder, name, BELOW);

    *text = NULL;
    if (fd < 0)
        return swn_errmsg(why, -errno, "cannot open %s: %s", name, strerror(errno));
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        *text = malloc(most + 1);
    if (*text)
        n = read(fd, *text, most + 1);
    close(fd);
    if (n >= 0)
        return n;
    free(*text);
    *text = NULL;
    return swn_errmsg(why, -EIO, "cannot read %s", name);
}

static int read_config(int folder, struct swn_model_config *config, char why[SWN_ERRMSG])
{
    char *text, said[SWN_ERRMSG];
    ssize_t n = read_file(folder, "config.pbtxt", SWN_CONFIG_BYTES, &text, why);
    int rc;

    if (n < 0)
        return n == -ENOENT ? 0 : (int)n;
    rc = swn_model_config_parse(text, (size_t)n, config, said);
    free(text);
    return rc ? swn_errmsg(why, rc, "config.pbtxt: %s", said) : 0;
}

static int read_labels(int folder, struct swn_repository_model *out, const struct swn_config_tensor *output,
                       char why[SWN_ERRMSG])
{
    char *text;
    ssize_t n;
    int rc;

    if (!swn_repository_name_is_valid(output->labels, strlen(output->labels)))
        return swn_errmsg(why, -EINVAL, "config.pbtxt: label_filename of output '%s' is no name of a file",
                          output->tensor.name);
    n = read_file(folder, output->labels, SWN_LABELS_BYTES, &text, why);
    if (n < 0) /* of the model, -ENOENT would say that there is none */
        return n == -ENOENT ? -EINVAL : (int)n;
    if (!out->labels)
        out->labels = swn_labels_new();
    rc = out->labels ? swn_labels_add(out->labels, output->tensor.name, text, (size_t)n) : -ENOMEM;
    free(text);
    return rc ? swn_errmsg(why, rc, "%s: %s", output->labels,
                           rc == -EFBIG ? "a label has 1023 bytes at most, and all of a model, with 4 for each, 1 MiB"
                           : rc == -EILSEQ ? "labels must be UTF-8"
                                           : "out of memory")
              : 0;
}

/* The file of a version's folder: the one that the config names, or the first of the usual ones. 0 or -ENOENT. */
static int find_file(int folder, const char *wanted, char file[SWN_CONFIG_NAME])
{
    const char *usual[] = {"model.pt", "model.pt2", "model.py", "config.json"};
    const char *const *names = *wanted ? &wanted : usual;
    struct stat st;

    for (size_t i = 0; i < (*wanted ? 1 : sizeof usual / sizeof *usual); i++)
        if (fstatat(folder, names[i], &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode)) {
            snprintf(file, SWN_CONFIG_NAME, "%s", names[i]);
            return 0;
        }
    return -ENOENT;
}

static int is_wanted(const struct swn_config_versions *policy, int64_t version)
{
    if (policy->policy != SWN_VERSIONS_SPECIFIC)
        return 1;
    for (unsigned i = 0; i < policy->count; i++)
        if (policy->versions[i] == version)
            return 1;
    return 0;
}

static int compare_versions(const void *a, const void *b)
{
    const struct swn_repository_version *x = a, *y = b;
    return x->version < y->version ? -1 : x->version > y->version;
}

static int find_versions(DIR *d, struct swn_repository_model *out, char why[SWN_ERRMSG])
{
    const struct swn_config_versions *policy = &out->config.versions;
    struct dirent *entry;
    unsigned latest = policy->latest ? policy->latest : 1, wanted = 0, others = 0;

    while ((entry = readdir(d))) {
        struct swn_repository_version v;
        int folder;
        if (swn_model_version_parse(entry->d_name, strlen(entry->d_name), &v.version))
            continue;
        if (!is_wanted(policy, v.version)) {
            others++;
            continue;
        }
        wanted++;
        folder = openat(dirfd(d), entry->d_name, BELOW | O_DIRECTORY);
        if (folder < 0)
            continue;
        *v.file = '\0'; /* an ensemble's folder has none */
        if (out->config.ensemble || find_file(folder, out->config.file, v.file) == 0) {
            if (out->count == SWN_REPOSITORY_VERSIONS) {
                close(folder);
                return swn_errmsg(why, -E2BIG, "more than %d versions", SWN_REPOSITORY_VERSIONS);
            }
            out->versions[out->count++] = v;
        }
        close(folder);
    }
    qsort(out->versions, out->count, sizeof *out->versions, compare_versions);
    if (policy->policy == SWN_VERSIONS_LATEST && out->count > latest) {
        memmove(out->versions, out->versions + out->count - latest, latest * sizeof *out->versions);
        out->count = latest;
    }
    if (!wanted && others)
        return swn_errmsg(why, -EINVAL,
                          "config.pbtxt: no version is there that version_policy names, but %u others are", others);
    if (out->count == 0)
        return swn_errmsg(why, -EINVAL, "no version of it has a file %s",
                          *out->config.file ? out->config.file : "model.pt, model.pt2, model.py or config.json");
    return 0;
}

int swn_repository_model(struct swn_repository *r, const char *name, struct swn_repository_model *out,
                         char why[SWN_ERRMSG])
{
    DIR *d = swn_repository_name_is_valid(name, strlen(name)) ? open_folder(r->fd, name) : NULL;
    int rc;

    out->count = 0;
    out->labels = NULL;
    swn_model_config_init(&out->config);
    if (!d)
        return swn_errmsg(why, -ENOENT, "no folder of that name is in the repository");
    rc = read_config(dirfd(d), &out->config, why);
    if (rc == 0 && *out->config.name && strcmp(out->config.name, name) != 0)
        rc = swn_errmsg(why, -EINVAL, "config.pbtxt names another model, '%s'", out->config.name);
    if (rc == 0 && *out->config.file && !swn_repository_name_is_valid(out->config.file, strlen(out->config.file)))
        rc = swn_errmsg(why, -EINVAL, "config.pbtxt: default_model_filename is no name of a file");
    for (unsigned i = 0; rc == 0 && i < out->config.output_count; i++)
        if (*out->config.outputs[i].labels)
            rc = read_labels(dirfd(d), out, &out->config.outputs[i], why);
    if (rc == 0)
        rc = find_versions(d, out, why);
    closedir(d);
    return rc;
}

void swn_repository_model_free(struct swn_repository_model *model)
{
    swn_model_config_free(&model->config);
    swn_labels_drop(model->labels);
    model->labels = NULL;
}

int swn_repository_path(const struct swn_repository *r, const char *name, const struct swn_repository_version *v,
                        char *to, size_t room)
{
    int n = snprintf(to, room, "%s/%s/%" PRId64 "/%s", r->path, name, v->version, v->file);
    return n < 0 || (size_t)n >= room ? -ENAMETOOLONG : 0;
}

void swn_repository_hide(const struct swn_repository *r, char *text)
{
    size_t n = strlen(r->path);
    char *found = text;

    while (n > 1 && (found = strstr(found, r->path)))
        memmove(found, found + n + (found[n] == '/'), strlen(found + n + (found[n] == '/')) + 1);
}

/* ---- code ---- */

int swn_repository_is_python(const char *file)
{
    return swn_repository_is_code(file) || strcmp(file, "config.json") == 0;
}

int swn_repository_is_code(const char *file)
{
    size_t n = strlen(file);
    return n > 3 && strcmp(file + n - 3, ".py") == 0;
}

/* 0, or -errno. */
static int file_is_trusted(const char *path)
{
    struct stat st;

    if (lstat(path, &st))
        return -errno;
    return S_ISREG(st.st_mode) && (st.st_uid == 0 || st.st_uid == geteuid()) && !(st.st_mode & (S_IWGRP | S_IWOTH))
               ? 0
               : -EPERM;
}

/* What `import` finds. */
static int is_importable(const char *file)
{
    static const char *const ends[] = {".py", ".pyc", ".so"};
    size_t n = strlen(file);

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (n > strlen(ends[i]) && strcmp(file + n - strlen(ends[i]), ends[i]) == 0)
            return 1;
    return 0;
}

/* The code in the folder at[], and below: modules beside a model.py and compiled ones are imported like it. `left`: how
 * many entries may be there. 0, or -errno with at[] the one that it is about. */
static int folder_is_trusted(char at[PATH_MAX], unsigned depth, unsigned *left)
{
    size_t end = strlen(at);
    DIR *d = depth ? open_folder(AT_FDCWD, at) : NULL;
    struct dirent *entry;
    int rc = d ? 0 : depth ? -errno : -ELOOP;

    while (rc == 0 && (entry = readdir(d))) {
        struct stat st;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        if (!(*left)--)
            rc = -E2BIG;
        else if (snprintf(at + end, PATH_MAX - end, "/%s", entry->d_name) >= (int)(PATH_MAX - end))
            rc = -ENAMETOOLONG;
        else if (is_importable(entry->d_name))
            rc = file_is_trusted(at);
        else if (stat(at, &st) == 0 && S_ISDIR(st.st_mode)) {
            rc = swn_dir_is_trusted(at); /* no link either */
            if (rc == 0)
                rc = folder_is_trusted(at, depth - 1, left);
        }
        if (rc == 0)
            at[end] = '\0';
    }
    if (d)
        closedir(d);
    return rc;
}

int swn_repository_trusts(const struct swn_repository *r, const char *path, char why[SWN_ERRMSG])
{
    char at[PATH_MAX];
    unsigned left = CODE_ENTRIES;
    int n = snprintf(at, sizeof at, "%s", path), rc = n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : file_is_trusted(at);

    while (rc == 0 && strlen(at) > strlen(r->path)) {
        *strrchr(at, '/') = '\0';
        rc = swn_dir_is_trusted(*at ? at : "/");
    }
    if (rc == 0) {
        snprintf(at, sizeof at, "%.*s", (int)(strrchr(path, '/') - path), path);
        rc = folder_is_trusted(at, CODE_DEPTH, &left);
    }
    if (rc == -EPERM)
        return swn_errmsg(why, rc, "its code is not run: users other than this one and root can write to %s", at);
    return rc ? swn_errmsg(why, rc, "its code is not run: %s: %s", at, strerror(-rc)) : 0;
}
