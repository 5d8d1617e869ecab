#include "kernels/state_mixer.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/concurrency/thread_team.h"
#include "gtest/gtest.h"
#include "kernels/exp_log.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels {
namespace {

using Kind = StateMixer::Kind;
constexpr int64_t kBlock = 16;
constexpr int64_t kTokens = 75;

StateMixer MixerOf(Kind kind) {
  StateMixer mixer;
  mixer.kind = kind;
  mixer.norm_eps = 1e-5f;
  StateShape& s = mixer.shape;
  s.taps = kind == Kind::kShortConvolution ? 3 : 4;
  if (kind == Kind::kShortConvolution) {
    s.channels = 70;
    return mixer;
  }
  s.delta = kind == Kind::kGatedDelta;
  s.num_heads = 6;
  s.num_key_heads = s.delta ? 3 : 2;
  s.key_dim = 13;
  s.value_dim = 37;
  s.channels = 2 * s.keys() + s.values();
  if (kind == Kind::kMamba2) {
    mixer.norm_groups = 2;
    mixer.time_step_min = 0.05f;
    mixer.time_step_max = 3.0f;
    mixer.scales = {0.5f, 1.25f, 0.75f, 1.5f, 0.9f};
  }
  return mixer;
}

// A layer's vectors, with storage of their own.
struct Vectors {
  explicit Vectors(const StateMixer& m) {
    const StateShape& s = m.shape;
    taps = RandomFloats(11, s.taps * s.channels);
    bias = RandomFloats(12, s.channels, 0.3f);
    rate = RandomFloats(13, s.num_heads, 1.5f);
    for (float& r : rate) r = -std::exp(r);
    time_bias = RandomFloats(14, s.num_heads);
    skip = RandomFloats(15, s.num_heads);
    norm = RandomFloats(16, m.kind == Kind::kMamba2 ? s.values() : s.value_dim);
    of = {taps.data(), m.kind == Kind::kGatedDelta ? nullptr : bias.data(),
          rate.data(), time_bias.data(),
          skip.data(), norm.data()};
  }
  std::vector<float> taps, bias, rate, time_bias, skip, norm;
  StateMixerVectors of;
};

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double Silu(double x) { return x * Sigmoid(x); }
double SoftplusOf(double x) { return std::log1p(std::exp(x)); }

using Rows = std::vector<std::vector<double>>;

// The formulas in double precision, over a whole sequence.
class Reference {
 public:
  Reference(const StateMixer& mixer, const Vectors& vectors)
      : m_(mixer), s_(mixer.shape), v_(vectors) {}

  Rows Run(Rows x) const {
    if (m_.kind == Kind::kShortConvolution) return ShortConvolution(x);
    return m_.kind == Kind::kGatedDelta ? GatedDelta(x) : Mamba2(x);
  }

 private:
  Rows Convolution(const Rows& x, bool silu) const {
    Rows y = x;
    for (size_t t = 0; t < x.size(); ++t) {
      for (int64_t c = 0; c < s_.channels; ++c) {
        double sum = v_.of.conv_bias != nullptr ? v_.bias[c] : 0.0;
        for (int64_t j = 0; j < s_.taps; ++j) {
          const auto from = static_cast<int64_t>(t) - s_.taps + 1 + j;
          if (from >= 0) sum += v_.taps[j * s_.channels + c] * x[from][c];
        }
        y[t][c] = silu ? Silu(sum) : sum;
      }
    }
    return y;
  }

  static Rows Part(const Rows& x, int64_t begin, int64_t count) {
    Rows part;
    for (const auto& row : x) {
      part.emplace_back(row.begin() + begin, row.begin() + begin + count);
    }
    return part;
  }

  Rows ShortConvolution(const Rows& x) const {
    const int64_t width = s_.channels;
    Rows z = Part(x, 0, width);
    for (size_t t = 0; t < x.size(); ++t) {
      for (int64_t c = 0; c < width; ++c) z[t][c] *= x[t][2 * width + c];
    }
    Rows y = Convolution(z, false);
    for (size_t t = 0; t < x.size(); ++t) {
      for (int64_t c = 0; c < width; ++c) y[t][c] *= x[t][width + c];
    }
    return y;
  }

  // A token of one head: decays `state`, adds key change^T, returns S^T query.
  std::vector<double> Token(std::vector<double>& state, double decay,
                            const double* key, std::vector<double> value,
                            double beta, const double* query) const {
    const int64_t n = s_.value_dim;
    for (double& x : state) x *= decay;
    if (s_.delta) {
      for (int64_t j = 0; j < n; ++j) {
        double found = 0;
        for (int64_t i = 0; i < s_.key_dim; ++i) {
          found += state[i * n + j] * key[i];
        }
        value[j] = beta * (value[j] - found);
      }
    }
    std::vector<double> out(n);
    for (int64_t i = 0; i < s_.key_dim; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        state[i * n + j] += key[i] * value[j];
        out[j] += state[i * n + j] * query[i];
      }
    }
    return out;
  }

