# cmake --install: command, both libraries, headers, pkg-config file, man pages. The pkg-config file
# finds its prefix from its own place, so that a tree may be moved or staged.
install(TARGETS railyard_static railyard_shared railyard
    RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/railyard DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILES_MATCHING PATTERN *.h PATTERN *.cuh)

file(RELATIVE_PATH RY_PC_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" RY_PC_UP "${RY_PC_UP}")
set(RY_PC_REQUIRES "jansson, libarchive, hwloc")
if(RAILYARD_HAVE_IBVERBS)
    string(APPEND RY_PC_REQUIRES ", libibverbs")
endif()
if(RAILYARD_HAVE_PMIX)
    string(APPEND RY_PC_REQUIRES ", pmix")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/railyard.pc.in ${CMAKE_BINARY_DIR}/railyard.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/railyard.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

foreach(section 1 3 5 7)
    file(GLOB ry_man CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/doc/man/*.${section})
    if(ry_man)
        install(FILES ${ry_man} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
    endif()
endforeach()
