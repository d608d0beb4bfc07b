# What backends are linked with instead of PyTorch's libraries: only the name, for which swn_torch_link makes a library in a process
# (skeleton/abi/torch_link.h). PyTorch's functions are those that are left undefined; check_names.py looks them up.
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/torch_link/empty.c CONTENT "/* nothing */\n")
add_library(swapnet-torch SHARED ${PROJECT_BINARY_DIR}/torch_link/empty.c)
set_target_properties(swapnet-torch PROPERTIES NO_SONAME ON LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/torch_link)
target_link_options(swapnet-torch PRIVATE -nostdlib -Wl,-soname,swapnet-torch)
add_library(swn_torch_link INTERFACE)
target_link_libraries(swn_torch_link INTERFACE -Wl,--push-state,--no-as-needed swapnet-torch -Wl,--pop-state)
