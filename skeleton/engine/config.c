/* skeleton/engine/config.c - SWAPNET_* to struct swn_config. One table lists every variable. */
#include "skeleton/engine/config.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "scheduler/protocol/label.h"
#include "base/paths.h"
#include "base/size.h"

#define PREFIX "SWAPNET_"
#define SHOWN 80 /* characters of a value quoted in a message */

struct variable {
    const char *name;
    int (*set)(struct swn_config *c, const struct variable *v, const char *value);
    size_t offset; /* of the field in struct swn_config */
};

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static const char *const fetch_names[] = {"auto", "uring", "pread", "buffered"};
static const char *const unified_names[] = {"auto", "off", "pageable", "registered", "managed"};
static const char *const device_names[] = {"cuda", "privateuseone"};
/* By bit of enum swn_config_part. */
static const char *const part_names[] = {"prefetch", "kept", "slices", "places"};

/* The value as it may stand in a one-line message: shortened, control characters replaced. */
static const char *shown(char buf[SHOWN + 4], const char *value)
{
    size_t len = strnlen(value, SHOWN + 1);
    int cut = len > SHOWN;
    if (cut)
        len = SHOWN;
    for (size_t i = 0; i < len; i++)
        buf[i] = (unsigned char)value[i] < 0x20 || value[i] == 0x7f ? '?' : value[i];
    memcpy(buf + len, cut ? "..." : "", cut ? 4 : 1);
    return buf;
}

__attribute__((format(printf, 2, 3))) static int fail(struct swn_config *c, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(c->error, sizeof(c->error), format, ap);
    va_end(ap);
    return -EINVAL;
}

static int set_path(struct swn_config *c, const struct variable *v, const char *value)
{
    if (strlen(value) >= PATH_MAX) {
        char text[SHOWN + 4];
        return fail(c, "%s='%s' is too long: a path has at most %d characters", v->name, shown(text, value),
                    PATH_MAX - 1);
    }
    strcpy((char *)c + v->offset, value);
    return 0;
}

static int set_flag(struct swn_config *c, const struct variable *v, const char *value)
{
    if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0) {
        char text[SHOWN + 4];
        return fail(c, "%s='%s' is not a switch: use 0 or 1", v->name, shown(text, value));
    }
    int on = value[0] == '1';
    memcpy((char *)c + v->offset, &on, sizeof(on));
    return 0;
}

static int set_many_models(struct swn_config *c, const struct variable *v, const char *value)
{
    struct swn_config on = {0};
    const struct variable flag = {v->name, NULL, offsetof(struct swn_config, stores)};
    if (set_flag(&on, &flag, value))
        return fail(c, "%s", on.error);
    c->stores = (c->stores & ~(unsigned)SWN_MANY_MODELS) | (on.stores ? SWN_MANY_MODELS : 0);
    return 0;
}

static int set_bytes(struct swn_config *c, const struct variable *v, const char *value)
{
    const char *why = "";
    uint64_t bytes;
    if (swn_parse_budget(value, &bytes, &why) != 0) {
        char text[SHOWN + 4];
        return fail(c, "%s='%s' %s", v->name, shown(text, value), why);
    }
    memcpy((char *)c + v->offset, &bytes, sizeof(bytes));
    return 0;
}

static int set_budget(struct swn_config *c, const struct variable *v, const char *value)
{
    c->budget_auto = !strcmp(value, "auto");
    return c->budget_auto ? 0 : set_bytes(c, v, value);
}

/* The index of value among n names, or -1. */
static int index_of(const char *value, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(value, names[i]) == 0)
            return i;
    return -1;
}

static int set_fetch(struct swn_config *c, const struct variable *v, const char *value)
{
    char text[SHOWN + 4];
    c->fetch = index_of(value, fetch_names, COUNT(fetch_names));
    if (c->fetch < 0)
        return fail(c, "%s='%s' is not a way to read: use auto, uring, pread or buffered", v->name, shown(text, value));
    return 0;
}

static int set_unified(struct swn_config *c, const struct variable *v, const char *value)
{
    char text[SHOWN + 4];
    c->unified = index_of(value, unified_names, COUNT(unified_names));
    if (c->unified < 0)
        return fail(c, "%s='%s' is no kind of memory: use auto, off, pageable, registered or managed", v->name,
                    shown(text, value));
    return 0;
}

