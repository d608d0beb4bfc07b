/* shim/serve/layer_groups.h - a program's division into layer groups, and the weights that each group reads.
 *
 * Internal to the serve backend. Constant once it is made; requests that are on their way keep the one they began with.
 */
#ifndef SWN_SHIM_SERVE_LAYER_GROUPS_H
#define SWN_SHIM_SERVE_LAYER_GROUPS_H

#include <cstdint>
#include <memory>
#include <vector>

#include "shim/serve/tape_program.h"

extern "C" {
#include "skeleton/abi/serving.h"
}

namespace swn
{

struct LayerGroup {
    size_t first, end; /* steps: one behind the last is `end` */
    /* Each once, in the order in which steps first read them. */
    std::vector<swn_serving_weight> weights;
    uint64_t identity;        /* equal where two models do the same in this group and in all before it */
    uint64_t dense_bytes = 0; /* of the weights: those that dense layers read */
};

using Groups = std::vector<LayerGroup>;

/* Steps up to `end` that are divided into at most `most` groups, by what each step costs in any unit; null: by weight
 * bytes. */
struct Part {
    size_t end, most;
    const uint64_t *cost;
};

/* Parts one after the other, the last of which ends the program. A group with more weight bytes than `largest` is
 * divided further, as far as there are cuts and the groups do not become too many. numbers: of number_steps. At least
 * one group. */
std::shared_ptr<const Groups> make_groups(const Program &program, const std::vector<Part> &parts, uint64_t largest,
                                          const std::vector<uint64_t> &numbers);

} // namespace swn
#endif
