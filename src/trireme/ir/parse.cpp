#include <charconv>
#include <limits>
#include <unordered_map>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/ir/print.h"

namespace trireme::ir {
namespace {

// One line of text, taken apart from the left. Every failure says what was expected.
class Line {
 public:
  explicit Line(std::string_view text) : rest_(text) { skip(); }

  bool done() const { return rest_.empty(); }

  bool accept(std::string_view token) {
    if (!rest_.starts_with(token)) return false;
    if (name_character(token.back()) && rest_.size() > token.size() && name_character(rest_[token.size()]))
      return false;
    rest_.remove_prefix(token.size());
    skip();
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail("expected '{}' before '{}'", token, near());
  }

  // A name; ':' belongs to it when a name character follows ("ln1:2").
  std::string word(const char* what) {
    std::size_t n = 0;
    while (n < rest_.size() &&
           (name_character(rest_[n]) || (rest_[n] == ':' && n + 1 < rest_.size() && name_character(rest_[n + 1]))))
      ++n;
    if (n == 0) fail("expected {} before '{}'", what, near());
    std::string out(rest_.substr(0, n));
    rest_.remove_prefix(n);
    skip();
    return out;
  }

  std::string quoted() {
    if (rest_.empty() || rest_.front() != '"') fail("expected a quoted text before '{}'", near());
    std::string out;
    for (std::size_t i = 1; i < rest_.size(); ++i) {
      if (rest_[i] == '"') {
        rest_.remove_prefix(i + 1);
        skip();
        return out;
      }
      if (rest_[i] == '\\' && i + 1 < rest_.size()) {
        ++i;
        out += rest_[i] == 'n' ? '\n' : rest_[i];
      } else {
        out += rest_[i];
      }
    }
    fail("a quoted text does not end");
  }

  std::int64_t integer() {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) fail("expected a whole number before '{}'", near());
    skip_to(end);
    return value;
  }

  // A whole number of at least 0 that fits an int.
  int count() {
    const std::int64_t value = integer();
    if (value < 0 || value > std::numeric_limits<int>::max()) fail("{} is out of range", value);
    return static_cast<int>(value);
  }

  double real() {
    double value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) fail("expected a number before '{}'", near());
    skip_to(end);
    return value;
  }

  std::vector<std::int64_t> integers() {
    std::vector<std::int64_t> out;
    expect("[");
    if (accept("]")) return out;
    do out.push_back(integer());
    while (accept(","));
    expect("]");
    return out;
  }

  Attribute attribute() {
    if (accept("true")) return true;
    if (accept("false")) return false;
    if (!rest_.empty() && rest_.front() == '"') return quoted();
    if (!rest_.empty() && rest_.front() == '[') return integers();
    const std::size_t end = rest_.find_first_of(",}) \t");
    const std::string_view number = rest_.substr(0, end);
    if (number.find_first_of(".en") != std::string_view::npos) return real();
    return integer();
  }

  TensorType type() {
    const std::size_t bracket = rest_.find('[');
    const std::string_view dtype_name = rest_.substr(0, bracket);
    const auto dtype = parse_dtype(dtype_name);
    if (bracket == std::string_view::npos || !dtype) fail("expected a type such as f32[4,8] before '{}'", near());
    rest_.remove_prefix(bracket);
    const TensorType result{*dtype, shape()};
    check_extents(result);
    return result;
  }

  Shape shape() {
    const std::vector<std::int64_t> dims = integers();
    if (dims.size() > Shape::kMaxRank) fail("a shape has at most {} dimensions, got {}", Shape::kMaxRank, dims.size());
    return Shape(dims);
  }

  std::string near() const { return rest_.empty() ? "the end of the line" : std::string(rest_.substr(0, 24)); }

 private:
  void skip() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t' || rest_.front() == '\r'))
      rest_.remove_prefix(1);
  }
  void skip_to(const char* end) {
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    skip();
  }

  std::string_view rest_;
};

