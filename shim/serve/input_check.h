/* shim/serve/input_check.h - whether the tensors of a request are those that an exported program takes.
 *
 * Internal to the serve backend.
 */
#ifndef SWN_SHIM_SERVE_INPUT_CHECK_H
#define SWN_SHIM_SERVE_INPUT_CHECK_H

#include <optional>
#include <vector>

#include "shim/serve/tape_program.h"

namespace swn
{

/* For one request, whose tensors share symbols. */
class InputCheck
{
  public:
    explicit InputCheck(const Program &program);
    void tensor(const Input &input, const swn_wire_tensor &t); /* throws BadInput */

  private:
    void dimension(const Input &input, size_t index, int64_t size);

    const Program &program_;
    std::vector<std::optional<int64_t>> symbols_;
};

} // namespace swn
#endif
