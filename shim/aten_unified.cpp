#include "aten_unified.h"

#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/copy_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>
#include <torch/version.h>
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 9)
#define SWN_DEVICE_ALLOCATOR
#include <c10/core/CachingDeviceAllocator.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <pthread.h>

#include "aten_devswap.h"
#include "aten_kernels.h"
#include "aten_slices.h"

namespace
{

const swn_host *host;
c10::DeviceType device_type;
c10::DispatchKey device_key;

// Guards all owners, which of them a storage names, and the storages of `others`. Taken before any lock of the
// engine's; never while PyTorch is called, but to ask for a stream. Never destroyed, as other threads may still compute
// when the process ends.
std::mutex &lock = *new std::mutex;

// Bytes that storages have in common, or a buffer of the device's, which one storage has.
struct Owner {
    at::DataPtr data; // as PyTorch allocated it; nothing for a buffer
    size_t bytes = 0;
    unsigned members = 0;   // whoever names or holds it
    unsigned devices = 0;   // of those: storages of a device, and operators that use it there
    unsigned on_host = 0;   // storages of the processor
    unsigned on_device = 0; // and of a device
    unsigned arriving = 0;  // storages of a device that are being made, which nobody finds yet
    int index = 0;          // of that device
    swn_device_memory *memory = nullptr;
    void *address = nullptr;        // where the device finds them
    bool streams = false;           // they may come and go
    bool swaps = false;             // and on the device, where `address` is good for nothing between operators
    bool opening = false;           // a thread is making them known to the device, without the lock
    bool closing = false;           // and here the device may use them still, and is waited for
    bool stuck = false;             // the device has not let go of it: it is nobody else's any more
    std::vector<c10::Stream> homes; // that were current when storages of it went there, each of them once
    bool captured = false; // a CUDA graph has its address; of the device's storages one names it, and of ours none do
};

// Threads that only read may both be giving a storage memory of its own, on account of operators that are not believed.
// Taken before `lock`, and while PyTorch is called. Never destroyed, as above.
std::recursive_mutex &moving = *new std::recursive_mutex;

// One storage or operator of a device less has an owner. Never destroyed, as above.
std::condition_variable &fewer = *new std::condition_variable;
// An operator of another thread ends at some time, unless it waits for this one. So long for who can do without,
constexpr auto operators_end = std::chrono::seconds(30);
// and so many seconds for who would have to end the program: it may wait for the device, which takes what it takes.
constexpr int patience = 600;

// Storages of a device that name bytes of ours, or are about to, and what a device may be using without one.
std::atomic<size_t> active{0};
// As its tensors say: GetAllocator does not know CUDA's before PyTorch 2.9. None before any tensor was to go there.
std::atomic<c10::Allocator *> device_allocator{nullptr};
std::atomic<bool> given_up{false};
std::atomic<bool> forked{false};
std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> &others =
    *new std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>>;

// Bytes that storages of the processor's name as well, by their address: others may know that, too.
std::map<uintptr_t, Owner *> &spans = *new std::map<uintptr_t, Owner *>;
// What comes and goes on a device, by the address at which it is found there, or nothing is.
std::map<uintptr_t, Owner *> &places = *new std::map<uintptr_t, Owner *>;

enum class Member { holder, of_host, of_device, user, arriving };

bool is_devices(Member who)
{
    return who == Member::of_device || who == Member::user;
}

// Lock held.
void join(Owner *o, Member who)
{
    o->members++;
    o->on_host += who == Member::of_host;
    o->on_device += who == Member::of_device;
    o->devices += is_devices(who);
    o->arriving += who == Member::arriving;
    active += is_devices(who) || who == Member::arriving;
}

// Lock held. Whether nobody needs it any more.
bool is_last(Owner *o)
{
    if (--o->members || o->stuck)
        return false;
    auto span = spans.find(reinterpret_cast<uintptr_t>(o->data.get()));
    if (span != spans.end() && span->second == o)
        spans.erase(span);
    return true;
}

// The device has let go of it. By the engine's thread, if that took a while.
void closed(void *owner, int err)
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

// Lock held. It stays until it is closed.
swn_device_memory *take_memory(Owner *o)
{
    if (o->swaps)
        places.erase(reinterpret_cast<uintptr_t>(o->address));
    o->closing = true;
    active++;
    o->members++;
    return std::exchange(o->memory, nullptr);
}

// Without the lock: the device is waited for, and that what it has to do may wait for others who want the lock.
void close_memory(Owner *o, swn_device_memory *memory)
{
    if (!o->swaps && !forked) // the engine must not wait for what this thread captures
        swn_devswap_capturing({device_type, static_cast<c10::DeviceIndex>(o->index)});
    int err = host->device_close(memory, &closed, o);
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
        active -= is_devices(who) || who == Member::arriving; // after it counts as being let go of
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

// Of a storage that has taken over the memory of an owner whom it does not name any more.
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

// Whose bytes the storage names, or nullptr: its own. Lock held, unless no other thread knows the storage.
Owner *owner_of(const c10::StorageImpl *storage)
{
    if (!storage)
        return nullptr;
    const at::DataPtr &data = data_of(storage);
    return data.get_deleter() == &drop_host || data.get_deleter() == &drop_device
               ? static_cast<Owner *>(data.get_context())
               : nullptr;
}

template <Member who> struct Leave {
    void operator()(Owner *o) const
    {
        leave(o, who);
    }
};
// What is held is not freed; a storage may come to name something else meanwhile.
using Held = std::unique_ptr<Owner, Leave<Member::holder>>;
using Arriving = std::unique_ptr<Owner, Leave<Member::arriving>>;

// Lock held. The owner of what it names, if that is memory of ours and no buffer.
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

// For a copy out of it. PyTorch's pickling makes a storage of its own over the address of another, which may be that of
// something that comes and goes.
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

// Those that have bytes of these in common with storages of the processor's: numpy and others that know where a tensor
// lies make storages of their own there.
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

// What the storage names from now on; what it did is to be dropped without the lock.
void exchange(c10::StorageImpl *storage, at::DataPtr &data)
{
    std::lock_guard<std::mutex> guard(lock);
    data = storage->set_data_ptr(std::move(data));
}

at::Tensor tensor_over(at::DataPtr data, size_t bytes, c10::Device device, const at::Tensor &like)
{
    auto key = device.is_cpu() ? c10::DispatchKey::CPU : device_key;
    c10::Allocator *allocator = device.is_cpu() ? c10::GetAllocator(c10::kCPU) : device_allocator.load();
    c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, std::move(data), allocator, true);
    at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), like.dtype());
    t.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides());
    return t;
}

