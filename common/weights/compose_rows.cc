#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "common/base/check.h"
#include "common/tensor/buffer.h"
#include "common/weights/code_tile.h"
#include "common/weights/composed_tensor.h"
#include "common/weights/file.h"
#include "kernels/block_pack.h"
#include "kernels/block_store.h"

namespace sluice::weights {
namespace {

using kernels::kShortBlock;

constexpr int64_t kTileElements = 1 << 22;  // aim of one tile

// The F16 of this value, if there is one.
std::optional<uint16_t> ExactF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const int exponent = static_cast<int>(bits >> 23 & 255) - 127;
  uint32_t half = 0;
  if (exponent > 15) return std::nullopt;
  if (exponent >= -14) {
    half = static_cast<uint32_t>(exponent + 15) << 10 | (bits >> 13 & 0x3ff);
  } else {
    half = static_cast<uint32_t>(std::fabs(value) * 0x1p24f);
  }
  const auto f16 = static_cast<uint16_t>(half | (bits >> 16 & 0x8000));
  if (F16ToF32(f16) != value) return std::nullopt;
  return f16;
}

void ToF32(const ComposedTensor& tensor, const CodeTile& tile, float* out) {
  const bool is_fp4 = tensor.layout == CodeLayout::kNvfp4;
  const bool floats = is_fp4 || tensor.layout == CodeLayout::kE4m3;
  float wide[256];
  for (int i = 0; i < 256; ++i) {
    wide[i] = is_fp4 ? kernels::kMxfp4Values[i & 15] * 0.5f
                     : E4m3ToF32(static_cast<uint8_t>(i));
  }
  for (int64_t r = 0; r < tile.rows(); ++r) {
    const uint8_t* codes = tile.row(r);
    for (int64_t c = 0; c < tile.cols(); ++c, ++out) {
      *out = (floats ? wide[codes[c]]
                     : static_cast<float>(codes[c] - tile.zero(r, c))) *
             tile.scale(r, c);
    }
  }
}

// Writes runs of `run` codes behind 2^8 times their scale.
Status ToScaledE4m3(const ComposedTensor& tensor, const Slice& slice,
                    const CodeTile& tile, int64_t run, uint8_t* out) {
  for (int64_t r = 0; r < tile.rows(); ++r) {
    const uint8_t* codes = tile.row(r);
    for (int64_t c = 0; c < tile.cols(); c += run) {
      const float scale = tile.scale(r, c) * 256;
      if (!std::isfinite(scale)) {
        return InvalidArgument("tensor ", Quoted(tensor.scales), ": scale ",
                               tile.scale(r, c), " of row ",
                               slice.row_begin + r, ", column ",
                               slice.col_begin + c, " is above 2^120");
      }
      if (std::any_of(codes + c, codes + c + run,
                      [](uint8_t code) { return (code & 0x7f) == 0x7f; })) {
        return InvalidArgument("tensor ", Quoted(tensor.codes), ": row ",
                               slice.row_begin + r, ", columns from ",
                               slice.col_begin + c,
                               " on, have a code that is no number");
      }
      std::memcpy(out, &scale, sizeof(scale));
      out += sizeof(scale);
      std::memcpy(out, codes + c, static_cast<size_t>(run));
      out += run;
    }
  }
  return OkStatus();
}

// Writes the codes of GGUF's blocks behind their scale; false for a value
// outside of the format's range.
bool PutQ8(const int16_t* values, uint8_t* block) {
  bool fits = true;
  for (int i = 0; i < kShortBlock; ++i) {
    fits = fits && values[i] >= -128 && values[i] < 128;
    block[2 + i] = static_cast<uint8_t>(values[i]);
  }
  return fits;
}

bool PutQ4(const int16_t* values, uint8_t* block) {
  bool fits = true;
  for (int i = 0; i < kShortBlock / 2; ++i) {
    const int low = values[i] + 8;
    const int high = values[i + kShortBlock / 2] + 8;
    fits = fits && low >= 0 && low < 16 && high >= 0 && high < 16;
    block[2 + i] = static_cast<uint8_t>((low & 15) | (high & 15) << 4);
  }
  return fits;
}

bool PutQ5(const int16_t* values, uint8_t* block) {
  uint32_t fifth = 0;
  for (int i = 0; i < kShortBlock / 2; ++i) {
    const auto low = static_cast<uint32_t>(values[i] + 16);
    const auto high = static_cast<uint32_t>(values[i + kShortBlock / 2] + 16);
    fifth |= (low >> 4 & 1) << i | (high >> 4 & 1) << (i + kShortBlock / 2);
    block[6 + i] = static_cast<uint8_t>((low & 15) | (high & 15) << 4);
  }
  std::memcpy(block + 2, &fifth, sizeof(fifth));
  return true;  // four bits less a zero point of four
}

// Writes blocks of `block_bytes`; `put_codes` is one of the functions above.
Status ToBlocks(const ComposedTensor& tensor, const Slice& slice,
                const CodeTile& tile,
                bool (*put_codes)(const int16_t*, uint8_t*),
                int64_t block_bytes, uint8_t* out) {
  for (int64_t r = 0; r < tile.rows(); ++r) {
    const uint8_t* codes = tile.row(r);
    for (int64_t c = 0; c < tile.cols(); c += kShortBlock, out += block_bytes) {
      const int zero = tile.zero(r, c);
      int16_t values[kShortBlock];
      bool all_zero = true;
      for (int i = 0; i < kShortBlock; ++i) {
        values[i] = static_cast<int16_t>(codes[c + i] - zero);
        all_zero = all_zero && values[i] == 0;
      }
      const auto scale = ExactF16(all_zero ? 0.0f : tile.scale(r, c));
      if (!scale.has_value()) {
        return InvalidArgument(
            "tensor ", Quoted(tensor.scales), ": scale ", tile.scale(r, c),
            " of row ", slice.row_begin + r, ", column ", slice.col_begin + c,
            " is no F16, which ", tensor.info.dtype,
            " blocks need; --weights f32 reads it");
      }
      std::memcpy(out, &*scale, sizeof(*scale));
      if (!put_codes(values, out)) {
        return InvalidArgument(
            "tensor ", Quoted(tensor.codes), ": row ", slice.row_begin + r,
            ", columns from ", slice.col_begin + c, " on, with zero point ",
            zero, " have codes that ", tensor.info.dtype,
            " cannot hold; config.json says that zero points are ",
            1 << (tensor.bits - 1));
      }
    }
  }
  return OkStatus();
}

// MXFP4's codes and scales as blocks.
Status ReadMxfp4(const ModelFile& model, const ComposedTensor& tensor,
                 const Slice& slice, uint8_t* out) {
  constexpr int64_t kCodes = kShortBlock / 2;  // bytes
  const int64_t of_row = tensor.info.cols() / kShortBlock;
  const int64_t begin = slice.col_begin / kShortBlock;
  const int64_t groups = slice.col_end / kShortBlock - begin;
  // Whole rows in one read, others one by one.
  const int64_t rows = slice.row_end - slice.row_begin;
  const int64_t step = groups == of_row ? std::max<int64_t>(rows, 1) : 1;
  const int64_t block_bytes = BlockSizeOf(DType::kMxfp4).bytes;
  constexpr auto kPass = Buffer::Kept::kPass;
  Buffer codes(static_cast<size_t>(step * groups * kCodes), kPass);
  Buffer exponents(static_cast<size_t>(step * groups), kPass);
  for (int64_t r = 0; r < rows; r += step) {
    const auto first =
        static_cast<uint64_t>((slice.row_begin + r) * of_row + begin);
    SLUICE_RETURN_IF_ERROR(model.ReadStoredBytes(
        tensor.codes, first * kCodes, codes.size(), codes.as<uint8_t>()));
    SLUICE_RETURN_IF_ERROR(model.ReadStoredBytes(
        tensor.scales, first, exponents.size(), exponents.as<uint8_t>()));
    for (int64_t g = 0; g < step * groups; ++g, out += block_bytes) {
      kernels::StoreMxfp4Group(codes.as<uint8_t>() + g * kCodes,
                               exponents.as<uint8_t>()[g], out);
    }
  }
  return OkStatus();
}

// MXFP4 as F32, whole blocks of which some columns may be left out.
Status WidenMxfp4(const ModelFile& model, const ComposedTensor& tensor,
                  const Slice& slice, float* out) {
  Slice whole = slice;
  whole.col_begin = slice.col_begin / kShortBlock * kShortBlock;
  whole.col_end = (slice.col_end + kShortBlock - 1) / kShortBlock * kShortBlock;
  const int64_t cols = whole.col_end - whole.col_begin;
  const int64_t row_blocks = cols / kShortBlock;
  const int64_t row_bytes = row_blocks * BlockSizeOf(DType::kMxfp4).bytes;
  const int64_t rows = slice.row_end - slice.row_begin;
  Buffer blocks(static_cast<size_t>(rows * row_bytes));
  SLUICE_RETURN_IF_ERROR(ReadMxfp4(model, tensor, whole, blocks.as<uint8_t>()));
  Buffer wide(sizeof(float) * static_cast<size_t>(cols));
  const int64_t kept = slice.col_end - slice.col_begin;
  for (int64_t r = 0; r < rows; ++r) {
    kernels::WidenBlocks(kernels::BlockFormat::kMxfp4,
                         blocks.as<uint8_t>() + r * row_bytes, row_blocks,
                         wide.as<float>());
    std::memcpy(out + r * kept,
                wide.as<float>() + (slice.col_begin - whole.col_begin),
                sizeof(float) * static_cast<size_t>(kept));
  }
  return OkStatus();
}

Status ReadTile(const ModelFile& model, const ComposedTensor& tensor,
                const Slice& slice, DType as, std::byte* out) {
  auto* const bytes = reinterpret_cast<uint8_t*>(out);
  auto* const floats = reinterpret_cast<float*>(out);
  if (tensor.layout == CodeLayout::kTiled) {
    return ReadTiled(model, tensor, slice, as, out);
  }
  if (tensor.layout == CodeLayout::kMxfp4) {
    return as == DType::kF32 ? WidenMxfp4(model, tensor, slice, floats)
                             : ReadMxfp4(model, tensor, slice, bytes);
  }
  CodeTile tile(model, tensor, slice);
  SLUICE_RETURN_IF_ERROR(tile.Read());
  const int64_t block_bytes = BlockSizeOf(as).bytes;
  switch (as) {
    case DType::kF32:
      ToF32(tensor, tile, floats);
      return OkStatus();
    case DType::kScaledE4M3:
    case DType::kWideE4M3:
      return ToScaledE4m3(tensor, slice, tile, BlockSizeOf(as).elements, bytes);
    case DType::kQ8_0:
      return ToBlocks(tensor, slice, tile, PutQ8, block_bytes, bytes);
    case DType::kQ4_0:
      return ToBlocks(tensor, slice, tile, PutQ4, block_bytes, bytes);
    case DType::kQ5_0:
      return ToBlocks(tensor, slice, tile, PutQ5, block_bytes, bytes);
    default:
      break;
  }
  SLUICE_CHECK(false);
}

Status ReadBf16(const ModelFile& model, const ComposedTensor& tensor,
                const Slice& slice, std::byte* out) {
  const auto count = static_cast<size_t>(slice.elements());
  Buffer wide(sizeof(float) * count);
  SLUICE_RETURN_IF_ERROR(
      ReadComposed(model, tensor, slice, DType::kF32, wide.data()));
  std::transform(wide.as<float>(), wide.as<float>() + count,
                 reinterpret_cast<uint16_t*>(out), F32ToBf16);
  return OkStatus();
}

}  // namespace