template <class Enum>
Enum parse_name(const std::string& text, const char* what, int count) {
  for (int i = 0; i < count; ++i)
    if (text == name_of(static_cast<Enum>(i))) return static_cast<Enum>(i);
  fail("'{}' is not a {}", text, what);
}

class Parser {
 public:
  Parser(std::string_view text, const Registry& registry) : text_(text) { module_.registry = &registry; }

  Module run() {
    try {
      parse_lines();
    } catch (Error& e) {
      throw e.within(fmt::format("line {}", line_number_));
    }
    return std::move(module_);
  }

 private:
  // Blank lines and lines that start with "//" are skipped. False at the end of the text.
  bool next(std::string_view& line) {
    while (!text_.empty()) {
      const std::size_t end = text_.find('\n');
      line = text_.substr(0, end);
      text_.remove_prefix(end == std::string_view::npos ? text_.size() : end + 1);
      ++line_number_;
      const std::size_t first = line.find_first_not_of(" \t\r");
      if (first != std::string_view::npos && !line.substr(first).starts_with("//")) return true;
    }
    return false;
  }

  void parse_lines() {
    std::string_view text;
    bool opened = false;
    bool closed = false;
    while (next(text)) {
      Line line(text);
      if (closed) fail("nothing may follow the module's closing brace");
      if (!opened) {
        line.expect("module");
        line.expect("{");
        opened = true;
      } else if (graph_ != nullptr) {
        graph_line(line);
      } else if (line.accept("}")) {
        closed = true;
      } else if (line.accept("mesh")) {
        module_.mesh = parse_mesh(line.quoted());
      } else if (line.accept("state")) {
        state_line(line);
      } else if (line.accept("graph")) {
        graph_ = &module_.add_graph(line.word("the graph's name"));
        names_.clear();
        line.expect("{");
      } else {
        fail("expected state, graph, mesh or '}}' before '{}'", line.near());
      }
      if (!line.done()) fail("unexpected '{}'", line.near());
    }
    if (!closed) fail("the module does not end with '}}'");
  }

  void state_line(Line& line) {
    State state;
    line.expect("@");
    state.name = line.word("the state's name");
    line.expect(":");
    state.type = line.type();
    while (!line.done()) {
      if (line.accept("category="))
        state.category = parse_name<Category>(line.word("a category"), "category", 6);
      else if (line.accept("init="))
        state.init = init(line);
      else if (line.accept("trained"))
        state.trained = true;
      else if (line.accept("decayed"))
        state.decayed = true;
      else if (line.accept("unsaved"))
        state.saved = false;
      else if (line.accept("sparse"))
        state.sparse = true;
      else if (line.accept("step_local"))
        state.step_local = true;
      else if (line.accept("derived_from=@"))
        state.derived_from = line.word("a state's name");
      else if (line.accept("tier="))
        state.tier = line.count();
      else if (line.accept("whole="))
        state.whole = line.shape();
      else if (line.accept("block="))
        state.block = line.shape();
      else if (line.accept("rows="))
        state.row_axes = split(line.quoted(), '+');
      else if (line.accept("first_row="))
        state.first_row = line.integer();
      else if (line.accept("room="))
        state.room = line.integer();
      else if (line.accept("sharding="))
        state.sharding = parse_sharding(line.quoted());
      else
        fail("unexpected '{}' after the state's type", line.near());
    }
    module_.add_state(std::move(state));
  }

  static Init init(Line& line) {
    if (line.accept("zeros")) return {};
    if (line.accept("derived")) return {Init::Kind::derived, 0};
    Init result;
    if (line.accept("constant("))
      result.kind = Init::Kind::constant;
    else if (line.accept("normal("))
      result.kind = Init::Kind::normal;
    else if (line.accept("uniform("))
      result.kind = Init::Kind::uniform;
    else
      fail("expected zeros, constant(x), normal(x), uniform(x) or derived before '{}'", line.near());
    result.a = line.real();
    line.expect(")");
    return result;
  }

