#include "tests/cuda_machine/machine_memory.h"

#include <algorithm>

#include "common/base/check.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kNone = -1;
constexpr int kSeveral = -2;
constexpr std::byte kPoison{0xA5};

}  // namespace

// Who touched an element of shared memory, and in which epochs.
struct MachineMemory::Cell {
  int writer = kNone;
  int32_t write_epoch = 0;
  int32_t write_warp_epoch = 0;
  int reader = kNone;
  int reader_warp = kNone;
  int32_t read_epoch = 0;
  int32_t read_warp_epoch = 0;
  int adder = kNone;
  int32_t add_epoch = 0;
  bool awaited = false;  // a copy to it has begun
};

MachineMemory::MachineMemory() = default;
MachineMemory::~MachineMemory() = default;

void MachineMemory::Clear(int threads, size_t bytes) {
  epoch_ = 0;
  warp_epochs_.assign(static_cast<size_t>(threads / kWarpLanes), 0);
  free_bytes_ = bytes;
  shared_.clear();
  cells_.clear();
  arrays_.clear();
}

SharedArray MachineMemory::Allocate(int thread, int index, size_t size,
                                    int64_t count) {
  if (index < static_cast<int>(arrays_.size())) {
    if (arrays_[index].count != count) {
      Fault(thread, "allocates another shared array than other threads");
    }
    return arrays_[index];
  }
  SharedArray array;
  if (!arrays_.empty()) {
    const SharedArray& last = arrays_.back();
    array.bytes_begin = last.bytes_begin + static_cast<size_t>(last.count) * 16;
    array.cells_begin = cells_.size();
  }
  // The machine keeps every cell apart; a GPU packs them.
  array.count = count;
  cells_.resize(array.cells_begin + static_cast<size_t>(count));
  shared_.resize(array.bytes_begin + static_cast<size_t>(count) * 16, kPoison);
  SLUICE_CHECK(size <= 16);
  const size_t used = (size * static_cast<size_t>(count) + 15) / 16 * 16;
  if (used > free_bytes_) {
    Fault(thread, "allocates more shared memory than the launch has");
    free_bytes_ = used;
  }
  free_bytes_ -= used;
  arrays_.push_back(array);
  return array;
}

void MachineMemory::FaultOutside(int thread, const SharedArray& array,
                                 int64_t i) {
  Fault(thread, "leaves a shared array of " + std::to_string(array.count) +
                    ": index " + std::to_string(i));
}

// Whether what another thread did in these epochs is before what `thread` does
// now.
bool MachineMemory::Ordered(int other_warp, int thread, int32_t epoch,
                            int32_t warp_epoch) const {
  if (epoch != epoch_) return true;
  const int warp = thread / kWarpLanes;
  return other_warp == warp && warp_epoch != warp_epochs_[warp];
}

// Whether other threads add to the place between the same barriers of the
// block: atomic operations are of no warp.
bool MachineMemory::IsAddedTo(int thread, const Cell& cell, int64_t i) {
  if (cell.adder == kNone || cell.adder == thread || cell.add_epoch != epoch_) {
    return false;
  }
  FaultAddedTo(thread, i);
  return true;
}

void MachineMemory::FaultAddedTo(int thread, int64_t i) {
  Fault(thread, "reads or writes without a barrier what others add to: index " +
                    std::to_string(i));
}

std::byte* MachineMemory::Read(int thread, const SharedArray& array, int64_t i,
                               size_t) {
  if (!IsInside(thread, array, i)) return outside_;
  Cell& cell = cells_[array.cells_begin + static_cast<size_t>(i)];
  const int warp = thread / kWarpLanes;
  if (cell.writer == kNone) {
    Fault(thread, "reads shared memory that is not written: index " +
                      std::to_string(i));
  } else if (!IsAddedTo(thread, cell, i) && cell.writer != thread &&
             !Ordered(cell.writer / kWarpLanes, thread, cell.write_epoch,
                      cell.write_warp_epoch)) {
    Fault(thread, "reads without a barrier what thread " +
                      std::to_string(cell.writer) + " writes: index " +
                      std::to_string(i));
  }
  // Readers before the warp's last barrier are before what comes behind it.
  const bool fresh =
      cell.reader == kNone ||
      Ordered(cell.reader_warp, thread, cell.read_epoch, cell.read_warp_epoch);
  if (fresh) cell.reader_warp = warp;
  if (cell.reader_warp != warp) cell.reader_warp = kSeveral;
  cell.reader = fresh || cell.reader == thread ? thread : kSeveral;
  cell.read_epoch = epoch_;
  cell.read_warp_epoch = warp_epochs_[warp];
  return shared_.data() + array.bytes_begin + static_cast<size_t>(i) * 16;
}

