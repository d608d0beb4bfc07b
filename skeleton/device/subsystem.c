/* skeleton/device/subsystem.c - the functions of devices for the core and the torch backend. */
#include "skeleton/engine/engine_internal.h"
#include "skeleton/engine/subsystem.h"
#include "skeleton/device/device.h"
#include "skeleton/device/host_register.h"
#include "skeleton/device/pinned_cache.h"

static void services(struct swn_engine *e, struct swn_runtime_services *out)
{
    out->device.way = swn_device_way;
    out->device.open = swn_device_open;
    out->device.streams = swn_device_streams;
    out->device.close = swn_device_close;
    out->device.swaps = swn_device_swaps;
    out->device.begin = swn_device_begin;
    out->device.end = swn_device_end;
    out->device.capturing = swn_device_capturing;
    out->device.held_up = swn_device_held_up;
    out->device.programs = swn_device_programs;
    out->device.kept = swn_device_kept;
    out->device.stays = swn_device_stays;
    out->device.pin = swn_device_pin;
    out->device.aside = swn_device_aside;
    out->device.watch = swn_device_watch;
    out->device.moved = swn_device_moved;
    out->device.given_up = swn_device_given_up;
    out->device.refused = swn_device_refused;
    out->device.lost = swn_device_lost;
    if (swn_device_start(&e->config))
        out->device.type = e->config.device == SWN_CONFIG_CUDA ? SWN_DEVICE_CUDA : SWN_DEVICE_PRIVATEUSEONE;
}

static void fork_child(struct swn_engine *e)
{
    (void)e;
    swn_device_fork_child();
    swn_registered_fork_child();
}

static void stats(struct swn_engine *e, struct swn_stats *out)
{
    (void)e;
    swn_device_stats(out);
}

static const struct swn_reclaimer memory = {
    .bytes = swn_pinned_cache_bytes,
    .ask = swn_pinned_cache_ask,
    .make_way = swn_pinned_cache_vacate,
};

static const struct swn_op_filter filter = {.make_way = swn_pinned_cache_vacate_for};

const struct swn_subsystem swn_device_subsystem = {
    .services = services,
    .fork_child = fork_child,
    .stats = stats,
    .memory = &memory,
    .op = &filter,
};
