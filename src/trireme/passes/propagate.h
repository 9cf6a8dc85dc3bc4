#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/passes/pass.h"

namespace trireme::passes {

// A user's sharding of a parameter, an input or another value: `pattern` is a name in which * stands for any
// characters, `sharding` is "dimension:axis", several by commas:
//
//   {"*.up.weight", "out:tp"}   {"images", "batch:dp,height:h"}   {"wte.weight", "vocab:tp"}
//
// Dimensions of parameters are out, in and vocab; of inputs and other values batch, sequence, feature, head, height,
// width and channel; or a number, from 0. `out` and `in` of a weight that makes or reads heads is the number of heads.
struct Annotation {
  std::string pattern;
  std::string sharding;
  int priority = 0;                      // those of lower numbers are propagated first, and win
  std::vector<std::string> graphs = {};  // in which it holds; empty: in all. Parameters are the same in all.
  bool optional = false;                 // may match nothing
  bool where_it_fits = false;            // in other graphs too: of values, not inputs, whose extents divide there
  std::string instead = {};              // proposed where it does not fit; empty: fewer ranks along its axis
  friend bool operator==(const Annotation&, const Annotation&) = default;
};

// Whether a name matches a pattern, in which * stands for any characters.
bool matches_pattern(std::string_view pattern, std::string_view name);

// Spreads a few annotations over the graphs: every value and state gets a sharding, by the factors of the ops between
// them, forwards and backwards. Shapes stay global.
//
//   {"up.weight", "out:tp"}
//   %h = matmul(%x, @up.weight, trans_b)                %h sharding=[_,_,tp]
//   %a = gelu(%h)                                 →     %a sharding=[_,_,tp]
//   %y = matmul(%a, @down.weight, trans_b)              @down.weight sharding=[_,tp]
//
// An axis goes first through what needs no communication, then through reductions. Where two shardings meet in a node
// that cannot have both, each stays where it is: the partition pass decides which of the operands moves.
//
// Where more ranks shard heads than there are key heads, those that share a key head are a part of the axis by
// themselves (ir/axis_parts.h), and the key head is theirs together:
//
//   q of 8 heads, k and v of 2 heads, tp=4        →     tp.0=2, tp.1=2: q [_,_,tp.0+tp.1,_], k and v [_,_,tp.0,_]
class Propagate : public Pass {
 public:
  struct Options {
    ir::Mesh mesh;
    std::vector<Annotation> annotations;
  };
  // A value by its graph and name ("micro", "%h"), or a state by its name alone ("", "@w").
  using Place = std::pair<std::string, std::string>;
  // Why an axis shards one of them: an annotation, or something else that it shards, through an op.
  struct Reason {
    std::string axis;
    Place from;  // empty names: an annotation
    std::string text;
  };
  using Reasons = std::map<Place, std::vector<Reason>>;

  explicit Propagate(Options options, Reasons* reasons = nullptr) : options_(std::move(options)), reasons_(reasons) {}
  std::string name() const override { return "propagate"; }
  // Refuses annotations that match nothing, name a dimension that there is not, or shard an extent that neither divides
  // nor may be padded.
  void run(ir::Module& module) const override;

 private:
  Options options_;
  Reasons* reasons_;
};

}  // namespace trireme::passes
