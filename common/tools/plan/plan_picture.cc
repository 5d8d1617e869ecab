#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "common/base/cat.h"
#include "common/tools/plan/plan_text.h"

namespace sluice::plan {
namespace {

using placement::HostPlan;
using placement::StagePlan;
using placement::StreamSpeed;

// A box of the drawing: what it is, a line about it, and its memory.
struct Box {
  std::string title;
  std::string about;
  double weights = 0;  // parts of its memory
  double kv = 0;
  double rest = 0;
  double hop_seconds = 0;  // into it
  bool is_host = false;
};

std::string Rounded(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

std::string Gb(uint64_t bytes) {
  return Rounded(static_cast<double>(bytes) * 1e-9, 2);
}

const std::string& MachineName(const PlanView& view, int32_t index) {
  return view.request->machines.machines[static_cast<size_t>(index)].name;
}

std::vector<Box> BoxesOf(const PlanView& view) {
  std::vector<Box> boxes;
  const auto& stages = view.plan->stages;
  for (size_t i = 0; i < stages.size(); ++i) {
    const StagePlan& stage = stages[i];
    const auto part = [&](uint64_t bytes) {
      return static_cast<double>(bytes) / static_cast<double>(stage.memory);
    };
    boxes.push_back(
        {Cat("stage ", i, " on ", MachineName(view, stage.machine)),
         Cat("layers ", stage.range.first, "-", stage.range.last - 1,
             ", weights ", Gb(stage.bytes.weights), " GB, KV ",
             Gb(stage.bytes.kv), " GB"),
         part(stage.bytes.weights), part(stage.bytes.kv), part(stage.work),
         stage.hop_seconds, false});
  }
  for (const HostPlan& host : view.plan->hosts) {
    const auto memory = static_cast<double>(
        view.request->machines.machines[static_cast<size_t>(host.machine)]
            .memory);
    boxes.push_back({Cat("experts on ", MachineName(view, host.machine)),
                     Cat(Rounded(100 * host.share, 1), " % of the rows, ",
                         Gb(host.experts), " GB"),
                     static_cast<double>(host.experts) / memory, 0, 0, 0,
                     true});
  }
  return boxes;
}

// Neighbours are joined by a hop, hosts stand beside the stages.
std::string HopText(const Box& box) {
  return Cat(Rounded(box.hop_seconds * 1e3, 3), " ms a hop");
}

constexpr int kInner = 60;  // columns within a box

std::string Row(std::string text) {
  if (text.size() > kInner) text.resize(kInner);
  text.resize(kInner, ' ');
  return "| " + text + " |\n";
}

std::string Bar(const Box& box) {
  constexpr int kBar = kInner - 12;
  const double parts[] = {box.weights, box.kv, box.rest};
  constexpr char kSigns[] = {'#', '=', '+'};
  std::string bar;
  double sum = 0;
  for (size_t i = 0; i < 3; ++i) {
    sum += parts[i];
    const auto until = static_cast<size_t>(
        std::clamp(std::lround(sum * kBar), 0L, long{kBar}));
    if (until > bar.size()) bar.resize(until, kSigns[i]);
  }
  bar.resize(kBar, '.');
  return Cat("[", bar, "] ", Rounded(100 * sum, 1), " %");
}

std::string Edge() { return "+" + std::string(kInner + 2, '-') + "+\n"; }

std::string Escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&') {
      safe += "&amp;";
    } else if (c == '<') {
      safe += "&lt;";
    } else if (c == '>') {
      safe += "&gt;";
    } else {
      safe += c;
    }
  }
  return safe;
}

// Places of the SVG document, in its units.
constexpr int kBoxWidth = 520;
constexpr int kBoxHeight = 74;
constexpr int kGap = 30;
constexpr int kMargin = 20;
constexpr int kBarWidth = kBoxWidth - 24;

std::string SvgText(int x, int y, const std::string& style,
                    const std::string& text) {
  return Cat("<text x=\"", x, "\" y=\"", y, "\" ", style, ">", Escaped(text),
             "</text>\n");
}

