#include "kernels/cuda/runtime/device_errors.h"

#include <algorithm>
#include <cctype>
#include <cstdio>

namespace sluice::kernels::cuda {
namespace {

// The oldest architecture with code: bf16 and asynchronous copies.
constexpr int kOldestMajor = 8;
constexpr size_t kPrefix = 4;  // GPU- or MIG-

// The digits of an id, in small letters.
std::string DigitsOf(const std::string& id) {
  std::string digits = id.substr(kPrefix);
  std::transform(digits.begin(), digits.end(), digits.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return digits;
}

}  // namespace

std::string DriverError(int version) {
  if (version == 0) return "there is no NVIDIA driver (libcuda.so.1)";
  return "the NVIDIA driver is too old: it runs CUDA " +
         std::to_string(version / 1000) + "." +
         std::to_string(version % 1000 / 10) + ", this build needs 13.0";
}

std::string IndexError(int index, int count) {
  if (count == 0) return "there is no GPU (CUDA_VISIBLE_DEVICES may hide it)";
  if (index >= 0 && index < count) return "";
  return "GPU " + std::to_string(index) +
         " is not there (CUDA_VISIBLE_DEVICES may hide it): there are GPUs 0 "
         "to " +
         std::to_string(count - 1);
}

std::string ArchitectureError(int index, const std::string& name, int major,
                              int minor) {
  if (major >= kOldestMajor) return "";
  return "GPU " + std::to_string(index) + " (" + name + ") is of sm_" +
         std::to_string(major) + std::to_string(minor) +
         ": the oldest that Sluice runs on is sm_80";
}

std::string IdOf(std::span<const char, 16> uuid) {
  std::string id = "GPU-";
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) id += '-';
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x",
                  static_cast<unsigned char>(uuid[i]));
    id += digits;
  }
  return id;
}

int FindId(std::span<const std::string> ids, const std::string& id,
           std::string* error) {
  const std::string digits = DigitsOf(id);
  int found = -1;
  std::string seen;
  for (size_t i = 0; i < ids.size(); ++i) {
    seen += (seen.empty() ? "" : ", ") + ids[i];
    if (DigitsOf(ids[i]).rfind(digits, 0) != 0) continue;
    if (found >= 0) {
      *error = "GPU " + id + " may be " + ids[static_cast<size_t>(found)] +
               " or " + ids[i] + ": name more of its id";
      return -1;
    }
    found = static_cast<int>(i);
  }
  if (found < 0) {
    *error = "GPU " + id +
             " is not there (CUDA_VISIBLE_DEVICES may hide it): there are " +
             seen;
  }
  return found;
}

}  // namespace sluice::kernels::cuda
