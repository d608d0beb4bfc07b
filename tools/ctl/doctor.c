/* tools/ctl/doctor.c - `swapnetctl doctor`: whether programs can run under swapnet here, what is fast, what is slow,
 * and what to change. tools/doctor looks and judges; here is what is printed. */
#define _GNU_SOURCE
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/ctl/ctl.h"
#include "tools/ctl/output.h"
#include "tools/doctor/facts.h"

enum { OPT_JSON = 256 };

static const struct option options[] = {
    {"output", required_argument, NULL, 'o'},
    {"json", no_argument, NULL, OPT_JSON},
    {"store", required_argument, NULL, 's'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static json_t *row(const struct doctor_finding *f)
{
    return json_pack("{ss,ss,so,so}", "check", f->check, "level", doctor_level_name(f->level), "text",
                     swn_cli_json_text(f->text), "advice", swn_cli_json_text(f->advice[0] ? f->advice : NULL));
}

static void print_json(const struct doctor_report *report, int is_csv)
{
    static const char *const keys[] = {"check", "level", "text", "advice"};
    json_t *rows = json_array();
    for (size_t i = 0; i < report->count; i++)
        json_array_append_new(rows, row(&report->findings[i]));
    if (is_csv) {
        ctl_print_csv(keys, sizeof keys / sizeof *keys, rows);
        json_decref(rows);
        return;
    }
    json_t *root = json_pack("{si,sb,so}", "schema", 1, "usable", doctor_is_usable(report), "findings", rows);
    ctl_print_json(root);
    json_decref(root);
}

static void print_table(const struct doctor_report *report)
{
    size_t slow = 0;
    for (size_t i = 0; i < report->count; i++) {
        const struct doctor_finding *f = &report->findings[i];
        printf("%-4s  %-10s  %s\n", doctor_level_name(f->level), f->check, f->text);
        if (f->advice[0] && f->level != DOCTOR_OK)
            printf("%-4s  %-10s  -> %s\n", "", "", f->advice);
        slow += f->level == DOCTOR_SLOW;
    }
    if (!doctor_is_usable(report))
        printf("\nPrograms cannot run under swapnet here: change what says \"fail\".\n");
    else if (slow)
        printf("\nPrograms can run under swapnet here, slower than they could.\n");
    else
        printf("\nPrograms can run under swapnet here.\n");
}

/* 0, 1 when help was shown, or -EINVAL. */
static int take_options(int argc, char **argv, int *format)
{
    int opt;
    while ((opt = getopt_long(argc, argv, "+:o:s:h", options, NULL)) != -1) {
        if (opt == 'h') {
            swn_cli_help(argv[0]);
            return 1;
        }
        if (opt == 'o')
            *format = swn_cli_format(optarg, SWN_CLI_CSV);
        else if (opt == OPT_JSON)
            *format = SWN_CLI_JSON;
        else if (opt == 's')
            setenv("SWAPNET_STORE", optarg, 1);
        else
            swn_cli_bad_option(argv, opt);
        if (*format < 0 || opt == '?' || opt == ':')
            return -1;
    }
    if (argc - optind > 1) {
        swn_cli_error("one interpreter at a time; see 'swapnetctl help doctor'");
        return -1;
    }
    return 0;
}

int ctl_doctor(int argc, char **argv)
{
    static struct doctor_facts facts;
    static struct doctor_report report;
    int format = SWN_CLI_TABLE, rc = take_options(argc, argv, &format);
    if (rc)
        return rc == 1 ? SWN_CLI_OK : SWN_CLI_USAGE;
    const char *python = ctl_python(optind < argc ? argv[optind] : NULL);
    snprintf(facts.python.command, sizeof facts.python.command, "%s", python);
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN); /* a file beyond RLIMIT_FSIZE is a finding, and not the end */
    doctor_look_at_library(&facts.library, "", getenv("SWAPNET_LIBRARY"), getenv("LD_PRELOAD"));
    doctor_look_at_kernel(&facts.kernel, "");
    doctor_look_at_store(&facts.store, &swn_io_sys, "", environ);
    doctor_look_at_memory(&facts.memory, "");
    signal(SIGXFSZ, before); /* for the interpreter */
    doctor_look_at_python(&facts.python, &facts.library);
    doctor_judge(&facts, &report);
    if (format == SWN_CLI_TABLE)
        print_table(&report);
    else
        print_json(&report, format == SWN_CLI_CSV);
    return doctor_is_usable(&report) ? SWN_CLI_OK : SWN_CLI_FAILURE;
}
