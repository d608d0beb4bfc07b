/* shim/hooks/serving_services.c - the table that swapnet-engine finds in libswapnet.so: skeleton/abi/serving.h. */
#include "skeleton/core/serving.h"
#include "skeleton/engine/engine.h"
#include "skeleton/load/load.h"

static int set_budget(uint64_t bytes, unsigned wait_ms, uint64_t *least_bytes)
{
    struct swn_budget_change change;
    int rc = swn_engine_set_budget(bytes, wait_ms, &change);

    *least_bytes = change.minimum_bytes;
    return rc;
}

__attribute__((visibility("default"))) const struct swn_serving_services swn_serving_services = {
    .abi = SWN_SERVING_ABI,
    .missing = swn_serving_missing,
    .progress = swn_serving_progress,
    .tensors = swn_serving_tensors,
    .set_budget = set_budget,
    .announce = swn_serving_announce,
    .budget = swn_serving_budget,
    .content = swn_load_content,
    .same = swn_load_same,
};
