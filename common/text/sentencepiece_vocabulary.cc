#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "common/text/vocabulary_formats.h"
#include "common/text/vocabulary_spec.h"

namespace sluice {
namespace {

constexpr size_t kMaxPieces = size_t{1} << 21;

// One field of a protobuf message.
struct Field {
  uint64_t number = 0;
  uint64_t integer = 0;    // wire types 0 and 5
  std::string_view bytes;  // wire type 2
};

bool TakeVarint(std::string_view& from, uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64 && !from.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(from.front());
    from.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

// Takes one field off `from`; false if malformed.
bool TakeField(std::string_view& from, Field& field) {
  uint64_t key = 0;
  if (!TakeVarint(from, key)) return false;
  field = {.number = key >> 3};
  uint64_t size = 0;
  switch (key & 7) {
    case 0:
      return TakeVarint(from, field.integer);
    case 1:
      size = 8;
      break;
    case 2:
      if (!TakeVarint(from, size)) return false;
      break;
    case 5:
      size = 4;
      break;
    default:
      return false;
  }
  if (size > from.size()) return false;
  field.bytes = from.substr(0, size);
  from.remove_prefix(size);
  if ((key & 7) == 5) {
    uint32_t word = 0;
    std::memcpy(&word, field.bytes.data(), sizeof(word));
    field.integer = word;
  }
  return true;
}

Status Malformed() {
  return InvalidArgument("sentencepiece model: malformed protobuf");
}

// The used fields of a ModelProto. Defaults are sentencepiece's.
struct Model {
  VocabularySpec spec;
  std::vector<float> scores;
  uint64_t model_type = 1;  // unigram
};

Status ReadPiece(std::string_view bytes, Model& model) {
  std::string text;
  float score = 0;
  uint64_t kind = 1;
  Field field;
  while (!bytes.empty()) {
    if (!TakeField(bytes, field)) return Malformed();
    if (field.number == 1) text = field.bytes;
    if (field.number == 2 && field.bytes.size() == sizeof(score)) {
      std::memcpy(&score, field.bytes.data(), sizeof(score));
    }
    if (field.number == 3) kind = field.integer;
  }
  if (kind < 1 || kind > 6) {
    return InvalidArgument("sentencepiece model: piece ", model.scores.size(),
                           " of type ", kind);
  }
  if (model.scores.size() >= kMaxPieces) {
    return InvalidArgument("sentencepiece model: more than ", kMaxPieces,
                           " pieces");
  }
  model.spec.tokens.push_back(std::move(text));
  model.spec.kinds.push_back(static_cast<TokenKind>(kind));
  model.scores.push_back(score);
  return OkStatus();
}

Status ReadTrainerSpec(std::string_view bytes, Model& model) {
  Field field;
  while (!bytes.empty()) {
    if (!TakeField(bytes, field)) return Malformed();
    const auto id = static_cast<int64_t>(field.integer);
    const auto set = [id](std::optional<TokenId>& to) {
      to.reset();
      if (id >= 0) to = static_cast<TokenId>(std::min<int64_t>(id, INT32_MAX));
    };
    if (field.number == 3) model.model_type = field.integer;
    if (field.number == 24) model.spec.space_is_suffix = field.integer != 0;
    if (field.number == 40) set(model.spec.unk);
    if (field.number == 41) set(model.spec.bos);
    if (field.number == 42) set(model.spec.eos);
  }
  return OkStatus();
}

Status ReadNormalizerSpec(std::string_view bytes, Model& model) {
  Field field;
  while (!bytes.empty()) {
    if (!TakeField(bytes, field)) return Malformed();
    if (field.number == 2) model.spec.charsmap = field.bytes;
    if (field.number == 3) model.spec.add_space_prefix = field.integer != 0;
    if (field.number == 4) model.spec.collapse_spaces = field.integer != 0;
  }
  return OkStatus();
}

}  // namespace

StatusOr<TextSource> FromSentencePiece(std::string_view bytes) {
  Model model;
  VocabularySpec& spec = model.spec;
  spec.unk = 0;
  spec.bos = 1;
  spec.eos = 2;
  spec.add_bos = true;
  spec.collapse_spaces = true;
  spec.keeps_user_defined = true;
  Field field;
  while (!bytes.empty()) {
    if (!TakeField(bytes, field)) return Malformed();
    if (field.number == 1) {
      SLUICE_RETURN_IF_ERROR(ReadPiece(field.bytes, model));
    } else if (field.number == 2) {
      SLUICE_RETURN_IF_ERROR(ReadTrainerSpec(field.bytes, model));
    } else if (field.number == 3) {
      SLUICE_RETURN_IF_ERROR(ReadNormalizerSpec(field.bytes, model));
    }
  }
  if (spec.tokens.empty()) return Malformed();
  if (model.model_type != 2) {
    return Unimplemented("sentencepiece model of type ", model.model_type,
                         "; BPE (2) is built");
  }
  spec.merges = MergesFromScores(spec.tokens, spec.kinds, model.scores);
  TextSource source;
  SLUICE_ASSIGN_OR_RETURN(source.tokenizer_json, ToTokenizerJson(spec));
  const auto name = [&spec](std::optional<TokenId> id) {
    return id ? spec.tokens[static_cast<size_t>(*id)] : std::string();
  };
  source.bos_token = name(spec.bos);
  source.eos_token = name(spec.eos);
  source.unk_token = name(spec.unk);
  return source;
}

}  // namespace sluice
