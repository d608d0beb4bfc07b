/* sched_sim.c - swapnet-sched-sim: policies over load and compute tasks on a simulated machine, from tables in CSV.
 *
 *     swapnet-sched-sim run --networks n.csv --jobs 150 --policy masa,bulk,lookahead --memory 512M --disk 90M
 *     swapnet-sched-sim arrivals --networks n.csv --scenario geometric --rho 1.2 > trace.csv
 *     swapnet-sched-sim exact --networks tiny.csv --memory 20 --disk 1G --workers 2
 *
 * bench/masa.py makes the tables of Masa's networks and runs its experiments with this.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/text_file.h"
#include "scheduler/simulation/simulation.h"
#include "scheduler/simulation/workload.h"
#include "scheduler/tasks/exact.h"
#include "scheduler/tasks/state.h"
#include "tools/cli.h"

#define FILE_MOST (16 << 20)
#define EXACT_NODES UINT64_C(50000000)

struct options {
    const char *networks, *arrivals, *policies, *members, *responses;
    struct swn_simulation how;
    struct swn_workload load;
};

struct tables {
    struct swn_network_table networks;
    struct swn_arrival_table arrivals;
};

enum {
    NETWORKS = 256,
    ARRIVALS,
    POLICY,
    MEMORY,
    DISK,
    WORKERS,
    READERS,
    DIVIDE,
    CASCADE,
    ESTIMATE,
    PAGING,
    OBJECTIVE,
    PRIVATE,
    RESPONSES,
    SCENARIO,
    SPACING,
    JOBS,
    INPUTS,
    INTERVAL,
    RHO,
    DEVIATION,
    PROBABILITY,
    SEED,
    MEMBERS
};

static const struct option long_options[] = {{"networks", required_argument, NULL, NETWORKS},
                                             {"arrivals", required_argument, NULL, ARRIVALS},
                                             {"policy", required_argument, NULL, POLICY},
                                             {"memory", required_argument, NULL, MEMORY},
                                             {"disk", required_argument, NULL, DISK},
                                             {"workers", required_argument, NULL, WORKERS},
                                             {"readers", required_argument, NULL, READERS},
                                             {"divide-disk", no_argument, NULL, DIVIDE},
                                             {"cascade", required_argument, NULL, CASCADE},
                                             {"estimate", required_argument, NULL, ESTIMATE},
                                             {"paging", required_argument, NULL, PAGING},
                                             {"objective", required_argument, NULL, OBJECTIVE},
                                             {"private", no_argument, NULL, PRIVATE},
                                             {"responses", required_argument, NULL, RESPONSES},
                                             {"scenario", required_argument, NULL, SCENARIO},
                                             {"spacing", required_argument, NULL, SPACING},
                                             {"jobs", required_argument, NULL, JOBS},
                                             {"inputs", required_argument, NULL, INPUTS},
                                             {"interval", required_argument, NULL, INTERVAL},
                                             {"rho", required_argument, NULL, RHO},
                                             {"deviation", required_argument, NULL, DEVIATION},
                                             {"probability", required_argument, NULL, PROBABILITY},
                                             {"seed", required_argument, NULL, SEED},
                                             {"members", required_argument, NULL, MEMBERS},
                                             {"help", no_argument, NULL, 'h'},
                                             {NULL, 0, NULL, 0}};

static const char help[] =
    "usage: swapnet-sched-sim COMMAND --networks FILE [OPTION]...\n"
    "\n"
    "The machine:\n"
    "  --memory SIZE      for weights, activations and outputs (512M)\n"
    "  --disk SIZE        bytes that the disk reads a second (90M)\n"
    "  --workers N        tasks at once (2)\n"
    "  --readers N        loads at once, beside the workers; 0: a load occupies a worker (0)\n"
    "  --divide-disk      loads at once share the disk's speed\n"
    "  --paging X         bytes moved for each byte that is paged (2)\n"
    "The policies:\n"
    "  --policy LIST      masa, masa-ordered, masa-code, bulk, deepeye, deepeye-frugal, lookahead (all)\n"
    "  --objective NAME   what lookahead minimizes: response, makespan (response)\n"
    "  --cascade NAME     ignore, wait, preempt, prefetch (ignore)\n"
    "  --estimate X       memory needs as policies are told, by the real ones (1)\n"
    "  --private          lookahead loads for each job anew, as Masa does\n"
    "  --responses FILE   response times: policy,job,response_ns\n"
    "The arrivals, out of a file or made:\n"
    "  --arrivals FILE    CSV, as the command arrivals writes it\n"
    "  --scenario NAME    fixed, one-as-printed, one, three, subset, geometric (fixed)\n"
    "  --members LIST     networks, NAME or NAME<UPSTREAM (all)\n"
    "  --spacing NAME     scenario, constant, normal, poisson, pareto (scenario)\n"
    "  --jobs N           (150)\n"
    "  --inputs N         of each job (1)\n"
    "  --interval SECONDS between jobs; otherwise --rho LOAD (1)\n"
    "  --deviation SECONDS of normal spacing (0.2)\n"
    "  --probability P    share of jobs whose first networks ask for those behind them (1)\n"
    "  --seed N           (1)\n";

static int choose(const char *list, const char *text)
{
    size_t length = strlen(text);
    int n = 0;

    for (const char *c = list; *c; n++) {
        size_t word = strcspn(c, " ");

        if (word == length && !strncmp(c, text, length))
            return n;
        c += word + (c[word] == ' ');
    }
    return -EINVAL;
}

static int real(const char *text, double *out)
{
    char *end;

    *out = strtod(text, &end);
    return end == text || *end || !(*out >= 0) || *out > 1e9 ? -EINVAL : 0;
}

static int whole(const char *text, uint64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoull(text, &end, 10);
    return text[0] < '0' || text[0] > '9' || *end || errno ? -EINVAL : 0;
}

static int small(const char *text, uint32_t *out)
{
    uint64_t value = 0;
    int rc = whole(text, &value);

    *out = (uint32_t)value;
    return rc || value > UINT32_MAX ? -EINVAL : 0;
}

static int seconds(const char *text, uint64_t *ns)
{
    double value = 0;
    int rc = real(text, &value);

    *ns = (uint64_t)(value * 1e9);
    return rc;
}

static int set_machine(struct options *o, int option, const char *text)
{
    struct swn_task_machine *m = &o->how.machine;
    uint64_t bytes = 0;
    int rc = 0;

    switch (option) {
    case MEMORY:
        return swn_parse_size(text, &m->memory_bytes);
    case DISK:
        rc = swn_parse_size(text, &bytes);
        m->disk_bytes_per_ns = (double)bytes / 1e9;
        return rc;
    case WORKERS:
        return small(text, &m->workers);
    case READERS:
        return small(text, &m->readers);
    case DIVIDE:
        m->is_disk_divided = 1;
        return 0;
    default:
        return real(text, &o->how.paging);
    }
}

static int set_workload(struct options *o, int option, const char *text)
{
    switch (option) {
    case SCENARIO:
        return swn_scenario_parse(text, &o->load.scenario);
    case SPACING:
        return swn_spacing_parse(text, &o->load.spacing);
    case JOBS:
        return small(text, &o->load.jobs);
    case INPUTS:
        return small(text, &o->load.inputs);
    case INTERVAL:
        return seconds(text, &o->load.interval_ns);
    case RHO:
        return real(text, &o->load.rho);
    case DEVIATION:
        return seconds(text, &o->load.deviation_ns);
    case PROBABILITY:
        o->how.probability = o->load.probability = 0;
        return real(text, &o->load.probability) || real(text, &o->how.probability) ? -EINVAL : 0;
    case SEED:
        return whole(text, &o->load.seed);
    default:
        o->members = text;
        return 0;
    }
}

static int set_policy(struct options *o, int option, const char *text)
{
    int found = 0;

    switch (option) {
    case NETWORKS:
        o->networks = text;
        return 0;
    case ARRIVALS:
        o->arrivals = text;
        return 0;
    case POLICY:
        o->policies = text;
        return 0;
    case CASCADE:
        found = choose("ignore wait preempt prefetch", text);
        o->how.cascade = found < 0 ? SWN_CASCADE_IGNORE : (enum swn_task_cascade)found;
        return found < 0 ? found : 0;
    case OBJECTIVE:
        found = choose("response makespan", text);
        o->how.objective = found < 0 ? SWN_TASK_RESPONSE : (enum swn_task_objective)found;
        return found < 0 ? found : 0;
    case ESTIMATE:
        return real(text, &o->how.estimate);
    case PRIVATE:
        o->how.is_private = 1;
        return 0;
    default:
        o->responses = text;
        return 0;
    }
}

/* 0; 1: help was shown; -EINVAL after a message. */
static int parse(int argc, char **argv, struct options *o)
{
    int option;

    *o = (struct options){.policies = "masa,masa-ordered,masa-code,bulk,deepeye,deepeye-frugal,lookahead"};
    o->how.machine =
        (struct swn_task_machine){.disk_bytes_per_ns = 90e6 / 1e9, .memory_bytes = 512 << 20, .workers = 2};
    o->how.estimate = o->how.probability = o->load.probability = o->load.rho = 1;
    o->how.paging = 2;
    o->load.jobs = 150;
    o->load.inputs = 1;
    o->load.seed = 1;
    o->load.deviation_ns = 200000000;
    while ((option = getopt_long(argc, argv, ":h", long_options, NULL)) >= 0) {
        int rc;

        if (option == 'h') {
            fputs(help, stdout);
            return 1;
        }
        if (option == '?' || option == ':') {
            swn_cli_bad_option(argv, option);
            return -EINVAL;
        }
        if ((option >= MEMORY && option <= DIVIDE) || option == PAGING)
            rc = set_machine(o, option, optarg);
        else
            rc = option >= SCENARIO ? set_workload(o, option, optarg) : set_policy(o, option, optarg);
        if (rc) {
            swn_cli_error("%s: not a value of this option: '%s'", argv[optind - 1], optarg);
            return -EINVAL;
        }
    }
    if (optind < argc || !o->networks) {
        swn_cli_error(o->networks ? "'%s' is one word too many" : "--networks is missing (--help)", argv[optind]);
        return -EINVAL;
    }
    return 0;
}

