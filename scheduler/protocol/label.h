/* scheduler/protocol/label.h - what a user calls a program, and how urgent it is: the texts that the environment,
 * options and `swapnetctl set` take alike. Pure functions; numbers have a point whatever the locale says.
 */
#ifndef SWN_SCHEDULER_PROTOCOL_LABEL_H
#define SWN_SCHEDULER_PROTOCOL_LABEL_H

/* A name's bytes with its NUL, as messages between processes carry it. */
#define SWN_LABEL_NAME 64

/* Printable ASCII without spaces, since tables, CSV and shells all have to take it, and not only digits, which would be
 * a process's number. NULL: it is a name; else what is wrong with it, to be put behind it. Static. */
const char *swn_label_wrong(const char *name);

/* From SWN_WIRE_URGENCY_LEAST to SWN_WIRE_URGENCY_MOST, as digits and at most one point. 0 and *out; -EINVAL. */
int swn_label_urgency(const char *text, double *out);
/* What to write instead, to be put behind the text. Static. */
#define SWN_LABEL_NO_URGENCY "is no urgency: use a number from 0.001 to 1000, 1 is ordinary"

#endif
