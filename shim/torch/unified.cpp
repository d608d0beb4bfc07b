// shim/torch/unified.cpp - see unified.h.
#include "shim/torch/unified.h"

#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/copy_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include "shim/torch/compat.h"
#if SWN_HAS_DEVICE_ALLOCATOR
#include <c10/core/CachingDeviceAllocator.h>
#endif

#include <algorithm>
#include <chrono>
#include <mutex>
#include <vector>

#include "shim/torch/device_swap.h"
#include "shim/torch/dispatch_check.h"
#include "shim/torch/owners.h"
#include "shim/torch/slices.h"
#include "shim/torch/services.h"
#include "shim/torch/tensor_checks.h"

using namespace swn_owners;

namespace
{

// An operator of another thread ends at some time, unless it waits for this one. A caller that has an alternative waits
// this long.
constexpr auto operators_end = std::chrono::seconds(30);

at::Tensor tensor_over(at::DataPtr data, size_t bytes, c10::Device device, const at::Tensor &like)
{
    auto key = device.is_cpu() ? c10::DispatchKey::CPU : device_key;
    c10::Allocator *allocator = device.is_cpu() ? c10::GetAllocator(c10::kCPU) : device_allocator.load();
    c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, std::move(data), allocator, true);
    at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), like.dtype());
    t.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides());
    return t;
}

// A CPU tensor with the same bytes as this device tensor of `o`.
at::Tensor host_view(const at::Tensor &t, Owner *o) // `o` is held
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

// A copy of a dense CPU tensor in its own memory, which may be registered instead of made.
at::Tensor twin_of(const at::Tensor &self)
{
    c10::InferenceMode ordinary(false); // tensors of inference mode are not inspected
    at::Tensor twin = at::empty_strided(self.sizes(), self.strides(), self.options().device(at::kCPU));
    at::Tensor to = flat(twin);
    swn_copy_outermost(to, flat(self));
    return twin;
}

bool is_plain(const at::Tensor &t)
{
    return swn_has_own_storage(t) && t.layout() == at::kStrided && !t.is_conj() && !t.is_neg() && !t.is_quantized() &&
           t.is_non_overlapping_and_dense();
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
    c10::DeviceGuard guard(current(device)); // the device whose memory is inspected
    auto way = static_cast<swn_way>(
        swn_services->device.way(current(device).index(), address_of(self), self.nbytes(), parameter));
    return way == SWN_WAY_ALIAS && !whole(self) ? SWN_WAY_COPY : way;
}

// Whether a copy with these options has the same elements at the same strides.
bool keeps_all(const at::Tensor &self, swn_optional<at::ScalarType> dtype, swn_optional<at::Layout> layout,
               swn_optional<bool> pin, swn_optional<at::MemoryFormat> format)
{
    if ((dtype && *dtype != self.scalar_type()) || (layout && *layout != at::kStrided) || (pin && *pin))
        return false;
    return !format || *format == at::MemoryFormat::Preserve || self.is_contiguous(*format);
}

// How a copy that keeps everything reaches the device.
swn_way takes(const at::Tensor &self, c10::Device device)
{
    if (given_up || device.type() != device_type || !self.is_cpu() || !is_plain(self) || !self.numel() ||
        swn_copied_on_write(self.storage()))
        return SWN_WAY_COPY;
    return way_of(self, device, self.requires_grad() && self.is_leaf());
}

// swn_unified_give_up goes through the remembered tensors; a tensor that comes too late for it is given up here.
void remember(const at::Tensor &t)
{
    {
        std::lock_guard<std::mutex> guard(lock);
        enlist(storage_of(t));
    }
    if (given_up)
        detach(storage_of(t), true, compiled);
}

// A device tensor for an owner in which the caller, holding the lock, has made room for a member.
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

