#include "common/weights/encode_matrix.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>

#include "common/base/check.h"
#include "common/weights/awq_order.h"
#include "kernels/block_store.h"

namespace sluice::weights {
namespace {

constexpr int64_t kPerWord = 8;  // codes of four bits in a word
constexpr int kMiddle = 8;       // GPTQ's zero point
constexpr float kLargestE4m3 = 448;
constexpr float kLargestF16 = 65504;

int64_t PiecesOf(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Returns the smallest F16 that is not below `value`, a positive number of at
// most kLargestF16.
uint16_t F16From(float value) {
  const uint16_t near = kernels::F16Of(value);
  return F16ToF32(near) < value ? static_cast<uint16_t>(near + 1) : near;
}

// The squares of one task's elements and of their errors.
struct Squares {
  double elements = 0;
  double errors = 0;
  void Add(float element, float rounded) {
    const double a = element;
    elements += a * a;
    errors += (a - rounded) * (a - rounded);
  }
};

// What the tensors of a matrix are made of, and where they go.
struct Matrix {
  int64_t rows;
  int64_t cols;
  const float* elements;
  float At(int64_t row, int64_t col) const {
    return elements[row * cols + col];
  }
};

// Rounds the blocks of one row of blocks.
Squares EncodeFp8(const Matrix& from, int64_t block_row, uint8_t* codes,
                  float* scales) {
  Squares squares;
  const int64_t begin = block_row * kFp8Block;
  const int64_t end = std::min(begin + kFp8Block, from.rows);
  for (int64_t left = 0; left < from.cols; left += kFp8Block) {
    const int64_t right = std::min(left + kFp8Block, from.cols);
    float largest = 0;
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t c = left; c < right; ++c) {
        largest = std::max(largest, std::fabs(from.At(r, c)));
      }
    }
    const float scale =
        largest > 0 ? std::max(largest / kLargestE4m3, FLT_MIN) : 1.0f;
    *scales++ = scale;
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t c = left; c < right; ++c) {
        const uint8_t code = E4m3Of(from.At(r, c) / scale);
        codes[r * from.cols + c] = code;
        squares.Add(from.At(r, c), E4m3ToF32(code) * scale);
      }
    }
  }
  return squares;
}

// A group of one row.
struct Group {
  uint16_t scale = 0;  // F16
  int zero = kMiddle;
};

// Returns the group's scale and zero point.
Group GroupOf(bool has_zero, const float* elements, int64_t count) {
  float low = 0;
  float high = 0;
  for (int64_t i = 0; i < count; ++i) {
    low = std::min(low, elements[i]);
    high = std::max(high, elements[i]);
  }
  // Half a step beyond the last code is still within half a step of it.
  const float step =
      has_zero ? (high - low) / 15.0f : std::max(high, -low) / 7.5f;
  Group group;
  group.scale = step > 0 ? F16From(step) : kernels::F16Of(1.0f);
  if (has_zero) {
    group.zero = std::clamp(
        static_cast<int>(std::nearbyint(-low / F16ToF32(group.scale))), 0, 15);
  }
  return group;
}

// The tensors of four-bit words.
struct Words {
  uint32_t* codes;
  uint32_t* zeros;
  uint16_t* scales;
};

// Rounds eight rows: whole words of zero points, and of AWQ's codes.
Squares EncodeWords(const Matrix& from, const MatrixCoding& coding,
                    int64_t first, const Words& to) {
  Squares squares;
  const bool is_awq = coding.coding == Coding::kAwq;
  const int64_t words = from.rows / kPerWord;
  for (int64_t row = first; row < first + kPerWord; ++row) {
    const int place =
        is_awq ? PlaceInAwqWord(row) : static_cast<int>(row % kPerWord);
    for (int64_t begin = 0; begin < from.cols; begin += coding.group) {
      const float* elements = from.elements + row * from.cols + begin;
      const Group group = GroupOf(is_awq, elements, coding.group);
      const float scale = F16ToF32(group.scale);
      const int64_t g = begin / coding.group;
      to.scales[g * from.rows + row] = group.scale;
      // GPTQ's first version stores zero points less 1.
      const int stored_zero = is_awq ? group.zero : group.zero - 1;
      to.zeros[g * words + row / kPerWord] |= static_cast<uint32_t>(stored_zero)
                                              << (4 * place);
      for (int64_t i = 0; i < coding.group; ++i) {
        const auto nearest =
            static_cast<int>(std::nearbyint(elements[i] / scale));
        const int code = std::clamp(nearest + group.zero, 0, 15);
        squares.Add(elements[i], static_cast<float>(code - group.zero) * scale);
        const int64_t col = begin + i;
        const auto bits = static_cast<uint32_t>(code);
        if (is_awq) {
          to.codes[col * words + row / kPerWord] |= bits << (4 * place);
        } else {
          to.codes[col / kPerWord * from.rows + row] |=
              bits << (4 * (col % kPerWord));
        }
      }
    }
  }
  return squares;
}

// INVALID_ARGUMENT for an element that no scale holds.
Status CheckElements(const Matrix& from, const MatrixCoding& coding) {
  // On either side of zero.
  const float limit = coding.coding == Coding::kFp8 ? FLT_MAX : 7 * kLargestF16;
  for (int64_t i = 0; i < from.rows * from.cols; ++i) {
    if (std::fabs(from.elements[i]) <= limit) continue;
    return InvalidArgument("element ", i % from.cols, " of row ", i / from.cols,
                           " is ", from.elements[i], ", ",
                           ToString(coding.coding), " has numbers up to ",
                           limit);
  }
  return OkStatus();
}

}  // namespace

