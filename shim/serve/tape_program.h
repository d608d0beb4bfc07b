/* shim/serve/tape_program.h - a tape with what its steps compute.
 *
 * Internal to the serve backend. Constant once it is built, but for the times of steps.
 */
#ifndef SWN_SHIM_SERVE_TAPE_PROGRAM_H
#define SWN_SHIM_SERVE_TAPE_PROGRAM_H

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <torch/csrc/jit/runtime/interpreter.h>

extern "C" {
#include "scheduler/protocol/engine_wire.h"
#include "skeleton/tape/tape.h"
}

namespace swn
{

/* Where a step finds an argument: a value of the request, or (negative: ~index) a constant of the program. */
using Ref = int32_t;

struct Step {
    enum Kind : uint8_t {
        kOperator, /* `op` on a stack */
        kList,     /* a list of `type` */
        kTuple,
        kUnpack, /* of a list or tuple */
        kOpaque, /* `code`, by PyTorch's interpreter */
    } kind = kOperator;
    mutable torch::jit::Operation op = nullptr; /* calling it is not const to PyTorch */
    c10::TypePtr type;
    std::shared_ptr<torch::jit::Code> code;
    std::vector<Ref> in;
    std::vector<uint8_t> moves; /* per argument: it is the last use of a value, which goes onto the stack for good */
    std::vector<uint32_t> out;
    std::vector<uint32_t> drops; /* values that the step makes for nothing */
    std::string name;            /* for errors */
    /* Of an operator or an opaque step: it is known all that it writes to and hands on, and it may write to one of the
     * request's values. */
    bool is_told = false, writes = false;
    std::vector<size_t> written; /* of an operator: arguments that must be no weights when it runs */
};

/* Who runs it has to expect anything. */
inline bool is_untold(const Step &step)
{
    return (step.kind == Step::kOpaque || step.kind == Step::kOperator) && !step.is_told;
}

inline bool may_write(const Step &step)
{
    return step.writes || is_untold(step);
}

/* What a dimension of an input must be: factor * symbol + size, where a symbol is the same in all inputs. */
struct Dimension {
    int64_t size = 0, factor = 0;
    uint32_t symbol = 0;
    bool any = true;
};

struct Symbol {
    std::string name;
    int64_t least, most;
};

struct Input {
    std::string name;
    c10::TypePtr type;
    c10::IValue standard; /* what the model takes where a request has no such input */
    bool optional = false;
    uint32_t value = 0;
    swn_wire_tensor described = {};
    bool exact = false; /* a request's tensor must be of described.element, and of these sizes */
    std::vector<Dimension> sizes;
};

struct TapeFree {
    void operator()(swn_tape *t) const
    {
        swn_tape_free(t);
    }
};

/* Of storages (c10::StorageImpl). */
using Storages = std::unordered_set<const void *>;

struct Program {
    std::unique_ptr<swn_tape, TapeFree> tape;
    std::vector<Step> steps;
    std::vector<c10::IValue> constants; /* weights among them: the model's own tensors */
    std::shared_ptr<Storages> storages; /* of the constants: steps look whether they write to one */
    std::vector<Input> inputs;
    std::vector<uint32_t> unread; /* inputs that nothing reads */
    std::vector<Symbol> symbols;
    std::vector<swn_wire_tensor> outputs; /* described and named, if the file does: the result is a tuple of them */
    bool has_state = false; /* a request may change what outlives it: requests are neither joined nor tried */
    Ref result = 0;
    c10::TypePtr result_type;
    uint64_t weight_bytes = 0;
};

/* Reads a TorchScript file and makes its program. No weight's bytes are read. Throws what PyTorch throws, and
 * std::runtime_error for what cannot be served. */
std::unique_ptr<Program> program_from_torchscript(const std::string &path);

/* Reads a file of torch.export (.pt2). Throws the same. */
std::unique_ptr<Program> program_from_export(const std::string &path);

/* Chooses by what the file contains. Throws the same, and for a file that is neither. */
std::unique_ptr<Program> program_from_file(const std::string &path);

} // namespace swn
#endif
