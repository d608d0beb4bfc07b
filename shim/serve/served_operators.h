/* shim/serve/served_operators.h - which operators a served model may call.
 *
 * Internal to the serve backend.
 */
#ifndef SWN_SHIM_SERVE_SERVED_OPERATORS_H
#define SWN_SHIM_SERVE_SERVED_OPERATORS_H

#include <string>

#include <torch/csrc/jit/api/compilation_unit.h>

namespace swn
{

/* Throws, naming the operator ("aten::linear", without its overload), where it is none of PyTorch's own namespaces, or
 * touches files, or runs what no file of a model has in it. */
void require_served(const std::string &name);
/* The same of all functions and methods that the code of a TorchScript file has, those of its interfaces too. */
void require_served(const torch::jit::CompilationUnit &code);
/* Takes the operators that touch files from TorchScript, for good: loading a file runs code of it (__setstate__,
 * defaults of arguments) before anybody can look at that code. */
void take_files_from_torchscript();
/* What require_served would say of the operator that a file could not be loaded for; else nothing. */
void require_known(const std::string &load_error);

} // namespace swn
#endif
