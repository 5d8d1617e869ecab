#include "common/model/weight_reads.h"

#include <algorithm>
#include <iterator>

#include "common/tensor/weight_format.h"

namespace sluice {

using kernels::WeightType;
using weights::Slice;

WeightRead WeightReads::ReadHeads(int32_t layer, const WeightRows& weight,
                                  const RankPlan& plan) const {
  const TensorRow& row = weight.first();
  const AttentionConfig& attention = config_.layers[layer].attention;
  const LatentConfig& latent = attention.latent;
  const std::vector<Dimension> shape = DimensionsOf(row, config_, layer);
  int64_t rows = 1;  // of a head in the tensor
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i].size;
  rows /= attention.num_heads;
  int64_t begin = 0;
  int64_t end = rows;
  if (row.taken == RowsTaken::kHeadKeys) end = latent.nope_dim;
  if (row.taken == RowsTaken::kHeadValues) begin = latent.nope_dim;
  WeightRead read = {layer,
                     weight.place,
                     /*is_vector=*/false,
                     /*is_apart=*/true,
                     row.taken == RowsTaken::kHeadKeys,
                     {}};
  const LayerShare& share = plan.layers[static_cast<size_t>(layer)];
  const WeightType type = TypesOf(weight, layer, file_, mode_)[0];
  for (int64_t head = share.head_begin; head < share.head_end; ++head) {
    read.pieces.push_back(
        {NameOf(row, layer),
         {head * rows + begin, head * rows + end, 0, shape.back().size},
         type});
  }
  return read;
}

WeightRead WeightReads::ReadOf(int32_t layer, const WeightRows& weight,
                               const RankPlan& plan) const {
  if (weight.place == WeightPlace::kHeadKeys ||
      weight.place == WeightPlace::kHeadValues) {
    return ReadHeads(layer, weight, plan);
  }
  WeightRead read = {layer, weight.place, weight.first().is_vector()};
  const auto types = TypesOf(weight, layer, file_, mode_);
  std::vector<WeightPiece> late;
  for (size_t part = 0; part < types.size(); ++part) {
    const TensorRow* row = weight.rows[part];
    const std::string from = NameOf(*row, layer);
    const std::vector<Dimension> shape = DimensionsOf(*row, config_, layer);
    const bool is_row = read.is_vector && row->stored != StoredAs::kTaps;
    Slice slice = {0, is_row ? 1 : shape[0].size, 0, shape.back().size};
    if (row->taken == RowsTaken::kLastRunFirst) {
      const int64_t first = shape[0].size - shape[0].runs.back().size;
      Slice rest = slice;
      slice.row_begin = rest.row_end = first;
      read.pieces.push_back({from, slice, types[part]});
      read.pieces.push_back({from, rest, types[part]});
      continue;
    }
    if (row->cut == RankCut::kNone) {
      read.pieces.push_back({from, slice, types[part]});
      continue;
    }
    if (row->cut == RankCut::kGroups) {
      AddGroups(*row, layer, plan, {from, slice, types[part]}, read, late);
      continue;
    }
    const bool cuts_rows = row->cut == RankCut::kRows && shape.size() > 1 &&
                           !row->shape.starts_with("1 ");
    const Dimension& cut = cuts_rows ? shape[0] : shape.back();
    int64_t begin = 0;
    for (const Dimension::Run& run : cut.runs) {
      const OwnRange own = OwnRangeOf(plan, config_, layer, run.letter);
      (cuts_rows ? slice.row_begin : slice.col_begin) = begin + own.begin;
      (cuts_rows ? slice.row_end : slice.col_end) = begin + own.end;
      read.pieces.push_back({from, slice, types[part]});
      begin += run.size;
    }
  }
  std::ranges::move(late, std::back_inserter(read.pieces));
  return read;
}

// Adds the pieces of rows that stand group by group, each with its part of
// every run: run by run. A gate of attention comes last of its weight.
void WeightReads::AddGroups(const TensorRow& row, int32_t layer,
                            const RankPlan& plan, WeightPiece piece,
                            WeightRead& read,
                            std::vector<WeightPiece>& late) const {
  const Dimension all = DimensionsOf(row, config_, layer)[0];
  const auto at = static_cast<size_t>(layer);
  const bool is_gate = row.place == WeightPlace::kQkv;
  const LayerConfig& config = config_.layers[at];
  const int64_t groups = is_gate ? config.attention.num_heads
                                 : config.state.mixer.shape.num_key_heads;
  int64_t begin = 0;
  for (size_t r = 0; r < all.runs.size(); ++r) {
    const Dimension::Run& run = all.runs[r];
    const int64_t rows = run.size / groups;
    const OwnRange own = OwnRangeOf(plan, config_, layer, run.letter);
    std::vector<WeightPiece>& to = is_gate && r > 0 ? late : read.pieces;
    if (own.begin == own.end) {  // a rank without such heads
      piece.slice.row_begin = piece.slice.row_end = 0;
      to.push_back(piece);
    }
    for (int64_t group = own.begin / rows; group < own.end / rows; ++group) {
      piece.slice.row_begin = group * (all.size / groups) + begin;
      piece.slice.row_end = piece.slice.row_begin + rows;
      to.push_back(piece);
    }
    begin += rows;
  }
}

