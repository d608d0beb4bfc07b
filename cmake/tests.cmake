# Every t_*.c below tests/unit is a program and a test; exit 77 means skipped. tests/unit/support has helpers of all of
# them.

file(GLOB_RECURSE unit_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/unit/t_*.c)
file(GLOB unit_helpers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/unit/support/*.c)
find_path(CMOCKA_HEADERS NAMES cmocka.h)
find_library(CMOCKA_LIBRARY NAMES cmocka)
if(NOT CMOCKA_HEADERS OR NOT CMOCKA_LIBRARY)
    message(FATAL_ERROR "cmocka is needed for the tests (or -DBUILD_TESTING=OFF); on Debian: libcmocka-dev")
endif()

add_library(swn_unit_helpers STATIC ${unit_helpers})
target_include_directories(swn_unit_helpers PUBLIC ${CMOCKA_HEADERS})
target_link_libraries(swn_unit_helpers PRIVATE swn_options PUBLIC ${swn_skeleton} swn_skeleton_capi swn_scheduler_daemon swn_scheduler_serve swn_scheduler_http swn_scheduler_simulation
    ${CMOCKA_LIBRARY})
if(SWAPNET_SANITIZE OR CMAKE_CROSSCOMPILING)
    target_compile_definitions(swn_unit_helpers PRIVATE SWN_TESTS_ARE_SLOW)
endif()
# libc before the hooks' archive: a test's own read() must not pull our interposer in.
add_library(swn_hooks STATIC $<TARGET_OBJECTS:swn_hook_objects>)
target_link_libraries(swn_hooks PUBLIC ${swn_skeleton})
add_library(swn_unit INTERFACE)
target_link_libraries(swn_unit INTERFACE swn_options swn_unit_helpers c swn_hooks)
include(cmake/fakes.cmake)
set(t_doctor_LIBRARIES swn_tools_doctor)
foreach(name t_unified t_device t_swapper t_pinned_cache t_host_register t_bounce)
    set(${name}_LIBRARIES standin-cudart)
    set(${name}_LINK -Wl,-rpath,${PROJECT_BINARY_DIR}/tests/fakes)
endforeach()
# One thread, and no engine: nothing for the thread sanitizer, under which some of them take a minute. That a test starts no
# thread `strace -f -e trace=clone,clone3 TEST` says.
set(unit_tests_without_threads t_config t_partition_minmax t_divide t_access_order t_pickle t_reading_time t_plan t_plan_pieces t_queue_depth t_verify_log t_safetensors t_size t_torch_version t_backend_file t_torch_link t_checksum t_hook_baseline t_zip t_json_tensor t_oip t_oip_classes t_oip_inflate t_model_config
    t_serve_party t_serve_queue t_repository t_server_metrics t_completion t_completion_exact t_lane_policy t_lane_estimate t_lane_foretell t_lane_time t_several t_deadlines t_peers t_shared_prefix t_lane_online t_task_exact t_task_lookahead
    t_task_policies t_simulation t_lane_run t_task_table t_workload
    t_exported t_activation_layout t_partition_table t_lease_book t_profile t_partition t_lane_tasks t_serve_lane t_task_schedule
    t_tape t_codec t_least_squares t_leases t_predict t_block_pipeline t_stats t_flops t_preload t_ensemble t_torch_records
    t_tensor_layout t_tensor_bounds t_short_turn t_one_job t_paths t_group_times t_queue_terms t_join t_engine_wire t_errmsg t_atomic_file t_file_io
    t_compressed t_store_build t_store_memory)
# What CTest runs in a sanitizer's build: nothing else there is run, and the release build compiles all of it.
add_custom_target(unit-tests)
foreach(source IN LISTS unit_tests)
    get_filename_component(name ${source} NAME_WE)
    if(SWAPNET_SANITIZE MATCHES thread AND name IN_LIST unit_tests_without_threads)
        file(STRINGS ${source} threads REGEX "pthread_(create|mutex_)|swn_thread_start|engine_fixture\\.h")
        if(threads)
            message(FATAL_ERROR "${source} has threads, and is left out under their sanitizer: ${threads}")
        endif()
        continue()
    endif()
    # A line of its own says which functions the test has its own versions of: /* wraps: NAME... */
    file(STRINGS ${source} wraps REGEX "^/\\* wraps: ")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
    string(REGEX REPLACE "/\\* wraps:|\\*/|;" " " wraps "${wraps}")
    separate_arguments(wraps)
    list(TRANSFORM wraps PREPEND -Wl,--wrap=)
    list(APPEND ${name}_LINK ${wraps})
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE swn_unit ${${name}_LIBRARIES})
    target_link_options(${name} PRIVATE ${${name}_LINK})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    add_test(NAME ${name} COMMAND ${name})
    add_dependencies(unit-tests ${name})
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600)
    # Another one says that it compares real times, which only these may do again (scripts/test): /* timed: WHY */
    file(STRINGS ${source} timed REGEX "^/\\* timed: ")
    if(timed)
        set_tests_properties(${name} PROPERTIES LABELS timed)
    endif()
endforeach()

