# A stand-in for a GPU, for tests only: a CUDA runtime over host memory.

add_library(standin-cudart SHARED ${PROJECT_SOURCE_DIR}/tests/standin/cudart.c)
target_link_libraries(standin-cudart PRIVATE swn_options)
target_include_directories(standin-cudart PUBLIC ${PROJECT_SOURCE_DIR}/tests/standin)
# Found by its name, like the real one.
set_target_properties(standin-cudart PROPERTIES
    OUTPUT_NAME cudart SOVERSION 12 LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/standin)
