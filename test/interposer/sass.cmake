# The second engine, over a fake driver (handlers/) and a fake of NVIDIA's Sanitizer API.
set(sass ${CMAKE_CURRENT_SOURCE_DIR}/sass)
if(TARGET OpsDebugCuda::sanitizer_headers)
  add_library(sass_fake_sanitizer SHARED ${sass}/fake_sanitizer.cc)
  set_target_properties(sass_fake_sanitizer PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test/sass)
  target_link_libraries(sass_fake_sanitizer PRIVATE OpsDebugCuda::headers OpsDebugCuda::sanitizer_headers)

  add_executable(sass_obstacle_program ${sass}/obstacle_program.cc)
  set_target_properties(sass_obstacle_program PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test/sass)
  target_link_libraries(sass_obstacle_program PRIVATE ops_debug_interposer_parts ${CMAKE_DL_LIBS})

  ops_debug_test(interposer_sass_parts_test SOURCES ${sass}/parts_test.cc LIBRARIES ops_debug_interposer_parts ${CMAKE_DL_LIBS})
  add_dependencies(interposer_sass_parts_test sass_fake_sanitizer sass_obstacle_program)
  target_compile_definitions(interposer_sass_parts_test PRIVATE
    OPS_DEBUG_TEST_DATA="${CMAKE_SOURCE_DIR}/test/ptx/data"
    OPS_DEBUG_FAKE_SANITIZER="$<TARGET_FILE:sass_fake_sanitizer>"
    OPS_DEBUG_OBSTACLE_PROGRAM="$<TARGET_FILE:sass_obstacle_program>")

  ops_debug_test(interposer_sass_engine_test
    SOURCES ${sass}/engine_test.cc ${CMAKE_CURRENT_SOURCE_DIR}/handlers/session.cc
    LIBRARIES $<LINK_LIBRARY:WHOLE_ARCHIVE,ops_debug_interposer_parts> -Wl,--no-as-needed handlers_fake_driver
              -Wl,--as-needed ops_debug_proto ops_debug_ring OpsDebugCuda::sanitizer_headers ${CMAKE_DL_LIBS})
  add_dependencies(interposer_sass_engine_test sass_fake_sanitizer)
  target_compile_definitions(interposer_sass_engine_test PRIVATE OPS_DEBUG_TEST_DATA="${CMAKE_SOURCE_DIR}/test/ptx/data")
  set_tests_properties(interposer_sass_engine_test PROPERTIES ENVIRONMENT
    "ASAN_OPTIONS=detect_leaks=0;OPS_DEBUG_ENGINE=sass;OPS_DEBUG_SANITIZER_LIBRARY=$<TARGET_FILE:sass_fake_sanitizer>")
endif()
