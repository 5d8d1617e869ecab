# The kernels and the runtime as nvcc compiles them, one object per source with
# code for every architecture: sluice_cuda_kernels. nvcc is SLUICE_NVCC, or that
# of $CUDA_HOME, of build/venv-cuda (tests/requirements-cuda.txt) or of the
# path. The CUDA runtime is linked statically, and loads the driver when the
# first GPU is asked for: the binary starts where there is none.
set(SLUICE_CUDA_ARCHITECTURES sm_80 sm_89 sm_90a sm_100 sm_120 compute_89
  CACHE STRING "Architectures of SLUICE_CUDA; compute_N: PTX for later ones")

file(GLOB wheels
  "${CMAKE_SOURCE_DIR}/build/venv-cuda/lib/python3*/site-packages/nvidia/cu13")
find_program(SLUICE_NVCC nvcc HINTS ENV CUDA_HOME ${wheels} PATH_SUFFIXES bin)
if(NOT SLUICE_NVCC)
  message(FATAL_ERROR "SLUICE_CUDA needs nvcc: python3 -m venv build/venv-cuda \
&& build/venv-cuda/bin/pip install -r tests/requirements-cuda.txt")
endif()
execute_process(COMMAND ${SLUICE_NVCC} --version OUTPUT_VARIABLE told
  COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCH "release ([0-9.]+)" told "${told}")
set(SLUICE_CUDA_VERSION ${CMAKE_MATCH_1} CACHE INTERNAL "Of nvcc")
get_filename_component(toolkit "${SLUICE_NVCC}" DIRECTORY)
get_filename_component(toolkit "${toolkit}" DIRECTORY)
if(NOT EXISTS "${toolkit}/lib64")
  # The wheels lack a link by which nvcc finds its libraries.
  file(CREATE_LINK lib "${toolkit}/lib64" SYMBOLIC)
endif()
find_library(SLUICE_CUDART cudart_static HINTS "${toolkit}/lib64"
  "${toolkit}/lib" REQUIRED)

# sluice_nvcc_library(NAME SRCS ... DEPS ...): a library of sources that nvcc
# compiles, whose paths begin at the folder of the caller.
function(sluice_nvcc_library name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  set(codes)
  foreach(architecture ${SLUICE_CUDA_ARCHITECTURES})
    string(REPLACE "sm_" "compute_" virtual ${architecture})
    list(APPEND codes -gencode arch=${virtual},code=${architecture})
  endforeach()
  set(objects)
  foreach(source ${ARG_SRCS})
    string(REPLACE "/" "_" object ${source})
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${object}.o)
    add_custom_command(OUTPUT ${object}
      COMMAND ${SLUICE_NVCC} -x cu -std=c++20 -O3 --fmad=false
        --expt-relaxed-constexpr -I ${CMAKE_SOURCE_DIR}
        -I ${CMAKE_SOURCE_DIR}/kernels/cuda/runtime/nvcc ${codes}
        -Xcompiler -Wall,-Wextra,-fPIC -Werror all-warnings
        -MD -MF ${object}.d -c ${CMAKE_CURRENT_SOURCE_DIR}/${source}
        -o ${object}
      DEPENDS ${source} DEPFILE ${object}.d VERBATIM
      COMMENT "Building CUDA object ${source}")
    list(APPEND objects ${object})
  endforeach()
  set_source_files_properties(${objects} PROPERTIES
    EXTERNAL_OBJECT ON GENERATED ON)
  add_library(${name} STATIC ${objects})
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(${name} PUBLIC ${ARG_DEPS})
endfunction()

sluice_nvcc_library(sluice_cuda_kernels
  SRCS ${SLUICE_CUDA_KERNEL_SRCS} runtime/nvcc/runtime.cc
  DEPS sluice_kernels sluice_base ${SLUICE_CUDART} Threads::Threads
    ${CMAKE_DL_LIBS} rt)
target_include_directories(sluice_cuda_kernels
  PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/runtime/nvcc)
