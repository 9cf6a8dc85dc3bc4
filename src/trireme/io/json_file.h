#pragma once
#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>

namespace trireme::io {

// The JSON object in a file. Refuses a file that cannot be read, is over `most` bytes, is not valid JSON, is nested
// deeper than any such file is, holds anything but an object, or has a key twice in one object. Every refusal names
// the file.
nlohmann::json read_json_object(const std::string& path, std::uint64_t most = std::uint64_t{64} << 20);

}  // namespace trireme::io
