# The semantic handlers inside a test program: linked in whole, over a libcuda.so.1 made for them (handlers/fake_driver.h).
set(handlers ${CMAKE_CURRENT_SOURCE_DIR}/handlers)

add_library(handlers_fake_driver SHARED ${handlers}/fake_driver.cc)
set_target_properties(handlers_fake_driver PROPERTIES
  OUTPUT_NAME cuda SOVERSION 1 LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test/handlers)
target_include_directories(handlers_fake_driver SYSTEM PRIVATE ${OPS_DEBUG_CUDA_INCLUDE})
target_link_options(handlers_fake_driver PRIVATE -Wl,-Bsymbolic)

ops_debug_test(interposer_handlers_test
  SOURCES ${handlers}/session.cc ${handlers}/abi_test.cc ${handlers}/allocation_test.cc ${handlers}/launch_test.cc
          ${handlers}/image_reader_test.cc
  LIBRARIES $<LINK_LIBRARY:WHOLE_ARCHIVE,ops_debug_interposer_parts> -Wl,--no-as-needed handlers_fake_driver
            -Wl,--as-needed ops_debug_proto ops_debug_ring ${CMAKE_DL_LIBS})
target_compile_definitions(interposer_handlers_test PRIVATE OPS_DEBUG_TEST_DATA="${CMAKE_SOURCE_DIR}/test/ptx/data")
