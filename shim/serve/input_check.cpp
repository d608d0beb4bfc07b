// shim/serve/input_check.cpp - see input_check.h. The checks are those of ExportedProgram.module(), and that of the
// element type.
#include "shim/serve/input_check.h"

#include "shim/serve/wire_tensors.h"

namespace swn
{
namespace
{

std::string element_name(uint32_t element)
{
    const char *name = swn_element_name(static_cast<swn_element>(element));
    return name ? name : "of no known type";
}

} // namespace

InputCheck::InputCheck(const Program &program) : program_(program), symbols_(program.symbols.size())
{
}

/* A symbol is what the first dimension that has it says. */
void InputCheck::dimension(const Input &input, size_t index, int64_t size)
{
    const Dimension &d = input.sizes[index];
    if (d.any)
        return;
    auto refuse = [&](const std::string &wanted) {
        throw BadInput("input \"" + input.name + "\": dimension " + std::to_string(index) + " is " +
                       std::to_string(size) + ", and must be " + wanted);
    };
    if (d.factor == 0) {
        if (size != d.size)
            refuse(std::to_string(d.size));
        return;
    }
    const Symbol &symbol = program_.symbols[d.symbol];
    std::optional<int64_t> &known = symbols_[d.symbol];
    __int128 rest = static_cast<__int128>(size) - d.size;
    if (!known) {
        __int128 solution = rest / d.factor;
        if (rest % d.factor != 0 || solution != static_cast<int64_t>(solution))
            refuse(std::to_string(d.factor) + " * " + symbol.name + " + " + std::to_string(d.size));
        known = static_cast<int64_t>(solution);
        if (*known < symbol.least)
            refuse("such that " + symbol.name + " is at least " + std::to_string(symbol.least));
        if (*known > symbol.most)
            refuse("such that " + symbol.name + " is at most " + std::to_string(symbol.most));
    } else if (rest != static_cast<__int128>(d.factor) * *known) {
        refuse(std::to_string(static_cast<int64_t>(static_cast<__int128>(d.factor) * *known + d.size)) +
               " as other dimensions of the request say");
    }
}

void InputCheck::tensor(const Input &input, const swn_wire_tensor &t)
{
    if (!input.exact)
        return;
    if (t.element != input.described.element)
        throw BadInput("input \"" + input.name + "\" is " + element_name(t.element) + ", and must be " +
                       element_name(input.described.element));
    if (t.rank != input.sizes.size())
        throw BadInput("input \"" + input.name + "\" has " + std::to_string(t.rank) + " dimensions, and must have " +
                       std::to_string(input.sizes.size()));
    for (size_t i = 0; i < input.sizes.size(); i++)
        dimension(input, i, t.shape[i]);
}

} // namespace swn
