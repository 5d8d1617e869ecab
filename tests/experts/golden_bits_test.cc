// Hosts of experts against experts at hand: the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/device/make_backends.h"
#include "common/experts/host/expert_loop.h"
#include "common/model/expert_weights.h"
#include "common/model/local_experts.h"
#include "common/model_config/open_model.h"
#include "common/weights/model_file.h"
#include "tests/experts/expert_client.h"
#include "tests/testing/golden_model.h"

namespace sluice::testing {
namespace {

using kernels::TreeNode;

// Rows for one layer as the stage has them: every row asks k experts.
struct Rows {
  HiddenStates x;
  std::vector<int32_t> ids;    // [rows, k], rising within a row
  std::vector<float> weights;  // [rows, k]
};

class GoldenExperts {
 public:
  explicit GoldenExperts(const std::string& path) : path_(path) {
    auto file = OpenModel(path);
    EXPECT_TRUE(file.ok()) << file.status();
    file_ = *std::move(file);
    auto config = ParseModelConfig(file_->config());
    EXPECT_TRUE(config.ok()) << config.status();
    config_ = *std::move(config);
    backend_ = std::move((*MakeBackends({.threads = 1}))[0]);
  }
  const std::string& path() const { return path_; }
  const ModelConfig& config() const { return config_; }
  int32_t experts() const { return config_.moe().num_experts; }
  int32_t per_row() const { return config_.moe().experts_per_token; }
  int32_t layer() const { return config_.num_layers() - 1; }

  // As LocalExperts finish them: the root of the tree, [rows, H].
  std::vector<float> Local(int32_t layer, Rows& rows) {
    PackedWeights off;
    ExpertLoader loader(*file_, config_, WeightsMode::kAuto, &off);
    const auto all = loader.Load(layer, {0, experts()}, *backend_, {});
    EXPECT_TRUE(all.ok()) << all.status();
    LocalExperts local(backend_.get(), {{experts(), {&*all}}}, /*alone=*/true);
    const int64_t cols = config_.hidden_size;
    const int64_t k = per_row();
    std::vector<float> sums(static_cast<size_t>(rows.x.rows * cols));
    const StepInputs step{StepLimits()};
    // On a CPU device memory is the host's.
    const DeviceMatrix part = {sums.data(), rows.x.rows, cols, cols};
    backend_->BeginStep(step);
    local.Run(0, {rows.x.values(), rows.x.rows, cols, cols},
              {{rows.ids.data(), rows.x.rows, k, k, ElementType::kInt32},
               {rows.weights.data(), rows.x.rows, k, k}},
              config_.moe().activation, {&part, 1});
    backend_->EndStep();
    return sums;
  }

  Rows RandomRows(int32_t count, uint32_t seed) const {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 1);
    Rows rows;
    rows.x = HiddenStates(count, config_.hidden_size);
    for (int64_t i = 0; i < int64_t{count} * config_.hidden_size; ++i) {
      rows.x.values()[i] = normal(random);
    }
    for (int32_t t = 0; t < count; ++t) {
      std::vector<int32_t> ids;
      for (int32_t id = 0; id < experts(); ++id) ids.push_back(id);
      std::shuffle(ids.begin(), ids.end(), random);
      ids.resize(static_cast<size_t>(per_row()));
      std::sort(ids.begin(), ids.end());
      for (const int32_t id : ids) {
        rows.ids.push_back(id);
        rows.weights.push_back(0.1f + std::abs(normal(random)));
      }
    }
    return rows;
  }

