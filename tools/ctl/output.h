/* tools/ctl/output.h - the JSON and CSV that swapnetctl writes. */
#ifndef SWN_TOOLS_CTL_OUTPUT_H
#define SWN_TOOLS_CTL_OUTPUT_H

#include <jansson.h>

/* Prints one document; nothing when root is NULL. */
void ctl_print_json(const json_t *root);
/* A line of the keys, and one of values for each object in `rows`: nothing for null or a missing key, spaces between
 * the elements of an array. */
void ctl_print_csv(const char *const *keys, size_t count, const json_t *rows);
/* The same with one row. */
void ctl_print_csv_row(const char *const *keys, size_t count, json_t *row);

#endif
