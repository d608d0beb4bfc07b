# Every tests/fuzz/fuzz_*.c is a fuzz target; the other .c files there are helpers, and replay.c is the main() that runs
# the committed corpus in every build but the thread sanitizer's, as no target has a thread. With SWAPNET_FUZZER (clang; see
# scripts/fuzz) libFuzzer's main() takes its place.

if(SWAPNET_SANITIZE MATCHES thread)
    return()
endif()
file(GLOB fuzz_targets CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/fuzz_*.c)
file(GLOB fuzz_helpers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/*.c)
list(FILTER fuzz_helpers EXCLUDE REGEX "/(fuzz_[^/]*|replay)\\.c$")
foreach(source IN LISTS fuzz_targets)
    get_filename_component(name ${source} NAME_WE)
    string(REGEX REPLACE "^fuzz_" "" corpus ${name})
    add_executable(${name} ${source} ${fuzz_helpers})
    target_link_libraries(${name} PRIVATE swn_options swn_scheduler_daemon swn_scheduler_serve swn_scheduler_http swn_scheduler_simulation swn_skeleton_tape)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    if(SWAPNET_FUZZER)
        target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    else()
        target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/fuzz/replay.c)
        add_test(NAME ${name} COMMAND ${name} ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${corpus})
        set_tests_properties(${name} PROPERTIES TIMEOUT 300)
    endif()
endforeach()
