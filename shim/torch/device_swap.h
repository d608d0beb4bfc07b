// Weights that come and go on a device (skeleton/device/swapper.h): what an operator that uses them needs done before
// and after.
//
// Between operators the address of such a tensor is one where nobody can read anything else: the operators that are
// known to read it, and not to keep it, are lent it for as long as they run. Whoever else uses it, or writes it, or is
// not seen by us, has it given memory of its own first, for good (swn_unified_detach).
#ifndef SWN_SHIM_TORCH_DEVICE_SWAP_H
#define SWN_SHIM_TORCH_DEVICE_SWAP_H

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>

#include "skeleton/abi/abi.h"

// `host` is borrowed for ever.
void swn_devswap_begin_half(const swn_runtime_services *host);

// The operator that this thread is about to run uses the tensor: what it names stays where it is until swn_devswap_end,
// or, if it comes and goes, is lent to the operator if that `reads` it on the device, unless it may keep the address:
// then it comes and goes no more. Returns where the processor finds bytes that may come and go there, *bytes of them;
// else 0.
uintptr_t swn_devswap_use(const at::Tensor &tensor, bool keeps, const char *operator_name, bool reads, size_t *bytes);
// Whether PyTorch says which streams it uses; else nothing may be shared with a device, which is said.
bool swn_devswap_has_streams(c10::Device device);
// Whether what this thread launches on the device is put into a graph instead of being run, as far as PyTorch says.
// Throws nothing, as whoever drops a tensor asks it.
bool swn_devswap_capturing(c10::Device device);
// All have been named: brings those that come and go. Whether there are any at all, and then swn_devswap_end must
// follow.
bool swn_devswap_lend();
void swn_devswap_end();
// Whether this thread's operator has been lent what the storage names.
bool swn_devswap_has_lent(const c10::StorageImpl *storage);
// How often this thread's operator holds the owner.
unsigned swn_devswap_holds(const void *owner);
// It cannot be told what it uses: it is lent nothing, and whatever comes and goes among its inputs does so no more.
void swn_devswap_give_up(c10::ArrayRef<const c10::IValue> inputs);

#endif
