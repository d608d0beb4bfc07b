// shim/serve/layer_groups.cpp - see layer_groups.h.
#include "shim/serve/layer_groups.h"

#include <algorithm>
#include <string>
#include <unordered_set>

#include <ATen/core/Tensor.h>

namespace swn
{
namespace
{

/* Of a part. More are a burden to plan, and to tell. */
constexpr size_t kGroupsMost = 16;

class Weights
{
  public:
    explicit Weights(std::vector<swn_serving_weight> &weights) : weights_(weights)
    {
    }

    /* Tensors of lists, too: the weights of an LSTM. */
    void add(const c10::IValue &v)
    {
        if (v.isTensor())
            add_tensor(v.toTensor());
        else if (v.isTensorList())
            for (const at::Tensor &t : v.toTensorVector())
                add_tensor(t);
    }

  private:
    void add_tensor(const at::Tensor &t)
    {
        if (!t.defined() || !t.has_storage() || !t.device().is_cpu() || t.storage().nbytes() == 0)
            return;
        auto address = reinterpret_cast<uintptr_t>(t.storage().data());
        if (seen_.insert(address).second)
            weights_.push_back({address, t.storage().nbytes(), 0});
    }

    std::vector<swn_serving_weight> &weights_;
    std::unordered_set<uintptr_t> seen_;
};

/* Products with a whole matrix. */
bool is_dense(const Step &step)
{
    static const std::unordered_set<std::string> names = {"aten::linear", "aten::addmm",  "aten::matmul",
                                                          "aten::mm",     "aten::addmv",  "aten::mv",
                                                          "aten::bmm",    "aten::baddbmm"};

    return step.kind == Step::kOperator && names.count(step.name) > 0;
}

using Firsts = std::vector<size_t>;

void append(Firsts &to, const Program &program, const uint64_t *cost, size_t begin, size_t end, size_t most)
{
    Firsts own(most);
    own.resize(swn_tape_groups_between(program.tape.get(), cost, begin, end, most, own.data()));
    to.insert(to.end(), own.begin(), own.end());
}

/* The first steps of a part's groups. What the part alone decides is the same for all models that have it. */
Firsts divided(const Program &program, const Part &part, size_t begin, uint64_t largest)
{
    Firsts first, smaller;
    append(first, program, part.cost, begin, part.end, part.most);
    do {
        smaller.clear();
        for (size_t g = 0; g < first.size(); g++) {
            size_t end = g + 1 < first.size() ? first[g + 1] : part.end;
            uint64_t bytes = swn_tape_weight_bytes(program.tape.get(), first[g], end);
            size_t most = std::min<size_t>(bytes / largest + 1, kGroupsMost);
            append(smaller, program, nullptr, first[g], end, most);
        }
        largest = largest < UINT64_MAX / 2 ? 2 * largest : UINT64_MAX;
    } while (smaller.size() > kGroupsMost && smaller.size() > first.size());
    return smaller;
}

} // namespace

std::shared_ptr<const Groups> make_groups(const Program &program, const std::vector<Part> &parts, uint64_t largest,
                                          const std::vector<uint64_t> &numbers)
{
    Firsts first;
    size_t begin = 0;
    for (const Part &part : parts) {
        Firsts own = divided(program, part, begin, largest);
        first.insert(first.end(), own.begin(), own.end());
        begin = part.end;
    }
    if (first.empty())
        first.push_back(0); // a model that returns its input has no steps, and a group all the same
    first.push_back(program.steps.size());
    auto groups = std::make_shared<Groups>(first.size() - 1);
    for (size_t g = 0; g < groups->size(); g++) {
        LayerGroup &group = (*groups)[g];
        group.first = first[g];
        group.end = first[g + 1];
        group.identity = group.end > 0 ? numbers[group.end - 1] : 0;
        Weights weights(group.weights);
        for (size_t s = group.first; s < group.end; s++) {
            size_t before = group.weights.size();
            for (Ref r : program.steps[s].in)
                if (r < 0)
                    weights.add(program.constants[static_cast<size_t>(~r)]);
            for (size_t w = before; is_dense(program.steps[s]) && w < group.weights.size(); w++)
                group.dense_bytes += group.weights[w].bytes;
        }
    }
    return groups;
}

} // namespace swn
