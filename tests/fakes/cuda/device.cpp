// A device for PyTorch's PrivateUse1 key over the stand-in for the CUDA runtime: its kernels are the processor's, on
// what is behind the device's pointers. Beside each operator the stand-in launches a kernel that goes on reading the
// operator's tensors for a while after it has returned, as a GPU's do.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#include <torch/version.h>

#include <cstdlib>
#if TORCH_VERSION_MAJOR > 1
#include <ATen/detail/PrivateUse1HooksInterface.h>
#endif
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 9)
#define STANDIN_ALLOCATOR_SAYS
#include <c10/core/CachingDeviceAllocator.h>
#endif

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include <unistd.h>

#include "tests/fakes/cuda/standin.h"

namespace
{

constexpr auto type = c10::DeviceType::PrivateUse1;

c10::Device current_device()
{
    int index = 0;
    cudaGetDevice(&index);
    return {type, static_cast<c10::DeviceIndex>(index)};
}

#ifdef STANDIN_ALLOCATOR_SAYS
using Allocator = c10::DeviceAllocator;
#else
using Allocator = c10::Allocator;
#endif

// The stream that this thread launches on; 0 waits for all others, and they for it.
thread_local int64_t current_stream = 0;
constexpr int64_t pooled_streams[] = {16, 0x4000, 0x4010}; // handed out in turn; tests capture the first one

void *native_stream()
{
    return reinterpret_cast<void *>(current_stream);
}

// That some memory's use was recorded on.
std::mutex recorded_lock;
std::set<int64_t> recorded;

std::atomic<bool> hides_streams{std::getenv("STANDIN_HIDES_STREAMS") != nullptr};

// Whether what this thread launches is put into a graph.
bool captured()
{
    int status = 0;
    cudaStreamIsCapturing(native_stream(), &status);
    return status != 0;
}

// What PyTorch's allocator does, no capture minds.
struct Relaxed {
    int mode = 2;
    Relaxed()
    {
        cudaThreadExchangeStreamCaptureMode(&mode);
    }
    ~Relaxed()
    {
        cudaThreadExchangeStreamCaptureMode(&mode);
    }
    Relaxed(const Relaxed &) = delete;
    Relaxed &operator=(const Relaxed &) = delete;
};

// Memory that is taken while a graph is captured is the graph's, until another one is begun.
std::mutex pool_lock;
std::map<void *, size_t> pool, pool_unused;

struct Memory final : Allocator {
    static void drop(void *p)
    {
        {
            std::lock_guard<std::mutex> guard(pool_lock);
            auto mine = pool.find(p);
            if (mine != pool.end()) {
                pool_unused.insert(*mine);
                return;
            }
        }
        Relaxed relaxed;
        cudaFree(p);
    }
    // What an operator of the same graph has let go of.
    static void *again(size_t n)
    {
        std::lock_guard<std::mutex> guard(pool_lock);
        for (auto &unused : pool_unused)
            if (unused.second == n) {
                void *p = unused.first;
                pool_unused.erase(p);
                return p;
            }
        return nullptr;
    }
    static c10::DataPtr make(size_t n)
    {
        void *p = n && captured() ? again(n) : nullptr;
        Relaxed relaxed;
        if (n && !p && cudaMalloc(&p, n))
            TORCH_CHECK_WITH(OutOfMemoryError, false, "the device has no memory left");
        if (p && captured()) {
            std::lock_guard<std::mutex> guard(pool_lock);
            pool[p] = n;
        }
        return {p, p, &drop, current_device()};
    }
    static void forget_pool()
    {
        std::map<void *, size_t> unused;
        {
            std::lock_guard<std::mutex> guard(pool_lock);
            unused.swap(pool_unused);
            pool.clear();
        }
        Relaxed relaxed;
        for (auto &p : unused)
            cudaFree(p.first);
    }
#if SWAPNET_TORCH_MAJOR == 1
    c10::DataPtr allocate(size_t n) const override
    {
        return make(n);
    }
#else
    c10::DataPtr allocate(size_t n) override
    {
        return make(n);
    }
    void copy_data(void *to, const void *from, size_t n) const override
    {
        cudaMemcpy(to, from, n, 4);
    }
#endif
#ifdef STANDIN_ALLOCATOR_SAYS
    bool initialized() override
    {
        return true;
    }
    void emptyCache(c10::MempoolId_t) override
    {
        standin_trim();
    }
    void recordStream(const c10::DataPtr &, c10::Stream) override
    {
    }
    c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override
    {
        c10::CachingDeviceAllocator::DeviceStats stats;
        stats.reserved_bytes[0].current = static_cast<int64_t>(standin_idle());
        return stats;
    }
    void resetAccumulatedStats(c10::DeviceIndex) override
    {
    }
    void resetPeakStats(c10::DeviceIndex) override
    {
    }
#endif
    c10::DeleterFnPtr raw_deleter() const override
    {
        return &drop;
    }
};
Memory memory;

// Of the processor's, which the device reaches.
c10::DataPtr make_pinned(size_t n)
{
    void *p = nullptr;
    TORCH_CHECK(!n || !cudaHostAlloc(&p, n, 0), "no pinned memory left");
    return {p, p, [](void *at) { cudaFreeHost(at); }, at::kCPU};
}

bool is_pinned(const void *p)
{
    standin_pointer found;
    return !cudaPointerGetAttributes(&found, p) && found.type == 1;
}

#if SWAPNET_TORCH_MAJOR == 1
at::Tensor pin_memory(const at::Tensor &t, c10::optional<c10::Device>)
{
    c10::Storage storage(c10::Storage::use_byte_size_t(), t.storage().nbytes(), make_pinned(t.storage().nbytes()),
                         nullptr, false);
    at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(std::move(storage),
                                                               c10::DispatchKeySet(c10::DispatchKey::CPU), t.dtype());
    made.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides());
    return made.copy_(t);
}

