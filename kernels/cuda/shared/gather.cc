#include "kernels/cuda/shared/gather.h"

#include <cuda_device/launch.h>

#include "common/base/check.h"
#include "kernels/cuda/shared/row_quads.h"
#include "kernels/cuda/shared/tree_sum.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kGatherThreads = 128;
constexpr int kFewParts = 64;
constexpr int kMostParts = 1024;  // a kernel's arguments are below 32 KB
constexpr int kMostOuts = 16;

using Own = OwnFour<kGatherThreads>;
using Piece = RowPiece<kGatherThreads>;

// A block per piece of a row.
struct TakeKernel {
  static constexpr int kThreads = kGatherThreads;
  struct Args {
    ConstMatrix x;
    const int32_t* rows;
    Matrix y;
    int64_t quads;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const Piece piece = Piece::Of(block, a.y.cols);
    const Own own(block, piece.begin, a.y.cols, a.quads != 0);
    const int64_t from = a.rows == nullptr ? piece.row : a.rows[piece.row];
    own.Store(a.y.data + piece.row * a.y.stride,
              own.Load(a.x.data + from * a.x.stride));
  }
};

// Four blocks per run.
struct ScatterKernel {
  static constexpr int kThreads = kGatherThreads;
  static constexpr int kEach = 4;
  struct Args {
    const uint32_t* bundle;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const auto index = static_cast<int>(block.index());
    const auto* const runs = reinterpret_cast<const WordRun*>(a.bundle);
    const WordRun run = runs[index / kEach];
    for (int i = index % kEach * kThreads + block.thread(); i < run.words;
         i += kEach * kThreads) {
      run.to[i] = a.bundle[run.from + i];
    }
  }
};

// A block per row.
struct FillKernel {
  static constexpr int kThreads = kGatherThreads;
  struct Args {
    float value;
    Matrix y;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    float* y = a.y.data + block.index() * a.y.stride;
    for (int64_t i = block.thread(); i < a.y.cols; i += kThreads) {
      y[i] = a.value;
    }
  }
};

// A block per piece of a row.
template <int kParts>
struct JoinNodesKernel {
  static constexpr int kThreads = kGatherThreads;
  static constexpr int kAtOnce = 8;  // parts that registers hold
  struct Args {
    int32_t num_parts;
    int32_t num_outs;
    int64_t begin;
    int64_t cols;
    int64_t quads;
    int32_t leaves[kParts];
    const float* parts[kParts];
    int64_t part_strides[kParts];
    float* outs[kMostOuts];
    int64_t out_strides[kMostOuts];
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const Piece piece = Piece::Of(block, a.cols);
    const Own own(block, piece.begin, a.cols, a.quads != 0);
    const Quad root = a.num_parts == 1         ? Part(a, piece, own, 0)
                      : a.num_parts <= kAtOnce ? FewRoot(a, piece, own)
                                               : Root(a, piece, own);
    for (int32_t o = 0; o < a.num_outs; ++o) {
      own.Store(a.outs[o] + piece.row * a.out_strides[o] + a.begin, root);
    }
  }
  static SLUICE_DEVICE Quad Part(const Args& a, const Piece& piece,
                                 const Own& own, int32_t i) {
    return own.Load(a.parts[i] + piece.row * a.part_strides[i] + a.begin);
  }
  static SLUICE_DEVICE Quad FewRoot(const Args& a, const Piece& piece,
                                    const Own& own) {
    Quad parts[kAtOnce];
    SLUICE_UNROLL
    for (int32_t i = 0; i < kAtOnce; ++i) {
      if (i < a.num_parts) parts[i] = Part(a, piece, own, i);
    }
    QuadTreeSum<kAtOnce> sum;
    SLUICE_UNROLL
    for (int32_t i = 0; i < kAtOnce; ++i) {
      if (i < a.num_parts) sum.Add(a.leaves[i], parts[i]);
    }
    return sum.Root();
  }
  static SLUICE_DEVICE Quad Root(const Args& a, const Piece& piece,
                                 const Own& own) {
    Quad root = {};
    for (int c = 0; c < 4; ++c) {
      if (!own.Has(c)) continue;
      TreeSum sum;
      for (int32_t i = 0; i < a.num_parts; ++i) {
        const float* const row =
            a.parts[i] + piece.row * a.part_strides[i] + a.begin;
        sum.Add(a.leaves[i], row[own.Column(c)]);
      }
      const float value = sum.Root();
      SLUICE_UNROLL
      for (int to = 0; to < 4; ++to) {
        if (to == c) root.values[to] = value;
      }
    }
    return root;
  }
};

template <int kParts>
void StartJoin(Stream stream, std::span<const NodeRows> parts, int64_t begin,
               int64_t end, std::span<const Matrix> outs) {
  typename JoinNodesKernel<kParts>::Args args = {};
  args.num_parts = static_cast<int32_t>(parts.size());
  args.num_outs = static_cast<int32_t>(outs.size());
  args.begin = begin;
  args.cols = end - begin;
  bool quads = begin % 4 == 0 && args.cols % 4 == 0;
  int32_t leaf = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    SLUICE_CHECK(parts[i].node.begin == leaf);
    leaf = parts[i].node.end;
    args.leaves[i] = parts[i].node.begin;
    args.parts[i] = parts[i].rows.data;
    args.part_strides[i] = parts[i].rows.stride;
    quads = quads && AreAligned(parts[i].rows);
  }
  for (size_t o = 0; o < outs.size(); ++o) {
    args.outs[o] = outs[o].data;
    args.out_strides[o] = outs[o].stride;
    quads = quads && AreAligned(outs[o]);
  }
  args.quads = quads ? 1 : 0;
  Launch<JoinNodesKernel<kParts>>(
      stream, Piece::Blocks(outs[0].rows, args.cols), 0, args);
}

}  // namespace

void TakeRows(Stream stream, ConstMatrix x, const int32_t* rows, Matrix y) {
  SLUICE_CHECK(x.cols == y.cols && (rows != nullptr || x.rows == y.rows));
  Launch<TakeKernel>(stream, Piece::Blocks(y.rows, y.cols), 0,
                     {x, rows, y, HasQuads(x) && HasQuads(y)});
}

void Fill(Stream stream, float value, Matrix y) {
  Launch<FillKernel>(stream, y.rows, 0, {value, y});
}

void JoinNodes(Stream stream, std::span<const NodeRows> parts, int64_t begin,
               int64_t end, std::span<const Matrix> outs) {
  SLUICE_CHECK(!parts.empty() && parts.size() <= kMostParts);
  SLUICE_CHECK(!outs.empty() && outs.size() <= kMostOuts);
  if (parts.size() <= kFewParts) {
    return StartJoin<kFewParts>(stream, parts, begin, end, outs);
  }
  StartJoin<kMostParts>(stream, parts, begin, end, outs);
}

void ScatterWords(Stream stream, const uint32_t* bundle, int runs) {
  SLUICE_CHECK(runs <= kMostWordRuns);
  Launch<ScatterKernel>(stream, runs * ScatterKernel::kEach, 0, {bundle});
}

}  // namespace sluice::kernels::cuda
