// The torch backend, which knows tensors. Built once per PyTorch version, always with NDEBUG (RecordFunction's layout
// depends on it). It watches operators, names the storages that each outermost one reads and writes, and leaves
// everything else to the runtime through skeleton/abi/abi.h.
#include <ATen/ATen.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/Version.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <pthread.h>
#include <torch/library.h>
#include <torch/version.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "shim/torch/device_swap.h"
#include "shim/torch/kernel_random.h"
#include "shim/torch/flops.h"
#include "shim/torch/dispatch_check.h"
#include "shim/torch/kernel_index.h"
#include "shim/torch/math_settings.h"
#include "shim/torch/op_experts.h"
#include "shim/torch/op_rules.h"
#include "shim/torch/tensor_checks.h"
#include "shim/torch/slices.h"
#include "shim/torch/trials.h"
#include "shim/torch/unified.h"
#include "shim/torch/result_watch.h"
#include "shim/torch/fp_control.h"
#include "skeleton/abi/abi.h"
#include "shim/torch/services.h"
#include "shim/torch/compat.h"
#include "shim/torch/per_thread.h"
#include "shim/torch/catch_all.h"

const swn_runtime_services *swn_services;

namespace
{

swn_runtime_services given; // a copy of the library's

struct Operator {
    std::string name;
    bool transparent = false;         // not an operator of PyTorch's own, or metadata only
    bool whole_copy = false;          // aten::copy_
    bool foreign = false;             // not PyTorch's own: its schema need not be true
    bool schema_unreliable = false;   // nor need this schema be, as the operator writes running statistics
    bool tells = false;               // its rule tells weights from inputs
    bool lets_go = false;             // keeps nothing that it is lent on a device
    bool to_copy = false;             // aten::_to_copy
    bool compares = false;            // aten::equal
    bool fills = false;               // zero_, fill_, normal_, uniform_: overwrites its argument and reads nothing
    bool announced_by_kernel = false; // copy_, normal_, uniform_: announced when PyTorch has nothing left to refuse
    swn_kernels kernels;              // the fields above hold only while these are PyTorch's
    size_t arguments = 0;             // of its schema
    std::array<signed char, 32> use;  // swn_use per argument
    swn_flops_kind flops = SWN_FLOPS_NONE;
};

// Operators with kernels of swapnet's. These call the kernel that they replace by its name in at::cpu or at::native, so
// they replace PyTorch's own only.
constexpr const char *with_kernels[][2] = {
    {"aten::copy_", ""},          {"aten::addmm", ""},
    {"aten::addmm", "out"},       {"aten::mm", ""},
    {"aten::mm", "out"},          {"aten::_addmm_activation", ""},
    {"aten::addmv", ""},          {"aten::mv", ""},
    {"aten::baddbmm", ""},        {"aten::bmm", ""},
    {"aten::convolution", ""},    {"aten::index_select", ""},
    {"aten::index", "Tensor"},    {"aten::gather", ""},
    {"aten::_embedding_bag", ""}, {"aten::_embedding_bag_forward_only", ""},
    {"aten::normal_", ""},        {"aten::uniform_", ""},
};

bool ours_registered = false; // set before the hook is installed, or never

bool any_kernel_replaced()
{
    for (auto &name : with_kernels) {
        auto handle = c10::Dispatcher::singleton().findSchema({name[0], name[1]});
        swn_kernels kernels;
        if (handle)
            kernels.look_at(*handle);
        if (!kernels.own_are_pytorchs())
            return true;
    }
    return false;
}

std::mutex operators_lock;
std::unordered_map<const char *, Operator *> operators; // by the schema's own name string; never removed

// Whether all results of the operator are views of its inputs, and it writes nothing.
bool views(const c10::FunctionSchema &schema)
{
    for (const c10::Argument &argument : schema.arguments())
        if (argument.alias_info() && argument.alias_info()->isWrite())
            return false;
    for (const c10::Argument &result : schema.returns())
        if (!result.alias_info() || result.alias_info()->isWrite())
            return false;
    return !schema.returns().empty();
}

swn_use use_of(const swn_rule *rule, size_t length, size_t i)
{
    // The last letter of a rule holds for all arguments that follow.
    switch (length ? rule->uses[std::min(i, length - 1)] : 'w') {
    case 'i':
        return SWN_USE_INPUT;
    case 'r':
        return SWN_USE_ROWS;
    case 'p':
        return SWN_USE_EXPERTS;
    default:
        return SWN_USE_WEIGHT;
    }
}

Operator *describe(const at::RecordFunction &fn)
{
    auto name = fn.operator_name();
    if (!name)
        return nullptr;
    auto handle = c10::Dispatcher::singleton().findSchema(*name);
    if (!handle)
        return nullptr;
    auto *op = new Operator;
    op->name = name->name;
    op->use.fill(SWN_USE_WEIGHT);
    const swn_rule *rule = swn_rule_find((op->name + "." + name->overload_name).c_str());
    rule = rule ? rule : swn_rule_find(op->name.c_str());
    op->tells = rule && std::strpbrk(rule->uses, "wrp");
    op->foreign = op->name.compare(0, 6, "aten::") != 0;
    op->schema_unreliable =
        op->name.find("batch_norm") != std::string::npos || op->name.find("instance_norm") != std::string::npos;
    op->lets_go = swn_lets_go(op->name.c_str());
    op->transparent = op->foreign || (rule && rule->uses[0] == 'm') || views(handle->schema());
    op->to_copy = op->name == "aten::_to_copy";
    op->compares = op->name == "aten::equal";
    op->whole_copy = op->name == "aten::copy_";
    op->announced_by_kernel = op->whole_copy || op->name == "aten::normal_" || op->name == "aten::uniform_";
    op->fills = op->name == "aten::zero_" || op->name == "aten::normal_" || op->name == "aten::uniform_" ||
                (op->name == "aten::fill_" && name->overload_name == "Scalar");
    if (swn_services->device.type)
        op->kernels.look_at(*handle);
    op->flops = swn_flops_kind_find(op->name.c_str());
    const auto &args = handle->schema().arguments();
    op->arguments = args.size();
    size_t length = rule ? std::strlen(rule->uses) : 0;
    for (size_t i = 0; i < args.size() && i < op->use.size(); i++)
        op->use[i] = args[i].alias_info() && args[i].alias_info()->isWrite() ? SWN_USE_WRITE : use_of(rule, length, i);
    return op;
}

struct Known {
    const char *key;
    Operator *op;
};

// The state of one thread's running operator.
struct Thread {
    unsigned depth = 0;     // operators entered
    bool open = false;      // the outermost one has been announced
    bool tells = false;     // its rule tells weights from inputs
    bool shown = false;     // the code of a tensor subclass or a transform among the inputs sees the operator
    bool keeps = false;     // it may keep what it reads on a device
    bool lent = false;      // it has been lent weights on a device
    bool fetches = false;   // it copies from a device to the processor, which has the bytes of all weights
    uint64_t flops = 0;     // of operators that were not announced, since the last announced one
    swn_small small{};      // likewise
    swn_op_experts experts; // of a weight, which it reads by operators within it
    const at::TensorImpl *waiting = nullptr; // the target of a copy_ whose kernel is to announce it
    swn_op op;
    std::array<Known, 1024> known{};
};

Thread &self()
{
    return swn_per_thread<Thread>::get();
}

// nullptr: not an operator with a schema (profiler ranges, backward nodes, compiled regions): transparent.
Operator *operator_of(Thread &t, const at::RecordFunction &fn)
{
    const char *name = fn.name();
    auto object = reinterpret_cast<const char *>(&fn);
    if (name >= object && name < object + sizeof fn)
        return nullptr; // a short string inside the record itself: its address means nothing
    Known &slot = t.known[(reinterpret_cast<uintptr_t>(name) >> 4) % t.known.size()];
    if (slot.key == name && slot.op->name == name)
        return slot.op;
    std::lock_guard<std::mutex> guard(operators_lock);
    auto found = operators.find(name);
    Operator *op = found != operators.end() && found->second->name == name ? found->second : nullptr;
    if (!op) {
        op = describe(fn);
        if (!op)
            return nullptr;
        operators[name] = op;
    }
    slot = {name, op};
    return op;
}

// Whether the program's own code runs inside this thread's operators: dispatch modes, function transforms, and hooks
// that see what is saved for the backward pass.
bool python_may_run()
{
    auto included = c10::impl::tls_local_dispatch_key_set().included_;
    return included.has(c10::DispatchKey::Python) || included.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode) ||
           !at::SavedTensorDefaultHooks::get_tls_state().stack.empty();
}

