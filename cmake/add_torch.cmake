# lib/swapnet/add_torch: what `swapnetctl add-torch` builds backends from, by the lists of torch_backends.cmake.

set(add_torch ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/swapnet/add_torch)
set(add_torch_installed ${CMAKE_INSTALL_LIBDIR}/swapnet/add_torch)

# A JSON list of strings.
function(swn_json_list out)
    list(TRANSFORM ARGN REPLACE "^(.+)$" "\"\\1\"")
    list(JOIN ARGN ", " joined)
    set(${out} "[${joined}]" PARENT_SCOPE)
endfunction()

set(recipe "{\n  \"version\": \"${PROJECT_VERSION}\",\n  \"build\": \"${SWAPNET_BACKEND_BUILD}\"")
foreach(kind aten serve)
    set(sources "")
    foreach(source IN LISTS ${kind}_sources)
        file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${source})
        if(NOT source IN_LIST backend_parts)
            message(FATAL_ERROR "${name} is missing in cmake/backend_build.cmake")
        endif()
        list(APPEND sources ${name})
        get_filename_component(folder ${name} DIRECTORY)
        install(FILES ${source} DESTINATION ${add_torch_installed}/source/${folder})
    endforeach()
    swn_json_list(sources ${sources})
    swn_json_list(link ${${kind}_link})
    swn_json_list(archives ${${kind}_archives})
    string(APPEND recipe ",\n  \"${kind}\": {\"symbol\": \"swn_${kind}_backend\", \"link\": ${link}, \"archives\": ${archives},\n    \"sources\": ${sources}}")
endforeach()
file(CONFIGURE OUTPUT ${add_torch}/recipe.json CONTENT "${recipe}\n}\n" @ONLY)

foreach(program tools/add_torch/__main__.py cmake/torch_info.py)
    get_filename_component(name ${program} NAME)
    configure_file(${PROJECT_SOURCE_DIR}/${program} ${add_torch}/${name} COPYONLY)
    install(FILES ${PROJECT_SOURCE_DIR}/${program} DESTINATION ${add_torch_installed})
endforeach()
install(FILES ${add_torch}/recipe.json DESTINATION ${add_torch_installed})

# jansson goes into the serve backend as an archive, as everywhere.
find_path(JANSSON_CONFIG NAMES jansson_config.h REQUIRED)
foreach(header ${jansson_HEADERS}/jansson.h ${JANSSON_CONFIG}/jansson_config.h)
    file(COPY ${header} DESTINATION ${add_torch}/include)
    install(FILES ${header} DESTINATION ${add_torch_installed}/include)
endforeach()
file(COPY ${jansson_ARCHIVE} DESTINATION ${add_torch})
install(FILES ${jansson_ARCHIVE} DESTINATION ${add_torch_installed})

# In the build tree the sources are those of the project.
file(CREATE_LINK ${PROJECT_SOURCE_DIR} ${add_torch}/source SYMBOLIC)
foreach(folder IN LISTS backend_header_folders)
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder}/ DESTINATION ${add_torch_installed}/source/${folder} FILES_MATCHING PATTERN "*.h")
endforeach()
