#include "services/cli/bench/model_report.h"

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include "common/base/json.h"
#include "common/tools/measure/machine.h"
#include "services/cli/format.h"

namespace sluice::cli {
namespace {

using measure::Limits;
using measure::OpTime;

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double MedianOf(const StepRun& run,
                const std::function<double(const StepRound&)>& value) {
  std::vector<double> values;
  for (const StepRound& round : run.rounds) values.push_back(value(round));
  return MedianOf(std::move(values));
}

// The place of an operation in a step.
size_t PlaceOf(std::string_view op) {
  const auto& order = measure::OpOrder();
  return static_cast<size_t>(std::find(order.begin(), order.end(), op) -
                             order.begin());
}

// What the calls of one kind took in one round.
struct CallSum {
  int64_t calls = 0;
  double seconds = 0;
  double bytes = 0;
  double operations = 0;
};

template <typename IsOne>
CallSum SumOf(const StepRound& round, IsOne is_one) {
  CallSum sum;
  for (const OpTime& op : round.ops.ops) {
    if (!is_one(op)) continue;
    ++sum.calls;
    sum.seconds += op.seconds;
    sum.bytes += op.bytes;
    sum.operations += op.operations;
  }
  return sum;
}

double Share(double rate, double limit) { return limit > 0 ? rate / limit : 0; }

void FillRow(const StepRun& run, KernelRow& row) {
  const auto is_one = [&row](const OpTime& op) {
    return op.op == row.op && op.shape == row.shape && op.type == row.type;
  };
  const auto gb = [&](const StepRound& round) {
    const CallSum sum = SumOf(round, is_one);
    return sum.bytes / sum.seconds * 1e-9;
  };
  const auto gop = [&](const StepRound& round) {
    const CallSum sum = SumOf(round, is_one);
    return sum.operations / sum.seconds * 1e-9;
  };
  row.calls = SumOf(run.rounds[0], is_one).calls;
  row.seconds = MedianOf(run, [&](const StepRound& round) {
    return SumOf(round, is_one).seconds / static_cast<double>(row.calls);
  });
  row.gb_per_s = MedianOf(run, gb);
  row.gop_per_s = MedianOf(run, gop);
  row.read_share = MedianOf(run, [&](const StepRound& round) {
    return Share(gb(round), round.limits.read_all);
  });
  row.peak_share = MedianOf(run, [&](const StepRound& round) {
    return Share(gop(round),
                 row.integer ? round.limits.dot_peak : round.limits.fma_peak);
  });
}

std::string TitleOf(const StepRun& run, double seconds) {
  const StepKind& kind = run.kind;
  const double tokens = kind.batch * kind.tokens;
  const std::string what =
      kind.tokens == 1
          ? Cat("decode of ", kind.batch, " after ", run.context, " tokens")
          : Cat("prefill of ", kind.tokens, " tokens");
  return Format("%s: %.3f ms a step, %.1f tokens/s\n", what.c_str(),
                seconds * 1e3, tokens / seconds);
}

// The machine, the model and the medians of the limits.
std::string HeadText(const ModelRun& run) {
  const StageInfo& info = run.info;
  const StepRun& step = run.steps[0];
  const auto median = [&step](double Limits::*limit) {
    return MedianOf(
        step, [limit](const StepRound& round) { return round.limits.*limit; });
  };
  return Cat(
      measure::DescribeCpu(),
      Format("model %s, %.1f MB of %s weights, isa %s, %d threads, %zu "
             "rounds\n",
             info.model_name.c_str(),
             static_cast<double>(info.weights_bytes) * 1e-6,
             info.weights_dtype.c_str(), info.isa.c_str(), info.threads,
             step.rounds.size()),
      Format("limits: read %.1f GB/s by one core, %.1f by all; byte products "
             "%.0f Gop/s, F32 %.0f Gop/s; fork and join %.2f us\n",
             median(&Limits::read_one), median(&Limits::read_all),
             median(&Limits::dot_peak), median(&Limits::fma_peak),
             median(&Limits::join_seconds) * 1e6));
}

// "12.3" and "45 %", or dashes for what has no rate.
std::string RateText(double rate, double share) {
  if (rate == 0) return Format(" %8s %6s", "-", "-");
  if (share == 0) return Format(" %8.1f %6s", rate, "-");
  return Format(" %8.1f %4.0f %%", rate, share * 100);
}

Json LimitsJson(const StepRun& run) {
  Json all = Json::array();
  for (const StepRound& round : run.rounds) {
    const Limits& limits = round.limits;
    all.push_back({{"read_one_gb_per_s", limits.read_one},
                   {"read_all_gb_per_s", limits.read_all},
                   {"dot_peak_gop_per_s", limits.dot_peak},
                   {"fma_peak_gop_per_s", limits.fma_peak},
                   {"join_seconds", limits.join_seconds}});
  }
  return all;
}

Json RowsJson(const StepRun& run) {
  Json rows = Json::array();
  for (const KernelRow& row : KernelRows(run)) {
    rows.push_back({{"op", row.op},
                    {"shape", row.shape},
                    {"type", row.type},
                    {"tokens", row.tokens},
                    {"calls", row.calls},
                    {"seconds", row.seconds},
                    {"gb_per_s", row.gb_per_s},
                    {"read_share", row.read_share},
                    {"gop_per_s", row.gop_per_s},
                    {"peak_share", row.peak_share},
                    {"integer", row.integer}});
  }
  return rows;
}

Json PictureJson(const StepRun& run) {
  const StepPicture picture = PictureOf(run);
  Json parts = Json::array();
  for (const StepPart& part : picture.parts) {
    parts.push_back({{"name", part.name},
                     {"seconds", part.seconds},
                     {"share", part.seconds / picture.seconds}});
  }
  return {{"seconds", picture.seconds},   {"parts", parts},
          {"joins", picture.joins},       {"barrier_seconds", picture.barriers},
          {"gb_per_s", picture.gb_per_s}, {"read_share", picture.read_share}};
}

}  // namespace

std::vector<KernelRow> KernelRows(const StepRun& run) {
  std::vector<KernelRow> rows;
  for (const OpTime& op : run.rounds[0].ops.ops) {
    const bool known =
        std::any_of(rows.begin(), rows.end(), [&op](const KernelRow& row) {
          return std::tie(row.op, row.shape, row.type) ==
                 std::tie(op.op, op.shape, op.type);
        });
    if (known) continue;
    KernelRow& row = rows.emplace_back();
    row.op = op.op;
    row.shape = op.shape;
    row.type = op.type;
    row.tokens = op.tokens;
    row.integer = op.integer;
    FillRow(run, row);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return PlaceOf(a.op) < PlaceOf(b.op);
  });
  return rows;
}