bool plain(const at::Tensor &tensor)
{
    return swn_has_own_storage(tensor) && tensor.is_cpu();
}

constexpr size_t untracked_least = 65536; // smaller tensors are not the engine's either

// Whether the storage may lie in a file that PyTorch mapped.
bool mapped(uintptr_t data, size_t bytes)
{
    return data < __atomic_load_n(&swn_services->mapped[1], __ATOMIC_ACQUIRE) &&
           data + bytes > __atomic_load_n(&swn_services->mapped[0], __ATOMIC_ACQUIRE);
}

// Adds host bytes that a device tensor shares, and the device reads in place.
void add_shared(Thread &t, const at::Tensor &tensor, swn_use use)
{
    size_t bytes = 0;
    uintptr_t data = swn_devswap_use(tensor, t.keeps && use < SWN_USE_WRITE, t.op.name, !t.fetches, &bytes);
    if (!data || t.op.n == SWN_OP_ARGS)
        return;
    swn_arg &arg = t.op.args[t.op.n++];
    arg.mapped = 1;
    arg.data = data;
    arg.bytes = bytes;
    arg.from = 0;
    arg.upto = arg.bytes;
    arg.use = use;
}

// From the tensor's first element to the end of its last; 0: it has none.
size_t extent(const at::Tensor &tensor)
{
    uint64_t last = 0;
    for (int64_t i = 0; i < tensor.dim(); i++) {
        if (tensor.size(i) == 0)
            return 0;
        last += static_cast<uint64_t>((tensor.size(i) - 1) * tensor.stride(i));
    }
    return (last + 1) * tensor.itemsize();
}

