// The manifest as JSON and as attributes. Private to this folder.
#pragma once

#include <nlohmann/json.hpp>

#include "io/hdf5/file.hpp"
#include "io/run/manifest.hpp"

namespace paceline::io {

using Json = nlohmann::ordered_json;

[[nodiscard]] Json manifest_to_json(const RunManifest& manifest);
/// Throws IoError that names `name` and the key.
[[nodiscard]] RunManifest manifest_of_json(const Json& json, const std::string& name);

/// Writes attributes of the root group: one for each key; "sampling" is JSON text.
void write_manifest_attributes(const h5::File& file, const RunManifest& manifest);
[[nodiscard]] RunManifest read_manifest_attributes(const h5::File& file);

}  // namespace paceline::io