 private:
  const std::string path_;
  std::unique_ptr<weights::ModelFile> file_;
  ModelConfig config_;
  std::unique_ptr<Backend> backend_;
};

// What goes to a host that has `ranges`: the rows that ask it, and which.
struct Asked {
  wire::ExpertBatch batch;
  std::vector<int32_t> rows;  // the batch's rows in the step
};

Asked AskOf(const GoldenExperts& model, int32_t layer, const Rows& rows,
            const std::vector<ExpertRange>& ranges) {
  Asked asked;
  wire::ExpertBatch& batch = asked.batch;
  batch.batch_id = 1;
  batch.layer = layer;
  for (const ExpertRange& range : ranges) {
    for (const TreeNode& node :
         kernels::AlignedNodes(range.begin, range.end, model.experts())) {
      batch.nodes.push_back(node);
    }
  }
  const auto here = [&](int32_t id) {
    return std::any_of(ranges.begin(), ranges.end(), [&](const ExpertRange& r) {
      return r.begin <= id && id < r.end;
    });
  };
  for (int32_t t = 0; t < rows.x.rows; ++t) {
    int32_t count = 0;
    for (int32_t j = t * model.per_row(); j < (t + 1) * model.per_row(); ++j) {
      if (!here(rows.ids[j])) continue;
      batch.expert_ids.push_back(rows.ids[j]);
      batch.weights.push_back(rows.weights[j]);
      ++count;
    }
    if (count == 0) continue;
    batch.counts.push_back(count);
    asked.rows.push_back(t);
  }
  const int32_t cols = rows.x.cols;
  batch.x = HiddenStates(static_cast<int32_t>(asked.rows.size()), cols);
  for (size_t i = 0; i < asked.rows.size(); ++i) {
    std::memcpy(batch.x.values() + static_cast<int64_t>(i) * cols,
                rows.x.values() + int64_t{asked.rows[i]} * cols,
                sizeof(float) * static_cast<size_t>(cols));
  }
  return asked;
}

using Row = std::vector<float>;
using RowNodes = std::map<int32_t, std::pair<int32_t, Row>>;  // begin: end, sum

// The root of the fixed tree from nodes that cover it.
Row JoinNodes(const RowNodes& nodes, int32_t begin, int32_t end) {
  const auto found = nodes.find(begin);
  if (found != nodes.end() && found->second.first == end) {
    return found->second.second;
  }
  const int32_t middle = begin + kernels::SplitPoint(end - begin);
  Row left = JoinNodes(nodes, begin, middle);
  const Row right = JoinNodes(nodes, middle, end);
  for (size_t i = 0; i < left.size(); ++i) left[i] += right[i];
  return left;
}

// One host per entry; together they have every expert.
using Hosts = std::vector<std::vector<ExpertRange>>;

std::string TextOf(int32_t layer, const std::vector<ExpertRange>& ranges) {
  std::string text;
  for (const ExpertRange& range : ranges) {
    text += Cat(text.empty() ? "" : ",", layer, ":", range.begin, "-",
                range.end - 1);
  }
  return text;
}

std::vector<float> Remote(const GoldenExperts& model, int32_t layer,
                          const Rows& rows, const Hosts& hosts) {
  const auto cols = static_cast<size_t>(rows.x.cols);
  std::vector<RowNodes> nodes(static_cast<size_t>(rows.x.rows));
  for (const auto& ranges : hosts) {
    const auto server = StartExperts(model.path(), TextOf(layer, ranges));
    ExpertClient client(server->address());
    const auto welcome = client.Hello(*server->info());
    EXPECT_TRUE(welcome.ok()) << welcome.status();
    const Asked asked = AskOf(model, layer, rows, ranges);
    for (const TreeNode& node : asked.batch.nodes) {
      for (RowNodes& row : nodes)
        row[node.begin] = {node.end, Row(cols, -0.0f)};
    }
    if (asked.rows.empty()) continue;
    const auto result = client.Ask(asked.batch);
    EXPECT_TRUE(result.ok() && result->status.ok())
        << result.status() << " " << (result.ok() ? result->status : Status());
    EXPECT_TRUE(result->failures.empty());
    for (size_t n = 0; n < asked.batch.nodes.size(); ++n) {
      for (size_t i = 0; i < asked.rows.size(); ++i) {
        const float* sum = result->sum(static_cast<int32_t>(n),
                                       static_cast<int32_t>(i), rows.x.cols);
        nodes[asked.rows[i]][asked.batch.nodes[n].begin].second =
            Row(sum, sum + cols);
      }
    }
  }
  std::vector<float> sums;
  for (const RowNodes& row : nodes) {
    const Row root = JoinNodes(row, 0, model.experts());
    sums.insert(sums.end(), root.begin(), root.end());
  }
  return sums;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), sizeof(float) * a.size()) == 0;
}

class ExpertBitsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ExpertBitsTest, HostsFinishWhatLocalExpertsDoHoweverTheyAreCut) {
  const std::string path = GoldenModel(GetParam());
  GoldenExperts model(path);
  const int32_t layer = model.layer();
  const int32_t all = model.experts();
  ASSERT_GE(all, 8);
  for (const int32_t count : {1, 7}) {
    Rows rows = model.RandomRows(count, 5u + static_cast<uint32_t>(count));
    const std::vector<float> local = model.Local(layer, rows);
    const std::vector<Hosts> placements = {
        {{{0, all}}},                            // all on one
        {{{0, all / 2}}, {{all / 2, all}}},      // aligned
        {{{0, 3}}, {{3, 5}}, {{5, all}}},        // misaligned
        {{{0, 1}, {4, 6}}, {{1, 4}, {6, all}}},  // several ranges each
    };
    for (size_t p = 0; p < placements.size(); ++p) {
      EXPECT_TRUE(SameBits(Remote(model, layer, rows, placements[p]), local))
          << GetParam() << ", placement " << p << ", " << count << " rows";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, ExpertBitsTest,
                         ::testing::Values("glm4_moe-air", "glm4_moe-46",
                                           "gpt_oss-mxfp4", "qwen3_moe"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Keeps results, and waits for them.
class Results : public ExpertResultSink {
 public:
  void OnResult(wire::ExpertResult result, int64_t) override {
    {
      MutexLock lock(mutex_);
      results_[result.batch_id] = std::move(result);
    }
    changed_.NotifyAll();
  }
  const wire::ExpertResult& Wait(uint64_t id) {
    MutexLock lock(mutex_);
    while (results_.count(id) == 0) changed_.Wait(mutex_);
    return results_.at(id);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::map<uint64_t, wire::ExpertResult> results_;
};

class ExpertLoopTest : public ::testing::Test {
 protected:
  void Load(const std::string& path) {
    model_ = std::make_unique<GoldenExperts>(path);
    HostedExpertsOptions options;
    options.model_path = path;
    options.threads = 2;
    for (const int32_t layer : {model_->layer() - 1, model_->layer()}) {
      options.held.push_back({layer, {{0, model_->experts()}}});
    }
    auto experts = HostedExperts::Load(options);
    ASSERT_TRUE(experts.ok()) << experts.status();
    experts_ = *std::move(experts);
  }
  // `back`: how far from the last layer.
  QueuedBatch Batch(uint64_t id, int32_t back, int32_t rows,
                    const std::shared_ptr<Results>& results) const {
    QueuedBatch queued;
    queued.batch = AskOf(*model_, model_->layer() - back,
                         model_->RandomRows(rows, static_cast<uint32_t>(id)),
                         {{0, model_->experts()}})
                       .batch;
    queued.batch.batch_id = id;
    queued.queued_ns = MonotonicNanos();
    queued.sink = results;
    return queued;
  }

  std::unique_ptr<GoldenExperts> model_;
  std::unique_ptr<HostedExperts> experts_;
};

TEST_F(ExpertLoopTest, JoinedBatchesAreAnsweredAsSingleOnes) {
  const std::string path = GoldenModel("glm4_moe-46");
  ASSERT_NO_FATAL_FAILURE(Load(path));
  ExpertLoopOptions options;
  options.max_rows = 64;
  const auto single = std::make_shared<Results>();
  const auto joined = std::make_shared<Results>();
  const std::vector<std::pair<int32_t, int32_t>> asks = {
      {1, 3}, {0, 1}, {1, 1}, {1, 5}, {0, 4}};  // layer from the end, rows
  {
    ExpertLoop loop(experts_.get(), options);
    loop.Start();
    for (size_t i = 0; i < asks.size(); ++i) {
      ASSERT_TRUE(
          loop.Push(Batch(i, asks[i].first, asks[i].second, single)).ok());
      single->Wait(i);
    }
  }
  ExpertLoop loop(experts_.get(), options);
  for (size_t i = 0; i < asks.size(); ++i) {
    ASSERT_TRUE(
        loop.Push(Batch(i, asks[i].first, asks[i].second, joined)).ok());
  }
  loop.Start();  // all wait already: those of a layer are computed together
  for (size_t i = 0; i < asks.size(); ++i) {
    const wire::ExpertResult& a = single->Wait(i);
    const wire::ExpertResult& b = joined->Wait(i);
    ASSERT_EQ(a.sums.size(), b.sums.size());
    EXPECT_EQ(std::memcmp(a.sums.data(), b.sums.data(), a.sums.size()), 0) << i;
    EXPECT_EQ(a.times.joined_batches, 1);
    EXPECT_EQ(b.times.joined_batches, asks[i].first == 1 ? 3 : 2);
    EXPECT_EQ(b.times.joined_rows, asks[i].first == 1 ? 9 : 5);
  }
}

TEST_F(ExpertLoopTest, ABatchWaitsForOthersWhoAskTheSameLayer) {
  const std::string path = GoldenModel("glm4_moe-air");
  ASSERT_NO_FATAL_FAILURE(Load(path));
  ExpertLoopOptions options;
  options.max_rows = 64;
  options.join_window = options.recent = std::chrono::hours(1);
  const auto one = std::make_shared<Results>();
  const auto other = std::make_shared<Results>();
  ExpertLoop loop(experts_.get(), options);
  loop.Start();
  ASSERT_TRUE(loop.Push(Batch(1, 0, 2, one)).ok());  // nobody else yet
  EXPECT_EQ(one->Wait(1).times.joined_batches, 1);
  ASSERT_TRUE(loop.Push(Batch(2, 1, 2, one)).ok());  // nobody else there
  EXPECT_EQ(one->Wait(2).times.joined_batches, 1);
  ASSERT_TRUE(loop.Push(Batch(3, 0, 2, other)).ok());
  ASSERT_TRUE(loop.Push(Batch(4, 0, 3, one)).ok());
  EXPECT_EQ(other->Wait(3).times.joined_batches, 2);
  EXPECT_EQ(one->Wait(4).times.joined_rows, 5);
}

TEST_F(ExpertLoopTest, BatchesOfMoreThanTheMostRowsAreNotJoined) {
  const std::string path = GoldenModel("glm4_moe-air");
  ASSERT_NO_FATAL_FAILURE(Load(path));
  ExpertLoopOptions options;
  options.max_rows = 4;
  const auto results = std::make_shared<Results>();
  ExpertLoop loop(experts_.get(), options);
  for (uint64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(loop.Push(Batch(i, 1, 2, results)).ok());
  }
  loop.Start();
  EXPECT_EQ(results->Wait(0).times.joined_rows, 4);
  EXPECT_EQ(results->Wait(2).times.joined_rows, 2);
}

TEST_F(ExpertLoopTest, AFullQueueRefusesAndAStoppedLoopToo) {
  const std::string path = GoldenModel("glm4_moe-air");
  ASSERT_NO_FATAL_FAILURE(Load(path));
  ExpertLoopOptions options;
  options.max_rows = 4;
  options.max_queued = 1;
  const auto results = std::make_shared<Results>();
  ExpertLoop loop(experts_.get(), options);
  ASSERT_TRUE(loop.Push(Batch(1, 1, 2, results)).ok());
  EXPECT_EQ(loop.Push(Batch(2, 1, 2, results)).code(),
            StatusCode::kResourceExhausted);
  loop.Stop();
  EXPECT_EQ(loop.Push(Batch(3, 1, 2, results)).code(),
            StatusCode::kUnavailable);
}

}  // namespace
}  // namespace sluice::testing
