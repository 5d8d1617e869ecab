#include "common/weights/weight_sums.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "common/base/check.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/weights/file.h"
#include "common/weights/xxh64.h"

namespace sluice::weights {
namespace {

constexpr char kFormat[] = "sluice sums 1";
constexpr char kHash[] = "xxh64";
constexpr char kAgain[] = "; `sluice inspect MODEL --sums` writes it anew";
constexpr uint64_t kMaxSumsBytes = uint64_t{512} << 20;
constexpr size_t kHexDigits = 16;    // of a sum
constexpr size_t kModelDigits = 64;  // of a model's digest

uint64_t PieceCount(uint64_t bytes) {
  return bytes / kSumPieceBytes + (bytes % kSumPieceBytes > 0 ? 1 : 0);
}

// The text at `key` of `object`.
StatusOr<std::string> TextAt(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) {
    return InvalidArgument(key, " is missing or no text");
  }
  return found->get<std::string>();
}

// A model's digest.
StatusOr<std::string> DigestAt(const Json& object, const char* key) {
  SLUICE_ASSIGN_OR_RETURN(std::string text, TextAt(object, key));
  if (text.size() == kModelDigits &&
      text.find_first_not_of("0123456789abcdef") == std::string::npos) {
    return text;
  }
  return InvalidArgument(key, " is ", Quoted(text), ", expected ", kModelDigits,
                         " hexadecimal digits, 0-9 and a-f");
}

StatusOr<std::vector<uint64_t>> SumsAt(const Json& object, const char* key) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text, TextAt(object, key));
  if (text.size() % kHexDigits != 0) {
    return InvalidArgument(key, " has ", text.size(),
                           " digits, expected a multiple of ", kHexDigits);
  }
  std::vector<uint64_t> sums(text.size() / kHexDigits);
  for (size_t i = 0; i < sums.size(); ++i) {
    const char* begin = text.data() + i * kHexDigits;
    const auto parsed =
        std::from_chars(begin, begin + kHexDigits, sums[i], /*base=*/16);
    if (parsed.ec != std::errc() || parsed.ptr != begin + kHexDigits) {
      return InvalidArgument(key, " has ",
                             Quoted(std::string_view(begin, kHexDigits)),
                             ", expected ", kHexDigits, " hexadecimal digits");
    }
  }
  return sums;
}

StatusOr<TensorSums> ParseTensor(const Json& json) {
  TensorSums tensor;
  SLUICE_ASSIGN_OR_RETURN(tensor.name, TextAt(json, "name"));
  SLUICE_ASSIGN_OR_RETURN(tensor.file, TextAt(json, "file"));
  const auto bytes = json.find("bytes");
  if (bytes == json.end() || !bytes->is_number_unsigned()) {
    return InvalidArgument("bytes is missing or no number");
  }
  tensor.bytes = bytes->get<uint64_t>();
  SLUICE_ASSIGN_OR_RETURN(tensor.pieces, SumsAt(json, "pieces"));
  SLUICE_ASSIGN_OR_RETURN(const auto own, SumsAt(json, "sum"));
  if (tensor.pieces.size() != PieceCount(tensor.bytes)) {
    return InvalidArgument("has ", tensor.pieces.size(), " pieces, ",
                           tensor.bytes, " bytes have ",
                           PieceCount(tensor.bytes));
  }
  if (own != std::vector<uint64_t>{tensor.sum()}) {
    return InvalidArgument("its sum is not that of its pieces, ",
                           SumToHex(tensor.sum()));
  }
  return tensor;
}

// Checks format, hash and piece size, and that there is a list of tensors.
Status CheckHead(const Json& root) {
  if (!root.is_object()) return InvalidArgument("is no object");
  for (const auto& [key, wanted] :
       {std::pair{"format", Json(kFormat)}, std::pair{"hash", Json(kHash)},
        std::pair{"piece_bytes", Json(kSumPieceBytes)}}) {
    const auto found = root.find(key);
    const Json value = found == root.end() ? Json() : *found;
    if (value != wanted) {
      return InvalidArgument(key, " is ", DumpJson(value).substr(0, 100),
                             ", expected ", DumpJson(wanted));
    }
  }
  if (root.contains("tensors") && root["tensors"].is_array()) return OkStatus();
  return InvalidArgument("tensors is no list");
}

