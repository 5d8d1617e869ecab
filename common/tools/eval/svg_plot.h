#ifndef SLUICE_COMMON_TOOLS_EVAL_SVG_PLOT_H_
#define SLUICE_COMMON_TOOLS_EVAL_SVG_PLOT_H_

#include <string>
#include <utility>
#include <vector>

namespace sluice::eval {

struct PlotPoint {
  double x = 0, y = 0;
  std::string label;  // beside the point; empty: none
};

struct PlotSeries {
  std::string name;  // in the legend; empty: it has no line there
  std::vector<PlotPoint> points;
  bool line = true;  // joins the points in their order; else each is a dot
};

struct PlotAxis {
  std::string label;
  bool logarithmic = false;  // values at or below 0 are left out
};

// A chart of one pair of axes.
struct Plot {
  std::string title;
  PlotAxis x, y;
  std::vector<PlotSeries> series;
};

// Returns the positions of an axis' marks over [low, high], low < high: about
// six round numbers, or powers of ten (with 2 and 5 between where these are
// few).
std::vector<double> AxisMarks(double low, double high, bool logarithmic);

// Returns a picture of its own, 720 by 432 units: white behind axes, lines,
// dots and a legend. Values that are no number are left out; without any value
// the picture says so.
std::string PlotSvg(const Plot& plot);

}  // namespace sluice::eval

#endif  // SLUICE_COMMON_TOOLS_EVAL_SVG_PLOT_H_
