# The rooms joined: every object is compiled once and goes into railyard_static (librailyard.a) and
# railyard_shared (librailyard.so), which shows ry_* only.
get_property(ry_rooms GLOBAL PROPERTY RY_ROOMS)
get_property(ry_links GLOBAL PROPERTY RY_LINKS)
list(REMOVE_DUPLICATES ry_links)
set(ry_objects)
foreach(room IN LISTS ry_rooms)
    list(APPEND ry_objects $<TARGET_OBJECTS:${room}>)
endforeach()

add_library(railyard_static STATIC ${ry_objects})
add_library(railyard_shared SHARED ${ry_objects})
foreach(lib railyard_static railyard_shared)
    target_include_directories(${lib} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    set_target_properties(${lib} PROPERTIES OUTPUT_NAME railyard LINKER_LANGUAGE C)
endforeach()
target_link_libraries(railyard_static PUBLIC ${ry_links} Threads::Threads m)
target_link_libraries(railyard_shared PRIVATE ${ry_links} Threads::Threads m)
set(ry_map ${PROJECT_SOURCE_DIR}/cmake/railyard.map)
set_target_properties(railyard_shared PROPERTIES VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR} LINK_DEPENDS ${ry_map})
target_link_options(railyard_shared PRIVATE -Wl,--version-script=${ry_map})
if(NOT RAILYARD_SANITIZE)
    target_link_options(railyard_shared PRIVATE -Wl,--no-undefined)
endif()
