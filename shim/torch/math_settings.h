// The settings of PyTorch and its math libraries on which the bits of a result may depend.
#ifndef SWN_SHIM_TORCH_MATH_SETTINGS_H
#define SWN_SHIM_TORCH_MATH_SETTINGS_H

#include <array>
#include <cstdint>

// The math libraries' thread counts, combined into one number.
uint64_t swn_library_threads();

// The most threads with which PyTorch or a math library computes an operator.
unsigned swn_most_threads();

// Equal as long as nobody changes a setting: precisions, libraries in use, threads, this thread's control word.
std::array<int64_t, 9> swn_math_settings();

#endif
