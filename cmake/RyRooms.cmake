# The few functions that the CMakeLists.txt of every folder uses.

# ry_room(NAME file...): the sources of one room, compiled once into the object library ry_NAME. A
# room without sources makes no target and harms nothing. RyLibrary.cmake joins all rooms.
function(ry_room name)
    if(NOT ARGN)
        return()
    endif()
    add_library(ry_${name} OBJECT ${ARGN})
    set_target_properties(ry_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_include_directories(ry_${name} PRIVATE ${PROJECT_SOURCE_DIR}/include
        ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(ry_${name} PRIVATE Threads::Threads)
    if(NOT name STREQUAL "sim")
        set_property(GLOBAL APPEND PROPERTY RY_ROOMS ry_${name})
    endif()
endfunction()

# ry_room_links(NAME target...): packages that a room uses; the library links them too.
function(ry_room_links name)
    if(TARGET ry_${name})
        target_link_libraries(ry_${name} PRIVATE ${ARGN})
        set_property(GLOBAL APPEND PROPERTY RY_LINKS ${ARGN})
    endif()
endfunction()

# ry_program(NAME file...): a program on the public API (examples, bench); sees include/ only.
function(ry_program name)
    add_executable(${name} ${ARGN})
    target_link_libraries(${name} PRIVATE railyard_static)
endfunction()

# ry_test(NAME LABEL [SOURCES file...] [LIBS target...] [TIMEOUT seconds] [ARGS arg...]): a cmocka
# program NAME from NAME.c unless SOURCES says otherwise. It may look inside (src/ is on its include
# path, "core/queue.h"). LABEL is the part of CI that runs it.
function(ry_test name label)
    cmake_parse_arguments(t "" "TIMEOUT" "SOURCES;LIBS;ARGS" ${ARGN})
    if(NOT t_SOURCES)
        set(t_SOURCES ${name}.c)
    endif()
    add_executable(${name} ${t_SOURCES})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src
        ${PROJECT_SOURCE_DIR}/test)
    target_link_libraries(${name} PRIVATE ${t_LIBS} railyard_static PkgConfig::CMOCKA
        Threads::Threads)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test)
    add_test(NAME ${name} COMMAND ${name} ${t_ARGS})
    ry_test_properties(${name} "${label}" "${t_TIMEOUT}")
endfunction()

# ry_script_test(NAME LABEL [TIMEOUT seconds] COMMAND word...): any command as a test. It finds the
# built command and the trees in RY_TEST_BIN, RY_TEST_SOURCE and RY_TEST_BUILD.
function(ry_script_test name label)
    cmake_parse_arguments(t "" "TIMEOUT" "COMMAND" ${ARGN})
    add_test(NAME ${name} COMMAND ${t_COMMAND})
    ry_test_properties(${name} "${label}" "${t_TIMEOUT}")
endfunction()

# ry_fuzz(NAME [file...]): a libFuzzer target (LLVMFuzzerTestOneInput in NAME.c) with seeds in
# seeds/NAME/. Without libFuzzer the same target runs once over its seeds, as a unit test.
function(ry_fuzz name)
    set(seeds ${CMAKE_CURRENT_SOURCE_DIR}/seeds/${name})
    add_executable(${name} ${name}.c ${ARGN})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(${name} PRIVATE railyard_static Threads::Threads)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
    set_property(GLOBAL APPEND PROPERTY RY_FUZZERS ${name})
    if(RAILYARD_FUZZ)
        target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    else()
        target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/test/fuzz/replay.c)
        add_test(NAME ${name} COMMAND ${name} ${seeds})
        ry_test_properties(${name} unit 60)
    endif()
endfunction()

function(ry_test_properties name label timeout)
    list(GET label 0 part)
    if(NOT part MATCHES "^(unit|ep|asan|tsan|sim|spin|fuzz|qemu|tidy)$")
        message(FATAL_ERROR "test ${name}: '${part}' is no part of CI, so nothing would run it")
    endif()
    if(NOT timeout)
        set(timeout 60)
    endif()
    set(env "RY_TEST_BIN=${CMAKE_BINARY_DIR}/bin/railyard;RY_TEST_SOURCE=${PROJECT_SOURCE_DIR}")
    list(APPEND env "RY_TEST_BUILD=${CMAKE_BINARY_DIR}")
    if(RAILYARD_NVCC)
        list(APPEND env "RY_TEST_NVCC=${RAILYARD_NVCC}")
    endif()
    set_tests_properties(${name} PROPERTIES LABELS "${label}" TIMEOUT ${timeout} SKIP_RETURN_CODE 77
        ENVIRONMENT "${env}")
endfunction()
