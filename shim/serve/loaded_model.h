/* shim/serve/loaded_model.h - the models of the process, and how what they have in common divides them into layer
 * groups.
 *
 * Internal to the serve backend. Models that begin with the same steps have the same layer groups there, so that
 * requests of all of them can run one after the other while a group's weights are in memory.
 */
#ifndef SWN_SHIM_SERVE_LOADED_MODEL_H
#define SWN_SHIM_SERVE_LOADED_MODEL_H

#include <memory>
#include <vector>

#include "shim/serve/common_steps.h"
#include "shim/serve/joining.h"
#include "shim/serve/layer_groups.h"
#include "shim/serve/step_needs.h"
#include "shim/serve/tape_program.h"

struct swn_model {
    std::unique_ptr<swn::Program> program;
    swn::NumberedSteps steps;
    std::shared_ptr<const swn::Groups> groups;
    size_t told_groups = 0;      /* into how many it is to be divided, whatever others have; 0: nobody has said */
    unsigned requests = 0;       /* begun; one after the first is timed, as that waits for the disk */
    std::vector<uint64_t> times; /* of that one's steps; empty until then */
    swn::StepNeeds needs;
    swn::Joining joining;
};

namespace swn
{

const std::vector<swn_model *> &all_models();

/* The program is there: shares its weights with those of other models, and divides it, and them anew. */
void add_model(swn_model &model);
void remove_model(swn_model &model);
/* Its times are there: divides it anew, and those that have steps in common with it. */
void divide(swn_model &model);

} // namespace swn
#endif