// A CPU tensor of the same bytes as this device tensor of `o`.
at::Tensor host_view(const at::Tensor &t, Owner *o) // which is held
{
    {
        std::lock_guard<std::mutex> guard(lock);
        join(o, Member::of_host);
    }
    at::Tensor view = tensor_over({o->data.get(), o, &drop_host, c10::kCPU}, o->bytes, c10::kCPU, t);
    view.unsafeGetTensorImpl()->set_storage_offset(t.storage_offset());
    return view;
}

// The elements in the order in which they lie in memory.
at::Tensor flat(const at::Tensor &t)
{
    at::Tensor f = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(t.storage()),
                                                            c10::DispatchKeySet(c10::DispatchKey::CPU), t.dtype());
    int64_t size = t.numel(), stride = 1;
    f.unsafeGetTensorImpl()->set_sizes_and_strides(at::IntArrayRef(&size, 1), at::IntArrayRef(&stride, 1));
    f.unsafeGetTensorImpl()->set_storage_offset(t.storage_offset());
    return f;
}

// A copy of a dense CPU tensor in memory of its own, which may be registered rather than made.
at::Tensor twin_of(const at::Tensor &self)
{
    c10::InferenceMode ordinary(false); // the tensors of which are not looked into
    at::Tensor twin = at::empty_strided(self.sizes(), self.strides(), self.options().device(at::kCPU));
    at::Tensor to = flat(twin);
    swn_copy_outermost(to, flat(self));
    return twin;
}

