// sluice-expert as a process: what it has in memory, and how it ends.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/model_config.h"
#include "common/model_config/tensor_table.h"
#include "tests/experts/expert_client.h"
#include "tests/rpc/flood.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/holds_within.h"

extern char** environ;

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

constexpr auto kLimit = std::chrono::seconds(60);

#if defined(SLUICE_ASAN) || defined(SLUICE_TSAN)
constexpr uint64_t kSanitizers = uint64_t{4} << 30;  // they take much, too
#else
constexpr uint64_t kSanitizers = 0;
#endif

template <typename Condition>
bool Eventually(Condition condition) {
  return HoldsWithin(kLimit, condition);
}

// One sluice-expert. posix_spawn, not fork: gRPC's threads live here.
class ExpertProcess {
 public:
  explicit ExpertProcess(std::vector<std::string> flags)
      : port_file_(std::filesystem::temp_directory_path() /
                   Cat("sluice-expert-", getpid(), ".port")),
        errors_(port_file_.string() + ".stderr") {
    std::filesystem::remove(port_file_);
    std::vector<std::string> argv = {SLUICE_EXPERT_BINARY, "--threads", "1",
                                     "--port-file", port_file_.string()};
    argv.insert(argv.end(), flags.begin(), flags.end());
    std::vector<char*> raw;
    for (std::string& arg : argv) raw.push_back(arg.data());
    raw.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, errors_.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    EXPECT_EQ(
        posix_spawn(&pid_, raw[0], &actions, nullptr, raw.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
  }
  ~ExpertProcess() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      WaitExit();
    }
    std::filesystem::remove(port_file_);
    std::filesystem::remove(errors_);
  }
  // What it wrote to stderr so far.
  std::string Errors() const {
    std::ostringstream text;
    text << std::ifstream(errors_).rdbuf();
    return text.str();
  }
  std::string address() {
    EXPECT_TRUE(
        Eventually([this] { return std::filesystem::exists(port_file_); }));
    std::string address;
    std::ifstream(port_file_) >> address;
    return address;
  }
  pid_t pid() const { return pid_; }
  void Signal(int signal_number) const { kill(pid_, signal_number); }
  // Exit code, or minus the signal that ended it.
  int WaitExit() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  // Bytes in memory, pages of mapped files counted.
  uint64_t ResidentBytes() const {
    std::ifstream status(Cat("/proc/", pid_, "/status"));
    std::string word;
    while (status >> word) {
      if (word != "VmRSS:") continue;
      uint64_t kib = 0;
      status >> kib;
      return kib * 1024;
    }
    ADD_FAILURE() << "no VmRSS of process " << pid_;
    return 0;
  }

 private:
  const std::filesystem::path port_file_;
  const std::filesystem::path errors_;
  pid_t pid_ = -1;
};

// A model of zeros, a file full of holes: large, and soon made.
class ZeroModel {
 public:
  ZeroModel()
      : path_(std::filesystem::temp_directory_path() /
              Cat("sluice-zeros-", getpid())) {
    std::filesystem::create_directories(path_);
    const std::string text = R"({
      "model_type": "qwen3_moe", "hidden_size": 512, "num_hidden_layers": 4,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
      "intermediate_size": 512, "moe_intermediate_size": 512,
      "num_experts": 64, "num_experts_per_tok": 4, "norm_topk_prob": true,
      "decoder_sparse_step": 1, "mlp_only_layers": [], "vocab_size": 64,
      "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
      "rope_theta": 10000.0, "tie_word_embeddings": false,
      "attention_bias": false, "use_sliding_window": false,
      "eos_token_id": 2, "bos_token_id": 1})";
    std::ofstream(path_ / "config.json") << text;
    const auto config = ParseModelConfig(Json::parse(text));
    EXPECT_TRUE(config.ok()) << config.status();
    Json header = Json::object();
    uint64_t offset = 0;
    for (const auto& tensor :
         ExpectedTensors(*config, ExpertStorage::kSeparate)) {
      const uint64_t end =
          offset + 2 * static_cast<uint64_t>(tensor.elements());
      header[tensor.name] = {{"dtype", "BF16"},
                             {"shape", tensor.shape},
                             {"data_offsets", {offset, end}}};
      offset = end;
    }
    std::string head = header.dump();
    head.append((8 - head.size() % 8) % 8, ' ');
    const auto size = static_cast<uint64_t>(head.size());
    std::ofstream file(path_ / "model.safetensors", std::ios::binary);
    file.write(reinterpret_cast<const char*>(&size), sizeof(size));
    file << head;
    file.close();
    std::filesystem::resize_file(path_ / "model.safetensors",
                                 sizeof(size) + size + offset);
  }
  ~ZeroModel() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  const std::filesystem::path path_;
};

// The welcome, once the experts are loaded.
wire::ExpertWelcome WaitWelcome(const std::string& address,
                                const wire::ExpertHello& hello) {
  const TimePoint deadline = Clock::now() + kLimit;
  StatusOr<wire::ExpertWelcome> welcome = Unavailable("not asked");
  while (!welcome.ok() && Clock::now() < deadline) {
    ExpertClient client(address);
    welcome = client.Hello(wire::ToProto(hello));
    if (welcome.ok()) return *welcome;
    EXPECT_EQ(welcome.status().code(), StatusCode::kUnavailable)
        << welcome.status();
  }
  ADD_FAILURE() << welcome.status();
  return {};
}

