// Weights that come and go on a device (skeleton/device/swapper.h): the steps before and after an operator that uses
// them.
//
// Between operators the address of such a tensor cannot be read: a kernel there faults, and never reads other bytes.
// Operators that are known to read it, and not to keep it, are lent it for as long as they run. Before any other
// operator uses or writes it, or code runs that bypasses the operator hook, the tensor gets memory of its own for good
// (swn_unified_detach).
#ifndef SWN_SHIM_TORCH_DEVICE_SWAP_H
#define SWN_SHIM_TORCH_DEVICE_SWAP_H

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>

#include "skeleton/abi/abi.h"

// This thread's next operator uses the tensor. The tensor's memory stays in place until swn_devswap_end. Memory that
// comes and goes is lent to the operator if the operator `reads` it on the device and does not keep the address;
// otherwise it no longer comes and goes. Returns the host address of bytes that may come and go there, *bytes of them;
// else 0.
uintptr_t swn_devswap_use(const at::Tensor &tensor, bool keeps, const char *operator_name, bool reads, size_t *bytes);
// Whether PyTorch tells the device's streams; otherwise nothing may be shared with a device, and this prints so once.
bool swn_devswap_has_streams(c10::Device device);
// Whether launches of this thread on the device are captured into a graph, as far as PyTorch says. Throws nothing, as
// the code that drops a tensor calls it.
bool swn_devswap_capturing(c10::Device device);
// Brings the memory that comes and goes, after all tensors of the operator have been named. true: there is some, and
// swn_devswap_end must follow.
bool swn_devswap_lend();
void swn_devswap_end();
// Whether this thread's operator has been lent the storage's memory.
bool swn_devswap_has_lent(const c10::StorageImpl *storage);
// How often this thread's operator holds the owner.
unsigned swn_devswap_holds(const void *owner);
// For an operator whose uses are unknown: nothing is lent to it, and its inputs that come and go stay from now on.
void swn_devswap_give_up(c10::ArrayRef<const c10::IValue> inputs);

#endif