  static void Unit(double* x, int64_t n, double scale) {
    double square = 1e-6;
    for (int64_t i = 0; i < n; ++i) square += x[i] * x[i];
    for (int64_t i = 0; i < n; ++i) x[i] *= scale / std::sqrt(square);
  }

  void Norm(double* x, const float* weight, int64_t n) const {
    double square = 0;
    for (int64_t i = 0; i < n; ++i) square += x[i] * x[i];
    const double root = std::sqrt(square / static_cast<double>(n) +
                                  static_cast<double>(m_.norm_eps));
    for (int64_t i = 0; i < n; ++i) x[i] *= weight[i] / root;
  }

  Rows GatedDelta(const Rows& x) const {
    Rows mixed = Convolution(Part(x, 0, s_.channels), true);
    const int64_t group = s_.num_heads / s_.num_key_heads;
    Rows y;
    Rows states(s_.num_heads, std::vector<double>(s_.key_dim * s_.value_dim));
    for (size_t t = 0; t < x.size(); ++t) {
      double* const q = mixed[t].data();
      double* const k = q + s_.keys();
      for (int64_t h = 0; h < s_.num_key_heads; ++h) {
        Unit(q + h * s_.key_dim, s_.key_dim, 1 / std::sqrt(s_.key_dim));
        Unit(k + h * s_.key_dim, s_.key_dim, 1);
      }
      auto& out = y.emplace_back();
      for (int64_t h = 0; h < s_.num_heads; ++h) {
        const double* const z = x[t].data() + s_.channels + h * s_.value_dim;
        const double* const gates = x[t].data() + s_.channels + s_.values();
        const double decay = std::exp(
            v_.rate[h] * SoftplusOf(gates[s_.num_heads + h] + v_.time_bias[h]));
        const double* const v = k + s_.keys() + h * s_.value_dim;
        const int64_t at = h / group * s_.key_dim;
        auto head = Token(states[h], decay, k + at, {v, v + s_.value_dim},
                          Sigmoid(gates[h]), q + at);
        Norm(head.data(), v_.norm.data(), s_.value_dim);
        for (int64_t j = 0; j < s_.value_dim; ++j) {
          out.push_back(head[j] * Silu(z[j]));
        }
      }
    }
    return y;
  }

  Rows Mamba2(Rows x) const {
    const int64_t d = s_.values();
    const int64_t parts[] = {d, d, s_.keys(), s_.keys(), s_.num_heads};
    for (auto& row : x) {
      double* at = row.data();
      for (int i = 0; i < 5; ++i) {
        for (int64_t c = 0; c < parts[i]; ++c) *at++ *= m_.scales[i];
      }
    }
    const Rows mixed = Convolution(Part(x, d, s_.channels), true);
    const int64_t group = s_.num_heads / s_.num_key_heads;
    Rows y;
    Rows states(s_.num_heads, std::vector<double>(s_.key_dim * s_.value_dim));
    for (size_t t = 0; t < x.size(); ++t) {
      auto& out = y.emplace_back();
      const double* const keys = mixed[t].data() + d;
      for (int64_t h = 0; h < s_.num_heads; ++h) {
        const double* const u = mixed[t].data() + h * s_.value_dim;
        double dt = SoftplusOf(x[t][d + s_.channels + h] + v_.time_bias[h]);
        dt = std::max<double>(dt, m_.time_step_min);
        if (m_.time_step_max > 0) dt = std::min<double>(dt, m_.time_step_max);
        std::vector<double> value(u, u + s_.value_dim);
        for (double& v : value) v *= dt;
        const int64_t at = h / group * s_.key_dim;
        const auto head = Token(states[h], std::exp(dt * v_.rate[h]), keys + at,
                                value, 0, keys + s_.keys() + at);
        for (int64_t j = 0; j < s_.value_dim; ++j) {
          out.push_back(head[j] + v_.skip[h] * u[j]);
        }
      }
      const int64_t groups = std::max<int64_t>(m_.norm_groups, 1);
      for (int64_t g = 0; g < groups; ++g) {
        const int64_t at = g * (d / groups);
        const auto gate = [&] {
          for (int64_t i = at; i < at + d / groups; ++i) {
            out[i] *= Silu(x[t][i]);
          }
        };
        if (!m_.norm_before_gate) gate();
        if (m_.norm_groups > 0) {
          Norm(out.data() + at, v_.norm.data() + at, d / groups);
        }
        if (m_.norm_before_gate) gate();
      }
    }
    return y;
  }

  const StateMixer& m_;
  const StateShape& s_;
  const Vectors& v_;
};

