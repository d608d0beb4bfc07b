/* scheduler/serve/repository.h - what models there are: NAME/VERSION/model.{pt,pt2,py} or a Hugging Face folder
 * with its config.json, and NAME/config.pbtxt.
 *
 * Nothing outside of the repository is opened, whatever a name or a link in it says: each step goes below the
 * repository's own descriptor, and no link is followed.
 */
#ifndef SWN_SCHEDULER_SERVE_REPOSITORY_H
#define SWN_SCHEDULER_SERVE_REPOSITORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/errmsg.h"
#include "scheduler/config/model_config.h"
#include "scheduler/oip/labels.h"

#define SWN_REPOSITORY_NAME 129 /* bytes of a model's name with its terminator */
#define SWN_REPOSITORY_MODELS 1024
#define SWN_REPOSITORY_VERSIONS 64

struct swn_repository;

/* A name's letters are those of file names that need no quoting: A-Z a-z 0-9 . _ -, not beginning with '.'. */
int swn_repository_name_is_valid(const char *name, size_t length);

/* 0, or -errno with `why` filled. */
int swn_repository_open(struct swn_repository **out, const char *path, char why[SWN_ERRMSG]);
void swn_repository_close(struct swn_repository *r);

/* The names of folders that may be models, sorted. *names is malloc'd, one block. 0; -E2BIG: more than
 * SWN_REPOSITORY_MODELS; another -errno. */
int swn_repository_names(struct swn_repository *r, char (**names)[SWN_REPOSITORY_NAME], size_t *count);

struct swn_repository_version {
    int64_t version;
    char file[SWN_CONFIG_NAME]; /* in the version's folder */
};

struct swn_repository_model {
    struct swn_model_config config;
    struct swn_labels *labels; /* that the config names for outputs, with one holder; NULL: none */
    unsigned count;            /* versions to be served, by the config's policy, in ascending order */
    struct swn_repository_version versions[SWN_REPOSITORY_VERSIONS];
};

/* Reads a model's folder. 0; -ENOENT: there is no such model; -errno: `why` says what is wrong with it. In any case
 * *out ends with swn_repository_model_free. */
int swn_repository_model(struct swn_repository *r, const char *name, struct swn_repository_model *out,
                         char why[SWN_ERRMSG]);
void swn_repository_model_free(struct swn_repository_model *model); /* what it holds; not the struct itself */

/* Whether the file of a version is for a worker; whether it is code, as well. */
int swn_repository_is_python(const char *file);
int swn_repository_is_code(const char *file);

/* Takes the repository's own place out of a text for clients: names of its files begin below it then. */
void swn_repository_hide(const struct swn_repository *r, char *text);
/* Whether only the user of this process and root can write to the file at `path`, as swn_repository_path gives it, and
 * to the folders of its version, its model and the repository. 0, or -errno with `why` filled. */
int swn_repository_trusts(const struct swn_repository *r, const char *path, char why[SWN_ERRMSG]);

/* The path of a version's file, for an engine. 0 or -ENAMETOOLONG. */
int swn_repository_path(const struct swn_repository *r, const char *name, const struct swn_repository_version *v,
                        char *to, size_t room);

#endif
