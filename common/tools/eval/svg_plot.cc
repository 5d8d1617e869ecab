#include "common/tools/eval/svg_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

#include "common/base/status.h"

namespace sluice::eval {
namespace {

constexpr double kWidth = 720, kHeight = 432;
constexpr double kAreaLeft = 84, kAreaRight = 24, kAreaTop = 58,
                 kAreaBottom = 60;
constexpr double kLegendRow = 18, kLetter = 6.6;  // of 12-point text
// Colours that are told apart without red and green.
constexpr std::array<const char*, 7> kColours = {
    "#0072b2", "#d55e00", "#009e73", "#cc79a7",
    "#e69f00", "#56b4e9", "#000000"};

std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += ' ';  // XML has no other control characters.
    } else {
      out += c;
    }
  }
  return out;
}

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f", value);
  return text;
}

std::string MarkText(double value) {
  char text[32];
  const double size = std::fabs(value);
  if (value == 0 || (size >= 1e-3 && size < 1e6)) {
    std::snprintf(text, sizeof(text), "%.10g", value);
  } else {
    std::snprintf(text, sizeof(text), "%.0e", value);
  }
  return text;
}

bool IsShown(double value, const PlotAxis& axis) {
  return std::isfinite(value) && (!axis.logarithmic || value > 0);
}

// One axis: from values to units of the picture.
struct Scale {
  double low = 0, high = 1;   // of values
  double begin = 0, end = 1;  // in the picture
  bool logarithmic = false;

  double At(double value) const {
    const double share = logarithmic
                             ? std::log(value / low) / std::log(high / low)
                             : (value - low) / (high - low);
    return begin + share * (end - begin);
  }
};

// Widens [low, high], the range of the values, to that of the axis.
void Widen(Scale& scale) {
  if (scale.logarithmic) {
    if (scale.high / scale.low < 1.001) {
      scale.low /= 2;
      scale.high *= 2;
    }
    const double margin = std::pow(scale.high / scale.low, 0.06);
    scale.low /= margin;
    scale.high *= margin;
    return;
  }
  if (scale.high - scale.low < 1e-12 * std::fabs(scale.high) ||
      scale.high == scale.low) {
    scale.high += scale.high == 0 ? 1 : std::fabs(scale.high) / 2;
    scale.low -= scale.low == 0 ? 0 : std::fabs(scale.low) / 2;
  }
  const double margin = 0.06 * (scale.high - scale.low);
  // Sizes and errors begin at 0.
  scale.low = scale.low >= 0 ? 0 : scale.low - margin;
  scale.high += margin;
}

std::string Text(double x, double y, const std::string& anchor,
                 const std::string& text, const std::string& more = "") {
  return Cat("<text x=\"", Number(x), "\" y=\"", Number(y), "\" text-anchor=\"",
             anchor, "\"", more, ">", Escaped(text), "</text>\n");
}

std::string Line(double x1, double y1, double x2, double y2,
                 const char* colour) {
  return Cat("<line x1=\"", Number(x1), "\" y1=\"", Number(y1), "\" x2=\"",
             Number(x2), "\" y2=\"", Number(y2), "\" stroke=\"", colour,
             "\"/>\n");
}

// Draws marks, grid and labels.
std::string Axes(const Plot& plot, const Scale& x, const Scale& y) {
  std::string out;
  for (const double mark : AxisMarks(y.low, y.high, y.logarithmic)) {
    out += Line(x.begin, y.At(mark), x.end, y.At(mark), "#e4e4e4");
    out += Text(x.begin - 8, y.At(mark) + 4, "end", MarkText(mark));
  }
  for (const double mark : AxisMarks(x.low, x.high, x.logarithmic)) {
    out += Line(x.At(mark), y.begin, x.At(mark), y.end, "#e4e4e4");
    out += Text(x.At(mark), y.begin + 18, "middle", MarkText(mark));
  }
  out += Line(x.begin, y.begin, x.end, y.begin, "#444");
  out += Line(x.begin, y.begin, x.begin, y.end, "#444");
  const double middle_x = (x.begin + x.end) / 2;
  const double middle_y = (y.begin + y.end) / 2;
  out += Text(middle_x, kHeight - 16, "middle", plot.x.label);
  out += Text(18, middle_y, "middle", plot.y.label,
              Cat(" transform=\"rotate(-90 18 ", Number(middle_y), ")\""));
  return out;
}

// The place of a label.
struct Box {
  double x1 = 0, x2 = 0, y1 = 0, y2 = 0;

  bool Meets(const Box& other) const {
    return x1 < other.x2 && other.x1 < x2 && y1 < other.y2 && other.y1 < y2;
  }
};

// Draws a label at one of four places beside the point: the first that lies in
// the picture and meets none of `placed`, which gets it; else the last.
std::string Label(double x, double y, const std::string& label,
                  std::vector<Box>& placed) {
  const double width = double(label.size()) * kLetter;
  bool right = true, above = true;
  Box box;
  for (const int place : {0, 1, 2, 3}) {
    right = place < 2;
    above = place % 2 == 0;
    const double left = right ? x + 8 : x - 8 - width;
    const double base = above ? y - 5 : y + 14;
    box = {left, left + width, base - 11, base + 3};
    const bool fits = left >= 0 && left + width <= kWidth;
    if (fits && std::none_of(placed.begin(), placed.end(),
                             [&](const Box& old) { return box.Meets(old); })) {
      break;
    }
  }
  placed.push_back(box);
  return Text(x + (right ? 8 : -8), above ? y - 5 : y + 14,
              right ? "start" : "end", label);
}