# The longest first: one that is left for the end has the machine to itself. In seconds, roughly; an emulator takes longest for
# what computes, and a sanitizer for what is compressed.
set(costs t_swapper:140 t_op_window:100 t_slice:80 t_no_memory:70 t_profile_record:60 t_engine:55 t_device:48 t_fetch_paths:38
    t_activation_plan:36 t_budget:35 t_compressed:33 t_store_build:32 t_store:23 t_residency:22 t_slice_budget:21
    t_daemon_client:19 t_spill_file:18 t_residency_steps:28 t_many_models:25 t_partition_table:20 t_announced:18 t_cache:17
    t_expert:16 t_lane_run:12 t_deadlines:11 t_load_checksum:10 t_write_behind:10 t_fetch_setup:10 t_bounce:9)
if(CMAKE_CROSSCOMPILING)
    list(APPEND costs t_lane_run:88 t_partition_table:70 t_store_build:60 t_task_lookahead:50 t_exported:50 t_oip_inflate:40
        t_task_exact:30 t_reading_time:28 t_deadlines:24)
endif()
foreach(cost IN LISTS costs)
    string(REPLACE ":" ";" cost ${cost})
    list(GET cost 0 name)
    list(GET cost 1 seconds)
    if(TEST ${name})
        set_tests_properties(${name} PROPERTIES COST ${seconds})
    endif()
endforeach()

# It is libswapnet.so to the stand-ins: they find its functions before their own.
set_target_properties(t_hook_alloc PROPERTIES ENABLE_EXPORTS TRUE)
target_compile_definitions(t_hook_alloc PRIVATE
    STANDIN_C10="$<TARGET_FILE:standin-c10>" STANDIN_BACKEND="$<TARGET_FILE:standin-c10-backend>")
add_dependencies(t_hook_alloc standin-c10 standin-c10-backend)
if(TARGET t_torch_link) # not under the thread sanitizer
    target_compile_definitions(t_torch_link PRIVATE FAKES="${PROJECT_BINARY_DIR}/tests/fakes")
    add_dependencies(t_torch_link standin-asks standin-c10-1 standin-c10-2 standin-torch_cpu-1 standin-torch_cpu-2)
endif()

set_tests_properties(t_unified t_device t_swapper t_pinned_cache t_host_register t_bounce PROPERTIES LABELS unified)
set_tests_properties(t_swapper PROPERTIES TIMEOUT 900) # a minute of two idle processors under the thread sanitizer

# With `ctest -L unified` comes all that concerns devices; scripts/test runs pytest itself, and leaves out these by -LE e2e.
if(SWAPNET_BACKENDS AND NOT CMAKE_CROSSCOMPILING)
    add_test(NAME e2e-unified COMMAND /usr/bin/python3 -m pytest -m unified tests/e2e
        WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(e2e-unified PROPERTIES
        LABELS "unified;e2e" ENVIRONMENT SWAPNET_BUILD=${PROJECT_BINARY_DIR} RUN_SERIAL TRUE TIMEOUT 1800)
    list(GET SWAPNET_PYTHONS 0 python)
    add_test(NAME gpu COMMAND ${PROJECT_SOURCE_DIR}/tests/gpu/run --ctest --small --python ${python} --build ${PROJECT_BINARY_DIR})
    set_tests_properties(gpu PROPERTIES LABELS unified SKIP_RETURN_CODE 77 RUN_SERIAL TRUE TIMEOUT 600)
endif()

# Objects of other machines and of sanitizers name the same functions.
if(TARGET libswapnet)
    add_test(NAME layers COMMAND ${PROJECT_SOURCE_DIR}/scripts/check-layers ${PROJECT_BINARY_DIR})
    add_test(NAME house COMMAND ${PROJECT_SOURCE_DIR}/scripts/check-house)
    set_tests_properties(house PROPERTIES SKIP_RETURN_CODE 77)
endif()

if(TARGET swapnet-store)
    add_test(NAME store-library COMMAND ${PROJECT_SOURCE_DIR}/cmake/check_library.sh
        $<TARGET_FILE:swapnet-store> ${PROJECT_SOURCE_DIR}/skeleton/capi/exports.txt)
endif()
if(TARGET libswapnet)
    add_test(NAME library COMMAND ${PROJECT_SOURCE_DIR}/cmake/check_library.sh
        $<TARGET_FILE:libswapnet> ${PROJECT_SOURCE_DIR}/shim/hooks/exports.txt)
    foreach(backend IN LISTS SWAPNET_BACKENDS)
        add_test(NAME aten-${backend} COMMAND ${PROJECT_SOURCE_DIR}/cmake/check_backend.sh $<TARGET_FILE:aten-${backend}>)
    endforeach()
    add_test(NAME install COMMAND ${PROJECT_SOURCE_DIR}/cmake/check_install.sh
        ${CMAKE_COMMAND} ${PROJECT_BINARY_DIR} ${CMAKE_INSTALL_LIBDIR} ${CMAKE_INSTALL_BINDIR} ${CMAKE_INSTALL_DATADIR}
        ${CMAKE_INSTALL_MANDIR} ${SWAPNET_BACKENDS})
    # Reads what the build is writing, should somebody build and test at once; a minute is plenty either way.
    set_tests_properties(library install PROPERTIES TIMEOUT 60)
endif()

# Programs that end-to-end tests run: not installed.
file(GLOB test_tools CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/tools/*.c)
foreach(source IN LISTS test_tools)
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE swn_options swn_blocks_checkpoint swn_scheduler_protocol jansson)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
endforeach()