wire::ExpertHello HelloOf(const std::string& model) {
  HostedExpertsOptions options;
  options.model_path = model;
  options.threads = 1;
  options.held = {{3, {{0, 1}}}};
  const auto experts = HostedExperts::Load(options);
  EXPECT_TRUE(experts.ok()) << experts.status();
  return HelloFor((*experts)->info());
}

TEST(ExpertProcessTest, ItsMemoryIsThatOfItsExpertsAndAConstant) {
  const ZeroModel model;
  ExpertProcess process({"--model", model.path(), "--experts", "all:0-31"});
  const wire::ExpertHello hello = HelloOf(model.path());
  const std::string address = process.address();
  const wire::ExpertWelcome welcome = WaitWelcome(address, hello);
  // 32 of 64 experts of 4 layers, 3 matrices of 512 x 512 in BF16 each.
  const uint64_t experts = uint64_t{32} * 4 * 3 * 512 * 512 * 2;
  EXPECT_EQ(welcome.weights_bytes, experts);
  const uint64_t most =
      experts + experts / 20 + (uint64_t{64} << 20) + kSanitizers;
  EXPECT_GE(process.ResidentBytes(), experts);
  EXPECT_LE(process.ResidentBytes(), most);

  ExpertClient client(address);
  ASSERT_TRUE(client.Hello(wire::ToProto(hello)).ok());
  for (uint64_t id = 1; id <= 32; ++id) {
    wire::ExpertBatch batch;
    batch.batch_id = id;
    batch.layer = static_cast<int32_t>(id % 4);
    batch.nodes = {{0, 32}};
    batch.x = HiddenStates(16, 512);
    std::fill_n(batch.x.values(), 16 * 512, 0.5f);
    for (int32_t row = 0; row < 16; ++row) {
      batch.counts.push_back(2);
      batch.expert_ids.insert(batch.expert_ids.end(), {row, row + 16});
      batch.weights.insert(batch.weights.end(), {0.5f, 0.5f});
    }
    const auto result = client.Ask(batch);
    ASSERT_TRUE(result.ok() && result->status.ok()) << result.status();
  }
  const uint64_t resident = process.ResidentBytes();
  EXPECT_LE(resident, most) << "after work";
  std::printf("resident: %.1f MB with %.1f MB of experts\n",
              static_cast<double>(resident) * 1e-6,
              static_cast<double>(experts) * 1e-6);
}

TEST(ExpertProcessTest, WhoIsNotWelcomeCostsItLittleMemory) {
  const ZeroModel model;
  ExpertProcess process({"--model", model.path(), "--experts", "3:0-1"});
  wire::ExpertHello hello = HelloOf(model.path());
  WaitWelcome(process.address(), hello);
  hello.model.model_digest = "another";
  const int64_t before = rpc::testing::PeakRss(process.pid());
  for (const std::string& said :
       {std::string(), wire::ToProto(hello).SerializeAsString()}) {
    ASSERT_NO_FATAL_FAILURE(rpc::testing::Flood(
        process.address(), "/sluice.v1.Expert/Batches", said));
  }
  EXPECT_LT(rpc::testing::PeakRss(process.pid()) - before,
            rpc::testing::kFloodBytes);
}

TEST(ExpertProcessTest, ATermSignalEndsItInOrder) {
  const std::string path = GoldenModel("glm4_moe-air");
  ExpertProcess process({"--model", path, "--experts", "all"});
  const auto info = StartExperts(path, "all");
  ASSERT_NE(info, nullptr);
  WaitWelcome(process.address(), HelloFor(*info->info()));
  ExpertClient client(process.address());
  ASSERT_TRUE(client.Hello(*info->info()).ok());
  process.Signal(SIGTERM);
  const auto pong = client.WaitUnaskedPong();
  ASSERT_TRUE(pong.ok()) << pong.status();
  EXPECT_TRUE(pong->draining());
  EXPECT_EQ(client.WaitEnd().code(), StatusCode::kUnavailable);
  EXPECT_EQ(process.WaitExit(), 0);
}

TEST(ExpertProcessTest, WhatItCannotServeEndsItAtOnce) {
  const std::string path = GoldenModel("glm4_moe-air");
  const auto refusal = [](std::vector<std::string> flags) {
    ExpertProcess process(std::move(flags));
    EXPECT_EQ(process.WaitExit(), 1);
    return process.Errors();
  };
  EXPECT_THAT(refusal({"--model", path}),
              HasSubstr("--experts and --placement"));
  EXPECT_THAT(refusal({"--model", path, "--experts", "0:0-3"}),
              HasSubstr("layers 0: the model has 1 to 3"));
  EXPECT_THAT(refusal({"--model", "/nowhere", "--experts", "all"}),
              HasSubstr("/nowhere"));
}

}  // namespace
}  // namespace sluice::testing
