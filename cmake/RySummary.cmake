# What was found, so that nobody has to guess what a build can do.
function(ry_say name value)
    message(STATUS "  ${name}: ${value}")
endfunction()
function(ry_say_optional name have version without)
    if(have)
        ry_say(${name} "yes, ${version}")
    else()
        ry_say(${name} "no: ${without}")
    endif()
endfunction()

message(STATUS "railyard ${PROJECT_VERSION}")
ry_say("compiler  " "${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}, ${CMAKE_BUILD_TYPE}")
if(RAILYARD_SANITIZE)
    ry_say("sanitizers" "${RAILYARD_SANITIZE}")
endif()
ry_say("werror    " "${RAILYARD_WERROR}")
ry_say("jansson   " "${JANSSON_VERSION}")
ry_say("libarchive" "${LIBARCHIVE_VERSION}")
ry_say("hwloc     " "${HWLOC_VERSION}")
ry_say_optional("libibverbs" "${RAILYARD_HAVE_IBVERBS}" "${IBVERBS_VERSION}"
    "--nic verbs is left out")
ry_say_optional("libmlx5   " "${RAILYARD_HAVE_MLX5}" "${MLX5_VERSION}" "--nic mlx5 is left out")
ry_say_optional("pmix      " "${RAILYARD_HAVE_PMIX}" "${PMIX_VERSION}"
    "mpirun, prterun and srun cannot start it, railyard run can")
ry_say_optional("cuda      " "${RAILYARD_HAVE_CUDA}" "${CMAKE_CUDA_COMPILER_VERSION}"
    "RAILYARD_CUDA=${RAILYARD_CUDA}, --device cuda is left out")
