"""From the lanes of one point to rows of the table, and what falls short of the goals."""
import json
import statistics

import plan
import variants

# Times max(T, (e - r) / BW) where weights are read, and times plain where all of them have room.
GOAL_LIMIT, GOAL_FITS = 1.10, 1.02
# As fast as memory-mapped weights at least, and so many times at or below these points.
MMAP_BYTES = 200 << 20
GOAL_MMAP = ((0.25, 4), (0.5, 2))
IDLE_CPU_SECONDS = 1.0  # more than this between requests means that a worker does not rest


def read_stats(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def _note(lane, row):
    notes = []
    if lane.ended:
        notes.append(lane.ended)
    if lane.variant == variants.SWAPNET and not lane.ended:
        stats = row["stats"]
        notes.append(stats.get("fetch_path", "") if stats else "no statistics: swapnet was off")
    if lane.idle_cpu_seconds > IDLE_CPU_SECONDS:
        notes.append(f"{lane.idle_cpu_seconds:.1f} s CPU while idle")
    if lane.variant not in (variants.PLAIN, variants.BESIDE) and not lane.worker.group.limited:
        notes.append("no limit")
    return ", ".join(filter(None, notes))


def bound_seconds(beside_seconds, facts, budget, bandwidth):
    """max(beside, (e - r) / BW); None where there is no beside."""
    return beside_seconds and plan.limit_seconds(beside_seconds, facts, budget, bandwidth)


def row(lane, model, point, facts, budget, bandwidths, plain, stats_path, beside=None):
    """One line of the table. plain is the lane of the plain program in the same round-robin, beside that of the
    program that reads beside it, if there is one."""
    latency, plain_latency = lane.latency(), plain.latency()
    bandwidth = statistics.median(bandwidths)
    is_plain = lane is plain
    # The limits are those of PyTorch's own computation.
    limited = not is_plain and lane.variant not in variants.OF_NCNN and plain_latency
    beside_latency = beside.latency() if beside and limited else None
    bound = bound_seconds(beside_latency, facts, budget, bandwidth)
    peaks = lane.sampler.peaks(lane.worker.group)
    result = {
        "model": model, "point": plan.point_name(point), "variant": lane.variant,
        "weight_bytes": facts.weight_bytes, "streamable_bytes": facts.streamable_bytes,
        "activation_bytes": facts.activation_bytes, "base_bytes": facts.base_bytes,
        "budget_bytes": budget, "cgroup_limit_bytes": lane.worker.group.limit_bytes,
        "latencies_s": lane.latencies, "latency_s": latency,
        "ratio": latency / plain_latency if latency and plain_latency and not is_plain else None,
        "bandwidth": bandwidth, "bandwidths": bandwidths,
        "limit_s": plan.limit_seconds(plain_latency, facts, budget, bandwidth) if limited else None,
        "layered_limit_s": plan.layered_limit_seconds(plain_latency, facts, budget, bandwidth) if limited else None,
        "beside_s": beside_latency, "bound_s": bound,
        "of_bound": latency / bound if latency and bound and lane is not beside else None,
        "must_read_bytes": plan.missing(facts, budget),
        "read_per_pass": lane.read_bytes_per_pass(),
        "over_base_bytes": peaks["held"] - facts.base_bytes if peaks["held"] else None,
        "file_peak_bytes": peaks["file"], "usage_peak_bytes": lane.worker.group.usage_peak(),
        "same_bits": lane.same_bits(plain.hashes),
        "outputs": {index: sorted(hashes) for index, hashes in lane.hashes.items()},
        "deviation": lane.deviation, "ended": lane.ended,
        "idle_cpu_s": lane.idle_cpu_seconds,
        "stats": read_stats(stats_path) if lane.variant == variants.SWAPNET else None}
    # With the window that swapnet really had: what it has to read beside it.
    window = min((result["stats"] or {}).get("pool_bytes", 0), budget // 4)
    result["window_bytes"] = window
    result["window_limit_s"] = (plan.limit_seconds(plain_latency, facts, budget, bandwidth, window) if limited
                                else None)
    result["note"] = _note(lane, result)
    return result


def _mmap_goal(row):
    paid = 1 - row["must_read_bytes"] / row["streamable_bytes"]
    if row["weight_bytes"] > MMAP_BYTES:
        for point, goal in GOAL_MMAP:
            if paid <= point + 0.001:
                return goal
    return 1


def _swapnet_shortfalls(row, mmap_row):
    """The goals that one swapnet row misses."""
    if row["latency_s"] is None:
        yield f"no result ({row['note']})"
        return
    if not row["same_bits"]:
        yield "other bits than the plain program"
    if not row["must_read_bytes"]:
        if row["ratio"] > GOAL_FITS:
            yield f"{row['ratio']:.2f} times plain although it fits (goal {GOAL_FITS})"
    elif row["latency_s"] > GOAL_LIMIT * row["window_limit_s"]:
        yield (f"{row['latency_s'] / row['window_limit_s']:.2f} times the limit "
               f"(goal {GOAL_LIMIT}), {row['latency_s'] / row['layered_limit_s']:.2f} times what its layers allow")
    if mmap_row and mmap_row["latency_s"] and row["must_read_bytes"]:
        faster, goal = mmap_row["latency_s"] / row["latency_s"], _mmap_goal(row)
        if faster < goal:
            yield f"{faster:.2f} times as fast as memory-mapped weights (goal {goal})"
    allowed = row["must_read_bytes"] + row["window_bytes"]
    if row["read_per_pass"] > allowed:
        yield (f"{row['read_per_pass'] / plan.MIB:.0f} MiB read per pass "
               f"(at most {allowed / plan.MIB:.0f})")
    excess = (row["over_base_bytes"] or 0) - row["budget_bytes"] - plan.SLACK_BYTES
    if excess > 0:
        yield f"peak is {excess / plan.MIB:.0f} MiB over base + budget + 32 MiB"


def shortfalls(rows):
    """One line per missed goal of swapnet."""
    mmap_rows = {(row["model"], row["point"]): row for row in rows
                 if row["variant"] == variants.MMAP}
    return [f"{row['model']} at {row['point']}: {text}"
            for row in rows if row["variant"] == variants.SWAPNET
            for text in _swapnet_shortfalls(row, mmap_rows.get((row["model"], row["point"])))]
