#ifndef SLUICE_COMMON_MODEL_CONFIG_KNOWN_KEYS_H_
#define SLUICE_COMMON_MODEL_CONFIG_KNOWN_KEYS_H_

#include <string_view>

namespace sluice {

// Tables of the keys of model files that no reader of a family asks for. Keys
// that are in no table are reported (config_report.h).

// Whether a key of config.json changes nothing that a stage or the gateway
// computes, or is read by another room.
bool HasNoEffect(std::string_view key);
// Whether a key within rope_scaling or rope_parameters is read, or tells of
// images or of other programs.
bool IsKnownWithinRope(std::string_view key);
// The same as HasNoEffect of a key of a GGUF, without the architecture's name
// (".rope.scaling.type").
bool GgufHasNoEffect(std::string_view key);
// Whether a key of a GGUF, without the architecture's name, changes what a
// model computes: an architecture that does not read it is refused.
bool GgufChangesModel(std::string_view key);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_KNOWN_KEYS_H_
