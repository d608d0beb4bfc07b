// shim/torch/device_swap.cpp - see device_swap.h.
#include "shim/torch/device_swap.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <vector>

#include <dlfcn.h>

#include "shim/torch/unified.h"
#include "shim/torch/per_thread.h"
#include "shim/torch/services.h"

namespace
{

// The memory that this thread's operator uses, held as long as it runs.
struct Lent {
    unsigned n = 0; // number of tensors that come and go
    std::array<void *, SWN_OP_ARGS> owner;
    std::array<swn_device_memory *, SWN_OP_ARGS> memory;
    std::array<c10::Storage, SWN_OP_ARGS> held;      // the storages, which must exist when their addresses are restored
    std::array<void *, SWN_OP_ARGS> closed, address; // the address between operators; the address for this operator
    std::array<bool, SWN_OP_ARGS> opened;            // the storage has the latter address
    bool lent = false;
    std::vector<void *> staying; // owners of memory that stays
    void *stream = nullptr;
    int captured = 0;
    int asked = -1; // the device whose stream's capture state the operator knows:
    bool capturing = false;
};

Lent &this_thread()
{
    return swn_per_thread<Lent>::get();
}

void **word_of(c10::StorageImpl *storage)
{
    return reinterpret_cast<void **>(const_cast<at::DataPtr *>(&std::as_const(*storage).data_ptr()));
}

// The runtime's stream; PyTorch returns it from 2.11 on.
template <class I>
auto native(const I *impl, const c10::Stream &stream, int) -> decltype(impl->getStreamNativeHandle(stream))
{
    return impl->getStreamNativeHandle(stream);
}

// CUDA's own stream type is defined in a library to which this one cannot be linked.
template <class I> void *native(const I *, const c10::Stream &stream, long)
{
    if (stream.device_type() != c10::DeviceType::CUDA)
        return reinterpret_cast<void *>(stream.id());
    // c10::cuda::CUDAStream::stream() const, of a class that has a c10::Stream and nothing else.
    using Function = void *(*)(const c10::Stream *);
    static const auto function = reinterpret_cast<Function>(
        dlsym(dlopen("libc10_cuda.so", RTLD_LAZY | RTLD_NOLOAD), "_ZNK3c104cuda10CUDAStream6streamEv"));
    TORCH_CHECK(function, "swapnet: no streams");
    return function(&stream);
}

void *stream_of(c10::Device device)
{
    return native(c10::impl::getDeviceGuardImpl(device.type()),
                  c10::impl::VirtualGuardImpl(device.type()).getStream(device), 0);
}

// Prints the reason once: without streams it is unknown what a graph captures, and when a device is done.
bool has_streams(c10::Device device)
{
    static const bool has = [device] {
        try {
            stream_of(device);
            return true;
        } catch (const std::exception &) {
            swn_services->device.refused("this PyTorch does not say which stream of a device it uses");
            return false;
        }
    }();
    return has;
}

void release(Lent &l)
{
    unsigned n = l.n;
    l.n = 0;
    l.lent = false;
    for (unsigned i = 0; i < n; i++) {
        swn_unified_release(l.owner[i]);
        l.held[i] = c10::Storage();
    }
}

void let_all_go(Lent &l)
{
    release(l);
    for (void *owner : l.staying)
        swn_unified_release(owner);
    l.staying.clear();
    l.asked = -1;
}

bool has(const Lent &l, const c10::StorageImpl *storage)
{
    for (unsigned i = 0; i < l.n; i++)
        if (l.held[i].unsafeGetStorageImpl() == storage)
            return true;
    return false;
}

// Whether launches of this thread are captured into a graph. Memory that a graph has stays in place, so any operator
// may use it.
bool captures(Lent &l, const at::Tensor &tensor)
{
    c10::Device device = tensor.device();
    if (l.asked != device.index()) {
        l.capturing = swn_devswap_capturing(device);
        l.asked = device.index();
    }
    return l.capturing;
}

} // namespace