static int read_networks(const struct options *o, struct tables *t)
{
    uint32_t line = 0;
    size_t size;
    char *text;
    int rc = swn_textfile_read(o->networks, FILE_MOST, &text, &size);

    if (rc) {
        swn_cli_error("%s: %s", o->networks, strerror(-rc));
        return rc;
    }
    rc = swn_networks_parse(text, size, &t->networks, &line);
    if (rc)
        swn_cli_error("%s: line %u is not one of a table of networks", o->networks, line);
    free(text);
    return rc;
}

/* NAME or NAME<UPSTREAM, separated by commas; all networks where there is no list. */
static int read_members(const char *list, const struct swn_network_table *networks, struct swn_workload *load)
{
    for (uint32_t n = 0; !list && n < networks->count; n++) {
        load->members[n] = n;
        load->upstream[n] = SWN_TABLE_NONE;
        load->member_count = n + 1;
    }
    for (const char *c = list; c && *c;) {
        size_t all = strcspn(c, ","), name = strcspn(c, ",<");
        uint32_t k = load->member_count, upstream = SWN_TABLE_NONE;

        if (k == SWN_TABLE_NETWORKS)
            return -EINVAL;
        load->members[k] = swn_networks_find(networks, c, name);
        if (name < all) {
            uint32_t above = swn_networks_find(networks, c + name + 1, all - name - 1);

            for (uint32_t i = 0; i < k; i++)
                upstream = load->members[i] == above ? i : upstream;
        }
        if (load->members[k] == SWN_TABLE_NONE || (name < all && upstream == SWN_TABLE_NONE))
            return -EINVAL;
        load->upstream[k] = upstream;
        load->member_count++;
        c += all + (c[all] == ',');
    }
    return 0;
}

