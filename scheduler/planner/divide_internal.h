/* scheduler/planner/divide_internal.h - what the files of swn_divide share. */
#ifndef SWN_SCHEDULER_PLANNER_DIVIDE_INTERNAL_H
#define SWN_SCHEDULER_PLANNER_DIVIDE_INTERNAL_H

#include "scheduler/planner/divide.h"

uint64_t swn_divide_most(const struct swn_divide_dnn *d);
uint64_t swn_divide_weights(const struct swn_divide_dnn *d);
double swn_divide_urgency(const struct swn_divide_dnn *d);
/* Adds as much of `rest` to *bytes as the DNN can use. Returns the bytes added. */
uint64_t swn_divide_add(const struct swn_divide_dnn *d, uint64_t rest, uint64_t *bytes);
/* 0 or -ENOMEM. The minimums must fit the total, and the demands must not. */
int swn_divide_minmax(const struct swn_divide_dnn *dnn, size_t n, uint64_t total, uint64_t *bytes);

#endif