std::string_view ToString(Coding coding) {
  constexpr std::string_view kNames[] = {"none", "FP8", "GPTQ", "AWQ"};
  return kNames[static_cast<size_t>(coding)];
}

uint8_t E4m3Of(float value) {
  const auto sign = static_cast<uint8_t>(std::signbit(value) ? 0x80 : 0);
  const float size = std::min(std::fabs(value), kLargestE4m3);
  const int exponent = std::max(std::ilogb(std::max(size, 0x1p-9f)), -6);
  // Of 2^(exponent - 3): 8 to 16, of subnormals fewer.
  const auto steps =
      static_cast<int>(std::nearbyint(std::ldexp(size, 3 - exponent)));
  const int code = (exponent + 6) * 8 + steps;
  return static_cast<uint8_t>(sign | code);
}

bool CanEncode(const MatrixCoding& coding, int64_t rows, int64_t cols) {
  switch (coding.coding) {
    case Coding::kNone:
      return false;
    case Coding::kFp8:
      // A row's scales are told from those of a block by the row's length.
      return cols > 0 && (rows > 1 || cols % kFp8Block == 0);
    case Coding::kGptq:
    case Coding::kAwq:
      break;
  }
  return rows > 0 && cols > 0 && rows % kPerWord == 0 &&
         cols % coding.group == 0;
}

std::vector<TensorInfo> TensorsOf(const TensorInfo& matrix,
                                  const MatrixCoding& coding) {
  const int64_t rows = matrix.rows();
  const int64_t cols = matrix.cols();
  if (coding.coding == Coding::kFp8) {
    return {{matrix.name, DType::kF8E4M3, {rows, cols}},
            {matrix.name + "_scale_inv",
             DType::kF32,
             {PiecesOf(rows, kFp8Block), PiecesOf(cols, kFp8Block)}}};
  }
  SLUICE_CHECK(coding.coding != Coding::kNone);
  const bool is_awq = coding.coding == Coding::kAwq;
  constexpr std::string_view kWeight = "weight";
  const std::string stem =
      matrix.name.substr(0, matrix.name.size() - kWeight.size());
  const int64_t groups = cols / coding.group;
  std::vector<int64_t> words = {cols, rows / kPerWord};
  if (!is_awq) words = {cols / kPerWord, rows};
  std::vector<TensorInfo> tensors = {
      {stem + "qweight", DType::kI32, std::move(words)},
      {stem + "qzeros", DType::kI32, {groups, rows / kPerWord}},
      {stem + "scales", DType::kF16, {groups, rows}}};
  if (!is_awq) tensors.push_back({stem + "g_idx", DType::kI32, {cols}});
  return tensors;
}

StatusOr<QuantizedElements> EncodeMatrix(const MatrixCoding& coding,
                                         int64_t rows, int64_t cols,
                                         const float* elements,
                                         kernels::Executor* executor) {
  SLUICE_CHECK(CanEncode(coding, rows, cols));
  const Matrix from = {rows, cols, elements};
  SLUICE_RETURN_IF_ERROR(CheckElements(from, coding));
  const TensorInfo named = {".weight", DType::kF32, {rows, cols}};
  std::vector<size_t> begins = {0};
  for (const TensorInfo& tensor : TensorsOf(named, coding)) {
    begins.push_back(begins.back() +
                     static_cast<size_t>(tensor.stored_bytes()));
  }
  QuantizedElements made;
  made.bytes = Buffer(begins.back());
  auto* const bytes = made.bytes.as<uint8_t>();
  std::memset(bytes, 0, made.bytes.size());
  const bool is_fp8 = coding.coding == Coding::kFp8;
  const int64_t of_task = is_fp8 ? kFp8Block : kPerWord;
  const int64_t tasks = PiecesOf(rows, of_task);
  std::vector<Squares> squares(static_cast<size_t>(tasks));
  // FP8's codes may end at no multiple of a scale's bytes.
  std::vector<float> scales(
      is_fp8 ? static_cast<size_t>(tasks * PiecesOf(cols, kFp8Block)) : 0);
  const auto encode = [&](int64_t i) {
    if (is_fp8) {
      return EncodeFp8(from, i, bytes,
                       scales.data() + i * PiecesOf(cols, kFp8Block));
    }
    const Words words = {reinterpret_cast<uint32_t*>(bytes),
                         reinterpret_cast<uint32_t*>(bytes + begins[1]),
                         reinterpret_cast<uint16_t*>(bytes + begins[2])};
    return EncodeWords(from, coding, i * kPerWord, words);
  };
  kernels::ParallelFor({executor}, static_cast<int>(tasks), [&](int i) {
    squares[static_cast<size_t>(i)] = encode(i);
  });
  if (is_fp8) {
    std::memcpy(bytes + begins[1], scales.data(),
                scales.size() * sizeof(float));
  }
  if (coding.coding == Coding::kGptq) {
    auto* groups = reinterpret_cast<int32_t*>(bytes + begins[3]);
    for (int64_t c = 0; c < cols; ++c) {
      groups[c] = static_cast<int32_t>(c / coding.group);
    }
  }
  Squares sum;
  for (const Squares& part : squares) {
    sum.elements += part.elements;
    sum.errors += part.errors;
  }
  if (sum.elements > 0) {
    made.relative_error = std::sqrt(sum.errors / sum.elements);
  }
  return made;
}

}  // namespace sluice::weights
