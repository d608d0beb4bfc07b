// shim/torch/owners.cpp - see owners.h.
#include "shim/torch/owners.h"

#include <pthread.h>

#include "shim/torch/device_swap.h"
#include "shim/torch/unified.h"
#include "shim/torch/services.h"

namespace swn_owners
{

c10::DeviceType device_type;
c10::DispatchKey device_key;
std::mutex &lock = *new std::mutex;
std::recursive_mutex &moving = *new std::recursive_mutex;
std::condition_variable &fewer = *new std::condition_variable;
std::atomic<size_t> active{0};
std::atomic<c10::Allocator *> device_allocator{nullptr};
std::atomic<bool> given_up{false};
std::atomic<bool> forked{false};
std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> &others =
    *new std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>>;
std::map<uintptr_t, Owner *> &spans = *new std::map<uintptr_t, Owner *>;
std::map<uintptr_t, Owner *> &places = *new std::map<uintptr_t, Owner *>;

static bool is_devices(Member who)
{
    return who == Member::of_device || who == Member::user;
}

void join(Owner *o, Member who)
{
    o->members++;
    o->on_host += who == Member::of_host;
    o->on_device += who == Member::of_device;
    o->devices += is_devices(who);
    o->arriving += who == Member::arriving;
    active += is_devices(who) || who == Member::arriving;
}

// Lock held. Whether no storage, operator or holder needs the owner any more.
static bool is_last(Owner *o)
{
    if (--o->members || o->stuck)
        return false;
    auto span = spans.find(reinterpret_cast<uintptr_t>(o->data.get()));
    if (span != spans.end() && span->second == o)
        spans.erase(span);
    return true;
}

// Called when the device is done with the memory; by the engine's thread, if that took a while.
static void closed(void *owner, int err)
{
    auto *o = static_cast<Owner *>(owner);
    {
        std::lock_guard<std::mutex> guard(lock);
        o->closing = false;
        active--;
        o->stuck = err != 0;
        fewer.notify_all();
        if (!is_last(o))
            return;
    }
    delete o;
}

// Lock held. The owner stays until the memory is closed.
static swn_device_memory *take_memory(Owner *o)
{
    if (o->swaps)
        places.erase(reinterpret_cast<uintptr_t>(o->address));
    o->closing = true;
    active++;
    o->members++;
    return std::exchange(o->memory, nullptr);
}

// Without the lock: this waits for the device, and the device's work may wait for a thread that wants the lock.
static void close_memory(Owner *o, swn_device_memory *memory)
{
    if (!o->swaps && !forked) // the engine must not wait for a graph that this thread captures
        swn_devswap_capturing({device_type, static_cast<c10::DeviceIndex>(o->index)});
    int err = swn_services->device.close(memory, &closed, o);
    if (err <= 0)
        closed(o, err);
}

void leave(Owner *o, Member who)
{
    swn_device_memory *memory = nullptr;
    bool last;
    {
        std::lock_guard<std::mutex> guard(lock);
        o->on_host -= who == Member::of_host;
        o->on_device -= who == Member::of_device;
        o->arriving -= who == Member::arriving;
        o->devices -= is_devices(who);
        if (is_devices(who) && !o->devices)
            memory = take_memory(o);
        active -= is_devices(who) || who == Member::arriving; // last: by now the closing counts
        if (who != Member::holder)
            fewer.notify_all();
        last = is_last(o);
    }
    if (memory)
        close_memory(o, memory);
    if (last)
        delete o;
}

void drop_host(void *o)
{
    leave(static_cast<Owner *>(o), Member::of_host);
}

void drop_device(void *o)
{
    leave(static_cast<Owner *>(o), Member::of_device);
}

void drop_taken_over(void *o)
{
    leave(static_cast<Owner *>(o), Member::of_device);
}

const at::DataPtr &data_of(const c10::StorageImpl *storage)
{
    return storage->data_ptr();
}

c10::StorageImpl *storage_of(const at::Tensor &t)
{
    return t.defined() && t.unsafeGetTensorImpl()->has_storage()
               ? t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()
               : nullptr;
}

Owner *owner_of(const c10::StorageImpl *storage)
{
    if (!storage)
        return nullptr;
    const at::DataPtr &data = data_of(storage);
    return data.get_deleter() == &drop_host || data.get_deleter() == &drop_device
               ? static_cast<Owner *>(data.get_context())
               : nullptr;
}

Owner *sharing(const c10::StorageImpl *storage)
{
    Owner *o = owner_of(storage);
    return o && o->data.get() ? o : nullptr;
}

Held hold(const c10::StorageImpl *storage)
{
    std::lock_guard<std::mutex> guard(lock);
    Owner *o = sharing(storage);
    if (o)
        join(o, Member::holder);
    return Held(o);
}

Held hold_to_copy(const c10::StorageImpl *storage)
{
    std::lock_guard<std::mutex> guard(lock);
    Owner *o = sharing(storage);
    auto at = reinterpret_cast<uintptr_t>(data_of(storage).get());
    auto place = o || data_of(storage).get_deleter() == &drop_taken_over ? places.end() : places.find(at);
    if (place != places.end() && storage->nbytes() <= place->second->bytes)
        o = place->second;
    if (o)
        join(o, Member::holder);
    return Held(o);
}

bool on_device(const at::Tensor &t)
{
    return t.defined() && t.device().type() == device_type;
}

bool shared(const at::Tensor &t)
{
    std::lock_guard<std::mutex> guard(lock);
    return on_device(t) && sharing(storage_of(t));
}

std::vector<Held> hold_at(uintptr_t at, size_t bytes)
{
    std::vector<Held> all;
    std::lock_guard<std::mutex> guard(lock);
    auto span = spans.lower_bound(at + bytes);
    while (span != spans.begin() && (--span)->first + span->second->bytes > at) {
        join(span->second, Member::holder);
        all.emplace_back(span->second);
    }
    return all;
}

// Lock held. The owner of a storage of the processor, which becomes a member.
static Owner *owned(c10::StorageImpl *storage, size_t bytes)
{
    Owner *o = owner_of(storage);
    if (o)
        return o;
    o = new Owner;
    o->bytes = bytes;
    join(o, Member::of_host);
    void *at = data_of(storage).get();
    o->data = storage->set_data_ptr(at::DataPtr(at, o, &drop_host, c10::kCPU));
    spans[reinterpret_cast<uintptr_t>(at)] = o;
    return o;
}

Arriving announced(c10::StorageImpl *storage, size_t bytes)
{
    std::lock_guard<std::mutex> guard(lock);
    Owner *o = owned(storage, bytes);
    join(o, Member::arriving);
    return Arriving(o);
}

void exchange(c10::StorageImpl *storage, at::DataPtr &data)
{
    std::lock_guard<std::mutex> guard(lock);
    data = storage->set_data_ptr(std::move(data));
}

void enlist(c10::StorageImpl *storage)
{
    if (others.size() == others.capacity()) {
        std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> alive;
        for (auto &other : others)
            if (other.use_count())
                alive.push_back(std::move(other));
        alive.reserve(2 * alive.size() + 64);
        others.swap(alive);
    }
    others.emplace_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage));
}

