// shim/serve/model_file.cpp - chooses the front end for a file by what it contains.
#include "shim/serve/tape_program.h"

#include <stdexcept>

#include "shim/serve/error_text.h"

#include <caffe2/serialize/inline_container.h>

namespace swn
{

std::unique_ptr<Program> program_from_file(const std::string &path)
{
    bool exported = false, scripted = false;
    try {
        caffe2::serialize::PyTorchStreamReader reader(path);
        exported = reader.hasRecord("archive_format") || reader.hasRecord("models/model.json");
        scripted = reader.hasRecord("constants.pkl");
    } catch (const std::exception &e) {
        throw std::runtime_error("neither a TorchScript file nor one of torch.export: it is no readable archive of "
                                 "PyTorch's: " +
                                 std::string(error_text(e)).substr(0, 200));
    }
    if (exported)
        return program_from_export(path);
    if (!scripted)
        throw std::runtime_error("neither a TorchScript file nor one of torch.export: it has no models/model.json and "
                                 "no constants.pkl (torch.save writes weights alone)");
    return program_from_torchscript(path);
}

} // namespace swn
