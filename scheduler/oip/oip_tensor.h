/* scheduler/oip/oip_tensor.h - what the parts of a request's reader tell each other of a tensor's data. */
#ifndef SWN_SCHEDULER_OIP_OIP_TENSOR_H
#define SWN_SCHEDULER_OIP_OIP_TENSOR_H

#include "scheduler/json/json_tensor.h"
#include "scheduler/oip/oip.h"

/* Fills in->tensor.bytes, if what was measured of its JSON can be elements of its type, and as many as its shape has.
 */
int swn_oip_size_json(struct swn_oip_input *in, const struct swn_json_array *array, struct swn_oip_error *error);

/* Likewise for binary data, which lies in the body at in->at. */
int swn_oip_size_binary(struct swn_oip_input *in, const char *body, struct swn_oip_error *error);

/* "[1,-1,3]" */
#define SWN_OIP_SHAPE (SWN_WIRE_RANK * 21 + 3)
const char *swn_oip_shape_text(const struct swn_wire_tensor *t, char to[SWN_OIP_SHAPE]);

/* Are these bytes so many elements of type BYTES, each with its length in front? */
int swn_oip_bytes_are(const void *data, uint64_t bytes, uint64_t elements);

#endif
