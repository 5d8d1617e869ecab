#include "common/tools/hub/hub_model.h"

#include <algorithm>
#include <cstdio>

namespace sluice {
namespace {

constexpr size_t kMaxRepositoryBytes = 96;  // of each part
constexpr size_t kMaxRevisionBytes = 255;
constexpr size_t kMaxPathBytes = 1024;

bool IsAlphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
         (c >= 'a' && c <= 'z');
}

bool IsNameByte(char c) {
  return IsAlphanumeric(c) || c == '-' || c == '_' || c == '.';
}

// The hub's rule for ORG and for NAME; "--" would make a folder ambiguous.
bool IsRepositoryPart(std::string_view part) {
  return !part.empty() && part.size() <= kMaxRepositoryBytes &&
         std::all_of(part.begin(), part.end(), IsNameByte) &&
         part.find("--") == part.npos && part.find("..") == part.npos &&
         IsAlphanumeric(part.back()) && part.front() != '-' &&
         part.front() != '.';
}

bool HasPlainParts(std::string_view path) {
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return true;
}

Status CheckRevision(std::string_view revision) {
  const bool plain = std::all_of(revision.begin(), revision.end(), [](char c) {
    return IsNameByte(c) || c == '/' || c == '+';
  });
  if (plain && revision.size() <= kMaxRevisionBytes &&
      HasPlainParts(revision)) {
    return OkStatus();
  }
  return InvalidArgument("revision '", revision,
                         "' is no branch, tag or commit");
}

}  // namespace

StatusOr<HubModel> ParseHubModel(std::string_view text) {
  HubModel model;
  std::string_view name = text;
  const size_t colon = name.rfind(':');
  if (colon != name.npos) {
    const std::string_view quant = name.substr(colon + 1);
    if (quant.empty() || !std::all_of(quant.begin(), quant.end(), IsNameByte)) {
      return InvalidArgument("'", text, "': '", quant,
                             "' behind the colon is no quantisation of a "
                             "GGUF, such as Q4_K_M");
    }
    model.quant = quant;
    name = name.substr(0, colon);
  }
  const size_t at = name.find('@');
  if (at != name.npos) {
    model.revision = name.substr(at + 1);
    SLUICE_RETURN_IF_ERROR(
        Annotate(CheckRevision(model.revision), "'", text, "'"));
    name = name.substr(0, at);
  }
  const size_t slash = name.find('/');
  if (slash == name.npos || !IsRepositoryPart(name.substr(0, slash)) ||
      !IsRepositoryPart(name.substr(slash + 1))) {
    return InvalidArgument("'", text, "' is no model's name: expected ORG/NAME",
                           "[@REVISION][:QUANT], of letters, digits, '-', "
                           "'_' and '.'");
  }
  model.repository = name;
  return model;
}

bool IsCommit(std::string_view revision) {
  return revision.size() == 40 &&
         std::all_of(revision.begin(), revision.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

Status CheckFilePath(std::string_view path) {
  const bool plain = std::all_of(path.begin(), path.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 32 && c != 127 && c != '\\';
  });
  if (plain && path.size() <= kMaxPathBytes && HasPlainParts(path)) {
    return OkStatus();
  }
  return InvalidArgument("file '", UrlEncoded(path, Slash::kKeep),
                         "': a path that could leave the model's folder");
}

std::string UrlEncoded(std::string_view text, Slash slash) {
  std::string encoded;
  for (const char c : text) {
    if (IsNameByte(c) || c == '~' || (c == '/' && slash == Slash::kKeep)) {
      encoded += c;
      continue;
    }
    char hex[4];
    std::snprintf(hex, sizeof(hex), "%%%02X", static_cast<unsigned char>(c));
    encoded += hex;
  }
  return encoded;
}

}  // namespace sluice
