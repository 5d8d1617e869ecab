#include "common/otlp/otlp_options.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "common/base/cat.h"

namespace sluice::otlp {
namespace {

constexpr std::string_view kEndpoint = "OTEL_EXPORTER_OTLP_ENDPOINT";
constexpr std::string_view kDefaultPort = ":4317";
constexpr double kMaxMillis = 3'600'000;

// The variables, of which the one for traces alone comes first.
class Variables {
 public:
  explicit Variables(const Environment& environment)
      : environment_(environment) {}

  // Empty: not set.
  std::string Get(std::string_view name) const {
    const char* value = environment_(std::string(name).c_str());
    return value == nullptr ? "" : value;
  }
  // Of OTEL_EXPORTER_OTLP_TRACES_NAME and OTEL_EXPORTER_OTLP_NAME.
  std::string Exporter(std::string_view name) const {
    const std::string own = Get(Cat("OTEL_EXPORTER_OTLP_TRACES_", name));
    return own.empty() ? Get(Cat("OTEL_EXPORTER_OTLP_", name)) : own;
  }

 private:
  const Environment& environment_;
};

StatusOr<double> ParseNumber(std::string_view name, const std::string& text,
                             double low, double high) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec == std::errc() && parsed.ptr == end && value >= low &&
      value <= high) {
    return value;
  }
  return InvalidArgument(name, " must be a number from ", low, " to ", high,
                         ", got '", text, "'");
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Returns `text` without its percent-escapes.
std::string Unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '%' && i + 2 < text.size() &&
                        HexDigit(text[i + 1]) >= 0 &&
                        HexDigit(text[i + 2]) >= 0;
    if (!escape) {
      out += text[i];
      continue;
    }
    out +=
        static_cast<char>(16 * HexDigit(text[i + 1]) + HexDigit(text[i + 2]));
    i += 2;
  }
  return out;
}

std::string_view WithoutSpace(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

// Returns the pairs of "name=value,name=value".
StatusOr<std::vector<std::pair<std::string, std::string>>> ParsePairs(
    std::string_view name, std::string_view text) {
  std::vector<std::pair<std::string, std::string>> pairs;
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), pair.size() + 1));
    if (WithoutSpace(pair).empty()) continue;
    const size_t equals = pair.find('=');
    const std::string_view key = WithoutSpace(pair.substr(0, equals));
    if (equals == pair.npos || key.empty()) {
      return InvalidArgument(name, ": entry ", pairs.size() + 1,
                             " is no name=value");
    }
    pairs.emplace_back(Unescaped(key),
                       Unescaped(WithoutSpace(pair.substr(equals + 1))));
  }
  return pairs;
}

// What gRPC takes as metadata; another name or value would end the process.
Status CheckHeader(std::pair<std::string, std::string>& header) {
  for (char& c : header.first) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    const bool fits = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                      c == '-' || c == '_' || c == '.';
    if (!fits) {
      return InvalidArgument(
          "OTEL_EXPORTER_OTLP_HEADERS: a name has letters, digits, - _ .");
    }
  }
  const bool plain = std::all_of(header.second.begin(), header.second.end(),
                                 [](char c) { return c >= ' ' && c <= '~'; });
  if (plain && !header.first.ends_with("-bin") &&
      !header.first.starts_with("grpc-")) {
    return OkStatus();
  }
  return InvalidArgument("OTEL_EXPORTER_OTLP_HEADERS: ", header.first,
                         " must have a value of printable ASCII, and a name "
                         "that does not end in -bin or begin with grpc-");
}

// "http://host:4317", "https://host", or "host:4317".
Status ReadEndpoint(const Variables& variables, std::string_view endpoint,
                    OtlpOptions& out) {
  std::string_view rest = endpoint;
  out.tls = rest.starts_with("https://");
  if (const size_t scheme = rest.find("://"); scheme != rest.npos) {
    if (!out.tls && !rest.starts_with("http://")) {
      return InvalidArgument(kEndpoint,
                             " must begin with http:// or https://, got '",
                             endpoint, "'");
    }
    rest.remove_prefix(scheme + 3);
  } else {
    out.tls = variables.Exporter("INSECURE") != "true";
  }
  rest = rest.substr(0, rest.find('/'));
  if (rest.empty() || rest.find_first_of("@?# ") != rest.npos) {
    return InvalidArgument(kEndpoint, " must be http://HOST:PORT, got '",
                           endpoint, "'");
  }
  const size_t colon = rest.rfind(':');
  const bool has_port =
      colon != rest.npos && rest.find(']', colon) == rest.npos;
  out.target = Cat(rest, has_port ? "" : kDefaultPort);
  return OkStatus();
}

