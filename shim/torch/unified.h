// Tensors that go to a device which shares the host's memory, without the second copy that PyTorch would make.
//
// The device tensor gets a weight's bytes in one of three ways (enum swn_way):
//
// - reference: its bytes are a checkpoint's. Another CPU storage is registered to the same place in the file, which
//   copies nothing, and is the device tensor's alone. The two have nothing in common but the file.
// - alias: its bytes are in memory. Both storages name them, and share their owner, so either may die first. A storage
//   that is about to be written first gets memory of its own.
// - buffer: the device has a buffer, filled from the disk.
//
// A device storage never writes bytes that it shares with the host: the engine moves them, and does not learn when a
// kernel writes. (A graph that has their address must see a write: then the bytes stay in place, and belong to the
// writer from then on.) This holds for all kernels that go through the dispatcher; kernels with an unreliable schema
// count as writers.
#ifndef SWN_SHIM_TORCH_UNIFIED_H
#define SWN_SHIM_TORCH_UNIFIED_H

#include <ATen/ATen.h>

#include "skeleton/abi/abi.h"

// Puts the kernels in front of PyTorch's own at swn_services->device.type.
void swn_unified_register();

// Whether any device tensor shares bytes with the host, or did and the device may still read them. The other functions
// are called only then.
bool swn_unified_active();

// Before an operator writes the tensor: its storage gets memory of its own. keep: with the same bytes.
void swn_unified_detach(const at::Tensor &tensor, bool keep);

// Code is about to run that bypasses the operator hook: all shared tensors get memory of their own, for good.
void swn_unified_give_up();

// Shared bytes of a device tensor, whose memory stays the owner's until swn_unified_release.
struct swn_held {
    void *owner;
    swn_device_memory *memory; // nullptr: the memory does not come and go
    void *address;             // the device's address between operators
    uintptr_t data;            // the host address, if the bytes may come and go there; else 0
    size_t bytes;
    bool captured; // it stays in place, as a CUDA graph has its address
};
// false: the tensor shares no bytes.
bool swn_unified_hold(const at::Tensor &tensor, swn_held *out);
void swn_unified_release(void *owner);
// An operator that uses the storage is about to be captured into a CUDA graph, which will have its address: the memory
// stays as long as the storage lives, and kernels that write the tensor write it there. Where other storages share the
// bytes, or there is no room for them to stay, the storage gets memory of its own first. The hold of an operator keeps
// the memory.
void swn_unified_capture(c10::StorageImpl *storage);
// Where the storage still has bytes of the owner, replaces its address `from` by `to`.
void swn_unified_put_back(c10::StorageImpl *storage, const void *owner, void *from, void *to);
// The storage stops coming and going: it gets memory of its own, as this operator (nullptr: the engine) cannot use
// memory that comes and goes.
void swn_unified_keep(c10::StorageImpl *storage, const char *operator_name);

// Whether swapnet's kernel will do aten::_to_copy with these arguments, without reading.
bool swn_unified_takes(c10::ArrayRef<const c10::IValue> inputs);
// The same for aten::copy_.
bool swn_unified_replaces(c10::ArrayRef<const c10::IValue> inputs);

// Whether a copy of the tensor's shared bytes is captured into a graph now.
bool swn_unified_in_graph(const at::Tensor &tensor);

// Device tensors that share bytes with the processor's in [data, data + bytes) get memory of their own.
void swn_unified_part(uintptr_t data, size_t bytes);

// Whether the processor's tensor lies in memory that the library has registered for a device: the driver may call it
// pinned, but to the program it is not.
bool swn_unified_registered(const at::Tensor &tensor);
// Makes aten::is_pinned answer so. In shim/torch/kernel_is_pinned.cpp.
void swn_pinned_register();

// Bytes of the device's memory that PyTorch has taken and no tensor uses; 0 where PyTorch does not say.
size_t swn_unified_idle(int device);
// Makes PyTorch give these bytes back to the device.
void swn_unified_trim(int device);

// Copies as an outermost operator of the program would, which may register instead. In shim/torch/op_hook.cpp.
void swn_copy_outermost(at::Tensor &to, const at::Tensor &from);

#endif
