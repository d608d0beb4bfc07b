/* shim/serve/engine.h - the loop of an engine process, whatever it computes with. */
#ifndef SWN_SHIM_SERVE_ENGINE_H
#define SWN_SHIM_SERVE_ENGINE_H

#include "shim/serve/backend.h"

enum { SWN_EXIT_USAGE = 2, SWN_EXIT_NO_TORCH = 3, SWN_EXIT_PROTOCOL = 4 };

/* Maps the buffer, says READY, and answers each message until the other end closes. Returns the exit status of the
 * process, which has one such loop. Says on stderr what went wrong. */
int swn_engine_run(const struct swn_serve_backend *backend, int socket, int buffer);

#endif
