/* scheduler/json/json_tensor.h - the "data" of a tensor in JSON: an array, flat or nested, in row-major order.
 *
 * Measuring says what is in it, writing puts it into memory. Neither keeps anything that grows with the array. Besides
 * what RFC 8259 has, NaN, Infinity and -Infinity are numbers here, as Triton and Python's json write them.
 */
#ifndef SWN_SCHEDULER_JSON_JSON_TENSOR_H
#define SWN_SCHEDULER_JSON_JSON_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "scheduler/protocol/engine_wire.h"
#include "scheduler/json/json_scan.h"

struct swn_json_array {
    uint64_t numbers, words, booleans, strings; /* words: NaN and the infinities */
    uint64_t string_bytes;                      /* of all strings, without escapes */
    unsigned depth;                             /* levels of brackets */
    uint8_t is_ragged;                          /* arrays of one level differ in length, or hold arrays and others */
    uint64_t lengths[SWN_JSON_DEPTH];           /* of the first array of each level */
};

/* `at` is at '['. Returns where the array ends, behind its bracket; NULL with *why and *where. `most` levels at most.
 */
const char *swn_json_array_measure(const char *at, const char *end, unsigned most, struct swn_json_array *array,
                                   const char **why, const char **where);

/* Can `array` be the elements of this shape: as many, and brackets only where rows of the shape begin and end? A flat
 * array always is, and [[1, 2], [3, 4]] is no 4 x 1. */
int swn_json_array_fits(const struct swn_json_array *array, const int64_t *shape, unsigned rank);

/* Writes an array that has been measured as elements of this type into exactly `bytes`. 0; -EINVAL with *why and
 * *where: an element is not of the type, or the array has changed. */
int swn_json_array_write(const char *at, const char *end, enum swn_element element, void *to, size_t bytes,
                         const char **why, const char **where);

#endif
