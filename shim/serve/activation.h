/* shim/serve/activation.h - a request on its way through a program.
 *
 * Internal to the serve backend.
 */
#ifndef SWN_SHIM_SERVE_ACTIVATION_H
#define SWN_SHIM_SERVE_ACTIVATION_H

#include <string>
#include <utility>
#include <vector>

#include "shim/serve/layer_groups.h"
#include "shim/serve/step_needs.h"
#include "shim/serve/tape_program.h"

namespace swn
{

/* Looks at each step of a group: what is on the stack before it runs, and which values it has made. May throw, which
 * ends the group. */
class StepWatch
{
  public:
    virtual ~StepWatch() = default;
    virtual void before(const Step &step, const torch::jit::Stack &stack) = 0;
    virtual void after(const Step &step, const std::vector<c10::IValue> &values) = 0;
};

/* The values of one request between two steps. The program, the groups and the needs outlive it. */
class Activation
{
  public:
    /* A value that is alive, by its number. */
    using Live = std::vector<std::pair<uint32_t, c10::IValue>>;

    Activation(const Program &program, std::shared_ptr<const Groups> groups, StepNeeds &needs);

    Meter &meter();

    void set_input(size_t index, c10::IValue v); /* each exactly once, before the first step */
    void run_group(size_t group, std::vector<uint64_t> *step_ns, StepWatch *watch = nullptr);
    const Program &program() const;
    const Groups &groups() const;
    const std::shared_ptr<const Groups> &division() const;
    size_t next_group() const;
    /* What the groups from the next one on can read. Inputs that nothing reads are not among them. */
    Live live() const;
    /* The groups before `group` have run somewhere else, and have left these values. */
    void go_on(size_t group, Live live) noexcept;
    /* All groups have, and these are the outputs. */
    void end(std::vector<std::pair<std::string, at::Tensor>> outputs) noexcept;
    /* After the last group: dense tensors with their names. */
    std::vector<std::pair<std::string, at::Tensor>> &outputs();

  private:
    void run_step(const Step &step, StepWatch *watch);
    void push(Ref r, bool move);
    void add_output(std::string name, const c10::IValue &v);

    const Program &program_;
    std::shared_ptr<const Groups> groups_;
    std::vector<c10::IValue> values_;
    torch::jit::Stack stack_;
    std::vector<std::pair<std::string, at::Tensor>> outputs_;
    size_t next_ = 0;
    Meter meter_;
};

} // namespace swn
#endif
