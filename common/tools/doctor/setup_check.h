#ifndef SLUICE_COMMON_TOOLS_DOCTOR_SETUP_CHECK_H_
#define SLUICE_COMMON_TOOLS_DOCTOR_SETUP_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/tools/doctor/finding.h"

// What a cluster's start needs of this machine beside memory and CPUs.
namespace sluice::doctor {

// Are the programs that deploy/local/up builds with in `path`, a list of
// folders as PATH?
Findings CheckTools(const std::string& path);

// Can the model be opened and read, is it built, and does it fit in
// `available_memory`?
Findings CheckModel(const std::string& model, uint64_t available_memory);

// Is there room for packed weights and downloads in the file system of
// `folder`, or of the next folder above that exists?
Finding CheckDisk(const std::string& folder);

// What packed weights take in these folders (packed_store.h).
Finding CheckPacked(const std::vector<std::string>& folders);

// Can a process listen on `port` of loopback? Else names the process that does,
// where /proc tells it.
Finding CheckPort(int port);

// PEM files of --tls-cert, --tls-key and --tls-ca; empty: not given.
struct TlsFiles {
  std::string certificate, key, authority;
};
// Are all files there, valid at `now` (Unix time), and does the key fit the
// certificate, the certificate the authority? Nothing for no files.
Findings CheckTls(const TlsFiles& files, double now);

}  // namespace sluice::doctor

#endif  // SLUICE_COMMON_TOOLS_DOCTOR_SETUP_CHECK_H_
