#include "common/device/cuda/rank_telling.h"

#include <algorithm>
#include <cstddef>

#include "common/base/cat.h"
#include "common/base/end_process.h"

namespace sluice {
namespace {

using Words = TellingWords;

Words WordsOf(const RankTelling& own) {
  Words words = {Words::kMark,
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
      receive_(runtime) {}

StatusOr<std::unique_ptr<TellingExchange>> TellingExchange::Make(
    kernels::cuda::Runtime* runtime, const OwnRanks& ranks, int index) {
  std::unique_ptr<TellingExchange> made(
      new TellingExchange(runtime, ranks, index));
  SLUICE_RETURN_IF_ERROR(made->send_.Reserve(sizeof(Words)));
  SLUICE_RETURN_IF_ERROR(
      made->receive_.Reserve(sizeof(Words) * static_cast<size_t>(ranks.all)));
  // A runtime takes the host's memory of its copies with the first one.
  const Words words = {};
  runtime->CopyIn(&words, made->send_.AtLeast(0), {sizeof(Words)});
  runtime->Sync();
  return made;
}

std::string TellingExchange::WhyNone(const Words& words, size_t number) const {
  if (words.mark != Words::kMark) {
    return Cat(ranks_.TextOf(index_), " has come to another collective than ",
               "rank ", number, ", whose values it was sent");
  }
  if (words.num_nodes < 0 || words.num_nodes > kMostNodes) {
    return Cat(ranks_.TextOf(index_), " is told that rank ", number, " brings ",
               words.num_nodes, " nodes to a sum, limit ", kMostNodes);
  }
  return {};
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
    if (const auto why = WhyNone(of_rank, told.size()); !why.empty()) end(why);
    told.push_back(TellingOf(of_rank));
  }
  return told;
}

}  // namespace sluice
