# cmake --install: command, both libraries, headers, pkg-config file, man pages. The pkg-config file
# finds its prefix from its own place, so that a tree may be moved or staged.
install(TARGETS railyard_static railyard_shared railyard railyard-sim
    RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/railyard DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILES_MATCHING PATTERN *.h PATTERN *.cuh)

file(RELATIVE_PATH RY_PC_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" RY_PC_UP "${RY_PC_UP}")
# Link flags and not Requires.private: that would ask for the static libraries of our libraries too.
set(RY_PC_LIBS_PRIVATE ${JANSSON_LDFLAGS} ${LIBARCHIVE_LDFLAGS} ${HWLOC_LDFLAGS})
foreach(ry_dep IBVERBS MLX5 PMIX)
    if(RAILYARD_HAVE_${ry_dep})
        list(APPEND RY_PC_LIBS_PRIVATE ${${ry_dep}_LDFLAGS})
    endif()
endforeach()
if(RAILYARD_HAVE_CUDA)
    list(APPEND RY_PC_LIBS_PRIVATE -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt)
endif()
list(APPEND RY_PC_LIBS_PRIVATE -pthread -lm)
list(REMOVE_DUPLICATES RY_PC_LIBS_PRIVATE)
list(JOIN RY_PC_LIBS_PRIVATE " " RY_PC_LIBS_PRIVATE)
configure_file(${PROJECT_SOURCE_DIR}/cmake/railyard.pc.in
    ${CMAKE_BINARY_DIR}/railyard.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/railyard.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The same for find_package(railyard).
include(CMakePackageConfigHelpers)
set(ry_config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/railyard)
file(RELATIVE_PATH RY_CONFIG_UP /${ry_config_dir} /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/railyard-config.cmake.in
    ${CMAKE_BINARY_DIR}/railyard-config.cmake @ONLY)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/railyard-config-version.cmake
    COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_BINARY_DIR}/railyard-config.cmake
    ${CMAKE_BINARY_DIR}/railyard-config-version.cmake DESTINATION ${ry_config_dir})

foreach(section 1 3 5 7)
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/doc/man/
        DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section}
        FILES_MATCHING PATTERN "*.${section}")
endforeach()

# Section 3 is made of the headers: one page each, and a pointer to it for every function.
file(GLOB ry_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/railyard/*.h)
set(ry_man_awk ${PROJECT_SOURCE_DIR}/cmake/header_man.awk)
set(ry_man_dir ${CMAKE_BINARY_DIR}/man/man3)
file(MAKE_DIRECTORY ${ry_man_dir})
set(ry_man_pages)
foreach(header IN LISTS ry_headers)
    get_filename_component(base ${header} NAME_WE)
    add_custom_command(OUTPUT ${ry_man_dir}/railyard_${base}.3
        COMMAND awk -v name=railyard_${base} -v header=${base}.h -v date=${RAILYARD_DATE}
            -v version=${PROJECT_VERSION} -v folder=${ry_man_dir} -f ${ry_man_awk} ${header}
        DEPENDS ${header} ${ry_man_awk} VERBATIM)
    list(APPEND ry_man_pages ${ry_man_dir}/railyard_${base}.3)
endforeach()
add_custom_target(man ALL DEPENDS ${ry_man_pages})
install(DIRECTORY ${ry_man_dir}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man3)
