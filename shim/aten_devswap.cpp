#include "aten_devswap.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <vector>

#include <dlfcn.h>

#include "aten_unified.h"

namespace
{

const swn_host *host;

// What this thread's operator uses.
struct Lent {
    unsigned n = 0;
    std::array<void *, SWN_OP_ARGS> owner; // of the memory, held as long as that is used here
    std::array<swn_device_memory *, SWN_OP_ARGS> memory;
    std::array<c10::Storage, SWN_OP_ARGS> held;      // the word that is written must be there to be written back
    std::array<void *, SWN_OP_ARGS> closed, address; // where it is between operators, and in this one
    void *stream = nullptr;
    int captured = 0;
};

Lent &self()
{
    // On the heap and never freed: operators run in threads whose thread-locals are already gone.
    static thread_local Lent *lent = new Lent;
    return *lent;
}

void **word_of(c10::StorageImpl *storage)
{
    return reinterpret_cast<void **>(const_cast<at::DataPtr *>(&std::as_const(*storage).data_ptr()));
}

// The stream as the runtime knows it: PyTorch says so from 2.11 on.
template <class I>
auto native(const I *impl, const c10::Stream &stream, int) -> decltype(impl->getStreamNativeHandle(stream))
{
    return impl->getStreamNativeHandle(stream);
}

// CUDA's own type is known to a library that we cannot be linked with.
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

void let_go(Lent &l)
{
    unsigned n = l.n;
    l.n = 0;
    for (unsigned i = 0; i < n; i++) {
        swn_unified_let_go(l.owner[i]);
        l.held[i] = c10::Storage();
    }
}

} // namespace

void swn_devswap_begin_half(const swn_host *h)
{
    host = h;
}

void swn_devswap_use(const at::Tensor &tensor, swn_use use, const char *operator_name)
{
    Lent &l = self();
    swn_device_memory *memory;
    void *owner = swn_unified_hold(tensor, &memory);
    if (!owner)
        return;
    c10::StorageImpl *storage = tensor.storage().unsafeGetStorageImpl();
    if (use == SWN_USE_READ || l.n == SWN_OP_ARGS) {
        swn_unified_let_go(owner);
        swn_unified_keep(storage, operator_name);
        return;
    }
    for (unsigned i = 0; i < l.n; i++)
        if (l.held[i].unsafeGetStorageImpl() == storage) {
            swn_unified_let_go(owner);
            return;
        }
    l.owner[l.n] = owner;
    l.memory[l.n] = memory;
    l.held[l.n++] = c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage));
}

bool swn_devswap_capturing(c10::Device device)
{
    try {
        c10::DeviceGuard guard(device);
        return host->device_capturing(stream_of(device)) != 0;
    } catch (const std::exception &) {
        return false; // a PyTorch whose streams nobody can name
    }
}

bool swn_devswap_lend()
{
    Lent &l = self();
    if (!l.n)
        return false;
    int err = -1;
    try {
        // We are outside of the operator's own guard, and events belong to the device that is current.
        c10::DeviceGuard guard(l.held[0].device());
        l.stream = stream_of(l.held[0].device());
        err = host->device_begin(l.memory.data(), l.n, l.stream, l.address.data(), &l.captured);
    } catch (const std::exception &) {
        // Without its stream nobody can tell when the device is done with them.
    }
    for (unsigned i = 0; i < l.n; i++) {
        c10::StorageImpl *storage = l.held[i].unsafeGetStorageImpl();
        if (err) {
            swn_unified_keep(storage, nullptr);
            continue;
        }
        l.closed[i] = __atomic_load_n(word_of(storage), __ATOMIC_RELAXED);
        if (l.closed[i] != l.address[i])
            __atomic_store_n(word_of(storage), l.address[i], __ATOMIC_RELEASE);
    }
    if (err)
        let_go(l);
    return !err;
}

void swn_devswap_end()
{
    Lent &l = self();
    for (unsigned i = 0; i < l.n; i++) {
        // A lost exchange means that the storage was given other memory meanwhile: that is left alone.
        void *expected = l.address[i];
        if (l.closed[i] != l.address[i])
            __atomic_compare_exchange_n(word_of(l.held[i].unsafeGetStorageImpl()), &expected, l.closed[i], false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    }
    if (l.n) {
        c10::DeviceGuard guard(l.held[0].device());
        host->device_end(l.memory.data(), l.n, l.stream, l.captured);
    }
    let_go(l);
}

static void give_up(const c10::IValue &value)
{
    if (value.isTensor()) {
        swn_devswap_use(value.toTensor(), SWN_USE_READ, nullptr);
    } else if (value.isTensorList()) {
        for (const at::Tensor &t : value.toTensorVector())
            swn_devswap_use(t, SWN_USE_READ, nullptr);
    } else if (value.isList()) {
        const c10::List<c10::IValue> list = value.toList();
        for (size_t i = 0; i < list.size(); i++)
            give_up(list.get(i));
    }
}

void swn_devswap_give_up(c10::ArrayRef<const c10::IValue> inputs)
{
    let_go(self());
    for (const c10::IValue &value : inputs)
        give_up(value);
}
