# A tree that runs on a machine with a GPU, its driver and a C library, and nothing else:
#
#   cmake --build build/release --target gpu_bundle     # -> build/release/gpu_bundle and gpu_bundle.tar.xz
#   gpu_bundle/tests/gpu/run.sh                         # on that machine
#
# Programs in bin/, every library they need but the C library's and the driver's in lib/, Open MPI's
# launcher and plugins, and from the repository what the tests read.
if(PACELINE_FUZZ OR PACELINE_SANITIZE)
  return()
endif()
set(programs paceline test_kernels test_model test_collectives test_network bench_kernels bench_engine bench_speculation)
foreach(program test_tensor_cores bench_linear bench_price)
  if(TARGET ${program})
    list(APPEND programs ${program})
  endif()
endforeach()
# DT_RPATH, unlike DT_RUNPATH, serves the libraries of libraries too.
foreach(program ${programs})
  set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
  target_link_options(${program} PRIVATE -Wl,--disable-new-dtags)
endforeach()
install(TARGETS ${programs} RUNTIME DESTINATION bin COMPONENT gpu_bundle EXCLUDE_FROM_ALL)
file(GLOB parity RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/models/parity*)
foreach(folder configs tests/bench/shapes tests/gpu tests/mpi ${parity})
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/${folder}/ DESTINATION ${folder} COMPONENT gpu_bundle EXCLUDE_FROM_ALL
          USE_SOURCE_PERMISSIONS PATTERN "*.cmake" EXCLUDE PATTERN "CMakeLists.txt" EXCLUDE PATTERN "*.cu" EXCLUDE)
endforeach()

set(files "")
foreach(program ${programs})
  string(APPEND files "$<TARGET_FILE:${program}>;")
endforeach()
file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/gpu_bundle_programs.cmake
     CONTENT "set(programs ${files})\nset(mpi_library ${MPI_mpi_LIBRARY})\nset(mpiexec ${MPIEXEC_EXECUTABLE})\n")
install(CODE "include(${CMAKE_CURRENT_BINARY_DIR}/gpu_bundle_programs.cmake)
              include(${CMAKE_SOURCE_DIR}/tests/gpu/install_libraries.cmake)"
        COMPONENT gpu_bundle EXCLUDE_FROM_ALL)

set(tree ${CMAKE_BINARY_DIR}/gpu_bundle)
add_custom_target(gpu_bundle
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${tree}
  COMMAND ${CMAKE_COMMAND} --install ${CMAKE_BINARY_DIR} --component gpu_bundle --prefix ${tree} --strip
  # The programs have most of their code in common, further apart than xz looks by default.
  COMMAND ${CMAKE_COMMAND} -E env XZ_OPT=-9 tar -C ${CMAKE_BINARY_DIR} -cJf ${tree}.tar.xz gpu_bundle
  COMMENT "Bundling ${tree}, and packed ${tree}.tar.xz"
  DEPENDS ${programs}
  VERBATIM)
