// shim/serve/shared_weights.cpp - see shared_weights.h.
#include "shim/serve/shared_weights.h"

#include <cstring>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include <dlfcn.h>

#include <ATen/core/Tensor.h>

namespace swn
{
namespace
{

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

/* Without a store these are looked at: biases, the numbers of a batch norm. */
constexpr size_t kSmall = 64 << 10;

void add(std::string &key, const void *bytes, size_t count)
{
    key.append(static_cast<const char *>(bytes), count);
}

/* What tensors must have in common to be one; nothing: it cannot be told without reading it. */
std::optional<std::string> key_of(const at::Tensor &t)
{
    if (!t.defined() || !t.device().is_cpu() || t.layout() != c10::kStrided || !t.has_storage() || t.is_quantized() ||
        t.is_conj() || t.is_neg() || t.numel() == 0)
        return {};
    const size_t bytes = t.storage().nbytes();
    const void *data = t.storage().data();
    // Where a gradient could be asked for, PyTorch takes other ways to the same numbers, and other bits.
    const int64_t facts[] = {static_cast<int64_t>(t.scalar_type()), t.dim(), t.storage_offset(),
                             static_cast<int64_t>(bytes), t.requires_grad()};
    uint64_t content[SWN_SERVING_CONTENT];
    std::string key;
    add(key, facts, sizeof facts);
    add(key, t.sizes().data(), t.sizes().size() * sizeof(int64_t));
    add(key, t.strides().data(), t.strides().size() * sizeof(int64_t));
    if (library() && library()->content(reinterpret_cast<uintptr_t>(data), bytes, content))
        add(key, content, sizeof content);
    else if (bytes <= kSmall)
        add(key, data, bytes);
    else
        return {};
    return key;
}

/* Tensors of all models that are there. One thread loads models. */
std::unordered_map<std::string, WeakTensor> &tensors()
{
    static std::unordered_map<std::string, WeakTensor> all;
    return all;
}

/* Keys with checksums only suggest it. */
bool have_same_bytes(const at::Tensor &a, const at::Tensor &b)
{
    const size_t bytes = a.storage().nbytes();
    const void *data[] = {a.storage().data(), b.storage().data()};
    if (data[0] == data[1])
        return true;
    if (bytes <= kSmall)
        return memcmp(data[0], data[1], bytes) == 0;
    return library() &&
           library()->same(reinterpret_cast<uintptr_t>(data[0]), reinterpret_cast<uintptr_t>(data[1]), bytes);
}

/* The tensor that is there already, or this one from now on. */
at::Tensor one_of_all(const at::Tensor &t)
{
    auto key = key_of(t);
    if (!key)
        return t;
    auto [found, is_new] = tensors().try_emplace(std::move(*key), t.getIntrusivePtr());
    if (is_new)
        return t;
    auto there = found->second.lock();
    if (there.defined()) {
        at::Tensor other(std::move(there));
        return have_same_bytes(t, other) ? other : t;
    }
    found->second = WeakTensor(t.getIntrusivePtr());
    return t;
}

void forget_those_that_are_gone()
{
    auto &all = tensors();
    for (auto at = all.begin(); at != all.end();)
        at = at->second.expired() ? all.erase(at) : std::next(at);
}

/* Steps that write look there: not at the storages that have gone, whose addresses activations get. */
void note_storages(const std::vector<c10::IValue> &constants, Storages &storages)
{
    storages.clear();
    for (const c10::IValue &constant : constants)
        constant.visit([&](const c10::IValue &v) {
            if (v.isTensor() && v.toTensor().defined() && v.toTensor().has_storage())
                storages.insert(v.toTensor().storage().unsafeGetStorageImpl());
            return false;
        });
}

} // namespace

const struct swn_serving_services *library()
{
    static const auto *found =
        static_cast<const struct swn_serving_services *>(dlsym(RTLD_DEFAULT, SWN_SERVING_SYMBOL));
    return found && found->abi == SWN_SERVING_ABI ? found : nullptr;
}

void share_weights(Program &program)
{
    std::vector<bool> is_read(program.constants.size());
    auto read = [&](Ref r) {
        if (r < 0)
            is_read[static_cast<size_t>(~r)] = true;
    };
    for (const Step &step : program.steps)
        for (Ref r : step.in)
            read(r);
    read(program.result);
    forget_those_that_are_gone();
    for (size_t i = 0; i < program.constants.size(); i++) {
        c10::IValue &v = program.constants[i];
        if (!is_read[i])
            v = c10::IValue();
        else if (v.isTensor() && !program.has_state) // it may write to its tensors
            v = one_of_all(v.toTensor());
    }
    note_storages(program.constants, *program.storages);
}

void require_no_weight(const c10::IValue &written, const Storages &weights)
{
    written.visit([&](const c10::IValue &v) {
        if (v.isTensor() && v.toTensor().defined() && v.toTensor().has_storage() &&
            weights.count(v.toTensor().storage().unsafeGetStorageImpl()))
            throw std::runtime_error("the program changes a weight");
        return false;
    });
}

} // namespace swn