static int set_device(struct swn_config *c, const struct variable *v, const char *value)
{
    char text[SHOWN + 4];
    c->device = index_of(value, device_names, COUNT(device_names));
    return c->device >= 0 ? 0 : fail(c, "%s='%s' is no device: use cuda", v->name, shown(text, value));
}

static int set_without(struct swn_config *c, const struct variable *v, const char *value)
{
    char text[SHOWN + 4], part[16];
    for (const char *p = value;; p++) {
        size_t len = strcspn(p, ",");
        snprintf(part, sizeof part, "%.*s", (int)(len < sizeof part ? len : 0), p);
        int index = index_of(part, part_names, COUNT(part_names));
        if (index < 0)
            return fail(c, "%s='%s' names a part that is not there: use prefetch, kept, slices and places", v->name,
                        shown(text, value));
        c->without |= 1u << index;
        p += len;
        if (!*p)
            return 0;
    }
}

static int set_daemon(struct swn_config *c, const struct variable *v, const char *value)
{
    char text[SHOWN + 4];
    if (!strcmp(value, "auto") || !strcmp(value, "off")) {
        c->daemon = value[0] == 'o' ? SWN_DAEMON_OFF : SWN_DAEMON_AUTO;
        return 0;
    }
    if (value[0] != '/')
        return fail(c, "%s='%s' is no way to a daemon: use auto, off or the absolute path of its socket", v->name,
                    shown(text, value));
    c->daemon = SWN_DAEMON_PATH;
    return set_path(c, v, value);
}

static int set_urgency(struct swn_config *c, const struct variable *v, const char *value)
{
    char text[SHOWN + 4];
    return swn_label_urgency(value, &c->urgency) ? fail(c, "%s='%s' " SWN_LABEL_NO_URGENCY, v->name, shown(text, value))
                                                 : 0;
}

static int set_name(struct swn_config *c, const struct variable *v, const char *value)
{
    char text[SHOWN + 4];
    const char *wrong = swn_label_wrong(value);
    if (wrong)
        return fail(c, "%s='%s' %s", v->name, shown(text, value), wrong);
    strcpy(c->name, value);
    return 0;
}

/* Used by swapnetctl only: the library's path. Children inherit the variable, so it must not count as unknown. */
static int set_nothing(struct swn_config *c, const struct variable *v, const char *value)
{
    (void)c, (void)v, (void)value;
    return 0;
}

/* In the order in which mistakes are reported. */
static const struct variable variables[] = {
    {"SWAPNET", set_flag, offsetof(struct swn_config, enabled)},
    {"SWAPNET_BUDGET", set_budget, offsetof(struct swn_config, budget_bytes)},
    {"SWAPNET_MEMORY", set_bytes, offsetof(struct swn_config, memory_bytes)},
    {"SWAPNET_STORE", set_path, offsetof(struct swn_config, store_dir)},
    {"SWAPNET_STATS", set_path, offsetof(struct swn_config, stats_path)},
    {"SWAPNET_TRACE", set_path, offsetof(struct swn_config, trace_path)},
    {"SWAPNET_PROFILE", set_path, offsetof(struct swn_config, profile_path)},
    {"SWAPNET_VERIFY", set_path, offsetof(struct swn_config, verify_dir)},
    {"SWAPNET_VERBOSE", set_flag, offsetof(struct swn_config, verbose)},
    {"SWAPNET_DISK", set_path, offsetof(struct swn_config, disk_path)},
    {"SWAPNET_STRICT", set_flag, offsetof(struct swn_config, strict)},
    {"SWAPNET_MANY_MODELS", set_many_models, 0},
    {"SWAPNET_FETCH", set_fetch, 0},
    {"SWAPNET_ENFORCE", set_flag, offsetof(struct swn_config, enforce)},
    {"SWAPNET_WITHOUT", set_without, 0},
    {"SWAPNET_UNIFIED", set_unified, 0},
    {"SWAPNET_DEVICE", set_device, 0},
    {"SWAPNET_DEVICE_BUDGET", set_bytes, offsetof(struct swn_config, device_budget_bytes)},
    {"SWAPNET_DAEMON", set_daemon, offsetof(struct swn_config, daemon_path)},
    {"SWAPNET_URGENCY", set_urgency, 0},
    {"SWAPNET_NAME", set_name, 0},
    {"SWAPNET_LIBRARY", set_nothing, 0},
    {"SWAPNET_PYTHON", set_nothing, 0},
    {"SWAPNET_TORCH", set_nothing, 0},
};
#define VARIABLES (sizeof(variables) / sizeof(variables[0]))

