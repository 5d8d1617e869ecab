#include "kernels/cuda/runtime/launch_graphs.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace sluice::kernels::cuda {
namespace {

// A shorter list is no faster as a graph.
constexpr size_t kFewLaunches = 3;
// Lists that came once, by hash.
constexpr size_t kMostSeen = 8192;
constexpr size_t kAlignment = 16;

size_t CostOf(const LaunchList& list) {
  return list.launches().size() + LaunchGraphs::kGraphLaunches;
}

uint64_t Mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

}  // namespace

void LaunchList::Add(One one, const void* args, size_t bytes) {
  one.args_begin = args_.size();
  one.args_bytes = bytes;
  has_work_of_others_ = has_work_of_others_ || one.threads == 0;
  launches_.push_back(one);
  args_.resize((args_.size() + bytes + kAlignment - 1) / kAlignment *
               kAlignment);
  std::memcpy(args_.data() + one.args_begin, args, bytes);
}

void LaunchList::Clear() {
  launches_.clear();
  args_.clear();
  has_work_of_others_ = false;
}

uint64_t LaunchList::Hash() const {
  uint64_t hash = launches_.size();
  for (const One& one : launches_) {
    hash = Mix(hash, reinterpret_cast<uintptr_t>(one.kernel));
    hash = Mix(hash, static_cast<uint64_t>(one.blocks));
  }
  // Several chains at once: a step's arguments are some hundred kilobytes.
  constexpr size_t kChains = 8;
  uint64_t chains[kChains];
  for (size_t c = 0; c < kChains; ++c) chains[c] = hash + c;
  constexpr size_t kBytes = kChains * sizeof(uint64_t);
  size_t at = 0;
  for (; at + kBytes <= args_.size(); at += kBytes) {
    uint64_t words[kChains];
    std::memcpy(words, args_.data() + at, kBytes);
    for (size_t c = 0; c < kChains; ++c) chains[c] = Mix(chains[c], words[c]);
  }
  for (; at < args_.size(); at += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, args_.data() + at, sizeof(word));
    hash = Mix(hash, word);
  }
  for (const uint64_t chain : chains) hash = Mix(hash, chain);
  return hash;
}

bool LaunchList::operator==(const LaunchList& other) const {
  return launches_ == other.launches_ && args_.size() == other.args_.size() &&
         (args_.empty() ||
          std::memcmp(args_.data(), other.args_.data(), args_.size()) == 0);
}

void LaunchGraphs::Begin(const LaunchList& list, uint64_t alike) {
  if (list.launches().empty()) return;
  if (list.has_work_of_others()) return BeginAlike(list, alike);
  if (list.launches().size() < kFewLaunches) {
    ++counts_.started;
    return device_.Start(list);
  }
  if (kept_.size() - graphs_ >= kMostSeen) DropOlder(false);
  const auto [found, is_new] = kept_.try_emplace(list.Hash());
  Kept& kept = found->second;
  kept.used = ++begun_;
  if (is_new || (kept.graph != nullptr && kept.list != list)) {
    ++counts_.started;
    return device_.Start(list);
  }
  if (kept.graph == nullptr) {
    kept.list = list;
    kept.graph = device_.Capture(list);
    ++graphs_;
    launches_ += CostOf(list);
    ++counts_.captured;
  } else {
    ++counts_.replayed;
  }
  device_.Replay(kept.graph.get());
  if (launches_ > kMostLaunches) DropOlder(true);
}

void LaunchGraphs::BeginAlike(const LaunchList& list, uint64_t alike) {
  if (alike == 0) {
    ++counts_.started;
    return device_.Start(list);
  }
  if (alike_.size() >= kMostAlike && !alike_.contains(alike)) alike_.clear();
  const auto [found, is_new] = alike_.try_emplace(alike);
  if (is_new) {
    ++counts_.started;
    return device_.Start(list);
  }
  Kept& kept = found->second;
  if (kept.graph == nullptr || kept.list != list) {
    kept.list = list;
    kept.graph = device_.Capture(list);
    ++counts_.captured;
  } else {
    ++counts_.replayed;
  }
  device_.Replay(kept.graph.get());
}

void LaunchGraphs::Drop() {
  alike_.clear();
  kept_.clear();
  graphs_ = 0;
  launches_ = 0;
}

void LaunchGraphs::DropOlder(bool with_graph) {
  std::vector<uint64_t> used;
  for (const auto& [hash, kept] : kept_) {
    if ((kept.graph != nullptr) == with_graph) used.push_back(kept.used);
  }
  const auto middle =
      used.begin() + static_cast<std::ptrdiff_t>(used.size() / 2);
  std::nth_element(used.begin(), middle, used.end());
  const uint64_t least = *middle;
  std::erase_if(kept_, [&](const auto& entry) {
    const Kept& kept = entry.second;
    if ((kept.graph != nullptr) != with_graph || kept.used >= least) {
      return false;
    }
    if (with_graph) {
      --graphs_;
      launches_ -= CostOf(kept.list);
    }
    return true;
  });
}

}  // namespace sluice::kernels::cuda
