/* base/cpu_binding.h - CPUs of its own for every DNN (SwapNet 6.2.1: "bind different DNN tasks into different CPU
 * cores"). */
#ifndef SWN_BASE_CPU_BINDING_H
#define SWN_BASE_CPU_BINDING_H

#include <sched.h>
#include <stddef.h>
#include <sys/types.h>

/* "0-3,6" to a set. 0, -EINVAL, -ERANGE. */
int swn_cpus_parse(const char *text, cpu_set_t *out);
/* "0-3,6" from a set; returns buf. */
char *swn_cpus_format(char *buf, size_t size, const cpu_set_t *set);
/* Share number `index` of `n` of the CPUs in `all`: contiguous, of sizes that differ by one at most. With more DNNs
 * than CPUs each gets one CPU, and several DNNs share one. Pure. */
void swn_cpus_part(const cpu_set_t *all, size_t n, size_t index, cpu_set_t *out);
/* Binds every thread that the process has; threads that they make later inherit the binding. 0, or -errno of the first
 * thread that failed. */
int swn_cpus_bind(pid_t pid, const cpu_set_t *set);

#endif
