/* shim/serve/common_steps.h - which steps models begin with alike, so that requests of all of them can run these at
 * once.
 *
 * Internal to the serve backend. Steps are alike if they do the same with the same weights (shared_weights.h). That
 * only decides which requests run one after the other while weights are in memory: each runs its own model's steps.
 */
#ifndef SWN_SHIM_SERVE_COMMON_STEPS_H
#define SWN_SHIM_SERVE_COMMON_STEPS_H

#include <cstdint>
#include <string>
#include <vector>

#include "shim/serve/tape_program.h"

namespace swn
{

struct NumberedSteps {
    std::vector<std::string> texts; /* what each step does */
    /* For each step a number that stands for it and all before it: equal where two models begin alike. Never 0. */
    std::vector<uint64_t> numbers;
};

NumberedSteps number_steps(const Program &program, const std::vector<const NumberedSteps *> &others);

/* How many steps the two begin with alike, up to a place where both can be cut or end; 0 where these have no weights
 * that are worth it. */
size_t common_steps(const Program &a, const NumberedSteps &steps_a, const Program &b, const NumberedSteps &steps_b);

} // namespace swn
#endif
