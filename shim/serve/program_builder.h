/* shim/serve/program_builder.h - what both front ends do to make a program: values, constants, steps, liveness.
 *
 * Internal to the serve backend.
 */
#ifndef SWN_SHIM_SERVE_PROGRAM_BUILDER_H
#define SWN_SHIM_SERVE_PROGRAM_BUILDER_H

#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "shim/serve/tape_program.h"

namespace swn
{

class ProgramBuilder
{
  protected:
    ProgramBuilder();

    Ref constant(c10::IValue v);
    uint32_t value(swn_tape_kind kind);
    /* Appends a step that reads `in`; step.out are values that value() has numbered. */
    void append(Step step, const std::vector<Ref> &in);
    /* After the last step, with program_->result set: liveness tells what each step takes for good, and what it makes
     * for nothing. */
    void finish();
    void count_weight(const at::Tensor &t); /* a storage that several tensors share counts once */

    std::unique_ptr<Program> program_;

  private:
    uint64_t weights_first_read(const std::vector<Ref> &in);

    std::unordered_set<const void *> read_;
    std::unordered_set<const void *> counted_;
};

} // namespace swn
#endif
