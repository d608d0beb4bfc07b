// shim/serve/symbolic_numbers.cpp - see symbolic_numbers.h. Integers that leave 64 bits are an error, where Python's
// would grow.
#include "shim/serve/symbolic_numbers.h"

#include <cmath>
#include <cstring>
#include <stdexcept>

#include <ATen/core/ivalue.h>

namespace swn
{
namespace
{

using torch::jit::Stack;

bool is_whole(const c10::IValue &v)
{
    return v.isInt() || v.isBool();
}

int64_t whole(const c10::IValue &v)
{
    if (v.isBool())
        return v.toBool();
    if (v.isInt())
        return v.toInt();
    throw std::runtime_error("a size is no integer");
}

double real(const c10::IValue &v)
{
    if (v.isDouble())
        return v.toDouble();
    return static_cast<double>(whole(v));
}

int64_t in_range(bool overflow, int64_t result)
{
    if (overflow)
        throw std::runtime_error("a size does not fit 64 bits");
    return result;
}

int64_t floor_divide(int64_t a, int64_t b)
{
    if (b == 0)
        throw std::runtime_error("a size is divided by zero");
    if (b == -1)
        return in_range(a == INT64_MIN, -a);
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

template <class Whole, class Real> void two(Stack &s, Whole on_whole, Real on_real)
{
    c10::IValue a = s[0], b = s[1];
    s.clear();
    if (is_whole(a) && is_whole(b))
        s.emplace_back(on_whole(whole(a), whole(b)));
    else
        s.emplace_back(on_real(real(a), real(b)));
}

void add(Stack &s)
{
    two(
        s,
        [](int64_t a, int64_t b) {
            int64_t r = 0;
            bool overflow = __builtin_add_overflow(a, b, &r);
            return in_range(overflow, r);
        },
        [](double a, double b) { return a + b; });
}

void sub(Stack &s)
{
    two(
        s,
        [](int64_t a, int64_t b) {
            int64_t r = 0;
            bool overflow = __builtin_sub_overflow(a, b, &r);
            return in_range(overflow, r);
        },
        [](double a, double b) { return a - b; });
}

void mul(Stack &s)
{
    two(
        s,
        [](int64_t a, int64_t b) {
            int64_t r = 0;
            bool overflow = __builtin_mul_overflow(a, b, &r);
            return in_range(overflow, r);
        },
        [](double a, double b) { return a * b; });
}

void floordiv(Stack &s)
{
    two(s, floor_divide, [](double a, double b) { return std::floor(a / b); });
}

void mod(Stack &s)
{
    two(
        s, [](int64_t a, int64_t b) { return b == -1 ? 0 : a - floor_divide(a, b) * b; },
        [](double a, double b) { return a - std::floor(a / b) * b; });
}

void truediv(Stack &s)
{
    double a = real(s[0]), b = real(s[1]);
    if (b == 0)
        throw std::runtime_error("a size is divided by zero");
    s.clear();
    s.emplace_back(a / b);
}

void power(Stack &s)
{
    two(
        s,
        [](int64_t a, int64_t b) {
            int64_t r = 1;
            if (b < 0 || (b > 63 && a != 0 && a != 1 && a != -1))
                throw std::runtime_error("a power of a size is no 64-bit integer");
            for (int64_t i = 0; i < (b > 63 ? 2 + b % 2 : b); i++)
                if (__builtin_mul_overflow(r, a, &r))
                    return in_range(true, r);
            return r;
        },
        [](double a, double b) { return std::pow(a, b); });
}

void smaller(Stack &s)
{
    two(
        s, [](int64_t a, int64_t b) { return a < b ? a : b; }, [](double a, double b) { return a < b ? a : b; });
}

void larger(Stack &s)
{
    two(
        s, [](int64_t a, int64_t b) { return a > b ? a : b; }, [](double a, double b) { return a > b ? a : b; });
}

template <class Compare> void compare(Stack &s, Compare holds)
{
    two(s, holds, holds);
}

void eq(Stack &s)
{
    compare(s, [](auto a, auto b) { return a == b; });
}

void ne(Stack &s)
{
    compare(s, [](auto a, auto b) { return a != b; });
}

void lt(Stack &s)
{
    compare(s, [](auto a, auto b) { return a < b; });
}

void le(Stack &s)
{
    compare(s, [](auto a, auto b) { return a <= b; });
}

void gt(Stack &s)
{
    compare(s, [](auto a, auto b) { return a > b; });
}

void ge(Stack &s)
{
    compare(s, [](auto a, auto b) { return a >= b; });
}

void both(Stack &s)
{
    bool truth = s[0].isBool() && s[1].isBool();
    int64_t r = whole(s[0]) & whole(s[1]);
    s.clear();
    s.push_back(truth ? c10::IValue(r != 0) : c10::IValue(r));
}

void either(Stack &s)
{
    bool truth = s[0].isBool() && s[1].isBool();
    int64_t r = whole(s[0]) | whole(s[1]);
    s.clear();
    s.push_back(truth ? c10::IValue(r != 0) : c10::IValue(r));
}

void negative(Stack &s)
{
    c10::IValue v =
        s[0].isDouble() ? c10::IValue(-s[0].toDouble()) : c10::IValue(in_range(whole(s[0]) == INT64_MIN, -whole(s[0])));
    s.assign(1, v);
}

void positive(Stack &)
{
}

void opposite(Stack &s)
{
    s.assign(1, c10::IValue(whole(s[0]) == 0));
}

void to_real(Stack &s)
{
    s.assign(1, c10::IValue(real(s[0])));
}

void root(Stack &s)
{
    s.assign(1, c10::IValue(std::sqrt(real(s[0]))));
}

void truncate(Stack &s)
{
    if (is_whole(s[0])) {
        s.assign(1, c10::IValue(whole(s[0])));
        return;
    }
    double v = std::trunc(s[0].toDouble());
    if (!(std::fabs(v) < 9.0e18))
        throw std::runtime_error("a size does not fit 64 bits");
    s.assign(1, c10::IValue(static_cast<int64_t>(v)));
}

void choose(Stack &s)
{
    c10::IValue v = whole(s[0]) ? s[1] : s[2];
    s.assign(1, v);
}

const struct {
    const char *target;
    size_t arguments;
    NumberFunction function;
} functions[] = {
    {"_operator.add", 2, add},       {"_operator.sub", 2, sub},
    {"_operator.mul", 2, mul},       {"_operator.floordiv", 2, floordiv},
    {"_operator.mod", 2, mod},       {"_operator.truediv", 2, truediv},
    {"_operator.pow", 2, power},     {"_operator.eq", 2, eq},
    {"_operator.ne", 2, ne},         {"_operator.lt", 2, lt},
    {"_operator.le", 2, le},         {"_operator.gt", 2, gt},
    {"_operator.ge", 2, ge},         {"_operator.and_", 2, both},
    {"_operator.or_", 2, either},    {"_operator.neg", 1, negative},
    {"_operator.pos", 1, positive},  {"torch.sym_not", 1, opposite},
    {"torch.sym_float", 1, to_real}, {"torch.sym_int", 1, truncate},
    {"torch.sym_max", 2, larger},    {"torch.sym_min", 2, smaller},
    {"torch.sym_ite", 3, choose},    {"torch._sym_sqrt", 1, root},
    {"torch.sym_sqrt", 1, root},     {"math.trunc", 1, truncate},
};

} // namespace

NumberFunction number_function(const std::string &target, size_t arguments)
{
    for (const auto &f : functions)
        if (target == f.target && arguments == f.arguments)
            return f.function;
    return nullptr;
}

} // namespace swn
