// The word by which a thread's floating-point unit rounds, and takes denormal numbers for 0 or not. Each thread has its
// own (torch.set_flush_denormal sets the caller's), and a new thread inherits that of the thread which starts it. So
// the bits of a number can depend on the thread that computes it, and threads share the work in parts differently than
// in the whole.
#ifndef SWN_SHIM_TORCH_FP_CONTROL_H
#define SWN_SHIM_TORCH_FP_CONTROL_H

#include <cstdint>

// This thread's control word.
int64_t swn_fp_control_word();

// Whether the words of this thread, and of all threads that compute for it, are those that threads begin with. Of some
// 10 us, and more when it is asked for the first time. May throw PyTorch's errors.
bool swn_words_are_usual();

// In both processes: math libraries start their threads anew.
void swn_words_after_fork();

#endif
