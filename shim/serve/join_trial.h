/* shim/serve/join_trial.h - whether a layer group gives requests that are joined the bits that each has alone.
 *
 * Internal to the serve backend. A trial runs while the engine has nothing else to do, on copies of requests that are
 * answered, and on numbers of its own: docs/design/serving.md says what it shows. It ends at the next step when a
 * message has come, and begins anew later.
 */
#ifndef SWN_SHIM_SERVE_JOIN_TRIAL_H
#define SWN_SHIM_SERVE_JOIN_TRIAL_H

#include "shim/serve/loaded_model.h"

namespace swn
{

/* Keeps a request's inputs for trials of its model, where some are still wanted and there is room. They are copied. */
void keep_for_trial(swn_model &model, const JoinShape &shape, const std::vector<at::Tensor> &inputs) noexcept;
void drop_kept(const std::vector<swn_model *> &models) noexcept;

/* Makes the next trial of a model, if there is one to make; models have turns. true: there is more to do, be it that
 * `is_wanted` said so. false: nothing is kept any more. */
bool try_joining(const std::vector<swn_model *> &models, int (*is_wanted)());

} // namespace swn
#endif
