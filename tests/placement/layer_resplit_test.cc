#include "common/placement/layer_resplit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "common/core/kv_groups.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

// `layers` layers of 100 bytes and 10 of KV cache.
StageRoom Room(int32_t layers, uint64_t memory = 0) {
  StageRoom room;
  room.memory = memory;
  room.layers.assign(static_cast<size_t>(layers), 100);
  room.kv.assign(static_cast<size_t>(layers), 10);
  return room;
}

std::string Split(const std::vector<SplitPart>& parts, int32_t num_layers) {
  const auto split = ResplitLayers(parts, num_layers);
  if (!split.ok()) return Message(split.status());
  std::string text;
  for (const StagePlace& place : split->places) {
    text += Cat(text.empty() ? "" : " ", place.first_layer, "-",
                place.last_layer - 1);
  }
  return Cat(text, ", loads ", split->loaded_bytes);
}

TEST(LayerResplitTest, EqualProcessesGetEqualParts) {
  const StageRoom room = Room(6);
  EXPECT_EQ(Split({{&room, {}}, {&room, {}}, {&room, {}}}, 6),
            "0-1 2-3 4-5, loads 600");
  EXPECT_EQ(Split({{&room, {}}, {&room, {}}}, 6), "0-2 3-5, loads 600");
  EXPECT_EQ(Split({{&room, {}}}, 6), "0-5, loads 600");
}

TEST(LayerResplitTest, EarlierPartsAreLongerWhereLayersAreLeftOver) {
  const StageRoom room = Room(8);
  EXPECT_EQ(Split({{&room, {}}, {&room, {}}, {&room, {}}}, 8),
            "0-2 3-5 6-7, loads 800");
}

TEST(LayerResplitTest, AProcessKeepsItsLayersWhereThatIsGoodEnough) {
  const StageRoom room = Room(8);
  // The last of four is gone: the first one stays as it is.
  EXPECT_EQ(Split({{&room, {0, 2}}, {&room, {2, 4}}, {&room, {4, 6}}}, 8),
            "0-1 2-4 5-7, loads 600");
  // The first one is gone, and the last one stays.
  EXPECT_EQ(Split({{&room, {2, 4}}, {&room, {4, 6}}, {&room, {6, 8}}}, 8),
            "0-2 3-5 6-7, loads 600");
  // A quarter more than the most even split is good enough.
  const StageRoom large = Room(20);
  EXPECT_EQ(Split({{&large, {0, 12}}, {&large, {12, 20}}}, 20),
            "0-11 12-19, loads 0");
  EXPECT_EQ(Split({{&large, {0, 13}}, {&large, {13, 20}}}, 20),
            "0-9 10-19, loads 2000");
}

TEST(LayerResplitTest, EmbeddingAndHeadCountWhereTheyAre) {
  StageRoom room = Room(6);
  room.embedding = 200;
  room.head = 200;
  EXPECT_EQ(Split({{&room, {}}, {&room, {}}, {&room, {}}}, 6),
            "0-1 2-4 5-5, loads 1000");
  // A tied head is on the last stage, and once where that is the first.
  room.head = 10;
  room.tied = 200;
  room.tied_again = 5;
  EXPECT_EQ(Split({{&room, {}}, {&room, {}}, {&room, {}}}, 6),
            "0-1 2-4 5-5, loads 1010");
  EXPECT_EQ(Split({{&room, {}}}, 6), "0-5, loads 815");
}

TEST(LayerResplitTest, NoProcessGetsMoreThanItsMemory) {
  const StageRoom small = Room(6, 230);
  const StageRoom large = Room(6, 1000);
  EXPECT_EQ(Split({{&small, {}}, {&large, {}}}, 6), "0-1 2-5, loads 600");
  EXPECT_THAT(Split({{&small, {}}, {&small, {}}}, 6),
              HasSubstr("no split of 6 layers over 2 processes fits their "
                        "memory: 230, 230 bytes"));
  // What it holds it holds, whatever it says of its memory.
  EXPECT_EQ(Split({{&small, {0, 3}}, {&large, {3, 6}}}, 6), "0-2 3-5, loads 0");
}

TEST(LayerResplitTest, MemoryThatWasSetIsFilledInProportion) {
  StageRoom two = Room(6, 2000);
  StageRoom one = Room(6, 1000);
  EXPECT_EQ(Split({{&two, {}}, {&one, {}}}, 6), "0-2 3-5, loads 600");
  two.is_set = one.is_set = true;
  EXPECT_EQ(Split({{&two, {}}, {&one, {}}}, 6), "0-3 4-5, loads 600");
}

TEST(LayerResplitTest, AProcessWithFixedLayersKeepsThemOrNothingFits) {
  const StageRoom none;
  const StageRoom room = Room(6);
  EXPECT_EQ(Split({{&none, {0, 1}}, {&room, {1, 3}}}, 6), "0-0 1-5, loads 500");
  EXPECT_THAT(Split({{&none, {1, 3}}, {&room, {3, 6}}}, 6),
              HasSubstr("no split"));
  EXPECT_THAT(Split({{&none, {0, 9}}, {&room, {}}}, 6), HasSubstr("no split"));
}

