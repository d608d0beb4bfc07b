"""Says where this interpreter's PyTorch lies, for CMake: KEY=VALUE lines, or nothing when there is none.

torch is located, not imported: importing takes seconds, and would fail under a cross build or a broken BLAS. So the
version comes from torch/version.py and the C++ ABI from the names that libc10.so exports.
"""
import glob
import importlib.util
import os
import re
import sys
import sysconfig


def first_dir_with(name, candidates):
    for path in candidates:
        if path and os.path.exists(os.path.join(path, name)):
            return path
    return None


def main():
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        return
    package = os.path.dirname(os.path.realpath(spec.origin))
    version_file = os.path.join(package, "version.py")
    with open(version_file, encoding="utf-8") as f:
        found = re.search(r"^__version__\s*(?::[^=]*)?=\s*['\"]((\d+)\.(\d+)[^'\"]*)['\"]", f.read(), re.M)
    if not found:
        sys.exit(f"{version_file} names no version")

    # A wheel brings its own headers and libraries; Debian puts them where everybody's are.
    triplet = sysconfig.get_config_var("MULTIARCH") or ""
    include = first_dir_with("ATen/ATen.h", [os.path.join(package, "include"), "/usr/include"])
    lib = first_dir_with("libc10.so", [os.path.join(package, "lib"), f"/usr/lib/{triplet}", "/usr/lib", "/usr/lib64"])
    if include is None or lib is None:
        sys.exit(f"PyTorch {found[1]} in {package} comes without " + ("C++ headers" if include is None else "libc10.so"))
    if not os.path.exists(os.path.join(lib, "libtorch_cpu.so")):
        lib = first_dir_with("libtorch_cpu.so", [f"/usr/lib/{triplet}", "/usr/lib"]) or lib
    includes = [include]
    api = os.path.join(include, "torch", "csrc", "api", "include")
    if os.path.isdir(api):
        includes.append(api)

    c10 = os.path.join(lib, "libc10.so")
    with open(c10, "rb") as f:
        # A function of its own: libraries of the old ABI may use some of libstdc++'s of the new one (2.6 from PyPI).
        cxx11_abi = int(b"_ZN3c105ErrorC2ENS_14SourceLocationESs" not in f.read())

    print(f"VERSION={found[1]}")
    print(f"MAJOR={found[2]}")
    print(f"MINOR={found[3]}")
    print("INCLUDES=" + ";".join(includes))
    print(f"C10={c10}")
    print("TORCH_CPU=" + os.path.join(lib, "libtorch_cpu.so"))
    print(f"CXX11_ABI={cxx11_abi}")
    print(f"VERSION_FILE={version_file}")


main()
