#ifndef SLUICE_KERNELS_BLOCK_LINES_H_
#define SLUICE_KERNELS_BLOCK_LINES_H_

#include <cstdint>

namespace sluice::kernels {

// Elements and their weights.
struct Elements {
  const float* x;
  const float* weight;
  int count;

  Elements Part(int at, int length) const {
    return {x + at, weight + at, length};
  }
};

// The integers that a format's codes stand for, rising.
struct Levels {
  // Of a table; a run of integers has none of these.
  float value[16] = {};
  uint8_t code[16] = {};
  float middle[16] = {};    // between a level and the next one
  uint8_t first[256] = {};  // of integers from -128: levels wholly below them
  int count = 0;            // of the table; 0: integers
  float lowest = 0;
  float highest = 0;

  static Levels Integers(int lowest, int highest);
  static Levels Table(const int8_t (&values)[16]);

  // The level nearest to `wanted`, and its code.
  float Nearest(float wanted) const;
  uint8_t CodeOf(float wanted) const;
  // The distance from an end to the level beside it.
  float StepAt(float end) const;
};

// The integer nearest to `value`, even ones of two as near; |value| < 2^22.
float RoundToInteger(float value);

// A sub-block is scale * level + least.
struct Line {
  float scale = 0;
  float least = 0;
};

// 1 / scale, and 0 where that is no number of F32.
float InverseOf(float scale);

// The weighted squared error of the elements on a line, each on its nearest
// level.
float ErrorOf(const Levels& levels, const Elements& e, Line line);

// The sums of least squares over the levels that a line gives the elements.
struct Sums {
  float w = 0, x = 0, l = 0, ll = 0, xl = 0;  // each times the weight

  Sums(const Levels& levels, const Elements& e, Line line);
  // The line of least squares through 0.
  Line Scale() const;
  // The line of least squares; `is_below`: of those whose `least` is 0 or less.
  Line ScaleAndLeast(bool is_below) const;
};

// The better one of two lines.
class BestLine {
 public:
  BestLine(const Levels& levels, const Elements& e) : levels_(levels), e_(e) {
    error_ = ErrorOf(levels, e, line_);
  }
  bool Try(Line line) {
    const float error = ErrorOf(levels_, e_, line);
    if (!(error < error_)) return false;
    line_ = line;
    error_ = error;
    return true;
  }
  Line line() const { return line_; }

 private:
  const Levels& levels_;
  const Elements e_;
  Line line_;
  float error_;
};

// The line through 0 with a small error, found by some guesses that put the
// element of the largest magnitude near either end, and least squares.
Line FitScale(const Levels& levels, const Elements& e);
// The same with a least value; `is_below`: 0 or less.
Line FitScaleAndLeast(const Levels& levels, const Elements& e, bool is_below);

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_BLOCK_LINES_H_
