/* shim/serve/shared_weights.h - weights with the same bytes are in memory once, whichever models have them.
 *
 * Internal to the serve backend. A model that is loaded takes over the tensors of models that are there where they have
 * the same bytes, and gives its own back. The checksums of the store that a weight is registered from tell whether
 * that is likely; only then both are read, once, and compared. Other weights are not read.
 */
#ifndef SWN_SHIM_SERVE_SHARED_WEIGHTS_H
#define SWN_SHIM_SERVE_SHARED_WEIGHTS_H

#include "shim/serve/tape_program.h"

extern "C" {
#include "skeleton/abi/serving.h"
}

namespace swn
{

/* What libswapnet offers; null: it is not there. */
const struct swn_serving_services *library();

/* Also forgets constants that no step reads: the module itself, whose tensors would stay otherwise. */
void share_weights(Program &program);

/* What a step is about to write to is no tensor of `weights`, nor has one in it: requests share those. Throws. */
void require_no_weight(const c10::IValue &written, const Storages &weights);

} // namespace swn
#endif
