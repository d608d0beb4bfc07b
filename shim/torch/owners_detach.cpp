// Detaches a device's tensors from host memory: a storage that is about to be written, or used by code that bypasses
// the operator hook, gets memory of its own.
#include "shim/torch/owners.h"

#include <ATen/ops/copy_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>

#include "shim/torch/compat.h"
#include "shim/torch/device_swap.h"
#include "shim/torch/unified.h"
#include "shim/torch/services.h"

using namespace swn_owners;

namespace
{

// Seconds of waiting for other threads, and for the device, before the program is ended.
constexpr int patience = 600;
// Seconds of waiting where a device cannot be awaited, because a graph is being captured.
constexpr int capture_ends = 30;

// For its lifetime, this thread's work stays outside the graph that the thread captures.
class Aside
{
  public:
    explicit Aside(c10::Device device) : impl(device.type()), aside(swn_devswap_capturing(device))
    {
        if (!aside)
            return;
        swn_services->device.aside(1);
        graph = impl.exchangeStream(impl.getStreamFromGlobalPool(device));
        // PyTorch hands out its streams in turns, and the graph's stream is one of them.
        for (int i = 0; i < streams && swn_devswap_capturing(device); i++)
            impl.exchangeStream(impl.getStreamFromGlobalPool(device));
    }
    ~Aside()
    {
        if (!aside)
            return;
        impl.exchangeStream(*graph);
        swn_services->device.aside(0);
    }
    // The graph's stream uses the memory that was allocated meanwhile.
    void use(const at::DataPtr &data) const
    {
        if (aside)
            impl.recordDataPtrOnStream(data, *graph);
    }
    Aside(const Aside &) = delete;
    Aside &operator=(const Aside &) = delete;

  private:
    static constexpr int streams = 64; // more than the pool has
    c10::impl::VirtualGuardImpl impl;
    bool aside;
    swn_optional<c10::Stream> graph;
};

std::vector<c10::Stream> homes_of(const Owner *o)
{
    std::lock_guard<std::mutex> guard(lock);
    return o->homes;
}

// New memory, outside the graph's own pool if a graph is being captured: the graph overwrites its pool whenever it
// runs. The bytes are in place before its first run.
at::DataPtr own_memory(c10::Device device, size_t bytes, const Owner *o, bool keep)
{
    auto options = at::TensorOptions().dtype(at::kByte);
    Aside aside(device);
    at::Tensor fresh = at::empty({static_cast<int64_t>(bytes)}, options.device(device));
    if (keep) {
        swn_services->device.moved(0, bytes);
        at::native::copy_(fresh, at::from_blob(o->data.get(), {static_cast<int64_t>(bytes)}, options), false);
    }
    aside.use(data_of(storage_of(fresh)));
    // The allocator reuses the memory in the order of the current stream. The program assumes the order of the stream
    // on which it moved the tensor, and may let that stream read the tensor after dropping it. Which stream that was is
    // unknown for this storage; recording one stream too many only delays the reuse.
    c10::impl::VirtualGuardImpl impl(device.type());
    c10::Stream now = impl.getStream(device);
    for (const c10::Stream &home : homes_of(o))
        if (!(home == now))
            impl.recordDataPtrOnStream(data_of(storage_of(fresh)), home);
    return storage_of(fresh)->set_data_ptr(at::DataPtr(nullptr, device));
}

// numpy and other code may know the address of the processor's storage, so the device's storages move, and take the
// bytes along.
void detach_others(const Owner *o, const char *what)
{
    std::vector<c10::Storage> all; // dropped without the lock
    {
        std::lock_guard<std::mutex> guard(lock);
        if (!o->devices)
            return;
        for (auto &weak : others)
            if (auto storage = weak.lock())
                all.emplace_back(std::move(storage));
    }
    for (c10::Storage &storage : all)
        if (!storage.device().is_cpu() && hold(storage.unsafeGetStorageImpl()).get() == o)
            detach(storage.unsafeGetStorageImpl(), true, what);
}

// Waits until the condition is true. Counts in seconds, so that a process that is stopped for a while loses one of
// them.
template <class Condition> bool comes_true(std::unique_lock<std::mutex> &guard, Condition condition)
{
    for (int i = 0; i < patience; i++)
        if (fewer.wait_for(guard, std::chrono::seconds(1), condition))
            return true;
    return false;
}

// Waits until storages that other threads are about to make on a device exist, or will not be made. The owner is held.
void wait_for_arrivals(const Owner *o, const char *what)
{
    std::unique_lock<std::mutex> guard(lock);
    if (comes_true(guard, [o] { return !o->arriving; }))
        return;
    guard.unlock();
    swn_services->device.lost(what, "another thread does not come to an end with moving it to the device");
}

// Waits until no operator of another thread uses the owner on a device, and launched work is done, as a synchronisation
// would. The owner is held.
void wait_for_others(const Owner *o, const char *what)
{
    bool captures = swn_devswap_capturing({device_type, static_cast<c10::DeviceIndex>(o->index)}); // to be awaited
    std::unique_lock<std::mutex> guard(lock);
    auto used = [o] { return o->devices - o->on_device > swn_devswap_holds(o); };
    for (int i = 0; i < patience; i++) {
        if (fewer.wait_for(guard, std::chrono::seconds(1), [&] { return !used() && (captures || !o->closing); }))
            return;
        // Another capture may be on another stream of this thread, or wait for this thread; it then continues in the
        // end.
        guard.unlock();
        captures |= i >= capture_ends && swn_services->device.held_up();
        guard.lock();
    }
    const char *who = used() ? "an operator of another thread does not come to an end that uses it on the device"
                             : "the device does not come to an end with what was launched";
    guard.unlock();
    swn_services->device.lost(what, who);
}

enum class Taken { yes, no, uncaptured };

// The storage, the only one with memory that a graph has the address of, is about to be written: it is written in
// place, so that the graph sees the change.
Taken take_over(c10::StorageImpl *storage, Owner *o) // which is held
{
    c10::Device device = storage->device();
    std::unique_lock<std::mutex> guard(lock);
    // Memory that comes and goes has other host bytes; of other memory another thread may be making a copy through a
    // view.
    if (!comes_true(guard, [o] { return o->swaps || !o->on_host; }))
        return Taken::no;
    if (sharing(storage) != o)
        return Taken::yes; // another thread has just taken it over
    void *at = o->swaps ? swn_services->device.stays(o->memory) : o->address;
    if (!at) { // the memory could not be brought in for the graph
        o->captured = false;
        return Taken::uncaptured;
    }
    if (o->on_device != 1)
        return Taken::no;
    if (o->swaps)
        places.erase(reinterpret_cast<uintptr_t>(o->address));
    storage->set_data_ptr(at::DataPtr(at, o, &drop_taken_over, device)).release_context();
    return Taken::yes;
}

// The processor's storages keep these bytes, and the device's storages get other memory.
void part(std::vector<Held> all, const char *what)
{
    if (all.empty())
        return;
    for (const Held &o : all)
        wait_for_arrivals(o.get(), what);
    {
        std::lock_guard<std::recursive_mutex> serial(moving);
        for (const Held &o : all)
            detach_others(o.get(), what);
    }
    for (const Held &o : all)
        wait_for_others(o.get(), what);
}

bool captured(const Owner *o)
{
    std::lock_guard<std::mutex> guard(lock);
    return o->captured;
}

} // namespace