Status ReadComposed(const ModelFile& model, const ComposedTensor& tensor,
                    const Slice& slice, DType as, std::byte* out) {
  if (as == DType::kBF16) return ReadBf16(model, tensor, slice, out);
  const bool narrows =
      as == DType::kScaledE4M3 && tensor.info.dtype == DType::kWideE4M3;
  SLUICE_CHECK(as == tensor.info.dtype || as == DType::kF32 || narrows);
  const BlockSize block = BlockSizeOf(as);
  const int64_t cols = slice.col_end - slice.col_begin;
  SLUICE_CHECK(slice.col_begin % block.elements == 0 &&
               slice.col_end % block.elements == 0);
  if (slice.elements() == 0) return OkStatus();
  const int64_t step = std::max<int64_t>(1, kTileElements / cols);
  const int64_t row_bytes = cols / block.elements * block.bytes;
  Slice tile = slice;
  for (; tile.row_begin < slice.row_end; tile.row_begin = tile.row_end) {
    tile.row_end = std::min(slice.row_end, tile.row_begin + step);
    SLUICE_RETURN_IF_ERROR(
        ReadTile(model, tensor, tile, as,
                 out + (tile.row_begin - slice.row_begin) * row_bytes));
  }
  return OkStatus();
}

}  // namespace sluice::weights
