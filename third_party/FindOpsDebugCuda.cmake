# Finds the CUDA toolkit once for the whole project: its headers (cuda.h) and nvcc. The project needs no CUDA language
# support of CMake, because nothing of ours is compiled by nvcc during the build.
#
# Search order, first hit wins:
#   cache variable OPS_DEBUG_CUDA_HOME, environment CUDA_HOME and CUDA_PATH, /usr/local/cuda, nvcc on PATH,
#   build/toolkit (laid out by scripts/setup.sh from the toolkit's PyPI packages).
# OPS_DEBUG_TOOLKIT=pypi in the environment takes only the last one. Toolkits before CUDA 13.0 are passed over: the tables
# of the driver API are generated from the headers of 13.0 (kernels may still be compiled by an older nvcc).
#
# Defines
#   OpsDebugCuda_FOUND         TRUE or FALSE
#   OpsDebugCuda_HOME          root of the toolkit, and the cache variable OPS_DEBUG_CUDA_HOME set to it
#   OpsDebugCuda_INCLUDE_DIR   folder of cuda.h
#   OpsDebugCuda_NVCC          path of nvcc
#   OpsDebugCuda_VERSION       CUDA_VERSION of cuda.h as MAJOR.MINOR
#   OpsDebugCuda::headers      interface target with the include folder (as a system folder)
#   OpsDebugCuda_SANITIZER_INCLUDE_DIR, OpsDebugCuda::sanitizer_headers
#                              the same for NVIDIA's Sanitizer API, if its headers are there: in the toolkit, or in
#                              build/sanitizer (the PyPI package, fetched by scripts/setup.sh)

set(_candidates "${OPS_DEBUG_CUDA_HOME}")
if(NOT "$ENV{OPS_DEBUG_TOOLKIT}" STREQUAL "pypi")
  list(APPEND _candidates "$ENV{CUDA_HOME}" "$ENV{CUDA_PATH}" /usr/local/cuda)
  find_program(_nvcc_on_path nvcc NO_CACHE)
  if(_nvcc_on_path)
    # nvcc may be a wrapper script: ask it where its toolkit is (the line "#$ TOP=..." of a dry run).
    execute_process(COMMAND ${_nvcc_on_path} --dryrun -ptx -x cu /dev/null
                    ERROR_VARIABLE _dry_run OUTPUT_QUIET RESULT_VARIABLE _ignored)
    if(_dry_run MATCHES "#\\$ TOP=([^\n]+)")
      get_filename_component(_top "${CMAKE_MATCH_1}" ABSOLUTE)
      list(APPEND _candidates "${_top}")
    endif()
  endif()
endif()
list(APPEND _candidates "${CMAKE_SOURCE_DIR}/build/toolkit" "${CMAKE_BINARY_DIR}/toolkit")

set(OpsDebugCuda_HOME "")
foreach(_candidate IN LISTS _candidates)
  if(NOT _candidate OR NOT EXISTS "${_candidate}/bin/nvcc" OR NOT EXISTS "${_candidate}/include/cuda.h")
    continue()
  endif()
  file(STRINGS "${_candidate}/include/cuda.h" _version_line REGEX "^#define CUDA_VERSION [0-9]+")
  if(_version_line MATCHES "([0-9]+)" AND CMAKE_MATCH_1 GREATER_EQUAL 13000)
    set(OpsDebugCuda_HOME "${_candidate}")
    math(EXPR _major "${CMAKE_MATCH_1} / 1000")
    math(EXPR _minor "${CMAKE_MATCH_1} % 1000 / 10")
    set(OpsDebugCuda_VERSION "${_major}.${_minor}")
    break()
  endif()
endforeach()

if(OpsDebugCuda_HOME)
  set(OPS_DEBUG_CUDA_HOME "${OpsDebugCuda_HOME}" CACHE PATH "CUDA toolkit: bin/nvcc and include/cuda.h" FORCE)
  set(OpsDebugCuda_INCLUDE_DIR "${OpsDebugCuda_HOME}/include")
  set(OpsDebugCuda_NVCC "${OpsDebugCuda_HOME}/bin/nvcc")
  if(NOT TARGET OpsDebugCuda::headers)
    add_library(OpsDebugCuda::headers INTERFACE IMPORTED GLOBAL)
    target_include_directories(OpsDebugCuda::headers SYSTEM INTERFACE "${OpsDebugCuda_INCLUDE_DIR}")
  endif()
endif()

set(OpsDebugCuda_SANITIZER_INCLUDE_DIR "")
foreach(_folder "${OpsDebugCuda_HOME}/compute-sanitizer/include" "${OpsDebugCuda_HOME}/include"
                "${CMAKE_SOURCE_DIR}/build/sanitizer/include" "${CMAKE_BINARY_DIR}/sanitizer/include")
  if(EXISTS "${_folder}/sanitizer_patching.h")
    set(OpsDebugCuda_SANITIZER_INCLUDE_DIR "${_folder}")
    if(NOT TARGET OpsDebugCuda::sanitizer_headers)
      add_library(OpsDebugCuda::sanitizer_headers INTERFACE IMPORTED GLOBAL)
      target_include_directories(OpsDebugCuda::sanitizer_headers SYSTEM INTERFACE "${_folder}")
    endif()
    break()
  endif()
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OpsDebugCuda
  REQUIRED_VARS OpsDebugCuda_HOME OpsDebugCuda_NVCC OpsDebugCuda_INCLUDE_DIR
  VERSION_VAR OpsDebugCuda_VERSION
  REASON_FAILURE_MESSAGE "no CUDA toolkit of version 13.0 or later: run scripts/setup.sh, or set CUDA_HOME")