static int read_arrivals(struct options *o, struct tables *t)
{
    uint32_t line = 0;
    size_t size;
    char *text;
    int rc;

    if (!o->arrivals) {
        rc = read_members(o->members, &t->networks, &o->load);
        if (rc)
            swn_cli_error("--members: '%s' is not a list of networks", o->members);
        else if ((rc = swn_workload_make(&t->networks, &o->load, o->how.machine.disk_bytes_per_ns, &t->arrivals)))
            swn_cli_error("no such workload: %s", strerror(-rc));
        return rc;
    }
    rc = swn_textfile_read(o->arrivals, FILE_MOST, &text, &size);
    if (rc) {
        swn_cli_error("%s: %s", o->arrivals, strerror(-rc));
        return rc;
    }
    rc = swn_arrivals_parse(text, size, &t->networks, &t->arrivals, &line);
    if (rc)
        swn_cli_error("%s: line %u is not one of a table of arrivals", o->arrivals, line);
    free(text);
    return rc;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static int run_one(const struct options *o, const struct tables *t, enum swn_task_policy policy, FILE *responses)
{
    struct swn_simulation how = o->how;
    struct swn_simulation_result r;
    uint32_t n = t->arrivals.job_count;
    uint64_t *response = calloc(n, sizeof *response);
    int rc = -ENOMEM;

    how.policy = policy;
    if (response)
        rc = swn_simulate_tasks(&t->networks, &t->arrivals, &how, response, &r);
    if (rc) {
        swn_cli_error("%s: %s", swn_task_policy_name(policy),
                      rc == -ENOSPC ? "a layer is larger than the memory" : strerror(-rc));
    } else {
        for (uint32_t job = 0; responses && job < n; job++)
            fprintf(responses, "%s,%u,%" PRIu64 "\n", swn_task_policy_name(policy), job, response[job]);
        qsort(response, n, sizeof *response, compare);
        printf("%s,%u,%.0f,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
               ",%" PRIu64 ",%" PRIu64 "\n",
               swn_task_policy_name(policy), n, r.mean_response_ns, response[n / 2], response[(n - 1) * 95ul / 100],
               response[n - 1], r.end_ns, r.bytes_read, r.compute_ns, r.wasted_ns, r.peak_bytes, r.over_commits,
               r.paged_bytes + r.spilled_bytes);
    }
    free(response);
    return rc;
}

static int run_all(const struct options *o, const struct tables *t, FILE *responses)
{
    printf("policy,jobs,mean_response_ns,median_response_ns,p95_response_ns,max_response_ns,end_ns,bytes_read,"
           "compute_ns,wasted_ns,peak_bytes,over_commits,paged_bytes\n");
    for (const char *c = o->policies; *c;) {
        size_t length = strcspn(c, ",");
        enum swn_task_policy policy;
        char name[32] = "";

        if (length < sizeof name)
            memcpy(name, c, length);
        if (swn_task_policy_parse(name, &policy)) {
            swn_cli_error("--policy: there is no '%.*s'", (int)length, c);
            return SWN_CLI_USAGE;
        }
        if (run_one(o, t, policy, responses))
            return SWN_CLI_FAILURE;
        c += length + (c[length] == ',');
    }
    return SWN_CLI_OK;
}

static int prepare(int argc, char **argv, struct options *o, struct tables *t)
{
    int rc = parse(argc, argv, o);

    if (rc)
        return rc;
    return read_networks(o, t) || read_arrivals(o, t) ? -EINVAL : 0;
}

static int run(int argc, char **argv)
{
    static struct tables t;
    FILE *responses = NULL;
    struct options o;
    int rc = prepare(argc, argv, &o, &t);

    if (!rc && o.responses && !(responses = fopen(o.responses, "w"))) {
        swn_cli_error("%s: %s", o.responses, strerror(errno));
        rc = -EINVAL;
    }
    if (responses)
        fputs("policy,job,response_ns\n", responses);
    if (!rc)
        rc = run_all(&o, &t, responses);
    else
        rc = rc > 0 ? SWN_CLI_OK : SWN_CLI_USAGE;
    if (responses && fclose(responses))
        rc = SWN_CLI_FAILURE;
    swn_arrivals_free(&t.arrivals);
    return rc;
}

static int arrivals(int argc, char **argv)
{
    static struct tables t;
    struct options o;
    int rc = prepare(argc, argv, &o, &t);

    if (!rc)
        swn_arrivals_write(&t.arrivals, &t.networks, stdout);
    swn_arrivals_free(&t.arrivals);
    return rc < 0 ? SWN_CLI_USAGE : SWN_CLI_OK;
}

/* One pass of each network, all at time 0. */
static int exact(int argc, char **argv)
{
    static struct tables t;
    struct swn_task_pass passes[SWN_TABLE_NETWORKS] = {{0}};
    struct swn_task_copy copies[SWN_TABLE_NETWORKS] = {{0}};
    struct swn_task_state s = {.passes = passes, .copies = copies, .estimate = 1};
    struct options o;
    uint64_t end;
    int rc = parse(argc, argv, &o);

    if (rc || read_networks(&o, &t))
        return rc > 0 ? SWN_CLI_OK : SWN_CLI_USAGE;
    s.machine = o.how.machine;
    s.networks = t.networks.networks;
    s.network_count = s.pass_count = s.copy_count = t.networks.count;
    for (uint32_t n = 0; n < t.networks.count; n++) {
        passes[n] = (struct swn_task_pass){.id = n + UINT64_C(1), .weight = 1, .network = n, .copy = n, .inputs = 1};
        copies[n] = (struct swn_task_copy){.network = n, .is_taken = 1};
    }
    rc = swn_task_exact(&s, EXACT_NODES, &end);
    if (rc) {
        swn_cli_error("%s", rc == -ENOSPC ? "no schedule fits the memory" : "too large for an exact search");
        return SWN_CLI_FAILURE;
    }
    printf("end_ns\n%" PRIu64 "\n", end);
    return SWN_CLI_OK;
}

static const struct swn_cli_command commands[] = {
    {"run", run, "simulates policies: a line of CSV for each", help},
    {"arrivals", arrivals, "writes the arrivals that run would take", help},
    {"exact", exact, "the shortest makespan of one pass of each network, of a few layers", help},
};

int main(int argc, char **argv)
{
    static const struct swn_cli cli = {"swapnet-sched-sim",
                                       "Simulates schedulers of load and compute tasks of several networks.",
                                       "bench/README.md", commands, sizeof commands / sizeof *commands};

    return swn_cli_main(&cli, argc, argv);
}