void swn_owners::detach(c10::StorageImpl *storage, bool keep, const char *what)
{
    if (forked || !storage)
        return;
    c10::Device device = storage->device();
    if (device.is_cpu()) {
        Held own = hold(storage);
        auto at = reinterpret_cast<uintptr_t>(data_of(storage).get());
        auto all = own ? std::vector<Held>() : hold_at(at, storage->nbytes());
        if (own)
            all.push_back(std::move(own));
        part(std::move(all), what);
        return;
    }
    Held o = hold(storage);
    if (!o)
        return; // its own memory, or a buffer, which only the device has
    Taken taken = captured(o.get()) ? take_over(storage, o.get()) : Taken::uncaptured;
    if (taken == Taken::no)
        swn_services->device.lost(what, "a CUDA graph has its address");
    if (taken == Taken::yes)
        return;
    std::lock_guard<std::recursive_mutex> serial(moving);
    if (hold(storage) != o)
        return; // another thread has done it
    try {
        // Hidden from the program's modes, which might change the result.
        c10::impl::ExcludeDispatchKeyGuard ours(c10::DispatchKeySet(
            {c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot, c10::DispatchKey::Functionalize,
             c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::FuncTorchDynamicLayerBackMode}));
        c10::DeviceGuard guard(device);
        if (o->swaps)
            swn_services->device.kept(storage->nbytes(), nullptr);
        at::DataPtr data = own_memory(device, storage->nbytes(), o.get(), keep);
        exchange(storage, data);
    } catch (const c10::Error &e) {
        swn_services->device.lost(what, e.what_without_backtrace());
    } catch (const std::exception &e) {
        swn_services->device.lost(what, e.what());
    }
}

void swn_unified_detach(const at::Tensor &tensor, bool keep)
{
    detach(storage_of(tensor), keep, written);
}

void swn_unified_give_up()
{
    if (given_up.exchange(true))
        return;
    swn_services->device.given_up();
    std::vector<c10::Storage> all;
    {
        std::lock_guard<std::mutex> guard(lock);
        for (auto &weak : others)
            if (auto storage = weak.lock())
                all.emplace_back(std::move(storage));
        others.clear();
    }
    for (c10::Storage &storage : all)
        detach(storage.unsafeGetStorageImpl(), true, compiled);
}

void swn_unified_part(uintptr_t data, size_t bytes)
{
    if (swn_unified_active() && !forked)
        part(hold_at(data, bytes), taken_by_program);
}

void swn_unified_capture(c10::StorageImpl *storage)
{
    Held o = hold(storage);
    if (!o || forked)
        return;
    bool pins;
    {
        std::lock_guard<std::mutex> guard(lock);
        if (o->captured)
            return;
        o->captured = o->on_device == 1 && (o->swaps || !o->on_host);
        pins = o->captured && o->streams;
    }
    if (pins) {
        int err = swn_services->device.pin(o->memory, reinterpret_cast<uintptr_t>(o->data.get()), o->bytes);
        std::lock_guard<std::mutex> guard(lock);
        o->captured = !err;
        o->streams = err != 0;
    }
    if (!captured(o.get()))
        detach(storage, true, in_two_places);
}

void swn_unified_keep(c10::StorageImpl *storage, const char *operator_name)
{
    if (operator_name)
        swn_services->device.kept(0, operator_name);
    detach(storage, true, unlent);
}
