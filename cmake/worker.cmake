# The program of the engine processes that run Python: lib/swapnet/worker, a directory for the interpreter, with the package
# swapnet_worker and the library that has the loop.

add_library(swapnet-worker MODULE ${PROJECT_SOURCE_DIR}/shim/worker/worker.c ${PROJECT_SOURCE_DIR}/shim/serve/engine.c)
target_link_libraries(swapnet-worker PRIVATE swn_options swn_base swn_scheduler_protocol)
set_target_properties(swapnet-worker PROPERTIES
    PREFIX "" OUTPUT_NAME worker LIBRARY_OUTPUT_DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/swapnet/worker)
target_link_options(swapnet-worker PRIVATE -Wl,--exclude-libs,ALL -Wl,-z,defs -Wl,-z,relro,-z,now)
install(TARGETS swapnet-worker LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/swapnet/worker COMPONENT serving)

file(GLOB worker_modules CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/shim/worker/*.py)
foreach(module IN LISTS worker_modules)
    get_filename_component(name ${module} NAME)
    set(below swapnet/worker)
    if(NOT name STREQUAL "__main__.py")
        set(below swapnet/worker/swapnet_worker)
    endif()
    configure_file(${module} ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/${below}/${name} COPYONLY)
    install(FILES ${module} DESTINATION ${CMAKE_INSTALL_LIBDIR}/${below} COMPONENT serving)
endforeach()

# What `swapnetctl verify --model-repository` runs.
file(GLOB verify_modules CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/verify/*.py)
foreach(module IN LISTS verify_modules)
    get_filename_component(name ${module} NAME)
    configure_file(${module} ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/swapnet/verify/${name} COPYONLY)
    install(FILES ${module} DESTINATION ${CMAKE_INSTALL_LIBDIR}/swapnet/verify COMPONENT serving)
endforeach()
