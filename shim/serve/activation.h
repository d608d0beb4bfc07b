/* shim/serve/activation.h - a request on its way through a program.
 *
 * Internal to the serve backend.
 */
#ifndef SWN_SHIM_SERVE_ACTIVATION_H
#define SWN_SHIM_SERVE_ACTIVATION_H

#include <string>
#include <utility>
#include <vector>

#include "shim/serve/tape_program.h"

namespace swn
{

/* The first step of each layer group, and the number of steps at the end. */
using Groups = std::vector<size_t>;

/* The values of one request between two steps. The program and the groups outlive it. */
class Activation
{
  public:
    Activation(const Program &program, std::shared_ptr<const Groups> groups);

    void set_input(size_t index, c10::IValue v); /* each exactly once, before the first step */
    void run_group(size_t group, std::vector<uint64_t> *step_ns);
    size_t groups() const;
    size_t next_group() const;
    /* After the last group: dense tensors with their names. */
    std::vector<std::pair<std::string, at::Tensor>> &outputs();

  private:
    void run_step(const Step &step);
    void push(Ref r, bool move);
    void add_output(std::string name, const c10::IValue &v);

    const Program &program_;
    std::shared_ptr<const Groups> groups_;
    std::vector<c10::IValue> values_;
    torch::jit::Stack stack_;
    std::vector<std::pair<std::string, at::Tensor>> outputs_;
    size_t next_ = 0;
};

} // namespace swn
#endif
