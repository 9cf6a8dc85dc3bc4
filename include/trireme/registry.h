#pragma once
#include <trireme/export.h>
#include <trireme/model.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace trireme {

enum class Reads { tokens, images };

// The model families that configurations may name: those that ship with Trireme, and yours. An ordinary value.
//
//   Registry registry;
//   registry.add("bytelm", [](const ModelConfig& c) { return ByteLM{.width = c.width, .vocab = c.vocab}; });
class TRIREME_API Registry {
 public:
  // Everything that ships with Trireme.
  Registry();
  ~Registry();
  Registry(const Registry& other);
  Registry& operator=(const Registry& other);
  Registry(Registry&& other) noexcept;
  Registry& operator=(Registry&& other) noexcept;

  // `make` gives the model of a configuration, in which the vocabulary is known. Refuses a name that is taken.
  void add(const std::string& family, std::function<Model(const ModelConfig&)> make, Reads reads = Reads::tokens);
  std::vector<std::string> families() const;

 private:
  friend struct Access;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