bool tensor_is_pinned(const at::Tensor &t, c10::optional<c10::Device>)
{
    return is_pinned(t.storage().data());
}
#else
struct Pinned final : c10::Allocator {
    c10::DataPtr allocate(size_t n) override
    {
        return make_pinned(n);
    }
    void copy_data(void *to, const void *from, size_t n) const override
    {
        std::memcpy(to, from, n);
    }
};

struct Hooks final : at::PrivateUse1HooksInterface {
    bool isPinnedPtr(const void *p) const override
    {
        return is_pinned(p);
    }
    c10::Allocator *getPinnedMemoryAllocator() const override
    {
        static Pinned pinned;
        return &pinned;
    }
    bool hasPrimaryContext(c10::DeviceIndex) const override
    {
        return true;
    }
    bool isBuilt() const override
    {
        return true;
    }
    bool isAvailable() const override
    {
        return true;
    }
};
#endif

struct Guard final : c10::impl::DeviceGuardImplInterface {
    c10::DeviceType type() const override
    {
        return ::type;
    }
    c10::Device exchangeDevice(c10::Device to) const override
    {
        c10::Device before = getDevice();
        uncheckedSetDevice(to);
        return before;
    }
    c10::Device getDevice() const override
    {
        return current_device();
    }
    void setDevice(c10::Device to) const override
    {
        uncheckedSetDevice(to);
    }
    void uncheckedSetDevice(c10::Device to) const noexcept override
    {
        if (to.has_index() && to != current_device())
            cudaSetDevice(to.index());
    }
    c10::Stream getStream(c10::Device device) const noexcept override
    {
        return c10::Stream(c10::Stream::UNSAFE, device.has_index() ? device : getDevice(), current_stream);
    }
    c10::Stream getStreamFromGlobalPool(c10::Device device, bool = false) const override
    {
        static std::atomic<int64_t> given{0};
        return c10::Stream(c10::Stream::UNSAFE, device, pooled_streams[given++ % 3]);
    }
    c10::Stream exchangeStream(c10::Stream to) const noexcept override
    {
        c10::Stream before = getStream(getDevice());
        current_stream = to.id();
        return before;
    }
    void recordDataPtrOnStream(const c10::DataPtr &, const c10::Stream &stream) const override
    {
        std::lock_guard<std::mutex> guard(recorded_lock);
        recorded.insert(stream.id());
    }
    void synchronizeStream(const c10::Stream &stream) const override
    {
        cudaStreamSynchronize(reinterpret_cast<void *>(stream.id()));
    }
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 11)
    void *getStreamNativeHandle(const c10::Stream stream) const override
    {
        TORCH_CHECK(!hides_streams, "no streams");
        return reinterpret_cast<void *>(stream.id());
    }
#endif
    c10::DeviceIndex deviceCount() const noexcept override
    {
        return 2;
    }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

// The same elements as a tensor of the processor's.
at::Tensor view_of(const at::Tensor &t)
{
    if (!t.defined() || t.device().type() != type)
        return t;
    auto options = at::TensorOptions().dtype(t.dtype()).device(at::kCPU);
    if (!t.numel())
        return at::empty_strided(t.sizes(), t.strides(), options);
    return at::from_blob(standin_view(t.data_ptr()), t.sizes(), t.strides(), options);
}