Status ReadExporter(const Variables& variables, OtlpOptions& out) {
  const std::string protocol = variables.Exporter("PROTOCOL");
  if (!protocol.empty() && protocol != "grpc") {
    return InvalidArgument(
        "OTEL_EXPORTER_OTLP_PROTOCOL must be grpc, the only one built, got '",
        protocol, "'");
  }
  const std::string compression = variables.Exporter("COMPRESSION");
  out.gzip = compression == "gzip";
  if (!out.gzip && !compression.empty() && compression != "none") {
    return InvalidArgument(
        "OTEL_EXPORTER_OTLP_COMPRESSION must be gzip or none, got '",
        compression, "'");
  }
  out.authority = variables.Exporter("CERTIFICATE");
  out.certificate = variables.Exporter("CLIENT_CERTIFICATE");
  out.key = variables.Exporter("CLIENT_KEY");
  if (out.certificate.empty() != out.key.empty()) {
    return InvalidArgument(
        "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and "
        "OTEL_EXPORTER_OTLP_CLIENT_KEY are needed together");
  }
  if (const std::string timeout = variables.Exporter("TIMEOUT");
      !timeout.empty()) {
    SLUICE_ASSIGN_OR_RETURN(
        const double millis,
        ParseNumber("OTEL_EXPORTER_OTLP_TIMEOUT", timeout, 1, kMaxMillis));
    out.timeout = std::chrono::milliseconds(static_cast<int64_t>(millis));
  }
  SLUICE_ASSIGN_OR_RETURN(
      out.headers,
      ParsePairs("OTEL_EXPORTER_OTLP_HEADERS", variables.Exporter("HEADERS")));
  for (auto& header : out.headers) SLUICE_RETURN_IF_ERROR(CheckHeader(header));
  return OkStatus();
}

Status ReadSampler(const Variables& variables, SamplerOptions& out) {
  constexpr std::string_view kByParent = "parentbased_";
  const std::string name = variables.Get("OTEL_TRACES_SAMPLER");
  if (name.empty()) return OkStatus();
  std::string_view root = name;
  out.by_parent = root.starts_with(kByParent);
  if (out.by_parent) root.remove_prefix(kByParent.size());
  if (root == "always_on") return OkStatus();
  if (root == "always_off") {
    out.root = SamplerOptions::kNever;
    return OkStatus();
  }
  if (root != "traceidratio") {
    return InvalidArgument(
        "OTEL_TRACES_SAMPLER must be always_on, always_off or traceidratio, "
        "or one of these behind parentbased_, got '",
        name, "'");
  }
  out.root = SamplerOptions::kRatio;
  const std::string ratio = variables.Get("OTEL_TRACES_SAMPLER_ARG");
  if (ratio.empty()) return OkStatus();
  SLUICE_ASSIGN_OR_RETURN(out.ratio,
                          ParseNumber("OTEL_TRACES_SAMPLER_ARG", ratio, 0, 1));
  return OkStatus();
}

Status ReadQueue(const Variables& variables, OtlpOptions& out) {
  if (const auto delay = variables.Get("OTEL_BSP_SCHEDULE_DELAY");
      !delay.empty()) {
    SLUICE_ASSIGN_OR_RETURN(
        const double millis,
        ParseNumber("OTEL_BSP_SCHEDULE_DELAY", delay, 0, kMaxMillis));
    out.delay = std::chrono::milliseconds(static_cast<int64_t>(millis));
  }
  return OkStatus();
}

Status ReadResource(const Variables& variables, OtlpOptions& out) {
  SLUICE_ASSIGN_OR_RETURN(
      out.resource, ParsePairs("OTEL_RESOURCE_ATTRIBUTES",
                               variables.Get("OTEL_RESOURCE_ATTRIBUTES")));
  std::string name = variables.Get("OTEL_SERVICE_NAME");
  const auto has_name = [](const auto& pair) {
    return pair.first == "service.name";
  };
  if (name.empty() &&
      std::any_of(out.resource.begin(), out.resource.end(), has_name)) {
    return OkStatus();
  }
  if (name.empty()) name = "sluice-gateway";
  std::erase_if(out.resource, has_name);
  out.resource.emplace_back("service.name", std::move(name));
  return OkStatus();
}

}  // namespace

StatusOr<std::optional<OtlpOptions>> OptionsFromEnvironment(
    const Environment& environment) {
  const Variables variables(environment);
  const std::string endpoint = variables.Exporter("ENDPOINT");
  const std::string exporter = variables.Get("OTEL_TRACES_EXPORTER");
  if (endpoint.empty() || exporter == "none" ||
      variables.Get("OTEL_SDK_DISABLED") == "true") {
    return std::optional<OtlpOptions>();
  }
  if (!exporter.empty() && exporter != "otlp") {
    return InvalidArgument("OTEL_TRACES_EXPORTER must be otlp or none, got '",
                           exporter, "'");
  }
  OtlpOptions options;
  SLUICE_RETURN_IF_ERROR(ReadEndpoint(variables, endpoint, options));
  SLUICE_RETURN_IF_ERROR(ReadExporter(variables, options));
  SLUICE_RETURN_IF_ERROR(ReadSampler(variables, options.sampler));
  SLUICE_RETURN_IF_ERROR(ReadQueue(variables, options));
  SLUICE_RETURN_IF_ERROR(ReadResource(variables, options));
  return std::optional<OtlpOptions>(std::move(options));
}

}  // namespace sluice::otlp
