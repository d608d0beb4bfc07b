# Toolchain file of what scripts/package ships. The C library's headers and symbols are those of Debian 11 (glibc 2.31), so that
# the programs run wherever that one or a later one is; scripts/debian-root makes the root that has them. Nothing in what is built
# depends on where it is built.
#
# SWAPNET_MACHINE: x86_64 or aarch64. SWAPNET_ROOT: that root.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${SWAPNET_MACHINE})
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES SWAPNET_MACHINE SWAPNET_ROOT)
set(CMAKE_LIBRARY_ARCHITECTURE ${SWAPNET_MACHINE}-linux-gnu)
set(CMAKE_C_COMPILER ${SWAPNET_MACHINE}-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER ${SWAPNET_MACHINE}-linux-gnu-g++)

set(CMAKE_SYSROOT ${SWAPNET_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)

# The compilers look in directories of their own first, which --sysroot does not move: for headers, start files and libraries.
# So the compiler's headers, those of its C++ library, and the root's are named one by one.
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -E -v -x c++ /dev/null OUTPUT_QUIET ERROR_VARIABLE swn_said)
string(REGEX MATCH "<\\.\\.\\.> search starts here:\n(.*)\nEnd of search list" _ "${swn_said}")
string(REGEX MATCHALL "[^ \n]+" swn_directories "${CMAKE_MATCH_1}")
set(swn_headers_c "-nostdinc")
set(swn_headers_cxx "-nostdinc -nostdinc++")
foreach(directory IN LISTS swn_directories)
    get_filename_component(real ${directory} REALPATH)
    if(real MATCHES "/c\\+\\+/") # before all others, as its headers end with #include_next
        string(APPEND swn_headers_cxx " -I${real}")
    elseif(real MATCHES "/gcc(-cross)?/.*/include$")
        string(APPEND swn_headers_c " -isystem ${real}")
        string(APPEND swn_headers_cxx " -isystem ${real}")
    endif()
endforeach()
set(swn_root_headers "-isystem ${SWAPNET_ROOT}/usr/include/${CMAKE_LIBRARY_ARCHITECTURE} -isystem ${SWAPNET_ROOT}/usr/include")
get_filename_component(swn_sources ${CMAKE_CURRENT_LIST_DIR}/.. ABSOLUTE)
# PyTorch's headers are known by their real paths, which are elsewhere where .deps is a link.
get_filename_component(swn_deps ${swn_sources}/.deps REALPATH)
set(swn_prefixes "-ffile-prefix-map=${swn_deps}=./.deps -ffile-prefix-map=${SWAPNET_ROOT}=root -ffile-prefix-map=${CMAKE_BINARY_DIR}=build -ffile-prefix-map=${swn_sources}=.")
set(CMAKE_C_FLAGS_INIT "${swn_headers_c} ${swn_root_headers} ${swn_prefixes}")
set(CMAKE_CXX_FLAGS_INIT "${swn_headers_cxx} ${swn_root_headers} ${swn_prefixes}")

set(swn_libraries ${SWAPNET_ROOT}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE})
# libgcc_eh.a, which libswapnet.so has inside, asks for what the C library has.
file(GLOB swn_gcc ${SWAPNET_ROOT}/usr/lib/gcc/${CMAKE_LIBRARY_ARCHITECTURE}/*)
# A library that PyTorch or a server brings may want a later C library than the root's.
set(swn_link "-B${swn_libraries}/ -L${swn_gcc} -L${swn_libraries} -L${SWAPNET_ROOT}/lib/${CMAKE_LIBRARY_ARCHITECTURE} -Wl,--build-id=sha1 -Wl,--allow-shlib-undefined")
foreach(kind EXE SHARED MODULE)
    set(CMAKE_${kind}_LINKER_FLAGS_INIT "${swn_link}")
endforeach()
