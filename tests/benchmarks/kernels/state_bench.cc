// Speeds of mixers with a state, of released models' shapes. See README.md.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

#include "common/concurrency/thread_team.h"
#include "common/tensor/buffer.h"
#include "kernels/state_mixer.h"

namespace sluice::kernels {
namespace {

using Kind = StateMixer::Kind;
constexpr int64_t kBlockTokens = 16;

struct Model {
  const char* name;
  Kind kind;
  int64_t heads, keys, key_dim, value_dim;  // a short convolution: channels
};

constexpr Model kModels[] = {
    {"qwen3_next", Kind::kGatedDelta, 32, 16, 128, 128},
    {"granite4_small", Kind::kMamba2, 128, 1, 128, 64},
    {"nemotron_h_8b", Kind::kMamba2, 128, 8, 128, 64},
    {"lfm2_1b", Kind::kShortConvolution, 0, 0, 0, 2048},
};

StateMixer MixerOf(const Model& model) {
  StateMixer mixer;
  mixer.kind = model.kind;
  StateShape& s = mixer.shape;
  s.taps = 4;
  if (model.kind == Kind::kShortConvolution) {
    s.taps = 3;
    s.channels = model.value_dim;
    return mixer;
  }
  s.num_heads = model.heads;
  s.num_key_heads = model.keys;
  s.key_dim = model.key_dim;
  s.value_dim = model.value_dim;
  s.delta = model.kind == Kind::kGatedDelta;
  s.channels = 2 * s.keys() + s.values();
  mixer.norm_groups = model.kind == Kind::kMamba2 ? s.num_key_heads : 0;
  return mixer;
}

Buffer Numbers(int64_t count) {
  Buffer numbers(sizeof(float) * static_cast<size_t>(count));
  std::mt19937 random(1);
  for (int64_t i = 0; i < count; ++i) {
    numbers.as<float>()[i] =
        static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
  }
  return numbers;
}

double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Prints the time of `tokens` tokens of each of `streams` sequences, which
// start at `place` of a block; layers are apart in memory, so that no cache
// has their states.
void Run(const Context& context, const Model& model, int64_t streams,
         int64_t tokens, int64_t place) {
  const StateMixer mixer = MixerOf(model);
  const int64_t blocks = 2 + (place + tokens) / kBlockTokens;
  const int64_t floats = mixer.shape.block_floats(kBlockTokens);
  const int64_t layer = streams * blocks * floats;
  const int64_t layers =
      std::max<int64_t>(1, (int64_t{128} << 20) / (4 * layer));
  Buffer states = Numbers(layers * layer);
  const int64_t rows = streams * tokens;
  const Buffer x = Numbers(rows * mixer.in_columns());
  Buffer scratch = Numbers(rows * mixer.scratch_columns());
  Buffer y = Numbers(rows * mixer.out_columns());
  const Buffer vectors =
      Numbers(mixer.shape.taps * mixer.shape.channels + mixer.shape.values());
  const float* const v = vectors.as<float>();
  const StateMixerVectors of = {v, v, v, v, v, v};
  std::vector<int32_t> table;
  std::vector<StateRun> runs;
  for (int64_t i = 0; i < streams * blocks; ++i) {
    table.push_back(static_cast<int32_t>(i));
  }
  for (int64_t s = 0; s < streams; ++s) {
    runs.push_back({s * tokens, (s + 1) * tokens, kBlockTokens + place,
                    table.data() + s * blocks});
  }
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    const double begin = Seconds();
    for (int64_t l = 0; l < layers; ++l) {
      const StateView view = {states.as<float>() + l * layer, streams * blocks,
                              kBlockTokens, mixer.shape};
      MixState(context, mixer, of, runs, view,
               {x.as<float>(), rows, mixer.in_columns(), mixer.in_columns()},
               {scratch.as<float>(), rows, mixer.scratch_columns(),
                mixer.scratch_columns()},
               {y.as<float>(), rows, mixer.out_columns(), mixer.out_columns()});
    }
    best = std::min(best, (Seconds() - begin) / static_cast<double>(layers));
  }
  const double state =
      4.0 * static_cast<double>(streams * mixer.shape.num_heads *
                                mixer.shape.key_dim * mixer.shape.value_dim);
  std::printf(
      "%-16s %3ld streams x %4ld tokens at place %2ld: %9.1f us, "
      "%7.2f us a token, states at %6.2f GB/s\n",
      model.name, streams, tokens, place, best * 1e6,
      best * 1e6 / static_cast<double>(rows), state / best * 1e-9);
}

int Main(int argc, char** argv) {
  int threads = 2;
  Isa isa = DetectIsa();
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    const std::string_view value = argv[i + 1];
    if (flag == "--threads") threads = std::atoi(argv[i + 1]);
    if (flag == "--isa") {
      isa = value == "avx512" ? Isa::kAvx512
            : value == "avx2" ? Isa::kAvx2
                              : Isa::kPortable;
    }
  }
  if (!HasIsa(isa)) return 1;
  ThreadTeam team({.num_threads = threads});
  const Context context = {&team, isa};
  for (const Model& model : kModels) {
    for (const int64_t place : {1, 8, 15}) Run(context, model, 1, 1, place);
    Run(context, model, 8, 1, 8);
    Run(context, model, 1, 512, 0);
  }
  return 0;
}

}  // namespace
}  // namespace sluice::kernels

int main(int argc, char** argv) { return sluice::kernels::Main(argc, argv); }
