/* scheduler/json/number_text.h - floating point numbers as JSON text that reads back as the same number. */
#ifndef SWN_SCHEDULER_JSON_NUMBER_TEXT_H
#define SWN_SCHEDULER_JSON_NUMBER_TEXT_H

#define SWN_NUMBER_TEXT 32 /* bytes of any such text; no terminator */

/* At most 9 digits for a float and 17 for a double, as "%.9g" and "%.17g" have them, with ".0" where it would look like
 * an integer; NaN, Infinity and -Infinity, as Triton and Python's json say. Returns the bytes. */
unsigned swn_float_text(float value, char to[SWN_NUMBER_TEXT]);
unsigned swn_double_text(double value, char to[SWN_NUMBER_TEXT]);

#endif