// Whether a transform wraps the tensor whose code calls operators again, on the tensor within.
bool called_again(const at::Tensor &tensor)
{
    return tensor.key_set().has_any(c10::DispatchKeySet(
        {c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Functionalize}));
}

void add(Thread &t, const at::Tensor &tensor, swn_use use)
{
    t.shown |= called_again(tensor);
    t.shown |= tensor.key_set().has(c10::DispatchKey::Python) &&
               !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Python);
    if (!plain(tensor)) {
        if (swn_unified_active())
            add_shared(t, tensor, use);
        return;
    }
    if (t.op.n == SWN_OP_ARGS)
        return;
    c10::StorageImpl *storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
    if (!storage)
        return;
    auto data = reinterpret_cast<uintptr_t>(std::as_const(*storage).data_ptr().get());
    swn_arg &arg = t.op.args[t.op.n];
    // Nested tensors have no strides, and may lie anywhere in their storage.
    bool nested = tensor.is_nested();
    size_t bytes = nested ? 0 : extent(tensor),
           first = static_cast<size_t>(tensor.storage_offset()) * tensor.itemsize();
    if (data >= swn_services->lo && data < swn_services->hi) {
        arg.mapped = 0;
        arg.data = data;
        arg.bytes = storage->nbytes();
        arg.from = first;
    } else if (t.tells && (use == SWN_USE_WEIGHT || use == SWN_USE_EXPERTS) && storage->nbytes() >= untracked_least &&
               !mapped(data, storage->nbytes())) {
        arg.mapped = 1; // by no file that the engine knows, which counts it
        arg.data = data;
        arg.bytes = bytes = storage->nbytes();
        arg.from = 0;
    } else if (mapped(data, storage->nbytes()) && bytes) {
        // many tensors share the storage: only this one's bytes count
        arg.mapped = 1;
        arg.data = data + first;
        arg.bytes = bytes;
        arg.from = 0;
    } else {
        return;
    }
    arg.upto = nested ? arg.bytes : arg.from + bytes;
    arg.use = use;
    t.op.n++;
}

