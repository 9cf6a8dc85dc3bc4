#include "trireme/api/settings.h"

#include <algorithm>

#include "trireme/train/config/keys.h"

namespace trireme {
namespace {

using train::Entry;
using train::Raw;

// Values given in code, each for its key. Those of options.def get the rules of a file.
class Settings {
 public:
  std::vector<Entry> entries;

  void set(const char* key, const std::string& value) { entries.push_back({key, Raw{value}}); }
  void set(const char* key, std::int64_t value) { entries.push_back({key, Raw{value}}); }
  void set(const char* key, double value) { entries.push_back({key, Raw{value}}); }
  void set(const char* key, bool value) { entries.push_back({key, Raw{value}}); }
  void set(const char* key, const std::optional<bool>& value) {
    entries.push_back({key, value ? Raw{*value} : Raw{std::string("auto")}});
  }
  void set(const char* key, const std::vector<std::string>& values) { set_list(key, values); }
  void set(const char* key, const std::vector<std::int64_t>& values) { set_list(key, values); }
  void set(const char* key, const std::array<double, 2>& values) { set_list(key, values); }
  void set(const char* key, const std::map<std::string, std::string>& values) {
    Raw::Table items;
    for (const auto& [name, value] : values) items.push_back({name, Raw{value}});
    entries.push_back({key, Raw{items}});
  }

 private:
  void set_list(const char* key, const auto& values) {
    Raw::List items(values.size());
    for (std::size_t i = 0; i < items.size(); ++i) items[i].value = values[i];
    entries.push_back({key, Raw{items}});
  }
};

// Options that a Data says by its kind and files.
constexpr bool names_files(std::string_view option) {
  return option == "text" || option == "tokens" || option == "images";
}

// `data` is a Data. A new option of [data] must become one of its fields.
void add_data(Settings& to, const auto& data) {
#define TRI_OPTION(section, name, Type, initial, rule, meaning)                       \
  static_assert(                                                                      \
      requires { data.name; } || names_files(#name), "Data lacks the option " #name); \
  if constexpr (requires { data.name; }) to.set(#section "." #name, data.name);
#define TRI_CHOICE(section, name, Type, initial, values, meaning) TRI_OPTION(section, name, Type, initial, , meaning)
#define TRI_SECTION_DATA
#include <trireme/options.def>
#undef TRI_OPTION
#undef TRI_CHOICE
  if (data.tokenizer.empty()) std::erase_if(to.entries, [](const Entry& e) { return e.key == "data.tokenizer"; });
  const std::string files = data.files.empty() ? "synthetic" : data.files.front();
  const std::string own = "(made by the program)";
  if (data.kind == Data::Kind::text) to.set("data.text", data.files);
  if (data.kind == Data::Kind::tokens || data.kind == Data::Kind::inputs)
    to.set("data.tokens", data.own ? std::vector{own} : data.files);
  if (data.kind == Data::Kind::images) to.set("data.images", data.own ? own : files);
}

#define TRI_OPTION(section, name, Type, initial, rule, meaning) to.set(#section "." #name, from.name);
#define TRI_CHOICE(section, name, Type, initial, values, meaning) to.set(#section "." #name, from.name);

void add_model(Settings& to, const ModelConfig& from) {
#define TRI_SECTION_MODEL
#include <trireme/options.def>
}

void add_pruning(Settings& to, const PruneOptions& from) {
#define TRI_SECTION_PRUNE
#include <trireme/options.def>
}

void add_distillation(Settings& to, const DistilOptions& from) {
#define TRI_SECTION_DISTIL
#include <trireme/options.def>
}

void add_training(Settings& to, const TrainOptions& from) {
#define TRI_SECTION_TRAIN
#define TRI_SECTION_OUTPUT
#include <trireme/options.def>
  add_pruning(to, from.prune);
  add_distillation(to, from.distil);
}

void add_plan(Settings& to, const Plan& from) {
#define TRI_SECTION_PARALLEL
#define TRI_SECTION_SHARDING
#define TRI_SECTION_MEMORY
#define TRI_SECTION_RUNTIME
#include <trireme/options.def>
}

#undef TRI_OPTION
#undef TRI_CHOICE

// The options as a program names them: fields, and the functions that are given files.
OptionNames public_names() {
  OptionNames names;
  names.text = "text_files";
  names.tokens = "token_files";
  names.images = "image_files";
  names.image = "size";
  return names;
}

}  // namespace

train::Config settings(const Pretrained& from, const Data& data, const TrainOptions& options, const Plan& plan,
                       const models::Families& families) {
  Settings all;
  all.set("init.from", from.folder);
  all.set("model.context", data.context);
  if (data.vocab > 0) all.set("model.vocab", data.vocab);
  add_data(all, data);
  add_training(all, options);
  add_plan(all, plan);
  return train::make_config(all.entries, options.name, families, public_names());
}

train::Config settings(ModelConfig model, const Data& data, const TrainOptions& options, const Plan& plan,
                       const models::Families& families) {
  model.context = data.context;
  model.vocab = data.vocab;
  model.image = data.image;
  model.channels = data.channels;
  model.classes = data.classes;
  Settings all;
  add_model(all, model);
  // Image files say what images they hold; a key that is given would be held against them.
  if (data.kind == Data::Kind::images && !data.own && !data.files.empty())
    std::erase_if(all.entries, [](const Entry& e) {
      return e.key == "model.image" || e.key == "model.channels" || e.key == "model.classes";
    });
  add_data(all, data);
  add_training(all, options);
  add_plan(all, plan);
  return train::make_config(all.entries, model.family, families, public_names());
}

}  // namespace trireme