// A device tensor that shares its bytes with no other: those of `data`, or, without data, a buffer for the bytes at
// `from`.
at::Tensor sole(at::DataPtr data, uintptr_t from, size_t bytes, c10::Device device, const at::Tensor &like)
{
    auto *o = new Owner;
    o->memory =
        swn_services->device.open(device.index(), data ? SWN_WAY_REFERENCE : SWN_WAY_BUFFER, from, bytes, &o->address);
    if (!o->memory) {
        delete o;
        return {};
    }
    o->data = std::move(data);
    o->streams = swn_services->device.streams(o->memory);
    o->swaps = swn_services->device.swaps(o->memory);
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
        swn_services->device.moved(registered ? self.nbytes() : 0, registered ? 0 : self.nbytes());
    return t;
}

// Releases the lock, which is held, meanwhile: this reads from the disk, and calls the driver.
void open_alias(Owner *o, c10::Device device, std::unique_lock<std::mutex> &guard)
{
    o->opening = true;
    guard.unlock();
    void *address = nullptr;
    swn_device_memory *memory = swn_services->device.open(
        device.index(), SWN_WAY_ALIAS, reinterpret_cast<uintptr_t>(o->data.get()), o->bytes, &address);
    bool streams = memory && swn_services->device.streams(memory), swaps = memory && swn_services->device.swaps(memory);
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
    bool captures = swn_devswap_capturing(device); // the device may be waiting for a capture
    Arriving arriving = announced(storage_of(self), self.nbytes());
    Owner *o = arriving.get();
    // The program may be registering the bytes with the driver: a registration that began before is seen now, and a
    // later one waits.
    if (given_up || swn_services->device.programs(address_of(self)))
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
    swn_services->device.moved(self.nbytes(), 0);
    return member(o, device, self);
}

// The tensor itself, or a copy that is registered to a store: a tensor in a file that PyTorch mapped may have any
// offset, and the disk reads into the device's buffers from aligned offsets only.
at::Tensor readable(const at::Tensor &self)
{
    uintptr_t at = address_of(self);
    bool mapped = at < __atomic_load_n(&swn_services->mapped[1], __ATOMIC_ACQUIRE) &&
                  at + self.nbytes() > __atomic_load_n(&swn_services->mapped[0], __ATOMIC_ACQUIRE);
    return mapped && !swn_current_op() && swn_services->device.watch() ? twin_of(self) : self;
}

// Whether a copy of the tensor is captured into a graph now, so that the device makes it whenever the graph runs.
bool in_graph(const at::Tensor &t)
{
    return shared(t) && !forked && swn_devswap_capturing(t.device());
}

// Undefined: PyTorch has to copy it.
at::Tensor to_device(const at::Tensor &self, c10::Device device)
{
    swn_way way = takes(self, device);
    if (way == SWN_WAY_COPY || (way != SWN_WAY_BUFFER && !swn_services->device.watch()))
        return {};
    at::Tensor first = at::empty({0}, self.options().device(device).requires_grad(false)); // initialises the device
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

// Whether Python knows the tensor: by its slot for the Python object, which PyTorch has implemented in three ways.
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

// Whether only one storage object, and one tensor that was made for copying, know the storage; the call that makes the
// copy holds it up to twice.
bool is_passing(const at::Tensor &t)
{
    return is_plain(t) && t.scalar_type() == at::kByte && t.dim() == 1 && whole(t) &&
           !has_object(t.unsafeGetTensorImpl(), 0) && t.storage().use_count() >= 2 && t.storage().use_count() <= 3;
}

// Whether self.copy_(source) can be done by letting `self` name the bytes of a checkpoint. torch.load fills storages in
// this way that it has just allocated on the device: no other code has seen them, so their address may change.
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

// Work that was launched before may still write the memory that the processor is about to write: a non-blocking copy.
void catch_up(c10::Device device)
{
    c10::impl::VirtualGuardImpl guard(device.type());
    guard.synchronizeStream(guard.getStream(device));
}

at::Tensor to_copy(const at::Tensor &self, swn_optional<at::ScalarType> dtype, swn_optional<at::Layout> layout,
                   swn_optional<at::Device> device, swn_optional<bool> pin, bool non_blocking,
                   swn_optional<at::MemoryFormat> format)
{
    if (device && keeps_all(self, dtype, layout, pin, format)) {
        at::Tensor t = to_device(self, *device);
        if (t.defined())
            return t;
    }
    Held o(device && device->is_cpu() && on_device(self) && !in_graph(self) ? hold_to_copy(storage_of(self)) : Held());
    if (o) {
        at::Tensor view = host_view(self, o.get());
        if (!forked)
            catch_up(self.device());
        return keeps_all(self, dtype, layout, pin, format) && is_plain(self) && !swn_current_op()
                   ? twin_of(view)
                   : at::native::_to_copy(view, dtype, layout, device, pin, non_blocking, format);
    }
    return at::native::_to_copy(self, dtype, layout, device, pin, non_blocking, format);
}

// Whether a kernel of the device makes the copy, and can read the bytes. The runtime's own copies ask for the owner
// of a pointer's memory, and may judge swapnet's memory wrongly.
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
        swn_services->device.moved(0, self.nbytes());
    return at::native::copy_(self, view, non_blocking);
}

