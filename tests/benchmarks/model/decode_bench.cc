// Speed of one stage that holds a whole model: decode at several batch
// sizes, prefill of a long prompt, beside the memory read bandwidth measured
// in turns with them. See README.md.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/model_config/weights_mode.h"
#include "common/stage/stage.h"
#include "common/tools/measure/machine.h"
#include "common/tools/measure/stage_steps.h"

namespace sluice {
namespace {

// What another engine's bench measures, once each: a prompt's tokens, and
// decode steps of one sequence and of some together.
struct Once {
  int prefill = 0;  // 0: not asked for
  int decode = 0;
  int streams = 0;
};

struct Flags {
  StageOptions stage;
  int rounds = 5;
  int steps = 4;      // decode steps per round
  int prefill = 512;  // tokens
  bool sampling = false;
  int context = 0;  // of decode steps that are measured alone; 0: they are not
  Once once;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// One line: `batch` sequences, steps of `tokens` tokens each.
void Measure(Stage& stage, measure::ReadProbe& probe, const Flags& flags,
             const char* what, int batch, int tokens) {
  const int steps = tokens == 1 ? flags.steps : 1;
  std::vector<double> seconds;
  std::vector<double> bandwidth;
  for (int round = 0; round < flags.rounds; ++round) {
    measure::StageSteps sequences(&stage, batch, 16 + (steps + 1) * tokens);
    if (tokens == 1) sequences.Step(8);  // a little context, warm
    bandwidth.push_back(probe.Measure());
    for (int i = 0; i < steps; ++i) seconds.push_back(sequences.Step(tokens));
  }
  const double bytes = static_cast<double>(stage.info().weights_bytes) * 1e-9;
  const double median = Median(seconds);
  const double best = *std::min_element(seconds.begin(), seconds.end());
  const double read = Median(bandwidth);
  const double most = *std::max_element(bandwidth.begin(), bandwidth.end());
  const auto print = [&](const char* which, double step, double rate) {
    std::printf(
        "%-8s batch %2d %-6s %9.2f ms/step %9.2f tok/s %7.2f GB/s of "
        "weights, %3.0f %% of %6.2f GB/s read\n",
        what, batch, which, step * 1e3, batch * tokens / step, bytes / step,
        bytes / step / rate * 100, rate);
  };
  print("median", median, read);
  print("best", best, most);
  std::fflush(stdout);
}

// One line: decode steps of one sequence after a context, and the memory that
// they read.
void MeasureAfter(Stage& stage, const Flags& flags) {
  const int chunk = stage.info().limits.max_step_tokens;
  const int steps = flags.rounds * flags.steps;
  measure::StageSteps sequence(&stage, 1, flags.context + steps + 1);
  for (int done = 0; done < flags.context; done += chunk) {
    sequence.Step(std::min(chunk, flags.context - done));
  }
  sequence.Step(1);  // warm
  std::vector<double> seconds;
  for (int i = 0; i < steps; ++i) seconds.push_back(sequence.Step(1));
  std::printf(
      "decode   after %d tokens: median %.2f ms/step, best %.2f; %.1f MB of "
      "weights, %.1f MB of keys and values for %d positions, numerics %s\n",
      flags.context, Median(seconds) * 1e3,
      *std::min_element(seconds.begin(), seconds.end()) * 1e3,
      static_cast<double>(stage.info().weights_bytes) * 1e-6,
      static_cast<double>(stage.info().kv_bytes) * 1e-6,
      stage.info().limits.num_blocks * kBlockTokens,
      stage.info().numerics.c_str());
}

// What steps of `batch` sequences spend on drawing their tokens, and its share,
// by what the sequences ask. The ways take turns, step by step.
void MeasureSampling(Stage& stage, int batch, const Flags& flags) {
  std::vector<std::pair<const char*, SamplingParams>> ways;
  for (const char* name : {"greedy", "temperature 1", "top_p 0.95",
                           "min_p 0.05", "penalties", "logprobs 5"}) {
    ways.push_back({name, {}});
  }
  ways[0].second = measure::Greedy();
  ways[2].second.top_p = 0.95f;
  ways[3].second.min_p = 0.05f;
  ways[4].second.presence_penalty = 0.5f;
  ways[4].second.repetition_penalty = 1.1f;
  ways[5].second.logprobs = 5;
  std::vector<std::vector<double>> micros(ways.size());
  std::vector<std::vector<double>> shares(ways.size());
  for (int round = 0; round < flags.rounds; ++round) {
    for (size_t way = 0; way < ways.size(); ++way) {
      measure::StageSteps sequences(&stage, batch, 32, ways[way].second);
      sequences.Step(8);
      for (int i = 0; i < flags.steps; ++i) {
        const double step = sequences.Step(1);
        const TraceSpan& span = stage.sampling();
        const double drawn = static_cast<double>(span.stop_ns - span.start_ns);
        micros[way].push_back(drawn * 1e-3);
        shares[way].push_back(drawn * 1e-9 / step);
      }
    }
  }
  for (size_t way = 0; way < ways.size(); ++way) {
    std::printf(
        "sample   batch %2d %-14s median %8.1f us/step, best %8.1f, %5.2f %% "
        "of its step\n",
        batch, ways[way].first, Median(micros[way]),
        *std::min_element(micros[way].begin(), micros[way].end()),
        100 * Median(shares[way]));
  }
  std::fflush(stdout);
}

// Tokens a second of a prompt of `tokens` tokens, in chunks as a stage takes
// them.
double PrefillRate(Stage& stage, int tokens) {
  const int chunk = stage.info().limits.max_step_tokens;
  measure::StageSteps sequence(&stage, 1, tokens);
  sequence.Step(std::min(chunk, tokens));  // warm
  sequence.Rewind(0);
  double seconds = 0;
  for (int done = 0; done < tokens; done += chunk) {
    seconds += sequence.Step(std::min(chunk, tokens - done));
  }
  return tokens / seconds;
}

// Tokens a second of `streams` sequences that decode `tokens` tokens each after
// a context.
double DecodeRate(Stage& stage, int streams, int tokens, int context) {
  measure::StageSteps sequences(&stage, streams, context + tokens + 1);
  sequences.Step(context);
  sequences.Step(1);  // warm
  sequences.Rewind(context);
  double seconds = 0;
  for (int i = 0; i < tokens; ++i) seconds += sequences.Step(1);
  return streams * tokens / seconds;
}

// One line of JSON. The contexts are those of the other engines' benches.
void MeasureOnce(Stage& stage, const Once& once) {
  constexpr int kContext = 1;
  constexpr int kBatchContext = 16;
  const double prefill = PrefillRate(stage, once.prefill);
  const double decode = DecodeRate(stage, 1, once.decode, kContext);
  const double batch =
      DecodeRate(stage, once.streams, once.decode, kBatchContext);
  std::printf("{\"prefill\": %.3f, \"decode\": %.3f, \"batch\": %.3f}\n",
              prefill, decode, batch);
}

// "512,128,8"; false for what is not three positive numbers.
bool ParseOnce(const char* text, Once& once) {
  char more = 0;
  return std::sscanf(text, "%d,%d,%d%c", &once.prefill, &once.decode,
                     &once.streams, &more) == 3 &&
         once.prefill > 0 && once.decode > 0 && once.streams > 0;
}

// Room for the sequences of `once`, and its steps.
void FitOnce(const Once& once, StageOptions& stage) {
  stage.max_context = std::max(once.prefill, once.decode) + kBlockTokens;
  stage.max_context =
      (stage.max_context + kBlockTokens) / kBlockTokens * kBlockTokens;
  stage.max_sequences = once.streams;
  stage.kv_blocks = once.streams * (stage.max_context / kBlockTokens + 1);
}

// Room for the context, and the steps after it.
void FitContext(const Flags& flags, StageOptions& stage) {
  const int tokens = flags.context + flags.rounds * flags.steps + 2;
  stage.kv_blocks = tokens / kBlockTokens + 1;
  stage.max_context = stage.kv_blocks * kBlockTokens;
}

bool ParseFlags(int argc, char** argv, Flags& flags) {
  flags.stage.max_context = 1024;
  flags.stage.max_sequences = 32;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag.substr(0, 2) != "--") {
      flags.stage.model_path = flag;
      continue;
    }
    if (++i == argc) return false;
    const std::string_view value = argv[i];
    if (flag == "--threads") {
      flags.stage.threads = std::atoi(argv[i]);
    } else if (flag == "--ranks") {
      flags.stage.ranks = std::atoi(argv[i]);
    } else if (flag == "--rounds") {
      flags.rounds = std::max(1, std::atoi(argv[i]));
    } else if (flag == "--isa") {
      flags.stage.isa = value;
    } else if (flag == "--kv-type") {
      const auto type = ParseKvChoice(std::string(value));
      if (!type.ok()) return false;
      flags.stage.kv_type = *type;
    } else if (flag == "--activations") {
      const auto activations = ParseActivations(std::string(value));
      if (!activations.ok()) return false;
      flags.stage.activations = *activations;
    } else if (flag == "--context") {
      flags.context = std::atoi(argv[i]);
      if (flags.context < 1) return false;
    } else if (flag == "--pin") {
      flags.stage.pin_threads = value == "true";
    } else if (flag == "--once") {
      if (!ParseOnce(argv[i], flags.once)) return false;
    } else if (flag == "--sampling") {
      flags.sampling = value == "true";
    } else if (flag == "--weights") {
      const auto weights = ParseWeightsMode(std::string(value));
      if (!weights.ok()) return false;
      flags.stage.weights = *weights;
    } else {
      return false;
    }
  }
  return !flags.stage.model_path.empty();
}

int Main(int argc, char** argv) {
  Flags flags;
  if (!ParseFlags(argc, argv, flags)) {
    std::fprintf(stderr,
                 "usage: decode_bench MODEL [--threads N] [--ranks R] "
                 "[--weights auto|bf16|f32|q8_0|...] [--isa NAME] [--rounds N] "
                 "[--kv-type auto|f32|bf16|q8_0] [--activations stored|f32] "
                 "[--context N] "
                 "[--pin true|false] [--sampling true|false] "
                 "[--once PREFILL,DECODE,STREAMS]\n");
    return 2;
  }
  flags.stage.kv_blocks = 1024;
  if (flags.once.prefill > 0) FitOnce(flags.once, flags.stage);
  if (flags.context > 0) FitContext(flags, flags.stage);
  auto loaded = Stage::Load(flags.stage);
  if (!loaded.ok()) {
    std::fprintf(stderr, "%s\n", Message(loaded.status()).c_str());
    return 1;
  }
  Stage& stage = **loaded;
  const StageInfo& info = stage.info();
  if (flags.once.prefill > 0) {
    MeasureOnce(stage, flags.once);
    return 0;
  }
  std::printf(
      "%smodel %s, %.1f MB of %s weights, isa %s, %d ranks, %d threads, "
      "loaded in %.1f s\n",
      measure::DescribeCpu().c_str(), info.model_name.c_str(),
      static_cast<double>(info.weights_bytes) * 1e-6,
      info.weights_dtype.c_str(), info.isa.c_str(), info.ranks, info.threads,
      info.load_seconds);
  if (flags.context > 0) {
    MeasureAfter(stage, flags);
    return 0;
  }
  if (flags.sampling) {
    for (const int batch : {1, 8, 32}) MeasureSampling(stage, batch, flags);
    return 0;
  }
  measure::ReadProbe probe(info.threads);
  Measure(stage, probe, flags, "decode", 1, 1);
  Measure(stage, probe, flags, "decode", 8, 1);
  Measure(stage, probe, flags, "prefill", 1,
          std::min(flags.prefill, info.limits.max_context - 64));
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) { return sluice::Main(argc, argv); }
