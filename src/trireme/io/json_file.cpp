#include "trireme/io/json_file.h"

#include <nlohmann/json.hpp>

#include <set>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/core/mapped_file.h"
#include "trireme/io/safetensors_header.h"

namespace trireme::io {
namespace {

// Refuses a key given twice, which the parser would silently let win over the first, and hostile nesting.
class Watch {
 public:
  bool operator()(int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    constexpr int kDeepest = 64;
    if (depth > kDeepest) refuse("it is nested deeper than {} levels", kDeepest);
    if (event == Event::object_start) keys_.emplace_back();
    if (event == Event::object_end) keys_.pop_back();
    if (event == Event::key && !keys_.back().insert(value.get<std::string>()).second)
      refuse("the key {} appears twice", for_message(value.get<std::string>()));
    return true;
  }

 private:
  std::vector<std::set<std::string>> keys_;
};

}  // namespace

nlohmann::json read_json_object(const std::string& path, std::uint64_t most) {
  const MappedFile file(path);
  try {
    const auto bytes = file.bytes();
    if (bytes.size() > most) refuse("{} bytes are more than the {} this file may have", bytes.size(), most);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    nlohmann::json value = nlohmann::json::parse(text, Watch());
    if (!value.is_object()) refuse("must hold a JSON object, not {}", value.type_name());
    return value;
  } catch (const nlohmann::json::parse_error& e) {
    refuse("{}: is not valid JSON: byte {}", path, e.byte);
  } catch (const nlohmann::json::out_of_range&) {
    refuse("{}: holds a number that is too large", path);
  } catch (Error& e) {
    throw e.within(path);
  }
}

}  // namespace trireme::io
