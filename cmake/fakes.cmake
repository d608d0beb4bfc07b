# Stand-ins for a GPU, for tests only: a CUDA runtime over host memory, and for each PyTorch a device over that runtime.

file(GLOB standin_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fakes/cuda/*.c)
add_library(standin-cudart SHARED ${standin_sources})
target_link_libraries(standin-cudart PRIVATE swn_options)
# Found by its name, and its functions by their version, like the real one's.
target_link_options(standin-cudart PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/tests/fakes/cuda/cudart.map)
set_target_properties(standin-cudart PROPERTIES
    OUTPUT_NAME cudart SOVERSION 12 LINK_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fakes/cuda/cudart.map LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/fakes)

# A PyTorch whose memory is not malloc's: no more of it than its allocator, and the half that t_hook_alloc's executable finds
# beside itself as an ordinary one's.
add_library(standin-c10 MODULE ${PROJECT_SOURCE_DIR}/tests/fakes/c10/c10.c)
add_library(standin-c10-half MODULE ${PROJECT_SOURCE_DIR}/tests/fakes/c10/half.c)
set_target_properties(standin-c10 PROPERTIES PREFIX "" OUTPUT_NAME libc10.so SUFFIX .9.99
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/fakes)
set_target_properties(standin-c10-half PROPERTIES PREFIX "" OUTPUT_NAME aten-9.99
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/swapnet)
foreach(target standin-c10 standin-c10-half)
    target_link_libraries(${target} PRIVATE swn_options)
endforeach()

# function(swn_torch_backend) in halves.cmake says which PyTorchs there are, and how they are built for.
foreach(half IN LISTS SWAPNET_HALVES)
    add_library(standin-${half} MODULE ${PROJECT_SOURCE_DIR}/tests/fakes/cuda/device.cpp)
    foreach(property CXX_STANDARD COMPILE_DEFINITIONS LINK_LIBRARIES)
        get_target_property(value aten-${half} ${property})
        set_target_properties(standin-${half} PROPERTIES ${property} "${value}")
    endforeach()
    get_target_property(value aten-${half} INCLUDE_DIRECTORIES)
    target_include_directories(standin-${half} SYSTEM PRIVATE ${value})
    target_link_libraries(standin-${half} PRIVATE standin-cudart)
    # Three quarters of its 40 s of compiling.
    target_precompile_headers(standin-${half} REUSE_FROM aten-${half})
    set_target_properties(standin-${half} PROPERTIES
        PREFIX "" DEFINE_SYMBOL "" LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/fakes)
endforeach()
