// A convolution that may compute its result in stripes, between the files that choose and that compute.
#ifndef SWN_ATEN_STRIPE_WORK_H
#define SWN_ATEN_STRIPE_WORK_H

#include "aten_stripes.h"
#include "swn_stripe.h"

// A convolution of whose input a matrix is made. All products of its sizes fit.
struct swn_stripe_work {
    explicit swn_stripe_work(const swn_convolution &what_) : what(what_)
    {
    }

    const swn_convolution &what;
    at::DimVector sizes;         // of the result
    size_t dim = 0;              // its rows are along this one
    swn_stripe_scratch matrix{}; // of the part that is there at once
    int64_t channels = 0;        // of the input, that it is made of
    size_t matrix_bytes = 0;
    size_t beside = 0; // what is taken with it
    size_t out_bytes = 0;

    // What it takes beside its input, with the result: as a whole, and in stripes of that length.
    size_t whole_bytes() const
    {
        return matrix_bytes + beside + out_bytes;
    }
    size_t bytes_of(const swn_stripe_cut &cut) const;

    // Rows `from` and so on of so many samples of what is computed from `input`.
    at::Tensor part_of(const swn_stripe_cut &cut, const at::Tensor &input, const at::Tensor &weight, int64_t sample,
                       int64_t samples, int64_t from, int64_t count) const;

    // Calls act(sample, samples, row, count) for each part, until it says false. Returns how many parts; 0: it did.
    template <typename Act> size_t each_part(const swn_stripe_cut &cut, Act act) const
    {
        size_t n = 0;
        for (int64_t sample = 0; sample < matrix.samples; sample += cut.samples)
            for (int64_t row = 0; row < matrix.rows; row += cut.rows, n++)
                if (!act(sample, std::min(cut.samples, matrix.samples - sample), row,
                         std::min(cut.rows, matrix.rows - row)))
                    return 0;
        return n;
    }
};

// Computes it in the way that is cheapest now, which may take trials. Undefined: whole, which the caller does, since
// nothing speaks for stripes.
at::Tensor swn_stripes_compute(const swn_stripe_work &work, uint64_t whole_cost_ns);

void swn_stripe_choice_begin(const swn_host *host); // borrowed for ever
void swn_stripe_choice_before_fork();
void swn_stripe_choice_after_fork();

#endif
