# The semantic handlers inside a test program: linked in whole, over a libcuda.so.1 made for them (handlers/fake_driver.h).
set(handlers ${CMAKE_CURRENT_SOURCE_DIR}/handlers)

add_library(handlers_fake_driver SHARED ${handlers}/fake_driver.cc)
set_target_properties(handlers_fake_driver PROPERTIES
  OUTPUT_NAME cuda SOVERSION 1 LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test/handlers)
target_link_libraries(handlers_fake_driver PRIVATE OpsDebugCuda::headers)
target_link_options(handlers_fake_driver PRIVATE -Wl,-Bsymbolic)

ops_debug_test(interposer_handlers_test
  SOURCES ${handlers}/session.cc ${handlers}/abi_test.cc ${handlers}/allocation_test.cc ${handlers}/launch_test.cc
          ${handlers}/launch_cost_test.cc ${handlers}/launch_ways_test.cc
          ${handlers}/image_reader_test.cc ${handlers}/ptx_of_cubin_test.cc
  LIBRARIES $<LINK_LIBRARY:WHOLE_ARCHIVE,ops_debug_interposer_parts> -Wl,--no-as-needed handlers_fake_driver
            -Wl,--as-needed ops_debug_proto ops_debug_ring ${CMAKE_DL_LIBS})
target_compile_definitions(interposer_handlers_test PRIVATE OPS_DEBUG_TEST_DATA="${CMAKE_SOURCE_DIR}/test/ptx/data"
  OPS_DEBUG_TEST_TOOLKIT="${OpsDebugCuda_HOME}")
# The fake driver keeps its streams and kernels to the end.
set_tests_properties(interposer_handlers_test PROPERTIES ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0")
