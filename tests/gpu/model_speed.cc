// Speed of a model whose weights are made up, whole on one device: decode of
// one and more sequences, a step at a time and ahead of the results, and a
// prompt. For tests/gpu/run, which reads the JSON
// lines that this prints as it goes.
//
// usage: model_speed MODEL [--device D] [--numerics N] [--kv-type T]
//          [--prompt 128] [--decode 128] [--streams 1,32,128] [--prefill 2048]
//          [--seconds 480]
//   MODEL: of tests/testing/make_outline.py, or any other
//   --seconds: what is not begun by then is left out, and a line says so
// Exit code 3: the model does not fit the device's memory.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/status.h"
#include "common/stage/stage.h"
#include "common/tools/measure/stage_steps.h"

namespace sluice::testing {
namespace {

constexpr int kTooLarge = 3;
constexpr int32_t kStepTokens = 2048;
constexpr int kWarmSteps = 8;
constexpr int kPrefills = 3;

struct Flags {
  StageOptions stage;
  int32_t prompt = 128;  // tokens of each sequence before it decodes
  int32_t decode = 128;
  int32_t prefill = 2048;
  std::vector<int32_t> streams = {1, 32, 128};
  double seconds = 480;
};

template <typename T>
bool ParseAll(std::string_view text, T& value) {
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  return parsed.ec == std::errc() && parsed.ptr == end && value > 0;
}

bool ParseStreams(std::string_view text, std::vector<int32_t>& streams) {
  streams.clear();
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (!ParseAll(text.substr(0, comma), streams.emplace_back())) return false;
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return !streams.empty() && *std::ranges::max_element(streams) <= kStepTokens;
}

bool ParseFlag(std::string_view flag, const std::string& value, Flags& flags) {
  if (flag == "--device") {
    flags.stage.device = value;
  } else if (flag == "--numerics") {
    flags.stage.numerics = value;
  } else if (flag == "--kv-type") {
    const auto type = ParseKvChoice(value);
    if (!type.ok()) return false;
    flags.stage.kv_type = *type;
  } else if (flag == "--prompt") {
    return ParseAll(value, flags.prompt);
  } else if (flag == "--decode") {
    return ParseAll(value, flags.decode);
  } else if (flag == "--prefill") {
    return ParseAll(value, flags.prefill);
  } else if (flag == "--streams") {
    return ParseStreams(value, flags.streams);
  } else {
    return flag == "--seconds" && ParseAll(value, flags.seconds);
  }
  return true;
}

void Print(const Json& line) {
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

int32_t BlocksOf(int32_t tokens) {
  return (tokens + kBlockTokens - 1) / kBlockTokens;
}

// Loads the model with room for all streams; where the memory is too small for
// the most of them, for fewer, and says so.
StatusOr<std::unique_ptr<Stage>> LoadFitting(Flags& flags) {
  for (;;) {
    const int32_t length = flags.prompt + flags.decode;
    const int32_t most = *std::ranges::max_element(flags.streams);
    flags.stage.max_context =
        BlocksOf(std::max(length, flags.prefill)) * kBlockTokens;
    flags.stage.max_sequences = most;
    flags.stage.kv_blocks =
        std::max(most * BlocksOf(length), BlocksOf(flags.prefill));
    auto stage = Stage::Load(flags.stage);
    if (stage.ok() || flags.streams.size() == 1 ||
        stage.status().code() != StatusCode::kResourceExhausted) {
      return stage;
    }
    Print({{"what", "decode"},
           {"streams", most},
           {"skipped", Message(stage.status())}});
    std::erase(flags.streams, most);
  }
}

// What a list of seconds of steps of `tokens` tokens comes to.
Json Rates(std::vector<double> seconds, int64_t tokens) {
  double sum = 0;
  for (const double one : seconds) sum += one;
  std::ranges::sort(seconds);
  const auto count = static_cast<double>(seconds.size());
  return {{"tok_per_s", static_cast<double>(tokens) * count / sum},
          {"best_tok_per_s", static_cast<double>(tokens) / seconds.front()},
          {"ms_p50", seconds[seconds.size() / 2] * 1e3},
          {"ms_p99", seconds[seconds.size() * 99 / 100] * 1e3}};
}

Json Decode(Stage& stage, const Flags& flags, int32_t streams, bool ahead) {
  measure::StageSteps sequences(&stage, streams, flags.prompt + flags.decode);
  const int32_t most = std::max(1, kStepTokens / streams);
  for (int32_t done = 0; done < flags.prompt; done += most) {
    sequences.Step(std::min(most, flags.prompt - done));
  }
  const int warm = std::min(kWarmSteps, flags.decode);
  if (ahead) {
    sequences.StepsAhead(warm);
  } else {
    for (int i = 0; i < warm; ++i) sequences.Step(1);
  }
  sequences.Rewind(flags.prompt);
  if (ahead) return Rates(sequences.StepsAhead(flags.decode), streams);
  std::vector<double> seconds;
  for (int32_t i = 0; i < flags.decode; ++i) {
    seconds.push_back(sequences.Step(1));
  }
  return Rates(seconds, streams);
}

Json Prefill(Stage& stage, const Flags& flags) {
  measure::StageSteps sequence(&stage, 1, flags.prefill);
  std::vector<double> seconds;
  for (int round = 0; round <= kPrefills; ++round) {
    sequence.Rewind(0);
    double all = 0;
    for (int32_t done = 0; done < flags.prefill; done += kStepTokens) {
      all += sequence.Step(std::min(kStepTokens, flags.prefill - done));
    }
    if (round > 0) seconds.push_back(all);  // the first is to warm
  }
  return Rates(seconds, flags.prefill);
}

int Measure(Flags flags) {
  const TimePoint start = Clock::now();
  flags.stage.max_step_tokens = kStepTokens;
  flags.stage.outlines = weights::OutlineReads::kRepeat;
  flags.stage.replay_log = false;
  const auto loaded = LoadFitting(flags);
  if (!loaded.ok()) {
    std::fprintf(stderr, "%s\n", Message(loaded.status()).c_str());
    return loaded.status().code() == StatusCode::kResourceExhausted ? kTooLarge
                                                                    : 1;
  }
  Stage& stage = **loaded;
  const StageInfo& info = stage.info();
  Print({{"what", "load"},
         {"seconds", info.load_seconds},
         {"weights_bytes", info.weights_bytes},
         {"weights", info.weights_dtype},
         {"numerics", info.numerics},
         {"isa", info.isa}});
  const auto measure = [&](Json what, const auto& rates) {
    const double spent = Seconds(Clock::now() - start);
    if (spent < flags.seconds) {
      what.update(rates());
    } else {
      what["skipped"] = Cat("after ", flags.seconds, " s nothing more begins");
    }
    Print(what);
  };
  for (const int32_t streams : flags.streams) {
    for (const bool ahead : {false, true}) {
      if (ahead && !stage.overlaps_steps()) continue;
      measure(
          {{"what", ahead ? "decode_ahead" : "decode"}, {"streams", streams}},
          [&] { return Decode(stage, flags, streams, ahead); });
    }
  }
  measure({{"what", "prefill"}, {"tokens", flags.prefill}},
          [&] { return Prefill(stage, flags); });
  return 0;
}

int Main(int argc, char** argv) {
  Flags flags;
  bool fine = argc % 2 == 0;
  if (fine) flags.stage.model_path = argv[1];
  for (int i = 2; fine && i < argc; i += 2) {
    fine = ParseFlag(argv[i], argv[i + 1], flags);
  }
  if (fine) return Measure(std::move(flags));
  std::fprintf(
      stderr,
      "usage: model_speed MODEL [--device D] [--numerics N] [--kv-type "
      "f32|bf16|q8_0] [--prompt N] [--decode N] [--streams N,N] "
      "[--prefill N] [--seconds N]\n");
  return 2;
}

}  // namespace
}  // namespace sluice::testing

int main(int argc, char** argv) { return sluice::testing::Main(argc, argv); }