// Draws dots, and above them their labels.
std::string Dots(const Plot& plot, const PlotSeries& series, const Scale& x,
                 const Scale& y, const char* colour) {
  std::string dots, labels;
  std::vector<Box> placed;
  for (const PlotPoint& point : series.points) {
    if (!IsShown(point.x, plot.x) || !IsShown(point.y, plot.y)) continue;
    const double at_x = x.At(point.x), at_y = y.At(point.y);
    dots += Cat("<circle cx=\"", Number(at_x), "\" cy=\"", Number(at_y),
                "\" r=\"4\" fill=\"", colour, "\"/>\n");
    if (!point.label.empty()) labels += Label(at_x, at_y, point.label, placed);
  }
  return dots + labels;
}

std::string Series(const Plot& plot, const PlotSeries& series, const Scale& x,
                   const Scale& y, const char* colour) {
  if (!series.line) return Dots(plot, series, x, y, colour);
  std::string points;
  for (const PlotPoint& point : series.points) {
    if (!IsShown(point.x, plot.x) || !IsShown(point.y, plot.y)) continue;
    points += Cat(points.empty() ? "" : " ", Number(x.At(point.x)), ",",
                  Number(y.At(point.y)));
  }
  if (points.empty()) return "";
  return Cat("<polyline fill=\"none\" stroke=\"", colour,
             "\" stroke-width=\"1.8\" points=\"", points, "\"/>\n");
}

// Lines of the legend, above the plot's area from the right.
std::string Legend(const Plot& plot) {
  std::string out;
  double x = kAreaLeft;
  double y = kAreaTop - 10;
  for (size_t i = 0; i < plot.series.size(); ++i) {
    const std::string& name = plot.series[i].name;
    if (name.empty()) continue;
    const double width = 26 + double(name.size()) * kLetter + 14;
    if (x + width > kWidth - kAreaRight && x > kAreaLeft) {
      x = kAreaLeft;
      y += kLegendRow;
    }
    out += Cat("<rect x=\"", Number(x), "\" y=\"", Number(y - 8),
               "\" width=\"18\" height=\"6\" fill=\"",
               kColours[i % kColours.size()], "\"/>\n");
    out += Text(x + 24, y - 1, "start", name);
    x += width;
  }
  return out;
}

// Returns the rows that Legend takes.
int LegendRows(const Plot& plot) {
  int rows = 0;
  double x = kWidth;
  for (const PlotSeries& series : plot.series) {
    if (series.name.empty()) continue;
    const double width = 26 + double(series.name.size()) * kLetter + 14;
    if (x + width > kWidth - kAreaRight) {
      ++rows;
      x = kAreaLeft;
    }
    x += width;
  }
  return rows;
}

}  // namespace

std::vector<double> AxisMarks(double low, double high, bool logarithmic) {
  std::vector<double> marks;
  if (logarithmic) {
    const auto first = static_cast<int>(std::floor(std::log10(low)));
    const auto last = static_cast<int>(std::ceil(std::log10(high)));
    const int every = std::max(1, (last - first) / 7);
    const bool between = last - first <= 3;
    for (int power = first; power <= last; ++power) {
      if (power % every != 0) continue;
      for (const double digit : {1.0, 2.0, 5.0}) {
        const double mark = digit * std::pow(10, power);
        if (digit > 1 && !between) break;
        if (mark >= low && mark <= high) marks.push_back(mark);
      }
    }
    return marks;
  }
  const double rough = (high - low) / 6;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double digit : {1.0, 2.0, 5.0}) {
    if (digit * power >= rough) {
      step = digit * power;
      break;
    }
  }
  for (double at = std::ceil(low / step); at * step <= high * (1 + 1e-12);
       ++at) {
    marks.push_back(at * step);
  }
  return marks;
}

std::string PlotSvg(const Plot& plot) {
  const double infinity = std::numeric_limits<double>::infinity();
  Scale x{infinity, -infinity, kAreaLeft, kWidth - kAreaRight,
          plot.x.logarithmic};
  const double legend = kLegendRow * LegendRows(plot);
  Scale y{infinity, -infinity, kHeight - kAreaBottom,
          kAreaTop + std::max(0.0, legend - kLegendRow), plot.y.logarithmic};
  for (const PlotSeries& series : plot.series) {
    for (const PlotPoint& point : series.points) {
      if (!IsShown(point.x, plot.x) || !IsShown(point.y, plot.y)) continue;
      x.low = std::min(x.low, point.x);
      x.high = std::max(x.high, point.x);
      y.low = std::min(y.low, point.y);
      y.high = std::max(y.high, point.y);
    }
  }
  std::string out =
      Cat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", kWidth,
          " ", kHeight, "\" width=\"", kWidth, "\" height=\"", kHeight,
          "\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n",
          "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
          Text(kWidth / 2, 20, "middle", plot.title, " font-size=\"15\""));
  if (x.low > x.high) {
    return out + Text(kWidth / 2, kHeight / 2, "middle", "no values to show") +
           "</svg>\n";
  }
  Widen(x);
  Widen(y);
  out += Axes(plot, x, y) + Legend(plot);
  for (size_t i = 0; i < plot.series.size(); ++i) {
    out += Series(plot, plot.series[i], x, y, kColours[i % kColours.size()]);
  }
  return out + "</svg>\n";
}

}  // namespace sluice::eval
