// Tensors that go to a device which shares our memory, without the second copy that PyTorch would make of them.
//
// A weight's bytes are the device tensor's as well, in one of three ways (enum swn_way):
//
// - reference: its bytes are a checkpoint's. Another CPU storage is registered to the same place in the file, which
//   copies nothing, and is the device tensor's alone. The two have nothing in common but the file.
// - alias: its bytes are in memory. Both storages name them, and share their owner, so either may die first. A storage
//   that is about to be written first gets memory of its own.
// - buffer: the device has a buffer, filled from the disk.
//
// A storage that names bytes of ours for a device never writes them: the engine moves them about, and is not told when
// a kernel writes. (A graph that has their address must see what is written: then they stay, and are the writer's from
// then on.) This holds for all kernels that go through the dispatcher; kernels whose schema cannot be believed count as
// writers.
#ifndef SWN_SHIM_TORCH_UNIFIED_H
#define SWN_SHIM_TORCH_UNIFIED_H

#include <ATen/ATen.h>

#include "skeleton/abi/abi.h"

// Puts the kernels in front of PyTorch's own at host->device.type. `host` is borrowed for ever.
void swn_unified_register(const swn_runtime_services *host);

// Whether any tensor names bytes of ours for a device, or did and the device may still read them. The other functions
// are called only then.
bool swn_unified_active();

// Before an operator writes the tensor: its storage gets memory of its own. keep: with the same bytes.
void swn_unified_detach(const at::Tensor &tensor, bool keep);

// Code is about to run that is not seen operator by operator: all get memory of their own, for good.
void swn_unified_give_up();

// Bytes of ours that a device tensor names, whose memory stays the owner's until swn_unified_release.
struct swn_held {
    void *owner;
    swn_device_memory *memory; // nullptr: it does not come and go
    void *address;             // where it is for the device between operators
    uintptr_t data;            // where the processor finds them, if they may come and go there; else 0
    size_t bytes;
    bool captured; // it stays where it is, as a CUDA graph has its address
};
// false: the tensor does not name such.
bool swn_unified_hold(const at::Tensor &tensor, swn_held *out);
void swn_unified_release(void *owner);
// An operator that uses the storage is about to be put into a CUDA graph, which will have the address of what it names:
// that memory stays for as long as the storage lives, and kernels that write the tensor write it there. Where others
// share the bytes, or there is no room for them to stay, the storage gets memory of its own first. An operator's hold
// keeps what it names.
void swn_unified_capture(c10::StorageImpl *storage);
// Where the storage still names bytes of the owner, it names them at `to` instead of `from`.
void swn_unified_put_back(c10::StorageImpl *storage, const void *owner, void *from, void *to);
// The storage comes and goes no more: it gets memory of its own, as this operator (nullptr: the engine) cannot use
// memory that comes and goes.
void swn_unified_keep(c10::StorageImpl *storage, const char *operator_name);

// Whether aten::_to_copy with these arguments will be ours, and reads nothing.
bool swn_unified_takes(c10::ArrayRef<const c10::IValue> inputs);
// Likewise aten::copy_.
bool swn_unified_replaces(c10::ArrayRef<const c10::IValue> inputs);

// Whether a copy of the tensor's bytes, which are ours, is put into a graph now.
bool swn_unified_in_graph(const at::Tensor &tensor);

// Device tensors that have bytes in common with the processor's in [data, data + bytes) get memory of their own.
void swn_unified_part(uintptr_t data, size_t bytes);

// Whether the processor's tensor lies in memory that the library has registered for a device: the driver may say that
// it is pinned, but to the program it is not.
bool swn_unified_registered(const at::Tensor &tensor);
// Has that answered for aten::is_pinned. In shim/torch/kernel_is_pinned.cpp.
void swn_pinned_register();

// Bytes of the device's memory that PyTorch has taken from it and no tensor uses; 0 where it does not say.
size_t swn_unified_idle(int device);
// Has PyTorch give them back to it.
void swn_unified_trim(int device);

// Copies as the program's own outermost operator would, which may register instead. In shim/torch/op_hook.cpp.
void swn_copy_outermost(at::Tensor &to, const at::Tensor &from);

#endif