bool plain(const at::Tensor &t)
{
    return t.defined() && t.layout() == at::kStrided && t.unsafeGetTensorImpl()->has_storage() && !t.is_conj() &&
           !t.is_neg() && !t.is_quantized() && !t.key_set().has(c10::DispatchKey::Python) &&
           !t.key_set().has(c10::DispatchKey::Functionalize) && t.is_non_overlapping_and_dense();
}

bool whole(const at::Tensor &t)
{
    return t.storage_offset() == 0 && t.nbytes() == t.storage().nbytes();
}

uintptr_t address_of(const at::Tensor &t)
{
    return reinterpret_cast<uintptr_t>(data_of(storage_of(t)).get()) +
           static_cast<uintptr_t>(t.storage_offset()) * t.itemsize();
}

c10::Device current(c10::Device device)
{
    return device.has_index() ? device : c10::impl::VirtualGuardImpl(device_type).getDevice();
}

swn_way way_of(const at::Tensor &self, c10::Device device, bool parameter)
{
    c10::DeviceGuard guard(current(device)); // whose memory is looked at
    auto way =
        static_cast<swn_way>(host->device_way(current(device).index(), address_of(self), self.nbytes(), parameter));
    return way == SWN_WAY_ALIAS && !whole(self) ? SWN_WAY_COPY : way;
}

// Whether a copy with these options has the same elements at the same strides.
bool keeps(const at::Tensor &self, c10::optional<at::ScalarType> dtype, c10::optional<at::Layout> layout,
           c10::optional<bool> pin, c10::optional<at::MemoryFormat> format)
{
    if ((dtype && *dtype != self.scalar_type()) || (layout && *layout != at::kStrided) || (pin && *pin))
        return false;
    return !format || *format == at::MemoryFormat::Preserve || self.is_contiguous(*format);
}

// How a copy that keeps everything gets to the device.
swn_way takes(const at::Tensor &self, c10::Device device)
{
    if (given_up || device.type() != device_type || !self.is_cpu() || !plain(self) || !self.numel())
        return SWN_WAY_COPY;
    return way_of(self, device, self.requires_grad() && self.is_leaf());
}

const char *const written = "a weight that is about to be written",
                  *const compiled = "a weight that compiled code uses",
                  *const taken_by_program = "a weight whose memory the program registers with the driver",
                  *const unlent = "a weight that comes and goes, and cannot for the next operator,",
                  *const in_two_places = "a weight that a CUDA graph is to have the address of";

// It gets memory of its own; without that the program ends, and is told of what.
void detach(c10::StorageImpl *storage, bool keep, const char *what);

// Lock held.
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

// Whoever gives everything up goes by what is remembered: what comes too late for him is given up here.
void remember(const at::Tensor &t)
{
    {
        std::lock_guard<std::mutex> guard(lock);
        enlist(storage_of(t));
    }
    if (given_up)
        detach(storage_of(t), true, compiled);
}

// A device tensor for an owner of whom the lock's holder has made a member of it.
at::Tensor member(Owner *o, c10::Device device, const at::Tensor &like)
{
    c10::Stream stream = c10::impl::VirtualGuardImpl(device_type).getStream(device);
    {
        std::lock_guard<std::mutex> guard(lock);
        if (std::find(o->homes.begin(), o->homes.end(), stream) == o->homes.end())
            o->homes.push_back(stream);
    }
    at::Tensor t = tensor_over({o->address, o, &drop_device, device}, o->bytes, device, like);
    remember(t);
    return t;
}

// A device tensor whose bytes are nobody else's: those of `data`, or, without, a buffer for what is at `from`.
at::Tensor sole(at::DataPtr data, uintptr_t from, size_t bytes, c10::Device device, const at::Tensor &like)
{
    auto *o = new Owner;
    o->memory = host->device_open(device.index(), data ? SWN_WAY_REFERENCE : SWN_WAY_BUFFER, from, bytes, &o->address);
    if (!o->memory) {
        delete o;
        return {};
    }
    o->data = std::move(data);
    o->streams = host->device_streams(o->memory);
    o->swaps = host->device_swaps(o->memory);
    o->bytes = bytes;
    o->index = device.index();
    {
        std::lock_guard<std::mutex> guard(lock);
        join(o, Member::of_device);
        if (o->swaps)
            places[reinterpret_cast<uintptr_t>(o->address)] = o;
    }
    return member(o, device, like);
}

