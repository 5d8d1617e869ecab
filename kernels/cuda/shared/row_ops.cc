#include "kernels/cuda/shared/row_ops.h"

#include <cuda_device/launch.h>

#include "common/base/check.h"
#include "kernels/cuda/shared/gated_activation.h"
#include "kernels/cuda/shared/math.h"
#include "kernels/cuda/shared/row_quads.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kRowThreads = 128;
using Own = OwnFour<kRowThreads>;
using Piece = RowPiece<kRowThreads>;

// A block per token.
struct RopeKernel {
  static constexpr int kThreads = kRowThreads;
  struct Args {
    Matrix x;
    int64_t head_dim;
    int64_t split;
    RopeTable table;
    const int32_t* positions;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t half = a.table.half;
    const int64_t from = a.positions[block.index()] * half;
    float* row = a.x.data + block.index() * a.x.stride;
    const int64_t pairs = a.x.cols / a.head_dim * half;
    for (int64_t p = block.thread(); p < pairs; p += kThreads) {
      const int64_t i = p % half;
      float* head = row + p / half * a.head_dim;
      float* first = head + (a.split ? i : 2 * i);
      float* second = first + (a.split ? half : 1);
      const float cos = a.table.cos[from + i];
      const float sin = a.table.sin[from + i];
      const float av = *first;
      const float bv = *second;
      *first = Fma(av, cos, -(bv * sin));
      *second = Fma(bv, cos, av * sin);
    }
  }
};

// A block per piece of a row of y [T, F]; x [T, 2F].
template <bool kClamped>
struct GateKernel {
  static constexpr int kThreads = kRowThreads;
  struct Args {
    ConstMatrix x;
    Matrix y;
    float limit;
    int32_t quads;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const Piece piece = Piece::Of(block, a.y.cols);
    const Own own(block, piece.begin, a.y.cols, a.quads != 0);
    const float* const x = a.x.data + piece.row * a.x.stride;
    const Quad g = own.Load(x);
    const Quad u = own.Load(x + a.y.cols);
    Quad y;
    SLUICE_UNROLL
    for (int i = 0; i < 4; ++i) {
      y.values[i] = kClamped ? ClampedGate(g.values[i], u.values[i], a.limit)
                             : SiluGate(g.values[i], u.values[i]);
    }
    own.Store(a.y.data + piece.row * a.y.stride, y);
  }
};

// A block per piece of a row.
struct AddKernel {
  static constexpr int kThreads = kRowThreads;
  struct Args {
    ConstMatrix y;
    Matrix x;
    int64_t quads;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const Piece piece = Piece::Of(block, a.x.cols);
    const Own own(block, piece.begin, a.x.cols, a.quads != 0);
    float* const row = a.x.data + piece.row * a.x.stride;
    const Quad y = own.Load(a.y.data + piece.row * a.y.stride);
    Quad x = own.Load(row);
    SLUICE_UNROLL
    for (int i = 0; i < 4; ++i) x.values[i] += y.values[i];
    own.Store(row, x);
  }
};

// A block per piece of a token's row.
template <WeightType kType>
struct EmbedKernel {
  static constexpr int kThreads = kRowThreads;
  struct Args {
    const void* table;
    const int32_t* ids;
    Matrix y;
    int64_t quads;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const Piece piece = Piece::Of(block, a.y.cols);
    const Own own(block, piece.begin, a.y.cols, a.quads != 0);
    const int64_t from = a.ids[piece.row] * a.y.cols;
    Quad y = {};
    SLUICE_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (!own.Has(i)) continue;
      y.values[i] = Element<kType>(a.table, from + own.Column(i));
    }
    own.Store(a.y.data + piece.row * a.y.stride, y);
  }
};

int64_t BlocksFor(Matrix x) { return Piece::Blocks(x.rows, x.cols); }

template <WeightType kType>
void EmbedAs(Stream stream, const WeightView& table, const int32_t* ids,
             Matrix y) {
  Launch<EmbedKernel<kType>>(stream, BlocksFor(y), 0,
                             {table.data, ids, y, HasQuads(y)});
}

}  // namespace

void Rope(Stream stream, Matrix x, int64_t head_dim, RopeStyle style,
          const RopeTable& table, const int32_t* positions) {
  SLUICE_CHECK(head_dim > 0 && x.cols % head_dim == 0);
  SLUICE_CHECK(2 * table.half <= head_dim);
  Launch<RopeKernel>(
      stream, x.rows, 0,
      {x, head_dim, style == RopeStyle::kHalfSplit, table, positions});
}

void SiluMul(Stream stream, ConstMatrix x, Matrix y) {
  SLUICE_CHECK(x.rows == y.rows && x.cols == 2 * y.cols);
  Launch<GateKernel<false>>(stream, BlocksFor(y), 0,
                            {x, y, 0.0f, HasQuads(x) && HasQuads(y)});
}

void ClampedSwiGlu(Stream stream, ConstMatrix x, float limit, Matrix y) {
  SLUICE_CHECK(x.rows == y.rows && x.cols == 2 * y.cols);
  Launch<GateKernel<true>>(stream, BlocksFor(y), 0,
                           {x, y, limit, HasQuads(x) && HasQuads(y)});
}

void Add(Stream stream, ConstMatrix y, Matrix x) {
  SLUICE_CHECK(x.rows == y.rows && x.cols == y.cols);
  Launch<AddKernel>(stream, BlocksFor(x), 0,
                    {y, x, HasQuads(y) && HasQuads(x)});
}

void Embed(Stream stream, const WeightView& table, const int32_t* ids,
           Matrix y) {
  SLUICE_CHECK(y.cols == table.cols);
  switch (table.type) {
    case WeightType::kF32:
      return EmbedAs<WeightType::kF32>(stream, table, ids, y);
    case WeightType::kBf16:
      return EmbedAs<WeightType::kBf16>(stream, table, ids, y);
    case WeightType::kE4m3Wide:
      return EmbedAs<WeightType::kE4m3Wide>(stream, table, ids, y);
    default:
      SLUICE_CHECK(table.type == WeightType::kE4m3);
      return EmbedAs<WeightType::kE4m3>(stream, table, ids, y);
  }
}

}  // namespace sluice::kernels::cuda