std::string SvgRect(double x, int y, double width, int height,
                    const std::string& style) {
  return Cat("<rect x=\"", x, "\" y=\"", y, "\" width=\"", width,
             "\" height=\"", height, "\" ", style, "/>\n");
}

std::string SvgBox(const Box& box, int y) {
  std::string svg =
      SvgRect(kMargin, y, kBoxWidth, kBoxHeight,
              box.is_host ? "rx=\"6\" fill=\"#fff7ed\" stroke=\"#9a3412\""
                          : "rx=\"6\" fill=\"#f8fafc\" stroke=\"#334155\"");
  svg += SvgText(kMargin + 12, y + 22, "font-weight=\"bold\"", box.title);
  svg += SvgText(kMargin + 12, y + 42, "fill=\"#475569\"", box.about);
  svg += SvgRect(kMargin + 12, y + 52, kBarWidth, 12, "fill=\"#e2e8f0\"");
  double x = kMargin + 12;
  const std::pair<double, const char*> parts[] = {
      {box.weights, "fill=\"#2563eb\""},
      {box.kv, "fill=\"#16a34a\""},
      {box.rest, "fill=\"#a16207\""}};
  for (const auto& [part, fill] : parts) {
    const double width = std::clamp(part, 0.0, 1.0) * kBarWidth;
    svg += SvgRect(x, y + 52, width, 12, fill);
    x += width;
  }
  return svg;
}

}  // namespace

std::string PlanPicture(const PlanView& view) {
  std::string text = Edge() + Row("gateway") + Edge();
  for (const Box& box : BoxesOf(view)) {
    text +=
        box.is_host ? "        .\n" : Cat("        |  ", HopText(box), "\n");
    text += Edge() + Row(box.title) + Row(box.about) + Row(Bar(box)) + Edge();
  }
  return text + "# weights  = KV cache  + activations and process  . free\n";
}

std::string PlanSvg(const PlanView& view) {
  const std::vector<Box> boxes = BoxesOf(view);
  const int height =
      2 * kMargin + 90 + static_cast<int>(boxes.size()) * (kBoxHeight + kGap);
  std::string svg =
      Cat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"",
          kBoxWidth + 2 * kMargin, "\" height=\"", height,
          "\" font-family=\"sans-serif\" font-size=\"13\">\n",
          SvgRect(0, 0, kBoxWidth + 2 * kMargin, height, "fill=\"white\""));
  int y = kMargin;
  svg += SvgRect(kMargin, y, kBoxWidth, 30,
                 "rx=\"6\" fill=\"#ecfeff\" stroke=\"#155e75\"");
  svg += SvgText(kMargin + 12, y + 20, "font-weight=\"bold\"",
                 Cat("gateway: ", view.model));
  y += 30;
  for (const Box& box : boxes) {
    const int x = kMargin + 40;
    svg += Cat("<line x1=\"", x, "\" y1=\"", y, "\" x2=\"", x, "\" y2=\"",
               y + kGap, "\" stroke=\"#334155\"",
               box.is_host ? " stroke-dasharray=\"4\"" : "", "/>\n");
    if (!box.is_host) {
      svg += SvgText(x + 8, y + 20, "fill=\"#64748b\"", HopText(box));
    }
    y += kGap;
    svg += SvgBox(box, y);
    y += kBoxHeight;
  }
  std::string speeds;
  for (const StreamSpeed& speed : view.plan->speeds) {
    if (!speed.fits) continue;
    speeds += Cat(speeds.empty() ? "tokens/s: " : ", ",
                  Rounded(speed.tokens_per_second, 1), " of ", speed.streams,
                  speed.streams == 1 ? " stream" : " streams");
  }
  svg += SvgText(kMargin, y + 28, "fill=\"#0f172a\"", speeds);
  svg += SvgText(kMargin, y + 48, "fill=\"#64748b\"",
                 "blue weights, green KV cache, brown activations and process");
  return svg + "</svg>\n";
}

}  // namespace sluice::plan