at::Tensor by_reference(const at::Tensor &self, c10::Device device)
{
    if (swn_current_op())
        return {};
    at::Tensor twin = twin_of(self);
    uintptr_t at = address_of(twin);
    bool registered = way_of(twin, device, false) == SWN_WAY_REFERENCE;
    at::DataPtr data = storage_of(twin)->set_data_ptr(at::DataPtr(nullptr, c10::kCPU));
    at::Tensor t = sole(std::move(data), at, self.nbytes(), device, self);
    if (t.defined())
        host->device_moved(registered ? self.nbytes() : 0, registered ? 0 : self.nbytes());
    return t;
}

// Lock held. The owner of a storage of the processor's, which becomes one of its members.
Owner *owned(c10::StorageImpl *storage, size_t bytes)
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

// Until a storage of a device that is to name them is there, and found by others.
Arriving announced(c10::StorageImpl *storage, size_t bytes)
{
    std::lock_guard<std::mutex> guard(lock);
    Owner *o = owned(storage, bytes);
    join(o, Member::arriving);
    return Arriving(o);
}

// The lock, which is held, is let go of meanwhile: that reads from the disk, and asks the driver.
void open_alias(Owner *o, c10::Device device, std::unique_lock<std::mutex> &guard)
{
    o->opening = true;
    guard.unlock();
    void *address = nullptr;
    swn_device_memory *memory = host->device_open(device.index(), SWN_WAY_ALIAS,
                                                  reinterpret_cast<uintptr_t>(o->data.get()), o->bytes, &address);
    bool streams = memory && host->device_streams(memory), swaps = memory && host->device_swaps(memory);
    guard.lock();
    o->opening = false;
    fewer.notify_all();
    o->memory = memory;
    o->address = address;
    o->index = device.index();
    o->homes.clear(); // of storages that are gone
    o->streams = streams;
    o->swaps = swaps;
    if (swaps)
        places[reinterpret_cast<uintptr_t>(address)] = o;
}

at::Tensor by_alias(const at::Tensor &self, c10::Device device)
{
    bool captures = swn_devswap_capturing(device); // that a device may be waiting for
    Arriving arriving = announced(storage_of(self), self.nbytes());
    Owner *o = arriving.get();
    // The program may be having the driver register them: that is seen now if it began before, and else waits for us.
    if (takes(self, device) == SWN_WAY_COPY)
        return {};
    std::unique_lock<std::mutex> guard(lock);
    fewer.wait_for(guard, operators_end, [o, captures] { return !o->opening && (captures || !o->closing); });
    if (o->opening || o->closing || o->stuck || o->captured || (o->devices && o->index != device.index()))
        return {};
    if (!o->devices)
        open_alias(o, device, guard);
    if (!o->memory)
        return {};
    join(o, Member::of_device);
    guard.unlock();
    host->device_moved(self.nbytes(), 0);
    return member(o, device, self);
}

// Its own bytes, or those of a copy that is registered to a store: what PyTorch has mapped lies at any place in its
// file, from which the disk does not read into the device's buffers.
at::Tensor readable(const at::Tensor &self)
{
    uintptr_t at = address_of(self);
    bool mapped = at < __atomic_load_n(&host->mapped[1], __ATOMIC_ACQUIRE) &&
                  at + self.nbytes() > __atomic_load_n(&host->mapped[0], __ATOMIC_ACQUIRE);
    return mapped && !swn_current_op() && host->device_watch() ? twin_of(self) : self;
}

// Whether a copy of it is put into a graph now, to be made whenever that is run: by the device then.
bool in_graph(const at::Tensor &t)
{
    return shared(t) && !forked && swn_devswap_capturing(t.device());
}