void add_value(Thread &t, const c10::IValue &value, swn_use use)
{
    if (value.isTensor()) {
        add(t, value.toTensor(), use);
    } else if (value.isTensorList()) {
        for (const at::Tensor &tensor : value.toTensorVector())
            add(t, tensor, use);
    } else if (value.isList()) {
        // By copy: a ListRef's element proxies have different types in different versions.
        const c10::List<c10::IValue> list = value.toList();
        for (size_t i = 0; i < list.size(); i++) {
            c10::IValue element = list.get(i);
            if (element.isTensor())
                add(t, element.toTensor(), use);
            else if (!element.isNone()) // TorchScript leaves the index out
                break;
        }
    }
}

void detach_value(const c10::IValue &value, bool keep)
{
    if (value.isTensor()) {
        swn_unified_detach(value.toTensor(), keep);
    } else if (value.isTensorList()) {
        for (const at::Tensor &tensor : value.toTensorVector())
            swn_unified_detach(tensor, keep);
    } else if (value.isList()) {
        const c10::List<c10::IValue> list = value.toList();
        for (size_t i = 0; i < list.size(); i++)
            detach_value(list.get(i), keep);
    }
}

void announce(Thread &t)
{
    t.op.flops_before = t.flops;
    t.op.small_before = t.small;
    t.flops = 0;
    t.small = {};
    swn_services->op_begin(&t.op);
    t.open = true;
    t.experts.begin(t.op);
}

// Whether source has the same elements in the same order as self, and fills its storage or lies in a mapped file: then
// self.copy_(source) only copies bytes, unless it is refused.
bool same_bytes(const at::Tensor &self, const at::Tensor &source)
{
    auto data = reinterpret_cast<uintptr_t>(source.storage().data_ptr().get());
    bool whole = source.storage_offset() == 0 && source.nbytes() == source.storage().nbytes();
    return self.scalar_type() == source.scalar_type() && self.is_contiguous() && source.is_contiguous() &&
           self.sizes() == source.sizes() && (whole || mapped(data, source.storage().nbytes())) && !source.is_conj() &&
           !source.is_neg() && !self.is_conj() && !self.is_neg();
}

// Whether PyTorch has a copy for the type, as not all types have one.
bool copies(at::ScalarType type)
{
    // By type: 1 yes, -1 no, 0 not tried. Without a lock, which a fork could leave locked in the child; two threads may
    // try at once, and find the same.
    static std::atomic<signed char> shown[static_cast<size_t>(at::ScalarType::NumOptions)];
    auto &known = shown[static_cast<size_t>(type)];
    if (!known) {
        try {
            at::Tensor to = at::empty({1}, type), from = at::empty({1}, type);
            at::native::copy_(to, from, false);
            known = 1;
        } catch (const c10::Error &) {
            known = -1;
        }
    }
    return known > 0;
}

// Whether both hold memory of one storage, or of two over the same memory, as tensors have that numpy made from
// another's array.
bool share_memory(const at::Tensor &self, const at::Tensor &source)
{
    auto to = reinterpret_cast<uintptr_t>(self.storage().data_ptr().get());
    auto from = reinterpret_cast<uintptr_t>(source.storage().data_ptr().get());
    return source.is_alias_of(self) || (from < to + self.storage().nbytes() && to < from + source.storage().nbytes());
}

