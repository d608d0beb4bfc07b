/* base/cpu_binding.c - see base/cpu_binding.h. */
#define _GNU_SOURCE
#include "base/cpu_binding.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static int number(const char **text)
{
    if (!isdigit((unsigned char)**text))
        return -EINVAL;
    long n = 0;
    for (; isdigit((unsigned char)**text); (*text)++)
        if ((n = n * 10 + **text - '0') >= CPU_SETSIZE)
            return -ERANGE;
    return (int)n;
}

int swn_cpus_parse(const char *text, cpu_set_t *out)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    do {
        int first = number(&text), last = first;
        if (first >= 0 && *text == '-') {
            text++;
            last = number(&text);
        }
        if (first < 0 || last < 0)
            return first < 0 ? first : last;
        if (last < first || (*text && *text != ','))
            return -EINVAL;
        for (int cpu = first; cpu <= last; cpu++)
            CPU_SET((size_t)cpu, &set);
    } while (*text++ == ',');
    *out = set;
    return 0;
}

char *swn_cpus_format(char *buf, size_t size, const cpu_set_t *set)
{
    size_t used = 0;
    buf[0] = '\0';
    for (size_t cpu = 0; cpu < CPU_SETSIZE && used < size; cpu++) {
        if (!CPU_ISSET(cpu, set))
            continue;
        size_t last = cpu;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set))
            last++;
        int n = last == cpu ? snprintf(buf + used, size - used, "%s%zu", used ? "," : "", cpu)
                            : snprintf(buf + used, size - used, "%s%zu-%zu", used ? "," : "", cpu, last);
        used += n > 0 ? (size_t)n : size;
        cpu = last;
    }
    return buf;
}

void swn_cpus_part(const cpu_set_t *all, size_t n, size_t index, cpu_set_t *out)
{
    size_t count = (size_t)CPU_COUNT(all), first, last;
    CPU_ZERO(out);
    if (!count || !n)
        return;
    if (n >= count) {
        first = index % count;
        last = first + 1;
    } else {
        first = count * index / n;
        last = count * (index + 1) / n;
    }
    size_t seen = 0;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, all)) {
            if (seen >= first && seen < last)
                CPU_SET(cpu, out);
            seen++;
        }
}

int swn_cpus_bind(pid_t pid, const cpu_set_t *set)
{
    char path[64];
    int err = 0;
    snprintf(path, sizeof path, "/proc/%ld/task", (long)pid);
    DIR *d = opendir(path);
    if (!d)
        return -errno;
    for (struct dirent *entry = readdir(d); entry; entry = readdir(d)) {
        pid_t tid = (pid_t)atol(entry->d_name);
        if (tid > 0 && sched_setaffinity(tid, sizeof *set, set) && errno != ESRCH && !err)
            err = -errno;
    }
    closedir(d);
    return err;
}