// Checks that `sums` name the tensors of `model`, in their sizes.
Status CheckList(const ModelFile& model, const WeightSums& sums) {
  const std::vector<TensorInfo>& infos = model.tensors();
  for (size_t i = 0; i < std::max(infos.size(), sums.tensors.size()); ++i) {
    const bool known = i < sums.tensors.size();
    const bool there = i < infos.size();
    if (!known || (there && infos[i].name < sums.tensors[i].name)) {
      return InvalidArgument("lacks tensor ", Quoted(infos[i].name),
                             ", which the model has", kAgain);
    }
    const TensorSums& tensor = sums.tensors[i];
    if (!there || infos[i].name != tensor.name) {
      return InvalidArgument("has tensor ", Quoted(tensor.name),
                             ", which the model lacks", kAgain);
    }
    const auto bytes = static_cast<uint64_t>(infos[i].stored_bytes());
    if (bytes != tensor.bytes) {
      return InvalidArgument("has ", tensor.bytes, " bytes of tensor ",
                             Quoted(tensor.name), ", the model ", bytes,
                             kAgain);
    }
  }
  return OkStatus();
}

// Checks the tensor that the reader of a GGUF read for the config.
Status CheckReadAlready(const ModelFile& model) {
  const TensorInfo* divisors = model.Find("rope_freqs.weight");
  if (divisors == nullptr) return OkStatus();
  std::vector<uint8_t> bytes(static_cast<size_t>(divisors->stored_bytes()));
  return model.ReadStoredBytes(divisors->name, 0, bytes.size(), bytes.data());
}

std::string FileName(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

// Writes `text` to a new file, where no reader looks yet, and returns the
// descriptor's errors.
Status WriteDraft(const std::string& path, const std::string& text) {
  ::unlink(path.c_str());  // of an earlier process with our pid
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const int fd = ::open(path.c_str(), flags, 0644);
  if (fd < 0) {
    return Unavailable(path, ": cannot be written: ", std::strerror(errno));
  }
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = ::write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote == 0) errno = ENOSPC;
    if (wrote <= 0) break;
    done += static_cast<size_t>(wrote);
  }
  const bool whole = done == text.size() && ::fsync(fd) == 0;
  const int error = errno;
  ::close(fd);
  if (whole) return OkStatus();
  ::unlink(path.c_str());
  return Unavailable(path, ": cannot be written: ", std::strerror(error));
}

}  // namespace

uint64_t TensorSums::sum() const {
  std::string text;
  for (const uint64_t piece : pieces) {
    for (int i = 0; i < 8; ++i) {
      text += static_cast<char>(static_cast<unsigned char>(piece >> (8 * i)));
    }
  }
  return Xxh64(text.data(), text.size());
}

std::string SumToHex(uint64_t sum) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex(kHexDigits, '0');
  for (size_t i = kHexDigits; i-- > 0; sum >>= 4) hex[i] = kDigits[sum & 15];
  return hex;
}

std::string ToText(const WeightSums& sums) {
  std::string text =
      Cat("{\"format\": \"", kFormat, "\", \"model\": \"", sums.model,
          "\",\n \"hash\": \"", kHash, "\", \"piece_bytes\": ", kSumPieceBytes,
          ", \"tensors\": [");
  const char* separator = "\n  ";
  for (const TensorSums& tensor : sums.tensors) {
    text += Cat(separator, "{\"name\": ", DumpJson(tensor.name),
                ", \"file\": ", DumpJson(tensor.file),
                ", \"bytes\": ", tensor.bytes, ", \"sum\": \"",
                SumToHex(tensor.sum()), "\", \"pieces\": \"");
    for (const uint64_t piece : tensor.pieces) text += SumToHex(piece);
    text += "\"}";
    separator = ",\n  ";
  }
  return text + "]}\n";
}

std::string DigestOf(const WeightSums& sums) {
  const std::string text = ToText(sums);
  ModelDigest digest;
  SLUICE_CHECK(EVP_Digest(text.data(), text.size(), digest.bytes.data(),
                          nullptr, EVP_sha256(), nullptr) == 1);
  return digest.Hex();
}

