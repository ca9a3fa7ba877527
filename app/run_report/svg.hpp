// Plots with axes for a report, as SVG within an HTML page.
#pragma once

#include <string>
#include <vector>

namespace paceline::app {

/// The text, with escapes for characters that HTML and SVG would read as markup.
[[nodiscard]] std::string escaped(const std::string& text);

/// An axis from `least` to `most`, with its ticks.
struct Axis {
  double least = 0;
  double most = 1;
  bool logarithmic = false;  ///< needs least > 0
  std::string label;

  /// The place of a value on the axis, 0 to 1.
  [[nodiscard]] double place(double value) const;
  /// About five round values on the axis. If the axis is logarithmic: powers of ten and, if `most`
  /// is less than 1000 times `least`, also 2 and 5 times each power.
  [[nodiscard]] std::vector<double> ticks() const;
};

/// A plot as wide as its page. Later drawings cover earlier ones. Coordinates are in units of the
/// axes.
class Plot {
 public:
  /// `height`: height of the plotting area, in SVG units. The whole plot is 800 SVG units wide.
  Plot(Axis x, Axis y, double height);

  void line(const std::vector<std::pair<double, double>>& points, const std::string& color);
  /// A filled rectangle between two opposite corners.
  void box(double x0, double y0, double x1, double y1, const std::string& color);
  /// Draws a vertical line with a word at its top, or lower if the word would overlap the word of
  /// the previous mark. Marks must be added from left to right.
  void mark(double x, const std::string& word);
  /// Writes a word left of the y axis at the value `y`. The y axis then has no ticks.
  void name(double y, const std::string& word);
  /// Adds a color and its meaning to the legend above the plot, to the right of earlier entries.
  void legend(const std::string& color, const std::string& word);
  [[nodiscard]] std::string text() const;

 private:
  [[nodiscard]] double x(double value) const;
  [[nodiscard]] double y(double value) const;

  Axis x_axis_;
  Axis y_axis_;
  double height_;
  double legend_end_ = 0;
  double marked_ = 0;  ///< right end of the latest mark's word, in SVG units
  int row_ = 0;        ///< row of the latest mark's word, counted from the top
  bool names_ = false;
  std::string body_;
  std::string legend_;
};

}  // namespace paceline::app
