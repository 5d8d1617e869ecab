#include "services/cli/svg_chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <tuple>

#include "common/base/cat.h"

namespace sluice::cli {
namespace {

constexpr double kWidth = 460, kHeight = 280;  // of one chart
constexpr double kLeft = 62, kRight = 18, kTop = 58, kBottom = 44;
constexpr double kHeading = 40;
constexpr int kColors = 6;

// Colours told apart by colour-blind readers, on light and on dark.
constexpr char kStyle[] = R"(<style>
.b{fill:#fff}svg{color:#1b1f24;font:12px system-ui,sans-serif}
text{fill:currentColor}.h{font-size:17px;font-weight:600}
.t{font-size:13px;font-weight:600}.s{fill-opacity:.75}
.g{stroke:currentColor;stroke-opacity:.14}.a{stroke:currentColor;stroke-opacity:.5}
.m{stroke:currentColor;stroke-opacity:.6;stroke-dasharray:4 3}
.l{fill:none;stroke-width:1.8;stroke-linejoin:round}
.c0{stroke:#0b62b8;color:#0b62b8}.c1{stroke:#b8510b;color:#b8510b}
.c2{stroke:#1a7f4b;color:#1a7f4b}.c3{stroke:#8a3ab0;color:#8a3ab0}
.c4{stroke:#a8324a;color:#a8324a}.c5{stroke:#5d6b0f;color:#5d6b0f}
.d{fill:currentColor;stroke:none}
@media (prefers-color-scheme:dark){.b{fill:#14181d}svg{color:#e6e9ed}
.c0{stroke:#6db3f2;color:#6db3f2}.c1{stroke:#f2a36d;color:#f2a36d}
.c2{stroke:#6fd49d;color:#6fd49d}.c3{stroke:#cf9bea;color:#cf9bea}
.c4{stroke:#f08ba0;color:#f08ba0}.c5{stroke:#c5d35f;color:#c5d35f}}
</style>
)";

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

std::string Coordinate(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

// The part of an axis that is shown.
struct Axis {
  double low = 0, high = 1;
  bool log = false;
  double Share(double value) const {
    if (log) return std::log(value / low) / std::log(high / low);
    return (value - low) / (high - low);
  }
};

bool IsShown(const std::pair<double, double>& point, const Chart& chart) {
  return std::isfinite(point.first) && std::isfinite(point.second) &&
         (!chart.log_y || point.second > 0);
}

// The axes that hold every point.
std::pair<Axis, Axis> MakeAxes(const Chart& chart) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Axis x{kInfinity, -kInfinity, false}, y{kInfinity, -kInfinity, chart.log_y};
  for (const ChartSeries& series : chart.series) {
    for (const auto& point : series.points) {
      if (!IsShown(point, chart)) continue;
      x.low = std::min(x.low, point.first);
      x.high = std::max(x.high, point.first);
      y.low = std::min(y.low, point.second);
      y.high = std::max(y.high, point.second);
    }
  }
  if (x.low > x.high) return {Axis{0, 1, false}, Axis{0, 1, false}};
  if (x.low == x.high) x.high = x.low + 1;
  if (chart.log_y) {
    y.low = std::pow(10, std::floor(std::log10(y.low)));
    y.high = std::pow(10, std::ceil(std::log10(y.high)));
    if (y.low == y.high) y.high *= 10;
    return {x, y};
  }
  if (chart.from_zero) y.low = std::min(y.low, 0.0);
  if (y.low == y.high) y.high = y.low + 1;
  const std::vector<double> ticks = NiceTicks(y.low, y.high, 5);
  y.low = std::min(y.low, ticks.front());
  y.high = std::max(y.high, ticks.back());
  return {x, y};
}

std::vector<double> Ticks(const Axis& axis) {
  if (!axis.log) return NiceTicks(axis.low, axis.high, 5);
  const int decades = static_cast<int>(
      std::lround(std::log10(axis.high) - std::log10(axis.low)));
  const int step = std::max(1, (decades + 5) / 6);
  std::vector<double> ticks;
  for (int i = 0; i <= decades; i += step) {
    ticks.push_back(axis.low * std::pow(10, i));
  }
  return ticks;
}

// One chart at its place in the document.
class ChartPainter {
 public:
  ChartPainter(const Chart& chart, double left, double top)
      : chart_(chart), left_(left), top_(top) {
    std::tie(x_, y_) = MakeAxes(chart);
  }

  std::string Paint() {
    Text(kLeft, 20, "t", "start", chart_.title);
    PaintAxes();
    PaintLegend();
    int color = 0;
    for (const ChartSeries& series : chart_.series) {
      PaintSeries(series, color++ % kColors);
    }
    for (const ChartMark& mark : chart_.marks) PaintMark(mark);
    return std::move(out_);
  }

 private:
  double X(double value) const {
    return kLeft + x_.Share(value) * (kWidth - kLeft - kRight);
  }
  double Y(double value) const {
    return kHeight - kBottom - y_.Share(value) * (kHeight - kTop - kBottom);
  }

  void Text(double x, double y, const char* style, const char* anchor,
            std::string_view text) {
    out_ += Cat("<text x=\"", Coordinate(left_ + x), "\" y=\"",
                Coordinate(top_ + y), "\" class=\"", style, "\" text-anchor=\"",
                anchor, "\">", EscapeXml(text), "</text>\n");
  }

  void Line(double x1, double y1, double x2, double y2, const char* style) {
    out_ +=
        Cat("<line x1=\"", Coordinate(left_ + x1), "\" y1=\"",
            Coordinate(top_ + y1), "\" x2=\"", Coordinate(left_ + x2),
            "\" y2=\"", Coordinate(top_ + y2), "\" class=\"", style, "\"/>\n");
  }

  void PaintAxes() {
    const double bottom = kHeight - kBottom, right = kWidth - kRight;
    for (const double tick : Ticks(y_)) {
      Line(kLeft, Y(tick), right, Y(tick), "g");
      Text(kLeft - 6, Y(tick) + 4, "s", "end", Number(tick));
    }
    for (const double tick : Ticks(x_)) {
      if (tick < x_.low || tick > x_.high) continue;
      Line(X(tick), bottom, X(tick), bottom + 4, "a");
      Text(X(tick), bottom + 17, "s", "middle", Number(tick));
    }
    Line(kLeft, bottom, right, bottom, "a");
    Text((kLeft + right) / 2, bottom + 34, "s", "middle", chart_.x_label);
    Text(kLeft, kTop - 8, "s", "start", chart_.y_label);
  }

  // Below the title; a single series needs none.
  void PaintLegend() {
    if (chart_.series.size() < 2) return;
    double x = kWidth - kRight;
    for (size_t i = chart_.series.size(); i-- > 0;) {
      const std::string& name = chart_.series[i].name;
      Text(x, kTop - 22, "s", "end", name);
      x -= 6.6 * static_cast<double>(name.size()) + 20;
      out_ += Cat("<g class=\"c", i % kColors, "\">");
      Line(x, kTop - 26, x + 14, kTop - 26, "l");
      out_ += "</g>\n";
      x -= 10;
    }
  }

  void PaintSeries(const ChartSeries& series, int color) {
    std::string path;
    double last_y = 0;
    for (const auto& point : series.points) {
      if (!IsShown(point, chart_)) continue;
      const double x = left_ + X(point.first), y = top_ + Y(point.second);
      if (series.shape == ChartSeries::Shape::kDots) {
        path += Cat("<circle cx=\"", Coordinate(x), "\" cy=\"", Coordinate(y),
                    "\" r=\"2\" class=\"d\"/>");
        continue;
      }
      if (!path.empty() && series.shape == ChartSeries::Shape::kSteps) {
        path += Cat("L", Coordinate(x), " ", Coordinate(last_y));
      }
      path += Cat(path.empty() ? "M" : "L", Coordinate(x), " ", Coordinate(y));
      last_y = y;
    }
    if (path.empty()) return;
    out_ += Cat("<g class=\"c", color, "\">");
    out_ += series.shape == ChartSeries::Shape::kDots
                ? path
                : Cat("<path class=\"l\" d=\"", path, "\"/>");
    out_ += "</g>\n";
  }

  void PaintMark(const ChartMark& mark) {
    if (!(mark.x >= x_.low && mark.x <= x_.high)) return;
    Line(X(mark.x), kTop, X(mark.x), kHeight - kBottom, "m");
    const bool flip = x_.Share(mark.x) > 0.75;
    const double row = 12.0 + 14.0 * marks_painted_++;
    Text(X(mark.x) + (flip ? -4 : 4), kTop + row, "s", flip ? "end" : "start",
         mark.label);
  }

  const Chart& chart_;
  const double left_, top_;
  Axis x_, y_;
  int marks_painted_ = 0;
  std::string out_;
};

}  // namespace

std::string DrawCharts(std::string_view heading,
                       const std::vector<Chart>& charts, int columns) {
  const auto count = static_cast<int>(charts.size());
  const int across = std::max(1, std::min(columns, count));
  const int down = (count + across - 1) / across;
  const double width = across * kWidth, height = kHeading + down * kHeight;
  std::string out = Cat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width,
      "\" height=\"", height, "\" viewBox=\"0 0 ", width, " ", height,
      "\" role=\"img\">\n<title>", EscapeXml(heading), "</title>\n", kStyle,
      "<rect width=\"100%\" height=\"100%\" class=\"b\"/>\n",
      "<text x=\"18\" y=\"27\" class=\"h\">", EscapeXml(heading), "</text>\n");
  for (int i = 0; i < count; ++i) {
    out += ChartPainter(charts[static_cast<size_t>(i)], (i % across) * kWidth,
                        kHeading + (i / across) * kHeight)
               .Paint();
  }
  return out + "</svg>\n";
}

std::vector<std::pair<double, double>> Histogram(
    const std::vector<double>& values, int bins, double limit) {
  std::vector<std::pair<double, double>> points;
  if (values.empty()) return points;
  double low = limit, high = 0;
  for (const double value : values) {
    low = std::min(low, std::min(value, limit));
    high = std::max(high, std::min(value, limit));
  }
  if (!(high > low)) high = low + std::max(std::fabs(low) * 0.01, 1e-9);
  std::vector<double> shares(static_cast<size_t>(bins), 0.0);
  const double scale = bins / (high - low);
  for (const double value : values) {
    const double at = (std::min(value, limit) - low) * scale;
    shares[static_cast<size_t>(std::clamp(at, 0.0, bins - 1.0))] +=
        100.0 / static_cast<double>(values.size());
  }
  points.emplace_back(low, 0);
  for (size_t i = 0; i < shares.size(); ++i) {
    points.emplace_back(low + static_cast<double>(i) / scale, shares[i]);
  }
  points.emplace_back(high, shares.back());
  points.emplace_back(high, 0);
  return points;
}

std::string EscapeXml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (byte >= 32) {
      out += c;
    }
  }
  return out;
}

std::vector<double> NiceTicks(double low, double high, int count) {
  const double rough = (high - low) / std::max(count, 1);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough * 0.999) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  const double first = std::floor(low / step);
  const double last = std::ceil(high / step - 1e-9);
  for (double i = first; i <= last; ++i) ticks.push_back(i * step);
  return ticks;
}

}  // namespace sluice::cli