// Undefined: PyTorch is to copy it.
at::Tensor to_device(const at::Tensor &self, c10::Device device)
{
    swn_way way = takes(self, device);
    if (way == SWN_WAY_COPY || (way != SWN_WAY_BUFFER && !host->device_watch()))
        return {};
    at::Tensor first = at::empty({0}, self.options().device(device).requires_grad(false)); // wakes the device up
    device_allocator = storage_of(first)->allocator();
    device = current(device);
    if (!swn_devswap_has_streams(device))
        return {};
    c10::DeviceGuard guard(device);
    switch (way) {
    case SWN_WAY_REFERENCE:
        return by_reference(self, device);
    case SWN_WAY_ALIAS:
        return by_alias(self, device);
    default:
        at::Tensor from = readable(self);
        return sole({}, address_of(from), self.nbytes(), device, self);
    }
}

// Whether Python knows the tensor: by its slot for that, which PyTorch has kept in three ways.
template <class I> auto has_object(const I *i, int) -> decltype(i->pyobj_slot()->load_pyobj() != nullptr)
{
    return i->pyobj_slot()->load_pyobj() != nullptr;
}

template <class I>
auto has_object(const I *i, long) -> decltype(const_cast<I *>(i)->pyobj_slot()->pyobj_interpreter() != nullptr)
{
    return const_cast<I *>(i)->pyobj_slot()->pyobj_interpreter() != nullptr;
}

template <class I> bool has_object(const I *i, ...)
{
    return const_cast<I *>(i)->pyobj_interpreter() != nullptr;
}

// Whether a storage is known to a storage object and to a tensor that was made to copy it, and to hardly anybody else:
// the call that makes the copy holds it up to twice.
bool is_passing(const at::Tensor &t)
{
    return plain(t) && t.scalar_type() == at::kByte && t.dim() == 1 && whole(t) &&
           !has_object(t.unsafeGetTensorImpl(), 0) && t.storage().use_count() >= 2 && t.storage().use_count() <= 3;
}

// Whether self.copy_(source) is to be done by letting `self` name the bytes of a checkpoint. So torch.load fills the
// storages that it has allocated on the device: nobody has seen them yet, and they may as well come to lie elsewhere.
bool replaces(const at::Tensor &self, const at::Tensor &source)
{
    if (self.device().type() != device_type || !source.is_cpu() || !is_passing(self) || !is_passing(source) ||
        self.numel() != source.numel() || shared(self))
        return false;
    swn_way way = takes(source, self.device());
    return way == SWN_WAY_REFERENCE || way == SWN_WAY_BUFFER;
}

bool replaced(at::Tensor &self, const at::Tensor &source)
{
    at::Tensor t = replaces(self, source) ? to_device(source, self.device()) : at::Tensor();
    if (!t.defined())
        return false;
    at::DataPtr data(nullptr, self.device());
    std::lock_guard<std::recursive_mutex> serial(moving);
    exchange(storage_of(t), data);
    exchange(storage_of(self), data);
    remember(self);
    return true;
}

// What was launched before may be about to write the memory that the processor is to write: a copy that does not block.
void catch_up(c10::Device device)
{
    c10::impl::VirtualGuardImpl guard(device.type());
    guard.synchronizeStream(guard.getStream(device));
}

at::Tensor to_copy(const at::Tensor &self, c10::optional<at::ScalarType> dtype, c10::optional<at::Layout> layout,
                   c10::optional<at::Device> device, c10::optional<bool> pin, bool non_blocking,
                   c10::optional<at::MemoryFormat> format)
{
    if (device && keeps(self, dtype, layout, pin, format)) {
        at::Tensor t = to_device(self, *device);
        if (t.defined())
            return t;
    }
    Held o(device && device->is_cpu() && on_device(self) && !in_graph(self) ? hold_to_copy(storage_of(self)) : Held());
    if (o) {
        at::Tensor view = host_view(self, o.get());
        if (!forked)
            catch_up(self.device());
        return keeps(self, dtype, layout, pin, format) && plain(self) && !swn_current_op()
                   ? twin_of(view)
                   : at::native::_to_copy(view, dtype, layout, device, pin, non_blocking, format);
    }
    return at::native::_to_copy(self, dtype, layout, device, pin, non_blocking, format);
}

