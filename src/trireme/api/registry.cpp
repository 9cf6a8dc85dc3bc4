#include <trireme/registry.h>

#include "trireme/api/access.h"

namespace trireme {

Registry::Registry() : impl_(std::make_unique<Impl>()) {}
Registry::~Registry() = default;
Registry::Registry(const Registry& other) : impl_(std::make_unique<Impl>(*other.impl_)) {}
Registry& Registry::operator=(const Registry& other) {
  *impl_ = *other.impl_;
  return *this;
}
Registry::Registry(Registry&& other) noexcept = default;
Registry& Registry::operator=(Registry&& other) noexcept = default;

void Registry::add(const std::string& family, std::function<Model(const ModelConfig&)> make, Reads reads) {
  impl_->registry.models.add(adapt(family, std::move(make), reads));
}

std::vector<std::string> Registry::families() const { return impl_->registry.models.names(); }

}  // namespace trireme