#if SWN_HAS_DEVICE_ALLOCATOR
// The allocator of a device that has been used.
c10::DeviceAllocator *caching()
{
    auto *allocator = dynamic_cast<c10::DeviceAllocator *>(c10::GetAllocator(device_type));
    return allocator && allocator->initialized() ? allocator : nullptr;
}
#endif

} // namespace

bool swn_unified_takes(c10::ArrayRef<const c10::IValue> inputs)
{
    if (inputs.size() != 7 || !inputs[0].isTensor() || !inputs[3].isDevice())
        return false;
    const at::Tensor &self = inputs[0].toTensor();
    c10::Device device = inputs[3].toDevice();
    if (!self.defined() || (!self.is_cpu() && (!shared(self) || in_graph(self))))
        return false;
    if (!keeps_all(self, inputs[1].toOptional<at::ScalarType>(), inputs[2].toOptional<at::Layout>(),
                   inputs[4].toOptional<bool>(), inputs[6].toOptional<at::MemoryFormat>()))
        return false;
    return self.is_cpu() ? takes(self, device) != SWN_WAY_COPY : device.is_cpu() && is_plain(self);
}

bool swn_unified_replaces(c10::ArrayRef<const c10::IValue> inputs)
{
    return inputs.size() == 3 && inputs[0].isTensor() && inputs[1].isTensor() &&
           replaces(inputs[0].toTensor(), inputs[1].toTensor());
}

size_t swn_unified_idle(int device)
{
#if SWN_HAS_DEVICE_ALLOCATOR
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
#if SWN_HAS_DEVICE_ALLOCATOR
    try {
        c10::DeviceGuard guard({device_type, static_cast<c10::DeviceIndex>(device)});
        if (c10::DeviceAllocator *allocator = caching())
            allocator->emptyCache();
    } catch (const std::exception &) {
        // Failure is allowed here.
    }
#else
    (void)device;
#endif
}

bool swn_unified_in_graph(const at::Tensor &tensor)
{
    return in_graph(tensor);
}

void swn_unified_register()
{
    bool cuda = swn_services->device.type == SWN_DEVICE_CUDA;
    device_type = cuda ? c10::DeviceType::CUDA : c10::DeviceType::PrivateUse1;
    device_key = cuda ? c10::DispatchKey::CUDA : c10::DispatchKey::PrivateUse1;
    register_fork_handlers();
    // Never destroyed, see above.
    auto *library = new torch::Library(torch::Library::IMPL, "aten", device_key, swn_kernels_source, __LINE__);
    library->impl("_to_copy", to_copy);
    library->impl("copy_", copy);
    swn_pinned_register();
}
