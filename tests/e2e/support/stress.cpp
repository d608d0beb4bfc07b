// Threads that are not Python's, for programs/stress.py: OpenMP loops that run operators on shared weights, and a
// thread of its own for each step of a network whose weights change in place. Results are hashes of raw bytes.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>
#include <pthread.h>

#include <cstdint>
#include <vector>

namespace
{

struct Model {
    std::vector<at::Tensor> base, w;
};

uint64_t hash(const at::Tensor &t)
{
    at::Tensor flat = t.contiguous();
    const unsigned char *p = static_cast<const unsigned char *>(flat.data_ptr());
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < flat.nbytes(); i++)
        h = (h ^ p[i]) * 1099511628211u;
    return h;
}

at::Tensor input(int64_t width, int step, int thread)
{
    return at::arange(8 * width, at::kFloat).mul(0.001 * (step + 1) + 0.1 * thread).sin().reshape({8, width});
}

uint64_t run(const Model &m, int step, int thread)
{
    at::NoGradGuard guard; // of a thread, not of a process
    at::Tensor x = input(m.w[0].size(0), step, thread);
    for (const at::Tensor &w : m.w)
        x = at::linear(x, w).relu().sub(0.01);
    return hash(x);
}

struct Task {
    Model *model;
    int step;
    uint64_t result;
};

void *change_and_run(void *p)
{
    at::NoGradGuard guard;
    Task *t = static_cast<Task *>(p);
    for (size_t i = 0; i < t->model->w.size(); i++) {
        at::Tensor &w = t->model->w[i];
        if ((i + static_cast<size_t>(t->step)) % 3 == 0)
            w.copy_(t->model->base[i]).mul_(1 + 0.01 * t->step);
        else if ((i + static_cast<size_t>(t->step)) % 3 == 1)
            w.copy_(t->model->base[i]).select(0, t->step).fill_(0.5);
        else
            w.copy_(t->model->base[i]);
    }
    t->result = run(*t->model, t->step, 0);
    for (const at::Tensor &w : t->model->w)
        t->result ^= hash(w) * 31;
    return nullptr;
}

} // namespace

extern "C" {

void *stress_model(int layers, int width, int changes)
{
    at::NoGradGuard guard;
    Model *m = new Model;
    for (int i = 0; i < layers; i++) {
        m->w.push_back(at::arange(width * width, at::kFloat).mul(0.37 + i).cos().mul(0.09).reshape({width, width}));
        if (changes)
            m->base.push_back(m->w.back().clone());
    }
    return m;
}

// One round: `threads` threads of a team, each with an input of its own, over the same weights.
uint64_t stress_openmp(void *model, int step, int threads)
{
    const Model &m = *static_cast<Model *>(model);
    uint64_t sum = 0;
#pragma omp parallel for num_threads(threads) schedule(static, 1) reduction(^ : sum)
    for (int i = 0; i < threads * 2; i++)
        sum ^= run(m, step, i) * (2 * static_cast<uint64_t>(i) + 1);
    return sum;
}

uint64_t stress_pthread(void *model, int step)
{
    Task task = {static_cast<Model *>(model), step, 0};
    pthread_t thread;
    if (pthread_create(&thread, nullptr, change_and_run, &task))
        return 0;
    pthread_join(thread, nullptr);
    return task.result;
}
}