TEST(LayerResplitTest, WhatIsNoSplitIsRefused) {
  const StageRoom room = Room(2);
  EXPECT_THAT(Split({}, 2), HasSubstr("over 0 processes"));
  EXPECT_THAT(Split({{&room, {}}, {&room, {}}, {&room, {}}}, 2),
              HasSubstr("2 layers cannot be split over 3"));
  EXPECT_THAT(Split({{&room, {}}}, 3), HasSubstr("2 layers, not of 3"));
  const StageRoom huge = Room(kMaxResplitLayers + 1);
  EXPECT_THAT(Split({{&huge, {}}}, kMaxResplitLayers + 1),
              HasSubstr("cannot be split"));
}

TEST(LayerResplitTest, LoadForNamesWhatDoesNotFit) {
  const StageRoom room = Room(6, 330);
  EXPECT_EQ(*LoadFor({&room, {}}, {0, 3}), 300u);
  EXPECT_EQ(*LoadFor({&room, {0, 3}}, {0, 3}), 0u);
  EXPECT_THAT(Message(LoadFor({&room, {}}, {0, 4}).status()),
              HasSubstr("layers 0 to 3 take 440 bytes with the least KV cache, "
                        "it has 330"));
}

// Against all splits that there are, one by one.
class AllSplits {
 public:
  AllSplits(const std::vector<SplitPart>& parts, int32_t num_layers)
      : parts_(parts), layers_(num_layers) {
    Try(0, {});
  }
  double least_largest = std::numeric_limits<double>::infinity();
  std::vector<std::vector<StagePlace>> found;

  double Largest(const std::vector<StagePlace>& places) const {
    double largest = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      largest = std::max(largest, SizeOf(i, places[i]));
    }
    return largest;
  }
  uint64_t Loaded(const std::vector<StagePlace>& places) const {
    uint64_t bytes = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      bytes += *LoadFor(parts_[i], places[i]);
    }
    return bytes;
  }

 private:
  double SizeOf(size_t part, const StagePlace& place) const {
    const StageRoom& room = *parts_[part].room;
    double size = 0;
    for (int32_t i = place.first_layer; i < place.last_layer; ++i) {
      const auto at = static_cast<size_t>(i);
      size += static_cast<double>(room.layers[at] + room.kv[at]);
    }
    if (place.first_layer == 0) size += static_cast<double>(room.embedding);
    if (place.last_layer == layers_) size += static_cast<double>(room.head);
    return size;
  }
  void Try(int32_t first, const std::vector<StagePlace>& before) {
    if (before.size() == parts_.size()) {
      if (first != layers_) return;
      found.push_back(before);
      least_largest = std::min(least_largest, Largest(before));
      return;
    }
    const SplitPart& part = parts_[before.size()];
    for (int32_t last = first + 1; last <= layers_; ++last) {
      if (!LoadFor(part, {first, last}).ok()) continue;
      std::vector<StagePlace> places = before;
      places.push_back({first, last});
      Try(last, places);
    }
  }

  const std::vector<SplitPart>& parts_;
  const int32_t layers_;
};

TEST(LayerResplitTest, NoOtherSplitIsBetter) {
  std::mt19937 random(7);
  const auto pick = [&](int n) { return static_cast<int32_t>(random() % n); };
  int split = 0, kept = 0;
  for (int run = 0; run < 300; ++run) {
    const int32_t layers = 2 + pick(9);
    const size_t count = 1 + static_cast<size_t>(pick(std::min(layers, 4)));
    std::vector<StageRoom> rooms(count, Room(layers));
    std::vector<SplitPart> parts;
    for (StageRoom& room : rooms) {
      for (uint64_t& bytes : room.layers) bytes = 50 + pick(4) * 50;
      room.embedding = pick(200);
      room.head = pick(200);
      room.memory = pick(3) == 0 ? 200 + pick(1500) : 0;
      const int32_t first = pick(layers);
      const int32_t last = first + 1 + pick(layers - first);
      parts.push_back(
          {&room, pick(3) == 0 ? StagePlace() : StagePlace{first, last}});
    }
    const AllSplits all(parts, layers);
    const auto found = ResplitLayers(parts, layers);
    ASSERT_EQ(found.ok(), !all.found.empty()) << "run " << run;
    if (!found.ok()) continue;
    ++split;
    kept += found->loaded_bytes < all.Loaded(all.found[0]) ? 1 : 0;
    const double limit = all.least_largest * kResplitSlack * (1 + 1e-12);
    EXPECT_LE(all.Largest(found->places), limit) << "run " << run;
    EXPECT_EQ(found->loaded_bytes, all.Loaded(found->places));
    for (const auto& other : all.found) {
      if (all.Largest(other) > limit) continue;
      EXPECT_LE(found->loaded_bytes, all.Loaded(other)) << "run " << run;
    }
  }
  EXPECT_GT(split, 150);
  EXPECT_GT(kept, 30);
}

}  // namespace
}  // namespace sluice
