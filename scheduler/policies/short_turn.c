/* scheduler/policies/short_turn.c - see short_turn.h. */
#include "scheduler/policies/short_turn.h"

/* How many requests the turn has room for. A time of 0 is not known: nothing is added. */
static uint32_t room_for(const struct swn_lane_state *state, const struct swn_lane_decision *decision)
{
    uint64_t each = state->models[decision->model].groups[decision->group].compute_ns;
    uint64_t most = each ? state->turn_ns / each : 0;

    if (state->batch_most && most > state->batch_most)
        most = state->batch_most;
    return most < SWN_LANE_REQUESTS ? (uint32_t)most : SWN_LANE_REQUESTS;
}

static void mark(uint64_t *bits, const uint32_t *numbers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        bits[numbers[i] / 64] |= UINT64_C(1) << numbers[i] % 64;
}

void swn_short_turn_fill(const struct swn_lane_view *view, struct swn_lane_decision *decision)
{
    const struct swn_lane_state *state = view->state;
    uint64_t taken[SWN_LANE_REQUESTS / 64 + 1] = {0};
    uint32_t most;

    if (!state->turn_ns || !decision->member_count)
        return;
    most = room_for(state, decision);
    if (decision->member_count >= most)
        return;
    mark(taken, decision->members, decision->member_count);
    mark(taken, decision->dropped, decision->dropped_count);
    for (uint32_t i = 0; i < view->n && decision->member_count < most; i++)
        if (state->requests[i].model == decision->model && state->requests[i].group == decision->group &&
            !(taken[i / 64] >> i % 64 & 1))
            decision->members[decision->member_count++] = i;
}