// Whether at::native::copy_ cannot refuse a copy of the same bytes. The checks before it have been made.
bool never_refused(const at::Tensor &self, const at::Tensor &source)
{
    for (const at::Tensor *tensor : {&self, &source})
        if (!plain(*tensor) || tensor->layout() != at::kStrided || tensor->is_quantized() || swn_named(*tensor, 0) ||
            tensor->_is_zerotensor() || tensor->unsafeGetTensorImpl()->is_wrapped_number())
            return false;
    return !share_memory(self, source) && same_bytes(self, source) && copies(self.scalar_type());
}

// Whether the tensor is the operator's argument i, where that lay when the operator began. Code of the program's may
// run between an operator and its kernel (dispatch modes, kernels that were registered late), and may give the kernel
// other tensors, or the same tensor other memory.
bool is_argument(const swn_op &op, unsigned i, const at::Tensor &tensor)
{
    if (i >= op.n || !plain(tensor))
        return false;
    const swn_arg &arg = op.args[i];
    auto data = reinterpret_cast<uintptr_t>(tensor.storage().data_ptr().get());
    size_t first = static_cast<size_t>(tensor.storage_offset()) * tensor.itemsize();
    return arg.mapped ? arg.data == data + first && arg.bytes == extent(tensor)
                      : arg.data == data && arg.bytes == tensor.storage().nbytes() && arg.from == first;
}

// Announces copies to a tensor that is overwritten, before PyTorch's own kernel: the checks before that have been made.
// The engine may do a copy of the same bytes by mapping them.
at::Tensor &copy_kernel(at::Tensor &self, const at::Tensor &source, bool non_blocking)
{
    Thread &t = ::self();
    if (!t.waiting || t.waiting != self.unsafeGetTensorImpl())
        return at::native::copy_(self, source, non_blocking);
    t.op.copies =
        t.op.n == 2 && is_argument(t.op, 0, self) && is_argument(t.op, 1, source) && never_refused(self, source);
    swn_announce(self);
    if (t.op.skip)
        return self;
    if (!t.op.asks || share_memory(self, source))
        return at::native::copy_(self, source, non_blocking);
    swn_make_afresh(self, [&](at::Tensor &to) { at::native::copy_(to, source, non_blocking); });
    return self;
}

using Inputs = c10::ArrayRef<const c10::IValue>;

// Who calls an operator with a stack (the gradient transforms, TorchScript) may have values of others below its
// arguments.
Inputs arguments_of(const Operator &op, const at::RecordFunction &fn)
{
    Inputs all = fn.inputs();
    return all.size() > op.arguments ? all.slice(all.size() - op.arguments) : all;
}

// Whether who overwrites the tensor writes all of its storage. What is copied on write is written elsewhere, and the
// bytes at its address stay another tensor's.
bool is_all_of_its_storage(const at::Tensor &tensor)
{
    return tensor.is_contiguous() && tensor.storage_offset() == 0 && tensor.nbytes() == tensor.storage().nbytes() &&
           !swn_copied_on_write(tensor.storage());
}

// Whether the operator overwrites all of a CPU tensor's storage, unless it is refused.
bool overwrites(const Operator &op, Inputs inputs)
{
    if (!(op.whole_copy || op.fills) || !inputs[0].isTensor() || !plain(inputs[0].toTensor()))
        return false;
    return is_all_of_its_storage(inputs[0].toTensor());
}

// Whether the operator's kernel, which comes before PyTorch's own, is to announce it.
bool waits(const Operator &op, const Thread &t, Inputs inputs)
{
    return op.announced_by_kernel && ours_registered && t.op.args[0].use == SWN_USE_OVERWRITE && !t.op.args[0].mapped &&
           (!op.whole_copy || (inputs.size() > 1 && inputs[1].isTensor() && plain(inputs[1].toTensor())));
}

