/* tools/ctl/status.c - `swapnetctl status` and `list`. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>

#include "tools/ctl/ctl.h"
#include "tools/ctl/processes.h"

struct request {
    int format; /* enum swn_cli_format */
    struct ctl_filter filter;
};

/* 0, 1 when help was shown, or -EINVAL. */
static int take_options(struct request *r, int argc, char **argv)
{
    int rc = swn_cli_only_format(argc, argv, SWN_CLI_CSV, &r->format);
    if (rc)
        return rc;
    r->filter.pids = argv + optind;
    r->filter.pid_count = argc - optind;
    for (int i = 0; i < r->filter.pid_count; i++) {
        if (!ctl_is_pid(r->filter.pids[i])) {
            swn_cli_error("'%s' is not a process number", r->filter.pids[i]);
            return -EINVAL;
        }
    }
    return 0;
}

/* 1 when each process that was asked for has answered itself. */
static int all_found(const struct request *r, json_t *processes)
{
    int all = 1;
    for (int i = 0; i < r->filter.pid_count; i++) {
        size_t k;
        json_t *process;
        int found = 0;
        json_array_foreach(processes, k, process) found |=
            json_integer_value(json_object_get(process, "pid")) == atoll(r->filter.pids[i]);
        if (!found && r->filter.seen[i] == CTL_UNSEEN)
            swn_cli_error("no swapnet process %s", r->filter.pids[i]);
        else if (found && r->filter.seen[i] != CTL_ANSWERED)
            swn_cli_error("process %s is shown as swapnetd sees it", r->filter.pids[i]);
        all &= r->filter.seen[i] == CTL_ANSWERED;
    }
    return all;
}

int ctl_status(int argc, char **argv)
{
    struct request r = {.format = SWN_CLI_TABLE};
    int rc = take_options(&r, argc, argv);
    if (rc)
        return rc == 1 ? SWN_CLI_OK : SWN_CLI_USAGE;
    r.filter.seen = calloc((size_t)r.filter.pid_count + 1, 1);
    if (!r.filter.seen) {
        swn_cli_error("no memory");
        return SWN_CLI_FAILURE;
    }
    json_t *root = ctl_collect(&r.filter);
    ctl_print(root, r.format);
    rc = all_found(&r, json_object_get(root, "processes")) ? SWN_CLI_OK : SWN_CLI_FAILURE;
    json_decref(root);
    free(r.filter.seen);
    return rc;
}
