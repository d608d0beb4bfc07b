/* scheduler/protocol/label.h - the name and the urgency that a user gives a program: the environment, options and
 * `swapnetctl set` accept the same texts. Pure functions; numbers have a point in every locale. */
#ifndef SWN_SCHEDULER_PROTOCOL_LABEL_H
#define SWN_SCHEDULER_PROTOCOL_LABEL_H

/* Bytes of a name with its NUL, in messages between processes. */
#define SWN_LABEL_NAME 64

/* A name is printable ASCII without spaces, as tables, CSV and shells have to take it, and not only digits, as that
 * would be a pid. NULL: valid; else what is wrong, to be printed after the name. Static. */
const char *swn_label_wrong(const char *name);

/* From SWN_WIRE_URGENCY_LEAST to SWN_WIRE_URGENCY_MOST, as digits and at most one point. 0 and *out; -EINVAL. */
int swn_label_urgency(const char *text, double *out);
/* What to write instead, to be printed after the text. Static. */
#define SWN_LABEL_NO_URGENCY "is no urgency: use a number from 0.001 to 1000, 1 is ordinary"

#endif