// Some sequences' blocks, without meaning until they are written.
class Sequences {
 public:
  Sequences(const StateMixer& mixer, const Vectors& vectors, int64_t blocks)
      : mixer_(mixer),
        vectors_(vectors),
        memory_(blocks * mixer.shape.block_floats(kBlock),
                std::numeric_limits<float>::quiet_NaN()),
        view_{memory_.data(), blocks, kBlock, mixer.shape} {}

  // Steps of `inputs`' rows, runs.back().end in all.
  std::vector<float> Step(const Context& context,
                          const std::vector<StateRun>& runs,
                          const std::vector<float>& inputs) {
    const int64_t rows = runs.back().end;
    OwnedMatrix x(rows, mixer_.in_columns(), inputs);
    OwnedMatrix scratch(rows, mixer_.scratch_columns());
    OwnedMatrix y(rows, mixer_.out_columns(), 3);
    MixState(context, mixer_, vectors_.of, runs, view_,
             static_cast<const OwnedMatrix&>(x).view(), scratch.view(),
             y.view());
    EXPECT_TRUE(y.MarkIntact());
    return y.values();
  }

 private:
  const StateMixer& mixer_;
  const Vectors& vectors_;
  std::vector<float> memory_;
  StateView view_;
};

std::vector<float> InputsOf(const StateMixer& mixer, uint64_t seed) {
  return RandomFloats(seed, kTokens * mixer.in_columns(), 1.5f);
}

std::vector<float> RowsOf(const std::vector<float>& all, int64_t cols,
                          int64_t begin, int64_t end) {
  return {all.begin() + begin * cols, all.begin() + end * cols};
}

std::vector<int32_t> Table(int32_t first) {
  std::vector<int32_t> table;
  for (int32_t i = 0; i <= kTokens / kBlock; ++i) table.push_back(first + i);
  return table;
}

// The sequence alone, in chunks that end at `ends`.
std::vector<float> InChunks(const Context& context, const StateMixer& mixer,
                            const Vectors& vectors,
                            const std::vector<float>& inputs,
                            const std::vector<int64_t>& ends,
                            const std::vector<int32_t>& table = Table(0)) {
  Sequences sequences(mixer, vectors, 16);
  std::vector<float> all;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    const auto y =
        sequences.Step(context, {{0, end - begin, begin, table.data()}},
                       RowsOf(inputs, mixer.in_columns(), begin, end));
    all.insert(all.end(), y.begin(), y.end());
    begin = end;
  }
  return all;
}

class StateMixerTest : public testing::TestWithParam<Kind> {
 protected:
  const StateMixer mixer_ = MixerOf(GetParam());
  const Vectors vectors_{mixer_};
  const std::vector<float> inputs_ = InputsOf(mixer_, 21);
  const Context portable_ = {};
};

TEST_P(StateMixerTest, IsCloseToDouble) {
  std::vector<StateMixer> mixers = {mixer_};
  if (GetParam() == Kind::kMamba2) {
    mixers.push_back(mixer_);
    mixers.back().norm_before_gate = true;
    mixers.push_back(mixer_);
    mixers.back().norm_groups = 0;
  }
  for (const StateMixer& mixer : mixers) {
    const int64_t cols = mixer.in_columns();
    Rows x;
    for (int64_t t = 0; t < kTokens; ++t) {
      const auto row = RowsOf(inputs_, cols, t, t + 1);
      x.emplace_back(row.begin(), row.end());
    }
    const Rows want = Reference(mixer, vectors_).Run(x);
    const auto got = InChunks(portable_, mixer, vectors_, inputs_, {kTokens});
    double most = 0;
    for (const auto& row : want) {
      for (const double value : row) most = std::max(most, std::abs(value));
    }
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t c = 0; c < mixer.out_columns(); ++c) {
        ASSERT_NEAR(got[t * mixer.out_columns() + c], want[t][c], 2e-5 * most)
            << "token " << t << ", column " << c;
      }
    }
  }
}

TEST_P(StateMixerTest, EveryChunkIsaAndTeamHasTheSameBits) {
  ThreadTeam team({.num_threads = 3});
  std::vector<int64_t> singles;
  for (int64_t t = 1; t <= kTokens; ++t) singles.push_back(t);
  const auto want = InChunks(portable_, mixer_, vectors_, inputs_, {kTokens});
  const std::vector<std::vector<int64_t>> cuts = {singles,
                                                  {1, 2, 33, kTokens},
                                                  {16, 32, 48, kTokens},
                                                  {15, 47, 64, kTokens},
                                                  {17, 18, kTokens}};
  for (const Isa isa : AvailableIsas()) {
    for (Executor* executor :
         {static_cast<Executor*>(nullptr), static_cast<Executor*>(&team)}) {
      const Context context = {executor, isa};
      for (const auto& ends : cuts) {
        EXPECT_TRUE(
            SameBits(InChunks(context, mixer_, vectors_, inputs_, ends), want))
            << ToString(isa) << " with a chunk to " << ends[0];
      }
    }
  }
}