static int is_known(const char *name, size_t len)
{
    for (size_t i = 0; i < VARIABLES; i++)
        if (strlen(variables[i].name) == len && memcmp(variables[i].name, name, len) == 0)
            return 1;
    return 0;
}

static void warn_unknown(struct swn_config *c, char *const *env)
{
    static const char more[] = "more SWAPNET_* variables are unknown and have no effect\n";
    size_t used = 0;

    for (; *env; env++) {
        size_t len = strcspn(*env, "=");
        char text[SHOWN + 4], name[SHOWN + 2];
        if (strncmp(*env, PREFIX, strlen(PREFIX)) != 0 || is_known(*env, len))
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)(len < sizeof(name) ? len : sizeof(name)), *env);
        size_t room = sizeof(c->warnings) - used;
        int n =
            snprintf(c->warnings + used, room, "%s is unknown and has no effect: see swapnet(7)\n", shown(text, name));
        if (n < 0 || (size_t)n + sizeof(more) > room) { /* the last line must always fit */
            memcpy(c->warnings + used, more, sizeof(more));
            return;
        }
        used += (size_t)n;
    }
}

static int default_store(struct swn_config *c, char *const *env)
{
    switch (swn_default_store_dir(env, c->store_dir, sizeof(c->store_dir))) {
    case 0:
        return 0;
    case -ENOENT:
        return fail(c, "SWAPNET_STORE is not set, nor is XDG_CACHE_HOME or HOME: "
                       "set SWAPNET_STORE to a directory for the block stores");
    case -EPERM:
        return fail(c, "the default for SWAPNET_STORE belongs to another user: "
                       "set SWAPNET_STORE to a directory of your own");
    default:
        return fail(c, "the default for SWAPNET_STORE is too long: set SWAPNET_STORE to a shorter directory name");
    }
}

int swn_config_load(struct swn_config *c, char *const *env)
{
    memset(c, 0, sizeof(*c));
    c->enabled = 1;
    c->enforce = 1;
    c->urgency = 1;
    const char *budget = swn_env_lookup(env, "SWAPNET_BUDGET");
    const char *master = swn_env_lookup(env, "SWAPNET");
    if (master && strcmp(master, "0") == 0) {
        const char *verify = swn_env_lookup(env, "SWAPNET_VERIFY");
        c->enabled = 0;
        if (verify && strlen(verify) < sizeof c->verify_dir)
            strcpy(c->verify_dir, verify);
        return 1;
    }
    warn_unknown(c, env);
    int rc = 0;
    for (size_t i = 0; i < VARIABLES && rc == 0; i++) {
        const char *value = swn_env_lookup(env, variables[i].name);
        if (value)
            rc = variables[i].set(c, &variables[i], value);
    }
    if (rc == 0 && !budget && !c->memory_bytes && c->daemon == SWN_DAEMON_OFF)
        rc = fail(c, "%s", swn_config_no_budget());
    if (rc == 0 && swn_store_is_off(c->store_dir)) {
        c->stores |= SWN_STORES_OFF;
        c->store_dir[0] = 0;
    }
    if (rc == 0 && !c->store_dir[0])
        rc = default_store(c, env);
    c->enabled = rc == 0;
    return rc;
}

const char *swn_config_no_budget(void)
{
    return "SWAPNET_BUDGET is not set: give the memory for tensors, e.g. SWAPNET_BUDGET=256M, "
           "or SWAPNET=0 to switch swapnet off";
}

const char *swn_config_fetch_name(int fetch)
{
    return fetch >= 0 && fetch < COUNT(fetch_names) ? fetch_names[fetch] : "?";
}

const char *swn_config_unified_name(int unified)
{
    return unified >= 0 && unified < COUNT(unified_names) ? unified_names[unified] : "?";
}
