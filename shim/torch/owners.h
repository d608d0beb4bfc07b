// The owners of bytes that tensors of a device have in common with tensors of the CPU (shim/torch/unified.h): shared by
// the files that make such tensors, and that part them again.
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

extern const swn_runtime_services *host;
extern c10::DeviceType device_type;
extern c10::DispatchKey device_key;

// Guards all owners, which of them a storage names, and the storages of `others`. Taken before any lock of the
// engine's; never while PyTorch is called, but to ask for a stream. Never destroyed, as other threads may still compute
// when the process ends.
extern std::mutex &lock;

// Bytes that storages have in common, or a buffer of the device's, which one storage has.
struct Owner {
    at::DataPtr data; // as PyTorch allocated it; nothing for a buffer
    size_t bytes = 0;
    unsigned members = 0;   // storages, operators and holders that name or hold it
    unsigned devices = 0;   // of those: storages of a device, and operators that use it there
    unsigned on_host = 0;   // storages of the processor
    unsigned on_device = 0; // and of a device
    unsigned arriving = 0;  // storages of a device that are being made, which no lookup finds yet
    int index = 0;          // of that device
    swn_device_memory *memory = nullptr;
    void *address = nullptr;        // where the device finds them
    bool streams = false;           // they may come and go
    bool swaps = false;             // and on the device, where `address` is good for nothing between operators
    bool opening = false;           // a thread is making them known to the device, without the lock
    bool closing = false;           // and here the device may use them still, and is waited for
    bool stuck = false;             // the device has not let go of it: no other tensor may get its memory any more
    std::vector<c10::Stream> homes; // that were current when storages of it went there, each of them once
    bool captured = false; // a CUDA graph has its address; of the device's storages one names it, and of ours none do
};

// Threads that only read may both be giving a storage memory of its own, on account of operators that are not believed.
// Taken before `lock`, and while PyTorch is called. Never destroyed, as above.
extern std::recursive_mutex &moving;

// Signalled when a storage or operator of a device leaves its owner. Never destroyed, as above.
extern std::condition_variable &fewer;

// Storages of a device that name bytes of ours, or are about to, and what a device may be using without one.
extern std::atomic<size_t> active;
// As its tensors say: GetAllocator does not know CUDA's before PyTorch 2.9. None before any tensor was to go there.
extern std::atomic<c10::Allocator *> device_allocator;
extern std::atomic<bool> given_up;
extern std::atomic<bool> forked;
extern std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> &others;

// Bytes that storages of the processor's name as well, by their address: others may know that, too.
extern std::map<uintptr_t, Owner *> &spans;
// Owners of bytes that come and go on a device, by the address that their tensors have there.
extern std::map<uintptr_t, Owner *> &places;

enum class Member { holder, of_host, of_device, user, arriving };

// Lock held.
void join(Owner *o, Member who);
// Lock not held: when the last storage of a device leaves, the owner's memory there is closed.
void leave(Owner *o, Member who);

// Deleters: a storage is known by its own. The last is of a storage that has taken over the memory of an owner which it
// does not name any more.
void drop_host(void *o);
void drop_device(void *o);
void drop_taken_over(void *o);

const at::DataPtr &data_of(const c10::StorageImpl *storage);
c10::StorageImpl *storage_of(const at::Tensor &t);
bool on_device(const at::Tensor &t);

// The owner of the bytes that the storage names, or nullptr: they are its own. Lock held, unless no other thread knows
// the storage.
Owner *owner_of(const c10::StorageImpl *storage);
// Lock held. The same, if that is memory of ours and no buffer.
Owner *sharing(const c10::StorageImpl *storage);
bool shared(const at::Tensor &t);

template <Member who> struct Leave {
    void operator()(Owner *o) const
    {
        leave(o, who);
    }
};
// A held owner is not freed; a storage may come to name something else meanwhile.
using Held = std::unique_ptr<Owner, Leave<Member::holder>>;
using Arriving = std::unique_ptr<Owner, Leave<Member::arriving>>;

Held hold(const c10::StorageImpl *storage);
// For a copy out of it. PyTorch's pickling makes a storage of its own over the address of another, which may be that of
// something that comes and goes.
Held hold_to_copy(const c10::StorageImpl *storage);
// Owners that share some of these bytes with storages of the processor: numpy and others that know where a tensor lies
// make storages of their own there.
std::vector<Held> hold_at(uintptr_t at, size_t bytes);
// Holds the owner of the storage's bytes until a storage of a device that is to name them is there, and found by
// others.
Arriving announced(c10::StorageImpl *storage, size_t bytes);

// The storage names `data` from now on, and `data` becomes its old data, which the caller drops without the lock.
void exchange(c10::StorageImpl *storage, at::DataPtr &data);
// Lock held. Lists the storage, so that it is found when all are given up.
void enlist(c10::StorageImpl *storage);
void register_fork_handlers();

// shim/torch/owners_detach.cpp. The storage gets memory of its own, keep: with the same bytes; without that the program
// ends, and is told of `what`, one of these.
void detach(c10::StorageImpl *storage, bool keep, const char *what);
constexpr const char *written = "a weight that is about to be written", *compiled = "a weight that compiled code uses",
                     *taken_by_program = "a weight whose memory the program registers with the driver",
                     *unlent = "a weight that comes and goes, and cannot for the next operator,",
                     *in_two_places = "a weight that a CUDA graph is to have the address of";

} // namespace swn_owners

#endif