// Whether a kernel of the device's makes the copy, and finds the bytes. The runtime's own copies want to know whose
// memory a pointer names, and of ours they may think otherwise.
bool converts(const at::Tensor &self, const at::Tensor &source, const Owner *o)
{
    return self.device() == source.device() && self.scalar_type() != source.scalar_type() && !forked &&
           (!o->swaps || swn_devswap_has_lent(storage_of(source)));
}

at::Tensor &copy(at::Tensor &self, const at::Tensor &source, bool non_blocking)
{
    if (replaced(self, source))
        return self;
    Held o(on_device(source) && !in_graph(source) ? hold_to_copy(storage_of(source)) : Held());
    at::Tensor view = o && !converts(self, source, o.get()) ? host_view(source, o.get()) : source;
    if (o && self.is_cpu() && !forked)
        catch_up(source.device());
    if (view.is_cpu() && self.device().type() == device_type)
        host->device_moved(0, self.nbytes());
    return at::native::copy_(self, view, non_blocking);
}

// Beside what this thread puts into a graph, for as long as there is one of these.
class Aside
{
  public:
    explicit Aside(c10::Device device) : impl(device.type()), aside(swn_devswap_capturing(device))
    {
        if (!aside)
            return;
        host->device_aside(1);
        graph = impl.exchangeStream(impl.getStreamFromGlobalPool(device));
        // PyTorch hands out the same ones again and again, and the graph's is one of them.
        for (int i = 0; i < streams && swn_devswap_capturing(device); i++)
            impl.exchangeStream(impl.getStreamFromGlobalPool(device));
    }
    ~Aside()
    {
        if (!aside)
            return;
        impl.exchangeStream(*graph);
        host->device_aside(0);
    }
    // What has been allocated meanwhile is used by the graph's stream.
    void use(const at::DataPtr &data) const
    {
        if (aside)
            impl.recordDataPtrOnStream(data, *graph);
    }
    Aside(const Aside &) = delete;
    Aside &operator=(const Aside &) = delete;

  private:
    static constexpr int streams = 64; // more than it has
    c10::impl::VirtualGuardImpl impl;
    bool aside;
    c10::optional<c10::Stream> graph;
};

std::vector<c10::Stream> homes_of(const Owner *o)
{
    std::lock_guard<std::mutex> guard(lock);
    return o->homes;
}

// Not of the graph's own pool, if one is being captured: what it has there is overwritten whenever it runs. The bytes
// are there before it ever does.
at::DataPtr own_memory(c10::Device device, size_t bytes, const Owner *o, bool keep)
{
    auto options = at::TensorOptions().dtype(at::kByte);
    Aside aside(device);
    at::Tensor fresh = at::empty({static_cast<int64_t>(bytes)}, options.device(device));
    if (keep) {
        host->device_moved(0, bytes);
        at::native::copy_(fresh, at::from_blob(o->data.get(), {static_cast<int64_t>(bytes)}, options), false);
    }
    aside.use(data_of(storage_of(fresh)));
    // It is reused in the order of the stream that is current now. The program thinks that it is in that of the one on
    // which it moved the tensor, and may have that go on reading it when the tensor is gone. Which of them that was for
    // this storage nobody knows; one more only has the memory come back later.
    c10::impl::VirtualGuardImpl impl(device.type());
    c10::Stream now = impl.getStream(device);
    for (const c10::Stream &home : homes_of(o))
        if (!(home == now))
            impl.recordDataPtrOnStream(data_of(storage_of(fresh)), home);
    return storage_of(fresh)->set_data_ptr(at::DataPtr(nullptr, device));
}

// numpy and others may know where the processor's storage is: it is the device's that move, and take the bytes along.
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

