// Weights that come and go on a device (skeleton/device/swapper.h): the steps before and after an operator that uses
// them.
//
// Between operators the address of such a tensor cannot be read: a kernel there faults, and never reads other bytes.
// Operators that are known to read it, and not to keep it, are lent it for as long as they run. Before any other
// operator uses or writes it, or code runs that we do not see, it gets memory of its own, for good
// (swn_unified_detach).
#ifndef SWN_SHIM_TORCH_DEVICE_SWAP_H
#define SWN_SHIM_TORCH_DEVICE_SWAP_H

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>

#include "skeleton/abi/abi.h"

// `host` is borrowed for ever.
void swn_devswap_begin_backend(const swn_runtime_services *host);

// The operator that this thread is about to run uses the tensor: what it names stays where it is until swn_devswap_end,
// or, if it comes and goes, is lent to the operator if that `reads` it on the device, unless it may keep the address:
// then it comes and goes no more. Returns where the processor finds bytes that may come and go there, *bytes of them;
// else 0.
uintptr_t swn_devswap_use(const at::Tensor &tensor, bool keeps, const char *operator_name, bool reads, size_t *bytes);
// Whether PyTorch says which streams it uses; else nothing may be shared with a device, and this prints that once.
bool swn_devswap_has_streams(c10::Device device);
// Whether what this thread launches on the device is put into a graph instead of being run, as far as PyTorch says.
// Throws nothing, as the code that drops a tensor calls it.
bool swn_devswap_capturing(c10::Device device);
// After all tensors of the operator have been named: brings those that come and go. true: there are some, and
// swn_devswap_end must follow.
bool swn_devswap_lend();
void swn_devswap_end();
// Whether this thread's operator has been lent what the storage names.
bool swn_devswap_has_lent(const c10::StorageImpl *storage);
// How often this thread's operator holds the owner.
unsigned swn_devswap_holds(const void *owner);
// For an operator of which it is not known what it uses: it is lent nothing, and those of its inputs that come and go
// stay from now on.
void swn_devswap_give_up(c10::ArrayRef<const c10::IValue> inputs);

#endif
