#pragma once
#include <trireme/model.h>
#include <trireme/registry.h>

#include "trireme/ir/builder.h"
#include "trireme/train/registry.h"

namespace trireme {

struct Value::Impl {
  ir::Value value;
};

struct Builder::Impl {
  ir::Builder builder;
};

struct Registry::Impl {
  train::Registry registry;
};

// From public handles to what they stand for, and back.
struct Access {
  static Value wrap(const ir::Value& value) {
    Value handle;
    if (value) handle.impl_ = std::make_shared<Value::Impl>(Value::Impl{value});
    return handle;
  }
  static ir::Value unwrap(const Value& handle) { return handle.impl_ ? handle.impl_->value : ir::Value(); }

  static Builder wrap(const ir::Builder& builder) {
    Builder handle;
    handle.impl_ = std::make_shared<Builder::Impl>(Builder::Impl{builder});
    return handle;
  }
  static const ir::Builder& unwrap(const Builder& handle);

  static const train::Registry& unwrap(const Registry& registry) { return registry.impl_->registry; }
};

// A model of the public kind as the rest of the house knows models.
models::Model adapt(const std::string& family, std::function<Model(const ModelConfig&)> make, Reads reads);

}  // namespace trireme