static void before_fork()
{
    lock.lock();
}

static void after_fork()
{
    lock.unlock();
}

// A child cannot use a device that its parent has used, so device storages there need no separation.
static void after_fork_child()
{
    if (device_allocator) {
        forked = true;
        given_up = true;
    }
    lock.unlock();
}

void register_fork_handlers()
{
    pthread_atfork(before_fork, after_fork, after_fork_child);
}

} // namespace swn_owners

using namespace swn_owners;

bool swn_unified_active()
{
    return active.load(std::memory_order_relaxed) != 0;
}

bool swn_unified_hold(const at::Tensor &tensor, swn_held *out)
{
    std::lock_guard<std::mutex> guard(lock);
    Owner *o = on_device(tensor) ? sharing(storage_of(tensor)) : nullptr;
    if (!o)
        return false;
    join(o, Member::user);
    *out = {o,          o->swaps ? o->memory : nullptr,
            o->address, o->streams ? reinterpret_cast<uintptr_t>(o->data.get()) : 0,
            o->bytes,   o->captured};
    return true;
}

void swn_unified_put_back(c10::StorageImpl *storage, const void *owner, void *from, void *to)
{
    std::lock_guard<std::mutex> guard(lock);
    if (sharing(storage) == owner)
        __atomic_compare_exchange_n(reinterpret_cast<void **>(const_cast<at::DataPtr *>(&data_of(storage))), &from, to,
                                    false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

void swn_unified_release(void *owner)
{
    leave(static_cast<Owner *>(owner), Member::user);
}

bool swn_unified_registered(const at::Tensor &tensor)
{
    c10::StorageImpl *storage = tensor.is_cpu() ? storage_of(tensor) : nullptr;
    if (!storage)
        return false;
    auto at = reinterpret_cast<uintptr_t>(data_of(storage).get());
    std::lock_guard<std::mutex> guard(lock);
    auto span = spans.upper_bound(at);
    if (span == spans.begin())
        return false;
    const Owner *o = (--span)->second;
    return at < span->first + o->bytes && (o->devices || o->opening || o->closing);
}
