/* shim/serve/joining.h - a layer group that runs once for several requests of a model, their tensors joined along the
 * first dimension.
 *
 * Internal to the serve backend. Whether that is done says skeleton/tape/join.h; here is what it has to know: what a
 * group makes for a request alone, how long that takes, and what has become of joined runs. Requests are joined only if
 * all that bits may depend on beside numbers is equal: shapes, strides, types, PyTorch's settings, threads.
 */
#ifndef SWN_SHIM_SERVE_JOINING_H
#define SWN_SHIM_SERVE_JOINING_H

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "shim/serve/activation.h"

extern "C" {
#include "skeleton/tape/join.h"
}

namespace swn
{

using Numbers = std::vector<int64_t>;

/* A tensor that a group leaves: a value that is alive behind it, or an output. */
struct Left {
    uint32_t value;
    at::ScalarType type;
    Numbers sizes, strides;
};

/* A layer group for requests of one shape. */
struct JoinCase {
    swn_join_group known = {};
    bool has_left = false; /* one has run alone */
    std::vector<Left> left;
};

/* The inputs of a request, kept for trials. */
using KeptInputs = std::vector<at::Tensor>;

/* Of one model. */
struct Joining {
    uint64_t batch_most = 0; /* samples; below 2: no request is joined */
    swn_join_bits bits = SWN_JOIN_EXACT;
    std::shared_ptr<const Groups> division; /* that `cases` are about */
    std::map<Numbers, JoinCase> cases;
    std::vector<std::pair<Numbers, JoinCase *>> latest; /* of each group, in the shape that ran last */
    /* Requests of one shape that wait for a trial, which cases of skeleton/tape/join.h it has been made for, and shapes
     * for which it is over. */
    std::vector<KeptInputs> kept;
    uint64_t kept_ns = 0; /* when the first of these was kept, or a trial of them ended */
    Numbers kept_shape;
    unsigned tried = 0, interrupted = 0; /* interrupted: trials in a row that found nothing before a message came */
    StepNeeds aside;                     /* of requests that are joined or tried, which say nothing of what one needs */
    std::set<Numbers> over;
};

/* What a request has beside its values. */
struct JoinShape {
    uint64_t samples = 0; /* in its first dimension, the same in all inputs; 0: it is never joined */
    Numbers inputs;       /* types and sizes */
};

JoinShape shape_of(const Program &program, const std::vector<at::Tensor> &inputs);
swn_join_limits limits_of(const Joining &joining, uint64_t samples);

/* All that the bits of a request's next group may depend on, but for the numbers and the floating-point control words
 * of threads, which must be the usual ones; none: it is not to be joined. `division`: the model's. */
std::optional<Numbers> join_key(const Joining &joining, const std::shared_ptr<const Groups> &division,
                                const JoinShape &shape, const Activation &a);
/* The case of that key, made where there is none. It lives until the model is divided anew. */
JoinCase &join_case(Joining &joining, const Numbers &key, const JoinShape &shape, const Activation &a);

/* Runs the next group, and notes what it takes and leaves. */
void run_alone(JoinCase &c, Activation &a, std::vector<uint64_t> *step_ns);

/* One of several requests of a model. */
struct JoinMember {
    Activation *values;
    const JoinShape *shape;
};

/* Runs the next group of the first ones of them at once, where that is allowed. How many: 0 if it did not happen, and
 * then nothing has changed for them. */
size_t run_joined(const Program &program, Joining &joining, const std::shared_ptr<const Groups> &division,
                  const std::vector<JoinMember> &members);

/* ---- what trials need, too ---- */

/* The tensors of each member, joined. */
Activation::Live join_live(const std::vector<Activation::Live> &lives);
std::vector<Left> what_is_left(Activation &a);
/* The tensors of what is left, in the same order. */
std::vector<at::Tensor> tensors_left(Activation &a);
/* Whether each of a joined run's tensors has, along its first dimension, n parts like what one request leaves. */
bool is_n_times(const std::vector<Left> &joined, const std::vector<Left> &alone, uint64_t n);
/* Whether so many requests of this shape at once are what the program takes. */
bool takes_joined(const Program &program, const Numbers &inputs, uint64_t n);
/* Time but for waits for the disk. */
uint64_t computing_ns();

} // namespace swn
#endif
