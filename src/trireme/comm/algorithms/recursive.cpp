#include <bit>

#include "trireme/comm/algorithms/algorithms.h"

namespace trireme::comm {
namespace {

// The ranks past the largest power of two P fold onto the first ones: rank P + i hands its data to rank i and waits for
// the result. The P that remain halve and double.
struct Fold {
  int rank, size, power;

  explicit Fold(const Wire& wire)
      : rank(wire.rank()),
        size(wire.size()),
        power(static_cast<int>(std::bit_floor(static_cast<unsigned>(wire.size())))) {}
  bool folded() const { return rank >= power; }
  bool has_partner() const { return rank + power < size; }
  int partner() const { return folded() ? rank - power : rank + power; }
};

// Halving: partners at distance P/2, P/4, … 1 split what they hold; each ends with the sum of part `rank`. `range(b,
// e)` gives the bytes of parts [b, e).
template <class Range>
void halve(Wire& wire, const Fold& fold, Range&& range, std::span<std::byte> scratch, const Combine& combine) {
  int begin = 0;
  int end = fold.power;
  for (int distance = fold.power / 2; distance > 0; distance /= 2) {
    const int middle = begin + distance;
    const bool upper = (fold.rank & distance) != 0;
    const std::span<std::byte> keep = upper ? range(middle, end) : range(begin, middle);
    const std::span<std::byte> give = upper ? range(begin, middle) : range(middle, end);
    const int partner = fold.rank ^ distance;
    wire.step();
    Wire::Incoming in = wire.recv_combine(keep, scratch, partner, combine);
    Ticket out = wire.send(give, partner);
    wire.wait(in);
    wire.wait(out);
    (upper ? begin : end) = middle;
  }
}

// Doubling: the same partners the other way round; each ends with all parts.
template <class Range>
void redouble(Wire& wire, const Fold& fold, Range&& range) {
  for (int distance = 1; distance < fold.power; distance *= 2) {
    const int partner = fold.rank ^ distance;
    const int mine = fold.rank & ~(distance - 1);
    const int theirs = partner & ~(distance - 1);
    wire.step();
    Ticket in = wire.recv(range(theirs, theirs + distance), partner);
    Ticket out = wire.send(range(mine, mine + distance), partner);
    wire.wait(in);
    wire.wait(out);
  }
}

// Slices in the order in which halving needs them: part i is the slice of rank i and then that of P + i, if there is
// one, so that every range of parts is one run.
class Parts {
 public:
  Parts(const Slicing& s, const Fold& fold, std::byte* base) : s_(s), fold_(fold), base_(base) {}

  std::span<std::byte> range(int begin, int end) const {
    std::byte* const first = base_ + offset(begin);
    return {first, offset(end) - offset(begin)};
  }
  std::span<std::byte> slice(int rank) const {
    if (rank < fold_.power) return {base_ + offset(rank), s_.bytes(rank)};
    std::byte* const first = base_ + offset(rank - fold_.power) + s_.bytes(rank - fold_.power);
    return {first, s_.bytes(rank)};
  }
  std::size_t bytes() const { return offset(fold_.power); }

 private:
  std::size_t offset(int part) const {
    std::size_t sum = 0;
    for (int i = 0; i < part; ++i) {
      sum += s_.bytes(i);
      if (i + fold_.power < fold_.size) sum += s_.bytes(i + fold_.power);
    }
    return sum;
  }

  const Slicing& s_;
  const Fold& fold_;
  std::byte* base_;
};

}  // namespace

void recursive_all_reduce(Wire& wire, const Reduction& r) {
  const Fold fold(wire);
  if (fold.folded()) {
    wire.step();
    Ticket out = wire.send(r.all(), fold.partner());
    wire.wait(out);
    wire.step();
    Ticket in = wire.recv(r.all(), fold.partner());
    return wire.wait(in);
  }
  if (fold.has_partner()) {
    wire.step();
    Wire::Incoming in = wire.recv_combine(r.all(), r.scratch, fold.partner(), r.combine());
    wire.wait(in);
  }
  const auto range = [&](int begin, int end) { return r.chunks(begin, end, fold.power); };
  halve(wire, fold, range, r.scratch, r.combine());
  r.finish(r.chunk(fold.rank, fold.power), fold.size);
  redouble(wire, fold, range);
  if (fold.has_partner()) {
    wire.step();
    Ticket out = wire.send(r.all(), fold.partner());
    wire.wait(out);
  }
}

void recursive_reduce_scatter(Wire& wire, const Slicing& s) {
  const Fold fold(wire);
  const Parts parts(s, fold, s.scratch.data());
  const std::span<std::byte> arrived = s.scratch.subspan(parts.bytes());
  const std::span<std::byte> mine = parts.slice(fold.rank);
  const Combine combine{s.dtype, s.reduce};
  for (int r = 0; r < fold.size; ++r) pack_wholes(s.cuts, r, s.element(), parts.slice(r).data());
  if (fold.folded()) {
    wire.step();
    Ticket out = wire.send(parts.range(0, fold.power), fold.partner());
    wire.wait(out);
    wire.step();
    Ticket in = wire.recv(mine, fold.partner());
    wire.wait(in);
  } else {
    if (fold.has_partner()) {
      wire.step();
      Wire::Incoming in = wire.recv_combine(parts.range(0, fold.power), arrived, fold.partner(), combine);
      wire.wait(in);
    }
    halve(
        wire, fold, [&](int begin, int end) { return parts.range(begin, end); }, arrived, combine);
    if (fold.has_partner()) {
      wire.step();
      Ticket out = wire.send(parts.slice(fold.partner()), fold.partner());
      wire.wait(out);
    }
  }
  finish(mine.data(), static_cast<std::int64_t>(mine.size() / s.element()), s.dtype, s.reduce, fold.size);
  unpack_slices(s.cuts, fold.rank, s.element(), mine.data());
}

void recursive_all_gather(Wire& wire, const Slicing& s) {
  const Fold fold(wire);
  const Parts parts(s, fold, s.scratch.data());
  pack_slices(s.cuts, fold.rank, s.element(), parts.slice(fold.rank).data());
  if (fold.folded()) {
    wire.step();
    Ticket out = wire.send(parts.slice(fold.rank), fold.partner());
    wire.wait(out);
    wire.step();
    Ticket in = wire.recv(parts.range(0, fold.power), fold.partner());
    wire.wait(in);
  } else {
    if (fold.has_partner()) {
      wire.step();
      Ticket in = wire.recv(parts.slice(fold.partner()), fold.partner());
      wire.wait(in);
    }
    redouble(wire, fold, [&](int begin, int end) { return parts.range(begin, end); });
    if (fold.has_partner()) {
      wire.step();
      Ticket out = wire.send(parts.range(0, fold.power), fold.partner());
      wire.wait(out);
    }
  }
  for (int r = 0; r < fold.size; ++r) unpack_wholes(s.cuts, r, s.element(), parts.slice(r).data());
}

}  // namespace trireme::comm