// On a device, memory that comes and goes is lent by address, only to operators that do not keep it, where no code of
// the program sees the address.
bool keeps(Operator &op)
{
    return swn_services->device.type &&
           (!op.lets_go || python_may_run() || !ours_registered || !op.kernels.own_are_pytorchs());
}

// Whether swapnet's kernel will do the operator without reading; if it cannot, it does a copy_.
bool reads_nothing(const Thread &t, const Operator &op, Inputs inputs)
{
    return swn_services->device.type && !t.keeps &&
           ((op.to_copy && swn_unified_takes(inputs)) || (op.whole_copy && swn_unified_replaces(inputs)));
}

bool fetches_from_device(const Operator &op, Inputs inputs, bool shared)
{
    return op.whole_copy && inputs.size() > 1 && inputs[0].isTensor() && inputs[0].toTensor().is_cpu() &&
           !(shared && inputs[1].isTensor() && swn_unified_in_graph(inputs[1].toTensor()));
}

void reset_op(Thread &t, const Operator &op)
{
    t.op.n = 0;
    t.op.copies = t.op.asks = t.op.skip = 0;
    t.experts.forget();
    t.op.name = op.name.c_str();
    t.tells = op.tells;
    t.shown = false;
}

void add_inputs(Thread &t, const Operator &op, Inputs inputs, bool shared)
{
    bool all = !inputs.empty() && overwrites(op, inputs);
    for (size_t i = 0; i < inputs.size(); i++) {
        auto use = i < op.use.size() ? static_cast<swn_use>(op.use[i]) : SWN_USE_WEIGHT;
        if (i == 0 && all)
            use = SWN_USE_OVERWRITE;
        if (use == SWN_USE_EXPERTS && !t.experts.find(inputs, i, t.op.n))
            use = SWN_USE_WEIGHT;
        if (shared && (use >= SWN_USE_WRITE || op.schema_unreliable))
            detach_value(inputs[i], true);
        add_value(t, inputs[i], use);
    }
}

void count_flops(Thread &t, const Operator &op, Inputs inputs)
{
    t.op.flops =
        swn_services->count_flops && op.flops ? swn_flops_of(op.flops, op.use.data(), op.use.size(), inputs) : 0;
    t.op.small = {};
    if (swn_services->count_flops)
        swn_small_add(t.op.small, op.flops, op.use.data(), op.use.size(), inputs, swn_services->lo, swn_services->hi);
}

// For an operator that is not announced, because it uses no tensor of interest: the next announced one reports its
// operations.
void carry_flops(Thread &t)
{
    t.flops += t.op.flops;
    t.small.count += t.op.small.count;
    t.small.bytes += t.op.small.bytes;
}

// Whether two tensors have other bits at their begin. Then a comparison most likely ends there, and reads the page or
// two that it needs at the tensors' own addresses: TorchScript compares each weight with all others of its size.
bool differ_at_once(const swn_op &op)
{
    if (op.n != 2)
        return false;
    const swn_arg &a = op.args[0], &b = op.args[1];
    size_t bytes = std::min({a.upto - a.from, b.upto - b.from, size_t{4096}});
    return std::memcmp(reinterpret_cast<const void *>(a.data + a.from), reinterpret_cast<const void *>(b.data + b.from),
                       bytes) != 0;
}

// False: the operator is only a frame around those that the code of a tensor subclass or a transform will call, with
// the weights that the wrapped tensors stand for.
bool begin(Thread &t, Operator &op, const at::RecordFunction &fn)
{
    Inputs inputs = arguments_of(op, fn);
    bool shared = swn_unified_active();
    t.keeps = keeps(op);
    if (reads_nothing(t, op, inputs))
        return true;
    reset_op(t, op);
    t.fetches = fetches_from_device(op, inputs, shared);
    add_inputs(t, op, inputs, shared);
    if (t.shown && !shared)
        return false;
    if (t.shown)
        swn_devswap_give_up(inputs);
    t.lent = shared && swn_devswap_lend();
    count_flops(t, op, inputs);
    if (!t.op.n || (op.compares && !shared && differ_at_once(t.op)))
        carry_flops(t);
    else if (waits(op, t, inputs))
        t.waiting = inputs[0].toTensor().unsafeGetTensorImpl();
    else
        announce(t);
    return true;
}

