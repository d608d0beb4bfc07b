/* shim/serve/kept_values.h - which values of a TorchScript graph are kept, that is belong to the model and not to the
 * request, and which nodes change what is.
 *
 * Internal to the serve backend. A model that changes what it keeps has a state: its steps must not be mixed with those
 * of other requests, nor its weights shared.
 */
#ifndef SWN_SHIM_SERVE_KEPT_VALUES_H
#define SWN_SHIM_SERVE_KEPT_VALUES_H

#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

namespace swn
{

/* What KeptValues::refuse_changes throws. */
struct HasState {
};

/* Whether it has no tensor in it, and nobody can change it. */
bool is_fixed(const c10::IValue &v);
/* Whether values of the type hold no tensor. */
bool is_scalar_type(const c10::TypePtr &type);
/* Whether the schema says all of what the operator writes to; and all that it hands on, but for returns_silently(). */
bool tells_aliases(const torch::jit::Operator &op);
/* Whether a node or a block in it may write to anything. */
bool may_write(const torch::jit::Node *n);
/* Whether a step of the node may run what the graph does not show: a method of an object, or Python's. */
bool calls_out(const torch::jit::Node *n);
/* What a node and the blocks in it read from outside. */
void read_from_outside(const torch::jit::Node *n, std::unordered_set<const torch::jit::Value *> &inside,
                       std::vector<torch::jit::Value *> &outside);

/* Looks at nodes in the order in which they run. */
class KeptValues
{
  public:
    /* A value that does not depend on the request; NULL: it does. */
    using Known = std::function<const c10::IValue *(const torch::jit::Value *)>;

    explicit KeptValues(Known known);

    /* Throws HasState for a node that changes what outlives the request. */
    void refuse_changes(torch::jit::Node *n);
    /* What the node makes is looked at now, so that no later question goes far back in a long graph. */
    void note(torch::jit::Node *n);
    /* `v` is `other`, by another name. */
    void is_like(const torch::jit::Value *v, const torch::jit::Value *other);

  private:
    bool is_kept(const torch::jit::Value *v);
    bool look(const torch::jit::Value *v);
    bool look_at_result(const torch::jit::Value *v);
    template <class Function> bool any_input(const torch::jit::Node *n, Function &&counts);
    bool any_outside(const torch::jit::Node *n);
    bool writes_silently(const torch::jit::Node *n, bool is_inside);

    Known known_;
    std::unordered_map<const torch::jit::Value *, bool> kept_;
};

} // namespace swn
#endif
