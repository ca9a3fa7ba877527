# Run at installation, with `programs`, `mpi_library` and `mpiexec`: libraries and Open MPI into
# CMAKE_INSTALL_PREFIX.
cmake_minimum_required(VERSION 3.25)
set(prefix ${CMAKE_INSTALL_PREFIX})

# Open MPI finds its parts by OPAL_* variables (tests/gpu/run.sh sets them). Plugins for networks need
# drivers of their own; ranks of one machine use shared memory.
get_filename_component(mpi_folder ${mpi_library} REALPATH)
get_filename_component(mpi_folder ${mpi_folder} DIRECTORY)
file(GLOB_RECURSE plugins ${mpi_folder}/openmpi/lib/openmpi3/mca_*.so ${mpi_folder}/openmpi/mca_*.so)
list(FILTER plugins EXCLUDE REGEX "ofi|ucx|psm|openib|verbs|ucp|memheap|spml|scoll|sshmem|atomic|monitoring|slurm|romio|flux|gridengine|jsm")
file(GLOB pmix_plugins ${mpi_folder}/pmix2/lib/pmix/mca_*.so)
get_filename_component(mpiexec_folder ${mpiexec} DIRECTORY)
set(launchers ${mpiexec_folder}/mpirun ${mpiexec_folder}/orted)

file(GET_RUNTIME_DEPENDENCIES
  EXECUTABLES ${programs} ${launchers}
  MODULES ${plugins} ${pmix_plugins}
  RESOLVED_DEPENDENCIES_VAR libraries
  UNRESOLVED_DEPENDENCIES_VAR missing
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|pthread|rt|resolv|util|nsl|anl)\\.so" "^libcuda\\.so" "^libnvidia"
  POST_EXCLUDE_REGEXES "/stubs/")
if(missing)
  message(FATAL_ERROR "not found: ${missing}")
endif()
file(INSTALL ${libraries} DESTINATION ${prefix}/lib FOLLOW_SYMLINK_CHAIN)
file(INSTALL ${plugins} DESTINATION ${prefix}/lib/openmpi)
file(INSTALL ${pmix_plugins} DESTINATION ${prefix}/lib/pmix)
foreach(launcher ${launchers})
  file(INSTALL ${launcher} DESTINATION ${prefix}/bin USE_SOURCE_PERMISSIONS FOLLOW_SYMLINK_CHAIN)
endforeach()
file(INSTALL /usr/share/openmpi/ DESTINATION ${prefix}/share/openmpi FILES_MATCHING PATTERN "help-*.txt")