// Whether that comes true. By the second, so that who is stopped for a while, and goes on, has lost only one of them.
template <class Condition> bool comes_true(std::unique_lock<std::mutex> &guard, Condition condition)
{
    for (int i = 0; i < patience; i++)
        if (fewer.wait_for(guard, std::chrono::seconds(1), condition))
            return true;
    return false;
}

// What other threads are about to have on a device is there, or will not be. It is held.
void wait_for_arrivals(const Owner *o, const char *what)
{
    std::unique_lock<std::mutex> guard(lock);
    if (comes_true(guard, [o] { return !o->arriving; }))
        return;
    guard.unlock();
    host->device_lost(what, "another thread does not come to an end with moving it to the device");
}

// Until no operator of another thread uses it on a device, and what was launched is done, as for who synchronizes. It
// is held.
void wait_for_others(const Owner *o, const char *what)
{
    bool captures = swn_devswap_capturing({device_type, static_cast<c10::DeviceIndex>(o->index)}); // that we wait for
    std::unique_lock<std::mutex> guard(lock);
    auto used = [o] { return o->devices - o->on_device > swn_devswap_holds(o); };
    if (comes_true(guard, [o, captures, used] { return !used() && (captures || !o->closing); }))
        return;
    const char *who = used() ? "an operator of another thread does not come to an end that uses it on the device"
                             : "the device does not come to an end with what was launched";
    guard.unlock();
    host->device_lost(what, who);
}

enum class Taken { yes, no, uncaptured };

// The storage, which is the only one that names what a graph has the address of, is to be written: there, so that the
// graph sees it.
Taken take_over(c10::StorageImpl *storage, Owner *o) // which is held
{
    c10::Device device = storage->device();
    std::unique_lock<std::mutex> guard(lock);
    // What comes and goes has its bytes elsewhere; of others there may be a view in a copy that another thread makes.
    if (!comes_true(guard, [o] { return o->swaps || !o->on_host; }))
        return Taken::no;
    if (sharing(storage) != o)
        return Taken::yes; // by another thread, just now
    void *at = o->swaps ? host->device_stays(o->memory) : o->address;
    if (!at) { // it could not be brought for the graph
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

// The processor's storages keep the bytes of these, and the device's get others.
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

void detach(c10::StorageImpl *storage, bool keep, const char *what)
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
        return; // its own memory, or a buffer, which is the device's alone
    Taken taken = captured(o.get()) ? take_over(storage, o.get()) : Taken::uncaptured;
    if (taken == Taken::no)
        host->device_lost(what, "a CUDA graph has its address");
    if (taken == Taken::yes)
        return;
    std::lock_guard<std::recursive_mutex> serial(moving);
    if (hold(storage) != o)
        return; // another thread has done it
    try {
        // Not seen by the modes of the program, which might have made something else of it.
        c10::impl::ExcludeDispatchKeyGuard ours(c10::DispatchKeySet(
            {c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot, c10::DispatchKey::Functionalize,
             c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::FuncTorchDynamicLayerBackMode}));
        c10::DeviceGuard guard(device);
        if (o->swaps)
            host->device_kept(storage->nbytes(), nullptr);
        at::DataPtr data = own_memory(device, storage->nbytes(), o.get(), keep);
        exchange(storage, data);
    } catch (const c10::Error &e) {
        host->device_lost(what, e.what_without_backtrace());
    } catch (const std::exception &e) {
        host->device_lost(what, e.what());
    }
}

#ifdef SWN_DEVICE_ALLOCATOR
// That of a device that has been used.
c10::DeviceAllocator *caching()
{
    auto *allocator = dynamic_cast<c10::DeviceAllocator *>(c10::GetAllocator(device_type));
    return allocator && allocator->initialized() ? allocator : nullptr;
}
#endif

void before_fork()
{
    lock.lock();
}

void after_fork()
{
    lock.unlock();
}

// A child cannot use a device that its parent has used, so nothing there has to be told apart from its own bytes.
void after_fork_child()
{
    if (device_allocator) {
        forked = true;
        given_up = true;
    }
    lock.unlock();
}

} // namespace

bool swn_unified_active()
{
    return active.load(std::memory_order_relaxed) != 0;
}

