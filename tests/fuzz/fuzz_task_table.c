/* fuzz_task_table - any bytes as a table of networks, and behind a zero byte as a table of arrivals. What is read is
 * written as it was, and can be simulated. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/simulation/simulation.h"

#define JOBS_MOST 8 /* that are simulated: a long table shows no more */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(int holds)
{
    if (!holds)
        abort();
}

static void check_written(const char *text, size_t size, const struct swn_network_table *networks,
                          const struct swn_arrival_table *arrivals)
{
    char *written = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&written, &length);

    expect(to != NULL);
    if (arrivals)
        swn_arrivals_write(arrivals, networks, to);
    else
        swn_networks_write(networks, to);
    expect(!fclose(to));
    expect(length == size && !memcmp(written, text, size));
    free(written);
}

static void simulate(const struct swn_network_table *networks, const struct swn_arrival_table *arrivals)
{
    struct swn_simulation how = {.estimate = 1, .paging = 2, .cascade = SWN_CASCADE_PREEMPT};
    struct swn_simulation_result result;
    uint64_t response[JOBS_MOST];
    int rc;

    how.machine =
        (struct swn_task_machine){.disk_bytes_per_ns = 1, .memory_bytes = 1 << 20, .workers = 2, .is_disk_divided = 1};
    for (how.policy = 0; how.policy < SWN_TASK_POLICIES; how.policy++) {
        rc = swn_simulate_tasks(networks, arrivals, &how, response, &result);
        expect(!rc || (how.policy == SWN_TASK_LOOKAHEAD && rc == -ENOSPC));
        expect(how.policy != SWN_TASK_LOOKAHEAD || rc || result.peak_bytes <= how.machine.memory_bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct swn_network_table networks;
    struct swn_arrival_table arrivals;
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t first = zero ? (size_t)(zero - data) : size;
    char *text = malloc(size ? size : 1);
    uint32_t line;

    expect(text != NULL);
    if (size)
        memcpy(text, data, size);
    if (!swn_networks_parse(text, first, &networks, &line)) {
        check_written(text, first, &networks, NULL);
        if (zero && !swn_arrivals_parse(text + first + 1, size - first - 1, &networks, &arrivals, &line)) {
            check_written(text + first + 1, size - first - 1, &networks, &arrivals);
            if (arrivals.job_count <= JOBS_MOST && arrivals.count <= 2 * JOBS_MOST)
                simulate(&networks, &arrivals);
            swn_arrivals_free(&arrivals);
        }
    }
    free(text);
    return 0;
}