TEST_P(StateMixerTest, SequencesOfAStepKeepApart) {
  const auto others = InputsOf(mixer_, 22);
  const auto want = InChunks(portable_, mixer_, vectors_, inputs_, {kTokens});
  const auto want_others =
      InChunks(portable_, mixer_, vectors_, others, {kTokens});
  Sequences sequences(mixer_, vectors_, 16);
  const auto table = Table(3), other_table = Table(9);
  const int64_t in = mixer_.in_columns(), out = mixer_.out_columns();
  // 20 tokens of both, then 1 of the other and 30 of the first.
  auto x = RowsOf(inputs_, in, 0, 20);
  const auto x_others = RowsOf(others, in, 0, 20);
  x.insert(x.end(), x_others.begin(), x_others.end());
  auto y = sequences.Step(
      portable_, {{0, 20, 0, table.data()}, {20, 40, 0, other_table.data()}},
      x);
  EXPECT_TRUE(SameBits(RowsOf(y, out, 0, 20), RowsOf(want, out, 0, 20)));
  EXPECT_TRUE(
      SameBits(RowsOf(y, out, 20, 40), RowsOf(want_others, out, 0, 20)));
  x = RowsOf(others, in, 20, 21);
  const auto more = RowsOf(inputs_, in, 20, 50);
  x.insert(x.end(), more.begin(), more.end());
  y = sequences.Step(
      portable_, {{0, 1, 20, other_table.data()}, {1, 31, 20, table.data()}},
      x);
  EXPECT_TRUE(SameBits(RowsOf(y, out, 0, 1), RowsOf(want_others, out, 20, 21)));
  EXPECT_TRUE(SameBits(RowsOf(y, out, 1, 31), RowsOf(want, out, 20, 50)));
}

// Drafts that are dropped, and a step that runs again.
TEST_P(StateMixerTest, AStepThatRunsAgainHasTheSameBits) {
  const auto others = InputsOf(mixer_, 23);
  const auto want = InChunks(portable_, mixer_, vectors_, inputs_, {kTokens});
  Sequences sequences(mixer_, vectors_, 16);
  const auto table = Table(0);
  const int64_t in = mixer_.in_columns(), out = mixer_.out_columns();
  const auto step = [&](const std::vector<float>& from, int64_t begin,
                        int64_t end) {
    return sequences.Step(portable_, {{0, end - begin, begin, table.data()}},
                          RowsOf(from, in, begin, end));
  };
  step(inputs_, 0, 30);
  step(others, 30, 47);  // over a block's end; none of it is accepted
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(SameBits(step(inputs_, 30, 50), RowsOf(want, out, 30, 50)));
  }
  step(others, 50, 60);
  EXPECT_TRUE(
      SameBits(step(inputs_, 50, kTokens), RowsOf(want, out, 50, kTokens)));
}

// A long chunk need not keep the blocks within it.
TEST_P(StateMixerTest, BlocksWithinAChunkMayBeOne) {
  ThreadTeam team({.num_threads = 3});
  const Context context = {&team, DetectIsa()};
  const auto want = InChunks(context, mixer_, vectors_, inputs_, {kTokens});
  for (const std::vector<int32_t>& table : std::vector<std::vector<int32_t>>{
           {7, 7, 7, 7, 7}, {3, 3, 3, 9, 9}, {3, 9, 9, 9, 2}}) {
    for (const std::vector<int64_t>& ends :
         std::vector<std::vector<int64_t>>{{kTokens}, {48, kTokens}}) {
      EXPECT_TRUE(SameBits(
          InChunks(context, mixer_, vectors_, inputs_, ends, table), want))
          << table[1] << " to " << ends[0];
    }
  }
}

std::string NameOf(const testing::TestParamInfo<Kind>& info) {
  return info.param == Kind::kShortConvolution ? "ShortConvolution"
         : info.param == Kind::kGatedDelta     ? "GatedDelta"
                                               : "Mamba2";
}
INSTANTIATE_TEST_SUITE_P(AllKinds, StateMixerTest,
                         testing::Values(Kind::kShortConvolution,
                                         Kind::kGatedDelta, Kind::kMamba2),
                         NameOf);

TEST(SoftplusTest, IsCloseToDouble) {
  for (float x = -80.0f; x < 90.0f; x += 0.37f) {
    const double want = std::log1p(std::exp(static_cast<double>(x)));
    EXPECT_NEAR(Softplus(x), want, 4e-7 * want) << x;
  }
}

}  // namespace
}  // namespace sluice::kernels
