# SWAPNET_BACKEND_BUILD, the version and a hash of all that backends are built from. A user's backends lie in a directory of that
# name (skeleton/abi/backend_file.h), so that no library loads what `swapnetctl add-torch` built with another swapnet: between
# two builds their interface may differ though its number is the same.

# Whose headers the sources of backends include.
set(backend_header_folders shim/torch shim/serve skeleton/abi skeleton/tape profiles scheduler/protocol)
list(TRANSFORM backend_header_folders PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE patterns)
list(TRANSFORM patterns APPEND /*.h)
foreach(pattern shim/torch/*.cpp shim/serve/*.cpp skeleton/tape/*.c profiles/flops.c scheduler/protocol/engine_wire.c
        cmake/no_stdin.c cmake/torch_backends.cmake cmake/torch_link.cmake cmake/torch_info.py tools/add_torch/*.py)
    list(APPEND patterns ${PROJECT_SOURCE_DIR}/${pattern})
endforeach()
file(GLOB_RECURSE backend_parts CONFIGURE_DEPENDS ${patterns})
list(SORT backend_parts)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${backend_parts})
set(hashes "")
foreach(part IN LISTS backend_parts)
    file(SHA256 ${part} hash)
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${part})
    string(APPEND hashes "${hash}  ${name}\n")
endforeach()
string(SHA256 hash "${hashes}")
string(SUBSTRING ${hash} 0 12 hash)
set(SWAPNET_BACKEND_BUILD ${PROJECT_VERSION}-${hash})
set_property(SOURCE ${PROJECT_SOURCE_DIR}/skeleton/abi/backend_file.c APPEND PROPERTY
    COMPILE_DEFINITIONS SWAPNET_BACKEND_BUILD="${SWAPNET_BACKEND_BUILD}")
