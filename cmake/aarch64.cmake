# Toolchain file: Debian's cross compiler for AArch64. Libraries come from the root that `scripts/setup --with-aarch64`
# makes, programs of the build from the machine that builds; tests run under qemu-user.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

get_filename_component(swn_root ${CMAKE_CURRENT_LIST_DIR}/../.deps/aarch64/libraries ABSOLUTE)
set(CMAKE_FIND_ROOT_PATH ${swn_root})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)

# cmocka and zlib come from the root.
set(CMAKE_CROSSCOMPILING_EMULATOR
    ${CMAKE_COMMAND};-E;env;EMULATED_LIBRARIES=${swn_root}/usr/lib/aarch64-linux-gnu:${swn_root}/lib/aarch64-linux-gnu
    ${CMAKE_CURRENT_LIST_DIR}/../tests/aarch64/emulate)