void swn_unified_detach(const at::Tensor &tensor, bool keep)
{
    detach(storage_of(tensor), keep, written);
}

void swn_unified_give_up()
{
    if (given_up.exchange(true))
        return;
    host->device_given_up();
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
        int err = host->device_pin(o->memory, reinterpret_cast<uintptr_t>(o->data.get()), o->bytes);
        std::lock_guard<std::mutex> guard(lock);
        o->captured = !err;
        o->streams = err != 0;
    }
    if (!captured(o.get()))
        detach(storage, true, in_two_places);
}

void swn_unified_put_back(c10::StorageImpl *storage, const void *owner, void *from, void *to)
{
    std::lock_guard<std::mutex> guard(lock);
    if (sharing(storage) == owner)
        __atomic_compare_exchange_n(reinterpret_cast<void **>(const_cast<at::DataPtr *>(&data_of(storage))), &from, to,
                                    false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

void swn_unified_let_go(void *owner)
{
    leave(static_cast<Owner *>(owner), Member::user);
}

void swn_unified_keep(c10::StorageImpl *storage, const char *operator_name)
{
    if (operator_name)
        host->device_kept(0, operator_name);
    detach(storage, true, unlent);
}

bool swn_unified_takes(c10::ArrayRef<const c10::IValue> inputs)
{
    if (inputs.size() != 7 || !inputs[0].isTensor() || !inputs[3].isDevice())
        return false;
    const at::Tensor &self = inputs[0].toTensor();
    c10::Device device = inputs[3].toDevice();
    if (!self.defined() || (!self.is_cpu() && (!shared(self) || in_graph(self))))
        return false;
    if (!keeps(self, inputs[1].toOptional<at::ScalarType>(), inputs[2].toOptional<at::Layout>(),
               inputs[4].toOptional<bool>(), inputs[6].toOptional<at::MemoryFormat>()))
        return false;
    return self.is_cpu() ? takes(self, device) != SWN_WAY_COPY : device.is_cpu() && plain(self);
}

bool swn_unified_replaces(c10::ArrayRef<const c10::IValue> inputs)
{
    return inputs.size() == 3 && inputs[0].isTensor() && inputs[1].isTensor() &&
           replaces(inputs[0].toTensor(), inputs[1].toTensor());
}

size_t swn_unified_idle(int device)
{
#ifdef SWN_DEVICE_ALLOCATOR
    try {
        c10::DeviceAllocator *allocator = caching();
        if (!allocator)
            return 0;
        auto stats = allocator->getDeviceStats(static_cast<c10::DeviceIndex>(device));
        int64_t idle = stats.reserved_bytes[0].current - stats.allocated_bytes[0].current;
        return idle > 0 ? static_cast<size_t>(idle) : 0;
    } catch (const std::exception &) {
        return 0;
    }
#else
    (void)device;
    return 0;
#endif
}

void swn_unified_trim(int device)
{
#ifdef SWN_DEVICE_ALLOCATOR
    try {
        c10::DeviceGuard guard({device_type, static_cast<c10::DeviceIndex>(device)});
        if (c10::DeviceAllocator *allocator = caching())
            allocator->emptyCache();
    } catch (const std::exception &) {
        // It was only a try.
    }
#else
    (void)device;
#endif
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

bool swn_unified_in_graph(const at::Tensor &tensor)
{
    return in_graph(tensor);
}

void swn_unified_register(const swn_host *h)
{
    host = h;
    bool cuda = h->device_type == SWN_DEVICE_CUDA;
    device_type = cuda ? c10::DeviceType::CUDA : c10::DeviceType::PrivateUse1;
    device_key = cuda ? c10::DispatchKey::CUDA : c10::DispatchKey::PrivateUse1;
    pthread_atfork(before_fork, after_fork, after_fork_child);
    // Never destroyed, see above.
    auto *library = new torch::Library(torch::Library::IMPL, "aten", device_key, swn_kernels_source, __LINE__);
    library->impl("_to_copy", to_copy);
    library->impl("copy_", copy);
    swn_pinned_register();
}