void detach_all(const at::RecordFunction &fn)
{
    for (const c10::IValue &value : fn.inputs())
        detach_value(value, true);
}

// Code that bypasses PyTorch's operators, or that need not follow their schemas, is about to run. Not needed where
// nothing is shared with a device.
void unseen(const Operator *op, const at::RecordFunction &fn)
{
    if (op)
        detach_all(fn);
    else if (!std::strncmp(fn.name(), "Torch-Compiled Region", 21))
        swn_unified_give_up();
}

bool on_a_device(const at::Tensor &tensor)
{
    return tensor.defined() && !tensor.is_cpu();
}

bool has_device_tensors(const at::RecordFunction &fn)
{
    for (const c10::IValue &value : fn.inputs()) {
        if (value.isTensor() && on_a_device(value.toTensor()))
            return true;
        if (value.isTensorList())
            for (const at::Tensor &tensor : value.toTensorVector())
                if (on_a_device(tensor))
                    return true;
    }
    return false;
}

// Whether a kernel of the program's own computes the operator on a device, or a part of it. Such a kernel may use
// weights that it was not given, and these are in place only if the operators that it calls are announced: so the
// operator itself is skipped.
bool passes_by(Thread &t, Operator *op, const at::RecordFunction &fn)
{
    if (!op || op->transparent || t.depth ||
        (op->kernels.own_are_pytorchs_there() && op->kernels.parts_are_pytorchs_there()) || !has_device_tensors(fn))
        return false;
    if (!op->kernels.own_are_pytorchs_there())
        detach_all(fn);
    return true;
}

// Marks an operator that is skipped, for its end.
struct SkippedOp : at::ObserverContext {
};

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction &fn)
{
    Thread &t = self();
    Operator *op = operator_of(t, fn);
    if (swn_unified_active()) {
        if (!op || op->foreign)
            unseen(op, fn);
        else if (passes_by(t, op, fn))
            return std::make_unique<SkippedOp>();
    }
    if (!op || op->transparent)
        return nullptr;
    if (t.depth++) {
        if (t.open && t.experts.are_there())
            t.experts.lend(t.op, fn);
    } else {
        try {
            if (!begin(t, *op, fn)) {
                t.depth--;
                return std::make_unique<SkippedOp>();
            }
        } catch (abi::__forced_unwind &) { // the thread ends: on_end is not called for what has not begun
            t.depth--;
            throw;
        } catch (...) {
            // An exotic tensor that refuses inspection is used at its own address; memory that comes and goes has no
            // such address.
            if (!t.lent) {
                swn_devswap_give_up(fn.inputs());
                t.lent = swn_devswap_lend();
            }
        }
    }
    return nullptr;
}

void on_end(const at::RecordFunction &fn, at::ObserverContext *passed_by)
{
    if (passed_by)
        return;
    Thread &t = self();
    Operator *op = operator_of(t, fn);
    if (!op || op->transparent || !t.depth || --t.depth)
        return;
    if (t.lent)
        swn_devswap_end();
    t.lent = false;
    t.waiting = nullptr;
    if (!t.open)
        return;
    t.open = false;
    t.experts.forget();
    swn_services->op_end(&t.op);
}

// No thread may hold these locks when the process forks. The engine is never called under them.
void before_fork()
{
    operators_lock.lock();
    swn_kernels_before_fork();
    swn_trials_before_fork();
}

void after_fork()
{
    swn_trials_after_fork();
    swn_words_after_fork();
    swn_kernels_after_fork();
    operators_lock.unlock();
}

