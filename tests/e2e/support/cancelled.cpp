/* A library for programs/cancelled.py: threads that compute are cancelled. They ask for it (pthread_testcancel) between
 * operators, so that no frame of PyTorch's is unwound, if operators are no cancellation points. */
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <vector>

static std::vector<at::Tensor> weights;
static std::atomic<int> operators, within;

static void *work(void *)
{
    at::NoGradGuard guard;
    at::Tensor x = at::ones({4, 1024});
    for (;;)
        for (auto &w : weights) {
            within = 1;
            at::Tensor y = at::mm(x, w);
            within = 0;
            operators++;
            pthread_testcancel();
        }
    return nullptr;
}

/* How many of `threads` were cancelled between operators. */
extern "C" int cancel_threads(int threads);
extern "C" int cancel_threads(int threads)
{
    at::NoGradGuard guard;
    int cancelled = 0;
    for (int i = 0; i < 24; i++)
        weights.push_back(at::full({1024, 1024}, static_cast<double>(i)));
    for (int i = 0; i < threads; i++) {
        pthread_t t;
        void *result;
        operators = 0;
        if (pthread_create(&t, nullptr, work, nullptr))
            return -1;
        while (operators < 30 + 7 * i)
            usleep(1000);
        pthread_cancel(t);
        pthread_join(t, &result);
        cancelled += result == PTHREAD_CANCELED && !within;
    }
    return cancelled;
}

extern "C" double sum_of(int i);
extern "C" double sum_of(int i)
{
    return weights[static_cast<size_t>(i)].sum().item<double>();
}
