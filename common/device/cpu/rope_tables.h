#ifndef SLUICE_COMMON_DEVICE_CPU_ROPE_TABLES_H_
#define SLUICE_COMMON_DEVICE_CPU_ROPE_TABLES_H_

#include <cstdint>
#include <vector>

#include "common/device/layer_spec.h"
#include "common/tensor/buffer.h"
#include "kernels/rope.h"

namespace sluice {

// A backend's RoPE tables. Rows are made when a step reaches their positions,
// some ahead, so pages of unused positions are never touched. Used by one
// thread.
class RopeTables {
 public:
  struct Table {
    RopeSpec spec;
    Buffer cos;  // [spec.positions, R / 2], the first `rows` made
    Buffer sin;
    kernels::RopeTable rows;
  };

  RopeHandle Add(RopeSpec spec);
  // Makes the rows of all tables up to position `last`.
  void Reach(int64_t last);
  const Table& at(RopeHandle handle) const {
    return tables_[static_cast<size_t>(handle)];
  }

 private:
  std::vector<Table> tables_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CPU_ROPE_TABLES_H_
