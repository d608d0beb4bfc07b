# libswapnet.so: everything inside, nothing showing, nothing needed beyond libc.

add_library(libswapnet SHARED ${PROJECT_SOURCE_DIR}/cmake/no_stdin.c)
target_link_libraries(libswapnet PRIVATE swn_options swn_hook_objects)
set_target_properties(libswapnet PROPERTIES
    OUTPUT_NAME swapnet
    LINKER_LANGUAGE C)
target_link_options(libswapnet PRIVATE
    -static-libgcc -Wl,--wrap=stdin -Wl,--exclude-libs,ALL -Wl,-z,defs -Wl,-z,relro,-z,now)

install(TARGETS libswapnet LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
