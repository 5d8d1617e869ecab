#include "kernels/cuda/runtime.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "kernels/cuda/device_host/open_machine.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kPoison = 0xFF;
constexpr size_t kAlignment = 64;
constexpr uint64_t kMemory = uint64_t{1} << 30;

class MachineRuntime final : public Runtime {
 public:
  explicit MachineRuntime(Schedule schedule) : machine_(schedule) {
    facts_ = {"a block as fibres", "emulated", kMemory, kMemory};
    machine_.RunLater();
  }
  ~MachineRuntime() override { machine_.RunEnqueued(); }

  const DeviceFacts& facts() const override { return facts_; }
  Stream stream() const override { return const_cast<Machine*>(&machine_); }

  void Adopt() override {}
  void* Allocate(size_t bytes) override {
    const size_t whole =
        (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
    void* const data = std::aligned_alloc(kAlignment, whole);
    if (data != nullptr) std::memset(data, kPoison, whole);
    return data;
  }
  void Free(void* data) override {
    machine_.Enqueue([data] { std::free(data); });
  }
  void CopyIn(const void* from, void* to, const ByteRows& rows) override {
    if (rows.bytes == 0) return;
    machine_.Enqueue([from, to, rows] {
      for (size_t r = 0; r < rows.rows; ++r) {
        std::memcpy(static_cast<std::byte*>(to) + r * rows.stride,
                    static_cast<const std::byte*>(from) + r * rows.bytes,
                    rows.bytes);
      }
    });
  }
  void CopyOut(const void* from, void* to, const ByteRows& rows) override {
    if (rows.bytes == 0) return;
    machine_.Enqueue([from, to, rows] {
      for (size_t r = 0; r < rows.rows; ++r) {
        std::memcpy(static_cast<std::byte*>(to) + r * rows.bytes,
                    static_cast<const std::byte*>(from) + r * rows.stride,
                    rows.bytes);
      }
    });
  }
  void Sync() override {
    machine_.RunEnqueued();
    if (machine_.faults().empty()) return;
    std::fprintf(stderr, "device code: %s\n", machine_.faults()[0].c_str());
    std::abort();
  }

 private:
  DeviceFacts facts_;
  Machine machine_;
};

}  // namespace

std::unique_ptr<Runtime> OpenMachine(Schedule schedule) {
  return std::make_unique<MachineRuntime>(schedule);
}

std::unique_ptr<Runtime> Runtime::Open(int index, std::string* error) {
  if (index == 0) return OpenMachine(Schedule::kForward);
  *error = "device " + std::to_string(index) + ": the machine has one";
  return nullptr;
}

}  // namespace sluice::kernels::cuda
