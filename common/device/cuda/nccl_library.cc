#include "common/device/cuda/nccl_library.h"

#include <dlfcn.h>

#include "common/base/cat.h"

namespace sluice {
namespace {

template <typename Function>
bool Find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  return function != nullptr;
}

// 2.28.9 of 22809.
std::string VersionText(int version) {
  return Cat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace

StatusOr<NcclLibrary> NcclLibrary::Load(const std::string& name) {
  void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return NotFound(::dlerror());
  NcclLibrary nccl;
  const char* missing = nullptr;
  const auto find = [&](const char* call, auto*& function) {
    if (!Find(library, call, function)) missing = call;
  };
  find("ncclGetVersion", nccl.get_version);
  find("ncclCommInitAll", nccl.comm_init_all);
  find("ncclGetUniqueId", nccl.get_unique_id);
  find("ncclCommInitRank", nccl.comm_init_rank);
  find("ncclGroupStart", nccl.group_start);
  find("ncclGroupEnd", nccl.group_end);
  find("ncclAllGather", nccl.all_gather);
  find("ncclCommGetAsyncError", nccl.comm_get_async_error);
  find("ncclCommAbort", nccl.comm_abort);
  find("ncclCommDestroy", nccl.comm_destroy);
  find("ncclGetErrorString", nccl.get_error_string);
  find("ncclGetLastError", nccl.get_last_error);
  if (missing != nullptr) {
    return FailedPrecondition(name, " has no ", missing);
  }
  int version = 0;
  if (const int result = nccl.get_version(&version); result != kSuccess) {
    return FailedPrecondition(name, ": ", nccl.ErrorText(result));
  }
  nccl.version = VersionText(version);
  return nccl;
}

StatusOr<std::string> NcclLibrary::MakeId() const {
  UniqueId id = {};
  if (const int result = get_unique_id(&id); result != kSuccess) {
    return Unavailable("NCCL ", version, " makes no id for ranks of several ",
                       "processes: ", ErrorText(result));
  }
  return std::string(id.bytes, sizeof(id.bytes));
}

std::string NcclLibrary::ErrorText(int result) const {
  const char* const what = get_error_string(result);
  const char* const last = get_last_error(nullptr);
  std::string text = what == nullptr ? Cat("result ", result) : what;
  if (last != nullptr && *last != '\0') text += Cat(" (", last, ")");
  return text;
}

}  // namespace sluice
