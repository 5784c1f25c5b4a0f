# The store of PTX, and the libraries through which compilers are called.
ops_debug_test(interposer_ptx_store_test
  SOURCES assembler_command_test.cc cubin_identity_test.cc framework_cache_test.cc ptx_folder_test.cc
          twin_registers_test.cc unfused_arithmetic_test.cc
  LIBRARIES ops_debug_interposer_parts)

foreach(copy one two)
  hooks_library(library_hooks_copy_${copy} SOURCES library_hooks_parts.cc DEFINITIONS COPY="${copy}")
  hooks_library(library_hooks_user_${copy} SOURCES library_hooks_parts.cc LIBRARIES library_hooks_copy_${copy})
  set_target_properties(library_hooks_copy_${copy} PROPERTIES OUTPUT_NAME nvrtc_${copy})
  set_target_properties(library_hooks_user_${copy} PROPERTIES OUTPUT_NAME user_${copy})
  set_target_properties(library_hooks_copy_${copy} library_hooks_user_${copy} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY ${hooks_programs}/${copy})
endforeach()
hooks_executable(library_hooks_program SOURCES library_hooks_program.cc)
ops_debug_test(interposer_library_hooks_test SOURCES library_hooks_test.cc LIBRARIES ops_debug_proto ops_debug_ring)
target_compile_definitions(interposer_library_hooks_test PRIVATE ${hooks_definitions})
add_dependencies(interposer_library_hooks_test ops_debug_interposer library_hooks_program library_hooks_user_one
  library_hooks_user_two)
set_tests_properties(interposer_library_hooks_test PROPERTIES LABELS preload)
