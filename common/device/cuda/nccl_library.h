#ifndef SLUICE_COMMON_DEVICE_CUDA_NCCL_LIBRARY_H_
#define SLUICE_COMMON_DEVICE_CUDA_NCCL_LIBRARY_H_

#include <cstddef>
#include <string>

#include "common/base/status.h"

namespace sluice {

// What Sluice calls of NCCL, by the names and the binary interface of NCCL 2,
// which nccl.h and all releases have in common: results and types are ints, a
// communicator and a stream are addresses. Loaded when a stage has several
// GPUs: the binary neither needs nor holds it.
struct NcclLibrary {
  using Comm = void*;
  static constexpr int kSuccess = 0;
  static constexpr int kInProgress = 7;
  static constexpr int kFloat32 = 7;
  // By which ranks of several processes find each other; passed by value.
  struct UniqueId {
    char bytes[128];
  };
  static constexpr size_t kIdBytes = sizeof(UniqueId);

  int (*get_version)(int* version) = nullptr;
  int (*comm_init_all)(Comm* comms, int count, const int* devices) = nullptr;
  int (*get_unique_id)(UniqueId* id) = nullptr;
  int (*comm_init_rank)(Comm* comm, int ranks, UniqueId id, int rank) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*all_gather)(const void* send, void* receive, size_t count, int type,
                    Comm comm, void* stream) = nullptr;
  int (*comm_get_async_error)(Comm comm, int* result) = nullptr;
  int (*comm_abort)(Comm comm) = nullptr;
  int (*comm_destroy)(Comm comm) = nullptr;
  const char* (*get_error_string)(int result) = nullptr;
  const char* (*get_last_error)(Comm comm) = nullptr;
  std::string version;  // 2.28.9

  // Loads the library that the system's loader finds under `name`, for good.
  // NOT_FOUND if there is none; FAILED_PRECONDITION for one that lacks a call.
  static StatusOr<NcclLibrary> Load(const std::string& name = "libnccl.so.2");

  // Returns the bytes of a new id, of ranks that are to connect; where NCCL
  // listens for them until they have. UNAVAILABLE with NCCL's words.
  StatusOr<std::string> MakeId() const;

  // Returns what a result means, and what NCCL says of it.
  std::string ErrorText(int result) const;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CUDA_NCCL_LIBRARY_H_