std::byte* MachineMemory::Write(int thread, const SharedArray& array, int64_t i,
                                size_t) {
  if (!IsInside(thread, array, i)) return outside_;
  Cell& cell = cells_[array.cells_begin + static_cast<size_t>(i)];
  const bool over_write = cell.writer != kNone && cell.writer != thread &&
                          !Ordered(cell.writer / kWarpLanes, thread,
                                   cell.write_epoch, cell.write_warp_epoch);
  const bool over_read =
      cell.reader != kNone && cell.reader != thread &&
      !Ordered(cell.reader_warp, thread, cell.read_epoch, cell.read_warp_epoch);
  if (cell.awaited) {
    Fault(thread, "writes what a copy is to bring: index " + std::to_string(i));
  } else if (!IsAddedTo(thread, cell, i) && (over_write || over_read)) {
    Fault(thread, "writes without a barrier what another thread " +
                      std::string(over_write ? "writes" : "reads") +
                      ": index " + std::to_string(i));
  }
  cell.writer = thread;
  cell.write_epoch = epoch_;
  cell.write_warp_epoch = warp_epochs_[thread / kWarpLanes];
  return shared_.data() + array.bytes_begin + static_cast<size_t>(i) * 16;
}

std::byte* MachineMemory::Update(int thread, const SharedArray& array,
                                 int64_t i) {
  if (!IsInside(thread, array, i)) return outside_;
  Cell& cell = cells_[array.cells_begin + static_cast<size_t>(i)];
  if (cell.writer == kNone) {
    Fault(thread, "adds to shared memory that is not written: index " +
                      std::to_string(i));
  } else if (IsRace(cell, thread)) {
    Fault(thread,
          "adds without a barrier to what another thread reads or writes: "
          "index " +
              std::to_string(i));
  }
  const bool alone =
      cell.add_epoch != epoch_ || cell.adder == kNone || cell.adder == thread;
  cell.adder = alone ? thread : kSeveral;
  cell.add_epoch = epoch_;
  return shared_.data() + array.bytes_begin + static_cast<size_t>(i) * 16;
}

// Whether another thread reads or writes the place, and no barrier orders that
// with what `thread` does now.
bool MachineMemory::IsRace(const Cell& cell, int thread) const {
  return (cell.writer != kNone && cell.writer != thread &&
          !Ordered(cell.writer / kWarpLanes, thread, cell.write_epoch,
                   cell.write_warp_epoch)) ||
         (cell.reader != kNone && cell.reader != thread &&
          !Ordered(cell.reader_warp, thread, cell.read_epoch,
                   cell.read_warp_epoch));
}

void MachineMemory::Take(int thread, const SharedArray& array, int64_t i) {
  if (!IsInside(thread, array, i)) return;
  std::fill_n(Write(thread, array, i, 0), 16, kPoison);
  Cell& cell = cells_[array.cells_begin + static_cast<size_t>(i)];
  cell.writer = kNone;
  cell.awaited = true;
}

std::byte* MachineMemory::Arrive(int thread, const SharedArray& array,
                                 int64_t i) {
  if (!IsInside(thread, array, i)) return outside_;
  cells_[array.cells_begin + static_cast<size_t>(i)].awaited = false;
  return Write(thread, array, i, 0);
}

std::byte* MachineMemory::Land(const SharedArray& array, int64_t i) {
  if (i < 0 || i >= array.count) return outside_;
  Cell& cell = cells_[array.cells_begin + static_cast<size_t>(i)];
  // Before all that the threads do from here on.
  cell.awaited = false;
  cell.writer = 0;
  cell.write_epoch = kNone;
  return shared_.data() + array.bytes_begin + static_cast<size_t>(i) * 16;
}

}  // namespace sluice::kernels::cuda
