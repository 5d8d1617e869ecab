#include "common/device/cuda/rank_telling.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "common/base/cat.h"
#include "common/base/end_process.h"

namespace sluice {
namespace {

// A RankTelling as the devices carry it: bytes as floats, which no rank adds.
struct Words {
  uint64_t mark = 0;  // kMark
  int64_t collective_cols = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t col_begin = 0;
  int32_t num_leaves = 0;
  int32_t copied = 0;
  int64_t num_nodes = 0;
  kernels::TreeNode nodes[TellingExchange::kMostNodes] = {};
};
static_assert(std::is_trivially_copyable_v<Words>);
constexpr uint64_t kMark = 0x51'75'1c'e0'7e'11'1e'55;  // of no sums' values
static_assert(sizeof(Words) == TellingExchange::kFloats * sizeof(float));

Words WordsOf(const RankTelling& own) {
  Words words = {kMark,
                 own.of.cols,
                 own.rows,
                 own.share.cols,
                 own.share.col_begin,
                 own.of.num_leaves,
                 own.copied,
                 std::ssize(own.share.nodes)};
  std::ranges::copy(own.share.nodes, words.nodes);
  return words;
}

RankTelling TellingOf(const Words& words) {
  return {{words.num_leaves, words.collective_cols},
          {{words.nodes, words.nodes + words.num_nodes},
           words.cols,
           words.col_begin},
          words.rows,
          words.copied != 0};
}

}  // namespace

TellingExchange::TellingExchange(kernels::cuda::Runtime* runtime,
                                 const OwnRanks& ranks, int index)
    : runtime_(*runtime),
      ranks_(ranks),
      index_(index),
      send_(runtime),
      receive_(runtime) {
  send_.AtLeast<float>(kFloats);
  receive_.AtLeast<float>(kFloats * ranks_.all);
}

std::vector<RankTelling> TellingExchange::Tell(const RankTelling& own,
                                               DeviceExchange& exchange) {
  const auto end = [&](const std::string& why) {
    EndToBeReplaced(why, [&] { exchange.Abort(); });
  };
  if (std::ssize(own.share.nodes) > kMostNodes) {
    end(Cat(ranks_.TextOf(index_), " brings ", own.share.nodes.size(),
            " nodes to a sum, at most ", kMostNodes,
            " can be told to other processes"));
  }
  const Words words = WordsOf(own);
  std::vector<Words> all(static_cast<size_t>(ranks_.all));
  auto* const send = send_.AtLeast<float>(0);
  auto* const receive = receive_.AtLeast<float>(0);
  runtime_.CopyIn(&words, send, {sizeof(Words)});
  exchange.AllGatherAtOnce(index_, runtime_, send, receive, kFloats);
  runtime_.CopyOut(receive, all.data(), {sizeof(Words) * all.size()});
  runtime_.Sync();
  std::vector<RankTelling> told;
  for (const Words& of_rank : all) {
    if (of_rank.mark != kMark) {
      end(Cat(ranks_.TextOf(index_), " has come to another collective than ",
              "rank ", told.size(), ", whose values it was sent"));
    }
    told.push_back(TellingOf(of_rank));
  }
  return told;
}

}  // namespace sluice
