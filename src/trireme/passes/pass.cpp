#include "trireme/passes/pass.h"

#include <algorithm>
#include <chrono>
#include <fstream>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/ir/print.h"
#include "trireme/ir/verify.h"

namespace trireme::passes {
namespace {

void dump(const std::filesystem::path& folder, std::size_t number, const std::string& name, const ir::Module& module) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail("cannot make the folder {}: {}", folder.string(), error.message());
  const std::filesystem::path file = folder / fmt::format("{:02}-{}.txt", number, name);
  std::ofstream out(file);
  out << ir::to_text(module);
  out.close();
  if (!out) fail("cannot write {}", file.string());
}

}  // namespace

std::vector<std::string> Pipeline::names() const {
  std::vector<std::string> all;
  for (const auto& pass : passes_) all.push_back(pass->name());
  return all;
}

void Pipeline::run(ir::Module& module, const Options& options) const {
  const std::vector<std::string> known = names();
  const auto is_disabled = [&](const std::string& name) {
    return std::find(options.disabled.begin(), options.disabled.end(), name) != options.disabled.end();
  };
  std::vector<std::string> optional;
  for (const auto& pass : passes_)
    if (pass->optional()) optional.push_back(pass->name());
  for (const std::string& name : options.disabled)
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      const auto near = nearest(name, optional);
      refuse("there is no pass '{}'; {}", name,
             near ? fmt::format("did you mean '{}'?", *near)
                  : fmt::format("those that can be left out are {}", fmt::join(optional, ", ")));
    }
  for (const auto& pass : passes_)
    if (!pass->optional() && is_disabled(pass->name()))
      refuse("pass '{}' cannot be left out; those that can are {}", pass->name(), fmt::join(optional, ", "));
  const auto place_of = [&](const std::string& name, std::size_t otherwise) {
    if (name.empty()) return otherwise;
    const auto found = std::find(known.begin(), known.end(), name);
    if (found == known.end()) fail("there is no pass '{}' here", name);
    return static_cast<std::size_t>(found - known.begin());
  };
  ir::verify(module);
  if (!options.dump.empty()) dump(options.dump, 0, "model", module);
  for (std::size_t i = place_of(options.from, 0); i < place_of(options.until, passes_.size()); ++i) {
    const std::string& name = known[i];
    if (is_disabled(name)) continue;
    const auto start = std::chrono::steady_clock::now();
    try {
      passes_[i]->run(module);
      ir::verify(module);
    } catch (Error& e) {
      if (e.kind() == Error::Kind::request) throw;  // about the model or the plan, whichever pass finds it
      throw e.within("pass " + name);
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!options.dump.empty()) dump(options.dump, i + 1, name, module);
    if (options.on_pass) options.on_pass(name, seconds);
  }
}

}  // namespace trireme::passes
