"""Says where this interpreter's PyTorch lies, for CMake: KEY=VALUE lines, or nothing when there is none. With arguments
PACKAGES TRIPLET: the one in that directory of packages, which may be another machine's.

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
    if len(sys.argv) > 1:
        directory, triplet = sys.argv[1:]
        package = os.path.join(os.path.realpath(directory), "torch")
        prefix = os.path.realpath(os.path.join(package, "../../../.."))  # of lib/python3/dist-packages
        if not os.path.exists(os.path.join(package, "version.py")):
            return
    else:
        spec = importlib.util.find_spec("torch")
        if spec is None or not spec.origin:
            return
        package, prefix = os.path.dirname(os.path.realpath(spec.origin)), "/usr"
        triplet = sysconfig.get_config_var("MULTIARCH") or ""
    version_file = os.path.join(package, "version.py")
    with open(version_file, encoding="utf-8") as f:
        found = re.search(r"^__version__\s*(?::[^=]*)?=\s*['\"]((\d+)\.(\d+)[^'\"]*)['\"]", f.read(), re.M)
    if not found:
        sys.exit(f"{version_file} names no version")

    # A wheel brings its own headers and libraries; Debian puts them where everybody's are.
    include = first_dir_with("ATen/ATen.h", [os.path.join(package, "include"), f"{prefix}/include"])
    libs = [f"{prefix}/lib/{triplet}", f"{prefix}/lib", f"{prefix}/lib64"]
    lib = first_dir_with("libc10.so", [os.path.join(package, "lib"), *libs])
    if include is None or lib is None:
        sys.exit(f"PyTorch {found[1]} in {package} comes without " + ("C++ headers" if include is None else "libc10.so"))
    if not os.path.exists(os.path.join(lib, "libtorch_cpu.so")):
        lib = first_dir_with("libtorch_cpu.so", libs) or lib
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
    # The headers of 2.13 require C++20; those before 2.10 are older than it.
    print(f"STANDARD={20 if (int(found[2]), int(found[3])) >= (2, 10) else 17}")
    print(f"VERSION_FILE={version_file}")


main()
