#ifndef SLUICE_SERVICES_GATEWAY_PAGE_PAGE_FILES_H_
#define SLUICE_SERVICES_GATEWAY_PAGE_PAGE_FILES_H_

#include <span>
#include <string_view>

namespace sluice::gateway {

// One file, embedded by the build.
struct PageFile {
  std::string_view path;  // "/", "/docs", "/page/..."
  std::string_view content_type;
  std::string_view etag;  // quoted, by content
  std::string_view bytes;
};

// Return files that live as long as the process: the page's, and those that
// GET /openapi.json is made from, "/openapi.json" and "/API.md".
std::span<const PageFile> PageFiles();
std::span<const PageFile> ApiSources();

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_PAGE_PAGE_FILES_H_