  void graph_line(Line& line) {
    if (line.accept("}")) {
      graph_ = nullptr;
    } else if (line.accept("input")) {
      line.expect("%");
      const std::string name = line.word("the input's name");
      line.expect(":");
      const ValueId id = graph_->add_input(name, line.type());
      names_.emplace(name, id);
      shardings(line, {id});
    } else if (line.accept("write")) {
      const bool add = line.accept("add");
      if (!add) line.expect("set");
      line.expect("@");
      const StateId state = find_state(line.word("a state's name"));
      line.expect("=");
      graph_->writes.push_back({state, operand(line), add ? Write::Mode::add : Write::Mode::set});
    } else if (line.accept("output")) {
      const std::string name = line.word("the output's name");
      line.expect("=");
      graph_->outputs.push_back({name, operand(line)});
    } else {
      node_line(line);
    }
  }

  StateId find_state(const std::string& name) const {
    const StateId id = module_.find_state(name);
    if (id == kNone) fail("there is no state '@{}'", name);
    return id;
  }

  ValueId operand(Line& line) {
    if (line.accept("_")) return kNone;
    if (line.accept("@")) return graph_->read(module_, find_state(line.word("a state's name")));
    line.expect("%");
    const std::string name = line.word("a value's name");
    const auto found = names_.find(name);
    if (found == names_.end()) fail("'%{}' is read before it is made", name);
    return found->second;
  }

  void node_line(Line& line) {
    std::vector<std::string> names;
    do {
      line.expect("%");
      names.push_back(line.word("a value's name"));
    } while (line.accept(","));
    line.expect("=");
    const OpDef& op = module_.registry->at(line.word("an op's name"));
    std::vector<ValueId> inputs;
    Attributes attributes;
    line.expect("(");
    if (!line.accept(")")) {
      do inputs.push_back(operand(line));
      while (line.accept(","));
      line.expect(")");
    }
    if (line.accept("{")) {
      do {
        std::string name = line.word("an attribute's name");
        if (attributes.find(name) != nullptr) fail("attribute '{}' is given twice", name);
        line.expect("=");
        attributes.set(std::move(name), line.attribute());
      } while (line.accept(","));
      line.expect("}");
    }
    // The op checks operands and attributes and infers the outputs, which must be what the text says.
    Node made = graph_->make_node(op, std::move(inputs), std::move(attributes), names.front(), Phase::forward, 0);
    line.expect(":");
    std::vector<TensorType> types;
    do types.push_back(line.type());
    while (line.accept(","));
    if (names.size() != made.outputs.size() || types.size() != made.outputs.size())
      fail("{} has {} outputs, the line names {} and types {}", op.name, made.outputs.size(), names.size(),
           types.size());
    for (std::size_t i = 0; i < names.size(); ++i) {
      const ValueInfo& value = graph_->value(made.outputs[i]);
      if (value.type != types[i])
        fail("output {} of {} is {}, the line says {}", i, op.name, value.type.str(), types[i].str());
      if (!names_.emplace(names[i], made.outputs[i]).second) fail("'%{}' is made twice", names[i]);
    }
    graph_->rename(made.outputs, names);
    if (line.accept("phase=")) made.phase = parse_name<Phase>(line.word("a phase"), "phase", 4);
    if (line.accept("stage=")) made.stage = line.count();
    if (line.accept("barrier")) made.barrier = true;
    if (line.accept("on_host")) made.on_host = true;
    shardings(line, made.outputs);
    graph_->nodes.push_back(std::move(made));
  }

  void shardings(Line& line, const std::vector<ValueId>& ids) {
    while (line.accept("sharding:")) {
      const auto i = static_cast<std::size_t>(line.count());
      if (i >= ids.size()) fail("there is no output {}", i);
      line.expect("=");
      graph_->value(ids[i]).sharding = parse_sharding(line.quoted());
    }
  }

  std::string_view text_;
  int line_number_ = 0;
  Module module_;
  Graph* graph_ = nullptr;
  std::unordered_map<std::string, ValueId> names_;
};

}  // namespace

Module parse(std::string_view text, const Registry& registry) { return Parser(text, registry).run(); }

}  // namespace trireme::ir
