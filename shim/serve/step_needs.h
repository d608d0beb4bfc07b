/* shim/serve/step_needs.h - how much memory one request takes for its tensors, step by step.
 *
 * Internal to the serve backend. What a step takes is seen while a request runs, as libswapnet counts it: so what an
 * operator allocates for itself and gives back is part of it, and so is what an opaque step does. Layer groups are made
 * of steps, so what is known stays true when a model is divided anew.
 */
#ifndef SWN_SHIM_SERVE_STEP_NEEDS_H
#define SWN_SHIM_SERVE_STEP_NEEDS_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace swn
{

/* Of a model: the most that any request has taken. */
class StepNeeds
{
  public:
    /* Of the steps from `first` up to `end`: the most that a request takes in them, and what it holds before them. 0
     * and 0 while one of them has not been seen. */
    void of(size_t first, size_t end, uint64_t *activation_bytes, uint64_t *state_bytes) const;

  private:
    friend class Meter;

    /* One more than the bytes; 0: not seen. What a request holds before each step, and the most it has meanwhile. */
    std::vector<uint64_t> held_, peak_;
    uint64_t input_bytes_ = 0; /* of the largest request that was seen to its end */
};

/* Of a request: it looks at libswapnet's counts around each step, as long as no request with inputs as large was. */
class Meter
{
  public:
    Meter(StepNeeds &needs, size_t steps);

    /* Around making the inputs, and around what runs without another request in between. */
    void begin();
    void end();
    bool looks() const;
    void before_step(size_t step);
    void after_step(size_t step);
    void finish(); /* the last step has run */
    void stop();   /* steps of the request run somewhere else, so the rest would say nothing */

  private:
    uint64_t own(uint64_t live) const;

    StepNeeds &needs_;
    uint64_t others_ = 0, held_ = 0, input_bytes_ = 0; /* others_: bytes alive that are not the request's */
    bool has_inputs_ = false, looks_ = true;
};

} // namespace swn
#endif
