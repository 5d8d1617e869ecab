#ifndef SLUICE_TESTS_SERVICES_CLI_XML_CHECK_H_
#define SLUICE_TESTS_SERVICES_CLI_XML_CHECK_H_

#include <string>
#include <string_view>
#include <vector>

namespace sluice::cli::testing {

// Empty if `xml` is well formed as far as our documents go: one root, tags
// closed in order, attributes quoted, no bare & or < in text. Else what is
// wrong. <style> content is text.
inline std::string XmlProblem(std::string_view xml) {
  std::vector<std::string> open;
  bool had_root = false;
  for (size_t at = 0; at < xml.size();) {
    if (xml[at] != '<') {
      if (xml[at] == '&' && xml.substr(at, 6).find(';') == xml.npos) {
        return "bare & at " + std::to_string(at);
      }
      ++at;
      continue;
    }
    bool quoted = false;
    size_t end = at + 1;
    for (; end < xml.size() && (quoted || xml[end] != '>'); ++end) {
      if (xml[end] == '"') quoted = !quoted;
      if (xml[end] == '<') return "< within a tag at " + std::to_string(at);
    }
    if (end == xml.size()) return "a tag is not closed";
    std::string_view tag = xml.substr(at + 1, end - at - 1);
    at = end + 1;
    if (tag.front() == '/') {
      if (open.empty() || open.back() != tag.substr(1)) {
        return "unexpected </" + std::string(tag.substr(1)) + ">";
      }
      open.pop_back();
      continue;
    }
    if (open.empty() && had_root) return "a second root";
    had_root = true;
    if (tag.back() != '/') {
      open.emplace_back(tag.substr(0, tag.find_first_of(" \n")));
    }
  }
  if (!open.empty()) return "<" + open.back() + "> is not closed";
  return had_root ? "" : "no element";
}

}  // namespace sluice::cli::testing

#endif  // SLUICE_TESTS_SERVICES_CLI_XML_CHECK_H_