const char *attach(const swn_runtime_services *h)
{
    if (h->abi != SWN_ATEN_ABI)
        return "libswapnet.so and its torch backend are of different versions; install them together";
    std::string built =
        "TORCH_VERSION=" + std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR) + ".";
    if (at::show_config().find(built) == std::string::npos)
        return "this PyTorch is not the version that the installed torch backend was built for";
    given = *h;
    swn_services = &given;
    (void)swn_library_threads(); // look-ups: later, the thread that computes may be one that a constructor waits for
    pthread_atfork(before_fork, after_fork, after_fork);
    return nullptr;
}

void register_kernels()
{
    // Never destroyed: other threads may still compute when the process ends.
    auto *kernels =
        new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, swn_kernels_source, __LINE__);
    kernels->impl("copy_", copy_kernel);
    // PyTorch warns of kernels that replace its own; these call its own.
    swn_silent silent;
    swn_warning_guard guard(&silent);
    swn_products_register(*kernels);
    swn_batches_register(*kernels);
    swn_convs_register(*kernels);
    swn_rows_register(*kernels);
    swn_bags_register(*kernels);
    swn_fills_register(*kernels);
}

at::CallbackHandle hook;

const char *enable()
{
    try {
        ours_registered = !any_kernel_replaced();
        if (ours_registered)
            register_kernels();
        hook = at::addGlobalCallback(
            at::RecordFunctionCallback(&on_start, &on_end).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
    }
    SWN_CATCH_ALL
    {
        return "its operator hook was refused";
    }
    return nullptr;
}

int watching(int on)
{
    try {
        if (on)
            at::reenableCallback(hook);
        else
            at::disableCallback(hook);
    }
    SWN_CATCH_ALL
    {
        return -1;
    }
    return 0;
}

const char *enable_device()
{
    try {
        swn_silent silent; // as above
        swn_warning_guard guard(&silent);
        swn_unified_register();
    }
    SWN_CATCH_ALL
    {
        return "its kernels were refused";
    }
    return nullptr;
}

/* "not enough memory" are the words by which programs tell PyTorch's own error, as the serve backends do. */
void raise_oom(size_t bytes)
{
    TORCH_CHECK(false, "swapnet: not enough memory for ", bytes,
                " bytes: the tensors in use do not leave room in SWAPNET_BUDGET, and SWAPNET_STRICT=1 forbids to "
                "exceed it");
}

} // namespace

swn_op *swn_current_op()
{
    Thread &t = self();
    return t.open ? &t.op : nullptr;
}

void swn_announce(const at::Tensor &self)
{
    Thread &t = ::self();
    if (!t.waiting || t.waiting != self.unsafeGetTensorImpl())
        return;
    t.waiting = nullptr;
    if (!is_argument(t.op, 0, self) || !is_all_of_its_storage(self))
        return;
    t.op.asks = swn_simple(self, self.scalar_type());
    announce(t);
}

void swn_make_afresh(at::Tensor &self, const std::function<void(at::Tensor &)> &make)
{
    swn_op *op = swn_current_op();
    void *at = op && op->asks ? swn_services->afresh_begin(op, 0) : nullptr;
    if (!at) {
        make(self);
        return;
    }
    try {
        at::Tensor to = at::from_blob(at, self.sizes(), self.strides(), at::dtype(self.scalar_type()));
        make(to);
    } catch (...) { // a thread that ends included
        swn_services->afresh_end(op, 0, 0);
        throw;
    }
    swn_services->afresh_end(op, 0, 1);
}

void swn_copy_outermost(at::Tensor &to, const at::Tensor &from)
{
    Thread &t = self();
    unsigned depth = t.depth;
    if (!t.open)
        t.depth = 0;
    to.copy_(from);
    t.depth = depth;
}

extern "C" __attribute__((visibility("default"))) const swn_torch_backend swn_aten_backend;
const swn_torch_backend swn_aten_backend = {SWN_ATEN_ABI,     attach,           enable,       watching,
                                            enable_device,    swn_watch_begin,  raise_oom,    swn_unified_idle,
                                            swn_unified_trim, swn_unified_part, TORCH_VERSION};
