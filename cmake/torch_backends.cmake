# The torch backends: shim/torch/*.cpp once per PyTorch, as lib/swapnet/aten-<major>.<minor>.so, or -precxx11.so for one whose C++
# strings are those before C++11. Which PyTorchs there are, the interpreters in SWAPNET_PYTHONS say, or directories of packages
# (.../dist-packages), which may be another machine's, or have no more of PyTorch than scripts/fetch-torch-headers keeps.

file(GLOB aten_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/shim/torch/*.cpp)
list(APPEND aten_sources ${PROJECT_SOURCE_DIR}/profiles/flops.c)
file(GLOB serve_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/shim/serve/*.cpp)
file(GLOB tape_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/skeleton/tape/*.c)
list(APPEND serve_sources ${tape_sources} ${PROJECT_SOURCE_DIR}/scheduler/protocol/engine_wire.c
    ${PROJECT_SOURCE_DIR}/shim/torch/fp_control.cpp ${PROJECT_SOURCE_DIR}/shim/torch/math_settings.cpp
    ${PROJECT_SOURCE_DIR}/cmake/no_stdin.c)
set(aten_headers ATen/ATen.h ATen/record_function.h torch/library.h)
set(serve_headers ATen/ATen.h torch/csrc/jit/api/module.h)
set(serve_archives libjansson.a) # for add_torch.cmake
set(aten_link -Wl,-z,relro,-z,now)
set(serve_link -Wl,--wrap=stdin -Wl,--exclude-libs,ALL -Wl,-z,relro,-z,now)
set(SWAPNET_BACKENDS "")

option(SWAPNET_JOIN_BACKENDS "Compile the C++ files of a torch backend as one: for many PyTorchs, each built once" OFF)

# PyTorch's headers leave so many templates to be instantiated that each file takes GCC 4 s more, whatever is in it, and a
# precompiled header half a GB. So files that are compiled once, and not again after each change, are compiled together:
# names without linkage are different in all files of a backend.
function(swn_backend_sources target)
    # PyTorch's checks put the name of their file into messages: not where it lay when it was compiled.
    target_compile_options(${target} PRIVATE "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")
    if(SWAPNET_JOIN_BACKENDS)
        set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
        get_target_property(sources ${target} SOURCES)
        list(FILTER sources INCLUDE REGEX "\\.c$")
        set_source_files_properties(${sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
        return()
    endif()
    # Nearly all of a file's 10 to 25 s of compiling is these. Each file names what it needs all the same. The presets compile
    # C++ with -g1: the types of PyTorch's headers in full take longer than the code.
    foreach(header IN LISTS ARGN)
        target_precompile_headers(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:<${header}$<ANGLE-R>>")
    endforeach()
endfunction()

function(swn_torch_backend python)
    set(asked ${python} ${PROJECT_SOURCE_DIR}/cmake/torch_info.py)
    if(IS_DIRECTORY ${python})
        set(asked python3 ${PROJECT_SOURCE_DIR}/cmake/torch_info.py ${python} ${CMAKE_LIBRARY_ARCHITECTURE})
    endif()
    execute_process(COMMAND ${asked}
        RESULT_VARIABLE rc OUTPUT_VARIABLE info ERROR_VARIABLE error OUTPUT_STRIP_TRAILING_WHITESPACE
        ERROR_STRIP_TRAILING_WHITESPACE)
    if(NOT rc STREQUAL "0")
        message(WARNING "${python}: no torch backend: ${rc} ${error}")
        return()
    endif()
    if(NOT info)
        message(STATUS "${python} has no PyTorch")
        return()
    endif()
    foreach(key VERSION MAJOR MINOR INCLUDES C10 TORCH_CPU CXX11_ABI STANDARD VERSION_FILE)
        string(REGEX MATCH "(^|\n)${key}=([^\n]*)" _ "${info}")
        set(torch_${key} "${CMAKE_MATCH_2}")
    endforeach()

    set(number ${torch_MAJOR}.${torch_MINOR})
    set(name ${number})
    if(NOT torch_CXX11_ABI)
        set(name ${number}-precxx11) # see skeleton/abi/backend_file.h
    endif()
    if(TARGET aten-${name})
        message(STATUS "${python}: PyTorch ${torch_VERSION}: another interpreter already asked for ${name}")
        return()
    endif()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${torch_VERSION_FILE})
    set(standard ${torch_STANDARD})
    message(STATUS "${python}: PyTorch ${torch_VERSION}, C++${standard}, C++11 ABI ${torch_CXX11_ABI}")

    add_library(aten-${name} MODULE ${aten_sources})
    set_target_properties(aten-${name} PROPERTIES
        PREFIX "" CXX_STANDARD ${standard} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/swapnet
        DEFINE_SYMBOL "") # or nobody else could use its precompiled headers
    target_include_directories(aten-${name} SYSTEM PRIVATE ${torch_INCLUDES})
    # Without NDEBUG the inline functions of the headers are not those that the libraries were built with.
    target_compile_definitions(aten-${name} PRIVATE
        NDEBUG _GLIBCXX_USE_CXX11_ABI=${torch_CXX11_ABI}
        SWAPNET_TORCH_MAJOR=${torch_MAJOR} SWAPNET_TORCH_MINOR=${torch_MINOR})
    target_link_libraries(aten-${name} PRIVATE swn_options swn_torch_link)
    set_target_properties(aten-${name} PROPERTIES SWAPNET_TORCH_LIBRARIES "${torch_C10};${torch_TORCH_CPU}")
    swn_backend_sources(aten-${name} ${aten_headers})
    target_link_options(aten-${name} PRIVATE ${aten_link})
    install(TARGETS aten-${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/swapnet COMPONENT backends)

    # What swapnet-engine runs models with.
    add_library(serve-${name} MODULE ${serve_sources})
    set_target_properties(serve-${name} PROPERTIES
        PREFIX "" CXX_STANDARD ${standard} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/swapnet)
    target_include_directories(serve-${name} SYSTEM PRIVATE ${torch_INCLUDES})
    target_compile_definitions(serve-${name} PRIVATE
        NDEBUG _GLIBCXX_USE_CXX11_ABI=${torch_CXX11_ABI}
        SWAPNET_TORCH_MAJOR=${torch_MAJOR} SWAPNET_TORCH_MINOR=${torch_MINOR})
    target_link_libraries(serve-${name} PRIVATE swn_options jansson swn_torch_link)
    set_target_properties(serve-${name} PROPERTIES DEFINE_SYMBOL "")
    swn_backend_sources(serve-${name} ${serve_headers})
    target_link_options(serve-${name} PRIVATE ${serve_link})
    install(TARGETS serve-${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/swapnet COMPONENT serving-backends)
    # It cannot be tried here, perhaps, but its names can be looked up.
    if(IS_DIRECTORY ${python})
        get_filename_component(libraries ${torch_C10} DIRECTORY)
        foreach(kind aten serve)
            add_custom_command(TARGET ${kind}-${name} POST_BUILD
                COMMAND python3 ${PROJECT_SOURCE_DIR}/cmake/check_names.py $<TARGET_FILE:${kind}-${name}> ${libraries}
                VERBATIM)
        endforeach()
    endif()
    set(SWAPNET_BACKENDS ${SWAPNET_BACKENDS} ${name} PARENT_SCOPE)
endfunction()

foreach(python IN LISTS SWAPNET_PYTHONS)
    swn_torch_backend(${python})
endforeach()
if(NOT SWAPNET_BACKENDS)
    message(WARNING "No PyTorch found: libswapnet.so will leave every process alone. Set SWAPNET_PYTHONS.")
endif()