uintptr_t swn_devswap_use(const at::Tensor &tensor, bool keeps, const char *operator_name, bool reads, size_t *bytes)
{
    Lent &l = this_thread();
    swn_held h;
    if (!swn_unified_hold(tensor, &h))
        return 0;
    c10::StorageImpl *storage = tensor.storage().unsafeGetStorageImpl();
    if (!h.captured && captures(l, tensor)) {
        swn_unified_capture(storage);
        swn_unified_release(h.owner);
        if (!swn_unified_hold(tensor, &h))
            return 0;
    }
    *bytes = h.bytes;
    if (!h.memory || !reads) {
        l.staying.push_back(h.owner);
        return h.data;
    }
    if ((keeps && !h.captured && !captures(l, tensor)) || l.n == SWN_OP_ARGS) {
        swn_unified_release(h.owner);
        swn_unified_keep(storage, operator_name);
        return 0;
    }
    if (has(l, storage)) {
        swn_unified_release(h.owner);
        return 0;
    }
    l.owner[l.n] = h.owner;
    l.memory[l.n] = h.memory;
    l.closed[l.n] = h.address;
    l.held[l.n++] = c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage));
    return 0;
}

bool swn_devswap_has_streams(c10::Device device)
{
    return has_streams(device);
}

bool swn_devswap_capturing(c10::Device device)
{
    try {
        return has_streams(device) && swn_services->device.capturing(stream_of(device)) != 0;
    } catch (const std::exception &) {
        return false;
    }
}

bool swn_devswap_lend()
{
    Lent &l = this_thread();
    l.asked = -1;
    if (!l.n)
        return !l.staying.empty();
    int err = -1;
    try {
        // This code runs outside the operator's own device guard, and events belong to the current device.
        c10::DeviceGuard guard(l.held[0].device());
        l.stream = stream_of(l.held[0].device());
        err = swn_services->device.begin(l.memory.data(), l.n, l.stream, l.address.data(), &l.captured);
    } catch (const std::exception &) {
        // Without its stream it is unknown when the device is done with them
    }
    for (unsigned i = 0; i < l.n; i++) {
        c10::StorageImpl *storage = l.held[i].unsafeGetStorageImpl();
        // A failed exchange means that another thread has given the storage other memory meanwhile, which stays.
        void *expected = l.closed[i];
        l.opened[i] = !err && l.address[i] != l.closed[i] &&
                      __atomic_compare_exchange_n(word_of(storage), &expected, l.address[i], false, __ATOMIC_ACQ_REL,
                                                  __ATOMIC_RELAXED);
        if (err)
            swn_unified_keep(storage, nullptr);
    }
    if (err)
        release(l);
    l.lent = !err;
    return l.n || !l.staying.empty();
}

void swn_devswap_end()
{
    Lent &l = this_thread();
    for (unsigned i = 0; i < l.n; i++) {
        if (l.opened[i])
            swn_unified_put_back(l.held[i].unsafeGetStorageImpl(), l.owner[i], l.address[i], l.closed[i]);
    }
    if (l.n) {
        c10::DeviceGuard guard(l.held[0].device());
        swn_services->device.end(l.memory.data(), l.n, l.stream, l.captured);
    }
    let_all_go(l);
}

bool swn_devswap_has_lent(const c10::StorageImpl *storage)
{
    const Lent &l = this_thread();
    return l.lent && has(l, storage);
}

static void name_again(const at::Tensor &tensor)
{
    size_t bytes;
    swn_devswap_use(tensor, true, nullptr, true, &bytes);
}

static void give_up(const c10::IValue &value)
{
    if (value.isTensor()) {
        name_again(value.toTensor());
    } else if (value.isTensorList()) {
        for (const at::Tensor &t : value.toTensorVector())
            name_again(t);
    } else if (value.isList()) {
        const c10::List<c10::IValue> list = value.toList();
        for (size_t i = 0; i < list.size(); i++)
            give_up(list.get(i));
    }
}

unsigned swn_devswap_holds(const void *owner)
{
    const Lent &l = this_thread();
    auto n = std::count(l.owner.begin(), l.owner.begin() + l.n, owner) +
             std::count(l.staying.begin(), l.staying.end(), owner);
    return static_cast<unsigned>(n);
}

void swn_devswap_give_up(c10::ArrayRef<const c10::IValue> inputs)
{
    let_all_go(this_thread());
    for (const c10::IValue &value : inputs)
        give_up(value);
}