at::Tensor on_device(const at::Tensor &t, c10::Device device)
{
    at::Tensor made = at::empty_strided(t.sizes(), t.strides(), t.options().device(device));
    view_of(made).copy_(t);
    return made;
}

at::Tensor &set_storage(at::Tensor &self, at::Storage source, int64_t offset, c10::IntArrayRef size,
                        c10::IntArrayRef stride)
{
    auto *impl = self.unsafeGetTensorImpl();
    impl->set_storage_keep_dtype(std::move(source));
    impl->set_sizes_and_strides(size, stride);
    impl->set_storage_offset(offset);
    return self;
}

struct Launch {
    std::vector<const void *> stretches;
    std::vector<size_t> bytes;

    void read(const at::Tensor &t)
    {
        if (!t.numel() || !t.is_non_overlapping_and_dense())
            return;
        stretches.push_back(t.data_ptr());
        bytes.push_back(t.nbytes());
    }
    void go()
    {
        static const char *us = std::getenv("STANDIN_KERNEL_US");
        if (!stretches.empty())
            standin_launch(native_stream(), us ? static_cast<unsigned>(std::atoi(us)) : 300, stretches.data(),
                           bytes.data(), static_cast<unsigned>(stretches.size()));
    }
};

bool has_tensors(const c10::List<c10::IValue> &list)
{
    for (size_t i = 0; i < list.size(); i++)
        if (c10::IValue(list.get(i)).isTensor())
            return true;
    return false;
}

// How long this thread's next operator takes before it computes.
thread_local unsigned delay_us = 0;
// How many operators do so now.
std::atomic<int> delayed{0};

// Device tensors become views, and views that come back the tensors that they are of.
struct Translation {
    Launch launch;
    c10::Device device = current_device(); // of what it is about
    std::unordered_map<void *, at::Tensor> written;

    at::Tensor in(const at::Tensor &t, bool writes)
    {
        if (!t.defined() || t.device().type() != type)
            return t;
        device = t.device();
        at::Tensor view = view_of(t);
        if (writes)
            written[view.unsafeGetTensorImpl()] = t;
        else
            launch.read(t);
        return view;
    }
    at::Tensor out(const at::Tensor &t)
    {
        if (!t.defined())
            return t;
        auto same = written.find(t.unsafeGetTensorImpl());
        if (same == written.end())
            return on_device(t, device);
        if (same->second.sizes() != t.sizes()) { // it was given a size by being written
            at::Tensor made = on_device(t, device);
            set_storage(same->second, made.storage(), 0, made.sizes(), made.strides());
        }
        return same->second;
    }
    c10::IValue in(const c10::IValue &value, bool writes)
    {
        if (value.isTensor())
            return in(value.toTensor(), writes);
        if (value.isDevice() && value.toDevice().type() == type) {
            device = value.toDevice().has_index() ? value.toDevice() : device;
            return c10::Device(at::kCPU);
        }
        if (value.isTensorList()) {
            c10::List<at::Tensor> list;
            for (const at::Tensor &t : value.toTensorVector())
                list.push_back(in(t, writes));
            return list;
        }
        if (value.isList() && has_tensors(value.toList())) {
            c10::List<c10::optional<at::Tensor>> list;
            const auto all = value.toList();
            for (size_t i = 0; i < all.size(); i++) {
                c10::IValue item = all.get(i);
                list.push_back(item.isTensor() ? c10::optional<at::Tensor>(in(item.toTensor(), writes)) : c10::nullopt);
            }
            return list;
        }
        return value;
    }
    c10::IValue out(const c10::IValue &value)
    {
        if (value.isTensor())
            return out(value.toTensor());
        if (!value.isTensorList())
            return value;
        c10::List<at::Tensor> list;
        for (const at::Tensor &t : value.toTensorVector())
            list.push_back(out(t));
        return list;
    }
};

// What has been put into the graph, with the addresses that it had then. It is also computed at once, by nobody's
// kernel.
std::vector<std::function<void()>> graph;

// An operator begins when the one before is done; one that is put into a graph does not begin at all.
void turn()
{
    if (!captured())
        cudaStreamSynchronize(native_stream());
}

