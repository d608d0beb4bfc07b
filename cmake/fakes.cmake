# Stand-ins for a GPU, for tests only: a CUDA runtime over host memory, and for each PyTorch a device over that runtime.

file(GLOB standin_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fakes/cuda/*.c)
add_library(standin-cudart SHARED ${standin_sources})
target_link_libraries(standin-cudart PRIVATE swn_options)
# Found by its name, and its functions by their version, like the real one's.
target_link_options(standin-cudart PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/tests/fakes/cuda/cudart.map)
set_target_properties(standin-cudart PROPERTIES
    OUTPUT_NAME cudart SOVERSION 12 LINK_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fakes/cuda/cudart.map LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/fakes)

# A PyTorch whose memory is not malloc's: no more of it than its allocator, and the torch backend that t_hook_alloc's executable finds
# beside itself as an ordinary one's.
add_library(standin-c10 MODULE ${PROJECT_SOURCE_DIR}/tests/fakes/c10/c10.c)
add_library(standin-c10-backend MODULE ${PROJECT_SOURCE_DIR}/tests/fakes/c10/backend.c)
set_target_properties(standin-c10 PROPERTIES PREFIX "" OUTPUT_NAME libc10.so SUFFIX .9.99
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/fakes)
set_target_properties(standin-c10-backend PROPERTIES PREFIX "" OUTPUT_NAME aten-9.99
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/swapnet)
foreach(target standin-c10 standin-c10-backend)
    target_link_libraries(${target} PRIVATE swn_options)
endforeach()

# Two PyTorchs that differ in what their libraries are called and in where they lie, and what asks for them as torch backends do.
add_library(standin-asks MODULE ${PROJECT_SOURCE_DIR}/tests/fakes/c10/asks.c)
target_link_libraries(standin-asks PRIVATE swn_options swn_torch_link)
set_target_properties(standin-asks PROPERTIES PREFIX "" OUTPUT_NAME asks LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/fakes)
foreach(library c10 torch_cpu)
    foreach(number 1 2)
        set(target standin-${library}-${number})
        add_library(${target} MODULE ${PROJECT_SOURCE_DIR}/tests/fakes/c10/named.c)
        target_link_libraries(${target} PRIVATE swn_options)
        target_compile_definitions(${target} PRIVATE NAME=${library}_number NUMBER=${number})
        set(suffix "")
        if(number EQUAL 1)
            set(suffix .2.99)
        endif()
        set_target_properties(${target} PROPERTIES OUTPUT_NAME ${library} SUFFIX .so${suffix} LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/fakes/${number})
        target_link_options(${target} PRIVATE -Wl,-soname,lib${library}.so${suffix})
    endforeach()
endforeach()

# function(swn_torch_backend) in torch_backends.cmake says which PyTorchs there are, and how they are built for.
foreach(backend IN LISTS SWAPNET_BACKENDS)
    add_library(standin-${backend} MODULE ${PROJECT_SOURCE_DIR}/tests/fakes/cuda/device.cpp)
    foreach(property CXX_STANDARD COMPILE_DEFINITIONS)
        get_target_property(value aten-${backend} ${property})
        set_target_properties(standin-${backend} PROPERTIES ${property} "${value}")
    endforeach()
    get_target_property(value aten-${backend} SWAPNET_TORCH_LIBRARIES) # PyTorch itself loads it
    target_link_libraries(standin-${backend} PRIVATE swn_options ${value})
    get_target_property(value aten-${backend} INCLUDE_DIRECTORIES)
    target_include_directories(standin-${backend} SYSTEM PRIVATE ${value})
    target_link_libraries(standin-${backend} PRIVATE standin-cudart)
    # Three quarters of its 40 s of compiling.
    if(NOT SWAPNET_JOIN_BACKENDS) # else there is none
        target_precompile_headers(standin-${backend} REUSE_FROM aten-${backend})
    endif()
    set_target_properties(standin-${backend} PROPERTIES
        PREFIX "" DEFINE_SYMBOL "" LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/fakes)
endforeach()
