// The control word of a thread's floating-point unit: rounding, and whether denormal numbers count as 0. Each thread
// has its own (torch.set_flush_denormal sets the caller's), and a new thread inherits that of the thread which starts
// it. So the bits of a result can depend on the thread that computes it, and a computation in slices is split over the
// threads differently than the whole.
#ifndef SWN_SHIM_TORCH_FP_CONTROL_H
#define SWN_SHIM_TORCH_FP_CONTROL_H

#include <cstdint>

// This thread's control word.
int64_t swn_fp_control_word();

// Whether this thread, and all threads that compute for it, have the initial control word. Takes some 10 us, and more
// at the first call. May throw PyTorch's errors.
bool swn_words_are_usual();

// To be called in both processes: math libraries start new threads after a fork.
void swn_words_after_fork();

#endif
