// The owners of bytes that tensors of a device share with tensors of the CPU (shim/torch/unified.h). For the files that
// make such tensors, and that detach them.
#ifndef SWN_SHIM_TORCH_OWNERS_H
#define SWN_SHIM_TORCH_OWNERS_H

#include <ATen/ATen.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "skeleton/abi/abi.h"

namespace swn_owners
{

extern c10::DeviceType device_type;
extern c10::DispatchKey device_key;

// Guards all owners, the storages that name them, and the storages of `others`. Taken before any lock of the engine's;
// never held while PyTorch is called, except to ask for a stream. Never destroyed, as other threads may still compute
// when the process ends.
extern std::mutex &lock;

// Bytes that storages share, or a buffer of the device, which one storage has.
struct Owner {
    at::DataPtr data; // as PyTorch allocated it; nothing for a buffer
    size_t bytes = 0;
    unsigned members = 0;   // storages, operators and holders that name or hold it
    unsigned devices = 0;   // of those: storages of a device, and operators that use it there
    unsigned on_host = 0;   // storages of the processor
    unsigned on_device = 0; // storages of a device
    unsigned arriving = 0;  // storages of a device that are being made, which no look-up finds yet
    int index = 0;          // of that device
    swn_device_memory *memory = nullptr;
    void *address = nullptr;        // the address of the bytes for the device
    bool streams = false;           // they may come and go
    bool swaps = false;             // they come and go on the device, where `address` is invalid between operators
    bool opening = false;           // a thread is registering them with the device, without the lock
    bool closing = false;           // a thread is closing them, and waits for the device
    bool stuck = false;             // the device has not let go of them: no other tensor may get their memory
    std::vector<c10::Stream> homes; // streams that were current when storages of it went to the device, each once
    bool captured = false;          // a CUDA graph has its address; one device storage names it, no host storage
};

// Two threads that only read may both give a storage memory of its own, for operators whose schemas are unreliable.
// Taken before `lock`, and held while PyTorch is called. Never destroyed, as above.
extern std::recursive_mutex &moving;

// Signalled when a storage or operator of a device leaves its owner. Never destroyed, as above.
extern std::condition_variable &fewer;

// Storages of a device that share bytes, or are about to, and memory that a device may still use without a storage.
extern std::atomic<size_t> active;
// The allocator of device tensors: GetAllocator does not know CUDA's before PyTorch 2.9. Null before any tensor was to
// go there.
extern std::atomic<c10::Allocator *> device_allocator;
extern std::atomic<bool> given_up;
extern std::atomic<bool> forked;
extern std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> &others;

// Owners by the host address of bytes that storages of the processor name as well; other code may know that address,
// too.
extern std::map<uintptr_t, Owner *> &spans;
// Owners of bytes that come and go on a device, by the address of their tensors there.
extern std::map<uintptr_t, Owner *> &places;

enum class Member { holder, of_host, of_device, user, arriving };

// Lock held.
void join(Owner *o, Member who);
// Lock not held: when the last storage of a device leaves, the owner's memory there is closed.
void leave(Owner *o, Member who);

// Deleters, by which a storage is recognised. The last is that of a storage that took over the memory of an owner which
// it no longer names.
void drop_host(void *o);
void drop_device(void *o);
void drop_taken_over(void *o);

const at::DataPtr &data_of(const c10::StorageImpl *storage);
c10::StorageImpl *storage_of(const at::Tensor &t);
bool on_device(const at::Tensor &t);

// The owner of the storage's bytes, or nullptr: the storage alone owns them. Lock held, unless no other thread knows
// the storage.
Owner *owner_of(const c10::StorageImpl *storage);
// Lock held. The same, if the bytes are swapnet's memory and no buffer.
Owner *sharing(const c10::StorageImpl *storage);
bool shared(const at::Tensor &t);

template <Member who> struct Leave {
    void operator()(Owner *o) const
    {
        leave(o, who);
    }
};
// A held owner is not freed, although a storage may come to name other memory meanwhile.
using Held = std::unique_ptr<Owner, Leave<Member::holder>>;
using Arriving = std::unique_ptr<Owner, Leave<Member::arriving>>;

Held hold(const c10::StorageImpl *storage);
// For a copy out of the storage. PyTorch's pickling makes its own storage over the address of another, which may belong
// to memory that comes and goes.
Held hold_to_copy(const c10::StorageImpl *storage);
// Owners that share some of these bytes with storages of the processor: code that knows a tensor's address, such as
// numpy, makes its own storages there.
std::vector<Held> hold_at(uintptr_t at, size_t bytes);
// Holds the owner of the storage's bytes until a storage of a device names them and can be found by look-ups.
Arriving announced(c10::StorageImpl *storage, size_t bytes);

// The storage names `data` from now on, and `data` becomes its old data, which the caller drops without the lock.
void exchange(c10::StorageImpl *storage, at::DataPtr &data);
// Lock held. Lists the storage, so that swn_unified_give_up finds it.
void enlist(c10::StorageImpl *storage);
void register_fork_handlers();

// shim/torch/owners_detach.cpp. Gives the storage memory of its own; keep: with the same bytes. Without memory the
// program ends, with a message about `what`, one of these.
void detach(c10::StorageImpl *storage, bool keep, const char *what);
constexpr const char *written = "a weight that is about to be written", *compiled = "a weight that compiled code uses",
                     *taken_by_program = "a weight whose memory the program registers with the driver",
                     *unlent = "a weight that comes and goes, and cannot for the next operator,",
                     *in_two_places = "a weight that a CUDA graph is to have the address of";

} // namespace swn_owners

#endif
