/* scheduler/oip/oip_classes.h - the classification extension of Triton's protocol: of an output's numbers the largest,
 * as texts "VALUE:CLASS" or "VALUE:CLASS:LABEL".
 *
 * A class is the number of an element within its sample. With `has_batch` the first dimension is that of samples; else
 * all of the output is one sample. Where values are equal the lower class comes first, and NaNs come last. Data may
 * change while it is read, since an engine can write to it: then any class may be named, and nothing else happens.
 */
#ifndef SWN_SCHEDULER_OIP_OIP_CLASSES_H
#define SWN_SCHEDULER_OIP_OIP_CLASSES_H

#include "scheduler/oip/labels.h"
#include "scheduler/oip/oip.h"

/* Bytes that swn_oip_classes_write needs for the `count` largest elements of each sample: an upper bound. 0, or -EINVAL
 * with *error filled: the type has no order (400), the output has too many elements (400), or the tensor does not have
 * the bytes of its shape (500). */
int swn_oip_classes_room(const struct swn_wire_tensor *t, uint32_t count, int has_batch,
                         const struct swn_labels *labels, uint64_t *room, struct swn_oip_error *error);

/* Writes the texts to `to`, which has the room that swn_oip_classes_room says, as the data of *out: a tensor of type
 * BYTES and shape [samples, classes], or [classes] without a batch, and with offset 0. 0 or -ENOMEM. */
int swn_oip_classes_write(const struct swn_wire_tensor *t, const void *data, uint32_t count, int has_batch,
                          const struct swn_labels *labels, void *to, struct swn_wire_tensor *out);

#endif
