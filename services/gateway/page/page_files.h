#ifndef SLUICE_SERVICES_GATEWAY_PAGE_PAGE_FILES_H_
#define SLUICE_SERVICES_GATEWAY_PAGE_PAGE_FILES_H_

#include <span>
#include <string_view>

namespace sluice::gateway {

// One file of the page, embedded by the build.
struct PageFile {
  std::string_view path;  // "/" or "/page/NAME"
  std::string_view content_type;
  std::string_view etag;  // quoted, by content
  std::string_view bytes;
};

// Returns all files; they live as long as the process.
std::span<const PageFile> PageFiles();

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_PAGE_PAGE_FILES_H_
