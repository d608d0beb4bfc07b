// shim/torch/math_settings.cpp - see math_settings.h.
#include "shim/torch/math_settings.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <algorithm>
#include <vector>

#include "shim/torch/compat.h"
#include "shim/torch/fp_control.h"

namespace
{

using count_fn = int (*)();

// Not all libraries follow PyTorch's number, and a program can give them another one.
const std::vector<count_fn> &library_counts()
{
    static const std::vector<count_fn> counts = [] {
        std::vector<count_fn> found;
        for (const char *name :
             {"openblas_get_num_threads", "mkl_get_max_threads", "MKL_Get_Max_Threads", "bli_thread_get_num_threads"})
            if (void *function = dlsym(RTLD_DEFAULT, name))
                found.push_back(reinterpret_cast<count_fn>(function));
        return found;
    }();
    return counts;
}

} // namespace

uint64_t swn_library_threads()
{
    uint64_t all = 0;
    for (count_fn count : library_counts())
        all = all * 65599 + static_cast<uint64_t>(count());
    return all;
}

unsigned swn_most_threads()
{
    int most = at::get_num_threads();
    for (count_fn count : library_counts())
        most = std::max(most, count());
    return static_cast<unsigned>(most);
}

std::array<int64_t, 9> swn_math_settings()
{
    const at::Context &context = at::globalContext();
    std::array<int64_t, 9> found{};
    size_t n = 0;
#if SWN_HAS_FLOAT32_PRECISIONS
    for (at::Float32Op op : {at::Float32Op::MATMUL, at::Float32Op::CONV})
        found[n++] = static_cast<int64_t>(context.float32Precision(at::Float32Backend::MKLDNN, op));
#else
    found[n++] = static_cast<int64_t>(context.float32MatmulPrecision());
#endif
    found[n++] = context.userEnabledMkldnn();
    found[n++] = context.deterministicAlgorithms();
    found[n++] = swn_allows_nnpack(context);
    found[n++] = at::get_num_threads();
    found[n++] = static_cast<int64_t>(swn_library_threads());
    found[n++] = at::in_parallel_region();
    found[n++] = swn_fp_control_word();
    return found;
}