StatusOr<WeightSums> ParseWeightSums(std::string_view text) {
  SLUICE_ASSIGN_OR_RETURN(
      const Json root,
      ParseJson(text, {.max_bytes = kMaxSumsBytes, .max_depth = 8}));
  SLUICE_RETURN_IF_ERROR(CheckHead(root));
  WeightSums sums;
  SLUICE_ASSIGN_OR_RETURN(sums.model, DigestAt(root, "model"));
  for (const Json& json : root["tensors"]) {
    if (!json.is_object()) return InvalidArgument("tensors has no objects");
    auto tensor = ParseTensor(json);
    if (!tensor.ok()) {
      const auto name = TextAt(json, "name");
      return Annotate(tensor.status(), "tensor ",
                      name.ok() ? Quoted(*name) : Cat(sums.tensors.size()));
    }
    sums.tensors.push_back(*std::move(tensor));
  }
  std::sort(
      sums.tensors.begin(), sums.tensors.end(),
      [](const TensorSums& a, const TensorSums& b) { return a.name < b.name; });
  const auto twice =
      std::adjacent_find(sums.tensors.begin(), sums.tensors.end(),
                         [](const TensorSums& a, const TensorSums& b) {
                           return a.name == b.name;
                         });
  if (twice == sums.tensors.end()) return sums;
  return InvalidArgument("tensor ", Quoted(twice->name), " is listed twice");
}

StatusOr<WeightSums> ComputeWeightSums(
    const ModelFile& model, const ModelDigest& digest,
    const std::function<void(uint64_t done, uint64_t total)>& progress) {
  uint64_t total = 0;
  for (const TensorInfo& info : model.tensors()) {
    total += static_cast<uint64_t>(info.stored_bytes());
  }
  WeightSums sums;
  sums.model = digest.Hex();
  uint64_t done = 0;
  const std::unique_ptr<uint8_t[]> piece(new uint8_t[kSumPieceBytes]);
  for (const TensorInfo& info : model.tensors()) {
    TensorSums tensor;
    tensor.name = info.name;
    SLUICE_ASSIGN_OR_RETURN(const std::string file, model.FileOf(info.name));
    tensor.file = FileName(file);
    tensor.bytes = static_cast<uint64_t>(info.stored_bytes());
    for (uint64_t at = 0; at < tensor.bytes; at += kSumPieceBytes) {
      const uint64_t size = std::min(kSumPieceBytes, tensor.bytes - at);
      SLUICE_RETURN_IF_ERROR(
          model.ReadStoredBytes(info.name, at, size, piece.get()));
      tensor.pieces.push_back(Xxh64(piece.get(), size));
      done += size;
      if (progress) progress(done, total);
    }
    sums.tensors.push_back(std::move(tensor));
  }
  return sums;
}

Status WriteWeightSums(const ModelFile& model, const WeightSums& sums) {
  const std::string path = model.sums_path();
  const std::string draft = Cat(path, ".tmp.", ::getpid());
  SLUICE_RETURN_IF_ERROR(WriteDraft(draft, ToText(sums)));
  if (std::rename(draft.c_str(), path.c_str()) == 0) return OkStatus();
  const int error = errno;
  ::unlink(draft.c_str());
  return Unavailable(path, ": cannot be written: ", std::strerror(error));
}

Status UseWeightSums(ModelFile& model, const ModelDigest& digest) {
  const std::string path = model.sums_path();
  if (::access(path.c_str(), F_OK) != 0) {
    LogInfo("weights are not checked: no ", path,
            "; `sluice inspect MODEL --sums` writes it");
    return OkStatus();
  }
  SLUICE_ASSIGN_OR_RETURN(const std::string text,
                          ReadSmallFile(path, kMaxSumsBytes));
  auto sums = ParseWeightSums(text);
  if (!sums.ok()) return Annotate(sums.status(), path);
  SLUICE_RETURN_IF_ERROR(Annotate(CheckList(model, *sums), path));
  model.CheckAgainst(*sums);
  SLUICE_RETURN_IF_ERROR(CheckReadAlready(model));
  SLUICE_ASSIGN_OR_RETURN(const ModelDigest whole, WholeIdentity(model));
  if (sums->model != digest.Hex() && sums->model != whole.Hex()) {
    // A sample of every tensor is in the digest: name the one that differs.
    for (const TensorInfo& info : model.tensors()) {
      uint8_t first = 0;
      const uint64_t size = info.stored_bytes() > 0 ? 1 : 0;
      SLUICE_RETURN_IF_ERROR(model.ReadStoredBytes(info.name, 0, size, &first));
    }
    return InvalidArgument(path, ": is of a model with the digest ",
                           sums->model, ", this one's is ", digest.Hex(),
                           ": its config has changed", kAgain);
  }
  LogInfo("weights are checked against ", path);
  return OkStatus();
}

}  // namespace sluice::weights
