#include "common/tools/hub/hub_protocol.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "common/base/json.h"
#include "common/base/json_member.h"

namespace sluice {
namespace {

constexpr size_t kMaxListingBytes = 32 << 20;
constexpr size_t kMaxEtagBytes = 128;

// A blob's name becomes a file's: no path, no odd characters.
bool IsBlobName(const std::string& etag) {
  return !etag.empty() && etag.size() <= kMaxEtagBytes && etag[0] != '.' &&
         std::all_of(etag.begin(), etag.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                  (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.';
         });
}

// W/"abc" and "abc" are abc.
std::string PlainEtag(std::string etag) {
  if (etag.starts_with("W/")) etag.erase(0, 2);
  std::erase(etag, '"');
  return etag;
}

Status CheckSize(const HubFile& file) {
  if (file.bytes <= kMaxHubBytes) return OkStatus();
  return InvalidArgument("file '", file.path, "': its size of ", file.bytes,
                         " bytes is above the limit of ", kMaxHubBytes);
}

StatusOr<HubFile> ReadEntry(const Json& entry) {
  HubFile file;
  file.path = FindText(entry, "rfilename");
  SLUICE_RETURN_IF_ERROR(CheckFilePath(file.path));
  const Json* lfs = FindMember(entry, "lfs");
  file.etag = lfs != nullptr ? FindText(*lfs, "sha256") : "";
  if (file.etag.empty() && lfs == nullptr) {
    file.etag = FindText(entry, "blobId");
  }
  const auto bytes = FindInt(lfs != nullptr ? *lfs : entry, "size");
  if (!bytes.has_value() || *bytes < 0) file.etag.clear();
  file.bytes = static_cast<uint64_t>(std::max<int64_t>(0, bytes.value_or(0)));
  SLUICE_RETURN_IF_ERROR(CheckSize(file));
  if (!file.etag.empty() && !IsBlobName(file.etag)) {
    return InvalidArgument("file '", file.path, "': its digest '",
                           UrlEncoded(file.etag, Slash::kEncode),
                           "' is no file's name");
  }
  return file;
}

}  // namespace

Status HubListing::Add(HubFile file) {
  if (!by_path_.try_emplace(file.path, files_.size()).second) {
    return InvalidArgument("file '", file.path, "' is listed twice");
  }
  files_.push_back(std::move(file));
  return OkStatus();
}

const HubFile* HubListing::Find(const std::string& path) const {
  const auto at = by_path_.find(path);
  return at == by_path_.end() ? nullptr : &files_[at->second];
}

Status Explained(const Status& refused, const HubSettings& settings,
                 const HubModel& model) {
  const std::string& name = model.repository;
  const std::string page = Cat(settings.endpoint, "/", name);
  const std::string said = Message(refused);
  const bool gated = said.find("GatedRepo") != said.npos;
  const char* const no_token = settings.token.empty() ? " HF_TOKEN is not set."
                               : IsPrivateEndpoint(settings.endpoint)
                                   ? ""
                                   : " HF_TOKEN was not sent: "
                                     "HF_ENDPOINT is not encrypted.";
  switch (refused.code()) {
    case StatusCode::kPermissionDenied:
      return MakeStatus(
          refused.code(), name, ": the hub does not let you have it: accept ",
          "its licence at ", page, " with the account of your HF_TOKEN, and ",
          "see that the token may read gated models.", no_token, " (", said,
          ")");
    case StatusCode::kUnauthenticated:
      return MakeStatus(
          refused.code(), name,
          gated ? ": is gated: accept its licence at "
                : ": there is no such model for everyone. If the name is "
                  "right, it is private or gated: accept its licence at ",
          page, ", and set HF_TOKEN to a token of that account.", no_token,
          " (", said, ")");
    case StatusCode::kNotFound:
      return MakeStatus(refused.code(), name, "@", model.revision,
                        ": the hub has no such model, revision or file (", said,
                        ")");
    default:
      return Annotate(refused, name);
  }
}

StatusOr<HubListing> ListHubModel(const HubSettings& settings,
                                  HubClient& client, const HubModel& model) {
  const std::string url =
      Cat(settings.endpoint, "/api/models/", model.repository, "/revision/",
          UrlEncoded(model.revision, Slash::kEncode), "?blobs=true");
  TextReceiver answer(kMaxListingBytes);
  if (auto got = client.Get(url, answer); !got.ok()) {
    return Explained(got, settings, model);
  }
  const auto json = ParseJson(answer.text(), {.max_bytes = kMaxListingBytes});
  if (!json.ok()) return Annotate(json.status(), url);
  HubListing listing;
  listing.commit = FindText(*json, "sha");
  if (!IsCommit(listing.commit)) {
    return InvalidArgument(url, ": the answer's sha '",
                           UrlEncoded(listing.commit, Slash::kEncode),
                           "' is no commit");
  }
  for (const Json& entry : FindList(*json, "siblings")) {
    auto file = ReadEntry(entry);
    if (!file.ok()) return Annotate(file.status(), url);
    const Status added = listing.Add(*std::move(file));
    if (!added.ok()) return Annotate(added, url);
  }
  return listing;
}

std::string FileUrl(const HubSettings& settings, const std::string& repository,
                    const std::string& commit, const std::string& file) {
  return Cat(settings.endpoint, "/", repository, "/resolve/", commit, "/",
             UrlEncoded(file, Slash::kKeep));
}

Status CompleteFile(const HubSettings& settings, HubClient& client,
                    const HubModel& model, const std::string& commit,
                    HubFile& file) {
  if (!file.etag.empty()) return OkStatus();
  const std::string url =
      FileUrl(settings, model.repository, commit, file.path);
  auto headers = client.Head(url);
  if (!headers.ok()) return Explained(headers.status(), settings, model);
  const bool linked = headers->contains("x-linked-etag");
  file.etag = PlainEtag((*headers)[linked ? "x-linked-etag" : "etag"]);
  const std::string& size =
      (*headers)[headers->contains("x-linked-size") ? "x-linked-size"
                                                    : "content-length"];
  const auto [end, failed] =
      std::from_chars(size.data(), size.data() + size.size(), file.bytes);
  if (failed == std::errc::result_out_of_range) {
    return InvalidArgument(url, ": its size of ",
                           UrlEncoded(size, Slash::kEncode),
                           " bytes is above the limit of ", kMaxHubBytes);
  }
  if (failed != std::errc() || end != size.data() + size.size() ||
      !IsBlobName(file.etag)) {
    return InvalidArgument(url, ": the answer tells no size or no etag ('",
                           UrlEncoded(size, Slash::kEncode), "', '",
                           UrlEncoded(file.etag, Slash::kEncode), "')");
  }
  return CheckSize(file);
}

}  // namespace sluice