void fallback(const c10::OperatorHandle &op, torch::jit::Stack *stack)
{
    const auto &args = op.schema().arguments();
    Translation t;
    size_t first = stack->size() - args.size();
    turn();
    for (size_t i = 0; i < args.size(); i++) {
        bool writes = args[i].alias_info() && args[i].alias_info()->isWrite();
        (*stack)[first + i] = t.in((*stack)[first + i], writes);
    }
    if (delay_us) {
        delayed++;
        usleep(std::exchange(delay_us, 0));
        delayed--;
    }
    torch::jit::Stack again(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
    size_t results = op.schema().returns().size();
    std::vector<at::Tensor> made; // views of what is no input
    for (size_t i = stack->size() - results; i < stack->size(); i++) {
        bool is_new = (*stack)[i].isTensor() && !t.written.count((*stack)[i].toTensor().unsafeGetTensorImpl());
        (*stack)[i] = t.out((*stack)[i]);
        made.push_back(is_new ? view_of((*stack)[i].toTensor()) : at::Tensor());
    }
    if (!captured())
        t.launch.go();
    else
        graph.emplace_back([op, again, launch = t.launch, made]() mutable {
            torch::jit::Stack inputs = again;
            op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &inputs);
            for (size_t i = 0; i < made.size(); i++)
                if (made[i].defined())
                    made[i].copy_(inputs[i].toTensor());
            launch.go();
        });
}

