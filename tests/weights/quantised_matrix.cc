#include "tests/weights/quantised_matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/base/cat.h"
#include "common/base/check.h"
#include "tests/weights/model_files.h"

namespace sluice::testing {
namespace {

// The place within a word of eight of AWQ's rows.
constexpr int kPlaceOfRow[] = {0, 4, 1, 5, 2, 6, 3, 7};

// The nearest value above 0 with 8 significant bits.
float ShortScale(float value) {
  int exponent = 0;
  const float mantissa = std::frexp(std::max(value, 1e-3f), &exponent);
  return std::ldexp(std::round(mantissa * 256) / 256, exponent);
}

// A grid of codes by (line, place in line), packed first-lowest in words.
template <typename CodeAt>
std::string Words(int64_t lines, int64_t length, int bits, CodeAt code_at) {
  const int64_t per_word = 32 / bits;
  const int64_t words = (length + per_word - 1) / per_word;
  std::vector<uint32_t> packed(static_cast<size_t>(lines * words));
  for (int64_t line = 0; line < lines; ++line) {
    for (int64_t i = 0; i < length; ++i) {
      packed[static_cast<size_t>(line * words + i / per_word)] |=
          static_cast<uint32_t>(code_at(line, i)) << (i % per_word * bits);
    }
  }
  return BytesOf(packed);
}

std::string Halves(const std::vector<float>& values, bool bf16) {
  std::vector<uint16_t> halves;
  for (const float value : values) {
    halves.push_back(
        bf16 ? static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16)
             : F16Of(value));
  }
  return BytesOf(halves);
}

// [rows, groups] as [groups, rows].
template <typename T>
std::vector<T> Transposed(const QuantisedMatrix& m, const std::vector<T>& of) {
  std::vector<T> to;
  for (int64_t g = 0; g < m.groups(); ++g) {
    for (int64_t r = 0; r < m.rows; ++r) {
      to.push_back(of[static_cast<size_t>(r * m.groups() + g)]);
    }
  }
  return to;
}

int CodeAt(const QuantisedMatrix& m, int64_t row, int64_t col) {
  return m.codes[static_cast<size_t>(row * m.cols + col)];
}

void AddGptq(bool first_version, const std::string& stem,
             const QuantisedMatrix& m, SafetensorsBuilder& to) {
  const int64_t per_word = 32 / m.bits;
  // A word's codes are consecutive columns of one row.
  std::vector<uint32_t> packed(static_cast<size_t>(m.cols / per_word * m.rows));
  for (int64_t c = 0; c < m.cols; ++c) {
    for (int64_t r = 0; r < m.rows; ++r) {
      packed[static_cast<size_t>(c / per_word * m.rows + r)] |=
          static_cast<uint32_t>(CodeAt(m, r, c)) << (c % per_word * m.bits);
    }
  }
  const std::vector<int> zeros = Transposed(m, m.zeros);
  const int mask = (1 << m.bits) - 1;
  std::vector<int32_t> groups;
  for (int64_t c = 0; c < m.cols; ++c) {
    groups.push_back(static_cast<int32_t>(c / m.group));
  }
  to.Tensor(stem + ".qweight", "I32", {m.cols / per_word, m.rows},
            BytesOf(packed))
      .Tensor(stem + ".qzeros", "I32",
              {m.groups(), (m.rows + per_word - 1) / per_word},
              Words(m.groups(), m.rows, m.bits,
                    [&](int64_t g, int64_t r) {
                      const int zero =
                          zeros[static_cast<size_t>(g * m.rows + r)];
                      return first_version ? (zero - 1) & mask : zero;
                    }))
      .Tensor(stem + ".scales", "F16", {m.groups(), m.rows},
              Halves(Transposed(m, m.scales), /*bf16=*/false))
      .Tensor(stem + ".g_idx", "I32", {m.cols}, BytesOf(groups));
}

void AddAwq(const std::string& stem, const QuantisedMatrix& m,
            SafetensorsBuilder& to) {
  SLUICE_CHECK(m.rows % 8 == 0 && m.bits == 4);
  const std::vector<int> zeros = Transposed(m, m.zeros);
  // The row whose code is at place i of the line.
  const auto row_at = [](int64_t i) {
    return i / 8 * 8 +
           (std::find(kPlaceOfRow, kPlaceOfRow + 8, i % 8) - kPlaceOfRow);
  };
  to.Tensor(
        stem + ".qweight", "I32", {m.cols, m.rows / 8},
        Words(m.cols, m.rows, 4,
              [&](int64_t c, int64_t i) { return CodeAt(m, row_at(i), c); }))
      .Tensor(stem + ".qzeros", "I32", {m.groups(), m.rows / 8},
              Words(m.groups(), m.rows, 4,
                    [&](int64_t g, int64_t i) {
                      return zeros[static_cast<size_t>(g * m.rows + row_at(i))];
                    }))
      .Tensor(stem + ".scales", "F16", {m.groups(), m.rows},
              Halves(Transposed(m, m.scales), /*bf16=*/false));
}

void AddPacked(const std::string& stem, const QuantisedMatrix& m,
               SafetensorsBuilder& to) {
  const int64_t per_word = 32 / m.bits;
  to.Tensor(stem + ".weight_packed", "I32",
            {m.rows, (m.cols + per_word - 1) / per_word},
            Words(m.rows, m.cols, m.bits,
                  [&](int64_t r, int64_t c) { return CodeAt(m, r, c); }))
      .Tensor(stem + ".weight_scale", "BF16", {m.rows, m.groups()},
              Halves(m.scales, /*bf16=*/true))
      .Tensor(stem + ".weight_shape", "I64", {2},
              BytesOf(std::vector<int64_t>{m.rows, m.cols}));
  if (m.symmetric) return;
  // Words of rows: word w of group g has rows [w n, (w + 1) n).
  std::vector<uint32_t> zeros(
      static_cast<size_t>((m.rows + per_word - 1) / per_word * m.groups()));
  for (int64_t r = 0; r < m.rows; ++r) {
    for (int64_t g = 0; g < m.groups(); ++g) {
      zeros[static_cast<size_t>(r / per_word * m.groups() + g)] |=
          static_cast<uint32_t>(
              m.zeros[static_cast<size_t>(r * m.groups() + g)])
          << (r % per_word * m.bits);
    }
  }
  to.Tensor(stem + ".weight_zero_point", "I32",
            {(m.rows + per_word - 1) / per_word, m.groups()}, BytesOf(zeros));
}

void AddBytes(CheckpointKind kind, const std::string& stem,
              const QuantisedMatrix& m, SafetensorsBuilder& to) {
  std::vector<uint8_t> codes;
  for (const int code : m.codes) {
    codes.push_back(static_cast<uint8_t>(
        kind == CheckpointKind::kInt8 ? code - 128 : code));
  }
  const bool is_int = kind == CheckpointKind::kInt8;
  to.Tensor(stem + ".weight", is_int ? "I8" : "F8_E4M3", {m.rows, m.cols},
            BytesOf(codes));
  if (kind != CheckpointKind::kF8Blocks) {
    to.Tensor(stem + ".weight_scale", "BF16", {m.rows, m.groups()},
              Halves(m.scales, /*bf16=*/true));
    return;
  }
  const int64_t down = (m.rows + 127) / 128, across = (m.cols + 127) / 128;
  std::vector<float> scales;
  for (int64_t i = 0; i < down; ++i) {
    for (int64_t j = 0; j < across; ++j) {
      scales.push_back(m.scales[static_cast<size_t>(i * 128 * m.groups() +
                                                    j * 128 / m.group)]);
    }
  }
  to.Tensor(stem + ".weight_scale_inv", "F32", {down, across}, BytesOf(scales));
}

}  // namespace