WeightRead WeightReads::TiedHead(const RankPlan& plan) const {
  TensorRow rows = WeightsOf(config_, -1, ExpertStorage::kSeparate)[0].first();
  rows.cut = RankCut::kRows;
  return ReadOf(-1, {WeightPlace::kHead, {&rows}}, plan);
}

std::vector<WeightRead> WeightReads::All(const StageRange& range,
                                         const RankPlan& plan) const {
  const bool has_embedding = range.is_first && plan.rank == 0;
  std::vector<WeightRead> reads;
  for (const WeightRows& weight :
       WeightsOf(config_, -1, ExpertStorage::kSeparate)) {
    const bool is_here = IsEmbedding(weight.place)      ? has_embedding
                         : IsOfFirstStage(weight.place) ? range.is_first
                                                        : range.is_last;
    if (is_here) {
      reads.push_back(ReadOf(-1, weight, plan));
    }
  }
  if (range.is_last && config_.tie_word_embeddings && !has_embedding) {
    reads.push_back(TiedHead(plan));
  }
  for (int32_t i = range.first_layer; i < range.last_layer; ++i) {
    for (const WeightRows& weight :
         WeightsOf(config_, i, ExpertStorage::kSeparate)) {
      if (weight.first().cut == RankCut::kExperts) continue;
      reads.push_back(ReadOf(i, weight, plan));
    }
  }
  return reads;
}

uint64_t WeightReads::StoredBytes(const WeightPiece& piece) const {
  const auto all = static_cast<double>(file_.Find(piece.from)->elements());
  return static_cast<uint64_t>(
      static_cast<double>(file_.StoredBytes(piece.from)) *
      static_cast<double>(piece.slice.elements()) / all);
}

std::optional<WeightRead> WeightReads::SameOf(const WeightRead& read,
                                              const RankPlan& plan) const {
  for (const WeightRows& weight :
       WeightsOf(config_, read.layer, ExpertStorage::kSeparate)) {
    if (weight.place == read.place) return ReadOf(read.layer, weight, plan);
  }
  if (read.place == WeightPlace::kHead) return TiedHead(plan);
  return std::nullopt;
}

std::vector<PlaceInWeight> PlacesOf(const WeightRead& read) {
  std::vector<PlaceInWeight> places;
  PlaceInWeight next = {0, 0};
  for (size_t i = 0; i < read.pieces.size(); ++i) {
    const WeightPiece& piece = read.pieces[i];
    if (i > 0 && (read.is_apart || piece.type != read.pieces[i - 1].type)) {
      next = {next.part + 1, 0};
    }
    places.push_back(next);
    next.row += read.is_vector ? piece.slice.elements() : Rows(piece.slice);
  }
  return places;
}

std::vector<WeightCut> CutsOf(const WeightRead& read, const WeightRead& whole) {
  const std::vector<PlaceInWeight> to = PlacesOf(read);
  const std::vector<PlaceInWeight> from = PlacesOf(whole);
  std::vector<WeightCut> cuts;
  for (size_t i = 0; i < read.pieces.size(); ++i) {
    const WeightPiece& piece = read.pieces[i];
    const Slice& own = piece.slice;
    const auto has = [&](const WeightPiece& other) {
      const Slice& all = other.slice;
      const bool is_whole =
          own.row_begin == all.row_begin && own.row_end == all.row_end &&
          own.col_begin == all.col_begin && own.col_end == all.col_end;
      return other.from == piece.from && other.type == piece.type &&
             (is_whole || !read.is_transposed) &&
             own.row_begin >= all.row_begin && own.row_end <= all.row_end &&
             own.col_begin >= all.col_begin && own.col_end <= all.col_end;
    };
    const auto found = std::ranges::find_if(whole.pieces, has);
    if (found == whole.pieces.end()) return {};
    const PlaceInWeight& place =
        from[static_cast<size_t>(found - whole.pieces.begin())];
    WeightCut cut = {
        place.part, place.row + own.row_begin - found->slice.row_begin,
        Rows(own),  own.col_begin - found->slice.col_begin,
        Cols(own),  i == 0 || to[i].part != to[i - 1].part};
    if (read.is_transposed) cut = {place.part, 0, Cols(own), 0, Rows(own)};
    cuts.push_back(cut);
  }
  return cuts;
}

}  // namespace sluice
