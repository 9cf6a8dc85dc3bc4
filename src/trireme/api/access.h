#pragma once
#include <trireme/model.h>
#include <trireme/registry.h>

#include <memory>
#include <set>
#include <string>

#include "trireme/ir/builder.h"
#include "trireme/train/registry.h"

namespace trireme {

struct Value::Impl {
  ir::Value value;
};

struct Builder::Impl {
  ir::Builder builder;
  std::shared_ptr<std::set<std::string>> taken;  // scopes in which a layer has made its parameters
  bool shared = false;
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
    return wrap({builder, std::make_shared<std::set<std::string>>(), false});
  }
  static Builder wrap(Builder::Impl impl) {
    Builder handle;
    handle.impl_ = std::make_shared<Builder::Impl>(std::move(impl));
    return handle;
  }
  // Another place in the same model.
  static Builder moved(const Builder& from, const ir::Builder& to) {
    return wrap({to, from.impl_->taken, from.impl_->shared});
  }
  static Builder shared(const Builder& from) { return wrap({from.impl_->builder, from.impl_->taken, true}); }
  // Refuses a scope in which another layer has its parameters.
  static const ir::Builder& take(const Builder& handle, const char* layer);
  // Of a layer that keeps statistics of its own inputs: refuses a shared scope too.
  static const ir::Builder& take_alone(const Builder& handle, const char* layer);
  static const ir::Builder& unwrap(const Builder& handle);

  static const train::Registry& unwrap(const Registry& registry) { return registry.impl_->registry; }
};

// A model of the public kind as the rest of the house knows models.
models::Model adapt(const std::string& family, std::function<Model(const ModelConfig&)> make, Reads reads);

}  // namespace trireme
