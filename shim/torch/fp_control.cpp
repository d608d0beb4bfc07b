// shim/torch/fp_control.cpp - see fp_control.h.
#include "shim/torch/fp_control.h"

#include <ATen/Parallel.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <cfenv>

#include "shim/torch/math_settings.h"

namespace
{

#if defined(__x86_64__)
constexpr int64_t usual = 0x1f80, flags = 0x3f; // `flags` are results, not settings
int64_t word_now()
{
    return __builtin_ia32_stmxcsr() & ~flags;
}
#elif defined(__aarch64__)
constexpr int64_t usual = 0;
int64_t word_now()
{
    uint64_t word;
    asm volatile("mrs %0, fpcr" : "=r"(word));
    return static_cast<int64_t>(word);
}
#else
constexpr int64_t usual = FE_TONEAREST;
int64_t word_now()
{
    return std::fegetround();
}
#endif

// PyTorch's pool, which oneDNN and the built-in MKL use, too. Each program thread has its own pool.
bool pool_is_usual()
{
    std::atomic<bool> all{true};
    at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t, int64_t) {
        if (word_now() != usual)
            all.store(false, std::memory_order_relaxed);
    });
    return all;
}

// Threads of a math library run no code of swapnet's. A product of denormal numbers only, large enough to be split over
// all threads, shows their settings. OpenBLAS uses threads from 2^18 multiplications on.
constexpr int64_t rows = 256, terms = 8;
constexpr float factor = 0x1p-70f, denormal = 0x1p-140f;

bool product_is_usual()
{
    at::DisableRecordFunctionGuard unseen; // these are no operators of the program's
    at::Tensor left = at::zeros({rows, terms}), right = at::zeros({terms, rows});
    // Tests the last terms: the fewer denormal numbers are added afterwards, the faster.
    for (int64_t i = 0; i < rows; i++) {
        left.data_ptr<float>()[i * terms + terms - 1] = factor;
        right.data_ptr<float>()[(terms - 1) * rows + i] = factor;
    }
    at::Tensor product = at::cpu::mm(left, right);
    const float *numbers = product.data_ptr<float>();
    return std::all_of(numbers, numbers + rows * rows, [](float number) { return number == denormal; });
}

// The result since the last fork for these numbers of threads: the same numbers start no new threads. 0: none.
std::atomic<uint64_t> found{0};

bool libraries_are_usual()
{
    uint64_t threads = swn_library_threads() * 4 + 2, known = found;
    if (known != threads && known != threads + 1) {
        known = threads + product_is_usual();
        found = known;
    }
    return known & 1;
}

} // namespace

int64_t swn_fp_control_word()
{
    return word_now();
}

bool swn_words_are_usual()
{
    return word_now() == usual && pool_is_usual() && libraries_are_usual();
}

void swn_words_after_fork()
{
    found = 0;
}
