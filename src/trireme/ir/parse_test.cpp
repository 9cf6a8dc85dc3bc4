#include <gtest/gtest.h>

#include "support/probe_ops.h"
#include "trireme/core/error.h"
#include "trireme/core/rng.h"
#include "trireme/ir/print.h"
#include "trireme/ir/verify.h"

namespace trireme::ir {
namespace {

const Registry& registry() {
  static const Registry instance = testing::probe_registry();
  return instance;
}

std::string message_of(const std::string& text) {
  try {
    parse(text, registry());
  } catch (const Error& e) {
    return e.message();
  }
  return "parsed";
}

// The line is put on line 6, after an input %x : f32[2,3], an integer input %i and a state @w : f32[4,3].
std::string in_graph(const std::string& line) {
  return "module {\n  state @w : f32[4,3]\n  graph g {\n    input %x : f32[2,3]\n    input %i : i32[2]\n" + line +
         "\n  }\n}\n";
}

struct Bad {
  std::string text;
  std::string message;
};

TEST(Parse, MalformedModules) {
  const std::vector<Bad> cases = {
      {"", "line 0: the module does not end with '}'"},
      {"modul {\n}\n", "line 1: expected 'module' before 'modul {'"},
      {"module\n", "line 1: expected '{' before 'the end of the line'"},
      {"module {\n", "line 1: the module does not end with '}'"},
      {"module {\n}\nmore\n", "line 3: nothing may follow the module's closing brace"},
      {"module {\n} x\n", "line 2: unexpected 'x'"},
      {"module {\n  stat @w : f32[2]\n}\n", "line 2: expected state, graph, mesh or '}' before 'stat @w : f32[2]'"},
      {"module {\n  mesh dp=2\n}\n", "line 2: expected a quoted text before 'dp=2'"},
      {"module {\n  mesh \"dp=2\n}\n", "line 2: a quoted text does not end"},
      {"module {\n  mesh \"dp=0\"\n}\n", "line 2: mesh axis dp must be a whole number of at least 1, got '0'"},
      {"module {\n  state w : f32[2]\n}\n", "line 2: expected '@' before 'w : f32[2]'"},
      {"module {\n  state @ : f32[2]\n}\n", "line 2: expected the state's name before ': f32[2]'"},
      {"module {\n  state @w f32[2]\n}\n", "line 2: expected ':' before 'f32[2]'"},
      {"module {\n  state @w : f31[2]\n}\n", "line 2: expected a type such as f32[4,8] before 'f31[2]'"},
      {"module {\n  state @w : f32\n}\n", "line 2: expected a type such as f32[4,8] before 'f32'"},
      {"module {\n  state @w : f32[2\n}\n", "line 2: expected ']' before 'the end of the line'"},
      {"module {\n  state @w : f32[-2]\n}\n", "line 2: extents [-2] are out of range"},
      {"module {\n  state @w : f32[4294967296,4294967296,4294967296]\n}\n",
       "line 2: extents [4294967296,4294967296,4294967296] are out of range"},
      {"module {\n  state @w : f32[99999999999999999999]\n}\n",
       "line 2: expected a whole number before '99999999999999999999]'"},
      {"module {\n  state @w : f32[1,1,1,1,1,1,1,1,1]\n}\n", "line 2: a shape has at most 8 dimensions, got 9"},
      {"module {\n  state @w : f32[2] category=food\n}\n", "line 2: 'food' is not a category"},
      {"module {\n  state @w : f32[2] init=normal\n}\n",
       "line 2: expected zeros, constant(x), normal(x), uniform(x) or derived before 'normal'"},
      {"module {\n  state @w : f32[2] init=normal(x)\n}\n", "line 2: expected a number before 'x)'"},
      {"module {\n  state @w : f32[2] init=constant(nan)\n}\n",
       "line 2: state variable 'w' starts with a value that is not a number"},
      {"module {\n  state @w : f32[2] tier=9999999999\n}\n", "line 2: 9999999999 is out of range"},
      {"module {\n  state @w : f32[2] tier=-1\n}\n", "line 2: -1 is out of range"},
      {"module {\n  state @w : f32[2] untrained\n}\n", "line 2: unexpected 'untrained' after the state's type"},
      {"module {\n  state @w : f32[2] sharding=\"[dp,,tp]\"\n}\n",
       "line 2: '[dp,,tp]' is not a sharding; expected something like [dp,_,tp+h] partial(sum:tp)"},
      {"module {\n  state @w : f32[2]\n  state @w : f32[2]\n}\n", "line 3: state variable 'w' exists already"},
      {"module {\n  graph g\n  }\n}\n", "line 2: expected '{' before 'the end of the line'"},
      {"module {\n  graph g {\n  }\n  graph g {\n  }\n}\n", "line 4: the module has a graph 'g' already"},
      {"module {\n  graph g {\n}\n", "line 3: the module does not end with '}'"},
  };
  for (const Bad& bad : cases) EXPECT_EQ(message_of(bad.text), bad.message) << bad.text;
}

TEST(Parse, MalformedGraphLines) {
  const std::vector<Bad> cases = {
      {"nonsense", "expected '%' before 'nonsense'"},
      {"%y relu(%x) : f32[2,3]", "expected '=' before 'relu(%x) : f32[2,3]'"},
      {"%y = rely(%x) : f32[2,3]", "there is no op 'rely'; did you mean 'relu'?"},
      {"%y = relu %x : f32[2,3]", "expected '(' before '%x : f32[2,3]'"},
      {"%y = relu(%x : f32[2,3]", "expected ')' before ': f32[2,3]'"},
      {"%y = relu(%z) : f32[2,3]", "'%z' is read before it is made"},
      {"%y = relu(%y) : f32[2,3]", "'%y' is read before it is made"},
      {"%y = relu(@v) : f32[2,3]", "there is no state '@v'"},
      {"%y = relu() : f32[2,3]", "y: relu takes 1 operands, got 0"},
      {"%y = relu(%x, %x) : f32[2,3]", "y: relu takes 1 operands, got 2"},
      {"%y = relu(_) : f32[2,3]", "y: relu needs its operand 'x'"},
      {"%y = probe(%x, _, _, %x) : f32[2,3]", "y: probe takes 1 to 3 operands, got 4"},
      {"%y = together(%x, _) : f32[2,3]", "y: together needs its operand 'xs'"},
      {"%y = twice(%x) : f32[2,3]", "y: twice is given by other ops and cannot be a node itself"},
      {"%y = relu(%x)", "expected ':' before 'the end of the line'"},
      {"%y = relu(%x) : f32[3,2]", "output 0 of relu is f32[2,3], the line says f32[3,2]"},
      {"%y = relu(%x) : f32[2,3], f32[2,3]", "relu has 1 outputs, the line names 1 and types 2"},
      {"%y, %z = relu(%x) : f32[2,3]", "relu has 1 outputs, the line names 2 and types 1"},
      {"%y, %y = pair(%x) : f32[2,3], f32[]", "'%y' is made twice"},
      {"%x = relu(%x) : f32[2,3]", "'%x' is made twice"},
      {"%y = probe(%x) {ratio=1.0 : f32[2,3]", "expected '}' before ': f32[2,3]'"},
      {"%y = probe(%x) {ratio=} : f32[2,3]", "expected a whole number before '} : f32[2,3]'"},
      {"%y = probe(%x) {ratio=1} : f32[2,3]", "y: attribute 'ratio' of probe must be a real, got 1"},
      {"%y = probe(%x) {ratio=nan} : f32[2,3]", "y: attribute 'ratio' of probe is not a number"},
      {"%y = probe(%x) {ratio=1.0, ratio=2.0} : f32[2,3]", "attribute 'ratio' is given twice"},
      {"%y = probe(%x) {colour=1} : f32[2,3]", "y: probe has no attribute 'colour'"},
      {"%y = probe(%x) {label=\"a} : f32[2,3]", "a quoted text does not end"},
      {"%y = probe(%x) {dims=[1,2} : f32[2,3]", "expected ']' before '} : f32[2,3]'"},
      {"%y = relu(%x) : f32[2,3] phase=sideways", "'sideways' is not a phase"},
      {"%y = relu(%x) : f32[2,3] stage=-1", "-1 is out of range"},
      {"%y = relu(%x) : f32[2,3] barrier phase=update", "unexpected 'phase=update'"},
      {"%y = relu(%x) : f32[2,3] sharding:1=\"[dp]\"", "there is no output 1"},
      {"%y = fill() {shape=[4294967296,4294967296,4294967296]} : f32[1]",
       "y: extents [4294967296,4294967296,4294967296] are out of range"},
      {"input %x : f32[2]", "graph 'g' already has a value named 'x'"},
      {"input x : f32[2]", "expected '%' before 'x : f32[2]'"},
      {"write sum @w = %x", "expected 'set' before 'sum @w = %x'"},
      {"write set @v = %x", "there is no state '@v'"},
      {"write set @w", "expected '=' before 'the end of the line'"},
      {"output y = %y", "'%y' is read before it is made"},
      {"output = %x", "expected the output's name before '= %x'"},
  };
  for (const Bad& bad : cases) EXPECT_EQ(message_of(in_graph(bad.text)), "line 6: " + bad.message) << bad.text;
  EXPECT_EQ(message_of(in_graph("%y = relu(%x) : f32[2,3]")), "parsed");
}

// Names given by the text are known to the graph: a pass that asks for the same name gets another one.
TEST(Parse, NamesOfSecondOutputsAreTaken) {
  Module module = parse(in_graph("    %y, %other = pair(%x) : f32[2,3], f32[]"), registry());
  Graph& g = module.graph("g");
  EXPECT_EQ(g.value(g.new_value("other", {DType::f32, {}})).name, "other#1");
  EXPECT_EQ(g.value(g.new_value("y:1", {DType::f32, {}})).name, "y:1");
  Module swapped =
      parse(in_graph("    %a, %a:2 = pair(%x) : f32[2,3], f32[]\n    %a:1 = relu(%a) : f32[2,3]"), registry());
  verify(swapped);
}

TEST(Parse, MutationsParseOrThrow) {
  const std::string valid = R"text(module {
  mesh "dp=2,tp=2"
  state @w : f32[8,16] category=weights init=normal(0.02) trained decayed
  state @w/m : f32[8,16] category=optimizer init=zeros sparse sharding="[dp,_] partial(sum:tp)"
  state @loss : f32[] category=scalars init=zeros unsaved step_local
  graph micro {
    input %x : f32[4,16] sharding:0="[dp,_]"
    input %t : i32[4]
    %a = matmul(%x, @w) {trans_b=true} : f32[4,8]
    %r = reshape(%a) {shape=[2,2,8]} : f32[2,2,8]
    %c = transpose(%r) {perm=[2,0,1]} : f32[8,2,2]
    %s = slice(%c) {dim=0, start=2, end=4} : f32[2,2,2]
    %p = probe(%s, _, %x) {count=-9, dims=[3,-1,0], flag=true, label="a \"b\"", ratio=0.1} : f32[2,2,2] phase=input_gradient stage=1 barrier
    %l, %lse = cross_entropy(%a, %t) {scale=0.25} : f32[], f32[4]
    write add @loss = %l
    output loss = %l
  }
}
)text";
  ASSERT_NO_THROW(verify(parse(valid, registry())));
  const std::string alphabet = "0123456789-_.,:=@%#/\"\\[](){}+ \n\tabefnstx9~\xff";
  SplitMix random(11);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random.next() % n); };
  int parsed = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string mutated = valid;
    for (std::size_t edits = 1 + below(3); edits > 0 && !mutated.empty(); --edits) {
      const std::size_t at = below(mutated.size());
      switch (below(5)) {
        case 0: mutated[at] = alphabet[below(alphabet.size())]; break;
        case 1: mutated.insert(at, 1, alphabet[below(alphabet.size())]); break;
        case 2: mutated.erase(at, 1 + below(4)); break;
        case 3: mutated.insert(at, mutated.substr(below(mutated.size()), below(20))); break;
        default: mutated.resize(at + 1); break;
      }
    }
    try {
      const Module module = parse(mutated, registry());
      verify(module);
      EXPECT_EQ(to_text(parse(to_text(module), registry())), to_text(module));
      ++parsed;
    } catch (const Error& e) {
      EXPECT_FALSE(e.message().empty());
    }
  }
  EXPECT_GT(parsed, 100);
}

}  // namespace
}  // namespace trireme::ir
