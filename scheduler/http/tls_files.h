/* scheduler/http/tls_files.h - the certificate and the private key that the HTTPS side is given, as files in PEM form.
 */
#ifndef SWN_SCHEDULER_HTTP_TLS_FILES_H
#define SWN_SCHEDULER_HTTP_TLS_FILES_H

#include "base/errmsg.h"

struct swn_tls_files {
    const char *certificate_path, *key_path; /* the caller's */
    char *certificate, *key;                 /* texts with terminators */
};

/* Reads both. The key must be a secret: it belongs to this process's user and to nobody else's eyes, or to root, who
 * may let a group read it. Of the certificate, whoever may write to it must be one of the two. 0, or -errno with `why`
 * filled, and nothing to forget. */
int swn_tls_files_read(struct swn_tls_files *files, const char *certificate_path, const char *key_path,
                       char why[SWN_ERRMSG]);
/* Overwrites and frees the texts. */
void swn_tls_files_forget(struct swn_tls_files *files);

#endif
