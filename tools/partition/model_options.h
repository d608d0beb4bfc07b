/* tools/partition/model_options.h - the options of plan and table: which model, on which device. */
#ifndef SWN_TOOLS_PARTITION_MODEL_OPTIONS_H
#define SWN_TOOLS_PARTITION_MODEL_OPTIONS_H

#include "scheduler/planner/model.h"

#define PART_MODEL_OPTIONS                                                                                             \
    {"profile", required_argument, NULL, 'p'},                                                                         \
    {                                                                                                                  \
        "device", required_argument, NULL, 'd'                                                                         \
    }

/* Takes -p and -d from optarg; 0 for any other option. */
int part_model_option(struct swn_model_opts *opts, int opt);
/* A number from 1 up; else prints what is wrong and returns -EINVAL. */
int part_parse_count(const char *text, size_t *count);

#endif
