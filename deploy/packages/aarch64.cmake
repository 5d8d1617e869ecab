# A build for AArch64 with the libraries of `deploy/packages/sysroot arm64`
# (SLUICE_SYSROOT in the environment: another folder than build/sysroot-arm64).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
if(DEFINED ENV{SLUICE_SYSROOT})
  set(CMAKE_SYSROOT $ENV{SLUICE_SYSROOT})
else()
  cmake_path(SET CMAKE_SYSROOT NORMALIZE
    ${CMAKE_CURRENT_LIST_DIR}/../../build/sysroot-arm64)
endif()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# Debian's Rust, whose library for AArch64 is in the folder.
set(CARGO_PROGRAM /usr/bin/cargo CACHE FILEPATH "")
set(SLUICE_RUST_TARGET aarch64-unknown-linux-gnu CACHE STRING "")
