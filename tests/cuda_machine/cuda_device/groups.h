#ifndef SLUICE_TESTS_CUDA_MACHINE_CUDA_DEVICE_GROUPS_H_
#define SLUICE_TESTS_CUDA_MACHINE_CUDA_DEVICE_GROUPS_H_

#include <cuda_device/device.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <map>
#include <vector>

namespace sluice::kernels::cuda {

// Products of four warps together that go on while the warps do other things:
// runtime/nvcc has the same of a GPU that has them (DeviceLimits). All lanes
// call all functions. Sums that products are under way to, their A and the
// shared memory that they read may not be touched before a wait: here the sums
// are NaN until then, and what a product reads is read again at the wait.
class GroupProducts {
 public:
  // Whether the device that this is compiled for has them.
  static constexpr bool kHere = true;

  static void Stop() {}

  // Stands between what writes A or sums and the products.
  void FenceRegisters(GroupSums&) { fenced_ = true; }
  // Begins sums += a b, as Block::MultiplyTile of each octet. `b`: from element
  // `at` on, kOctetWords from an octet to the next
  // (runtime/matrix_fragments.h).
  template <int kOctetWords>
  void Multiply(Block& block, const TileA& a, const Shared<uint32_t>& b, int at,
                GroupSums& sums) {
    if (!fenced_) block.Fault("begins products of registers without a fence");
    products_.push_back({a, b, at, kOctetWords, sums});
    for (int o = 0; o < kGroupOctets; ++o) products_.back().B(block, o);
    const auto [kept, fresh] = kept_.try_emplace(sums);
    if (!fresh) return;
    std::copy_n(sums, kGroupOctets, kept->second.begin());
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    std::fill_n(sums, kGroupOctets, TileC{{kNan, kNan, kNan, kNan}});
  }
  // The products since the last call are a group.
  void Commit() {
    groups_.push_back(products_.size());
    fenced_ = false;
  }
  // All groups but the last kGroups are done.
  template <int kGroups>
  void Wait(Block& block) {
    if (groups_.size() <= kGroups) return;
    const size_t groups = groups_.size() - kGroups;
    const size_t count = groups_[groups - 1];
    for (size_t i = 0; i < count; ++i) Run(block, products_[i]);
    products_.erase(products_.begin(),
                    products_.begin() + static_cast<std::ptrdiff_t>(count));
    groups_.erase(groups_.begin(),
                  groups_.begin() + static_cast<std::ptrdiff_t>(groups));
    for (size_t& end : groups_) end -= count;
    Return();
  }
  // All are done; `sums` may be read.
  void WaitFor(Block& block, GroupSums&) { Wait<0>(block); }

 private:
  struct Product {
    TileA a;
    Shared<uint32_t> rows;
    int at;
    int octet_words;
    TileC* sums;
    TileB B(const Block& block, int octet) const {
      const int own = at + octet * octet_words + block.lane();
      return {{rows.Get(own), rows.Get(own + kWarpLanes)}};
    }
  };

  void Run(Block& block, const Product& product) {
    auto& sums = kept_.at(product.sums);
    for (int o = 0; o < kGroupOctets; ++o) {
      block.MultiplyTile(product.a, product.B(block, o), sums[o]);
    }
  }
  // Writes the sums to which no product is under way.
  void Return() {
    std::erase_if(kept_, [&](const auto& kept) {
      for (const Product& product : products_) {
        if (product.sums == kept.first) return false;
      }
      std::copy_n(kept.second.begin(), kGroupOctets, kept.first);
      return true;
    });
  }

  std::vector<Product> products_;
  std::vector<size_t> groups_;  // where each ends in products_
  std::map<TileC*, std::array<TileC, kGroupOctets>> kept_;
  bool fenced_ = false;
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_TESTS_CUDA_MACHINE_CUDA_DEVICE_GROUPS_H_
