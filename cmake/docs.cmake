# Man pages, completions, the public header and the pkg-config file.

file(GLOB man_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/man/*.scd)
find_program(SCDOC scdoc)
if(man_sources AND NOT SCDOC)
    message(STATUS "scdoc not found: no man pages")
elseif(man_sources)
    set(man_pages "")
    file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/man)
    foreach(source IN LISTS man_sources)
        get_filename_component(page ${source} NAME_WLE)
        string(REGEX MATCH "[1-9]$" section ${page})
        set(output ${PROJECT_BINARY_DIR}/man/${page})
        # By way of another name, so that a page scdoc refuses does not pass for built the next time. Without the day on which it was
        # built, which would be all that differs.
        add_custom_command(OUTPUT ${output} DEPENDS ${source} VERBATIM
            COMMAND sh -c "\"$1\" <\"$2\" >\"$3.new\" && sed -i '/^[.]TH /s/\"[0-9-]*\"$/\"\"/' \"$3.new\" && mv \"$3.new\" \"$3\"" sh ${SCDOC} ${source} ${output})
        list(APPEND man_pages ${output})
        set(component runtime)
        if(page MATCHES "^swapnet-serve")
            set(component serving)
        endif()
        install(FILES ${output} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section} COMPONENT ${component})
    endforeach()
    add_custom_target(man ALL DEPENDS ${man_pages})
endif()

file(GLOB completions CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/share/completion/*.bash)
foreach(completion IN LISTS completions)
    get_filename_component(command ${completion} NAME_WLE)
    install(FILES ${completion} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME ${command})
endforeach()

install(FILES ${PROJECT_SOURCE_DIR}/skeleton/capi/swapnet.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
configure_file(${PROJECT_SOURCE_DIR}/cmake/swapnet.pc.in ${PROJECT_BINARY_DIR}/swapnet.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/swapnet.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

configure_file(${PROJECT_SOURCE_DIR}/share/systemd/swapnetd.service.in ${PROJECT_BINARY_DIR}/swapnetd.service @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/swapnetd.service ${PROJECT_SOURCE_DIR}/share/systemd/swapnetd.socket
    DESTINATION lib/systemd/system COMPONENT service)
install(FILES ${PROJECT_SOURCE_DIR}/share/systemd/sysusers.conf DESTINATION lib/sysusers.d RENAME swapnet.conf COMPONENT service)
if(TARGET swapnet-serve)
    configure_file(${PROJECT_SOURCE_DIR}/share/systemd/swapnet-serve.service.in
        ${PROJECT_BINARY_DIR}/swapnet-serve.service @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/swapnet-serve.service DESTINATION lib/systemd/system COMPONENT service)
    install(FILES ${PROJECT_SOURCE_DIR}/share/systemd/tmpfiles.conf DESTINATION lib/tmpfiles.d RENAME swapnet.conf COMPONENT service)
endif()
