#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "common/weights/model_contents.h"

namespace sluice::weights {
namespace {

// "-%05d-of-%05d.gguf" after the prefix of a split set's files.
std::string SplitSuffix(int64_t number, int64_t count) {
  char suffix[64];
  std::snprintf(suffix, sizeof(suffix), "-%05lld-of-%05lld.gguf",
                static_cast<long long>(number), static_cast<long long>(count));
  return suffix;
}

StatusOr<int64_t> IntOr(const GgufMetadata& metadata, std::string_view key,
                        int64_t absent) {
  if (!metadata.Has(key)) return absent;
  return metadata.Int(key);
}

// Opens one file of the model and appends its tensors. Returns its metadata.
StatusOr<GgufMetadata> AddFile(const std::string& path,
                               ModelContents& contents) {
  SLUICE_ASSIGN_OR_RETURN(auto file, RandomAccessFile::Open(path));
  SLUICE_ASSIGN_OR_RETURN(GgufHeader header, ReadGgufHeader(*file));
  for (GgufTensor& tensor : header.tensors) {
    LocatedTensor located;
    located.info = {std::move(tensor.name), tensor.dtype,
                    std::move(tensor.shape)};
    located.file = file.get();
    located.offset = tensor.offset;
    contents.tensors.push_back(std::move(located));
  }
  contents.files.push_back(std::move(file));
  return std::move(header.metadata);
}

// Adds files 2 to N of the set whose first file is open.
Status AddSplits(const std::string& path, ModelContents& contents) {
  const GgufMetadata& first = *contents.gguf;
  SLUICE_ASSIGN_OR_RETURN(const int64_t count, IntOr(first, "split.count", 1));
  SLUICE_ASSIGN_OR_RETURN(const int64_t number, IntOr(first, "split.no", 0));
  if (count <= 1) return OkStatus();
  const std::string suffix = SplitSuffix(1, count);
  if (number != 0) {
    return InvalidArgument(path, ": is file ", number + 1, " of ", count,
                           " of a split model; open the one that ends in ",
                           suffix);
  }
  if (count > 99'999 || !path.ends_with(suffix)) {
    return InvalidArgument(path, ": split.count is ", count,
                           ", so its name must end in ", suffix);
  }
  const std::string prefix = path.substr(0, path.size() - suffix.size());
  for (int64_t i = 1; i < count; ++i) {
    const std::string next = prefix + SplitSuffix(i + 1, count);
    SLUICE_ASSIGN_OR_RETURN(const GgufMetadata metadata,
                            AddFile(next, contents));
    SLUICE_ASSIGN_OR_RETURN(const int64_t its_number,
                            IntOr(metadata, "split.no", -1));
    SLUICE_ASSIGN_OR_RETURN(const int64_t its_count,
                            IntOr(metadata, "split.count", -1));
    if (its_number != i || its_count != count) {
      return InvalidArgument(next, ": split.no ", its_number, " of ", its_count,
                             ", expected ", i, " of ", count);
    }
  }
  const auto total = static_cast<int64_t>(contents.tensors.size());
  SLUICE_ASSIGN_OR_RETURN(const int64_t declared,
                          IntOr(first, "split.tensors.count", total));
  if (declared != total) {
    return InvalidArgument(path, ": split.tensors.count is ", declared,
                           ", the files have ", total);
  }
  return OkStatus();
}

}  // namespace

StatusOr<ModelContents> OpenGguf(const std::string& path,
                                 const GgufTranslator& translate) {
  ModelContents contents;
  contents.path = path;
  SLUICE_ASSIGN_OR_RETURN(contents.gguf, AddFile(path, contents));
  SLUICE_RETURN_IF_ERROR(AddSplits(path, contents));
  if (!translate) return contents;
  SLUICE_RETURN_IF_ERROR(Annotate(translate(contents), path));
  return contents;
}

}  // namespace sluice::weights