SafetensorsBuilder& SafetensorsBuilder::Tensor(
    std::string_view name, std::string_view dtype,
    const std::vector<int64_t>& shape, std::string_view bytes) {
  std::string sizes;
  for (const int64_t size : shape) {
    sizes += Cat(sizes.empty() ? "" : ",", size);
  }
  header_ += Cat(header_.empty() ? "" : ",", "\"", name, "\":{\"dtype\":\"",
                 dtype, "\",\"shape\":[", sizes, "],\"data_offsets\":[",
                 data_.size(), ",", data_.size() + bytes.size(), "]}");
  data_ += bytes;
  return *this;
}

std::string SafetensorsBuilder::Build() const {
  return Safetensors(Cat("{", header_, "}"), data_);
}

float QuantisedMatrix::At(int64_t row, int64_t col) const {
  const auto at = static_cast<size_t>(row * groups() + col / group);
  const int code = codes[static_cast<size_t>(row * cols + col)];
  return static_cast<float>(code - zeros[at]) * scales[at];
}

QuantisedMatrix Quantised(std::span<const float> values, int64_t rows,
                          int64_t cols, int64_t group, int bits,
                          bool symmetric) {
  QuantisedMatrix m = {rows, cols, group, bits, symmetric, {}, {}, {}};
  const int top = (1 << bits) - 1;
  m.codes.resize(values.size());
  for (int64_t at = 0; at < rows * cols; at += group) {
    const auto run =
        values.subspan(static_cast<size_t>(at), static_cast<size_t>(group));
    const auto [low, high] = std::minmax_element(run.begin(), run.end());
    const float size = std::max(-*low, *high);
    const float scale =
        ShortScale(symmetric ? size * 2 / static_cast<float>(top - 1)
                             : (std::max(*high, 0.0f) - std::min(*low, 0.0f)) /
                                   static_cast<float>(top));
    const int zero = symmetric ? (top + 1) / 2
                               : std::clamp(static_cast<int>(std::lround(
                                                -std::min(*low, 0.0f) / scale)),
                                            0, top);
    m.scales.push_back(scale);
    m.zeros.push_back(zero);
    for (int64_t i = 0; i < group; ++i) {
      const auto code =
          static_cast<int>(std::lround(run[static_cast<size_t>(i)] / scale));
      m.codes[static_cast<size_t>(at + i)] = std::clamp(code + zero, 0, top);
    }
  }
  return m;
}