StepPicture PictureOf(const StepRun& run) {
  std::vector<const StepRound*> rounds;
  for (const StepRound& round : run.rounds) rounds.push_back(&round);
  std::sort(rounds.begin(), rounds.end(), [](const auto* a, const auto* b) {
    return a->seconds < b->seconds;
  });
  const StepRound& round = *rounds[rounds.size() / 2];
  StepPicture picture;
  picture.seconds = round.seconds;
  double rest = round.seconds;
  for (const std::string_view op : measure::OpOrder()) {
    const CallSum sum =
        SumOf(round, [op](const OpTime& one) { return one.op == op; });
    if (sum.calls == 0) continue;
    picture.parts.push_back({std::string(op), sum.seconds});
    rest -= sum.seconds;
  }
  picture.parts.push_back({"between ops", rest});
  picture.joins = round.ops.joins;
  picture.barriers =
      static_cast<double>(round.ops.joins) * round.limits.join_seconds;
  const CallSum all = SumOf(round, [](const OpTime&) { return true; });
  picture.gb_per_s = all.bytes / round.seconds * 1e-9;
  picture.read_share = Share(picture.gb_per_s, round.limits.read_all);
  return picture;
}

std::string KernelsText(const ModelRun& run) {
  std::string text = HeadText(run);
  for (const StepRun& step : run.steps) {
    text += "\n";
    text += TitleOf(step, MedianOf(step, [](const StepRound& round) {
                      return round.seconds;
                    }));
    text += Format("%-15s %-20s %-10s %5s %10s %8s %6s %8s %6s\n", "op",
                   "shape", "type", "calls", "us a call", "GB/s", "of read",
                   "Gop/s", "of peak");
    for (const KernelRow& row : KernelRows(step)) {
      text += Format("%-15s %-20s %-10s %5lld %10.1f", row.op.c_str(),
                     row.shape.c_str(), row.type.c_str(),
                     static_cast<long long>(row.calls), row.seconds * 1e6);
      text += RateText(row.gb_per_s, row.read_share);
      text += RateText(row.gop_per_s, row.peak_share) + "\n";
    }
  }
  return text;
}

std::string LayersText(const ModelRun& run) {
  constexpr int kBar = 40;  // columns of the longest bar
  std::string text = HeadText(run);
  for (const StepRun& step : run.steps) {
    const StepPicture picture = PictureOf(step);
    double longest = 0;
    for (const StepPart& part : picture.parts) {
      longest = std::max(longest, part.seconds);
    }
    const auto line = [&](const std::string& name, double seconds) {
      const auto columns = static_cast<size_t>(
          std::clamp(seconds / longest, 0.0, 1.0) * kBar + 0.5);
      text += Format("%-16s %5.1f %% %9.3f ms  %s\n", name.c_str(),
                     seconds / picture.seconds * 100, seconds * 1e3,
                     std::string(columns, '#').c_str());
    };
    text += "\n" + TitleOf(step, picture.seconds);
    for (const StepPart& part : picture.parts) line(part.name, part.seconds);
    line("of it barriers", picture.barriers);
    text += Format(
        "barriers: %lld forks and joins; weights, keys and values: %.1f GB/s, "
        "%.0f %% of the read bandwidth\n",
        static_cast<long long>(picture.joins), picture.gb_per_s,
        picture.read_share * 100);
  }
  return text;
}

std::string ModelRunJson(const std::string& command, const ModelRun& run) {
  const StageInfo& info = run.info;
  Json steps = Json::array();
  for (const StepRun& step : run.steps) {
    Json seconds = Json::array();
    for (const StepRound& round : step.rounds) seconds.push_back(round.seconds);
    steps.push_back({{"batch", step.kind.batch},
                     {"tokens", step.kind.tokens},
                     {"context", step.context},
                     {"seconds", seconds},
                     {"limits", LimitsJson(step)},
                     {"kernels", RowsJson(step)},
                     {"picture", PictureJson(step)}});
  }
  const Json json = {{"command", Cat("sluice bench ", command)},
                     {"cpu", measure::DescribeCpu()},
                     {"model", info.model_name},
                     {"weights", info.weights_dtype},
                     {"weights_bytes", info.weights_bytes},
                     {"isa", info.isa},
                     {"threads", info.threads},
                     {"steps", steps}};
  return json.dump(2) + "\n";
}

}  // namespace sluice::cli
