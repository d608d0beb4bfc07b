"""check_names.py BACKEND LIBRARIES: does the PyTorch in the directory LIBRARIES export all names that a torch backend takes from it?

Nothing is run, so the backend may be another machine's. Names that the linker found in libc and libstdc++ have a version there; what
has none must be PyTorch's. Where the directory has strings.txt (scripts/fetch-torch-headers), the PyTorch at hand has other C++
strings than the backend, and a name is looked up as a person reads it.
"""
import pathlib
import re
import subprocess
import sys

LIBRARIES = ["libc10.so", "libtorch_cpu.so"]
STRING = re.compile(r"std::(__cxx11::)?basic_string<char, std::char_traits<char>, std::allocator<char> >")


def symbols(path):
    """(bind, is undefined, name with its version) of each dynamic symbol."""
    table = subprocess.run(["readelf", "-W", "--dyn-syms", path], capture_output=True, text=True, check=True).stdout
    for line in table.splitlines():
        part = line.split()
        if len(part) >= 8 and part[4] in ("GLOBAL", "WEAK", "UNIQUE"):
            yield part[4], part[6] == "UND", part[7]


def plain_strings(lines):
    return [STRING.sub("std::string", line).replace("[abi:cxx11]", "") for line in lines]


def readable(names):
    text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return plain_strings(text.splitlines())


def main():
    backend, directory = map(pathlib.Path, sys.argv[1:])
    wanted = [name for bind, undefined, name in symbols(backend) if undefined and bind != "WEAK" and "@" not in name]
    exported = {name.split("@")[0] for library in LIBRARIES for _, undefined, name in symbols(directory / library) if not undefined}
    missing = [name for name in wanted if name not in exported]
    strings = directory / "strings.txt"
    if missing and strings.exists():
        known = set(readable(exported)) | set(plain_strings(strings.read_text().splitlines()))
        missing = [name for name, text in zip(missing, readable(missing)) if text not in known]
    if not wanted:
        sys.exit(f"{backend.name} takes nothing from PyTorch")
    for text in readable(missing) if missing else []:
        print(f"{backend.name}: its PyTorch has no {text}")
    if missing:
        sys.exit(1)
    print(f"{backend.name}: its PyTorch has all {len(wanted)} names")


main()