void AddQuantised(CheckpointKind kind, std::string_view stem,
                  const QuantisedMatrix& matrix, SafetensorsBuilder& to) {
  const std::string name(stem);
  switch (kind) {
    case CheckpointKind::kGptq:
    case CheckpointKind::kGptqV2:
      return AddGptq(kind == CheckpointKind::kGptq, name, matrix, to);
    case CheckpointKind::kAwq:
      return AddAwq(name, matrix, to);
    case CheckpointKind::kPacked:
      return AddPacked(name, matrix, to);
    default:
      return AddBytes(kind, name, matrix, to);
  }
}

std::string QuantisationConfig(CheckpointKind kind,
                               const QuantisedMatrix& matrix) {
  const char* symmetric = matrix.symmetric ? "true" : "false";
  const char* has_zeros = matrix.symmetric ? "false" : "true";
  switch (kind) {
    case CheckpointKind::kGptq:
    case CheckpointKind::kGptqV2:
      return Cat(R"({"quant_method": "gptq", "bits": )", matrix.bits,
                 R"(, "group_size": )", matrix.group, R"(, "sym": )", symmetric,
                 R"(, "desc_act": false, "checkpoint_format": ")",
                 kind == CheckpointKind::kGptq ? "gptq" : "gptq_v2", "\"}");
    case CheckpointKind::kAwq:
      return Cat(R"({"quant_method": "awq", "bits": 4, "version": "gemm")",
                 R"(, "group_size": )", matrix.group, R"(, "zero_point": )",
                 has_zeros, "}");
    case CheckpointKind::kF8Blocks:
      return R"({"quant_method": "fp8", "weight_block_size": [128, 128]})";
    default:
      return R"({"quant_method": "compressed-tensors"})";
  }
}

float E4m3Value(int code) {
  const int exponent = code / 8 % 16;
  const double fraction = code % 8 / 8.0;
  if (exponent == 15 && code % 8 == 7) return std::nanf("");
  const double magnitude = exponent == 0
                               ? fraction * std::pow(2.0, -6)
                               : (1 + fraction) * std::pow(2.0, exponent - 7);
  return static_cast<float>(code >= 128 ? -magnitude : magnitude);
}

uint16_t F16Of(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t exponent = (bits >> 23 & 255) - 112;
  SLUICE_CHECK(exponent >= 1 && exponent <= 30 && (bits & 0x1fff) == 0);
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | exponent << 10 |
                               (bits >> 13 & 0x3ff));
}

}  // namespace sluice::testing
