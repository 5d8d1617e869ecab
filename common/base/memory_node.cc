#include "common/base/memory_node.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <system_error>

#include "common/base/cat.h"

namespace sluice {
namespace {

// Of <linux/mempolicy.h>, which is not on every machine.
constexpr int kMpolPreferred = 1;

constexpr int kMaxNodes = 1024;
constexpr int kWordBits = std::numeric_limits<unsigned long>::digits;

// Returns the node of one CPU: its folder has a link nodeN.
int NodeOf(int cpu) {
  std::error_code error;
  const std::filesystem::directory_iterator folder(
      Cat("/sys/devices/system/cpu/cpu", cpu), error);
  if (error) return kAnyNode;
  for (const auto& entry : folder) {
    const std::string name = entry.path().filename().string();
    if (name.size() > 4 && name.size() < 9 && name.starts_with("node") &&
        name.find_first_not_of("0123456789", 4) == std::string::npos) {
      return std::stoi(name.substr(4));
    }
  }
  return kAnyNode;
}

}  // namespace

int NodeOfCpus(const std::vector<int>& cpus) {
  int found = kAnyNode;
  for (const int cpu : cpus) {
    const int node = NodeOf(cpu);
    if (node == kAnyNode) return kAnyNode;
    if (found != kAnyNode && found != node) return kAnyNode;
    found = node;
  }
  return found;
}

void PreferNode(void* memory, size_t bytes, int node) {
  if (node < 0 || node >= kMaxNodes) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t address = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t begin = (address + page - 1) / page * page;
  const uintptr_t end = (address + bytes) / page * page;
  if (begin >= end) return;
  std::array<unsigned long, kMaxNodes / kWordBits> nodes = {};
  nodes[static_cast<size_t>(node / kWordBits)] = 1UL << (node % kWordBits);
  // A wish: a system that refuses takes pages as it likes.
  syscall(SYS_mbind, begin, end - begin, kMpolPreferred, nodes.data(),
          static_cast<unsigned long>(kMaxNodes), 0U);
}

}  // namespace sluice