at::Tensor empty(c10::IntArrayRef size, c10::optional<at::ScalarType> dtype, c10::optional<at::Layout>,
                 c10::optional<at::Device> device, c10::optional<bool>, c10::optional<at::MemoryFormat> format)
{
    c10::OptionalDeviceGuard guard(device);
    return at::detail::empty_generic(size, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                     c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, c10::optional<at::ScalarType> dtype,
                         c10::optional<at::Layout>, c10::optional<at::Device> device, c10::optional<bool>)
{
    c10::OptionalDeviceGuard guard(device);
    return at::detail::empty_strided_generic(size, stride, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                             c10::dtype_or_default(dtype));
}

// The copy engine has been at the processor's tensor.
void reached(const at::Tensor &t)
{
    if (t.is_cpu() && t.numel() && t.is_non_overlapping_and_dense())
        standin_reached(t.data_ptr(), t.nbytes());
}

at::Tensor copy_from(const at::Tensor &from, const at::Tensor &to, bool non_blocking)
{
    if (non_blocking && to.is_cpu() && from.is_contiguous() && to.is_contiguous() && from.dtype() == to.dtype()) {
        auto copy = [to = to.data_ptr(), from = from.data_ptr(), bytes = from.nbytes()] {
            cudaMemcpyAsync(to, from, bytes, 2, native_stream());
        };
        copy();
        if (captured())
            graph.emplace_back(copy);
        return to;
    }
    // A copy engine that goes to pageable memory itself, as those of GH200 and Thor do, some time after the call.
    if (non_blocking && from.is_cpu() && !to.is_cpu() && !captured() && std::getenv("STANDIN_COPIES_LATER") &&
        from.is_contiguous() && to.is_contiguous() && from.dtype() == to.dtype()) {
        standin_launch(native_stream(), 5000, nullptr, nullptr, 0);
        cudaMemcpyAsync(to.data_ptr(), from.data_ptr(), from.nbytes(), 1, native_stream());
        return to;
    }
    bool in_graph = captured() && !from.is_cpu() && !to.is_cpu();
    for (const at::Tensor &t : {from, to}) {
        c10::OptionalDeviceGuard guard(t.is_cpu() ? c10::optional<c10::Device>() : t.device());
        TORCH_CHECK(in_graph || !standin_wait(native_stream()), "operation not permitted when stream is capturing");
    }
    at::Tensor here = view_of(from), there = view_of(to);
    reached(from);
    there.copy_(here);
    reached(to);
    if (in_graph)
        graph.emplace_back([here, there]() mutable { there.copy_(here); });
    return to;
}

at::Tensor as_strided(const at::Tensor &self, c10::IntArrayRef size, c10::IntArrayRef stride,
                      c10::optional<int64_t> offset)
{
    return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

at::Tensor view(const at::Tensor &self, c10::IntArrayRef size)
{
    return at::native::view(self, size);
}

at::Tensor &set_whole_storage(at::Tensor &self, at::Storage source)
{
    int64_t n = static_cast<int64_t>(source.nbytes() / self.itemsize()), step = 1;
    return set_storage(self, std::move(source), 0, n, step);
}

// A tensor in a storage of the device's that has been filled as torch.load does it.
at::Tensor load(const at::Tensor &t)
{
    auto bytes = at::TensorOptions().dtype(at::kByte);
    c10::Device device = current_device();
    c10::Storage there(c10::Storage::use_byte_size_t(), t.storage().nbytes(), Memory::make(t.storage().nbytes()),
                       &memory, true);
    at::Tensor to = at::empty({0}, bytes.device(device)).set_(there), from = at::empty({0}, bytes).set_(t.storage());
    to.copy_(from);
    at::Tensor made = at::empty({0}, t.options().device(device));
    return set_storage(made, there, t.storage_offset(), t.sizes(), t.strides());
}

at::Tensor convolution(const at::Tensor &input, const at::Tensor &weight, const c10::optional<at::Tensor> &bias,
                       c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed,
                       c10::IntArrayRef output_padding, int64_t groups)
{
    Translation t;
    turn();
    c10::optional<at::Tensor> b;
    if (bias && bias->defined())
        b = t.in(*bias, false);
    auto compute = [input = t.in(input, false), weight = t.in(weight, false), b, stride = stride.vec(),
                    padding = padding.vec(), dilation = dilation.vec(), transposed,
                    output_padding = output_padding.vec(), groups] {
        return at::convolution(input, weight, b, stride, padding, dilation, transposed, output_padding, groups);
    };
    at::Tensor out = t.out(compute());
    if (!captured())
        t.launch.go();
    else
        graph.emplace_back([compute, launch = t.launch, there = view_of(out)]() mutable {
            there.copy_(compute());
            launch.go();
        });
    return out;
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m)
{
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

#if SWAPNET_TORCH_MAJOR == 1 // later ones have it
TORCH_LIBRARY_IMPL(_, AutogradPrivateUse1, m)
{
    m.fallback(torch::CppFunction::makeFallthrough());
}
#endif

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m)
{
    m.impl("empty.memory_format", empty);
    m.impl("empty_strided", empty_strided);
    m.impl("_copy_from", copy_from);
    m.impl("as_strided", as_strided);
    m.impl("view", view);
    m.impl("set_.source_Storage_storage_offset", set_storage);
    m.impl("set_.source_Storage", set_whole_storage);
    m.impl("convolution_overrideable", convolution);
#if SWAPNET_TORCH_MAJOR == 1
    m.impl("is_pinned", tensor_is_pinned);
    m.impl("_pin_memory", pin_memory);
#endif
}

TORCH_LIBRARY(standin, m)
{
    m.def("load(Tensor t) -> Tensor", &load);
}

const int registered = [] {
    // As that of CUDA was unknown to others in older versions.
    if (!std::getenv("STANDIN_HIDES_ALLOCATOR"))
        c10::SetAllocator(type, &memory);
#if SWAPNET_TORCH_MAJOR > 1
    at::RegisterPrivateUse1HooksInterface(new Hooks);
    at::globalContext().lazyInitDevice(type);
#endif
    return 0;
}();

} // namespace

extern "C" __attribute__((visibility("default"))) void standin_use_stream(int64_t stream)
{
    current_stream = stream;
}

// As torch.cuda.cudart() does it: this library calls the runtime that it is linked with, and does something afterwards.
extern "C" __attribute__((visibility("default"))) int standin_host_register(void *p, size_t bytes, unsigned flags)
{
    int err = cudaHostRegister(p, bytes, flags);
    if (err)
        cudaGetLastError();
    return err;
}

extern "C" __attribute__((visibility("default"))) int standin_host_unregister(void *p)
{
    int err = cudaHostUnregister(p);
    if (err)
        cudaGetLastError();
    return err;
}

// Another one is begun.
extern "C" __attribute__((visibility("default"))) void standin_new_graph(void)
{
    graph.clear();
    Memory::forget_pool();
}

// The graph runs, on this thread's stream, which is not being captured.
extern "C" __attribute__((visibility("default"))) void standin_replay(void)
{
    turn();
    for (auto &node : graph) {
        node();
        turn();
    }
}

extern "C" __attribute__((visibility("default"))) int standin_recorded(int64_t stream)
{
    std::lock_guard<std::mutex> guard(recorded_lock);
    return recorded.count(stream) != 0;
}

// From now on, where PyTorch knows of streams' handles at all (2.11).
extern "C" __attribute__((visibility("default"))) void standin_hide_streams(int hide)
{
    hides_streams = hide != 0;
}

extern "C" __attribute__((visibility("default"))) void standin_delay(unsigned us)
{
    delay_us = us;
}

extern "C" __attribute__((visibility("default"))) int standin_delayed(void)
{
    return delayed;
}
